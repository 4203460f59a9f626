"""One language's view of a survey: what its template asks for."""

from __future__ import annotations

import shlex

from markupsafe import Markup

from modelkin.records import Matrix, Survey, SurveyModel, Table, Value
from modelkin.report.html.chart import Chart
from modelkin.report.html.drawing import Drawing, can_draw
from modelkin.report.html.survey_charts import roles_drawn, shown, survey_charts
from modelkin.report.html.survey_parts import PairLine, models_with_gains, number, other_tables, pair_lines
from modelkin.report.html.words import LANGUAGES, Language, survey_words, told, words
from modelkin.report.text import size

SHOWN_ROWS = 25  # of a table; the files have all
SHOWN_PAIRS = 40
SHOWN_MODELS = 30  # before the rest is folded away
MOST_MODELS_LISTED = 300
SHOWN_MATRICES = 250


class SurveySheet:
    """Attributes are what sections hold, methods what the template shows of them."""

    languages = LANGUAGES

    def __init__(self, survey: Survey, language: Language) -> None:
        self.survey, self.language, self.w = survey, language, survey_words(language)
        self.names = {one: words(one)["page"]["name"] for one in LANGUAGES}
        self.can_draw = can_draw()
        self.drawings: dict[str, Drawing] = {}
        lines = pair_lines(survey)
        self.pairs, self.pairs_left = lines[:SHOWN_PAIRS], max(0, len(lines) - SHOWN_PAIRS)
        self.found = survey_charts(survey, language)
        self.left = self._left(lines)
        self.tables = other_tables(survey)
        self.matrices = survey.matrices[:SHOWN_MATRICES]
        self.matrices_left = max(0, len(survey.matrices) - SHOWN_MATRICES)

    def _left(self, lines: list[PairLine]) -> dict[str, int]:
        """How many charts of a section the page leaves to the files."""
        pairs = len({(line.a, line.b) for line in lines})
        every = {"facing": pairs, "maps": len(lines), "gain-curves": len(models_with_gains(self.survey))}
        return {name: every[name] - len(self.found[name]) for name in every if name in self.found}

    def models(self) -> list[list[SurveyModel]]:
        """Those that are seen at once, and those that are folded away."""
        listed = self.survey.models[:MOST_MODELS_LISTED]
        return [list(part) for part in (listed[:SHOWN_MODELS], listed[SHOWN_MODELS:]) if part]

    def models_left(self) -> int:
        return max(0, len(self.survey.models) - MOST_MODELS_LISTED)

    def charts(self) -> list[Chart]:
        return [chart for charts in self.found.values() for chart in charts]

    @property
    def title(self) -> str:
        return str(self.w["head"]["title"]).format(models=len(self.survey.models))

    @property
    def running(self) -> str:
        """What every printed page says at its head."""
        return self.title

    def contents(self) -> list[tuple[str, str]]:
        w = self.w
        entries = [
            ("models", w["models"]["title"], True),
            ("pairs", w["pairs"]["title"], True),
            *((name, w[self.key(name)]["title"], True) for name in self.found),
            ("tables", w["tables"]["title"], bool(self.tables)),
            ("matrices", w["matrices"]["title"], bool(self.matrices)),
            ("left-out", w["left_out"]["title"], bool(self.survey.left_out)),
            ("record", w["record"]["title"], True),
            ("glossary", w["glossary"]["title"], True),
        ]
        return [(name, title) for name, title, there in entries if there]

    def legend(self) -> str:
        """Which role has which line."""
        dashes = self.w["dashes"]
        return ", ".join(f"{role} ({dashes[n % len(dashes)]})" for n, role in enumerate(roles_drawn(self.survey)))

    def key(self, name: str) -> str:
        return name.replace("-", "_")

    def told(self, text: str) -> Markup:
        return told(text, self.language)

    def shown(self, value: float | None) -> str:
        return shown(value)

    def chance(self, line: PairLine) -> str:
        """What the mean Pearson of strangers is: as renumbered axes show, or else no farther than in one layer."""
        if line.scatter is not None:
            return f"0 ± {line.scatter:.2g}"
        return "0" if not line.width else f"0 ± ≤ {line.width**-0.5:.2g}"

    def pvalue(self, line: PairLine) -> str:
        return "–" if line.pvalue is None else f"{line.pvalue:.2g}"

    def order(self, value: float | None) -> float:
        """For sorting: what has no number comes last."""
        return 9e9 if value is None else value

    def count(self, value: int | None) -> str:
        return "–" if value is None else f"{value:,}"

    def size(self, count: int) -> str:
        return size(count)

    def rows(self, table: Table) -> list[list[str]]:
        return [[self.cell(value) for value in row] for row in table.rows[:SHOWN_ROWS]]

    def cell(self, value: Value) -> str:
        if value is None:
            return "–"
        return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value

    def rest(self, table: Table) -> int:
        return max(0, len(table.rows) - SHOWN_ROWS)

    def reach(self, matrix: Matrix) -> str:
        """The least and the greatest value, off the diagonal where that sets a thing beside itself."""
        own = matrix.rows == matrix.columns
        values = [
            known
            for i, row in enumerate(matrix.values)
            for j, cell in enumerate(row)
            if not (own and i == j) and (known := number(cell)) is not None
        ]
        return f"{min(values):.4g} – {max(values):.4g}" if values else "–"

    def command(self) -> str:
        s = self.survey
        models = [f"{model.id}@{model.revision}" if model.revision else model.id for model in s.models]
        words = ["modelkin", "survey", *models, "--seed", str(s.seed)]
        words += ["--roles", ",".join(s.roles), "--layers", ",".join(s.layers)] if s.layers else []
        for name in dict.fromkeys(group for model in s.models for group in model.groups):
            words += ["--group", f"{name}={','.join(m.label for m in s.models if name in m.groups)}"]
        for known in s.known:
            words += ["--known", f"{known.relation}:{known.a},{known.b}"]
        return shlex.join([*words, "--out", "DIR"])
