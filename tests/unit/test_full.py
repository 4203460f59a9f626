"""The budget `full`: every neuron called."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

from builders import llama_files, write_files
from mlp_models import WIDTH, layered, written
from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.compare import CompareOptions, compare, compare_pair, plan
from modelkin.demo import bundled
from modelkin.full import ask_every_neuron
from modelkin.journal import Journal
from modelkin.questions import CannotAsk, Pair, every_neuron
from modelkin.questions.neuron_stream import LayerCalls, Matrices, Task, call_layers
from modelkin.records import Comparison, Cut, Evidence, Unanswered
from modelkin.sources import ReadOptions
from modelkin.sources.local import LocalSource
from modelkin.stats import roll_call

FULL = CompareOptions("full")


def pair_of(a: Path, b: Path, seed: int = 0) -> Pair:
    sides = [identify(open_checkpoint(LocalSource(folder))) for folder in (a, b)]
    return Pair(sides[0], sides[1], seed, "full")


def asked(a: Path, b: Path, layer_map: dict[str, str] | None = None, looked_at: Any = None, seed: int = 0) -> Evidence:
    pair = pair_of(a, b, seed)
    layers = [call_layers(pair, task, lambda _: None) for task in every_neuron.tasks(pair, layer_map or {}, looked_at)]
    return every_neuron.answer(layers, len(pair.b.layers), np.random.default_rng(seed))


@cache
def compared(a: str, b: str) -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]), CompareOptions("full", reading=ReadOptions(cache=False)))


def found(comparison: Comparison) -> Evidence:
    (answer,) = (a for a in comparison.answers if a.question == every_neuron.ID)
    assert isinstance(answer, Evidence)
    return answer


# What is found.


def test_two_in_a_hundred_neurons_of_a_wide_layer_are_found_and_located(tmp_path: Path) -> None:
    a, b = layered(1, 2, 4096), layered(2, 2, 4096)
    taken = np.random.default_rng(3).choice(4096, 82, replace=False)
    for part in ("gate", "up"):
        b[f"model.layers.1.mlp.{part}_proj.weight"][taken] = a[f"model.layers.1.mlp.{part}_proj.weight"][taken]
    answer = asked(written(tmp_path / "a", a), written(tmp_path / "b", b))
    assert answer.log10_pvalue is not None
    assert answer.log10_pvalue < -9
    assert answer.grade == "A"
    first, second = answer.per_layer
    assert (first.log10_pvalue or 0) > -3
    assert second.statistic >= 82
    assert "beyond chance in layer 1 (" in answer.observed
    assert answer.effect is not None
    assert abs(answer.effect) < 0.02


def test_one_layer_of_several_is_found_wherever_it_stands(tmp_path: Path) -> None:
    a, b = layered(1, 4, 256), layered(2, 4, 256)
    for part in ("gate", "up"):
        b[f"model.layers.3.mlp.{part}_proj.weight"] = a[f"model.layers.0.mlp.{part}_proj.weight"]
    folders = written(tmp_path / "a", a), written(tmp_path / "b", b)
    alone = asked(*folders)
    assert (alone.log10_pvalue or 0) > -3
    mapped = asked(*folders, {"3": "0"}, (10, 74))
    assert (mapped.log10_pvalue or 0) < -300
    (layer,) = (finding for finding in mapped.per_layer if finding.b == "3")
    assert (layer.a, layer.n, layer.statistic) == ("0", 256 - 64, 192.0)


def test_the_whole_comparison_names_the_layer_that_was_taken(tmp_path: Path) -> None:
    a, b = layered(1, 4, 256), layered(2, 4, 256)
    for name in [name for name in b if ".layers.2.mlp." in name]:
        b[name] = a[name]
    comparison = compare(str(written(tmp_path / "a", a)), str(written(tmp_path / "b", b)), FULL)
    assert comparison.verdict.kinds[0].kind == "component-reuse"
    assert "layer 2 (256 of 256) of B" in found(comparison).observed


def test_a_descendant_and_a_twin_at_full() -> None:
    assert compared("dune", "heath").verdict.outcome == "related"
    assert (found(compared("dune", "heath")).effect or 0) > 0.5
    twin = compared("dune", "grove")
    assert twin.verdict.outcome == "unrelated"
    assert not any("outside the rows" in limit for limit in twin.verdict.limits)


def test_what_neurons_write_is_looked_at_too(tmp_path: Path) -> None:
    a, b = layered(1, 3, 128), layered(2, 3, 128)
    noise = np.random.default_rng(3)
    for name in [name for name in b if ".down_proj." in name]:
        b[name] = (a[name] + 0.3 * noise.normal(size=a[name].shape)).astype(np.float32)
    answer = asked(written(tmp_path / "a", a), written(tmp_path / "b", b))
    assert (answer.log10_pvalue or 0) < -300
    assert (answer.statistic, answer.n) == (3 * 128, 3 * 128)


def test_of_wide_matrices_some_hidden_axes_describe_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkin.questions.every_neuron.GROUP_NUMBERS", 40 * 128)
    a, b = layered(1, 1, 128), layered(2, 1, 100)
    name = "model.layers.0.mlp.down_proj.weight"
    b[name] = a[name][:, :100] * np.float32(1.5)
    calls = called(written(tmp_path / "a", a), written(tmp_path / "b", b))
    assert (sum(calls.calls[2].fixed), sum(calls.calls[2].sizes)) == (100, 100)
    assert [(read.cut.start, read.cut.stop) for read in calls.a.reads] == [(0, 100), (0, 100), (0, 40)]


def taken_experts(seed: int, taken: int, experts: int = 16) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two mixtures; of every expert of b so many neurons are those of a."""
    a, b = (layered(i, 2, 48, experts=experts) for i in (seed, seed + 1000))
    for name in [name for name in b if ".experts." in name and "down" not in name]:
        b[name][:taken] = a[name][:taken]
    return a, b


