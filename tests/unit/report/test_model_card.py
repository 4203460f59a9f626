from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from known_pairs import COMMIT, changed_copy, half_empty, int8, of_outcome, on_a_hub, told

from modelkin.records import Beside, Claims, Comparison, Kind
from modelkin.records.relation import Merge
from modelkin.report import model_card
from modelkin.report.model_card import card_text, model_card_patch, why_no_patch


def ordered() -> Comparison:
    return on_a_hub(of_outcome("related, and in which order"))


def merged(comparison: Comparison, *sources: str, missing: bool = False, base: str | None = None) -> Comparison:
    assert comparison.relation is not None
    merge = Merge(
        merged=comparison.b.id,
        sources=sources,
        method="linear",
        weights=(0.5,) * len(sources),
        layers=(),
        gain=0.5,
        unexplained=0.0,
        missing_parent=missing,
        marks=(),
        base=base,
        last=None if missing else comparison.b.id,
    )
    other = Beside(
        id="zoo/other", revision=COMMIT, side="b", budget="standard", outcome="related", sentence="They are related."
    )
    relation = msgspec.structs.replace(comparison.relation, merge=merge)
    return msgspec.structs.replace(comparison, relation=relation, candidates=(other,))


@pytest.mark.parametrize("kind", ["fine-tune", "continued-pretraining", "merged-lora"])
def test_what_was_trained_is_a_finetune_of_its_base(kind: Kind) -> None:
    patch = model_card_patch(told(ordered(), "a->b", kind))
    assert patch is not None
    assert yaml.safe_load(patch) == {"base_model": ["example/base-7b"], "base_model_relation": "finetune"}


def test_the_base_is_whoever_came_first() -> None:
    patch = model_card_patch(told(ordered(), "b->a", "depth-prune", "fine-tune"))
    assert patch is not None
    assert yaml.safe_load(patch)["base_model"] == ["acme/orca-7b"]


def test_a_copy_on_a_grid_is_quantized(tmp_path: Path) -> None:
    grid = on_a_hub(changed_copy(tmp_path, int8))
    assert (grid.verdict.direction, [share.kind for share in grid.verdict.kinds]) == ("a->b", ["re-encoded"])
    patch = model_card_patch(grid)
    assert patch is not None
    assert yaml.safe_load(patch) == {"base_model": ["example/base-7b"], "base_model_relation": "quantized"}
    assert why_no_patch(told(grid, "b->a", "re-encoded")) == model_card.NO_WORD  # the ancestor's grid says nothing of b


def test_a_copy_with_zeros_is_not_quantized(tmp_path: Path) -> None:
    emptied = on_a_hub(changed_copy(tmp_path, half_empty))
    assert (emptied.verdict.direction, [share.kind for share in emptied.verdict.kinds]) == ("a->b", ["re-encoded"])
    assert model_card_patch(emptied) is None
    assert why_no_patch(emptied) == model_card.NO_WORD


def test_a_merge_names_all_its_parents_or_nothing() -> None:
    case = told(ordered(), "a->b", "merge")
    patch = model_card_patch(merged(case, "example/base-7b", "zoo/other"))
    assert patch is not None
    assert yaml.safe_load(patch) == {"base_model": ["example/base-7b", "zoo/other"], "base_model_relation": "merge"}
    with_base = model_card_patch(merged(case, "zoo/other", base="example/base-7b"))
    assert with_base is not None
    assert yaml.safe_load(with_base)["base_model"] == ["zoo/other", "example/base-7b"]
    missing, local = merged(case, "example/base-7b", "zoo/other", missing=True), merged(case, "zoo/other", "./local")
    for unnamed, why in ((missing, model_card.OPEN_MERGE), (local, model_card.NO_NAME)):
        assert model_card_patch(unnamed) is None
        assert why_no_patch(unnamed) == why


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (lambda: on_a_hub(of_outcome("unrelated")), model_card.NOT_RELATED),
        (lambda: on_a_hub(of_outcome("related")), model_card.NO_ORDER),
        (lambda: on_a_hub(of_outcome("in part")), model_card.IN_PART),
        (lambda: ordered(), model_card.NO_WORD),
        (lambda: told(of_outcome("related, and in which order"), "a->b", "fine-tune"), model_card.NO_NAME),
        (lambda: told(ordered(), "neither", "shared-ancestor"), model_card.IN_PART),
        (lambda: told(ordered(), "a->b", "fine-tune", "component-reuse"), model_card.IN_PART),
        (lambda: told(ordered(), "a->b", "depth-upscale"), model_card.NO_WORD),
        (lambda: told(ordered(), "a->b", "undetermined"), model_card.NO_WORD),
    ],
)
def test_nothing_is_proposed_that_the_evidence_does_not_carry(case: Callable[[], Comparison], why: str) -> None:
    assert model_card_patch(case()) is None
    assert why_no_patch(case()) == why


def test_what_the_card_says_already_is_not_proposed() -> None:
    case = told(ordered(), "a->b", "fine-tune")
    claims = Claims(read=True, base_model=("example/base-7b",), relation="finetune")
    said = msgspec.structs.replace(case, b=msgspec.structs.replace(case.b, claims=claims))
    assert why_no_patch(said) == model_card.SAID
    half = msgspec.structs.replace(claims, relation=None)
    assert model_card_patch(msgspec.structs.replace(case, b=msgspec.structs.replace(case.b, claims=half))) is not None


def test_a_name_cannot_write_a_line_of_its_own() -> None:
    case = told(on_a_hub(of_outcome("related, and in which order"), a="x/y\nlicense: mit"), "a->b", "fine-tune")
    assert why_no_patch(case) == model_card.NO_NAME


def test_the_owner_is_told_what_the_reason_is_the_reason_for() -> None:
    nothing = of_outcome("unrelated")
    assert card_text(nothing) == f"No lines are proposed for a model card: {why_no_patch(nothing)}."
    something = told(on_a_hub(of_outcome("related, and in which order")), "a->b", "fine-tune")
    assert card_text(something) == model_card_patch(something)
