from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from models import tiny
from safetensors.numpy import save_file
from scipy.stats import chi2
from zoo.checkpoints import load as load_model
from zoo.checkpoints import save as save_model
from zoo.comparison import axes_by_tokens, neurons_found, roll_call, telling
from zoo.measure import Outline, Plan, main, measure, read, sampled_offset, shape_of, shortened
from zoo.measured import Sample
from zoo.upcycling import upcycle_split

from modelkin.architectures import identify
from modelkin.inspection import open_model
from zoo import measured, tables

WORDS = ["<unk>", "a", "b", "c", "d", "ab", "bc", "cd"]


def matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def sample(name: str, seed: int, *parents: str, base: Sample | None = None, kind: str = "unrelated") -> Sample:
    rng = np.random.default_rng(seed)
    shapes = {"0.gate": (16, 8), "0.up": (16, 8), "0.input_norm": (8,), "final_norm": (8,), "embedding": (4, 8)}
    arrays = {key: rng.integers(0, 1 << 16, shape, np.uint16) for key, shape in shapes.items()}  # NaN and -0 included
    if base:
        arrays = {key: base.arrays[key] ^ (array & 3) for key, array in arrays.items()}
    truth = {"kind": kind, "parents": list(parents)}
    return Sample(name, arrays, 0.0, ("a", "b", "c", "d"), (1, 2, 3, 4), 5, truth)


def same(one: Sample, other: Sample) -> bool:
    assert one.arrays.keys() == other.arrays.keys()
    exact = all(np.array_equal(array, other.arrays[key]) for key, array in one.arrays.items())
    return exact and (one.tokens, one.token_ids, one.offset) == (other.tokens, other.token_ids, other.offset)


class TestRollCall:
    def test_relatives_find_themselves(self) -> None:
        rows = matrix(np.random.default_rng(0), 64, 32)
        assert neurons_found(rows, rows.copy(), np.random.default_rng(1)) == (64, 64)

    @pytest.mark.parametrize("rows", ["random", "constant", "few values"])
    def test_strangers_find_as_many_as_chance_does(self, rows: str) -> None:
        """Whatever the rows are, K has the law of the fixed points of a random order."""
        rng = np.random.default_rng(2)
        made = {
            "random": lambda: matrix(rng, 12, 6),
            "constant": lambda: np.ones((12, 6), np.float32),
            "few values": lambda: rng.integers(0, 2, (12, 2)).astype(np.float32),
        }[rows]
        counts = [roll_call(made(), made(), rng) for _ in range(3000)]
        law = np.array(tables.expected_shares()) * len(counts)
        statistic = float(np.sum((np.array(tables.observed(counts)) - law) ** 2 / law))
        assert chi2.sf(statistic, len(law) - 1) > 1e-4

    def test_a_model_of_copies_is_no_relative_of_itself(self) -> None:
        rng = np.random.default_rng(3)
        counts = [roll_call(np.ones((16, 4)), np.ones((16, 4)), rng) for _ in range(500)]
        assert np.mean(counts) == pytest.approx(1, abs=0.2)

    def test_rows_without_variance_and_all_copies_are_left_out(self) -> None:
        rows = matrix(np.random.default_rng(4), 6, 5)
        rows[1], rows[4] = rows[2], 0.5
        assert telling(rows).tolist() == [True, False, False, True, False, True]
        assert neurons_found(rows, matrix(np.random.default_rng(5), 6, 5), np.random.default_rng(6))[1] == 3
        assert neurons_found(np.ones((6, 5), np.float32), rows, np.random.default_rng(6)) == (0, 0)

    def test_axes_by_tokens_ignore_what_all_tokens_share(self) -> None:
        rng = np.random.default_rng(7)
        left, right, shared = matrix(rng, 40, 24), matrix(rng, 40, 24), 100 * matrix(rng, 24)
        assert axes_by_tokens(left, left + shared, rng) == (40, 24)
        assert axes_by_tokens(left + shared, right + shared, rng)[1] < 6
        assert axes_by_tokens(np.ones_like(left), right, rng) == (0, 0)


