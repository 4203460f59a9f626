"""One language's view of a comparison: what the templates ask for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from markupsafe import Markup

from modelkin.records import Beside, BriefAnswer, Claims, Comparison, Evidence, KindShare, Party
from modelkin.records.naming import short_names
from modelkin.report.comparison_text import UNMASKED, pvalue_text, seen_through, shortened
from modelkin.report.extrapolation import is_extrapolated, rests_on_extrapolation
from modelkin.report.html import sections
from modelkin.report.html.chart import MOST_LAYERS, Chart
from modelkin.report.html.charts import COUNTS_OF_N, map_chart, null_charts, share_chart
from modelkin.report.html.drawing import Drawing, can_draw
from modelkin.report.html.layer_charts import curve_charts, heat_chart
from modelkin.report.html.numbers import is_named, many, zeros
from modelkin.report.html.words import LANGUAGES, Language, label, said, told, words
from modelkin.report.lineage import address, date
from modelkin.report.text import interval, percent, plain, size

Rows = list[tuple[str, ...]]
LAYERS = "layer-map"


class Sheet:
    """Attributes are what sections hold, methods what a template shows of them."""

    languages = LANGUAGES

    def __init__(self, comparison: Comparison, language: Language) -> None:
        self.comparison, self.language, self.w = comparison, language, words(language)
        self.names = {one: words(one)["page"]["name"] for one in LANGUAGES}
        self.can_draw = can_draw()
        self.drawings: dict[str, Drawing] = {}
        self.headline = sections.headline(comparison)
        self.parties = (("A", comparison.a), ("B", comparison.b))
        self.asked = sections.asked(comparison)
        self.not_asked = sections.not_asked(comparison)
        self.assumptions = sections.assumptions(comparison)
        self.remarks = sections.remarks(comparison)
        self.seen_through = seen_through(comparison)
        self.left_out = sections.left_out(comparison)
        self.tokenizers = sections.tokenizer_facts(comparison)
        self.placing = sections.placing(comparison)
        self.began_alike = any(share.kind == "shared-init" for share in comparison.verdict.kinds)
        self.called = short_names(sections.further_models(comparison))
        self.tensors_shown = len(sections.correlated_tensors(comparison))
        self.layers_asked = any(answer.question == LAYERS for answer in sections.evidence(comparison))
        counted = sections.per_layer(comparison, sections.COUNTED)
        self.nearest_shown = any(not finding.a for _, finding in counted)
        self.map = sections.layer_map(comparison)
        drawable = self.map is not None and self.map.matched > 0 and len(self.map.pairs) <= MOST_LAYERS
        self.map_chart = map_chart(self.map, language) if self.map and drawable else None
        self.nulls = null_charts(comparison, language)
        self.curves = curve_charts(comparison, language)
        self.heat = heat_chart(comparison, language)
        self.shares = share_chart(comparison, language)

    def nulls_before(self) -> list[Chart]:
        """Of what was asked before anything was undone; all of them, where nothing had to be."""
        return self.nulls[len(self.nulls_undone()) :]

    def nulls_undone(self) -> list[Chart]:
        undone = self.label(UNMASKED)
        return [chart for chart in self.nulls[:1] if self.seen_through and chart.title == undone]

    def charts(self) -> list[Chart]:
        found = [*self.nulls, self.map_chart, *self.curves, self.heat, self.shares]
        return [chart for chart in found if chart is not None]

    @property
    def title(self) -> str:
        a, b = (plain(party.id).rstrip("/").rpartition("/")[2] for _, party in self.parties)
        return str(self.w["page"]["title"]).format(a=a, b=b, headline=self.w["headline"][self.headline])

    @property
    def running(self) -> str:
        """What every printed page says at its head."""
        names = short_names([party.id for _, party in self.parties])
        called = [f"{name} {shortened(names.get(party.id, party.id), 40)}" for name, party in self.parties]
        return f"modelkin: {', '.join(called)}"

    def contents(self) -> list[tuple[str, str]]:
        w, c = self.w, self.comparison
        entries = [
            ("questions", w["questions"]["title"], True),
            ("map", w["layer_map"]["title"], True),
            ("layers", w["curves"]["title"], bool(self.curves or self.heat)),
            ("not-evidence", w["not_evidence"]["title"], bool(c.not_evidence)),
            ("relation", w["relation"]["title"], c.relation is not None),
            ("claims", w["claims"]["title"], True),
            ("controls", w["beside"]["controls"], bool(c.controls)),
            ("candidates", w["beside"]["candidates"], bool(c.candidates)),
            ("identity", w["identity"]["title"], True),
            ("cost", w["cost"]["title"], True),
            ("assumptions", w["assumptions"]["title"], bool(self.assumptions)),
            ("limits", w["limits"]["title"], True),
            ("glossary", w["glossary"]["title"], True),
        ]
        return [(name, title) for name, title, there in entries if there]

    def strength(self) -> Markup:
        """The p of the verdict as a chance among strangers; a number too large for a name with its zeros counted."""
        power = zeros(self.comparison.verdict.log10_pvalue or 0.0)
        text, said_as = self.w["verdict"], many(power, self.language)
        first = Markup("<strong>{}</strong>").format(Markup(text["one_in"]).format(many=said_as))
        if is_named(power, self.language):
            return first
        return first + " " + Markup(text["zeros"]).format(many=said_as, zeros=f"{power:,}")

    @property
    def grade(self) -> str:
        """The name of the words that explain the grade of the verdict."""
        beyond = "_extrapolated" if rests_on_extrapolation(self.comparison) else ""
        return f"grade_{self.comparison.verdict.grade}{beyond}"

    def grade_of(self, answer: Evidence) -> str:
        grade = answer.grade or self.w["questions"]["none"]
        return str(self.w["questions"]["extrapolated"]).format(grade=grade) if is_extrapolated(answer) else grade

    def address(self, party: Party) -> str | None:
        return address(party)

    def date(self) -> str | None:
        return date(self.comparison)

    def p_note(self) -> str:
        """How many numbers are shown: of so many some are small by chance."""
        layers = [finding for one in self.asked for finding in one.answer.per_layer if finding.log10_pvalue is not None]
        questions = sum(one.p != "" for one in self.asked)
        return str(self.w["questions"]["p_note"]).format(questions=f"{questions:,}", layers=f"{len(layers):,}")

    def direction(self) -> str:
        """That two merely began alike can be imitated, as their sentence says; so it is not said flatly."""
        name = "began_alike" if self.began_alike else self.comparison.verdict.direction
        return str(self.w["direction"][name])

    def told(self, text: str) -> Markup:
        return told(text, self.language)

    def sentence(self, text: str) -> str:
        return f"{text[:1].upper()}{text[1:]}."

    def label(self, question: str) -> str:
        return label(question, self.language)

    def labels(self, questions: Sequence[str]) -> str:
        return ", ".join(self.label(question) for question in dict.fromkeys(questions))

    def failed(self, answer: Evidence) -> list[str]:
        return [assumption.text for assumption in answer.assumptions if assumption.held is False]

    def pvalue(self, log10: float) -> str:
        return pvalue_text(log10)

    def number(self, value: int | None) -> str:
        return str(self.w["identity"]["unknown"]) if value is None else f"{value:,}"

    def size(self, count: int) -> str:
        return size(count)

    def measure(self, value: float | str) -> str:
        return said(value, self.language)[0] if isinstance(value, str) else f"{value:.4f}"

    def kinds(self, kinds: Sequence[KindShare]) -> str:
        """The words for a kind that its name does not explain stand behind it."""
        means = self.w["relation"]["means"]
        shown = [self._kind(one) + (f": {means[one.kind]}" if one.kind in means else "") for one in kinds]
        return ("; " if any(one.kind in means for one in kinds) else ", ").join(shown)

    def _kind(self, one: KindShare) -> str:
        name = str(self.w["kind"][one.kind])
        return name if one.probability is None else f"{name} ({one.probability:.2f})"

    @property
    def found_kinds(self) -> list[object]:
        """Of the kinds that were looked at, those that the verdict names."""
        said_kinds = {share.kind for share in self.comparison.verdict.kinds}
        relation = self.comparison.relation
        return [kind for kind in relation.kinds if kind.kind in said_kinds] if relation else []

    def share(self) -> str:
        shared = self.comparison.verdict.shared
        return "" if shared is None else f"{percent(shared.fraction)} ({interval(shared.low, shared.high)})"

    def share_sentence(self) -> str:
        verdict = self.comparison.verdict
        if verdict.shared is None:
            return ""
        of = verdict.shared.side(verdict.direction).upper()
        between = interval(verdict.shared.low, verdict.shared.high)
        return str(self.w["relation"]["share_is"]).format(
            of=of, share=percent(verdict.shared.fraction), interval=between
        )

    def placed(self) -> list[tuple[str, str]]:
        found = [(place, getattr(self.placing, place)) for place in sections.PLACES]
        return [(place, how) for place, how in found if how not in (None, "none")]

    def role_rows(self) -> Rows:
        parts = self.comparison.relation.by_role if self.comparison.relation else ()
        return [(one.part, f"{one.parameters:,}", percent(one.fraction), interval(one.low, one.high)) for one in parts]

    def agreement(self) -> str:
        """What two have in common that only began alike, where no kind above says it. A share would read as descent."""
        if not self.began_alike or self.comparison.relation is None or self.found_kinds:
            return ""
        text, found = self.w["relation"], sections.agreement(self.comparison.relation)
        parts = ", ".join(text[name].format(r=f"{value:.2f}") for name, value in found.items())
        return str(text["began_alike"]).format(parts=parts) if parts else ""

    def method(self) -> str:
        """How the mixture was made, with another method that would have left the same values."""
        found, text = self.comparison.relation, self.w["relation"]
        merge = found.merge if found else None
        if merge is None or merge.method == "unknown":
            return str(text["no_method"])
        told: str = merge.method
        for other in merge.same_as:
            told = str(text["or"]).format(one=told, other=other)
        return told

    def merge_rows(self) -> Rows:
        merge = self.comparison.relation.merge if self.comparison.relation else None
        rows = [] if merge is None else sections.merge_rows(merge)
        return [(self.called[source], weight, by_layer) for source, weight, by_layer in rows]

    def triplet_rows(self) -> Rows:
        triplets = self.comparison.relation.triplets if self.comparison.relation else ()
        shapes = self.w["relation"]["shape"]
        return [
            (self.called[one.third], shapes[one.shape], f"{one.at_a[0]:.2f}, {one.at_b[0]:.2f}, {one.at_third[0]:.2f}")
            for one in triplets
        ]

    def not_compared_rows(self) -> Rows:
        parts = self.comparison.relation.not_compared if self.comparison.relation else ()
        return [(one.role, f"{one.parameters:,}", said(one.why, self.language)[0]) for one in parts]

    def lead(self) -> str:
        """How most questions are asked, and which of those that are here are asked otherwise."""
        text, here = self.w["questions"], [one.answer.question for one in self.asked]
        others = self.labels([question for question in here if question not in COUNTS_OF_N])
        more = str(text["lead_others"]).format(others=others) if others else text["lead_all"]
        return f"{text['lead']} {more}"

    def of_pair(self, question: str) -> str:
        """The count of the pair itself, to stand beneath those of controls."""
        answer = next((one.answer for one in self.asked if one.answer.question == question), None)
        if answer is None:
            return self._brief(None)
        p = answer.log10_pvalue
        return self._brief(BriefAnswer(question=question, statistic=answer.statistic, n=answer.n, log10_pvalue=p))

    def beside_questions(self, rows: Sequence[Beside]) -> dict[str, str]:
        """Questions, with what strangers give; of the layers a p alone is shown."""
        asked = sections.beside_questions(rows)
        return {**asked, **({LAYERS: ""} if LAYERS in asked else {})}

    def brief(self, row: Beside, question: str) -> str:
        return self._brief(next((one for one in row.answers if one.question == question), None))

    def _brief(self, answer: BriefAnswer | None) -> str:
        if answer is None or answer.statistic is None:
            return str(self.w["questions"]["none"])
        p = "" if answer.log10_pvalue is None else f"p {pvalue_text(answer.log10_pvalue)}"
        if (
            answer.question == LAYERS
        ):  # of all facing layers together or of the two that are most alike: no two counts compare
            return p
        whole = answer.statistic == int(answer.statistic) and answer.n is not None
        count = f"{answer.statistic:,.0f} / {answer.n:,}" if whole else f"{answer.statistic:.3f}"
        return f"{count} · {p}" if p else count

    def unweighed(self, claims: Claims) -> list[str]:
        weighed = {finding.base_model for finding in claims.findings}
        return [base for base in claims.base_model if base not in weighed]

    def command(self) -> str:
        c = self.comparison
        models = [f"{party.id}@{party.revision}" if party.revision else party.id for _, party in self.parties]
        beside = [(f"--{name}", rows) for name, rows in (("control", c.controls), ("candidates", c.candidates))]
        further = [
            word for option, rows in beside for row in dict.fromkeys(one.id for one in rows) for word in (option, row)
        ]
        return shlex.join(["modelkin", "compare", *models, "--budget", c.budget, "--seed", str(c.seed), *further])
