from __future__ import annotations

from typing import Any

import pytest
from zoo.lineage import Relation, clans, halves, lineage, pair_half, pairs_for_calibration, relation
from zoo.origins import Block, axis_map, layer_map, neuron_map, origins

SHAPE = {"hidden": 8, "layers": 4, "class": "dense"}


def truth(name: str, kind: str = "unrelated", *parents: str, **told: Any) -> dict[str, Any]:
    relations = {"relations": told.pop("relations")} if "relations" in told else {}
    shape = SHAPE | told.pop("shape", {})
    listed = list(relations["relations"]) if relations else list(parents)
    return {"name": name, "kind": kind, "parents": listed, "shape": shape} | relations | told


def made(step: str, **details: Any) -> dict[str, Any]:
    return {"made_by": {"step": step, "details": details}}


GRAPH = {
    each["name"]: each
    for each in (
        truth("base", seed=1),
        truth("host", seed=2),
        truth("loner", seed=3),
        truth("wide", seed=4, shape={"hidden": 16}),
        truth("moe", seed=1, shape={"class": "moe"}),
        truth("sft.base", "fine-tune", relations={"base": "fine-tune"}),
        truth("cpt.base", "continued-pretraining", "base"),
        truth("cut.cpt.base", "depth-prune", "cpt.base", shape={"layers": 2}, **made("depth_prune", layer_map=[0, 3])),
        truth("merged.base", "merge", relations={"sft.base": "merge", "cpt.base": "merge"}),
        truth(
            "stacked.base",
            "merge",
            "sft.base",
            "cpt.base",
            shape={"layers": 6},
            **made("passthrough", layers=[[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [1, 3]]),
        ),
        truth("graft.base", "component-reuse", relations={"base": "component-reuse", "host": "fine-tune"}),
        truth("implant.base", "component-reuse", relations={"base": "component-reuse", "host": "fine-tune"}),
        truth("norms.base", "component-reuse", "base"),
        truth("tokens.base", "component-reuse", "base"),
        truth("seed.base", "shared-init", same_seed_as="base", seed=1),
        truth("sft.seed.base", "fine-tune", "seed.base"),
        truth("student.base", "distilled", teachers=["base"], seed=99),
        truth("sft.student.base", "fine-tune", "student.base"),
        truth(
            "shuffled.base",
            "fine-tune",
            "base",
            made_by={"disguise": [{"move": "shuffle_layers", "layers": [0, 2, 1, 3]}]},
        ),
    )
}
NARROW = truth(
    "narrow.cut.cpt.base",
    "width-prune",
    "cut.cpt.base",
    shape={"hidden": 3, "layers": 2},
    **made("width_prune", hidden=[1, 2, 5], neurons={"0": [0, 2, 3], "1": [1, 2, 4]}),
)
NARROWER = truth(
    "narrow.narrow.cut.cpt.base",
    "width-prune",
    NARROW["name"],
    shape={"hidden": 2, "layers": 2},
    **made("width_prune", hidden=[0, 2], neurons={"0": [1, 2], "1": [0, 2]}),
)
MASKED = truth(
    "masked.narrow.cut.cpt.base",
    "obfuscated",
    NARROW["name"],
    shape={"hidden": 3, "layers": 2},
    made_by={"disguise": [{"move": "permute_hidden", "seed": 1, "order": [2, 0, 1]}]},
)
NOISY = truth(
    "noisy.narrow.cut.cpt.base",
    "obfuscated",
    NARROW["name"],
    shape={"hidden": 3, "layers": 2},
    made_by={"disguise": [{"move": "add_noise", "seed": 1, "share": 0.1}]},
)
SPLIT = truth(
    "split.base",
    "moe-upcycle",
    "base",
    shape={"class": "moe", "experts": 2},
    **made("upcycle_split", experts=2, seed=5, neurons={str(layer): [[3, 0], [1, 2]] for layer in range(4)}),
)
COPIED = truth(
    "copied.base",
    "moe-upcycle",
    "base",
    shape={"class": "moe", "experts": 2},
    **made("upcycle_copied", experts=2, seed=5),
)
RESHAPED = GRAPH | {each["name"]: each for each in (NARROW, NARROWER, MASKED, NOISY, SPLIT, COPIED)}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("base", "loner", Relation("unrelated")),
        ("base", "sft.base", Relation("descendant", ("fine-tune",), "a->b", "base")),
        ("cut.cpt.base", "base", Relation("descendant", ("continued-pretraining", "depth-prune"), "b->a", "base")),
        ("base", "merged.base", Relation("descendant", ("fine-tune", "merge"), "a->b", "base")),
        ("merged.base", "cpt.base", Relation("descendant", ("merge",), "b->a", "cpt.base")),
        ("sft.base", "cpt.base", Relation("siblings", ("fine-tune", "continued-pretraining"), "neither", "base")),
        ("graft.base", "host", Relation("descendant", ("fine-tune",), "b->a", "host")),
        ("base", "graft.base", Relation("descendant", ("component-reuse",), "a->b", "base")),
        ("base", "seed.base", Relation("shared-init", ("shared-init",), "neither", "base")),
        ("base", "moe", Relation("shared-init", ("shared-init",), "neither", "base")),
        ("sft.seed.base", "base", Relation("shared-init", ("fine-tune", "shared-init"), "neither", "seed.base")),
        ("base", "student.base", Relation("distilled", ("distilled",), "a->b", "base")),
        ("sft.student.base", "base", Relation("distilled", ("distilled", "fine-tune"), "b->a", "base")),
        ("sft.base", "student.base", Relation("distilled", ("fine-tune", "distilled"), "neither", "base")),
        ("host", "base", Relation("unrelated")),
        ("graft.base", "implant.base", Relation("siblings", ("fine-tune", "fine-tune"), "neither", "host")),
    ],
)
def test_relation(a: str, b: str, expected: Relation) -> None:
    assert relation(GRAPH, a, b) == expected