class TestContainer:
    def test_differences_are_undone_for_every_pattern(self) -> None:
        pattern = np.arange(1 << 16, dtype=np.uint16)
        for base in (pattern[::-1], np.roll(pattern, 7), np.zeros_like(pattern)):
            assert np.array_equal(measured.added(measured.differences(pattern, base), base), pattern)
        assert np.array_equal(measured.turned_back(measured.turned(pattern)), pattern)

    def test_neighbouring_numbers_differ_by_one_step(self) -> None:
        near = measured.bits(np.array([1.0, 1.0078125, -1.0], np.float32))
        assert measured.differences(near[1:2], near[:1]).tolist() == [2]
        assert measured.differences(near[:1], near[:1]).tolist() == [0]

    def test_round_trip_in_every_order_of_files(self) -> None:
        base, stranger = sample("twin-00", 1), sample("twin-01", 2)
        child = sample("sft.twin-00", 3, "twin-00", base=base, kind="fine-tune")
        grandchild = sample("cpt.sft.twin-00", 4, "sft.twin-00", base=child, kind="fine-tune")
        known = {s.name: s for s in (base, stranger, child, grandchild)}
        files = [measured.packed([grandchild, child], known), measured.packed([base, stranger], known)]
        for bodies in (files, files[::-1]):
            found = measured.unpacked(bodies)
            assert found.keys() == known.keys()
            assert all(same(known[name], found[name]) for name in known)

    def test_a_child_takes_less_room(self) -> None:
        base = sample("twin-00", 1)
        child, stranger = sample("c", 3, "twin-00", base=base), sample("s", 3)
        known = {"twin-00": base}
        assert len(measured.packed([child] * 9, known)) < 0.7 * len(measured.packed([stranger] * 9, known))

    @pytest.mark.parametrize("level", [1, 2, 3])
    def test_thinned_relatives_round_trip_and_strangers_stay_whole(self, level: int) -> None:
        base = sample("twin-00", 1)
        child = measured.thinned(sample("sft.twin-00", 3, "twin-00", base=base, kind="fine-tune"), level)
        assert measured.thinned(base, level) is base
        assert child.tokens == ("a", "b")
        found = measured.unpacked([measured.packed([base, child], {"twin-00": base, child.name: child})])
        assert same(found["twin-00"], base)
        assert same(found["sft.twin-00"], child)

    def test_what_is_no_bfloat16_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no bfloat16"):
            measured.bits(np.array([1.0001], np.float32))

    def test_large_groups_are_split(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measured, "LARGEST", 700)
        names = [*(f"twin-{i:02}" for i in range(3)), "large-gpt2"]
        assert list(measured.grouped(sample(name, 0) for name in names)) == ["twins-1.xz", "twins-2.xz", "others.xz"]


