"""The page, from the data files alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.calibration import contrast, detection, directions, disguised, kinds, laws, places, rates, targets
from benchmarks.calibration.markdown import updated
from benchmarks.calibration.results import (
    GROWING,
    PUBLISHED,
    Result,
    growing_rows,
    held_out,
    is_made,
    parsed,
    publish_rows,
    published_rows,
)

GAUGE = "gauge.csv"
SURPRISES = "surprises.md"
LARGEST = 5_000_000  # bytes of the data file
EVERY_SURPRISE = """# Every miss and every surprising verdict

Written by `python -m benchmarks.calibration publish` from `pairs.csv.xz`. [calibration.md](../calibration.md) says what
the words mean.
"""


def keep(run: Path, data: Path) -> None:
    """The data file of a run, in place of the one that is there."""
    rows = growing_rows(run / GROWING)
    if not rows:
        raise ValueError(f"{run / GROWING} holds no results: python -m benchmarks.calibration run MODELS --out {run}")
    path = data / PUBLISHED
    data.mkdir(parents=True, exist_ok=True)
    publish_rows(rows, path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST:,} are meant to be committed")


def blocks(results: Sequence[Result], versions: Sequence[str], gauge: str) -> dict[str, str]:
    """Every generated part of the page by the name of its marks."""
    copies = laws.gauge_rows(gauge)
    return {
        "summary": summary(results, versions, copies),
        "verdicts": rates.verdicts_table(results),
        "thresholds": rates.thresholds_table(results),
        "laws": laws.law_table(laws.stranger_counts(results)),
        "uniform": laws.uniform_table(laws.stranger_pvalues(results), ("budget", "question")),
        "copies": laws.law_table(laws.gauge_counts(copies), "counted; copies of"),
        "copies-uniform": laws.uniform_table(laws.gauge_pvalues(copies), ("test", "copies of")),
        "claim": detection.claim(results),
        "detection": detection.detection_table(results),
        "targets": targets.targets_table(results),
        "alarms": disguised.alarms_table(results),
        "looked": disguised.strangers_table(results),
        "stolen": places.stolen_table(results),
        "maps": places.maps_table(results),
        "kinds": kinds.confusion_table(results),
        "macro": kinds.macro_line(results),
        "degree": kinds.degree_table(results),
        "chains": kinds.chains_table(results),
        "flags": kinds.flags_table(results),
        "directions": directions.directions_table(results),
        "contrast": contrast.contrast_table(results),
        "surprises": detection.surprises_table(results),
        "unanswered": rates.unanswered_table(results),
        "cost": rates.cost_table(results),
    }


def summary(results: Sequence[Result], versions: Sequence[str], copies: Sequence[Mapping[str, str]]) -> str:
    """The counts, in sentences."""
    lines = (_tried(results, versions), _accused(results), _missed(results), _cleared(results), _renumbered(copies))
    return "\n".join(f"- {line}" for line in lines)


def _tried(results: Sequence[Result], versions: Sequence[str]) -> str:
    names = {name for result in results for name in result.pair}
    made = sum(map(is_made, names))
    further = f" and {made:,} made from them" if made else ""
    strangers = _pairs([result for result in results if result.stranger])
    return (
        f"**Tried:** {len(results):,} comparisons of {_pairs(results):,} pairs among {len(names) - made:,} "
        f"models of the zoo{further}: "
        f"{strangers:,} pairs of strangers and {_pairs(results) - strangers:,} others ({'; '.join(versions)})."
    )


def _accused(results: Sequence[Result]) -> str:
    apart = [result for result in results if result.compared and (result.stranger or result.label in rates.TAUGHT)]
    wrong = sum(result.verdict == "related" for result in apart)
    return (
        f"**Strangers called related:** {wrong:,} of {len(apart):,} comparisons of strangers, or of models that only "
        "learnt from the answers of the other, ended with `related`."
    )


def _missed(results: Sequence[Result]) -> str:
    demanded = [result for result in results if result.budget == result.demand]
    missed = sum(map(detection.is_miss, demanded))
    return (
        f"**Relatives missed:** of {len(demanded):,} derivatives that must be found at the budget they were compared "
        f"at, {missed:,} {'was' if missed == 1 else 'were'} missed or found with less certainty than demanded."
    )


def _cleared(results: Sequence[Result]) -> str:
    cleared = [r for r in results if r.verdict == "unrelated" and r.outcome == "descendant"]
    hidden = sum(result.disguised for result in cleared)
    return (
        f"**Relatives cleared:** {len(cleared):,} comparisons of a model with its descendant ended with `unrelated`, "
        f"{hidden:,} of them of a deliberately disguised one. Where disguises were not looked for, that verdict ends "
        "“unless it was deliberately disguised”."
    )


def _renumbered(copies: Sequence[Mapping[str, str]]) -> str:
    calls: Counter[str] = Counter()
    for row in copies:
        calls[row["test"]] += int(row["copies"])
    return (
        f"**Renumbered copies:** {calls[laws.VALUES]:,} copies of models whose numbers we drew ourselves, each asked "
        "as if it were another model; the tables below hold the counts against their exact law."
    )


def _pairs(results: Sequence[Result]) -> int:
    return len({result.pair for result in results})


def pages(data: Path, page: Path) -> dict[Path, str]:
    """What the page and the list beside the data should say."""
    if not (data / PUBLISHED).is_file() or not (data / GAUGE).is_file():
        raise ValueError(f"{data} lacks {PUBLISHED} or {GAUGE}: python -m benchmarks.calibration --help")
    rows = published_rows(data / PUBLISHED)
    results, gauge = held_out(parsed(rows)), (data / GAUGE).read_text("utf-8")
    text = updated(page.read_text("utf-8"), blocks(results, _versions(rows), gauge))
    every = detection.surprises_table(results, names=None)
    return {page: text, data / SURPRISES: f"{EVERY_SURPRISE}\n{every}\n"}


def _versions(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return sorted({f"modelkin {row['modelkin']}, policy {row['policy']}" for row in rows})


def write(pages: Mapping[Path, str]) -> None:
    for path, text in pages.items():
        path.write_text(text, "utf-8")


def draw(data: Path) -> None:
    from benchmarks.calibration import figures

    figures.write(held_out(parsed(published_rows(data / PUBLISHED))), data)


def check(pages: Mapping[Path, str]) -> int:
    old = [path.name for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    if old:
        print(f"{' and '.join(old)} out of date: python -m benchmarks.calibration publish", file=sys.stderr)
    return int(bool(old))
