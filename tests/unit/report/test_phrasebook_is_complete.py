"""Every English text that a record can hold has its Korean: those of real records, and those the source could make.

A sentence without Korean fails here and says which and where. Its Korean goes into src/modelkin/report/phrases_ko.toml.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import msgspec
import pytest

import modelkin
from modelkin.compare import CompareOptions, compare
from modelkin.records import Comparison, Evidence, Unanswered
from modelkin.records.comparison import Claims
from modelkin.report import phrasebook
from modelkin.report.phrasebook import korean

PACKAGE = Path(modelkin.__file__).parent
BOOK = PACKAGE / "report" / "phrases_ko.toml"
MODELS = PACKAGE / "demo" / "models"
SEEN = Path(__file__).with_name("texts_of_records.txt").read_text("utf-8").splitlines()
TWO_ENGLISH_WORDS = re.compile(r"[a-z]{3,} [a-z]{2,}")


# Real records.


@pytest.fixture(scope="module")
def records() -> list[Comparison]:
    def found(a: str, b: str, budget: Any, **further: tuple[str, ...]) -> Comparison:
        named = {role: tuple(str(MODELS / name) for name in names) for role, names in further.items()}
        return compare(str(MODELS / a), str(MODELS / b), CompareOptions(budget=budget, **named))

    names = sorted(folder.name for folder in MODELS.iterdir() if folder.is_dir())
    quick = [found(a, b, "quick") for i, a in enumerate(names) for b in names[i + 1 :]]
    beside = found("amber", "grove", "quick", candidates=("cobalt",), controls=("ember", "dune"))
    return [*quick, beside, found("dune", "heath", "standard"), found("dune", "fjord", "full")]


def texts_of(record: Comparison) -> Iterator[str]:
    """Every English text that a record holds, field by field."""
    verdict, relation = record.verdict, record.relation
    yield from (verdict.sentence, *verdict.reasons, *verdict.limits)
    for answer in record.answers:
        yield from _of_answer(answer)
    for number in record.not_evidence:
        yield from (number.measure, number.why, *(v for v in (number.value,) if isinstance(v, str)))
    if relation is not None:
        yield from (text for kind in relation.kinds for text in (kind.why, kind.strangers))
        yield from (*relation.direction_reasons, *relation.limits, *(each.why for each in relation.not_compared))
        yield from relation.merge.marks if relation.merge else ()
    for row in (*record.controls, *record.candidates):
        yield row.sentence
        yield from (text for brief in row.answers for text in (brief.strangers, brief.unanswered) if text)
    yield from _of_alignment(record.alignment or {})
    for claims in (record.a.claims, record.b.claims):
        yield from (*claims.notes, *(finding.why for finding in claims.findings))
        yield from (finding.relation.why for finding in claims.findings if finding.relation)


def _of_answer(answer: Evidence | Unanswered) -> Iterator[str]:
    if isinstance(answer, Unanswered):
        yield answer.unanswered
    else:
        yield from (answer.observed, answer.strangers, answer.null.text, *(each.text for each in answer.assumptions))
        yield from (finding.b for finding in answer.per_layer if answer.question in ("gauge", "coverage"))


def _of_alignment(alignment: dict[str, Any]) -> Iterator[str]:
    yield from (*alignment.get("reasons", ()), *alignment.get("undone", ()))
    yield from (told["strangers"] for told in (alignment.get("held_out"), alignment.get("tokens")) if told)


def test_every_text_of_the_bundled_pairs_has_its_korean(records: list[Comparison]) -> None:
    texts = {text for record in records for text in texts_of(record)}
    assert len(texts) > 200
    assert sorted(text for text in texts if korean(text) is None) == []


def test_every_kind_of_text_that_was_ever_seen_has_its_korean() -> None:
    """Of pairs of a zoo of models too: merges, upcycled experts, quantised and disguised ones; at every budget."""
    assert [text for text in SEEN if korean(text) is None] == []


def test_nothing_english_is_left_in_the_korean(records: list[Comparison]) -> None:
    texts = {*SEEN, *(text for record in records for text in texts_of(record))}
    told = {korean(text) or "" for text in texts}
    assert sorted(text for text in told if TWO_ENGLISH_WORDS.search(text)) == []


def test_no_text_of_a_record_is_forgotten_here(records: list[Comparison]) -> None:
    """Whatever in a record reads like a sentence is among the texts above, or is a name or a drawing."""
    told = {text for record in records for text in texts_of(record)}
    found = {text for record in records for text in _sentences(msgspec.to_builtins(_without_names(record)))}
    assert found - told == set()


def _without_names(record: Comparison) -> Comparison:
    """Ids, rows and the drawing of the layers are no sentences; cards say what they like."""
    parts = {side: msgspec.structs.replace(getattr(record, side), files=(), claims=Claims()) for side in ("a", "b")}
    relation = record.relation and msgspec.structs.replace(record.relation, drawing=(), tensors=(), triplets=())
    return msgspec.structs.replace(record, rows=None, tokenizers=None, relation=relation, **parts)


def _sentences(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", tree):
            yield tree
    elif isinstance(tree, dict | list | tuple):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _sentences(item)


# The source.

MAKERS = (
    "verdict/words.py",
    "verdict/telling.py",
    "questions/*.py",
    "relation/*.py",
    "stats/*.py",
    "alignment/*.py",
    "claims/*.py",
    "beside.py",
    "compare.py",
    "unmasking.py",
    "vocabulary/json_text.py",
)
REASONS = {"CannotAsk", "NoTokens", "Unfit", "NoClaim", "NotJson"}  # what is raised and becomes a text of a record
PROGRESS = {"progress", "step"}
# Words of the source that no record shows: labels that are compared, keys of the journal, names of features.
NOT_TOLD = {
    "all experts",
    "in part",
    "one MLP",
    "from it",
    "to it",
    "a between",
    "b between",
    "third between",
    "signed permutation",
    "what was changed",
    "inside the layers",
    "log10 difference of matrices",
    "log10 difference of gains",
    "leading share",
    "gains from one",
    "effective rank",
    " across rows",
    "the same bytes as",
    "tied to",
    "buffer determined by the config",
    "comparing whole tensors",
    "cannot be told",
    "not contradicted",
    "on a grid",
    "  layers of A, ",
    " a column",
    "the files, layers and tensors that were finished are kept, and the same command goes on from there",
    "--budget standard looks for equal tensors too, whatever their names",
    # Details of errors, which stay as they are.
    " has half a character in it (a lone surrogate)",
    " at byte ",
}


def makers() -> list[Path]:
    return sorted(path for pattern in MAKERS for path in PACKAGE.glob(pattern))


@cache
def own_pieces() -> tuple[str, ...]:
    """What the phrases say themselves, between their placeholders."""
    body = tomllib.loads(BOOK.read_text("utf-8"))
    return tuple({piece for section in body.values() for phrase in phrasebook.every(section) for piece in phrase.own})


@cache
def literals(path: Path) -> list[tuple[int, str]]:
    """(line, words) of every string and of every stretch of an f-string that may reach a record."""
    tree = ast.parse(path.read_text("utf-8"))
    silent = {id(inside) for node in ast.walk(tree) if _is_silent(node) for inside in ast.walk(node)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, str(node.value)) for node in strings if id(node) not in silent]


def _is_silent(node: ast.AST) -> bool:
    """Docstrings, types, progress, what a question asks, and errors that nobody turns into a text."""
    if isinstance(node, ast.keyword):
        return node.arg == "asks"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Raise):
        return not (isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", "") in REASONS)
    if isinstance(node, ast.Subscript):
        return getattr(node.value, "id", "") == "Literal"
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") in PROGRESS
    return False


def is_known(text: str) -> bool:
    """Whole, or cut where a phrase may have a placeholder: each piece with a word in it stands in some phrase."""
    if korean(text) is not None:
        return True
    pieces = re.split(r"\{[^{}]*\}|-?\d[\d.]*(?: ?%)?|[:;.,](?: |$)|^s ", text)
    return all(any(piece in own for own in own_pieces()) for piece in pieces if re.search("[a-z]{3}", piece))


@pytest.mark.parametrize("path", makers(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_book_knows_every_sentence_of_the_source(path: Path) -> None:
    spoken = [(line, text) for line, text in literals(path) if re.search("[A-Za-z]{2,}[,:;.)]? [(`A-Za-z]", text)]
    unknown = [(line, text) for line, text in spoken if text not in NOT_TOLD and not is_known(text)]
    assert unknown == [], f"{path.name}: give these their Korean in {BOOK.name}, or name them in NOT_TOLD here"


def test_what_is_not_told_is_still_said_somewhere() -> None:
    said = {text for path in makers() for _, text in literals(path)}
    assert NOT_TOLD - said == set()


# Sentences whole: what is given to a record in one piece, its placeholders filled in.

SINKS = {"Assumption": (0,), "CannotAsk": (0,), "NoTokens": (0,), "Unfit": (0,), "Null": (0,), "Unanswered": (1,)}
SINKS |= {"NotEvidence": (0, 3), "KindFound": (2, 3), "Depth": (2,)}
TOLD = {"observed", "strangers", "why", "measure", "null", "sentence"}
SAMPLES = ("7", "A", "7 %", "embedding", "x", "")
# What stands in a place that cannot be followed to where it is made, by how the source calls it.
OPENS = "7 between what opens and what feeds a neuron, 7% of a row in its largest eighth"
EXAMPLES = {
    "what": ("value rows", "layers", "expert", "exchanging two rows of one model", "the mean of 7 rank correlations"),
    "shown": ("7 in A, p = 7 and 7 in B, p = 7", f"{OPENS} in A and {OPENS} in B"),
    "_shown(checks)": ("p = 7 in A and p = 7 in B",),
    "sizes": ("7 MB of A and 7 MB of B",),
    "OWN_ZEROS": ("the zeros of rows at equal index stand in places of their own",),
    "tokens": ("7 shared tokens",),
    "rows": ("7", "rows", "rows of the head"),
    "text": ("MLP (7 % of the parameters)", "vectors left out: they are constant"),
    "how": ("the same to the byte",),
    "_many(len(parts), 'vector')": ("7 vectors",),
    "_many(len(likeness), 'kind')": ("7 kinds",),
    "_many(len(found), 'block')": ("7 blocks",),
    "'; '.join(merge.marks)": ("norms follow a great circle, not its chord",),
}
TEXTS = (ast.Constant, ast.JoinedStr)
MOST_FILLINGS = 5000


def templates(tree: ast.Module) -> Iterator[ast.expr]:
    """What is given to a record, or to what becomes one, as a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            places = SINKS.get(getattr(node.func, "id", ""), ())
            given = [node.args[i] for i in places if i < len(node.args)]
            given += [word.value for word in node.keywords if word.arg in TOLD]
            yield from (text for text in given if isinstance(text, TEXTS))


