"""What `quick` reads: at most 1 MB a model, also of wide models and of matrices that are stored transposed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from test_gains_question import ask, built

import modelkin
from modelkin.architectures import Anatomy
from modelkin.questions.gains import GAINS
from modelkin.questions.neurons import NEURONS
from modelkin.questions.pooled import POOLED
from modelkin.questions.question import CannotAsk, Pair
from modelkin.records import Cut, Role, Slot
from modelkin.sampling.readings import bytes_of, read
from modelkin.stats import roll_call
from modelkin.stats.rencontres import log_total_tail

Shapes = Mapping[str, tuple[int, ...]]
SIZES = {"F32": 4, "BF16": 2}
HIDDEN, NEURONS_A_LAYER, LAYERS = 48, 600, 4
GPT2 = {"model_type": "gpt2", "n_embd": HIDDEN, "n_head": 4, "n_layer": LAYERS, "n_inner": NEURONS_A_LAYER}


def empty(folder: Path, config: Mapping[str, Any], shapes: Shapes, dtype: str) -> Anatomy:
    """A model of holes: a true header, and a sparse file of the right length."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return modelkin.identify(modelkin.open(str(folder)))


def gpt2_shapes(hidden: int, layers: int) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, hidden), "ln_f.weight": (hidden,)}
    for i in range(layers):
        norms = (f"h.{i}.{norm}.{part}" for norm in ("ln_1", "ln_2") for part in ("weight", "bias"))
        shapes |= dict.fromkeys(norms, (hidden,))
        shapes |= {
            f"h.{i}.attn.c_attn.weight": (hidden, 3 * hidden),
            f"h.{i}.attn.c_proj.weight": (hidden, hidden),
            f"h.{i}.mlp.c_fc.weight": (hidden, 4 * hidden),
            f"h.{i}.mlp.c_proj.weight": (4 * hidden, hidden),
        }
    return shapes


def llama_shapes(hidden: int, neurons: int, layers: int) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (32000, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= dict.fromkeys((f"{at}input_layernorm.weight", f"{at}post_attention_layernorm.weight"), (hidden,))
        shapes |= dict.fromkeys((f"{at}mlp.gate_proj.weight", f"{at}mlp.up_proj.weight"), (neurons, hidden))
        shapes |= {f"{at}mlp.down_proj.weight": (hidden, neurons)}
        shapes |= {f"{at}self_attn.{part}_proj.weight": (hidden, hidden) for part in "qkvo"}
    return shapes


def quick_bytes(model: Anatomy) -> int:
    pair = Pair(model, model, 0, "quick")
    return sum(bytes_of(model, question.cuts(pair)[0]) for question in (GAINS, NEURONS))


@pytest.mark.parametrize(("hidden", "layers", "dtype"), [(768, 12, "F32"), (1600, 48, "F32"), (1600, 48, "BF16")])
def test_of_transposed_matrices_a_block_of_axes_is_read(tmp_path: Path, hidden: int, layers: int, dtype: str) -> None:
    config = GPT2 | {"n_embd": hidden, "n_layer": layers, "n_inner": 4 * hidden}
    model = empty(tmp_path / "a", config, gpt2_shapes(hidden, layers), dtype)
    cuts, _ = NEURONS.cuts(Pair(model, model, 0, "quick"))
    assert len(cuts) == 2
    assert {(cut.start, cut.stop) for cut in cuts} == {(0, 4 * hidden)}
    assert all(cut.columns is not None and cut.columns[1] - cut.columns[0] >= 16 for cut in cuts)
    assert 700_000 < quick_bytes(model) <= 1_000_000


@pytest.mark.parametrize(
    ("hidden", "neurons", "layers", "dtype", "projections", "rows"),
    [(4096, 11008, 32, "BF16", 2, 16), (8192, 28672, 80, "BF16", 1, 16), (16384, 53248, 126, "BF16", 1, 8)],
)
def test_wide_models_stay_within_a_megabyte(
    tmp_path: Path, hidden: int, neurons: int, layers: int, dtype: str, projections: int, rows: int
) -> None:
    sizes = {"hidden_size": hidden, "intermediate_size": neurons, "num_hidden_layers": layers}
    config = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000} | sizes
    model = empty(tmp_path / "a", config, llama_shapes(hidden, neurons, layers), dtype)
    cuts, _ = NEURONS.cuts(Pair(model, model, 0, "quick"))
    assert len(cuts) == 2 * projections
    assert {(cut.stop or 0) - (cut.start or 0) for cut in cuts} == {rows}
    assert quick_bytes(model) <= 1_000_000


def test_what_fits_no_way_is_not_asked(tmp_path: Path) -> None:
    config = GPT2 | {"n_embd": 12288, "n_inner": 4 * 12288, "n_layer": 2}
    model = empty(tmp_path / "a", config, gpt2_shapes(12288, 2), "F32")
    with pytest.raises(CannotAsk, match=r"8 neurons of a layer cost 2,415,919,104 bytes as the matrices are stored"):
        NEURONS.cuts(Pair(model, model, 0, "quick"))


# The answer from a block of axes.


def gpt2(folder: Path, seed: int, noise: float = 0.0) -> Anatomy:
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 100)
    shapes = {f"h.{i}.mlp.c_fc.weight": (HIDDEN, NEURONS_A_LAYER) for i in range(LAYERS)}
    shapes |= {f"h.{i}.ln_1.weight": (HIDDEN,) for i in range(LAYERS)}
    tensors = {name: rng.normal(size=shape) + noise * other.normal(size=shape) for name, shape in shapes.items()}
    return built(folder, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}, GPT2)