def test_two_neurons_of_every_expert_add_up(tmp_path: Path) -> None:
    a, b = taken_experts(1, 2)
    answer = asked(written(tmp_path / "a", a, 16), written(tmp_path / "b", b, 16))
    assert (answer.log10_pvalue or 0) < -9
    assert answer.n == 2 * 16 * 48
    assert answer.strangers.startswith("32 of 1,536")


def test_experts_that_are_copies_in_both_models_do_not_add_up(tmp_path: Path) -> None:
    """Two strangers, each upcycled from one MLP: what its neurons find by chance they find sixteen times."""
    small = []
    for seed in range(40):
        sides = [layered(i, 1, 40, 16, experts=16) for i in (seed, seed + 1000)]
        for side in sides:
            for name in [name for name in side if ".experts." in name]:
                side[name] = side[re.sub(r"experts\.\d+", "experts.0", name)]
        folders = (written(tmp_path / f"{which}{seed}", side, 16) for which, side in zip("ab", sides, strict=True))
        answer = asked(*folders, seed=seed)
        assert answer.n == 40
        small.append((answer.log10_pvalue or 0) <= np.log10(0.05))
    assert sum(small) <= 7  # of 40 at 5 %; more has a chance of 1 in 1,000


def test_pvalues_of_mixtures_that_are_strangers_are_never_too_small(tmp_path: Path) -> None:
    small = []
    for seed in range(60):
        sides = [layered(i, 2, 24, 16, experts=4) for i in (seed, seed + 500)]
        if seed % 2:  # copies in one of the models do no harm
            for name in [name for name in sides[0] if ".experts." in name]:
                sides[0][name] = sides[0][re.sub(r"experts\.\d+", "experts.0", name)]
        folders = (written(tmp_path / f"{which}{seed}", side, 4) for which, side in zip("ab", sides, strict=True))
        small.append((asked(*folders, seed=seed).log10_pvalue or 0) <= np.log10(0.05))
    assert sum(small) <= 9  # of 60 at 5 %; more has a chance of 1 in 1,000


def test_upcycled_experts_know_the_mlp_they_were_copied_from(tmp_path: Path) -> None:
    dense, mixture = layered(1, 2, 64), layered(2, 2, 64, experts=4)
    for i in (0, 1):
        for part in ("gate", "up"):
            name = f"model.layers.{i}.mlp.{part}_proj.weight"
            mixture[f"model.layers.{i}.mlp.experts.2.{part}_proj.weight"] = dense[name]
    folders = written(tmp_path / "a", dense), written(tmp_path / "b", mixture, experts=4)
    assert (asked(*folders).log10_pvalue or 0) < -100
    assert {calls.label for calls in called(*folders).calls} == {
        f"expert {e} {p}" for e in range(4) for p in ("gate", "up", "down")
    }


def called(a: Path, b: Path) -> LayerCalls:
    pair = pair_of(a, b)
    return call_layers(pair, every_neuron.tasks(pair, {}, None)[0], lambda _: None)


# What strangers show.


def layer_calls(pair: Pair, seed: int) -> LayerCalls:
    pair = Pair(pair.a, pair.b, seed, "full")
    (task,) = every_neuron.tasks(pair, {}, None)
    return call_layers(pair, task, lambda _: None)


def test_counts_of_strangers_follow_their_law_and_constant_rows_do_not_count(tmp_path: Path) -> None:
    totals = []
    for seed in range(20):
        a, b = layered(seed, 1, 1100, 16), layered(1000 + seed, 1, 1100, 16)
        a["model.layers.0.mlp.gate_proj.weight"][:50] = 1.0
        calls = layer_calls(pair_of(written(tmp_path / f"a{seed}", a), written(tmp_path / f"b{seed}", b)), seed).calls
        assert [sum(c.sizes) for c in calls] == [1050, 1100, 1100]
        assert [len(c.sizes) for c in calls] == [3, 3, 3]
        totals += [sum(c.fixed) for c in calls]
    # 60 sums of three blocks, one each: 180 in the mean, with a standard deviation of √180 if all were apart.
    assert abs(sum(totals) - 180) < 4 * np.sqrt(180)
    assert max(totals) <= poisson.isf(1e-6, 3)


