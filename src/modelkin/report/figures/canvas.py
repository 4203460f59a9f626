"""Pages, colours and letters that all figures share. Matplotlib is imported when a page is made."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.records import Matrix, Survey, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

SLIDE = (13.3, 7.5)  # inches: 16 to 9
DPI = 100
NO_FONT = {
    "en": " No installed font can draw the names of {names}; the table of models has them.",
    "ko": " {names}의 이름을 그릴 글꼴이 없습니다. 이름은 모델 표에 있습니다.",
}
TICKS = 5  # to an axis: enough to read a value, and each takes time to draw
LETTER = 0.62  # the width of a letter, in its height
SMALLEST = 7.0  # points: letters that can still be read on a slide
ROWS_HEIGHT = 330.0  # points that names of rows have beside a full panel
LINE = 0.0245  # height of a line of the caption, in pages
BEYOND = 1.96  # 95 of 100 strangers lie within so many standard errors

# Okabe and Ito (2008): told apart with any kind of colour vision. Yellow, faint on white, comes last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")
NULL_COLOUR = "#777777"
ALONG = "cividis"  # from little to much
ACROSS = "RdBu_r"  # below zero and above it

OWN_FONT = "Modelkin Hangul Sans"  # every syllable of Hangul, and nothing else; it comes with the package
# Fonts with Han and Kana besides; the first that is installed is used.
_WIDE_FONTS = (
    "Noto Sans CJK KR",
    "Noto Sans KR",
    "Source Han Sans KR",
    "Apple SD Gothic Neo",
    "Malgun Gothic",
    "NanumGothic",
    "Nanum Gothic",
    "NanumBarunGothic",
    "UnDotum",
    "Baekmuk Gulim",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Arial Unicode MS",
)


@dataclass(frozen=True, slots=True)
class Picture:
    """One page, what it says, and the rows it was drawn from."""

    name: str
    title: str
    caption: str
    figure: Figure
    data: tuple[Table | Matrix, ...] = field(default=())


def settings() -> Any:
    return {
        "font.family": list(families()),
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.labelsize": 11,
        "legend.fontsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.titley": 1.0,  # given, not sought: seeking takes a tenth of the time
        "grid.color": "#e4e4e4",
        "axes.axisbelow": True,
        "text.hinting": "none",  # a tenth faster
        "axes.unicode_minus": True,
        "svg.fonttype": "none",  # letters stay letters: they can be searched for, and no font has to be drawn
        "svg.hashsalt": "modelkin",  # the same picture is the same file
        "figure.max_open_warning": 0,
    }


@cache
def families() -> tuple[str, ...]:
    from matplotlib import font_manager

    with as_file(files("modelkin.report.html").joinpath("fonts", "hangul-sans.ttf")) as path:
        font_manager.fontManager.addfont(path)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", OWN_FONT, *[name for name in _WIDE_FONTS if name in installed][:1])


@cache
def _has_glyph(character: str) -> bool:
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    fonts = (FT2Font(font_manager.findfont(name)) for name in families())
    return character.isspace() or any(font.get_char_index(ord(character)) for font in fonts)


def drawable(text: str) -> bool:
    """Whether the fonts have all its characters; matplotlib would read a $ as mathematics."""
    return "$" not in text and text.isprintable() and all(map(_has_glyph, text))


def stand_ins(survey: Survey) -> dict[str, str]:
    """Names that no installed font can draw, and what stands for them in pictures: the number of the model or group."""
    numbered = {model.label: f"model {n}" for n, model in enumerate(survey.models, 1)}
    groups = {name: f"group {n}" for n, name in enumerate(dict.fromkeys(g for m in survey.models for g in m.groups), 1)}
    return {label: name for label, name in (numbered | groups).items() if not drawable(label)}


def svg_letters(picture: Picture) -> str:
    """Letters of Hangul as shapes, for many a reader has no font of them; all others as letters, which can be found."""
    from matplotlib.text import Text

    texts = (text.get_text() for text in picture.figure.findobj(Text))
    return "path" if any("ㄱ" <= letter <= "힣" for text in texts for letter in text) else "none"


@dataclass(frozen=True, slots=True)
class Room:
    """Left and right edge of the panels, what labels need below them, and the gaps between, in panels.

    Margins are given rather than found: finding them would double the time of a picture.
    """

    left: float = 0.065
    right: float = 0.985
    below: float = 0.085
    across: float = 0.24
    down: float = 0.42


def page(across: int, down: int = 1, room: Room = Room(), **keywords: Any) -> tuple[Figure, list[Axes]]:
    """A slide of panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SLIDE, dpi=DPI)
    panels = figure.subplots(down, across, squeeze=False, **keywords)
    for panel in panels.flat:
        panel.locator_params(nbins=TICKS)
    figure.subplots_adjust(room.left, room.below, room.right, 0.88, room.across, room.down)
    return figure, list(panels.flat)


