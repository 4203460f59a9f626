"""The terminal page of a comparison: the verdict first, then what it rests on, then what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from modelkin.records import Comparison, Evidence, Json, KindShare, NotEvidence, Party, Unanswered
from modelkin.report.comparison_beside import beside_tables, claims_lines
from modelkin.report.comparison_relation import TITLE, alignment_lines, drawing, kinds_text, relation_lines
from modelkin.report.extrapolation import rests_on_extrapolation
from modelkin.report.text import plain, size

STYLES = {"related": "bold cyan", "unrelated": "bold green", "undecided": "bold yellow"}
COUNTS = {"A": 1e-6, "B": 1e-3}  # what an adjusted p must reach, by grade; the policy's, which a test compares
ORDINARY = -1.0  # log10 of a p that nobody takes for a finding
SMALL = -4.0  # log10 of a p that is written with an exponent
LONGEST_ID = 76
SHOWN_RUNS = 12
QUESTION_WIDTH = 17
# What a question is called for readers; one that is not here shows its id.
LABELS = {
    "identity": "same files",
    "copies": "same tensors",
    "hidden-axes-by-gains": "norm gains",
    "neurons": "MLP neurons",
    "hidden-axes-by-embeddings": "token embeddings",
    "layer-map": "layers",
    "attention": "attention heads",
    "experts": "experts",
    "pooled-rows": "MLP rows together",
    "every-neuron": "every MLP neuron",
    "gauge": "rearrangement",
    "coverage": "what was compared",
    "unmasked-neurons": "disguises undone",
}
UNMASKED = "unmasked-neurons"
P_NOTE = (
    "p: strangers show as much in at most this share of pairs, all tries counted. It counts from 1e-6 down over all "
    "questions by an exact law (grade A), from 1e-3 down by measured strangers (grade B); the rest is chance: up to 1 "
    "in 20 is below 0.05."
)
IN_PLACE = "Only “disguises undone” was asked after undoing."
Pair = tuple[str, str | None]  # a layer of b, and the layer of a that it matches
Run = list[Pair]
# A count that strangers may well reach here would read as a suspicion.
DOES_NOT_COUNT = "does not count: what it rests on does not hold, as said below"
# Of kinds that their names do not explain.
MEANINGS = {"re-encoded": "the same numbers stored in another way, as by rounding, quantising or pruning"}
NO_EXPECTED = "strangers have no single value"
NOT_EVIDENCE = "Not evidence: numbers taken for proof that prove nothing"


def comparison_page(comparison: Comparison) -> RenderableType:
    parts: list[RenderableType] = [
        _verdict(comparison),
        _parties(comparison),
        *_tokenizers(comparison.tokenizers),
        _answers(comparison),
        *_bullets("Why", _why(comparison)),
        *_bullets("Answers that cannot count", _does_not_count(comparison)),
        *_bullets(TITLE, relation_lines(comparison)),
        *_bullets("Where the weights of B stand in A", alignment_lines(comparison.alignment)),
        *_layer_map(comparison),
        *drawing(comparison),
        *_bullets("What the models say of themselves: claims, not evidence", claims_lines(comparison)),
        *beside_tables(comparison, LABELS),
        *_not_evidence(comparison.not_evidence),
        *_bullets("What this cannot say", comparison.verdict.limits),
        _cost(comparison),
    ]
    return Group(*parts)


def pvalue_text(log10: float) -> str:
    """Two digits, or one and the exponent, also far below what a float holds: 0.50, 0.036, 3e-41, 1e-312."""
    if log10 > ORDINARY:
        return f"{min(1.0, 10.0**log10):.2f}"
    if log10 > SMALL:
        return f"{10.0**log10:.2g}"
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
        sure = "" if verdict.direction_probability is None else f" ({verdict.direction_probability:.2f})"
        facts = [f"kind: {kinds_in_words(verdict.kinds)}", f"direction: {verdict.direction}{sure}{unless(comparison)}"]
        if verdict.log10_pvalue is not None:
            beyond = ", extrapolated" if rests_on_extrapolation(comparison) else ""
            facts.append(f"p ≤ {pvalue_text(verdict.log10_pvalue)} (grade {verdict.grade}{beyond})")
        parts.append(Text(" · ".join(facts), style="bold"))
    return Padding(Group(*parts), (1, 0, 0, 0))


def kinds_in_words(kinds: Sequence[KindShare]) -> str:
    """Every kind, and what it is where its name does not say."""
    told = [kinds_text([one]) + (f": {MEANINGS[one.kind]}" if one.kind in MEANINGS else "") for one in kinds]
    return ("; " if any(one.kind in MEANINGS for one in kinds) else ", ").join(told)


def unless(comparison: Comparison) -> str:
    """That two merely began alike can be imitated, as their sentence says; so nothing may say it flatly."""
    began_alike = any(share.kind == "shared-init" for share in comparison.verdict.kinds)
    return ", unless that is imitated" if began_alike else ""


def _parties(comparison: Comparison) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(overflow="fold")
    for label, party in (("A", comparison.a), ("B", comparison.b)):
        grid.add_row(Text(label, style="bold"), Text(_identity(party)))
        grid.add_row("", Text(_shape(party), style="dim"))
    return Padding(grid, (1, 0, 0, 0))


def _identity(party: Party) -> str:
    revision = f"@{plain(party.revision)[:7]}" if party.revision else ""
    return shortened(party.id, LONGEST_ID - len(revision)) + revision


def _shape(party: Party) -> str:
    known = [(party.layers, "layer" if party.layers == 1 else "layers"), (party.hidden, "wide")]
    return ", ".join([_count(party.parameters), *(f"{value:,} {name}" for value, name in known if value)])


def _count(parameters: int) -> str:
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if parameters >= unit:
            return f"{parameters / unit:.1f} {name} parameters"
    return f"{parameters:,} parameters"


def _tokenizers(facts: Json | None) -> Iterable[RenderableType]:
    if facts is None:
        return
    a, b = facts["ordinary"]
    line = f"tokenizers: {a:,} and {b:,} ordinary tokens, {facts['shared']:,} in common, {facts['same_ids']:,} of them "
    yield Padding(Text(line + "under the same number; that says nothing of the weights", style="dim"), (1, 0, 0, 0))


def _answers(comparison: Comparison) -> RenderableType:
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    table = Table(title="What was asked", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = (0, 2, 0, 0)
    for name, width in (("question", QUESTION_WIDTH), ("observed", None), ("between strangers", None)):
        table.add_column(name, overflow="fold", width=width)
    table.add_column("p", justify="right", no_wrap=True)
    for answer in given:
        said = (DOES_NOT_COUNT, "–") if fails(answer) else (answer.observed, answer.strangers)
        words = (_label(answer.question), *said)
        table.add_row(*(Text(plain(word)) for word in words), shown_pvalue(answer))
    parts: list[RenderableType] = [table] if given else [Text("What was asked", style="bold")]
    parts.append(_unanswered([answer for answer in comparison.answers if isinstance(answer, Unanswered)]))
    parts += [Text(note, style="dim") for note in notes(comparison)]
    return Padding(Group(*parts), (1, 0, 0, 0))


def _label(question: str) -> str:
    return LABELS.get(question, question)


def _unanswered(missing: Sequence[Unanswered]) -> RenderableType:
    """A line a reason: what cannot be asked, often cannot be asked of several things at once."""
    reasons: dict[str, list[str]] = {}
    for answer in missing:
        reasons.setdefault(answer.unanswered, []).append(_label(answer.question))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", width=QUESTION_WIDTH)
    grid.add_column(overflow="fold")
    for reason, names in reasons.items():
        grid.add_row(Text(plain(", ".join(names))), Text(f"not asked: {plain(reason)}", style="dim"))
    return grid


def notes(comparison: Comparison) -> list[str]:
    """What the table of questions needs beside it."""
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    found = [P_NOTE] if any(answer.log10_pvalue is not None for answer in given) else []
    return [*found, IN_PLACE] if seen_through(comparison) else found


def seen_through(comparison: Comparison) -> bool:
    """Whether the models were recognised only once something had been undone."""
    return any(isinstance(one, Evidence) and one.question == UNMASKED and counts(one) for one in comparison.answers)


def shown_pvalue(answer: Evidence) -> str:
    """Every p with its number. One that is small and does not count has a word beside it, lest it read as a find.

    Where what a p rests on was found not to hold it is no chance of anything, and only what anybody takes for chance
    is shown.
    """
    if answer.log10_pvalue is None:
        return "–"
    number = pvalue_text(answer.log10_pvalue)
    if answer.log10_pvalue > ORDINARY or counts(answer):
        return number
    return "–" if fails(answer) or answer.grade is None else f"{number} · chance"


def counts(answer: Evidence) -> bool:
    """Whether its p reaches what its grade asks for, and rests on nothing that was found not to hold."""
    if answer.grade is None or answer.adjusted_pvalue is None or fails(answer):
        return False
    return answer.adjusted_pvalue <= COUNTS[answer.grade]


def fails(answer: Evidence) -> list[str]:
    return [assumption.text for assumption in answer.assumptions if assumption.held is False]


def _why(comparison: Comparison) -> Sequence[str]:
    """Where nothing was found, what was looked for. What was found is in the table."""
    return () if comparison.verdict.outcome == "related" else comparison.verdict.reasons


def _does_not_count(comparison: Comparison) -> list[str]:
    """Failed assumptions, unless a reason above has told of them."""
    told = "\n".join(_why(comparison))
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    failed = [(answer.question, text) for answer in given for text in fails(answer) if text not in told]
    return [f"{_label(question)}: this does not hold: {text}" for question, text in failed]


def _layer_map(comparison: Comparison) -> Iterable[RenderableType]:
    pairs = comparison.verdict.layer_map
    if not pairs or (comparison.a.layers == comparison.b.layers and all(a == b for b, a in pairs)):
        return ()
    again, in_part = _again(comparison, pairs), _in_part(comparison, pairs)
    lines = [_run_text(run) for run in runs([pair for pair in pairs if pair[0] not in dict(in_part)])]
    lines += [f"{_run_text(run)} as well" for run in runs(again)]
    lines += [_in_part_text(run) for run in runs(in_part)]
    lines += _left_over([*pairs, *again, *in_part], comparison.a.layers)
    rest = len(lines) - SHOWN_RUNS
    return _bullets("How the layers match", [*lines[:SHOWN_RUNS], *_more(rest)])


def _again(comparison: Comparison, pairs: Sequence[Pair]) -> list[Pair]:
    """Further layers of a that match a layer of b, where a repeats layers: they stand in the answer alone."""
    answers = [a for a in comparison.answers if isinstance(a, Evidence) and a.question == "layer-map"]
    found = [(finding.b, finding.a) for answer in answers for finding in answer.per_layer if finding.a]
    return [pair for pair in found if pair not in pairs]


def _in_part(comparison: Comparison, pairs: Sequence[Pair]) -> list[Pair]:
    """Layers that match none by the few rows that the map looks at, while among all their neurons some are the same."""
    alone = {b for b, a in pairs if a is None}
    answers = [a for a in comparison.answers if isinstance(a, Evidence) and a.question == "every-neuron" and a.grade]
    findings = [finding for answer in answers for finding in answer.per_layer if finding.b in alone and finding.a]
    seen = [f for f in findings if f.log10_pvalue is not None and f.log10_pvalue <= math.log10(COUNTS["A"])]
    return [(finding.b, finding.a) for finding in seen]


def _in_part_text(run: Run) -> str:
    (first_b, first_a), (last_b, last_a) = run[0], run[-1]
    verb = "shares" if len(run) == 1 else "share"
    return f"{_layers(first_b, last_b)} of B {verb} some neurons with {_layers(first_a or '', last_a or '')} of A"


def _left_over(pairs: Sequence[Pair], layers: int | None) -> list[str]:
    """Layers of a that no layer of b matches, where they are numbered from 0."""
    met = {a for _, a in pairs if a is not None}
    missing: list[Pair] = [(str(i), None) for i in range(layers or 0) if str(i) not in met]
    if not all(name.isdecimal() for name in met):
        return []
    return [f"{_layers(run[0][0], run[-1][0])} of A match{_ending(run)} none of B" for run in runs(missing)]


def _more(rest: int) -> list[str]:
    return [f"… and {rest} more (--json has all)"] if rest > 0 else []


def runs(pairs: Sequence[Pair]) -> list[Run]:
    """Stretches in which both numbers rise by one, or all are without partner."""
    runs: list[Run] = []
    for pair in pairs:
        if runs and _follows(runs[-1][-1], pair):
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _follows(before: Pair, after: Pair) -> bool:
    if before[1] is None or after[1] is None:
        return before[1] is after[1] and _is_next(before[0], after[0])
    return _is_next(before[0], after[0]) and _is_next(before[1], after[1])


def _is_next(before: str, after: str) -> bool:
    (stack, _, i), (other, _, j) = before.rpartition("."), after.rpartition(".")
    return stack == other and i.isdecimal() and j.isdecimal() and int(j) == int(i) + 1


def _run_text(run: Run) -> str:
    (first_b, first_a), (last_b, last_a) = run[0], run[-1]
    target = "none" if first_a is None or last_a is None else _layers(first_a, last_a)
    return f"{_layers(first_b, last_b)} of B match{_ending(run)} {target} of A"


def _ending(run: Run) -> str:
    return "es" if len(run) == 1 else ""


def _layers(first: str, last: str) -> str:
    return f"layer {first}" if first == last else f"layers {first}–{last.rpartition('.')[2]}"


def _not_evidence(items: Sequence[NotEvidence]) -> Iterable[RenderableType]:
    if not items:
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    for item in items:
        expected = item.expected_from_means_alone
        beside = NO_EXPECTED if expected is None else f"expected of strangers: {_value(expected)}"
        grid.add_row(" ·", Text(f"{plain(item.measure)}: {_value(item.value)}; {beside}", overflow="fold"))
        grid.add_row("", Text(plain(item.why), style="dim", overflow="fold"))
    yield Padding(Group(Text(NOT_EVIDENCE, style="bold"), grid), (1, 0, 0, 0))


def _value(value: float | str) -> str:
    return shortened(value, 18) if isinstance(value, str) else f"{value:.4f}"


def _bullets(title: str, lines: Sequence[str]) -> Iterable[RenderableType]:
    if not lines:
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        grid.add_row(" ·", Text(plain(line), overflow="fold"))
    yield Padding(Group(Text(title, style="bold"), grid), (1, 0, 0, 0))


def _cost(comparison: Comparison) -> RenderableType:
    cost = comparison.cost
    asked = "request" if cost.requests == 1 else "requests"
    line = (
        f"read {size(cost.bytes_a)} of A ({size(cost.tensor_bytes_a)} of it tensors), {size(cost.bytes_b)} of B "
        f"({size(cost.tensor_bytes_b)}), repeats included; {cost.requests:,} {asked}; {cost.seconds:.1f} s; "
        f"{comparison.budget}, seed {comparison.seed}, policy {plain(comparison.policy)}"
    )
    return Padding(Text(line, style="dim"), (1, 0, 1, 0))
