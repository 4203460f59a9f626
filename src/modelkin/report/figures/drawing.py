"""The table of figures, and all of them drawn into a folder: PNG, SVG, and the rows that each was drawn from."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from modelkin.errors import UsageError
from modelkin.records import Matrix, Survey, Table
from modelkin.report.figures import experiments, gains, halves, matrices, pairs, tokens, weights
from modelkin.report.figures.canvas import DPI, Picture, settings, stand_ins, write_words
from modelkin.report.figures.processes import shared_out
from modelkin.report.figures.rows import file_stem, has

Progress = Callable[[int, int], None]


class FigureKind(NamedTuple):
    """`needs` are tables; `of` is a kind of matrix that must be there. One kind may make several pictures."""

    name: str
    needs: tuple[str, ...]
    draw: Callable[[Survey], Iterator[Picture]]
    of: Literal["layers", "models", "mixed", "within"] | None = None


FIGURES = (
    FigureKind("figure-01-bars", ("quartiles", "curves"), pairs.bars),  # and figures 3 and 4
    FigureKind("figure-02-layers", (), pairs.layer_matrices, "layers"),
    FigureKind("figure-03-1-changes", ("changes",), pairs.changes),
    FigureKind("figure-05-pairs", (), pairs.many_pairs, "layers"),
    FigureKind("figure-06-surface", ("surface",), gains.surface),
    FigureKind("figure-07-components", ("pca",), gains.components),
    FigureKind("figure-08-gains", ("gains",), gains.statistics),
    FigureKind("figure-09-ridges", ("ridges",), gains.ridges),
    FigureKind("figure-10-input-minus-post", ("input-minus-post", "input-minus-post-pairs"), gains.input_minus_post),
    FigureKind("experiment-1-first-layer", ("baselines",), experiments.first_layer),
    FigureKind("experiment-2-equal-distance", ("baselines",), experiments.equal_distance),
    FigureKind("experiment-3-pairs", ("curves",), experiments.pairs_at_one_layer),
    FigureKind("experiment-4-layers", ("groups",), experiments.groups_by_layer),
    FigureKind("experiment-5-groups", ("groups",), experiments.groups_compared),
    FigureKind("experiment-6-metrics", ("baselines", "curves"), experiments.metrics_compared),
    FigureKind("matrices-models", (), matrices.over_models, "models"),
    FigureKind("matrices-mixed", (), matrices.mixed, "mixed"),
    FigureKind("matrices-within", (), matrices.within, "within"),
    FigureKind("decay", ("curves",), halves.decay),
    FigureKind("windows", ("windows",), weights.windows),
    FigureKind("truncation", ("truncation",), weights.truncation),
    FigureKind("routers", ("routers",), weights.routers),
    FigureKind("bytes", ("bytes",), weights.byte_counts),
    FigureKind("embeddings", ("tokens",), tokens.embeddings),
    FigureKind("tokenizer", ("vocabulary",), tokens.vocabularies),
)


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


def draw_all(survey: Survey, folder: Path, progress: Progress | None = None, processes: int = 1) -> Drawn:
    """Every figure that the survey has data for, and captions.txt. Needs matplotlib (the extra `figures`).

    `progress` is told how many kinds of figures are done, of how many. With several `processes` a script that calls
    this must be one that can be imported without running (`if __name__ == "__main__":`).
    """
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib", hint="pip install 'modelkin[figures]', or --no-figures")
    folder.mkdir(parents=True, exist_ok=True)
    missing = {kind.name: reason for kind in FIGURES if (reason := _lacking(survey, kind))}
    names = [kind.name for kind in FIGURES if kind.name not in missing]
    pages: dict[str, _Pages] = {}
    for name, found in _drawn(survey, folder, names, processes):
        pages[name] = found
        if progress:
            progress(len(missing) + len(pages), len(FIGURES))
    captions = {stem: caption for name in names for stem, caption in pages[name].captions.items()}
    listing = folder / "captions.txt"
    listing.write_text(_listing(captions, missing), encoding="utf-8")
    return Drawn(captions, (*(file for name in names for file in pages[name].files), listing), missing)


def _drawn(survey: Survey, folder: Path, names: list[str], processes: int) -> Iterator[tuple[str, _Pages]]:
    if processes > 1 and len(names) > 1:
        return shared_out(_draw_kind, (survey, folder), names, processes)
    return ((name, _draw_kind((survey, folder), name)) for name in names)


def _draw_kind(data: tuple[Survey, Path], name: str) -> _Pages:
    """All pictures of one kind, into the folder."""
    import matplotlib

    survey, folder = data
    draw = next(kind.draw for kind in FIGURES if kind.name == name)
    captions: dict[str, str] = {}
    files: list[Path] = []
    try:
        with matplotlib.rc_context(settings()):
            replaced = stand_ins(survey)
            for picture in draw(survey):
                captions[file_stem(picture.name)] = f"{picture.title}. {write_words(picture, replaced)}"
                files += _save(picture, folder)
    except Exception as error:
        error.add_note(f"while drawing {name}")
        raise
    return _Pages(captions, tuple(files))


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
    png, svg = (folder / f"{file_stem(picture.name)}.{kind}" for kind in ("png", "svg"))
    picture.figure.savefig(png, dpi=DPI, pil_kwargs={"compress_level": 3})
    picture.figure.savefig(svg, metadata={"Date": None})
    return [png, svg, *_save_data(picture, folder)]


def _save_data(picture: Picture, folder: Path) -> Iterator[Path]:
    """One file is called after the picture; of several, each after its table too."""
    for part in picture.data:
        name = picture.name if len(picture.data) == 1 else f"{picture.name}.{part.name}"
        path = folder / f"{file_stem(name)}.csv"
        path.write_text(_as_csv(part), encoding="utf-8", newline="")
        yield path


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
