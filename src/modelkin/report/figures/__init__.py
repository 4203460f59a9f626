"""Pictures of a survey: views of its tables, drawn with matplotlib (the extra `figures`), imported when used."""

from modelkin.report.figures.drawing import FIGURES, Drawn, FigureKind, draw_all
from modelkin.report.figures.processes import processors

__all__ = ["FIGURES", "Drawn", "FigureKind", "draw_all", "processors"]
