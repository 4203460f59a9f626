"""Every family trains, saves and reads back; descent, resumption and the scheduler keep their promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer, models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from zoo.families import FAMILIES, Run  # noqa: E402
from zoo.optimisers import learning_rate, orthogonal  # noqa: E402
from zoo.others import CHILDREN, LARGER, OTHERS, SMALLER_LLAMAS, SMALLER_OTHERS, tiny  # noqa: E402

from modelkin.architectures import identify  # noqa: E402
from modelkin.inspection import open_model  # noqa: E402
from zoo import scheduler, single  # noqa: E402

WORDS = 64
VOCABULARIES = {"first": 1024, "second": 1280, "wide": 2048}
BASES = {run.family: replace(run, steps=12, warmup=2, batch=8, length=16) for run in reversed(tiny(SMALLER_OTHERS))}
BASES["llama"] = replace(tiny(SMALLER_LLAMAS)[0], name="llama", steps=12, warmup=2, batch=8, length=16)
PIECES = {
    "mixtral": "model.layers.1.block_sparse_moe.experts.3.w2.weight",
    "glm4_moe": "model.layers.1.mlp.experts.3.down_proj.weight",
    "phi3": "model.layers.1.self_attn.qkv_proj.weight",
    "gpt_neox": "gpt_neox.layers.1.attention.query_key_value.weight",
}


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    before = torch.get_num_threads(), single.EVALUATED
    torch.set_num_threads(1)
    single.EVALUATED = 32
    yield
    torch.set_num_threads(before[0])
    single.EVALUATED = before[1]


def text(seed: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """A walk that mostly takes the next but two word: easy to learn, and not what words alone tell."""
    rng = np.random.default_rng(seed)
    hops = np.where(rng.random(4000) < 0.9, 3, rng.integers(0, WORDS, 4000))
    return (np.cumsum(hops) % WORDS).astype(np.uint16)


TRAIN, HELD_OUT = text(0), text(1)
TOKENIZER = json.loads(Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, "w0")).to_str())


def train(run: Run, out: Path) -> dict[str, Any]:
    return single.train_one(run, TRAIN, HELD_OUT, WORDS, TOKENIZER, out)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds one model a family."""
    out = tmp_path_factory.mktemp("families")
    for run in BASES.values():
        train(run, out)
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_and_says_so(trained: Path, family: str) -> None:
    truth = json.loads((trained / BASES[family].name / "truth.json").read_text("utf-8"))
    assert truth["schema"] == "modelkin.truth/1"
    assert (truth["family"], truth["parents"], truth["kind"]) == (family, [], "unrelated")
    assert truth["tokens_seen"] == 12 * 8 * 16
    assert truth["parameters"] == single.parameters(BASES[family], WORDS)
    assert truth["unigram_entropy"] == pytest.approx(np.log(WORDS), abs=0.1)
    assert truth["loss"] < truth["first_loss"] - 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_every_tensor(trained: Path, family: str) -> None:
    folder = trained / BASES[family].name
    network, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert network.dtype == torch.bfloat16
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    ids = torch.from_numpy(HELD_OUT.astype(np.int64))  # the experts of transformers, not ours
    loss = single.held_out_loss(network.float(), ids, BASES[family])
    assert loss == pytest.approx(truth["loss"], abs=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_our_own_reader_knows_every_tensor(trained: Path, family: str) -> None:
    checkpoint = open_model(str(trained / BASES[family].name))
    try:
        anatomy = identify(checkpoint)
        assert anatomy.unmapped == ()
        assert anatomy.facts.family == family
        assert len({slot.layer for slot in anatomy.slots} - {None}) == 2
    finally:
        checkpoint.source.close()


def test_files_and_names_are_those_of_released_models(trained: Path) -> None:
    for family, run in BASES.items():
        folder = trained / run.name
        assert {p.name for p in folder.iterdir()} == {
            "config.json",
            "tokenizer.json",
            "model.safetensors",
            "truth.json",
        }
        config = json.loads((folder / "config.json").read_text("utf-8"))
        assert (config["model_type"], config["dtype"]) == (family, "bfloat16")
        assert str(trained) not in json.dumps(config)
        with safe_open(folder / "model.safetensors", "np") as stored:
            assert PIECES.get(family) in {None, *stored.keys()}
            assert "lm_head.weight" not in stored.keys()  # noqa: SIM118


def test_experts_at_once_are_experts_one_by_one() -> None:
    for family in ("mixtral", "glm4_moe"):
        torch.manual_seed(0)
        config = single.config_for(BASES[family], WORDS)
        network = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
        ids = torch.from_numpy(TRAIN[:32].astype(np.int64)).view(2, 16)
        with torch.no_grad():
            expected = network(ids).logits
            single.experts.batch(network)
            torch.testing.assert_close(network(ids).logits, expected, rtol=1e-4, atol=1e-5)


def test_a_router_out_of_balance_is_moved(trained: Path) -> None:
    with safe_open(trained / BASES["glm4_moe"].name / "model.safetensors", "pt") as stored:
        bias = stored.get_tensor("model.layers.1.mlp.gate.e_score_correction_bias")
    assert bias.dtype == torch.float32
    assert 0 < bias.abs().max() <= 12 * single.experts.SPEED * 1.001


@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2"])
def test_a_fine_tune_begins_where_its_parent_ended(trained: Path, family: str) -> None:
    parent = BASES[family]
    child = replace(parent, name=f"{family}-child", seed=9, parent=parent.name, kind="fine-tune", rate=parent.rate / 10)
    truth = train(child, trained)
    assert truth["first_loss"] == json.loads((trained / parent.name / "truth.json").read_text("utf-8"))["loss"]
    assert (truth["parents"], truth["kind"]) == ([parent.name], "fine-tune")
    assert truth["loss"] < truth["first_loss"]


@pytest.mark.parametrize(("optimiser", "rate"), [("adamw", 3e-3), ("lion", 1e-3), ("muon", 3e-3), ("sgd", 0.5)])
def test_every_optimiser_lowers_the_loss(tmp_path: Path, optimiser: str, rate: float) -> None:
    truth = train(replace(BASES["llama"], optimiser=optimiser, rate=rate), tmp_path)
    assert truth["loss"] < truth["first_loss"] - 0.02
    assert truth["optimiser"]["optimiser"] == optimiser


def test_a_step_of_muon_is_nearly_orthogonal() -> None:
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    for found in (orthogonal(matrices), orthogonal(matrices.mT).mT):
        values = torch.linalg.svdvals(found)
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_decay_of_gains_shrinks_gains(tmp_path: Path) -> None:
    means = []
    for decay in (0.0, 5.0):
        run = replace(BASES["llama"], name=f"decay-{decay}", norm_decay=decay)
        train(run, tmp_path)
        with safe_open(tmp_path / run.name / "model.safetensors", "pt") as stored:
            means.append(float(stored.get_tensor("model.norm.weight").float().mean()))
    assert means[1] < means[0] - 0.02


def test_an_unknown_optimiser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="known are adamw, lion, muon, sgd"):
        train(replace(BASES["llama"], optimiser="adam"), tmp_path)