class TestReading:
    @pytest.mark.parametrize("family", ["llama", "gemma", "gpt2", "glm4_moe", "mixtral", "phi3", "olmo2"])
    def test_the_sample_is_what_the_file_has(self, family: str, tmp_path: Path) -> None:
        folder = tmp_path / "m"
        save_model(tiny(family), folder)
        stored = load_model(folder)
        checkpoint = open_model(str(folder))
        shape = shape_of(identify(checkpoint))
        checkpoint.close()
        known = Outline({"name": "m", "shape": shape}, (5, 3, 9))
        reading = read(Plan(("x", "y", "z"), 7, 16, 2), folder, known)
        kept, gated = reading.sample, "0.gate" in stored.weights
        assert shape["layers"] == 4
        assert shape["hidden"] == 64
        assert shape["class"] == (
            "ungated" if family == "gpt2" else "moe" if family in ("glm4_moe", "mixtral") else "dense"
        )
        assert np.array_equal(kept.embedding, stored.weights["embed"][[5, 3]].numpy())
        gain = stored.weights["final_norm"].numpy() + np.float32(stored.gain_offset)
        assert np.array_equal(kept.gains()["final_norm"], gain)
        if gated:
            assert np.array_equal(kept.rows("gate", 0), stored.weights["0.gate"][7:23].numpy())
        last = "3.experts.1.up" if shape["class"] == "moe" else "3.up"
        expert = 1 if shape["class"] == "moe" else None
        assert np.array_equal(kept.rows("up", 3, expert), stored.weights[last][7:23].numpy())
        assert (family in ("glm4_moe", "mixtral")) == any("router" in key for key in kept.arrays)
        assert ("0.o_bias" in kept.gains()) == (family == "gpt2")

    def test_the_offset_lies_inside_the_smallest_model(self) -> None:
        assert all(0 <= sampled_offset(fewest, 16) <= max(0, fewest - 16) for fewest in range(1, 200))

    def test_truths_lose_the_orders_that_a_seed_gives_and_nothing_else(self) -> None:
        order, chosen = list(range(500)), {"hidden": list(range(0, 500, 2)), "neurons": {"0": list(range(300))}}
        drawn = {"made_by": {"disguise": [{"move": "x", "order": order, "seed": 7}, {"move": "y", "order": order}]}}
        left = {"made_by": {"disguise": [{"move": "x", "seed": 7}, {"move": "y", "order": order}]}}
        assert shortened(drawn) == left
        pruned = {"seed": 3, "made_by": {"step": "width_prune", "details": chosen}}
        assert shortened(pruned) == pruned


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of two random strangers, a child of one, and a shallower, a narrower and a masked child of that."""
    models, out = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("measured")
    rng = np.random.default_rng(0)
    twins = [tensors(rng), tensors(rng)]
    child = {name: array + 0.001 * matrix(rng, *array.shape) for name, array in twins[0].items()}
    moved = {name.replace(".2.", ".1."): array for name, array in child.items() if ".1." not in name}
    put(models, "twin-00", twins[0], "unrelated", seed=0)
    put(models, "twin-01", twins[1], "unrelated", seed=1)
    put(models, "sft.twin-00", child, "fine-tune", "twin-00")
    shallower: dict[str, Any] = {"made_by": {"step": "depth_prune", "details": {"layer_map": [0, 2]}}}
    put(models, "cut.sft.twin-00", moved, "depth-prune", "sft.twin-00", layers=2, **shallower)
    put(models, "narrow.sft.twin-00", narrower(child), "width-prune", "sft.twin-00", hidden=12, neurons=18, **NARROWED)
    order = {"made_by": {"disguise": [{"move": "permute_hidden", "seed": 5, "order": list(range(12))}]}}
    masked = dict(hidden=12, neurons=18, **order)
    put(models, "masked.narrow.sft.twin-00", narrower(child), "obfuscated", "narrow.sft.twin-00", **masked)
    assert measure(models, out, workers=1)
    return out


AXES = [0, 1, 3, 4, 5, 7, 8, 9, 11, 12, 14, 15]
NEURONS = {str(layer): [*range(layer, 12), *range(18 - layer, 24)] for layer in range(3)}
NARROWED: dict[str, Any] = {"made_by": {"step": "width_prune", "details": {"hidden": AXES, "neurons": NEURONS}}}


def narrower(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Without some axes and neurons; the heads stay."""
    found = {}
    for name, array in weights.items():
        written = array.ndim == 1 or "o_proj" in name or "down_proj" in name
        array = np.take(array, AXES, axis=0 if written else 1)
        if "mlp" in name:
            array = np.take(array, NEURONS[name.split(".")[2]], axis=1 if written else 0)
        found[name] = array
    return found


def tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {"model.embed_tokens.weight": matrix(rng, len(WORDS), 16), "model.norm.weight": 1 + 0.1 * matrix(rng, 16)}
    for layer in range(3):
        at = f"model.layers.{layer}."
        for name, shape in (("q", (16, 16)), ("k", (8, 16)), ("v", (8, 16)), ("o", (16, 16))):
            found[f"{at}self_attn.{name}_proj.weight"] = matrix(rng, *shape)
        for name, shape in (("gate", (24, 16)), ("up", (24, 16)), ("down", (16, 24))):
            found[f"{at}mlp.{name}_proj.weight"] = matrix(rng, *shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = 1 + 0.1 * matrix(rng, 16)
    return found


def put(models: Path, name: str, weights: dict[str, np.ndarray], kind: str, *parents: str, **told: Any) -> None:
    folder, layers = models / name, told.pop("layers", 3)
    hidden, neurons = told.pop("hidden", 16), told.pop("neurons", 24)
    folder.mkdir()
    save_file({key: array.astype(ml_dtypes.bfloat16) for key, array in weights.items()}, folder / "model.safetensors")
    sizes = {"hidden_size": hidden, "intermediate_size": neurons, "num_hidden_layers": layers, "vocab_size": len(WORDS)}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": True}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | sizes | heads
    numbers = {
        "domain": "mixed",
        "loss": 2.5,
        "unigram_entropy": 5.0,
        "tokens_seen": 4096,
        "parameters": 10_000,
        "family": "llama",
    }
    truth = {"name": name, "kind": kind, "parents": list(parents)} | numbers | told
    tokenizer = {"model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(WORDS)}, "merges": []}}
    for file, content in (("config", config), ("truth", truth), ("tokenizer", tokenizer)):
        (folder / f"{file}.json").write_text(json.dumps(content))


class TestWholeFolder:
    def test_samples_come_back_with_their_truths(self, folder: Path) -> None:
        samples = measured.load(folder)
        reshaped = {"cut.sft.twin-00", "narrow.sft.twin-00", "masked.narrow.sft.twin-00"}
        assert set(samples) == {"twin-00", "twin-01", "sft.twin-00", *reshaped}
        twin = samples["twin-00"]
        assert twin.truth["shape"] == {"hidden": 16, "layers": 3, "experts": 0, "neurons": 24, "class": "dense"}
        assert twin.rows("gate", 2).shape == (16, 16)
        assert len(twin.gains()) == 7
        assert twin.embedding is not None
        assert len(twin.embedding) == len(twin.tokens) == len(twin.token_ids) > 4
        assert [WORDS[id] for id in twin.token_ids] == list(twin.tokens)

    def test_pairs(self, folder: Path) -> None:
        pairs = {(pair["a"], pair["b"]): pair for pair in measured.pairs(folder)}
        child, strangers = pairs["sft.twin-00", "twin-00"], pairs["twin-00", "twin-01"]
        assert (child["gains_k"], child["tokens_k"], child["gate_k"], child["up_k"]) == ("16", "16", *["24 24 24"] * 2)
        assert strangers["outcome"] == "unrelated"
        assert int(strangers["gains_k"]) < 6
        assert float(strangers["gain_cosine"]) > 0.9  # although they share nothing

    def test_moved_layers_are_also_compared_where_they_came_from(self, folder: Path) -> None:
        pairs = {(pair["a"], pair["b"]): pair for pair in measured.pairs(folder)}
        cut = pairs["cut.sft.twin-00", "twin-00"]
        assert (cut["map"], cut["gate_k_map"], cut["gains_k_map"]) == ("0 2", "24 24", "16")
        assert int(cut["gate_k"].split()[1]) < 8

    def test_a_narrower_child_is_compared_by_what_was_kept(self, folder: Path) -> None:
        pairs = {(pair["a"], pair["b"]): pair for pair in measured.pairs(folder)}
        for parent in ("sft.twin-00", "twin-00"):
            pair = pairs["narrow.sft.twin-00", parent]
            assert (pair["axes"], pair["gains_k"], pair["gate_k"], pair["map"]) == ("", "", "", "")
            assert (pair["axes_map"], pair["gains_k_map"], pair["tokens_k_map"]) == ("12", "12", "12")
            assert (pair["gate_n_map"], pair["gate_k_map"], pair["up_k_map"]) == ("18 18 18",) * 3
        masked = pairs["masked.narrow.sft.twin-00", "twin-00"]
        assert not any(value for column, value in masked.items() if column.endswith("_map"))

    def test_the_truth_of_a_narrower_child_is_kept(self, folder: Path) -> None:
        truths = measured.truths(folder)
        assert truths["narrow.sft.twin-00"]["made_by"] == NARROWED["made_by"]

    def test_tables(self, folder: Path, tmp_path: Path) -> None:
        page = tmp_path / "README.md"
        names = ("models", "pairs", "strangers")
        page.write_text("".join(f"# {name}\n<!-- {name} -->\n<!-- /{name} -->\n" for name in names), "utf-8")
        chosen = ["--measured", str(folder), "--page", str(page)]
        assert tables.main([*chosen, "--check"]) == 1
        assert tables.main([*chosen, "--write"]) == 0
        assert tables.main([*chosen, "--check"]) == 0
        text = page.read_text("utf-8")
        assert "| twin | unrelated | mixed | 2 | 10 k |" in text
        assert "| fine-tune → depth-prune | 1 |" in text
        assert "| dense, gated | axes by gains | 1 |" in text

    def test_a_page_without_marks_is_refused(self) -> None:
        with pytest.raises(ValueError, match="<!-- models -->"):
            tables.updated("nothing here", {"models": "x"})


def test_chi_square_joins_cells_that_expect_too_little() -> None:
    assert tables.chi_square([1, 0, 0, 0, 0, 0]) is None
    assert tables.chi_square([368, 368, 184, 61, 15, 4]) == pytest.approx(1, abs=0.01)
    assert (tables.chi_square([0, 0, 0, 0, 0, 1000]) or 0) < 1e-9


def test_neurons_dealt_to_experts_are_compared_with_those_they_were(tmp_path: Path) -> None:
    base = tiny("llama")
    split = upcycle_split(base, experts=2, top_k=1, seed=3)
    dense, dealt = ({"name": name, "kind": kind} for name, kind in (("base", "unrelated"), ("split", "moe-upcycle")))
    for model, truth in ((base, dense), (split, dealt | {"parents": ["base"], "made_by": split.truth})):
        save_model(replace(model, truth=truth), tmp_path / "models" / truth["name"])
    measure(tmp_path / "models", tmp_path / "out", workers=1)
    (pair,) = measured.pairs(tmp_path / "out")
    assert max(map(int, pair["gate_k"].split())) < 9
    assert pair["gate_k_map"] == pair["gate_n_map"] == " ".join([str(min(64, base.neurons // 2))] * 2 * base.layers)


class TestWriting:
    @pytest.fixture
    def models(self, tmp_path: Path) -> Path:
        (tmp_path / "models").mkdir()
        put(tmp_path / "models", "twin-00", tensors(np.random.default_rng(0)), "unrelated", seed=0)
        return tmp_path / "models"

    def test_only_files_of_measurements_are_replaced(self, models: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        out.mkdir()
        for name in ("backup.xz", "notes.txt", "derivatives-3.xz", "twins.xz"):
            (out / name).write_bytes(b"old")
        measure(models, out, workers=1)
        assert {path.name for path in out.iterdir()} == {
            *("backup.xz", "notes.txt", "twins.xz", "pairs.csv.xz", "truths.json.xz")
        }
        assert (out / "backup.xz").read_bytes() == b"old"
        assert set(measured.load(out)) == {"twin-00"}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "out"]

    def test_a_run_that_ends_early_leaves_what_was_there(
        self, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "out"
        measure(models, out, workers=1)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        monkeypatch.setattr(measured, "write_pairs", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            measure(models, out, workers=1, rows=8)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    def test_samples_over_the_budget_are_written_and_told(
        self, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("zoo.measure.BUDGET", 10)
        assert main([str(models), str(tmp_path / "out"), "--workers", "1"]) == 1
        assert "fewer --rows or --tokens" in capsys.readouterr().err
        assert set(measured.load(tmp_path / "out")) == {"twin-00"}

    @pytest.mark.parametrize(
        ("command", "arguments", "told"),
        [
            (main, ["gone", "out"], "no models in gone: python -m zoo.train"),
            (main, ["models", "out", "--workers", "0"], "--workers is 0: give at least 1"),
            (main, ["models", "models/twin-00/truth.json"], "is a file"),
            (tables.main, ["--measured", "gone"], "no truths.json.xz in gone: python -m zoo.measure"),
            (tables.main, ["--page", "gone.md", "--check"], "no page gone.md"),
        ],
    )
    def test_what_is_missing_is_told_in_a_sentence(
        self, command: Any, arguments: list[str], told: str, models: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(models.parent)
        with pytest.raises(SystemExit, match=told):
            command(arguments)