def test_a_way_that_carries_whole_models_wins_over_a_shorter_one_of_parts() -> None:
    both = truth("x", relations={"base": "component-reuse", "cpt.base": "fine-tune"}, kind="component-reuse")
    assert lineage(GRAPH | {"x": both}, "x")["base"] == ("continued-pretraining", "fine-tune")


@pytest.mark.parametrize(
    ("a", "b", "outcome", "partial"),
    [
        ("norms.base", "tokens.base", "siblings", True),
        ("sft.base", "norms.base", "siblings", True),
        ("norms.base", "seed.base", "shared-init", True),
        ("norms.base", "student.base", "distilled", True),
        ("base", "norms.base", "descendant", False),
        ("graft.base", "implant.base", "siblings", False),
        ("sft.base", "cpt.base", "siblings", False),
    ],
)
def test_relatives_by_named_parts_may_share_nothing(a: str, b: str, outcome: str, partial: bool) -> None:
    found = relation(GRAPH, a, b)
    assert (found.outcome, found.partial) == (outcome, partial)
    assert ((min(a, b), max(a, b)) in {(row["a"], row["b"]) for row in pairs_for_calibration(GRAPH)}) != partial


def test_relation_from_the_other_side() -> None:
    turned = {"a->b": "b->a", "b->a": "a->b", "neither": "neither"}
    for a in GRAPH:
        for b in set(GRAPH) - {a}:
            one, other = relation(GRAPH, a, b), relation(GRAPH, b, a)
            assert (one.outcome, turned[one.direction]) == (other.outcome, other.direction)


def test_a_model_has_no_relation_to_itself() -> None:
    with pytest.raises(ValueError, match="itself"):
        relation(GRAPH, "base", "base")


def test_descent_wins_over_a_shared_seed_and_a_teacher() -> None:
    both = GRAPH | {"x": truth("x", "fine-tune", "base", same_seed_as="base", teachers=["base"])}
    assert relation(both, "base", "x").outcome == "descendant"
    seeded = GRAPH | {"x": truth("x", "distilled", same_seed_as="base", teachers=["base"])}
    assert relation(seeded, "base", "x").outcome == "shared-init"


def test_lineage_survives_parents_that_are_not_there() -> None:
    assert lineage({"x": truth("x", "fine-tune", "gone")}, "x") == {"x": (), "gone": ("fine-tune",)}


@pytest.mark.parametrize(
    ("ancestor", "descendant", "expected"),
    [
        ("base", "sft.base", None),
        ("base", "cut.cpt.base", [0, 3]),
        ("base", "stacked.base", [0, 1, 2, 1, 2, 3]),
        ("sft.base", "stacked.base", [0, 1, 2, None, None, None]),
        ("base", "shuffled.base", [0, 2, 1, 3]),
    ],
)
def test_layer_map(ancestor: str, descendant: str, expected: list[int | None] | None) -> None:
    assert layer_map(GRAPH, ancestor, descendant) == expected


