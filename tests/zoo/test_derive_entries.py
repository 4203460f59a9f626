"""Merges, quantisers and sparse changes, against closed forms and loops over single entries."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from models import logits, tiny  # noqa: E402
from zoo.checkpoints import Model  # noqa: E402
from zoo.merges import ties_change  # noqa: E402
from zoo.quantise import int4, nf4_levels  # noqa: E402

from zoo import derive  # noqa: E402

IDS = torch.arange(2 * 12).view(2, 12) * 7 % 90 + 3


def angle(a: torch.Tensor, b: torch.Tensor) -> float:
    return math.acos(torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0))


def test_a_soup_of_one_model_is_that_model():
    parent = tiny("qwen3")
    child = derive.soup([parent] * 3)
    assert all(torch.equal(child.weights[role], tensor) for role, tensor in parent.weights.items())
    assert torch.equal(logits(child, IDS), logits(parent, IDS))
    assert child.truth["details"]["weights"] == [1 / 3] * 3


def test_a_linear_merge_is_the_weighted_mean():
    a, b = tiny("llama"), tiny("llama", 5)
    child = derive.linear([a, b], [0.75, 0.25])
    for role, tensor in child.weights.items():
        torch.testing.assert_close(tensor, 0.75 * a.weights[role] + 0.25 * b.weights[role])


@pytest.mark.parametrize(("weights", "message"), [([0.5], "1 weights"), ([0.9, 0.2], "sum"), ([1.5, -0.5], "below")])
def test_weights_of_no_mean_are_refused(weights: list[float], message: str):
    with pytest.raises(ValueError, match=message):
        derive.linear([tiny("llama"), tiny("llama", 5)], weights)


@pytest.mark.parametrize(
    "other", [tiny("mistral"), tiny("llama", intermediate_size=96), tiny("llama", num_hidden_layers=3)]
)
def test_models_of_other_shapes_do_not_merge(other: Model):
    with pytest.raises(ValueError, match=r"in common|in another|only one"):
        derive.soup([tiny("llama"), other])


def test_slerp_ends_at_its_models_and_turns_evenly_between():
    a, b = tiny("llama"), tiny("llama", 5)
    for end, t in ((a, 0.0), (b, 1.0)):
        child = derive.slerp(a, b, t)
        assert all(torch.equal(child.weights[role], tensor) for role, tensor in end.weights.items())
    x, y = a.weights["1.q"], b.weights["1.q"] * (a.weights["1.q"].norm() / b.weights["1.q"].norm())
    third = derive.slerp(a, b.with_weights({"1.q": y}), 1 / 3).weights["1.q"]
    assert third.norm() == pytest.approx(x.norm().item(), rel=1e-5)
    assert angle(x, third) == pytest.approx(angle(x, y) / 3, rel=1e-4)
    assert angle(third, y) == pytest.approx(angle(x, y) * 2 / 3, rel=1e-4)


def test_nearly_parallel_tensors_go_along_the_chord_and_are_named():
    a, b = tiny("qwen2"), tiny("qwen2", 5)
    near, nothing = a.weights["1.q"] + 0.001 * b.weights["1.q"], torch.zeros_like(a.weights["2.q_bias"])
    child = derive.slerp(a, b.with_weights({"1.q": near, "2.q_bias": nothing}), 0.25)
    assert {"1.q", "2.q_bias"} <= set(child.truth["details"]["lerped"])
    assert "1.k" not in child.truth["details"]["lerped"]
    torch.testing.assert_close(child.weights["1.q"], 0.75 * a.weights["1.q"] + 0.25 * near)
    torch.testing.assert_close(child.weights["2.q_bias"], 0.75 * a.weights["2.q_bias"])


def ties_by_hand(changes: list[list[float]], weights: list[float], density: float) -> list[float]:
    """Entry by entry, as the paper says it."""
    kept = round(density * len(changes[0]))
    trimmed = []
    for change in changes:
        order = sorted(range(len(change)), key=lambda i: -abs(change[i]))[:kept]
        trimmed.append([value if i in order else 0.0 for i, value in enumerate(change)])
    merged = []
    for values in zip(*trimmed, strict=True):
        vote = sum(w * value for w, value in zip(weights, values, strict=True))
        agreeing = [(w, value) for w, value in zip(weights, values, strict=True) if value * vote > 0]
        total = sum(w for w, _ in agreeing)
        merged.append(sum(w * value for w, value in agreeing) / total if total else 0.0)
    return merged


@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_ties_against_a_loop_over_entries(density: float):
    changes = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    weights = [0.5, 0.3, 0.9]
    expected = ties_by_hand([change.tolist() for change in changes], weights, density)
    found = ties_change([change.view(4, 5) for change in changes], weights, density)
    torch.testing.assert_close(found, torch.tensor(expected).view(4, 5))


def test_ties_leaves_trimmed_entries_of_the_base_bit_for_bit():
    base, tuned = tiny("llama"), tiny("llama", 5)
    child = derive.ties(base, [tuned], [1.0], 0.2)
    changed = child.weights["2.up"] != base.weights["2.up"]
    assert changed.sum() == round(0.2 * changed.numel())
    moves = (tuned.weights["2.up"] - base.weights["2.up"]).abs()
    assert moves[changed].min() >= moves[~changed].max()


def test_dare_drops_entries_and_scales_the_rest():
    base, first, second = tiny("llama"), tiny("llama", 5), tiny("llama", 6)
    child = derive.dare(base, [first, second], [0.6, 0.5], 0.25, seed=1)
    start = base.weights["1.gate"]
    one, two = (w * (m.weights["1.gate"] - start) / 0.25 for w, m in ((0.6, first), (0.5, second)))
    found = (child.weights["1.gate"] - start).flatten()
    # Each entry has one of four values; which one is chance.
    choices = torch.stack([torch.zeros_like(one), one, two, one + two]).flatten(1)
    distance, chosen = (choices - found).abs().min(0)
    assert distance.max() < 1e-5
    shares = torch.bincount(chosen, minlength=4) / len(chosen)
    expected = torch.tensor([0.75 * 0.75, 0.25 * 0.75, 0.75 * 0.25, 0.25 * 0.25])
    torch.testing.assert_close(shares, expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("density", [0.0, 1.5])
def test_a_density_that_is_no_share_is_refused(density: float):
    base, tuned = tiny("llama"), tiny("llama", 5)
    for make in (
        lambda: derive.ties(base, [tuned], [1.0], density),
        lambda: derive.dare(base, [tuned], [1.0], density, seed=1),
        lambda: derive.sparse_update(base, tuned, density),
    ):
        with pytest.raises(ValueError, match="density"):
            make()


def test_passthrough_stacks_layers_of_both():
    a, b = tiny("llama"), tiny("llama", 5)
    child = derive.passthrough([(a, 0), (b, 0), (b, 3), (a, 2), (b, 1)])
    assert child.truth["details"]["layers"] == [[0, 0], [1, 0], [1, 3], [0, 2], [1, 1]]
    assert child.layers == 5
    assert torch.equal(child.weights["2.q"], b.weights["3.q"])
    assert torch.equal(child.weights["3.q"], a.weights["2.q"])
    assert torch.equal(child.weights["embed"], a.weights["embed"])
    assert torch.equal(child.weights["head"], b.weights["head"])
    with pytest.raises(ValueError, match="one model"):
        derive.passthrough([(a, 0), (a, 1)])


LINEAR = (".q", ".k", ".v", ".o", ".gate", ".up", ".down")


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3", "mixtral"])
@pytest.mark.parametrize("scheme", ["int8", "int4", "fp8", "nf4"])
def test_only_linear_layers_are_quantised(family: str, scheme: str):
    parent = tiny(family)
    child = derive.quantised(parent, scheme)
    changed = {role for role, tensor in child.weights.items() if not torch.equal(tensor, parent.weights[role])}
    assert changed == {role for role in parent.weights if role.endswith(LINEAR)}


def test_eight_bits_hardly_move_the_logits_and_four_move_them_more():
    parent = tiny("llama")
    exact = logits(parent, IDS)
    errors = {
        scheme: (logits(derive.quantised(parent, scheme), IDS) - exact).std() for scheme in ("int8", "int4", "nf4")
    }
    # A row's largest entry is near 2.8 sigma, so rounding adds 2.8 / 127 / sqrt(12) of sigma to each of 28 matrices.
    assert errors["int8"] < 1.5 * math.sqrt(28) * 2.8 / 127 / math.sqrt(12) * exact.std()
    assert min(errors["int4"], errors["nf4"]) > 3 * errors["int8"]


def most_values(groups: torch.Tensor) -> int:
    return max(len(group.unique()) for group in groups)


def test_a_scheme_leaves_as_many_values_as_it_has_codes():
    parent = tiny("llama", hidden_size=256, intermediate_size=320)
    by_scheme = {
        scheme: derive.quantised(parent, scheme).weights["1.down"] for scheme in ("int8", "int4", "fp8", "nf4")
    }
    rows, groups, blocks = by_scheme["int8"], by_scheme["int4"].reshape(-1, 32), by_scheme["nf4"].reshape(-1, 64)
    assert 100 < most_values(rows) <= 255
    assert 10 < most_values(groups) <= 16
    assert 10 < most_values(blocks) <= 16
    assert 150 < len(by_scheme["fp8"].unique()) <= 254
    assert most_values(by_scheme["int4"]) > 16  # a row has several groups, each with its own step


def test_rounding_is_to_the_nearest_code():
    old = tiny("llama").weights["1.down"]
    steps = {
        "int8": (old.abs().amax(1, keepdim=True) / 127).expand_as(old),
        "int4": ((old[:, :32].amax(1) - old[:, :32].amin(1)) / 15)[:, None].expand(-1, 32),
    }
    for scheme, step in steps.items():
        new = derive.quantised(tiny("llama"), scheme).weights["1.down"]
        error = (new - old)[:, : step.shape[1]].abs() / step
        assert error.max() <= 0.5001
        assert error.mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("low", "high"), [(-7.5, 7.5), (-1.0, 1.3)])
def test_four_bits_are_sixteen_whole_steps_from_zero(low: float, high: float):
    """Also where both ends lie exactly halfway between two steps, and a seventeenth is near."""
    new = int4(torch.linspace(low, high, 32)[None])
    codes = new / ((high - low) / 15)
    torch.testing.assert_close(codes, codes.round(), atol=1e-4, rtol=0)
    assert len(new.unique()) == 16


def test_a_short_last_group_has_its_own_range():
    parent = tiny("llama", intermediate_size=112)  # 112 = 3 · 32 + 16
    old, new = parent.weights["1.down"], derive.quantised(parent, "int4").weights["1.down"]
    step = (old[:, 96:].amax(1) - old[:, 96:].amin(1)) / 15
    assert ((new - old)[:, 96:].abs().amax(1) <= 0.5001 * step).all()
    assert most_values(new[:, 96:]) <= 16


def test_normal_float_levels_are_those_published():
    published = [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0]
    published += [0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0]
    torch.testing.assert_close(nf4_levels(), torch.tensor(published), atol=1e-6, rtol=0)


def test_an_empty_row_stays_empty():
    parent = tiny("llama")
    hollow = parent.with_weights({"1.q": torch.zeros_like(parent.weights["1.q"])})
    for scheme in ("int8", "int4", "fp8", "nf4"):
        assert not derive.quantised(hollow, scheme).weights["1.q"].any()


def test_a_scheme_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="int8, int4, fp8, nf4"):
        derive.quantised(tiny("llama"), "int3")


def test_a_cast_twice_is_the_same_model_the_second_time():
    once = derive.cast(tiny("llama"), torch.bfloat16)
    assert (once.truth["kind"], once.truth["details"]) == ("re-encoded", {"dtype": "bfloat16"})
    assert torch.equal(once.weights["1.q"], tiny("llama").weights["1.q"].bfloat16().float())
    assert derive.cast(once, torch.bfloat16).truth["kind"] == "identical"


def test_pruning_zeroes_the_smallest_of_every_matrix():
    parent = tiny("mixtral")
    child = derive.pruned(parent, 0.3)
    old, new = (model.weights["2.experts.1.down"] for model in (parent, child))
    zeroed = new == 0
    assert zeroed.sum() == round(0.3 * old.numel())
    assert torch.equal(new[~zeroed], old[~zeroed])
    assert old[zeroed].abs().max() <= old[~zeroed].abs().min()
    assert torch.equal(child.weights["2.router"], parent.weights["2.router"])


def test_a_sparse_update_is_the_largest_changes_alone():
    base, tuned = tiny("llama"), tiny("llama", 5)
    child = derive.sparse_update(base, tuned, 0.05)
    for role in ("embed", "1.q", "3.down"):
        old, new, full = (model.weights[role] for model in (base, child, tuned))
        moved = new != old
        assert moved.sum() == round(0.05 * old.numel())
        assert torch.equal(new[moved], full[moved])
        assert (full - old).abs()[moved].min() >= (full - old).abs()[~moved].max()
    assert torch.equal(child.weights["1.input_norm"], base.weights["1.input_norm"])


def test_a_merged_lora_has_its_rank_and_touches_its_roles():
    base, rng = tiny("llama"), torch.Generator().manual_seed(0)
    b, a = torch.randn(64, 3, generator=rng), torch.randn(3, 64, generator=rng)
    child = derive.merged_lora(base, {"1.q": (b, a), "2.o": (b[:, :2], a[:2])}, 0.5)
    assert child.truth["details"] == {"scale": 0.5, "ranks": {"1.q": 3, "2.o": 2}}
    change = child.weights["1.q"] - base.weights["1.q"]
    torch.testing.assert_close(change, 0.5 * b @ a, atol=1e-5, rtol=1e-4)
    assert torch.linalg.matrix_rank(change, atol=1e-3) == 3
    assert {r for r, t in child.weights.items() if not torch.equal(t, base.weights[r])} == {"1.q", "2.o"}
    with pytest.raises(ValueError, match=r"no 9\.q"):
        derive.merged_lora(base, {"9.q": (b, a)}, 1.0)
