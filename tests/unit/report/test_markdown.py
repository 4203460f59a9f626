from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from known_pairs import OUTCOMES, of_outcome, on_a_hub, told
from markdown_it import MarkdownIt

from modelkin.questions import QUESTIONS
from modelkin.records import Assumption, Beside, Claims, Comparison, Evidence, NotEvidence, Unanswered, WeighedClaim
from modelkin.records.relation import KindFound
from modelkin.report.comparison_text import DOES_NOT_COUNT, LABELS
from modelkin.report.markdown import SHOWN_QUESTIONS, code, markdown, prose

SEEN = Path(__file__).with_name("texts_of_records.txt").read_text("utf-8").splitlines()
COMMENT = 65_536  # characters that GitHub takes
AIMED_AT = 6_950
EVIL = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "</details><h1>guilty</h1>",
    "<!-- hidden",
    "[click](javascript:alert(1))",
    "![pixel](https://evil.example/p.png)",
    "https://evil.example/path",
    "see www.evil.example now",
    "<https://evil.example>",
    "someone@evil.example",
    "@octocat and @acme/owners",
    "fixes #12, GH-12, acme/repo#3",
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    "# heading",
    "a\n\n# heading\n\n- list",
    "- list",
    "1. list",
    "===",
    "> quote",
    "***bold*** __bold__ ~~gone~~",
    "```\n@octocat\n```",
    "`a` ``b`` `c",
    "a`b``c```d",
    "\\`<b>\\`",
    "| cell | @octocat |",
    "\\| cell \\\\| <b>",
    "&lt;b&gt; &#64;octocat &commat;octocat",
    "$$\\href{https://evil.example}{x}$$",
    ":tada: [^1] [x]: https://evil.example",
    "\u202eright to left \x1b[31m",
    "   ",
]
TAGS = {"p", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "pre", "sub", "details"}
TAGS |= {"summary"}
# What GitHub makes more of than words, outside of code.
LINKED = re.compile(r"@\w|#\d|\bGH-\d|https?:|www\.|:\w+:|\b[0-9a-f]{40}\b|\$\$|\[\^")