def names_room(names: Sequence[str], **room: float) -> Room:
    """Room for names of rows on the left: half of the page at most."""
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    return Room(left=min(0.5, 0.03 + 0.0062 * longest), **room)


def fitted_title(panel: Axes, title: str, most: float = 12.0) -> None:
    """As large as the panel is wide; a name too long even so goes on in a second line."""
    points = panel.get_position().width * SLIDE[0] * 72
    room = max(8, int(points / (LETTER * SMALLEST)))
    lines = textwrap.wrap(title, room) if drawable(title) else [title]  # whole, so that another can stand for it
    longest = max(map(len, lines), default=1)
    panel.set_title("\n".join(lines), loc="left", fontsize=min(most, max(SMALLEST, points / (LETTER * longest))))


def row_letters(count: int, most: float = 9.0) -> float:
    """The size of names of so many rows that do not touch each other."""
    return float(min(most, ROWS_HEIGHT / max(1, count)))


def shared_bar(figure: Figure, image: Any, label: str) -> Any:
    """One colour bar for the whole page, on its right."""
    figure.subplots_adjust(right=0.87)
    bar = figure.colorbar(image, cax=figure.add_axes((0.9, 0.3, 0.014, 0.5)))
    bar.set_label(label)
    return bar


def shape_for(count: int) -> tuple[int, int]:
    """Panels across and down a wide page."""
    across = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4}.get(count, int(np.ceil(np.sqrt(count * 1.6))))
    return across, int(np.ceil(count / across))


