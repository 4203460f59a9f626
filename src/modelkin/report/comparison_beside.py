"""What stands beside a comparison: the models' own claims, controls that show what strangers give, candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from modelkin.records import Beside, BriefAnswer, Comparison, Evidence, Standing, WeighedClaim
from modelkin.report.text import plain

SHOWN_NAMES = 4
LAYERS = "layer-map"
CONTROLS = "Controls: models that should be strangers, asked what `quick` asks; beside each count stands this pair's"
NOT_READ = "what A and B say of their own origin was not read: `quick` leaves that out, `standard` reads it"
CANDIDATES = "Candidates"
NOT_COMPARED = "nothing comparable"
NONE = "–"


def claims_lines(comparison: Comparison) -> list[str]:
    """What each model says of its own origin, and what the evidence says to that; or that nobody looked."""
    parties = (comparison.a, comparison.b)
    lines = [NOT_READ] if comparison.budget == "quick" and not any(party.claims.read for party in parties) else []
    for name, party in (("A", comparison.a), ("B", comparison.b)):
        claims = party.claims
        for finding in claims.findings[:SHOWN_NAMES]:
            lines += _claim(name, finding, claims.relation)
        if len(claims.findings) > SHOWN_NAMES:
            lines.append(f"… and {name} names {len(claims.findings) - SHOWN_NAMES} more (--json has all)")
        lines += [f"of {name}: {note}" for note in claims.notes]
    return lines


def _claim(name: str, finding: WeighedClaim, word: str | None) -> list[str]:
    """The base, and on a line of its own what is said to have been done to it, where that could be weighed."""
    done = finding.relation
    how = f" ({word})" if word and done is None else ""
    lines = [f"{name} says it comes from {finding.base_model}{how}: {_told(finding.standing, finding.why)}"]
    if done is not None:
        lines.append(f"{name} calls what was done “{done.word}”: {_told(done.standing, done.why)}")
    return lines


def _told(standing: Standing, why: str) -> str:
    return f"{standing} {'from' if standing == 'cannot be told' else 'by'} the evidence: {why}"


def beside_tables(comparison: Comparison, labels: Mapping[str, str]) -> Iterable[RenderableType]:
    """A line for every further model and side, with the count of every question: found of how many.

    Of controls no outcome is told: the few questions that they are asked leave most strangers undecided, and that would
    read as a doubt. What they show is how small a stranger's count is beside that of the pair.
    """
    ours = _of_pair(comparison)
    for title, rows, pair in ((CONTROLS, comparison.controls, ours), (CANDIDATES, comparison.candidates, None)):
        if rows:
            asked = _asked(rows, labels)
            parts = [Text(title, style="bold"), _table(rows, asked, pair), *_remarks(rows, asked)]
            yield Padding(Group(*parts), (1, 0, 0, 0))


def control_lines(comparison: Comparison, labels: Mapping[str, str]) -> list[tuple[Beside, str]]:
    """Every control with its counts beside those of the pair, or why it has none; never an outcome."""
    ours, asked = _of_pair(comparison), _asked(comparison.controls, labels)
    return [
        (row, row.sentence if row.outcome in (None, "related") else _counts(row, asked, ours))
        for row in comparison.controls
    ]


def strangers_counts(rows: Sequence[Beside], labels: Mapping[str, str]) -> str:
    return _strangers(rows, _asked(rows, labels))


def _strangers(rows: Sequence[Beside], asked: Mapping[str, str]) -> str:
    given = {answer.question: answer.strangers for row in rows for answer in row.answers if answer.strangers}
    return "; ".join(f"{label} {given[question]}" for question, label in asked.items() if question in given)


def _of_pair(comparison: Comparison) -> dict[str, str]:
    return {answer.question: _statistic(answer) for answer in comparison.answers if isinstance(answer, Evidence)}


def _asked(rows: Sequence[Beside], labels: Mapping[str, str]) -> dict[str, str]:
    """The questions that some row has a p for, with what readers call them."""
    found = (answer.question for row in rows for answer in row.answers if answer.log10_pvalue is not None)
    return {question: labels.get(question, question) for question in found}


def _table(rows: Sequence[Beside], asked: Mapping[str, str], pair: Mapping[str, str] | None) -> Table:
    """A model and side under the other: names are long, and as columns the questions would leave them no room.

    `pair`: the counts of the pair by question, to stand beside each; then no outcome is told.
    """
    grid = Table.grid(padding=(0, 1, 0, 0))
    for row in rows:
        outcome = NOT_COMPARED if row.outcome is None else row.outcome if pair is None else ""
        told = f"{_named(row)}: {outcome}" if outcome else _named(row)
        grid.add_row(" ·", Text(plain(told), overflow="fold"))
        if row.outcome is not None:
            grid.add_row("", Text(plain(_counts(row, asked, pair)), overflow="fold"))
    return grid


def _counts(row: Beside, asked: Mapping[str, str], pair: Mapping[str, str] | None) -> str:
    given = {answer.question: _statistic(answer) for answer in row.answers}
    return ", ".join(f"{label} {_count(question, given, pair)}" for question, label in asked.items())


def _named(row: Beside) -> str:
    return f"{row.id} with {row.side.upper()}"


def _count(question: str, given: Mapping[str, str], pair: Mapping[str, str] | None) -> str:
    found = given.get(question, NONE)
    return found if pair is None else f"{found} (this pair {pair.get(question, NONE)})"


def _statistic(answer: BriefAnswer | Evidence) -> str:
    if answer.statistic is None:
        return NONE
    if answer.statistic == int(answer.statistic):
        # Layers are matched by their neurons: the count is of these, and without a word it would read as of layers.
        what = " neurons" if answer.question == LAYERS else ""
        return f"{int(answer.statistic):,} of {answer.n:,}{what}"
    return f"{answer.statistic:.3f}"


def _remarks(rows: Sequence[Beside], asked: Mapping[str, str]) -> list[RenderableType]:
    """Why a row is not what one expects of it; and what the counts are between strangers."""
    told = {f"{_named(row)}: {row.sentence}": None for row in rows if row.outcome in (None, "related")}
    strangers = _strangers(rows, asked)
    lines = [*told, *([f"between strangers: {strangers}"] if strangers else [])]
    return [Text(plain(line), style="dim", overflow="fold") for line in lines]
