"""The table of figures, and all of them drawn into a folder: PNG, SVG, and the rows that each was drawn from."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from modelkin.errors import UsageError
from modelkin.records import Matrix, Survey, Table
from modelkin.report.figures import experiments, gains, halves, matrices, pairs, tokens, weights
from modelkin.report.figures.canvas import DPI, Picture, settings, stand_ins, svg_letters, write_words
from modelkin.report.figures.language import Language, in_language
from modelkin.report.figures.processes import shared_out
from modelkin.report.figures.rows import file_stem, has, texts
from modelkin.report.notable import MOST_MODELS, MOST_PAIRS, notable_models, ranked_pairs, with_models, with_pairs
from modelkin.report.whole_files import replacing, write_whole

Progress = Callable[[int, int], None]


class FigureKind(NamedTuple):
    """`needs` are tables; `of` is a kind of matrix that must be there. One kind may make several pictures."""

    name: str
    needs: tuple[str, ...]
    draw: Callable[[Survey], Iterator[Picture]]
    of: Literal["layers", "models", "mixed", "within"] | None = None
    one: Literal["pair", "model"] | None = None  # of which it draws every one: a picture, a panel or a line


FIGURES = (
    FigureKind("figure-01-bars", ("quartiles", "curves"), pairs.bars, one="pair"),  # and figures 3 and 4
    FigureKind("figure-02-layers", (), pairs.layer_matrices, "layers", "pair"),
    FigureKind("figure-03-1-changes", ("changes",), pairs.changes, one="pair"),
    FigureKind("figure-05-pairs", (), pairs.many_pairs, "layers", "pair"),
    FigureKind("figure-06-surface", ("surface",), gains.surface),
    FigureKind("figure-07-components", ("pca",), gains.components),
    FigureKind("figure-08-gains", ("gains",), gains.statistics),
    FigureKind("figure-09-ridges", ("ridges",), gains.ridges),
    FigureKind("figure-10-input-minus-post", ("input-minus-post", "input-minus-post-pairs"), gains.input_minus_post),
    FigureKind("experiment-1-first-layer", ("baselines",), experiments.first_layer),
    FigureKind("experiment-2-equal-distance", ("baselines",), experiments.equal_distance),
    FigureKind("experiment-3-pairs", ("curves",), experiments.pairs_at_one_layer, one="pair"),
    FigureKind("experiment-4-layers", ("groups",), experiments.groups_by_layer),
    FigureKind("experiment-5-groups", ("groups",), experiments.groups_compared),
    FigureKind("experiment-6-metrics", ("baselines", "curves"), experiments.metrics_compared),
    FigureKind("matrices-models", (), matrices.over_models, "models"),
    FigureKind("matrices-mixed", (), matrices.mixed, "mixed"),
    FigureKind("matrices-within", (), matrices.within, "within", "model"),
    FigureKind("decay", ("curves",), halves.decay, one="pair"),
    FigureKind("windows", ("windows",), weights.windows),
    FigureKind("truncation", ("truncation",), weights.truncation),
    FigureKind("routers", ("routers",), weights.routers),
    FigureKind("bytes", ("bytes",), weights.byte_counts, one="pair"),
    FigureKind("embeddings", ("tokens",), tokens.embeddings),
    FigureKind("tokenizer", ("vocabulary",), tokens.vocabularies),
)


class _Task(NamedTuple):
    survey: Survey
    folder: Path
    every: bool
    language: Language


class _Pages(NamedTuple):
    """What one kind of figure came to."""

    captions: dict[str, str]
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was written. `missing` says which figures this survey has no data for."""

    captions: dict[str, str]
    files: tuple[Path, ...]
    missing: dict[str, str]


def draw_all(
    survey: Survey,
    folder: Path,
    progress: Progress | None = None,
    processes: int = 1,
    *,
    every: bool = True,
    language: Language = "en",
) -> Drawn:
    """Every figure that the survey has data for, and captions.txt. Needs matplotlib (the extra `figures`).

    Unless `every`, of many pairs and models only those that stand out most are drawn, and the captions say so.
    `progress` is told how many kinds of figures are done, of how many. With several `processes` a script that calls
    this must be one that can be imported without running (`if __name__ == "__main__":`).
    """
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib", hint="pip install 'modelkin[figures]', or --no-figures")
    folder.mkdir(parents=True, exist_ok=True)
    missing = {kind.name: reason for kind in FIGURES if (reason := _lacking(survey, kind))}
    names = [kind.name for kind in FIGURES if kind.name not in missing]
    pages: dict[str, _Pages] = {}
    for name, found in _drawn(_Task(survey, folder, every, language), names, processes):
        pages[name] = found
        if progress:
            progress(len(missing) + len(pages), len(FIGURES))
    captions = {stem: caption for name in names for stem, caption in pages[name].captions.items()}
    listing = folder / "captions.txt"
    write_whole(folder, {listing.name: _listing(captions, missing)})
    return Drawn(captions, (*(file for name in names for file in pages[name].files), listing), missing)


