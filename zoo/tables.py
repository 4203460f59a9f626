"""The tables of zoo/README.md, from what was measured and nothing else:  python -m zoo.tables [--write | --check]

Prints them; --write puts each between its marks in the page, `<!-- models -->` and `<!-- /models -->`; --check only
says whether the page is as the measurements have it, and exits with 1 if it is not.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import chi2, poisson

from zoo import measured
from zoo.commands import run

README = Path(__file__).resolve().parent / "README.md"
CLASSES = {"dense": "dense, gated", "moe": "experts", "ungated": "dense, not gated"}
COUNTS = {"gains_k": "axes by gains", "tokens_k": "axes by embeddings", "gate_k": "neurons by gate", "up_k": "by up"}
SIZES = {"gains_k": "axes", "tokens_k": "axes", "gate_k": "gate_n", "up_k": "up_n"}
BY_MAP = {"gains_k_map": "axes_map", "gate_k_map": "gate_n_map"}  # moved parts beside those that they were
SHOWN = 5  # counts from here on are one column
FEWEST = 5.0  # expected in a cell of the chi-square test
BY_STEP = ("component-reuse", "moe-upcycle", "obfuscated")  # kinds whose steps leave different things where they were
WITH_STRANGERS = {"grafted": "host", "decoy": "decoy"}  # steps that take in a stranger, and what it is to them
EVERY_MODEL = """# Every model of the zoo