@pytest.fixture
def few_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the gains and for 16 axes of two matrices."""
    gains = LAYERS * HIDDEN * 4
    monkeypatch.setattr("modelkin.questions.neurons.QUICK_BYTES", gains + 2 * 16 * NEURONS_A_LAYER * 4)
    monkeypatch.setattr("modelkin.questions.pooled.STANDARD_BYTES", 2 * 16 * NEURONS_A_LAYER * 4)


@pytest.mark.usefixtures("few_axes")
def test_all_neurons_are_called_in_sets_by_a_few_axes(tmp_path: Path) -> None:
    found = ask(NEURONS, gpt2(tmp_path / "a", 1), gpt2(tmp_path / "b", 1, noise=0.1))
    assert found.observed == f"{2 * NEURONS_A_LAYER:,} of {2 * NEURONS_A_LAYER:,} neurons found themselves, in 2 layers"
    assert found.strangers == "6 of 1,200 on average: one of every 200"
    assert [finding.n for finding in found.per_layer] == [NEURONS_A_LAYER] * 2
    sizes = [200] * 6
    assert found.log10_pvalue == pytest.approx((log_total_tail(sizes, 1200) + math.log(2)) / math.log(10))
    assert found.grade == "A"
    assert any("by 16 of 48 hidden axes" in assumption.text for assumption in found.assumptions)


@pytest.mark.usefixtures("few_axes")
def test_strangers_are_not_found_by_a_few_axes(tmp_path: Path) -> None:
    found = ask(NEURONS, gpt2(tmp_path / "a", 1), gpt2(tmp_path / "b", 2))
    assert (found.log10_pvalue or 0) > -3
    assert found.detectable is not None
    assert 0.05 < found.detectable < 0.3


@pytest.mark.usefixtures("few_axes")
def test_pooled_rows_use_the_axes_that_fit(tmp_path: Path) -> None:
    a, b = gpt2(tmp_path / "a", 1), gpt2(tmp_path / "b", 1, noise=0.5)
    cuts, _ = POOLED.cuts(Pair(a, b, 0, "standard"))
    assert {(cut.columns or (0, 0))[1] - (cut.columns or (0, 0))[0] for cut in cuts} == {16}
    assert (ask(POOLED, a, b, "standard").log10_pvalue or 0) < -6
    assert (ask(POOLED, a, gpt2(tmp_path / "c", 2), "standard").log10_pvalue or 0) > -3


@pytest.mark.usefixtures("few_axes")
def test_matrices_stored_both_ways_share_no_cheap_block(tmp_path: Path) -> None:
    rows = {f"model.layers.{i}.mlp.up_proj.weight": np.ones((NEURONS_A_LAYER, HIDDEN), np.float32) for i in range(4)}
    gains = {f"model.layers.{i}.input_layernorm.weight": np.ones(HIDDEN, np.float32) for i in range(4)}
    config = {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": 4}
    plain = built(tmp_path / "b", rows | gains, config | {"intermediate_size": NEURONS_A_LAYER})
    with pytest.raises(CannotAsk, match="as the matrices are stored"):
        NEURONS.cuts(Pair(gpt2(tmp_path / "a", 1), plain, 0, "quick"))


def test_sets_of_one_layer_are_as_independent_as_layers() -> None:
    """Of a model and itself, all neurons renumbered together: the sum over sets of neighbours against Poisson."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(60, 5))
    totals = []
    for _ in range(400):
        other = rows[rng.permutation(60)]
        pairs = zip(np.split(rows, 3), np.split(other, 3), strict=True)
        totals.append(sum(roll_call(left, right, rng).fixed for left, right in pairs))
    chances = [math.exp(-3) * 3**k / math.factorial(k) for k in range(7)]
    seen = [totals.count(k) for k in range(7)]
    expected = [400 * chance for chance in (*chances, 1 - sum(chances))]
    assert chisquare([*seen, 400 - sum(seen)], expected).pvalue > 1e-3


# Reading a block of columns.


def test_a_block_of_columns_is_the_same_however_it_is_stored(tmp_path: Path) -> None:
    matrix = np.arange(HIDDEN * NEURONS_A_LAYER, dtype=np.float32).reshape(NEURONS_A_LAYER, HIDDEN)
    turned = built(tmp_path / "a", {"h.0.mlp.c_fc.weight": matrix.T.copy()}, GPT2)
    config = {"model_type": "llama", "hidden_size": HIDDEN, "num_attention_heads": 4}
    plain = built(tmp_path / "b", {"model.layers.0.mlp.up_proj.weight": matrix}, config)
    cut = Cut(Slot(Role.UP, layer=0), 3, 50, columns=(5, 9))
    for model, stored in ((turned, 4 * NEURONS_A_LAYER), (plain, 47 * HIDDEN)):
        assert np.array_equal(read(model, [cut])[cut], matrix[3:50, 5:9])
        before = model.checkpoint.source.ledger.bytes({"tensor"})
        read(model, [cut])
        assert model.checkpoint.source.ledger.bytes({"tensor"}) - before == bytes_of(model, [cut]) == 4 * stored


@pytest.mark.parametrize("columns", [(0, 49), (-1, 3), (4, 4)])
def test_columns_that_are_not_there_are_refused(tmp_path: Path, columns: tuple[int, int]) -> None:
    model = gpt2(tmp_path / "a", 1)
    with pytest.raises(modelkin.errors.UsageError, match="columns"):
        read(model, [Cut(Slot(Role.UP, layer=0), columns=columns)])
