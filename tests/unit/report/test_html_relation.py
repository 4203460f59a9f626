"""What report.html says of relation and claims: as much as the text page, in both languages, and never more."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
import pytest
from test_comparison_relation import told
from test_html import Reader

from modelkin.records import Comparison, Kind, Standing
from modelkin.records.comparison import Claims, WeighedClaim, WeighedRelation
from modelkin.records.relation import KindFound, Merge, MergeWeights, Triplet
from modelkin.report.html import drawing, page
from modelkin.report.html.words import LANGUAGES, Language, words

WHY = "the two are related; which of them came first is not told"
WHY_WORD = "what changed between the two is what training changes; which of the two came first is not told"
FOLDER = "/data/models/of/somebody"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")


def said(comparison: Comparison) -> dict[str, str]:
    sheets = Reader(page.comparison_html(comparison)).said
    return {language: " ".join(text.split()) for language, text in sheets.items()}


def claiming(relation: WeighedRelation | None) -> Comparison:
    finding = WeighedClaim("example/base-7b", "not contradicted", WHY, relation)
    claims = Claims(read=True, base_model=("example/base-7b",), relation="finetune", findings=(finding,))
    case = told("unknown", "fine-tune")
    return msgspec.structs.replace(case, b=msgspec.structs.replace(case.b, claims=claims))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_standing_of_a_claim_has_its_word(language: Language) -> None:
    assert set(words(language)["claims"]["standing"]) == set(get_args(Standing))


def test_the_word_for_the_relation_is_weighed_on_its_own() -> None:
    sheets = said(claiming(WeighedRelation("finetune", "not contradicted", WHY_WORD)))
    assert "B says that it comes from example/base-7b. Not contradicted by the evidence: The two are" in sheets["en"]
    assert "B calls what was done “finetune”. Not contradicted by the evidence: What changed" in sheets["en"]
    assert "Named relation" not in sheets["en"]
    assert "B는 거기에 한 일을 “finetune”라고 부릅니다. 증거와 어긋나지 않음: 둘 사이에 변한 것은" in sheets["ko"]


def test_a_word_that_nobody_weighed_stands_beside_the_base() -> None:
    assert "Named relation: finetune. Not contradicted" in said(claiming(None))["en"]


def with_third(**changes: Any) -> Comparison:
    """A mixture of folders on a disk, and a third relative there."""
    fields: dict[str, Any] = {
        "merged": f"{FOLDER}/mix", "sources": (f"{FOLDER}/one", f"{FOLDER}/two"), "method": "linear",
        "weights": (0.6, 0.4), "layers": (MergeWeights("0", (0.6, 0.4), 0.2),), "gain": 0.8, "unexplained": 0.2,
        "missing_parent": False, "marks": (),
    }  # fmt: skip
    angle = (0.5, 0.4, 0.6)
    third = Triplet(third=f"{FOLDER}/three", at_a=angle, at_b=angle, at_third=angle, shape="unclear")
    case = told("unknown", "merge")
    assert case.relation is not None
    relation = msgspec.structs.replace(case.relation, merge=Merge(**(fields | changes)), triplets=(third,))
    return msgspec.structs.replace(case, relation=relation)


@pytest.mark.parametrize("language", LANGUAGES)
def test_models_are_called_as_short_as_on_the_text_page(language: Language) -> None:
    text = said(with_third())[language]
    assert FOLDER not in text
    assert all(name in text for name in ("mix", "one0.60", "two0.40", "three"))


def test_a_mixture_that_is_not_whole_is_not_told_as_one() -> None:
    parted, whole = said(with_third(method="unknown", missing_parent=True)), said(with_third())
    assert "mix as a mixture (method unknown)" in parted["en"]
    assert "a parent may be missing, or it was trained on after merging" in parted["en"]
    assert "a parent may be missing" not in whole["en"]
    assert ("one––" in parted["en"], "0.60" in parted["en"], "0.60" in whole["en"]) == (True, False, True)
    assert "Whether it is a mixture is not told" in parted["en"]
    assert "Whether it is a mixture is not told" not in said(with_third(last=f"{FOLDER}/mix"))["en"]
    assert "(방법 미상)" in parted["ko"]
    assert "linear or slerp" in said(with_third(same_as=("slerp",)))["en"]


@pytest.mark.parametrize("found", [("shared-init",), ("undetermined",)])
def test_what_began_alike_has_no_reasons_for_an_order(found: tuple[Kind, ...]) -> None:
    sheets = said(told("neither", "shared-init", found=found))
    assert "B was turned" not in sheets["en"]
    agrees = "matrices by a correlation of 0.24, norm gains by a correlation of 0.16 (middle values)"
    assert (agrees in sheets["en"]) == (found == ("undetermined",))
    assert ("행렬의 상관계수 0.24, 노름 게인의 상관계수 0.16(가운뎃값)" in sheets["ko"]) == (found == ("undetermined",))
    assert "B was turned" in said(told("unknown", "fine-tune"))["en"]


def test_a_kind_without_a_probability_is_not_said_to_be_counted() -> None:
    case = told("unknown", "fine-tune")
    assert re.search("none given *It shows", said(case)["en"])
    assert case.relation is not None
    kinds = (KindFound("fine-tune", 0.83, "it shows", "it does not"),)
    sure = msgspec.structs.replace(case, relation=msgspec.structs.replace(case.relation, kinds=kinds))
    assert re.search("0.83 *It shows", said(sure)["en"])
    assert "Where no probability is given" not in said(sure)["en"]
