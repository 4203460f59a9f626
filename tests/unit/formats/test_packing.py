"""What is quantised is recognised by config or names, and what is not remains readable."""

from __future__ import annotations

import pytest

from modelkin.errors import HeaderLies
from modelkin.formats.packing import find_packing
from modelkin.records import TensorRef


def refs(**tensors):
    """Tensors as name=(dtype, *shape); `__` stands for a dot."""
    named = {name.replace("__", "."): kind for name, kind in tensors.items()}
    return {name: TensorRef(name, dtype, tuple(shape), "x", 0, 0) for name, (dtype, *shape) in named.items()}


def packed_names(tensors, config=None):
    return sorted(find_packing(tensors, config or {}, "x").packed)


PLAIN = refs(
    norm__weight=("BF16", 8), embed__weight=("BF16", 100, 8), q__bias=("F16", 8), position_ids=("I64", 1, 512),
    counts=("I64", 1), mask=("BOOL", 4, 4),
)  # fmt: skip
QUANTISED = {"quantization_config": {"quant_method": "some-method"}}


@pytest.mark.parametrize("config", [{}, QUANTISED, {"text_config": QUANTISED}])
def test_norms_embeddings_and_buffers_are_plain_also_in_a_quantised_model(config):
    assert packed_names(PLAIN, config) == []


@pytest.mark.parametrize(
    ("scheme", "tensors"),
    [
        (
            "GPTQ or AWQ",
            refs(q__qweight=("I32", 4, 4), q__qzeros=("I32", 1, 4), q__scales=("F16", 1, 8), q__g_idx=("I32", 8)),
        ),
        (
            "compressed-tensors",
            refs(q__weight_packed=("I32", 4, 4), q__weight_scale=("BF16", 4, 1), q__weight_shape=("I64", 2)),
        ),
        (
            "bitsandbytes 4-bit",
            refs(
                q__weight=("U8", 32, 1), q__weight__absmax=("U8", 4), q__weight__quant_map=("F32", 16),
                q__weight__nested_absmax=("F32", 1), q__weight__nested_quant_map=("F32", 256),
                q__weight__quant_state__bitsandbytes__nf4=("U8", 90),
            ),
        ),
        ("bitsandbytes 8-bit", refs(q__SCB=("F32", 4), q__weight_format=("U8",))),
        ("MXFP4", refs(gate_up_proj_blocks=("U8", 2, 4, 2, 16), gate_up_proj_scales=("U8", 2, 4, 2))),
        ("HQQ", refs(q__W_q=("U8", 4, 4), q__scale=("F16", 4, 1), q__zero=("F16", 4, 1))),
        ("AQLM", refs(q__codes=("I16", 4, 4, 1), q__codebooks=("F16", 1, 256, 1, 8), q__scales=("F16", 4, 1, 1, 1))),
    ],
)  # fmt: skip
def test_schemes_are_told_by_their_names_alone(scheme, tensors):
    found = find_packing(tensors | PLAIN, {}, "x").packed
    assert found == dict.fromkeys(tensors, scheme)


@pytest.mark.parametrize("dtype", ["I8", "U8", "U32", "F8_E4M3", "F8_E5M2"])
@pytest.mark.parametrize("scale", ["q.weight_scale", "q.weight_scales", "q.scales", "q.SCB"])
def test_a_narrow_weight_beside_a_scale_is_packed(dtype, scale):
    tensors = refs(q__weight=(dtype, 4, 4), q__bias=("F16", 4)) | {scale: TensorRef(scale, "F32", (4, 1), "x", 0, 0)}
    assert "q.weight" in packed_names(tensors)
    assert "q.bias" not in packed_names(tensors)


def test_a_float_weight_beside_a_scale_is_plain():
    assert packed_names(refs(q__weight=("BF16", 4, 4), q__weight_scale=("F32", 1), q__scale=("F32", 1))) == []