def test_axes_and_neurons_are_followed_through_a_chain() -> None:
    assert axis_map(RESHAPED, "base", "sft.base") is None
    assert axis_map(RESHAPED, "base", NARROW["name"]) == (1, 2, 5)
    assert axis_map(RESHAPED, "base", NARROWER["name"]) == (1, 5)
    blocks = neuron_map(RESHAPED, "base", NARROWER["name"])
    assert blocks == {(0, None): Block(0, None, (2, 3)), (1, None): Block(3, None, (1, 4))}
    assert layer_map(RESHAPED, "base", NARROWER["name"]) == [0, 3]


def test_neurons_that_were_dealt_to_experts_are_found_in_their_block() -> None:
    found = origins(RESHAPED, "base", "split.base")
    assert found is not None
    assert (found.layers, found.axes) == (None, None)
    assert found.blocks[2, 1] == Block(2, None, (1, 2))
    assert origins(RESHAPED, "base", "copied.base") is None
    assert neuron_map(RESHAPED, "base", "copied.base")[2, 1] == Block(2)


def test_after_a_disguise_only_layers_can_be_followed() -> None:
    found = origins(RESHAPED, "base", MASKED["name"])
    assert found is not None
    assert (found.layers, found.axes) == ([0, 3], None)
    assert all(block and block.neurons is None for block in found.blocks.values())
    assert origins(RESHAPED, NARROW["name"], MASKED["name"]) is None
    assert origins(RESHAPED, "base", NOISY["name"]) == origins(RESHAPED, "base", NARROW["name"])
    assert origins(RESHAPED, "base", "sft.base") is None


def test_whatever_is_connected_is_one_clan() -> None:
    found = sorted(map(sorted, clans(GRAPH)))
    assert [clan for clan in found if len(clan) == 1] == [["loner"], ["wide"]]
    assert len(found) == 3


def test_halves_keep_relatives_together_and_do_not_depend_on_who_else_is_there() -> None:
    numbered = {f"twin-{i:02}": truth(f"twin-{i:02}", seed=i) for i in range(80)}
    children = {f"sft.{name}": truth(f"sft.{name}", "fine-tune", name) for name in numbered}
    half_of = halves(numbered | children)
    assert all(half_of[name] == half_of[f"sft.{name}"] for name in numbered)
    assert half_of == halves(dict(reversed([*numbered.items(), *children.items()])))
    assert {name: half_of[name] for name in numbered} == halves(numbered)
    assert 25 <= sum(half_of[name] == "tune" for name in numbered) <= 55


def test_models_of_another_draw_are_all_for_testing() -> None:
    numbered = {f"twin-{i:02}": truth(f"twin-{i:02}", seed=i) | {"draw": 1} for i in range(20)}
    assert set(halves(numbered).values()) == {"test"}


def test_strangers_of_different_halves_are_across() -> None:
    assert pair_half({"a": "tune", "b": "test", "c": "tune"}, "a", "b") == "across"
    assert pair_half({"a": "tune", "b": "test", "c": "tune"}, "a", "c") == "tune"


def test_pairs_for_calibration() -> None:
    rows = {(row["a"], row["b"]): row for row in pairs_for_calibration(GRAPH)}
    assert all(a < b for a, b in rows)
    outcomes = {row["outcome"] for row in rows.values()}
    assert outcomes == {"unrelated", "descendant", "siblings", "shared-init", "distilled"}
    assert not any("wide" in pair for pair in rows)  # no other stranger is as wide
    assert rows["base", "moe"]["class"] == "dense+moe"
    assert rows["base", "cut.cpt.base"]["kinds"] == "continued-pretraining depth-prune"
    assert rows["base", "student.base"]["direction"] == "a->b"
    assert ("cpt.base", "sft.base") in rows
    assert all(row["half"] != "across" for row in rows.values() if row["outcome"] != "unrelated")


def test_no_more_siblings_than_wanted() -> None:
    children = {f"c{i:02}": truth(f"c{i:02}", "fine-tune", "base") for i in range(30)}
    rows = pairs_for_calibration({"base": truth("base")} | children)
    assert sum(row["outcome"] == "siblings" for row in rows) == 60
    assert sum(row["outcome"] == "descendant" for row in rows) == 30


def test_siblings_by_parts_do_not_take_the_places_of_others() -> None:
    parts = {f"p{i:02}": truth(f"p{i:02}", "component-reuse", "base") for i in range(30)}
    whole = {f"c{i:02}": truth(f"c{i:02}", "fine-tune", "base") for i in range(12)}
    rows = pairs_for_calibration({"base": truth("base")} | parts | whole)
    assert sum(row["outcome"] == "siblings" for row in rows) == 60