Written by `python -m zoo.tables --write`. [README.md](README.md) says what the steps are. Loss and entropy are in nats
a token, on held-out text of the kind named.
"""
CHILDREN = ("tuned", "german")  # endings of the children in zoo.others
OUTCOMES = ("unrelated", "descendant", "siblings", "shared-init", "distilled")

Pair = Mapping[str, str]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Markdown; the first columns are `words`, the others numbers, to the right."""
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def models_table(truths: Mapping[str, Mapping[str, Any]]) -> str:
    """A line a step of the plan: strangers first, then by kind."""
    groups: dict[tuple[bool, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for name, truth in truths.items():
        related = truth["kind"] != "unrelated"
        groups[related, truth["kind"], step_of(name) if related else name.partition("-")[0]].append(truth)
    head = ("step", "kind", "text", "models", "parameters", "tokens seen", "loss", "unigram entropy")
    return table(head, [_models_row(step, kind, groups[_, kind, step]) for _, kind, step in sorted(groups)], words=3)


def every_model(truths: Mapping[str, Mapping[str, Any]]) -> str:
    """A page with a line a model."""
    head = ("model", "kind", "family", "from", "text", "parameters", "loss", "unigram entropy")
    rows = [
        [
            *(name, truth["kind"], truth["family"], origin(truth), truth["domain"], f"{truth['parameters']:,}"),
            *(f"{truth[key]:.3f}" for key in ("loss", "unigram_entropy")),
        ]
        for name, truth in truths.items()
    ]
    return f"{EVERY_MODEL}\n{table(head, rows, words=5)}\n"


def origin(truth: Mapping[str, Any]) -> str:
    if truth.get("teachers"):
        return f"taught by {', '.join(truth['teachers'])}"
    if seed := truth.get("same_seed_as"):
        return f"seed of {seed}"
    return ", ".join(truth["parents"])


def step_of(name: str) -> str:
    """What made this child: `sft.twin-03` -> sft; `large-gpt2-tuned` -> large …-tuned."""
    first, _, rest = name.partition("." if "." in name else "-")
    ending = rest.rpartition("-")[2]
    return f"{first} …-{ending}" if "." not in name and ending in CHILDREN else first


def _models_row(step: str, kind: str, group: Sequence[Mapping[str, Any]]) -> list[str]:
    def values(key: str) -> list[float]:
        return [truth[key] for truth in group if truth.get(key) is not None]

    texts = ", ".join(sorted({truth["domain"] for truth in group if truth.get("domain")}))
    seen = _range(values("tokens_seen"), _thousands)  # of this step alone; none where nothing was trained
    losses = [_range(values(key), lambda value: f"{value:.2f}") for key in ("loss", "unigram_entropy")]
    return [step, kind, texts, str(len(group)), _range(values("parameters"), _thousands), seen, *losses]


def _range(values: Sequence[float], spelled: Any) -> str:
    ends = dict.fromkeys(spelled(value) for value in ((min(values), max(values)) if values else ()))
    return "–".join(ends)


def _thousands(value: float) -> str:
    return f"{value / 1e3:,.0f} k"


def numbers(pair: Pair, column: str) -> list[int]:
    """A number, or one a layer; none where it could not be asked."""
    return [int(word) for word in pair.get(column, "").split() if word != "-"]


def pairs_table(pairs: Sequence[Pair]) -> str:
    """A line a relation: which share of the members found themselves."""
    groups: dict[tuple[int, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[OUTCOMES.index(pair["outcome"]), relation_name(pair)].append(pair)
    head = ("relation", "pairs", *COUNTS.values(), "gains, by map", "gate, by map", "cosine of gains and biases")
    return table(head, [_pairs_row(name, groups[place, name]) for place, name in sorted(groups)])


def relation_name(pair: Pair) -> str:
    kinds = pair["kinds"].split()
    if pair["outcome"] == "descendant":
        step = _step_told(pair) if len(kinds) == 1 else ""
        return " → ".join(kinds) + (f" ({step})" if step else "")
    if pair["outcome"] == "unrelated":
        return f"strangers, {class_name(pair['class'])}"
    return (
        pair["outcome"] if pair["outcome"] == "siblings" or len(kinds) == 1 else f"{pair['outcome']}, derived further"
    )


def _step_told(pair: Pair) -> str:
    """The step of a child where its kind alone would mix what has nothing in common."""
    base, child = (pair[side] for side in ("ab" if pair["direction"] == "a->b" else "ba"))
    step = step_of(child)
    if stranger := WITH_STRANGERS.get(step.partition("-")[0]):
        return step if child.endswith(f".{base}") else f"{step}, the {stranger}"
    return step if pair["kinds"] in BY_STEP else ""


def class_name(name: str) -> str:
    return " beside ".join(CLASSES[word] for word in name.split("+"))


def _pairs_row(name: str, group: Sequence[Pair]) -> list[str]:
    shares = [_shares(group, column, size) for column, size in SIZES.items()]
    cosines = [float(pair["gain_cosine"]) for pair in group if pair["gain_cosine"]]
    least = f"{min(cosines):.4f}–{max(cosines):.4f}" if cosines else "–"
    return [name, str(len(group)), *shares, *(_shares(group, k, n) for k, n in BY_MAP.items()), least]


def _shares(group: Sequence[Pair], column: str, size: str) -> str:
    """Median (least–most) of K as per cent of n, over pairs and layers."""
    found = [
        100 * k / n
        for pair in group
        for k, n in zip(numbers(pair, column), numbers(pair, size), strict=False)  # `axes` is empty with its K
        if n
    ]
    return f"{median(found):.0f} % ({min(found):.0f}–{max(found):.0f})" if found else "–"


def strangers_table(pairs: Sequence[Pair]) -> str:
    """K between strangers beside its law: per cent of the counts, and the largest."""
    by_class: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair["outcome"] == "unrelated":
            by_class[pair["class"]].append(pair)
    columns = [*(f"K = {count}" for count in range(SHOWN)), f"K ≥ {SHOWN}"]
    head = ("strangers", "counted", "counts", "mean", *columns, "largest", "p")
    law = ["chance alone", "", "", "1.00", *(f"{100 * share:.1f}" for share in expected_shares()), "", ""]
    rows = [
        _strangers_row(name, told, [k for pair in group for k in numbers(pair, column)])
        for name, group in sorted(by_class.items())
        for column, told in COUNTS.items()
    ]
    return table(head, [law, *(row for row in rows if row)], words=2)


def _strangers_row(name: str, told: str, counts: Sequence[int]) -> list[str]:
    if not counts:
        return []
    seen = observed(counts)
    shares = [f"{100 * number / len(counts):.1f}" for number in seen]
    pvalue = chi_square(seen)
    mean, p = f"{np.mean(counts):.2f}", "–" if pvalue is None else f"{pvalue:.2g}"
    return [class_name(name), told, str(len(counts)), mean, *shares, str(max(counts)), p]


def observed(counts: Iterable[int]) -> list[int]:
    seen = Counter(min(count, SHOWN) for count in counts)
    return [seen[count] for count in range(SHOWN + 1)]


def expected_shares() -> list[float]:
    """The number of fixed points of a random order is Poisson(1), to nine digits from twelve members on."""
    return [*(float(poisson.pmf(count, 1)) for count in range(SHOWN)), float(poisson.sf(SHOWN - 1, 1))]


def chi_square(seen: Sequence[int]) -> float | None:
    """p of the counts 0, 1, … under the law; cells at the end are joined until each expects enough."""
    total, cells = sum(seen), list(zip(seen, expected_shares(), strict=True))
    while len(cells) > 1 and cells[-1][1] * total < FEWEST:
        (a, p), (b, q) = cells[-2:]
        cells[-2:] = [(a + b, p + q)]
    if len(cells) < 2:
        return None
    statistic = sum((number - total * share) ** 2 / (total * share) for number, share in cells)
    return float(chi2.sf(statistic, len(cells) - 1))


def tables(folder: Path = measured.HERE) -> dict[str, str]:
    """Every table by the name of its marks."""
    pairs = measured.pairs(folder)
    found = {"models": models_table(measured.truths(folder)), "pairs": pairs_table(pairs)}
    return found | {"strangers": strangers_table(pairs)}


def updated(page: str, found: Mapping[str, str]) -> str:
    """The page with every table between its marks."""
    for name, text in found.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not marks.search(page):
            raise ValueError(f"the page has no {_marks(name)}: put each on a line of its own")
        page = marks.sub(lambda marked, text=text: f"{marked[1]}{text}\n{marked[2]}", page)
    return page


def _marks(name: str) -> str:
    return f"<!-- {name} --> … <!-- /{name} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, default=measured.HERE, help="folder that zoo.measure wrote")
    parser.add_argument("--page", type=Path, default=README)
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--write",
        action="store_true",
        help="put the tables into the page, and the list of all models into MODELS.md beside it",
    )
    action.add_argument("--check", action="store_true", help="exit with 1 if a page is out of date")
    given = parser.parse_args(arguments)
    if absent := [name for name in (measured.TRUTHS, measured.PAIRS) if not (given.measured / name).exists()]:
        raise SystemExit(
            f"no {absent[0]} in {given.measured}: python -m zoo.measure zoo/made/models {given.measured} makes it"
        )
    found = tables(given.measured)
    if not (given.write or given.check):
        print("\n\n".join(found.values()))
        return 0
    if not given.page.is_file():
        raise SystemExit(f"no page {given.page}: --page names a Markdown file with {_marks('models')} and the others")
    pages = {
        given.page: updated(given.page.read_text("utf-8"), found),
        given.page.with_name("MODELS.md"): every_model(measured.truths(given.measured)),
    }
    if given.write:
        for page, text in pages.items():
            page.write_text(text, "utf-8")
        return 0
    old = [page.name for page, text in pages.items() if not page.exists() or page.read_text("utf-8") != text]
    if old:
        print(f"{' and '.join(old)} out of date: python -m zoo.tables --write", file=sys.stderr)
    return int(bool(old))


if __name__ == "__main__":
    run(main)