def test_the_scale_of_a_packed_weight_is_packed_too():
    assert packed_names(refs(q__weight=("F8_E4M3", 4, 4), q__weight_scale=("F32", 4, 1))) == [
        "q.weight",
        "q.weight_scale",
    ]


@pytest.mark.parametrize("place", ["quantization_config", "compression_config"])
@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "F8_E4M3"])
def test_the_config_alone_makes_narrow_matrices_packed(place, dtype):
    config = {place: {"quant_method": "torchao"}}
    for form in (config, {"text_config": config}):
        packing = find_packing(refs(q__weight=(dtype, 4, 4)) | PLAIN, form, "x")
        assert packing.packed == {"q.weight": f"quantised by torchao ({dtype})"}


def test_fp8_without_scale_or_config_is_plain_and_noted():
    packing = find_packing(refs(q__weight=("F8_E4M3", 4, 4)), {}, "x")
    assert packing.packed == {}
    assert packing.notes == ("1 FP8 tensor has no scales; read as stored",)
    packing = find_packing(refs(q__weight=("F8_E4M3", 4, 4), k__weight=("F8_E5M2", 4, 4)) | PLAIN, {}, "x")
    assert packing.notes == ("2 FP8 tensors have no scales; read as stored",)


@pytest.mark.parametrize(
    "scale",
    ["q.scale_weight", "q.weight.scale", "q.w_scale", "q.weight_scale_2", "q.input_scale", "q.weightScale",
     "q.weight_scale.data", "q.scale.0", "q.weight.inner.scale"],
)  # fmt: skip
@pytest.mark.parametrize(("dtype", "word"), [("F8_E4M3", "FP8"), ("F8_E5M2", "FP8"), ("I8", "I8"), ("U8", "U8")])
def test_a_scale_under_any_other_name_makes_the_weight_packed(scale, dtype, word):
    tensors = refs(q__weight=(dtype, 4, 4), q__bias=("BF16", 4), k__weight=("BF16", 4, 4)) | PLAIN
    packing = find_packing(tensors | {scale: TensorRef(scale, "F32", (), "x", 0, 0)}, {}, "x")
    assert packing.packed == {"q.weight": f"{word} with a scale that is not understood"}
    assert packing.notes == ()


def test_a_scale_at_the_top_level_counts_for_what_lies_beside_it():
    assert packed_names(refs(weight=("F8_E4M3", 4, 4), scale_weight=("F32",))) == ["weight"]


@pytest.mark.parametrize("scale", ["a.k.w_scale", "a.q_scale", "scales.a.q.weight", "a.scale", "logit_scale"])
def test_a_scale_anywhere_is_enough_to_doubt_fp8_but_not_integers(scale):
    beside = {scale: TensorRef(scale, "F32", (), "x", 0, 0)}
    assert packed_names(refs(a__q__weight=("F8_E4M3", 4, 4)) | beside) == ["a.q.weight"]
    assert packed_names(refs(a__q__weight=("I8", 4, 4)) | beside) == []


@pytest.mark.parametrize("leaf", ["weight_s", "weight_amax", "absmax", "dequant_factor"])
def test_fp8_is_doubted_beside_anything_that_is_neither_weight_nor_bias(leaf):
    assert "q.weight" in packed_names(refs(q__weight=("F8_E4M3", 4, 4), **{f"q__{leaf}": ("F32",)}))
    assert packed_names(refs(q__weight=("F8_E4M3", 4, 4), q__bias=("F32", 4))) == []


def test_buffers_of_integers_beside_a_scale_are_plain():
    """Swin has an index of positions beside its logit_scale."""
    assert packed_names(refs(attn__index=("I64", 49, 49), attn__logit_scale=("F32", 4), attn__n=("I32", 4))) == []


def test_an_fp8_tensor_called_a_scale_is_no_weight():
    packing = find_packing(refs(q__w_scale=("F8_E4M3", 4, 4), scaled_fp8=("F8_E4M3", 2)), {}, "x")
    assert (packing.packed.keys(), packing.notes) == ({"q.w_scale", "scaled_fp8"}, ())