class Fillings:
    """Strings that an expression of a module may stand for: constants followed to where they are made, numbers where
    one is printed, and elsewhere examples."""

    def __init__(self, tree: ast.Module) -> None:
        self.made: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.made.setdefault(node.targets[0].id, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.made.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.FunctionDef):
                returned = [inside.value for inside in ast.walk(node) if isinstance(inside, ast.Return)]
                self.made.setdefault(node.name, []).extend(value for value in returned if value is not None)

    def of(self, value: ast.expr, depth: int = 0) -> list[str]:
        if isinstance(value, ast.Constant):
            return [str(value.value)]
        if isinstance(value, ast.JoinedStr):
            parts = [self.of(part, depth) for part in value.values]
            return ["".join(words) for words in islice(product(*parts), MOST_FILLINGS)]
        if isinstance(value, ast.IfExp):
            return self.of(value.body, depth) + self.of(value.orelse, depth)
        if isinstance(value, ast.FormattedValue) and value.format_spec is not None:
            return ["7%" if "%" in ast.unparse(value.format_spec) else "7"]
        if isinstance(value, ast.FormattedValue):
            return self.of(value.value, depth)
        return [*EXAMPLES.get(ast.unparse(value), ()), *self._followed(value, depth)] or list(SAMPLES)

    def _followed(self, value: ast.expr, depth: int) -> list[str]:
        name = value.func if isinstance(value, ast.Call) else value
        made = self.made.get(name.id, []) if isinstance(name, ast.Name) and depth < 3 else []
        texts = [each for each in made if isinstance(each, (*TEXTS, ast.IfExp))]
        return [text for each in texts for text in self.of(each, depth + 1)]


@pytest.mark.parametrize("path", makers(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_book_knows_every_text_that_is_given_to_a_record(path: Path) -> None:
    """Filled in somehow, every template is known."""
    tree = ast.parse(path.read_text("utf-8"))
    fillings = Fillings(tree)
    unknown = [
        (text.lineno, ast.unparse(text))
        for text in templates(tree)
        if all(korean(filled) is None for filled in fillings.of(text))
    ]
    assert unknown == [], f"{path.name}: give these their Korean in {BOOK.name}, or an example in EXAMPLES here"


@pytest.mark.parametrize("path", sorted((PACKAGE / "architectures" / "families").glob("*.toml")), ids=lambda p: p.stem)
def test_the_book_knows_why_hidden_axes_may_be_renumbered(path: Path) -> None:
    why = tomllib.loads(path.read_text("utf-8"))["why"]
    assert korean(f"A, {path.stem}: {why}") is not None
