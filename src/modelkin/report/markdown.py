"""A comparison as Markdown, for an issue or a pull request: the verdict first, the long parts folded away.

Names and claims come from strangers' files. Every word that Markdown, HTML or GitHub could take for more than a word is
set as code, where nothing is a link, a mention, a tag or a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from modelkin.records import Comparison, Evidence, NotEvidence, Unanswered
from modelkin.report.comparison_beside import (
    CANDIDATES,
    CONTROLS,
    NOT_COMPARED,
    claims_lines,
    control_lines,
    strangers_counts,
)
from modelkin.report.comparison_relation import TITLE, relation_lines
from modelkin.report.comparison_text import (
    DOES_NOT_COUNT,
    LABELS,
    NOT_EVIDENCE,
    fails,
    kinds_in_words,
    notes,
    pvalue_text,
    shortened,
    shown_pvalue,
    unless,
)
from modelkin.report.extrapolation import is_extrapolated, rests_on_extrapolation
from modelkin.report.lineage import date
from modelkin.report.model_card import model_card_patch, why_no_patch
from modelkin.report.text import plain, size

LONGEST_TEXT = 500
LONGEST_FINDING = 900  # of the relation, whose hedges stand at the end
LONGEST_SENTENCE = 1500  # of the verdict, which must never be cut: none of ours is half as long
LONGEST_ID = 120
SHOWN_LINES = 10
SHOWN_QUESTIONS = 16  # more than there are
DRAWN_LINES = 60
EXTRAPOLATED = "extrapolated, as too few unrelated models of its size and class were measured"
SEAL = "the seal of the record, sha256"
# Letters and digits of any script, and the marks of plain sentences where these have no other meaning. A colon inside
# a word could be an address or an emoji, a leading number or dash a list, hexadecimal digits a commit.
WORD = re.compile(r"[(\"'“‘]*-?[^\W_]+(?:[-–.,/'’=+×%][^\W_]+)*[%)\"'”’.,;:?!…]*|[–—·…≤≥=×%±]*[).,;:]*")
AROUND = re.compile(r"(\(?)(.*?)([).,;:]*)")
TAKEN_FOR_MORE = re.compile(r"(?i)\bgh-\d|\b[0-9a-f]{7,64}\b|\bwww\.")
OPENS_A_LIST = re.compile(r"\d+[.)]|[-+=]+")
QUOTED = re.compile(r"(`+)(.+?)\1(?!`)")


def markdown(comparison: Comparison) -> str:
    """GitHub's Markdown; fits a comment (65,536 characters) whatever the record holds."""
    parts = [
        _verdict(comparison),
        _models(comparison),
        _questions(comparison),
        *_bullets("Why", () if comparison.verdict.outcome == "related" else comparison.verdict.reasons),
        *_bullets("What this cannot say", comparison.verdict.limits),
        *_folded(TITLE, [*_items(relation_lines(comparison), LONGEST_FINDING), *_drawing(comparison)]),
        *_folded(NOT_EVIDENCE, _items(_not_evidence(item) for item in comparison.not_evidence)),
        *_folded("What the models claim: not evidence", _items(claims_lines(comparison))),
        *_beside(comparison),
        *_model_card(comparison),
        _check(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def prose(text: str, most: int = LONGEST_TEXT) -> str:
    """One line of words. What is quoted as code stays code; any other word that is more than a word becomes code."""
    line = " ".join(plain(text).split())
    line = line if len(line) <= most else line[:most].rstrip() + " …"
    parts, at = [], 0
    for quoted in QUOTED.finditer(line):
        parts += [*_words(line[at : quoted.start()], first=at == 0), code(quoted[2])]
        at = quoted.end()
    parts += _words(line[at:], first=at == 0)
    return re.sub(r"` ([).,;:]+)(?=\s|$)", r"`\1", " ".join(parts))


def code(text: str) -> str:
    """A code span, fenced by more backticks than the text holds in a row."""
    shown = plain(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _words(text: str, *, first: bool) -> list[str]:
    words = text.split()
    return [_word(word, first=first and place == 0) for place, word in enumerate(words)]


def _word(word: str, *, first: bool) -> str:
    if WORD.fullmatch(word) and not TAKEN_FOR_MORE.search(word) and not (first and OPENS_A_LIST.fullmatch(word)):
        return word
    around = AROUND.fullmatch(word)
    if around is None or not around[2]:
        return code(word)
    return f"{around[1]}{code(around[2])}{around[3]}"


def _cell(text: str) -> str:
    return prose(text).replace("|", "\\|")


def _verdict(comparison: Comparison) -> str:
    verdict = comparison.verdict
    said = [f"**{verdict.outcome.upper()}.** {prose(verdict.sentence, LONGEST_SENTENCE)}"]
    if verdict.outcome == "related":
        known = verdict.direction != "unknown" and verdict.direction_probability is not None
        sure = f" ({verdict.direction_probability:.2f})" if known else ""
        order = f"direction: `{verdict.direction}`{sure}{unless(comparison)}"
        said.append(f"Kind: {prose(kinds_in_words(verdict.kinds))} · {order}")
    return "\n\n".join([*said, _chance(comparison)])


def _chance(comparison: Comparison) -> str:
    """The p-value in words."""
    verdict = comparison.verdict
    if verdict.outcome != "related":
        return "Nothing was found that counts as evidence: strangers show as much by chance."
    if verdict.log10_pvalue is None:
        return "There is no p-value, for there is no chance in equal bytes: strangers share none that count here."
    measured = EXTRAPOLATED if rests_on_extrapolation(comparison) else "measured on unrelated models"
    bound = "an exact bound" if verdict.grade == "A" else measured
    often = pvalue_text(verdict.log10_pvalue)
    return (
        f"How sure: strangers show as much in at most {often} of all pairs (grade {verdict.grade}, {bound}; "
        f"{_times(verdict.log10_pvalue)})."
    )


def _times(log10: float) -> str:
    if log10 < -15:
        return f"at most one pair in a 1 followed by {int(-log10)} zeros"
    return f"at most one pair in {10 ** int(-log10):,}"


def _models(comparison: Comparison) -> str:
    lines = [
        "**The models**",
        "",
        "|  | model | revision | parameters | layers | width |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for name, party in (("A", comparison.a), ("B", comparison.b)):
        revision = _id(party.revision) if party.revision else "none (local files)"
        numbers = [f"{party.parameters:,}", *("–" if n is None else f"{n:,}" for n in (party.layers, party.hidden))]
        lines.append(f"| {name} | {_id(party.id)} | {revision} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _id(name: str) -> str:
    return code(shortened(name, LONGEST_ID)).replace("|", "\\|")


def _questions(comparison: Comparison) -> str:
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    lines = ["| question | observed | between strangers | p | grade |", "| --- | --- | --- | ---: | --- |"]
    for answer in given[:SHOWN_QUESTIONS]:
        said = (DOES_NOT_COUNT, "–") if fails(answer) else (answer.observed, answer.strangers)
        cells = [_cell(_label(answer.question)), *map(_cell, said), shown_pvalue(answer), _grade(answer)]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines) if given else "No question could be answered for this pair."
    beside = " ".join(prose(note) for note in notes(comparison))
    noted = [f"<sub>{beside}</sub>"] if beside else []
    return "\n\n".join(["**What was asked**", table, *noted, *_not_asked(comparison)])


def _grade(answer: Evidence) -> str:
    return f"{answer.grade or '–'}{', extrapolated' if is_extrapolated(answer) else ''}"


def _label(question: str) -> str:
    return LABELS.get(question, question)


def _not_asked(comparison: Comparison) -> Iterable[str]:
    reasons: dict[str, list[str]] = {}
    for answer in comparison.answers:
        if isinstance(answer, Unanswered):
            reasons.setdefault(answer.unanswered, []).append(_label(answer.question))
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    count = sum(map(len, reasons.values()))
    return _folded(f"Not asked: {count} question{'s' if count > 1 else ''}", _items(lines))


def _not_evidence(item: NotEvidence) -> str:
    expected = item.expected_from_means_alone
    beside = "no single value" if expected is None else _value(expected)
    return f"{item.measure}: {_value(item.value)}; strangers: {beside}. {item.why}"


def _value(value: float | str) -> str:
    return shortened(value, 40) if isinstance(value, str) else f"{value:.4f}"


def _drawing(comparison: Comparison) -> Iterable[str]:
    """The map of the layers, where it is more than a diagonal."""
    found = comparison.relation
    facing = comparison.a.layers == comparison.b.layers and all(a == b for b, a in comparison.verdict.layer_map)
    if found is None or not found.drawing or facing:
        return
    lines = [plain(line)[:LONGEST_ID] for line in found.drawing[:DRAWN_LINES]]
    fence = "~" * (max((len(run) for line in lines for run in re.findall("~+", line)), default=0) + 3)
    yield "\n".join(["", fence, *lines, fence])


def _beside(comparison: Comparison) -> Iterable[str]:
    """Candidates with their outcomes; controls with their counts alone, as nothing else of them is judged."""
    if comparison.controls:
        lines = ["| model | with | counts |", "| --- | --- | --- |"]
        for row, told in control_lines(comparison, LABELS)[:SHOWN_LINES]:
            lines.append(f"| {_id(row.id)} | {row.side.upper()} | {_cell(told)} |")
        lines.append(f"| between strangers |  | {_cell(strangers_counts(comparison.controls, LABELS))} |")
        yield from _folded(CONTROLS, ["\n".join([*lines, *_more(len(comparison.controls), "\n")])])
    if comparison.candidates:
        lines = ["| model | with | outcome | in words |", "| --- | --- | --- | --- |"]
        for row in comparison.candidates[:SHOWN_LINES]:
            outcome = row.outcome or NOT_COMPARED
            lines.append(f"| {_id(row.id)} | {row.side.upper()} | {outcome} | {_cell(row.sentence)} |")
        yield from _folded(CANDIDATES, ["\n".join([*lines, *_more(len(comparison.candidates), "\n")])])


def _model_card(comparison: Comparison) -> Iterable[str]:
    """For the owner of the descendant, where the evidence carries a line of the card; why not, where it is related."""
    patch = model_card_patch(comparison)
    if patch is not None:
        child = comparison.a if comparison.verdict.direction == "b->a" else comparison.b
        said = f"For the owner of {_id(child.id)}, if it is true: lines for the front matter of `README.md`."
        yield from _folded("Model card", [f"{said}\n\n```yaml\n{patch}```"])
    elif comparison.verdict.outcome == "related":
        yield f"No model card line follows: {prose(why_no_patch(comparison) or '')}."


def _check(comparison: Comparison) -> str:
    cost = comparison.cost
    when = f"; made {date(comparison)}" if date(comparison) else ""
    made = (
        f"modelkin {_cell(comparison.modelkin)}, policy {_cell(comparison.policy)}, budget `{comparison.budget}`, "
        f"seed {comparison.seed}; read, with repeats, {size(cost.bytes_a)} of A and "
        f"{size(cost.bytes_b)} of B{when}"
    )
    seal = f"; {SEAL}: {code(comparison.sha256[:64])}" if comparison.sha256 else ""
    return (
        "**To check it:** `modelkin verify comparison.json` recomputes the verdict from the record, and "
        f"`modelkin verify comparison.json --fetch` from both models.\n\n<sub>{made}{seal}</sub>"
    )


def _bullets(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        yield "\n".join([f"**{title}**", "", *_items(lines)])


def _items(lines: Iterable[str], most: int = LONGEST_TEXT) -> list[str]:
    told = list(lines)
    return [*(f"- {prose(line, most)}" for line in told[:SHOWN_LINES]), *_more(len(told), "- ")]


def _more(count: int, mark: str) -> list[str]:
    return [f"{mark}… and {count - SHOWN_LINES} more (`--json` has all)"] if count > SHOWN_LINES else []


def _folded(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        body = "\n".join(lines)
        yield f"<details><summary>{prose(title)}</summary>\n\n{body}\n\n</details>"
