"""Pictures of a study, drawn from its tables with matplotlib (the extra `figures`), which is imported when used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkin.errors import UsageError
from modelkin.records import Study
from modelkin.report import study_charts, study_claim, study_geometry
from modelkin.report.figures.canvas import DPI, Picture, settings, write_words
from modelkin.report.whole_files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES: dict[str, Callable[[Study], Iterable[Picture]]] = {
    "cosine-bias": study_geometry.pictures,
    "init-toy": study_charts.initial_gains,
    "gain-scale": study_charts.gain_scale,
    "precision": study_charts.precision,
    "claim": study_claim.pictures,
}
ANIMATIONS = {"cosine-bias": ("cosine-bias.gif",)}


def study_figures(study: Study) -> dict[str, Figure]:
    """File name, without its ending, -> figure."""
    with _style():
        pictures = list(PICTURES[study.name](study))
        for picture in pictures:
            write_words(picture, {})
    return {picture.name: picture.figure for picture in pictures}


def save_figures(study: Study, folder: Path) -> list[Path]:
    """Each as PNG and SVG."""
    figures = study_figures(study)
    written = []
    with _style():
        for name, figure in figures.items():
            for kind, details in (("png", None), ("svg", {"Date": None})):  # no date: the same picture is the same file
                written.append(folder / f"{name}.{kind}")
                with replacing(written[-1]) as path:
                    figure.savefig(path, dpi=DPI, metadata=details)
    return written


def write_animation(study: Study, path: Path) -> Path:
    with _style(), replacing(path) as beside:
        study_geometry.animate(study, beside)
    return path


def _style() -> AbstractContextManager[None]:
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib", hint="pip install 'modelkin[figures]', or --no-figures")
    import matplotlib

    chosen: Any = settings()  # matplotlib lists its keys as literals
    return matplotlib.rc_context(chosen)