def _drawn(task: _Task, names: list[str], processes: int) -> Iterator[tuple[str, _Pages]]:
    if processes > 1 and len(names) > 1:
        return shared_out(_draw_kind, task, names, processes)
    return ((name, _draw_kind(task, name)) for name in names)


def _draw_kind(task: _Task, name: str) -> _Pages:
    """All pictures of one kind, into the folder."""
    import matplotlib

    kind = next(kind for kind in FIGURES if kind.name == name)
    survey, left = (task.survey, "") if task.every else _chosen(task.survey, kind)
    captions: dict[str, str] = {}
    files: list[Path] = []
    try:
        with matplotlib.rc_context(settings()):
            replaced = stand_ins(survey)
            for drawn in kind.draw(survey):
                picture = in_language(dataclasses.replace(drawn, caption=f"{drawn.caption}{left}"), task.language)
                captions[file_stem(picture.name)] = f"{picture.title}. {write_words(picture, replaced, task.language)}"
                files += _save(picture, task.folder)
    except Exception as error:
        error.add_note(f"while drawing {name}")
        raise
    return _Pages(captions, tuple(files))


def _chosen(survey: Survey, kind: FigureKind) -> tuple[Survey, str]:
    """The survey with the pairs or models that stand out most, and what the caption says of the rest."""
    if kind.one == "pair":
        there = _drawable_pairs(survey, kind)
        pairs = [pair for pair in ranked_pairs(survey) if pair in there]
        if len(pairs) > MOST_PAIRS:
            said = f" Of {len(pairs):,} pairs the {MOST_PAIRS} most alike are drawn; --all-figures draws all."
            return with_pairs(survey, pairs[:MOST_PAIRS]), said
    if kind.one == "model" and len(survey.models) > MOST_MODELS:
        said = f" Of {len(survey.models):,} models {MOST_MODELS} are drawn, those of the pairs most alike first; "
        return with_models(survey, notable_models(survey)), f"{said}--all-figures draws all."
    return survey, ""


def _drawable_pairs(survey: Survey, kind: FigureKind) -> set[tuple[str, str]]:
    """The pairs that this kind has anything to draw of."""
    table = survey.table(kind.needs[0]) if kind.needs else None
    if table is None:
        return set(ranked_pairs(survey))
    return set(zip(texts(table, "a"), texts(table, "b"), strict=True))


def _lacking(survey: Survey, kind: FigureKind) -> str:
    absent = [name for name in kind.needs if not has(survey, name)]
    if kind.of and not any(matrix.name.startswith(f"{kind.of}.") for matrix in survey.matrices):
        absent.append(f"matrices {kind.of}.*")
    return f"the survey has no {', no '.join(absent)}" if absent else ""


def _listing(captions: dict[str, str], missing: dict[str, str]) -> str:
    drawn = [f"{name}\n    {caption}\n" for name, caption in captions.items()]
    absent = [f"{name}\n    not drawn: {reason}\n" for name, reason in missing.items()]
    return "\n".join([*drawn, *absent])


def _save(picture: Picture, folder: Path) -> list[Path]:
    import matplotlib

    png, svg = (folder / f"{file_stem(picture.name)}.{kind}" for kind in ("png", "svg"))
    with replacing(png) as path:
        picture.figure.savefig(path, dpi=DPI, pil_kwargs={"compress_level": 3})
    with replacing(svg) as path, matplotlib.rc_context({"svg.fonttype": svg_letters(picture)}):
        picture.figure.savefig(path, metadata={"Date": None})
    return [png, svg, *write_whole(folder, dict(_data(picture)))]


def _data(picture: Picture) -> Iterator[tuple[str, str]]:
    """One file is called after the picture; of several, each after its table too."""
    for part in picture.data:
        name = picture.name if len(picture.data) == 1 else f"{picture.name}.{part.name}"
        yield f"{file_stem(name)}.csv", _as_csv(part)


def _as_csv(part: Table | Matrix) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if isinstance(part, Table):
        writer.writerow(part.columns)
        writer.writerows([_cell(value) for value in row] for row in part.rows)
    else:
        writer.writerow(["", *map(_cell, part.columns)])
        writer.writerows([_cell(name), *row] for name, row in zip(part.rows, part.values, strict=True))
    return stream.getvalue()


def _cell(value: object) -> object:
    # A spreadsheet would run a name that starts like a formula.
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