class Page(HTMLParser):
    """Tags, their attributes, and the text that is not code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.words: list[str] = []
        self.inside_code = 0
        self.feed(MarkdownIt("commonmark").enable("table").render(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.inside_code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self.inside_code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if not self.inside_code:
            self.words.append(data)


def is_tame(text: str) -> bool:
    page = Page(text)
    return set(page.tags) <= TAGS and set(page.attributes) <= {"style"} and not LINKED.search(" ".join(page.words))


def poisoned(text: str, comparison: Comparison) -> Comparison:
    """The text in every place where a record holds words from a model, or words at all."""
    claims = Claims(
        read=True,
        base_model=(text,),
        relation=text,
        notes=(text,),
        findings=(WeighedClaim(text, "cannot be told", text),),
    )
    a = msgspec.structs.replace(comparison.a, id=text, revision=text, claims=claims)
    b = msgspec.structs.replace(comparison.b, id=text, claims=claims)
    given = next(answer for answer in comparison.answers if isinstance(answer, Evidence))
    answer = msgspec.structs.replace(given, question=text, observed=text, strangers=text)
    beside = Beside(id=text, revision=text, side="a", budget="quick", outcome="related", sentence=text)
    verdict = msgspec.structs.replace(comparison.verdict, sentence=text, reasons=(text,), limits=(text,))
    return msgspec.structs.replace(
        comparison,
        a=a,
        b=b,
        modelkin=text,
        policy=text,
        verdict=verdict,
        answers=(answer, Unanswered(text, text)),
        not_evidence=(NotEvidence(text, text, text, text),),
        controls=(beside,),
        candidates=(beside,),
    )


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_the_verdict_is_first_and_everything_else_is_there(outcome: str) -> None:
    case = of_outcome(outcome)
    text = markdown(case)
    assert text.startswith(f"**{case.verdict.outcome.upper()}.** {case.verdict.sentence}\n")
    paths = len(case.a.id) + len(case.b.id)  # as long as wherever this checkout lies
    assert len(text) - paths <= AIMED_AT
    for answer in case.answers:
        assert LABELS[answer.question] in text
        assert (answer.strangers if isinstance(answer, Evidence) else answer.unanswered).split()[0] in text
    for item in case.not_evidence:
        assert item.measure.split(":")[0] in text.replace("`", "")
    assert text.count("<details>") == text.count("</details>")
    assert "modelkin verify comparison.json --fetch" in text
    assert case.sha256 in text
    assert is_tame(text)


def test_p_is_told_in_words() -> None:
    assert (
        "in at most 5e-534 of all pairs (grade A, an exact bound; at most one pair in a 1 followed by 533"
        in markdown(of_outcome("related"))
    )
    measured = msgspec.structs.replace(of_outcome("related, and in which order"), answers=())  # nothing extrapolated
    assert "1e-6 of all pairs (grade B, measured on unrelated models; at most one pair in 1,000,000)" in markdown(
        measured
    )
    assert "How sure" not in markdown(of_outcome("unrelated"))


def test_strength_beyond_the_controls_is_said_to_be_extrapolated() -> None:
    text = markdown(of_outcome("related, and in which order"))
    assert "(grade B, extrapolated, as too few unrelated models of its size and class were measured; " in text
    assert " | B, extrapolated |" in text
    assert "extrapolated" not in markdown(of_outcome("related"))


def test_the_hedge_of_a_long_finding_is_not_cut() -> None:
    why = next(text for text in SEEN if "that those given do not explain in full" in text)
    case = told(of_outcome("related"), "unknown", "merge")
    assert case.relation is not None
    kinds = (KindFound("merge", 0.5, why, "weights are near 0, and differ from matrix to matrix"),)
    text = markdown(msgspec.structs.replace(case, relation=msgspec.structs.replace(case.relation, kinds=kinds)))
    assert (
        "any weights while a part is left over; between strangers: weights are near 0, and differ from matrix to matrix"
        in text
    )


def test_the_date_is_that_of_the_record() -> None:
    assert "made " not in markdown(of_outcome("related")).rpartition("<sub>")[2]
    dated = msgspec.structs.replace(of_outcome("related"), made="2026-01-31T12:00:00Z")
    assert "; made 2026-01-31T12:00:00Z" in markdown(dated)


def test_equal_bytes_have_no_p() -> None:
    case = of_outcome("related")
    verdict = msgspec.structs.replace(case.verdict, pvalue=None, log10_pvalue=None)
    assert "There is no p-value" in markdown(msgspec.structs.replace(case, verdict=verdict))


def test_models_stand_with_their_revisions() -> None:
    case = on_a_hub(of_outcome("related"))
    text = markdown(case)
    for party in (case.a, case.b):
        assert f"| `{party.id}` | `{party.revision}` | {party.parameters:,} |" in text
    assert "none (local files)" in markdown(of_outcome("related"))


def test_a_count_that_does_not_count_is_not_shown() -> None:
    case = of_outcome("related")
    broken = tuple(
        msgspec.structs.replace(answer, grade=None, assumptions=(Assumption("axes may be renumbered", False),))
        if isinstance(answer, Evidence) and answer.question == "hidden-axes-by-gains"
        else answer
        for answer in case.answers
    )
    row = next(
        line for line in markdown(msgspec.structs.replace(case, answers=broken)).splitlines() if "norm gains" in line
    )
    assert row == f"| norm gains | {DOES_NOT_COUNT} | – | – | – |"


def test_the_owner_is_offered_lines_only_where_they_follow() -> None:
    case = told(on_a_hub(of_outcome("related, and in which order")), "a->b", "fine-tune")
    text = markdown(case)
    assert "```yaml\nbase_model:\n- example/base-7b\nbase_model_relation: finetune\n```" in text
    assert "owner of `acme/orca-7b`" in text
    assert "base_model:" not in markdown(on_a_hub(of_outcome("related")))
    assert "model card" not in markdown(of_outcome("unrelated"))


@pytest.mark.parametrize("evil", EVIL)
def test_words_from_strangers_stay_words(evil: str) -> None:
    assert is_tame(prose(evil))
    assert is_tame(f"- {prose(evil)}")
    case = poisoned(evil, of_outcome("related, and in which order"))
    assert is_tame(markdown(case))
    table = Page(markdown(case)).tags
    assert (
        table.count("td") == 2 * 6 + 5 + 4 + 2 * 3
    )  # no cell more and none less: models, the answer, a candidate, a control


def test_the_check_itself_sees_what_is_not_tame() -> None:
    unescaped = [evil for evil in EVIL if not is_tame(evil)]
    assert len(unescaped) > 20


def test_a_comment_holds_it_whatever_the_record_holds() -> None:
    case = poisoned("<b>" * 5_000 + " `x` " * 5_000, of_outcome("related"))
    many = msgspec.structs.replace(
        case,
        verdict=msgspec.structs.replace(
            case.verdict, limits=case.verdict.limits * 500, reasons=case.verdict.reasons * 500
        ),
        answers=case.answers * 500,
        not_evidence=case.not_evidence * 500,
        controls=case.controls * 500,
        candidates=case.candidates * 500,
    )
    assert len(QUESTIONS) < SHOWN_QUESTIONS
    assert len(markdown(many)) < COMMENT
    assert is_tame(markdown(many))


@pytest.mark.parametrize("text", ["a", "`", "``", "a`b", "`a`", " ", "a``b`c"])
def test_code_shows_the_text_and_nothing_else(text: str) -> None:
    (paragraph,) = (token for token in MarkdownIt("commonmark").parse(code(text)) if token.type == "inline")
    (span,) = paragraph.children or ()
    assert (span.type, span.content.strip()) == ("code_inline", text.strip())


def test_plain_sentences_are_left_alone() -> None:
    for sentence in (
        "Rows alike by a correlation of 0.068 or more would have been noticed 99 times in 100.",
        "shared: 100 % of the parameters of B (95 % interval 86–100 %; strangers: 0 %)",
        "두 모델은 관련이 있습니다: A의 가중치에서 왔습니다.",
        "-0.001 ± 0.005",
        "12 of 384, one of every set of 32",
    ):
        assert prose(sentence) == sentence
    assert prose("roles (post_norm, q_norm) of `quick`; a->b") == "roles (`post_norm`, `q_norm`) of `quick`; `a->b`"
