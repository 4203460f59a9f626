"""Pictures in another language: every text of a finished figure by the phrasebook, names and numbers as they are."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Literal

from modelkin.report.figures.canvas import Picture
from modelkin.report.phrasebook import korean_of_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Language = Literal["en", "ko"]
SENTENCE = re.compile(r"(?<=\.) (?=\S)")
MOST_TOGETHER = 8


def in_language(picture: Picture, language: Language) -> Picture:
    """Its texts are changed in place; what nobody has translated stays English."""
    if language == "en":
        return picture
    _translate(picture.figure)
    title, caption = told(picture.title), told(picture.caption)
    return dataclasses.replace(picture, title=title, caption=caption)


def told(text: str) -> str:
    """As one text, or line by line, for names stand in lines of their own; of several sentences each for itself."""
    whole = None if SENTENCE.search(text) else korean_of_figure(" ".join(text.split("\n")))
    if whole is not None:
        return whole
    return "\n".join(sentences(line) for line in text.split("\n"))


def sentences(text: str) -> str:
    """A caption: as few sentences at a time as are known together; one that nobody knows stays as it is."""
    left, said = SENTENCE.split(text), []
    while left:
        known = (
            (size, korean_of_figure(" ".join(left[:size]))) for size in range(1, min(MOST_TOGETHER, len(left)) + 1)
        )
        size, words = next(((size, words) for size, words in known if words is not None), (1, left[0]))
        said.append(words)
        left = left[size:]
    return " ".join(said)


def _translate(figure: Figure) -> None:
    from matplotlib.text import Text

    for panel in figure.axes:
        _translate_ticks(panel)
    for text in figure.findobj(Text):
        if text.get_text():
            text.set_text(told(text.get_text()))


def _translate_ticks(panel: Axes) -> None:
    """Labels of ticks are written anew at every drawing, so they are changed where they come from."""
    for axis in (panel.xaxis, panel.yaxis):
        names = [label.get_text() for label in axis.get_ticklabels()]
        spoken = [told(name) if name else name for name in names]
        if spoken != names:
            axis.set_ticks(axis.get_ticklocs(), labels=spoken)