def test_many_fp8_weights_are_looked_at_quickly():
    tensors = {}
    for number in range(20_000):
        tensors |= refs(**{f"layers__{number}__q__weight": ("F8_E4M3", 4, 4)})
    assert find_packing(tensors, {}, "x").notes == ("20000 FP8 tensors have no scales; read as stored",)
    tensors |= refs(layers__7__q__scale_weight=("F32",))
    assert len(find_packing(tensors, {}, "x").packed) == 20_000


@pytest.mark.parametrize("shape", [(300, 1), (3,), (2, 3), (3, 2, 1)])
def test_block_scales_of_another_shape_make_only_their_weight_packed(shape):
    tensors = refs(q__weight=("F8_E4M3", 300, 200), q__weight_scale_inv=("F32", *shape), norm__weight=("BF16", 8))
    packing = find_packing(tensors, {}, "x")
    assert packing.packed.keys() == {"q.weight"}
    assert "expected the shape [3, 2] for blocks of 128 x 128, or one number" in packing.packed["q.weight"]
    assert f"found {list(shape)}" in packing.packed["q.weight"]
    assert packing.scales == {}


@pytest.mark.parametrize("dtype", ["F4", "F8_E8M0", "F6_E2M3"])
def test_formats_that_mean_nothing_alone_are_packed(dtype):
    assert find_packing(refs(q=(dtype, 4, 4)), {}, "x").packed == {"q": f"stored as {dtype}"}


def test_fp8_with_block_scales_is_readable():
    tensors = refs(q__weight=("F8_E4M3", 300, 200), q__weight_scale_inv=("F32", 3, 2), k__weight=("BF16", 4, 4))
    packing = find_packing(tensors, {"quantization_config": {"quant_method": "fp8"}}, "x")
    assert packing.scales == {"q.weight": "q.weight_scale_inv"}
    assert packing.packed == {}
    assert packing.block == (128, 128)


def test_block_scales_of_stacked_experts_are_stacked():
    tensors = refs(gate_up_proj=("F8_E4M3", 8, 300, 200), gate_up_proj_scale_inv=("F32", 8, 3, 2))
    assert find_packing(tensors, {}, "x").scales == {"gate_up_proj": "gate_up_proj_scale_inv"}


def test_the_block_size_comes_from_the_config():
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 32]}}
    tensors = refs(q__weight=("F8_E4M3", 128, 128), q__weight_scale_inv=("BF16", 2, 4))
    assert find_packing(tensors, config, "x").block == (64, 32)


@pytest.mark.parametrize("block", [[0, 128], [128], "128", [1.5, 2], [True, 2], [128, -1], {}])
def test_a_block_size_that_is_none_is_refused(block):
    with pytest.raises(HeaderLies, match="weight_block_size"):
        find_packing(PLAIN, {"quantization_config": {"weight_block_size": block}}, "x")


def test_scales_in_a_format_that_is_not_read_make_the_weight_packed():
    tensors = refs(q__weight=("F8_E4M3", 300, 200), q__weight_scale_inv=("F8_E8M0", 3, 2))
    assert packed_names(tensors) == ["q.weight", "q.weight_scale_inv"]


@pytest.mark.parametrize("method", [None, 3, [[]], {}])
def test_a_method_that_is_no_text_is_not_named(method):
    packing = find_packing(refs(q__weight=("I8", 4, 4)), {"quantization_config": {"quant_method": method}}, "x")
    assert packing.packed == {"q.weight": "quantised by a method that is not named (I8)"}


@pytest.mark.parametrize("config", [{"quantization_config": 3}, {"text_config": []}, {"quantization_config": None}])
def test_a_config_of_another_form_says_nothing(config):
    assert packed_names(refs(q__weight=("I8", 4, 4)), config) == []
