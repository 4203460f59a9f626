"""Kinds, directions, places, targets and disguises in docs/calibration.md: each against a count made by hand."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.calibration import directions, disguised, kinds, places, targets
from benchmarks.calibration.__main__ import PAGE
from benchmarks.calibration.results import HERE, Answered, Result, Unmasked, columns, held_out, map_of, map_text, parsed
from benchmarks.disguises import publishing
from benchmarks.disguises.rows import BASE, COLUMNS, FREE, MOVES, NOISY, STRANGERS

from modelkin import demo


def step(kind: str, *named: str, base: str = "m0", **told: object) -> Result:
    """A child that is one step from its base, and what was named."""
    facts = {"verdict": "related", "named": named, "expected": kind, "half": "test", "direction": "a->b"} | told
    return Result(base, f"x.{base}", "standard", "descendant", (kind,), f"{kind} (x)", **facts)  # type: ignore[arg-type]


def chain(*done: str, named: tuple[str, ...] = (), **told: object) -> Result:
    facts = {"verdict": "related", "named": named, "half": "test", "direction": "a->b"} | told
    return Result("m0", "y.x.m0", "standard", "descendant", done, " → ".join(done), **facts)  # type: ignore[arg-type]


def seen(number: int, two: int, three: int, log10_p: float | None, **told: object) -> Result:
    """A pair of strangers that was looked at as if disguised."""
    answers = {disguised.QUESTION: Answered(float(two), 100, log10_p)}
    facts = {"verdict": "unrelated", "half": "test", "unmasked": Unmasked(two, three, 4, "gated: 9 pairs")} | told
    label = "strangers, dense, gated"
    pair = f"m{number}", f"m{number + 1}"
    return Result(*pair, "standard", "unrelated", (), label, answers=answers, **facts)  # type: ignore[arg-type]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


# Kinds.


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    rng = np.random.default_rng(0)
    names = kinds.ELEVEN[:4]
    pairs = [(names[i], names[j]) for i, j in rng.integers(4, size=(200, 2))]
    for kind in names:
        right = sum(true == named == kind for true, named in pairs)
        precision = right / sum(named == kind for _, named in pairs)
        recall = right / sum(true == kind for true, _ in pairs)
        assert kinds.f1(pairs, kind) == pytest.approx(2 / (1 / precision + 1 / recall))
    assert kinds.macro_f1(pairs) == pytest.approx(np.mean([kinds.f1(pairs, kind) for kind in names]))


def test_a_kind_without_examples_has_no_score_and_lowers_none() -> None:
    pairs = [("identical", "identical"), ("re-encoded", "re-encoded")]
    assert kinds.f1(pairs, "shared-init") is None
    assert kinds.macro_f1(pairs) == 1.0
    rows = {row[0]: row for row in cells(kinds.confusion_table([step("identical", "identical")]))}
    assert rows["identical"] == ["identical", "1", "**1**", "2.5 %–100 %", "1.000"]
    assert rows["shared-init"] == ["shared-init", "0", "", "–", "–"]


def test_eleven_kinds_of_which_two_are_told_apart_by_degree() -> None:
    assert len(kinds.ELEVEN) == 11
    assert len(kinds.KINDS) == 12
    assert kinds.kind_pairs([step("fine-tune", "continued-pretraining")]) == [(kinds.DEGREE, kinds.DEGREE)]


def test_the_first_kind_counts_and_a_flag_is_none() -> None:
    assert kinds.named_kind(step("depth-prune", "obfuscated", "depth-prune", "fine-tune")) == "depth-prune"
    assert kinds.named_kind(step("depth-prune", "undetermined")) == kinds.OTHER
    assert kinds.named_kind(step("depth-prune", "depth-prune", verdict="undecided")) == kinds.NOT_FOUND


def test_every_pair_counts_once_at_its_largest_budget_but_never_at_quick() -> None:
    standard = step("component-reuse", verdict="undecided")
    full, quick = replace(standard, budget="full", verdict="related"), replace(standard, budget="quick")
    assert kinds.deepest([full, standard, quick]) == [full]
    assert kinds.deepest([quick]) == []


def test_the_likelier_of_the_two_by_degree() -> None:
    both = step("fine-tune", *kinds.BY_DEGREE, named_p={"fine-tune": 0.4, "continued-pretraining": 0.6})
    assert kinds.likelier(both) == "continued-pretraining"
    assert kinds.likelier(step("fine-tune", "merged-lora")) == kinds.OTHER
    sure = step("fine-tune", "fine-tune", named_p={"fine-tune": 0.9})
    assert cells(kinds.degree_table([both, replace(sure, b="z.m0")]))[0][1:] == ["2", "1", "1", "0", "0.35"]


def test_chains_are_scored_over_all_their_labels() -> None:
    right = chain("continued-pretraining", "depth-prune", named=("depth-prune", "fine-tune"))
    half = replace(chain("moe-upcycle", "fine-tune", named=("moe-upcycle",)), a="m1")
    lost = replace(chain("fine-tune", "obfuscated", verdict="undecided"), a="m2")
    assert kinds.micro_f1([right, half, lost]) == pytest.approx(2 * 3 / (2 + 2 + 2 + 1 + 2))
    assert kinds.micro_f1([]) is None
    row = cells(kinds.chains_table([right, half, lost]))[-1]
    assert row[:4] == ["all chains", "3", "1", f"{6 / 9:.3f}"]


def test_a_merge_is_no_label_of_a_chain() -> None:
    merged = chain("merge", "fine-tune", named=("fine-tune",))
    assert kinds.micro_f1(kinds.chains([merged])) == 1.0
    assert kinds.chains([chain("merge", "merge")]) == []
    assert kinds.chains([chain("fine-tune", "merge", "fine-tune")]) == []


def test_flags_of_disguised_models_and_of_others_are_counted_apart() -> None:
    masked = [step("obfuscated", "obfuscated", base=f"m{i}", expected="") for i in range(3)]
    masked.append(step("obfuscated", "fine-tune", base="m9", expected=""))
    plain = [step("fine-tune", "fine-tune", base=f"p{i}") for i in range(2)]
    rows = {row[0]: row[1:4] for row in cells(kinds.flags_table([*masked, *plain]))}
    assert rows == {"obfuscated (x)": ["4", "4", "3"], "no disguise": ["2", "2", "0"]}


def test_the_low_end_draws_whole_bases() -> None:
    """A base that is all wrong is drawn or not with all of its pairs."""
    good = [step("identical", "identical", base=f"m{i}") for i in range(5)]
    bad = [replace(step("identical", "re-encoded", base="w"), b=f"{i}.w") for i in range(5)]

    def right(results: object) -> float:
        pairs = kinds.kind_pairs(results)  # type: ignore[arg-type]
        return sum(true == named for true, named in pairs) / len(pairs)

    assert kinds.low_end(good, right) == 1.0
    assert kinds.low_end(good[:1], right) is None
    low = kinds.low_end([*good, *bad], right)
    assert low is not None
    assert low < 0.25 < right([*good, *bad])


# Directions.


def test_an_order_told_of_siblings_is_wrong() -> None:
    facts = {"verdict": "related", "half": "test"}
    sibling = Result("x.m0", "y.m0", "standard", "siblings", ("fine-tune",) * 2, "siblings", **facts)  # type: ignore[arg-type]
    spoken = directions.told([replace(sibling, said="a->b"), replace(sibling, said="neither"), sibling])
    assert (spoken.related, spoken.spoken, spoken.right, spoken.wrong) == (3, 1, 0, 1)


def test_directions_are_counted_by_kind_and_in_sums() -> None:
    cut = [step("depth-prune", base=f"m{i}", said=said) for i, said in enumerate(("a->b", "a->b", "b->a", "unknown"))]
    tuned = [step("fine-tune", base="t", said="unknown"), step("fine-tune", base="u", verdict="undecided")]
    rows = {row[0]: row[1:] for row in cells(directions.directions_table([*cut, *tuned]))}
    assert rows["depth-prune"][:5] == ["4", "4", "3", "2", "1"]
    assert rows["depth-prune"][-1] == "75 %"
    assert rows[f"**{directions.DESCENTS}**"][:5] == ["6", "5", "3", "2", "1"]
    assert rows[f"**{directions.LOST}**"][:5] == ["4", "4", "3", "2", "1"]
    assert f"**{directions.NO_ORDER}**" not in rows


# Places.


@pytest.mark.parametrize("true", ["0:0 1:1 2:4 3:5", "0:0 1:1 2:2 3:1 4:2 5:3", "0: 1:1 2:"])
def test_layers_are_right_from_either_side(true: str) -> None:
    """Seen from the parent, any of the layers that were made from one of its layers is right."""
    made = map_of(true)
    assert places.right_layers(made, made) == (len(made), len(made))
    old = sorted({a for _, a in made if a} | {"9"})
    choices = [[b for b, a in made if a == layer] or [""] for layer in old]
    for choice in itertools.product(*choices):
        said = tuple(zip(old, choice, strict=True))
        assert places.right_layers(made, said, child_is_b=False) == (len(old), len(old))
    wrong = tuple((layer, made[0][0] if made[0][1] != layer else made[-1][0]) for layer in old)
    assert places.right_layers(made, wrong, child_is_b=False)[0] == 0
    assert map_text((b, a or None) for b, a in made) == true


def test_a_stolen_layer_is_located_if_no_other_is_named() -> None:
    true = map_of("0: 1:1 2:")
    label = places.LAYER[0]
    stolen = replace(step("component-reuse"), label=label)
    found = replace(stolen, budget="full", true_map=true, map=true, log10_p=-20.0)
    also = replace(found, map=map_of("0: 1:1 2:2"))
    faint = replace(found, log10_p=-8.0)
    assert [places.is_located(result) for result in (found, also)] == [True, False]
    assert [places.is_sure(result) for result in (found, faint)] == [True, False]
    assert cells(places.stolen_table([found, also, faint]))[0][1:] == ["3", "2", "2", "1e-8"]
    scattered = replace(found, label=places.NEURONS[0], at=("1",))
    assert places.is_located(scattered)
    assert not places.is_located(replace(scattered, at=()))


# Targets.


def test_a_target_is_met_by_its_bound_alone() -> None:
    """Without a miss the bound is 0.05^(1/n): 299 give 0.99 and 298 do not; 2,995 clean ones give 1e-3."""
    assert targets.at_least("", 299, 299, 0.99, 299).met == targets.MET
    assert targets.at_least("", 298, 298, 0.99, 299).met == targets.BY_COUNT
    assert targets.at_least("", 296, 300, 0.99, 299).met == targets.NOT_MET
    assert targets.at_least("", 40, 40, 0.9).bound == f"≥ {100 * 0.05 ** (1 / 40):.3g} %"
    assert targets.at_most("", 0, 2995, 1e-3, 2995).met == targets.MET
    assert targets.at_most("", 0, 2994, 1e-3, 2995).met == targets.BY_COUNT
    assert targets.at_most("", 4, 2995, 1e-3, 2995).met == targets.NOT_MET
    assert [targets.never("", wrong, 9).met for wrong in (0, 1)] == [targets.MET, targets.NOT_MET]
    assert targets.score("", 0.95, 0.91, 0.9).met == targets.MET
    assert targets.score("", 0.95, 0.91, 0.9, "too few").met == targets.BY_COUNT
    assert targets.score("", 0.95, 0.85, 0.9).met == targets.BY_COUNT
    assert targets.score("", 0.85, 0.8, 0.9).met == targets.NOT_MET
    perfect = targets.score("", 1.0, 1.0, 0.9)  # drawing again from no errors shows none
    assert (perfect.bound, perfect.met) == ("–", targets.BY_COUNT)


def test_what_nobody_compared_is_not_met() -> None:
    other = [replace(step("fine-tune", "fine-tune"), half="tune"), replace(seen(0, 1, 0, 0.0), half="across")]
    assert held_out(other) == []
    assert held_out([seen(0, 1, 0, 0.0), *other]) == [seen(0, 1, 0, 0.0)]
    assert {target.met for target in targets.targets([])} == {targets.UNMEASURED}
    assert "No pair" in kinds.macro_line([])
    assert cells(directions.directions_table([])) == []
    assert all(row[1] == "0" for row in cells(kinds.confusion_table([])))


# Strangers, looked at as if disguised.


def test_strangers_are_counted_by_their_controls() -> None:
    results = [seen(i, two, 0, p) for i, (two, p) in enumerate([(4, 0.0), (6, -1.5), (8, -3.0)])]
    results.append(seen(7, 2, 1, None, unmasked=Unmasked(2, 1, 4, "gated: 2 pairs")))
    rows = cells(disguised.strangers_table(results))
    assert rows[0][:6] == ["gated: 2 pairs", "1", "2", "0.75", "0.75", "1"]
    assert rows[1][:6] == ["gated: 9 pairs", "3", "4", "1.50", "2.00", "0"]
    assert rows[-1][:3] == ["all", "4", "6"]
    assert [cell.split()[0] for cell in rows[-1][6:9]] == ["2", "1", "1"]
    assert rows[-1][9:] == ["0.001", "**0**"]


def test_accusations_by_looking_through_are_told_apart() -> None:
    accused = seen(0, 40, 9, -4.0, verdict="related", grade="B")
    plain = seen(1, 2, 0, 0.0, verdict="related", grade="A")
    assert cells(disguised.alarms_table([accused, plain, seen(3, 1, 0, 0.0)]))[0][:5] == [
        *("strangers", "3", "3", "1", "**2**")
    ]


def test_rows_keep_what_is_told_after_a_rejection() -> None:
    row = dict.fromkeys(columns(()), "") | {"a": "x", "b": "y", "named": "depth-prune fine-tune=0.750", "sets": "6"}
    row |= {"two": "9", "three": "3", "against": "gated", "said": "a->b", "map": "0:0 1:", "shared": "0.5"}
    (found,) = parsed([row])
    assert (found.named, found.named_p) == (("depth-prune", "fine-tune"), {"fine-tune": 0.75})
    assert found.unmasked is not None
    assert found.unmasked.score == 2.0
    assert (found.said, found.map, found.shared) == ("a->b", (("0", "0"), ("1", "")), 0.5)
    assert parsed([row | {"sets": ""}])[0].unmasked is None


# Disguises.


def worn(under: str, disguise: str, draw: int = 0, **told: str) -> dict[str, str]:
    facts = {"under": under, "disguise": disguise, "draw": str(draw), "a": "m0", "b": "x.m0", "half": "test"}
    said = {"verdict": "related", "named": "obfuscated depth-prune", "log10_p": "-6", "said": "a->b"}
    return dict.fromkeys(COLUMNS, "") | facts | said | {"true_map": "0:0 1:3", "map": "0:0 1:3"} | told


def scored(relation: str, disguise: str, value: float | None, b: str = "m0") -> dict[str, str]:
    text = "" if value is None else str(value)
    return {"relation": relation, "disguise": disguise, "b": b} | dict.fromkeys(publishing.YARDSTICKS, text)


def test_a_line_of_disguises_is_what_was_said_of_them() -> None:
    rows = [
        worn("depth pruning", NOISY),
        worn("depth pruning", NOISY, 1, named="obfuscated fine-tune=0.7", map="0:0 1:2", said="unknown"),
        worn("depth pruning", NOISY, 2, said="b->a", log10_p="-3"),
        worn("depth pruning", NOISY, 3, verdict="undecided", named="", log10_p="", said="unknown", map=""),
        worn(STRANGERS, NOISY, verdict="unrelated", named="", true_map="", map="", log10_p=""),
    ]
    first, whole, strangers = cells(publishing.disguises_table(rows, []))
    told = ["3 of 3", "2 of 3", "2 of 3", "1", "1"]
    assert first == [NOISY, "depth pruning", "4", "1", "**3**", "19.4 %–99.4 %", "0.001", "3", *told[1:]]
    assert whole[:3] == [f"**{NOISY}**", publishing.ALL, "4"]
    assert strangers[1:5] == [STRANGERS, "1", "1", "**0**"]


def test_methods_of_others_stand_beside_it_at_their_threshold() -> None:
    far = [scored("strangers", NOISY, value / 100) for value in range(50)]
    near = [scored("copy", NOISY, 0.9), scored("copy", NOISY, 0.49), scored("depth-prune", NOISY, None, "shallow.m0")]
    assert publishing.threshold([*far, *near], "csu") == 0.49
    assert publishing.threshold(near, "csu") is None
    rows = [worn(BASE, NOISY), worn("depth pruning", NOISY), worn("width pruning", NOISY)]
    table = {row[1]: row[-1] for row in cells(publishing.disguises_table(rows, [*far, *near]))}
    assert table == {BASE: "0.50", "depth pruning": "0.00", "width pruning": "–", publishing.ALL: "0.33"}


def test_the_claim_on_disguises_needs_enough_pairs_and_strangers() -> None:
    rows = [worn(BASE, NOISY, draw) for draw in range(299)]
    far = [seen(number, 1, 0, 0.0) for number in range(2995)]
    met = [row[-1] for row in cells(publishing.claim_table(rows, far))]
    assert met == [targets.MET, targets.MET, targets.UNMEASURED, targets.UNMEASURED, targets.MET]
    fewer = [row[-1] for row in cells(publishing.claim_table(rows[1:], far[1:]))]
    assert [fewer[0], fewer[-1]] == [targets.BY_COUNT, targets.BY_COUNT]
    assert cells(publishing.claim_table(rows, []))[-1][-1] == targets.UNMEASURED


def test_what_was_tried_is_said() -> None:
    rows = [worn(BASE, NOISY, modelkin="1", policy="p"), worn(BASE, NOISY, 1, modelkin="1", policy="p")]
    assert publishing.tried(rows).startswith("Tried: 2 comparisons with 1 models, disguised")


def test_moves_are_those_of_the_zoo() -> None:
    disguise = pytest.importorskip("zoo.disguise", reason="the zoo is not part of the package")
    pairs = pytest.importorskip("benchmarks.yardsticks.pairs")
    assert tuple(disguise.MOVES) == MOVES
    assert (pairs.NOISY, pairs.FREE) == (NOISY, FREE)


def test_every_model_is_disguised_before_any_is_twice() -> None:
    pytest.importorskip("zoo.lineage", reason="the zoo is not part of the package")
    from benchmarks.disguises.tasks import drawn

    known = {name: {"kind": "unrelated", "shape": {"layers": 2, "experts": i % 2}} for i, name in enumerate("pqr")}
    pairs = [(name, name) for name in known]
    found = list(drawn(known, BASE, NOISY, pairs, "test", 7))
    assert sorted((task.b, task.draw) for task in found) == sorted([*itertools.product("pqr", (0, 1)), (found[0].b, 2)])
    assert len({task.seed for task in found}) == 7
    assert {task.true_map for task in found} == {"0:0 1:1"}
    assert {task.b for task in drawn(known, BASE, "permute_experts", pairs, "test", 3)} == {"q"}
    assert list(drawn(known, BASE, NOISY, [], "test", 3)) == []


def test_a_disguised_model_of_the_package_is_found_and_kept_as_a_row(tmp_path: Path) -> None:
    pytest.importorskip("zoo.lineage", reason="the zoo is not part of the package")
    from benchmarks.disguises import running
    from benchmarks.disguises.rows import GROWING
    from benchmarks.disguises.tasks import Task

    shutil.copytree(demo.HERE / "models" / "dune", tmp_path / "models" / "dune")
    (tmp_path / "models" / "dune" / "truth.json").write_text(
        json.dumps({"kind": "unrelated", "parents": [], "seed": 1})
    )
    layers = map_text((str(layer), str(layer)) for layer in range(6))
    wanted = [Task(BASE, how, 0, "dune", "dune", "test", layers) for how in ("permute_neurons", "permute_experts")]
    assert running.run(tmp_path / "models", wanted, tmp_path / "out", 1) == 1  # it has no experts
    publishing.keep(tmp_path / "out", tmp_path)
    (row,) = publishing.published_rows(tmp_path / publishing.PUBLISHED)
    assert (row["verdict"], publishing.maps_right(row)) == ("related", True)
    assert running.run(tmp_path / "models", wanted[:1], tmp_path / "out", 1) == 0
    (tmp_path / "out" / GROWING).write_text((tmp_path / "out" / GROWING).read_text().replace(",2026", ",1999"))
    with pytest.raises(ValueError, match="another version"):
        running.run(tmp_path / "models", wanted, tmp_path / "out", 1)


def test_what_other_comparisons_read_is_not_taken_from_the_budget() -> None:
    from benchmarks.calibration.comparing import Models

    from modelkin.sampling.budget import STANDARD_BYTES, Room

    models = Models(demo.HERE / "models")
    a, b = models["dune"], models["grove"]
    a.read(next(iter(a.slots)))
    room = Room.of(a, b, limited=True)
    assert room.has((STANDARD_BYTES, STANDARD_BYTES))
    b.read(next(iter(b.slots)))
    assert not room.has((STANDARD_BYTES, STANDARD_BYTES))
    assert Room.of(a, b, limited=False).has((STANDARD_BYTES, 2 * STANDARD_BYTES))


def test_disguises_are_looked_for_once_a_pair() -> None:
    from benchmarks.calibration.comparing import Models
    from benchmarks.calibration.looking import COMPARE, Looks, one_look

    from modelkin.questions import Pair
    from modelkin.sampling.budget import Room
    from modelkin.sources.protocol import no_progress
    from modelkin.unmasking import unmask

    models, looks = Models(demo.HERE / "models"), Looks()
    pair, other = Pair(models["dune"], models["grove"], 0, "standard"), Pair(models["dune"], models["heath"], 0, "full")
    room = Room.of(pair.a, pair.b, limited=True)
    with one_look(looks):
        assert COMPARE.unmask is looks
        first = looks(pair, [], room, no_progress)
        assert looks.spared == 0.0
    with one_look(looks):
        assert looks(pair, [], room, no_progress) is first
        assert looks.spared > 0.0
    assert COMPARE.unmask is unmask
    with one_look(looks):
        assert looks(other, [], Room.of(other.a, other.b, limited=False), no_progress) is not first
        assert looks.spared == 0.0


def test_the_table_of_disguises_is_what_its_data_say() -> None:
    assert publishing.page(HERE, PAGE) == PAGE.read_text("utf-8"), "python -m benchmarks.disguises publish"