@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_the_same_seed_gives_the_same_bytes(trained: Path, tmp_path: Path, family: str) -> None:
    name = BASES[family].name
    train(BASES[family], tmp_path)
    for path in (tmp_path / name).iterdir():
        assert path.read_bytes() == (trained / name / path.name).read_bytes()
    other = replace(BASES[family], seed=77, name="other")
    train(other, tmp_path)
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in (name, "other")]
    assert weights[0] != weights[1]


def test_an_interrupted_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(single.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(BASES["llama"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".llama.partial").mkdir()  # what a killed process leaves behind
    train(BASES["llama"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_a_second_call_trains_nothing(trained: Path) -> None:
    folder = trained / "llama"
    before = folder.stat().st_mtime_ns
    truth = train(replace(BASES["llama"], steps=10**9), trained)
    assert truth["steps"] == 12
    assert folder.stat().st_mtime_ns == before


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    run = Run("r", rate=1.0, warmup=10, steps=100)
    assert [learning_rate(run, step) for step in (0, 9, 10)] == pytest.approx([0.1, 1.0, 1.0])
    assert learning_rate(run, 99) == pytest.approx(0.1, abs=1e-3)


# The plan


def test_the_plan_is_json_and_its_descent_is_closed() -> None:
    by_name = {run.name: run for run in OTHERS}
    assert len(by_name) == len(OTHERS) == len(LARGER) + len(SMALLER_LLAMAS) + len(SMALLER_OTHERS) + len(CHILDREN)
    assert (len(LARGER), len(CHILDREN)) == (12, 24)
    assert len({run.seed for run in OTHERS}) == len(OTHERS)
    for run in OTHERS:
        assert Run(**json.loads(json.dumps(asdict(run)))) == run
        assert (run.parent is None) == (run.kind == "unrelated")
        if run.parent:
            parent = by_name[run.parent]
            assert (run.family, run.shape, run.tokenizer) == (parent.family, parent.shape, parent.tokenizer)
    assert {run.family for run in CHILDREN} == set(FAMILIES)


@pytest.mark.parametrize("run", [run for run in OTHERS if not run.parent], ids=lambda run: run.name)
def test_sizes_are_as_planned(run: Run) -> None:
    low, high = (4e6, 7e6) if run in LARGER else (0.8e6, 1.6e6)
    assert low < single.parameters(run, VOCABULARIES[run.tokenizer]) < high


# The scheduler


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    np.save(tmp_path / "train.npy", TRAIN)
    np.save(tmp_path / "held_out.npy", HELD_OUT)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER), "utf-8")
    return tmp_path / "train.npy", tmp_path / "held_out.npy", tmp_path / "tokenizer.json"


def test_workers_train_parents_first_and_tell_of_failures(
    tmp_path: Path, files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    base = replace(BASES["llama"], steps=3, batch=2)
    child = replace(base, name="child", parent="llama", kind="fine-tune", steps=1)
    broken = replace(base, name="broken", optimiser="none")
    orphan = replace(child, name="orphan", parent="broken")
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match="2 of 4 runs failed: broken, orphan"):
        scheduler.run_all([orphan, child, broken, base], lambda _: files, out, "cpu", workers=1)
    said = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"llama", "child"}
    assert "no optimiser 'none'" in said
    assert "orphan: failed\nits parent broken failed" in said
    assert "4/4" in said
    scheduler.run_all([child, base], lambda _: files, out, "cpu", workers=2)  # nothing to do: no worker is started


def test_a_worker_that_dies_is_replaced(
    tmp_path: Path, files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = "import sys, json; j = json.loads(sys.stdin.readline()); sys.exit('out of memory')"
    (tmp_path / "dying.py").write_text(dying, "utf-8")
    monkeypatch.setattr(scheduler, "COMMAND", (str(tmp_path / "dying.py"),))
    runs = [replace(BASES["llama"], name=name) for name in ("a", "b")]
    with pytest.raises(SystemExit, match="2 of 2 runs failed: a, b"):
        scheduler.run_all(runs, lambda _: files, tmp_path / "out", "cpu", workers=1)
    said = capsys.readouterr().out
    assert said.count("the worker ended with 1\nout of memory") == 2


def test_the_longest_line_of_descent_goes_first(tmp_path: Path) -> None:
    order = scheduler.Waiting(OTHERS, tmp_path).left
    assert order[0].name == "large-mixtral"
    assert order[-1].steps == 60


def test_a_parent_that_nobody_makes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="descends from nobody"):
        scheduler.Waiting([replace(BASES["llama"], parent="nobody")], tmp_path)
    with pytest.raises(ValueError, match="two runs are called llama"):
        scheduler.Waiting([BASES["llama"], BASES["llama"]], tmp_path)