def legend_over(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for the page, between its title and its panels, which make room: it covers no data."""
    found = {name: mark for panel in panels for mark, name in zip(*panel.get_legend_handles_labels(), strict=True)}
    if not found:
        return
    found = dict(sorted(found.items(), key=lambda entry: " of strangers" in entry[0] or " alone" in entry[0]))
    across = max(1, int(0.97 / (0.035 + 0.0062 * max(map(len, found)))))
    figure.legend(
        list(found.values()), list(found), loc="upper left", bbox_to_anchor=(0.008, 0.948), borderaxespad=0,
        ncols=min(across, len(found)), frameon=False,
    )  # fmt: skip
    figure.subplots_adjust(top=0.895 - 0.026 * -(-len(found) // across))


def empty_rest(panels: Sequence[Axes], used: int) -> None:
    for panel in panels[used:]:
        panel.set_visible(False)


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def line_style(place: int) -> dict[str, Any]:
    """Colour, dash and marker by which a line is known even without colour."""
    return {
        "color": colour(place),
        "linestyle": DASHES[(place // len(COLOURS)) % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.6,
    }


def nested_style(place: int, count: int) -> dict[str, Any]:
    """The same, the earlier of `count` lines the broader: a copy drawn over its original leaves an edge of it."""
    extra = min(4, count - 1 - place)
    return line_style(place) | {"linewidth": 1.5 + 0.9 * extra, "markersize": 4 + 1.5 * extra}


def layer_ticks(panel: Axes, layers: Sequence[str], axis: str = "x", most: int = 8) -> None:
    """Names of layers at their places: as many as can be read."""
    step = max(1, -(-len(layers) // most))
    places = range(0, len(layers), step)
    setter = panel.set_xticks if axis == "x" else panel.set_yticks
    setter(list(places), [layers[place] for place in places])


def whole_steps(panel: Axes) -> None:
    """A logarithmic axis of counts: 1, 2, 5, 10, written out."""
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    panel.yaxis.set_major_formatter(lambda steps, _: f"{steps:,.4g}" if steps < 1 else f"{steps:,.0f}")
    panel.yaxis.set_minor_formatter(NullFormatter())


def without_pattern(panel: Axes, places: Any, expected: Any) -> None:
    """Behind a line of cosines: what means and spreads alone give for the same pairs."""
    panel.plot(
        places, expected, color=NULL_COLOUR, lw=7, alpha=0.35, solid_capstyle="round", zorder=1.5,
        label="cosine from means and spreads alone",
    )  # fmt: skip


def pearson_bands(panel: Axes, widths: Sequence[float]) -> None:
    """Where the Pearson of 95 of 100 strangers lies, for each width of vectors that there is."""
    several = sorted({int(width) for width in widths if width > 1})
    for width in several:
        name = "Pearson of strangers, 95 %" if len(several) == 1 else f"Pearson of strangers, 95 %, width {width:,}"
        half = BEYOND / np.sqrt(width - 1)
        panel.axhspan(-half, half, color=NULL_COLOUR, alpha=0.25, lw=0, label=name)
    panel.axhline(0, color=NULL_COLOUR, lw=0.8)


def in_words(panel: Axes, text: str) -> None:
    """What a panel says that has nothing to draw."""
    panel.set_yticks([])
    panel.text(0.5, 0.5, text, ha="center", va="center", transform=panel.transAxes, fontsize=13, color="#333333")


def null_band(panel: Axes, places: Any, half: Any, label: str) -> None:
    """Where 95 of 100 strangers would lie."""
    panel.fill_between(places, -np.asarray(half), np.asarray(half), color=NULL_COLOUR, alpha=0.25, lw=0, label=label)
    panel.axhline(0, color=NULL_COLOUR, lw=0.8)


def side_bar(panel: Axes, image: Any) -> Any:
    """A colour bar beside one panel."""
    from matplotlib.ticker import MaxNLocator

    figure: Any = panel.figure
    bar = figure.colorbar(image, ax=panel, shrink=0.9, ticks=MaxNLocator(4))
    bar.ax.tick_params(axis="y", labelsize=9)
    return bar


def ink_on(image: Any, value: float) -> str:
    """Black or white, whichever can be read on the colour of a value."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"


def heat(panel: Axes, values: Any, norm: Normalize, cmap: str) -> Any:
    """A matrix as colours, no value outside the range; cells that do not exist are grey."""
    panel.grid(False)
    panel.set_facecolor("#d0d0d0")
    return panel.imshow(values, norm=norm, cmap=cmap, aspect="auto", interpolation="nearest")


def norm_along(values: Any) -> Normalize:
    """From the least to the greatest value there is."""
    from matplotlib.colors import Normalize

    low, high = _limits(values)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5e-3, high + 0.5e-3  # all alike: one colour, and a scale that can be read
    return Normalize(low, high)


def norm_across(values: Any, strangers: float | None = None) -> Normalize:
    """Around zero, to the greatest value of either sign. `strangers`: linear within it, logarithmic beyond."""
    from matplotlib.colors import Normalize, SymLogNorm

    reach = max(map(abs, _limits(values))) or 1.0
    if strangers is None or reach < 3 * strangers:
        return Normalize(-reach, reach)
    return SymLogNorm(strangers, linscale=1.0, vmin=-reach, vmax=reach)


def _limits(values: Any) -> tuple[float, float]:
    known = np.asarray(values)[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def write_words(picture: Picture, replaced: dict[str, str], language: str = "en") -> str:
    """Title and caption onto the page, and stand-ins for what cannot be drawn. The caption as it is then."""
    from matplotlib.text import Text

    caption = picture.caption
    if replaced:
        said = ", ".join(sorted(replaced.values()))
        caption += NO_FONT[language].format(names=said)
    lines = textwrap.wrap(caption, 184 if language == "en" else 118)
    picture.figure.subplots_adjust(bottom=picture.figure.subplotpars.bottom + 0.01 + LINE * len(lines))
    picture.figure.text(0.012, 0.985, picture.title, fontsize=16, va="top")
    picture.figure.text(0.012, 0.012, "\n".join(lines), fontsize=9.5, va="bottom", color="#333333")
    if replaced:
        _replace_ticks(picture.figure, replaced)
        for text in picture.figure.findobj(Text):
            text.set_text(_with_stand_ins(text.get_text(), replaced))
    return caption


def _replace_ticks(figure: Figure, replaced: dict[str, str]) -> None:
    """Labels of ticks are written anew at every drawing, so they are changed where they come from."""
    for axis in (axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)):
        names = [label.get_text() for label in axis.get_ticklabels()]
        if any(label in name for name in names for label in replaced):
            axis.set_ticks(axis.get_ticklocs(), labels=[_with_stand_ins(name, replaced) for name in names])


def _with_stand_ins(text: str, replaced: dict[str, str]) -> str:
    for label, name in replaced.items():
        text = text.replace(label, name)
    return text
