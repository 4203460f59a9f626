"""Embedding rows of shared tokens with their baselines, and the two vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Survey, Table
from modelkin.report.figures.canvas import NULL_COLOUR, Picture, Room, colour, legend_over, names_room, page
from modelkin.report.figures.rows import counted, grouped, has, null_said, numbers, safe, values, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NARROW = 0.05  # of the axis: what is closer together is enlarged
LINES = (
    ("random_pairs_a", "two tokens of the first model", 2),
    ("random_pairs_b", "two tokens of the second model", 3),
)


def embeddings(survey: Survey) -> Iterator[Picture]:
    """Histogram of the cosines of shared tokens, as they are and after rotation, with random pairs and the null."""
    tokens = survey.table("tokens")
    for (a, b), table in grouped(tokens, "a", "b"):
        summary = where(survey.table("embeddings"), a=a, b=b) if has(survey, "embeddings") else None
        figure, panels = page(2, 1, Room(below=0.2))
        held = where(table, held_out="yes")
        if summary is not None and summary.rows:
            for column, name, place in LINES:
                _line(panels[0], numbers(summary, column)[0], f"mean of {name}", colour(place))
            _line(panels[1], numbers(summary, "aligned_null")[0], "mean after aligning shuffled tokens", NULL_COLOUR)
            _line(panels[1], numbers(summary, "aligned_train")[0], "mean of the fitted tokens", colour(2))
        panels[0].axvline(0, color=NULL_COLOUR, lw=1)
        _histogram(panels[0], numbers(table, "cosine"), colour(0), "shared tokens")
        _histogram(panels[1], numbers(held, "cosine_after_alignment"), colour(1), "held-out tokens")
        panels[0].set_title("cosine of the two rows of a token", loc="left")
        panels[1].set_title("after a rotation fitted on other tokens", loc="left")
        for panel in panels:
            panel.set_xlabel("cosine")
            panel.set_ylabel("tokens")
            if panel.get_legend_handles_labels()[0]:
                panel.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.11), borderaxespad=0, frameon=False)
        caption = (
            f"{a} and {b}: {len(table.rows)} shared tokens drawn, {len(held.rows)} of them held out. "
            f"{null_said(tokens)}"
        )
        data = (table,) if summary is None else (table, summary)
        yield Picture(
            f"embeddings.{safe(a)}.{safe(b)}", f"{a} and {b}: embeddings of shared tokens", caption, figure, data
        )


def _histogram(panel: Axes, found: np.ndarray, tint: str, label: str) -> None:
    """Bins are shares of all that the panel shows, the lines drawn before among it: no bar is too thin to see."""
    known = found[np.isfinite(found)]
    if known.size:
        lines = [float(np.asarray(line.get_xdata(), dtype=np.float64)[0]) for line in panel.get_lines()]
        low, high = min(known.min(), *lines, known.max()), max(known.max(), *lines, known.min())
        if high - low < 1e-9:
            low, high = low - 0.05, high + 0.05
        said = f"{known.size} {label}, mean {_mean_said(known)}, standard deviation {known.std():.2g}"
        style: dict[str, Any] = {"bins": min(60, max(20, known.size // 6)), "color": tint, "alpha": 0.7}
        panel.hist(known, range=(low, high), label=said, **style)
        if NARROW * (high - low) > np.ptp(known) > 0:
            _enlarged(panel, known, low, high, style)


def _mean_said(known: np.ndarray) -> str:
    """Digits enough to tell copies from each other; near zero, few."""
    middle = float(known.mean())
    return f"{middle:.5f}" if abs(middle) > 0.99 else f"{middle:.3g}"


def _enlarged(panel: Axes, known: np.ndarray, low: float, high: float, style: dict[str, Any]) -> None:
    """Cosines that lie close together, as those of relatives do, once more on an axis of their own."""
    right = known.mean() > (low + high) / 2
    inset = panel.inset_axes((0.26 if right else 0.4, 0.34, 0.5, 0.44))
    inset.hist(known, **style)
    inset.locator_params(nbins=4)
    inset.ticklabel_format(useOffset=False)
    inset.tick_params(labelsize=9)
    inset.set_title("the same, enlarged", fontsize=10)


def _line(panel: Axes, value: float, name: str, tint: str) -> None:
    if np.isfinite(value):
        panel.axvline(value, color=tint, ls="--", lw=1.8, label=f"{name}: {value:.3g}")


def vocabularies(survey: Survey) -> Iterator[Picture]:
    """What two tokenizers share: tokens, ids, merges."""
    table = survey.table("vocabulary")
    pairs = [(pair, _facts(one)) for pair, one in grouped(table, "a", "b")]
    names = [f"{a} · {b}" for (a, b), _ in pairs]
    figure, panels = page(3, 1, names_room(names, across=0.08), sharey=True)
    at = np.arange(len(pairs))
    left = np.zeros(len(pairs))
    for name, place, make in (
        ("in both", 2, _shared),
        ("only in the first", 0, _only_a),
        ("only in the second", 1, _only_b),
    ):
        found = np.array([make(facts) for _, facts in pairs])
        panels[0].barh(at, found, 0.6, left=left, color=colour(place), label=name)
        left += np.nan_to_num(found)
    for fact, place, name in (
        ("jaccard", 2, "shared of all tokens"),
        ("overlap", 4, "shared of the smaller vocabulary"),
    ):
        panels[1].plot(
            [facts.get(fact, np.nan) for _, facts in pairs],
            at,
            "oD"[fact == "overlap"],
            ms=11 if fact == "jaccard" else 8,  # the later mark on one point lies inside the earlier
            color=colour(place),
            label=name,
        )
    same = [facts.get("same_ids", np.nan) / max(1.0, facts.get("shared", np.nan)) for _, facts in pairs]
    panels[1].plot(same, at, "s", ms=4, color=colour(0), label="same id, of shared")
    for fact, marker, size, place in (("id_pearson", "o", 11, 0), ("merges.order", "D", 6, 1)):
        found = np.array([facts.get(fact, np.nan) for _, facts in pairs])
        panels[2].plot(found, at, marker, ms=size, color=colour(place), label=_SAID[fact])
    panels[0].set_yticks(at, names, fontsize=9)
    panels[0].invert_yaxis()
    for panel, title in zip(panels, ("tokens", "shares", "order of ids and merges"), strict=True):
        panel.set_title(title, loc="left")
    legend_over(figure, panels)
    for panel in panels[1:]:
        panel.set_xlim(-0.05, 1.05)
    low = np.nanmin([facts.get("id_pearson", np.nan) for _, facts in pairs] + [0.0])
    panels[2].set_xlim(min(-0.05, low - 0.05), 1.05)
    caption = (
        f"{counted(len(pairs), 'pair')} of vocabularies, ordinary tokens matched by their bytes, so that another "
        "spelling of a space is no difference; all other facts are in the table. "
        f"{null_said(table)}"
    )
    yield Picture("tokenizer", "What the vocabularies share", caption, figure, (table,))


_SAID = {"id_pearson": "Pearson of the ids of shared tokens", "merges.order": "shared merges in one order"}

Facts = dict[str, float]


def _facts(table: Table) -> Facts:
    pairs = zip(values(table, "fact"), values(table, "value"), strict=True)
    return {str(fact): float(value) for fact, value in pairs if isinstance(value, (int, float))}


def _shared(facts: Facts) -> float:
    return facts.get("shared", float("nan"))


def _only_a(facts: Facts) -> float:
    return facts.get("ordinary.a", float("nan")) - _shared(facts)


def _only_b(facts: Facts) -> float:
    return facts.get("ordinary.b", float("nan")) - _shared(facts)
