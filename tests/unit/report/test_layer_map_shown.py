"""The layers that are said to match are those that do, with the counts by which they were matched."""

from __future__ import annotations

from pathlib import Path

import msgspec
from known_pairs import of_outcome, with_parts_of

from modelkin.records import Evidence
from modelkin.records.relation import KindFound
from modelkin.report.html.charts import map_chart
from modelkin.report.html.sections import layer_map
from modelkin.verdict import judge


def test_layers_that_share_their_gains_alone_match_none(tmp_path: Path) -> None:
    found = with_parts_of(tmp_path, "dune", "grove", lambda _, tensor: tensor.ndim == 1)
    assert [share.kind for share in found.verdict.kinds] == ["component-reuse"]
    assert found.relation is not None
    assert {a for _, a in found.relation.layer_map} == {None}
    assert layer_map(found) is None


def test_a_question_that_found_nothing_has_no_part_in_the_counts() -> None:
    case = of_outcome("related")
    matched = next(answer for answer in case.answers if answer.question == "layer-map")
    assert isinstance(matched, Evidence)
    nothing = msgspec.structs.replace(
        matched,
        question="unmasked-neurons",
        grade="B",
        pvalue=1.0,
        log10_pvalue=0.0,
        adjusted_pvalue=1.0,
        per_layer=tuple(msgspec.structs.replace(layer, statistic=0.0) for layer in matched.per_layer),
    )
    others = tuple(answer for answer in case.answers if answer.question != "unmasked-neurons")
    shown = layer_map(msgspec.structs.replace(case, answers=(*others, nothing)))
    assert shown is not None
    assert {b: row[2] for row, (b, _) in zip(map_chart(shown, "en").rows, shown.pairs, strict=True)} == {
        layer.b: f"{layer.statistic:g}" for layer in matched.per_layer if layer.a
    }


def test_the_sentence_speaks_of_a_part_where_all_tensors_show_one() -> None:
    case = of_outcome("related")
    assert case.relation is not None
    assert case.verdict.shared is not None
    why = "64% of what is inside the layers is shared; found are up"
    part = KindFound("component-reuse", None, why, "nothing: of the rows of a tensor one finds its own")
    share = msgspec.structs.replace(case.verdict.shared, fraction=0.64, low=0.63, high=0.65, of="b")
    relation = msgspec.structs.replace(case.relation, kinds=(part,), direction="unknown", shared=share)
    depths = case.a.layers, case.b.layers
    verdict = judge(case.answers, depths=depths, budget=case.budget, alignment=case.alignment, relation=relation)
    assert verdict.sentence.startswith("The two models are related in part: 64% of the parameters of B are shared and")
    unsure = msgspec.structs.replace(relation, shared=msgspec.structs.replace(share, high=1.0))
    verdict = judge(case.answers, depths=depths, budget=case.budget, alignment=case.alignment, relation=unsure)
    assert verdict.sentence.startswith("The two models are related in part: 63% or more of the parameters of B are")