def test_pvalues_of_strangers_are_never_too_small(tmp_path: Path) -> None:
    small = []
    for seed in range(60):
        a, b = (
            written(tmp_path / f"a{seed}", layered(seed, 3, 40, 16)),
            written(tmp_path / f"b{seed}", layered(500 + seed, 3, 40, 16)),
        )
        small.append((asked(a, b, {"0": "2"}, (0, 8), seed).log10_pvalue or 0) <= np.log10(0.05))
    assert sum(small) <= 9  # of 60 at 5 %; more has a chance of 1 in 1,000


def test_layers_that_both_models_repeat_count_once(tmp_path: Path) -> None:
    a, b = layered(1, 3, 48), layered(2, 3, 48)
    for side in (a, b):
        for part in ("gate", "up"):
            first = side[f"model.layers.0.mlp.{part}_proj.weight"]
            if side is b:
                first[:20] = a[f"model.layers.0.mlp.{part}_proj.weight"][:20]
            for i in (1, 2):
                side[f"model.layers.{i}.mlp.{part}_proj.weight"] = first
    answer = asked(written(tmp_path / "a", a), written(tmp_path / "b", b))
    best = min(finding.log10_pvalue or 0 for finding in answer.per_layer)
    assert (answer.log10_pvalue or 0) > best
    assert any("only the best pair counts" in assumption.text for assumption in answer.assumptions)


def test_sorted_neurons_lose_the_grade(tmp_path: Path) -> None:
    a, b = layered(1, 2, 300), layered(2, 2, 300)
    for side in (a, b):
        for name in [name for name in side if ".gate_proj." in name or ".up_proj." in name]:
            side[name] = side[name] * np.linspace(2, 1, 300, dtype=np.float32)[:, None]
    answer = asked(written(tmp_path / "a", a), written(tmp_path / "b", b))
    assert answer.grade is None
    assert [assumption.held for assumption in answer.assumptions[:2]] == [False, True]


def test_other_widths_and_models_without_mlp_cannot_be_asked(tmp_path: Path) -> None:
    narrow = pair_of(written(tmp_path / "a", layered(1, 1, 32, 16)), written(tmp_path / "b", layered(1, 1, 32, 32)))
    with pytest.raises(CannotAsk, match="different width"):
        every_neuron.tasks(narrow, {}, None)
    answer, reads = ask_every_neuron(narrow, None, Unanswered("layer-map", "no"), Journal(None), lambda *_: None)
    assert isinstance(answer, Unanswered)
    assert reads.a == reads.b == ()


# How it is read.


def test_rows_are_read_in_groups_with_the_same_counts_and_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = written(tmp_path / "a", layered(1, 1, 1500)), written(tmp_path / "b", layered(2, 1, 1400))
    whole = called(*folders)
    monkeypatch.setattr("modelkin.questions.neuron_stream.GROUP_NUMBERS", 512 * WIDTH)
    assert called(*folders) == whole
    (cut, *_) = (read.cut for read in whole.a.reads)
    assert (cut.start, cut.stop) == (0, 1400)


def test_a_block_is_called_as_a_roll_call_is(tmp_path: Path) -> None:
    a, b = layered(1, 1, 90), layered(2, 1, 90)
    name = "model.layers.0.mlp.gate_proj.weight"
    b[name][:30] = a[name][:30]
    a[name][40], a[name][41] = 0.0, np.nan
    calls = called(written(tmp_path / "a", a), written(tmp_path / "b", b)).calls[0]
    finite = np.where(np.isfinite(a[name]), a[name], 0)
    other = roll_call(finite, b[name], np.random.default_rng(5))
    assert ((sum(calls.fixed),), calls.sizes, calls.dropped) == ((other.fixed,), (other.n,), other.dropped)
    assert (other.n, other.dropped) == (88, 2)


def test_rows_that_the_layer_map_looked_at_are_left_out_and_nothing_else(tmp_path: Path) -> None:
    pair = pair_of(written(tmp_path / "a", layered(1, 2, 600)), written(tmp_path / "b", layered(2, 2, 600)))
    sides = [next(s for s in side.slots if str(s) == f"{i} gate") for i, side in ((1, pair.a), (0, pair.b))]
    task = Task(("1", "0"), True, (Matrices("gate", sides[0], sides[1], 600),), (500, 564))
    calls = call_layers(pair, task, lambda _: None)
    assert sum(calls.calls[0].sizes) == 536
    assert [read.cut for read in calls.b.reads] == [Cut(sides[1], 0, 600)]


def test_the_plan_counts_every_neuron_without_reading_one(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", layered(1, 3, 32)), written(tmp_path / "b", layered(2, 3, 32))
    (line,) = (line for line in plan(str(a), str(b), FULL) if line.startswith(every_neuron.ID))
    size = 3 * 3 * 32 * WIDTH * 4
    assert line.startswith(f"every-neuron: 3 pairs of layers, {size:,} + {size:,} bytes")


def test_two_models_that_are_open_already_are_compared_without_a_journal(tmp_path: Path) -> None:
    folders = [write_files(tmp_path / str(seed), llama_files(seed)) for seed in (1, 2)]
    comparison = compare_pair(pair_of(folders[0], folders[1]), time.perf_counter())
    assert found(comparison).n == 3 * 48
