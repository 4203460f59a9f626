"""The terminal page of a comparison: the verdict first, then what it rests on, then what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from modelkin.records import Comparison, Evidence, NotEvidence, Party, Unanswered
from modelkin.report.text import plain, size

STYLES = {"related": "bold cyan", "unrelated": "bold green", "undecided": "bold yellow"}
COUNTS = 1e-6  # what an adjusted p must reach; the policy's, which a test compares
LONGEST_ID = 44
SHOWN_RUNS = 12
QUESTION_WIDTH = 26
P_NOTE = (
    "p: the chance of as much between strangers. It counts at grade A, from 1e-6 down after division among the "
    "questions."
)


def comparison_page(comparison: Comparison) -> RenderableType:
    parts: list[RenderableType] = [
        _verdict(comparison),
        _parties(comparison),
        _answers(comparison),
        *_bullets("Why", _why(comparison)),
        *_bullets("Answers that cannot count", _does_not_count(comparison)),
        *_layer_map(comparison),
        *_not_evidence(comparison.not_evidence),
        *_bullets("What this cannot say", comparison.verdict.limits),
        _cost(comparison),
    ]
    return Group(*parts)


def pvalue_text(log10: float) -> str:
    """One digit and the exponent, also far below what a float holds: 3e-41, 1e-312."""
    if log10 > -2:
        return f"{min(1.0, 10.0**log10):.2f}"
    exponent = math.floor(log10)
    digit = round(10.0 ** (log10 - exponent))
    return f"1e{exponent + 1}" if digit == 10 else f"{digit}e{exponent}"


def shortened(name: str, most: int = LONGEST_ID) -> str:
    """Both ends of a long name: owner and version say more than the middle."""
    shown = plain(name)
    if cell_len(shown) <= most:
        return shown
    head = set_cell_size(shown, most // 2).rstrip()
    tail = set_cell_size(shown[::-1], most - most // 2 - 1).rstrip()[::-1]
    return f"{head}…{tail}"


def _verdict(comparison: Comparison) -> RenderableType:
    verdict = comparison.verdict
    line = Text.assemble((verdict.outcome.upper(), STYLES[verdict.outcome]), "  ", plain(verdict.sentence))
    parts = [line]
    if verdict.outcome == "related":
        facts = ["kind: " + (", ".join(share.kind for share in verdict.kinds) or "undetermined")]
        facts.append(f"direction: {verdict.direction}")
        if verdict.log10_pvalue is not None:
            facts.append(f"p ≤ {pvalue_text(verdict.log10_pvalue)} (grade {verdict.grade})")
        parts.append(Text(" · ".join(facts), style="bold"))
    return Padding(Group(*parts), (1, 0, 0, 0))


def _parties(comparison: Comparison) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(overflow="fold")
    for label, party in (("A", comparison.a), ("B", comparison.b)):
        grid.add_row(Text(label, style="bold"), Text(_identity(party)), Text(_shape(party), style="dim"))
    return Padding(grid, (1, 0, 0, 0))


def _identity(party: Party) -> str:
    revision = f"@{plain(party.revision)[:7]}" if party.revision else ""
    return shortened(party.id, LONGEST_ID - len(revision)) + revision


def _shape(party: Party) -> str:
    known = [(party.layers, "layers"), (party.hidden, "wide")]
    return ", ".join([_count(party.parameters), *(f"{value:,} {name}" for value, name in known if value)])


def _count(parameters: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M")):
        if parameters >= unit:
            return f"{parameters / unit:.1f} {name}"
    return f"{parameters:,}"


def _answers(comparison: Comparison) -> RenderableType:
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    missing = [answer for answer in comparison.answers if isinstance(answer, Unanswered)]
    table = _table("What was asked", ("question", "observed", "between strangers"), ("p", "grade"))
    width = min(QUESTION_WIDTH, max((cell_len(plain(answer.question)) for answer in comparison.answers), default=0))
    table.columns[0].min_width = width
    for answer in given:
        words = (answer.question, answer.observed, answer.strangers)
        table.add_row(*(Text(plain(word)) for word in words), _shown_pvalue(answer), answer.grade or "–")
    parts: list[RenderableType] = [table] if given else [Text("What was asked", style="bold")]
    parts.append(_unanswered(missing, width))
    if any(answer.log10_pvalue is not None for answer in given):
        parts.append(Text(P_NOTE, style="dim"))
    return Padding(Group(*parts), (1, 0, 0, 0))


def _unanswered(missing: Sequence[Unanswered], width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", width=width)
    grid.add_column(overflow="fold")
    for answer in missing:
        grid.add_row(Text(plain(answer.question)), Text(f"not asked: {plain(answer.unanswered)}", style="dim"))
    return grid


def _shown_pvalue(answer: Evidence) -> str:
    """A p that convicts, or one that anybody would take for chance. What lies between reads as a suspicion."""
    if answer.log10_pvalue is None:
        return "–"
    if answer.log10_pvalue > -2:
        return pvalue_text(answer.log10_pvalue)
    if _fails(answer) or answer.grade is None:
        return "–"
    rejects = answer.adjusted_pvalue is not None and answer.adjusted_pvalue <= COUNTS
    return pvalue_text(answer.log10_pvalue) if rejects else "chance"


def _fails(answer: Evidence) -> list[str]:
    return [assumption.text for assumption in answer.assumptions if assumption.held is False]


def _why(comparison: Comparison) -> Sequence[str]:
    """Where nothing was found, what was looked for. What was found is in the table."""
    return () if comparison.verdict.outcome == "related" else comparison.verdict.reasons


def _does_not_count(comparison: Comparison) -> list[str]:
    """Failed assumptions, unless a reason above has told of them."""
    told = "\n".join(_why(comparison))
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    failed = [(answer.question, text) for answer in given for text in _fails(answer) if text not in told]
    return [f"{question}: this does not hold: {text}" for question, text in failed]


def _layer_map(comparison: Comparison) -> Iterable[RenderableType]:
    pairs = comparison.verdict.layer_map
    if comparison.a.layers == comparison.b.layers and all(a == b for b, a in pairs):
        return ()
    lines = [_run_text(run) for run in _runs(pairs)]
    rest = len(lines) - SHOWN_RUNS
    return _bullets("Layers of B, and where they stand in A", [*lines[:SHOWN_RUNS], *_more(rest)])


def _more(rest: int) -> list[str]:
    return [f"… and {rest} more (--json has all)"] if rest > 0 else []


Run = list[tuple[str, str | None]]


def _runs(pairs: Sequence[tuple[str, str | None]]) -> list[Run]:
    """Stretches in which both numbers rise by one, or all are without partner."""
    runs: list[Run] = []
    for pair in pairs:
        if runs and _follows(runs[-1][-1], pair):
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _follows(before: tuple[str, str | None], after: tuple[str, str | None]) -> bool:
    if before[1] is None or after[1] is None:
        return before[1] is after[1] and _is_next(before[0], after[0])
    return _is_next(before[0], after[0]) and _is_next(before[1], after[1])


def _is_next(before: str, after: str) -> bool:
    (stack, _, i), (other, _, j) = before.rpartition("."), after.rpartition(".")
    return stack == other and i.isdecimal() and j.isdecimal() and int(j) == int(i) + 1


def _run_text(run: Run) -> str:
    (first_b, first_a), (last_b, last_a) = run[0], run[-1]
    target = "none" if first_a is None or last_a is None else _span(first_a, last_a)
    return f"{_span(first_b, last_b)} ← {target}"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first}–{last.rpartition('.')[2]}"


def _not_evidence(items: Sequence[NotEvidence]) -> Iterable[RenderableType]:
    if not items:
        return
    table = _table("Not evidence", ("measure", "why it does not count"), ("value", "means alone"))
    for item in items:
        expected = item.expected_from_means_alone
        numbers = (_value(item.value), "–" if expected is None else _value(expected))
        table.add_row(Text(plain(item.measure)), Text(plain(item.why), style="dim"), *numbers)
    yield Padding(table, (1, 0, 0, 0))


def _value(value: float | str) -> Text:
    return Text(shortened(value, 18) if isinstance(value, str) else f"{value:.4g}")


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in words:
        table.add_column(name, overflow="fold", max_width=QUESTION_WIDTH if name == words[0] else None)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _bullets(title: str, lines: Sequence[str]) -> Iterable[RenderableType]:
    if not lines:
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        grid.add_row(" ·", Text(plain(line), overflow="fold"))
    yield Padding(Group(Text(title, style="bold"), grid), (1, 0, 0, 0))


def _cost(comparison: Comparison) -> RenderableType:
    cost = comparison.cost
    line = (
        f"read {size(cost.bytes_a)} of A ({size(cost.tensor_bytes_a)} of it tensors), {size(cost.bytes_b)} of B "
        f"({size(cost.tensor_bytes_b)}); {cost.requests:,} requests; {cost.seconds:.1f} s; "
        f"{comparison.budget}, seed {comparison.seed}, policy {plain(comparison.policy)}"
    )
    return Padding(Text(line, style="dim"), (1, 0, 1, 0))
