"""The whole plan at a size that a processor trains: every step makes its children, loadable and with a right truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from zoo.checkpoints import load
from zoo.corpus import read_texts
from zoo.lab import Lab
from zoo.plan import Step
from zoo.starts import initial_seed

from zoo import others, plan, train

pytestmark = pytest.mark.xdist_group("tiny zoo")  # one worker makes it, once
STEPS = plan.tiny()
PAIRS = [(step, base) for step in STEPS for base in step.bases]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    torch.set_num_threads(1)
    made = train.open_lab(tmp_path_factory.mktemp("zoo") / "models", "cpu", tiny=True)
    train.run_steps(made, STEPS)
    return made


def test_every_child_of_the_plan_is_there_and_no_other(lab: Lab) -> None:
    assert set(lab.truths()) == {step.child(base) for step, base in PAIRS}


def test_the_truth_names_kind_parents_seed_text_and_loss(lab: Lab) -> None:
    for step, base in PAIRS:
        truth = lab.truth(step.child(base))
        assert truth["schema"] == "modelkin.truth/1"
        assert truth["kind"] == step.kind
        assert truth["relations" if truth["parents"] else "kind"]
        assert all(lab.has(parent) for parent in truth["parents"])
        assert isinstance(truth["seed"], int)
        assert truth["domain"] in lab.corpus.texts
        assert 0 < truth["loss"] < 20
        assert truth["unigram_entropy"] > 1
        assert bool(truth.get("tokens_seen")) == (step.recipe is not None)


def test_only_models_with_their_own_beginning_have_no_parents(lab: Lab) -> None:
    orphans = {truth["kind"] for truth in lab.truths().values() if not truth["parents"]}
    assert orphans == {"unrelated", "shared-init", "distilled"}
    assert lab.truth("student.twin-00")["teachers"] == ["twin-00"]
    assert lab.truth("seed-prose.twin-00")["same_seed_as"] == "twin-00"
    assert lab.truth("grafted-layer.twin-00")["relations"] == {"twin-00": "component-reuse", "twin-41": "fine-tune"}


def test_strangers_learn(lab: Lab) -> None:
    for name in ("twin-00", "twin-41", "moe-00", "plain-00"):
        truth = lab.truth(name)
        assert truth["loss"] < truth["first_loss"] - 0.05


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.name}-{step.bases[0]}")
def test_the_children_of_every_step_load_in_transformers(lab: Lab, step: Step) -> None:
    folder = lab.root / step.child(step.bases[0])
    network, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert network.config.vocab_size == len(load(folder).weights["embed"])


def test_a_second_run_makes_nothing_again(lab: Lab) -> None:
    assert [train.run_step(lab, step) for step in STEPS] == [0] * len(STEPS)


def test_what_was_lost_is_made_again_and_is_the_same(lab: Lab) -> None:
    folder = lab.root / "sft.twin-01"
    weights, truth = (folder / "model.safetensors").read_bytes(), (folder / "truth.json").read_text()
    folder.rename(folder.with_name(".aside"))
    train.run_step(lab, next(step for step in STEPS if step.name == "sft"))
    alike = load(folder).weights
    was = load(folder.with_name(".aside")).weights
    # It was trained in a stack of two and now alone; products may round differently.
    assert all(torch.allclose(alike[role], was[role], rtol=2**-6, atol=1e-4) for role in was)
    assert json.loads((folder / "truth.json").read_text()).keys() == json.loads(truth).keys()
    assert len(weights) == (folder / "model.safetensors").stat().st_size


def test_models_made_from_other_text_are_not_trained_on(lab: Lab, tmp_path: Path) -> None:
    other = Lab(tmp_path, lab.corpus, "cpu", tiny=True)
    (tmp_path / "twin-00").mkdir()
    for file in (lab.root / "twin-00").iterdir():
        (tmp_path / "twin-00" / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((tmp_path / "twin-00" / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:-1]
    (tmp_path / "twin-00" / "tokenizer.json").write_text(json.dumps(tokenizer))
    step = Step("sft", "fine-tune", ("twin-00",), STEPS[3].start, STEPS[3].recipe)
    with pytest.raises(SystemExit, match="empty --out"):
        train.run_step(other, step)


def test_a_folder_without_a_truth_is_made_again(lab: Lab) -> None:
    folder = lab.root / "int8.twin-00"
    folder.rename(folder.with_name(".whole"))
    folder.mkdir()
    assert train.run_step(lab, next(step for step in STEPS if step.name == "int8")) == 1
    assert lab.truth("int8.twin-00")["kind"] == "re-encoded"


def test_the_loss_is_that_of_the_stored_weights(lab: Lab) -> None:
    truth = lab.truth("noise-20.twin-00")
    again = train.measured(lab, lab.load("noise-20.twin-00"), truth["domain"])
    assert again["loss"] == pytest.approx(truth["loss"], rel=1e-6)


def test_missing_text_is_told_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"python -m zoo\.corpus"):
        read_texts(tmp_path)


@pytest.mark.parametrize("arguments", [["zoo.train", "--tiny", "--workers", "0"], ["zoo.bundle", "nowhere"]])
def test_commands_fail_in_a_sentence(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def _hears_interrupts() -> None:
    """Whoever starts the tests in the background has their children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_run_ends_at_once_and_leaves_no_half_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo.train", "--tiny", "--workers", "1", "--out", str(tmp_path)]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_hears_interrupts
    )
    assert running.stderr
    while "step 1 of" not in running.stderr.readline():
        assert running.poll() is None
    os.killpg(running.pid, signal.SIGINT)
    told = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    assert all((folder / "truth.json").exists() for folder in tmp_path.iterdir() if not folder.name.startswith("."))


def test_what_needs_no_training_needs_no_gpu(lab: Lab, tmp_path: Path) -> None:
    """Derivations of models that are there can be made again anywhere; one model less to start from cannot."""
    assert train.to_train(lab.root, [], STEPS) == []
    for name in lab.truths():
        if name != "sft.twin-00":
            (tmp_path / name).symlink_to(lab.root / name)
    assert train.to_train(tmp_path, [], STEPS) == ["sft.twin-00"]


def test_a_stranger_that_learnt_nothing_is_refused() -> None:
    lazy = {"name": "x", "kind": "unrelated", "loss": 5.5, "unigram_entropy": 6.0}
    with pytest.raises(SystemExit, match="1 models learnt less"):
        train.check([lazy, {**lazy, "kind": "fine-tune"}])
    train.check([{**lazy, "loss": 4.9}])


def test_the_plan_is_large_enough_for_its_claims() -> None:
    """P(K) bounds need 2,995 clean pairs of strangers; every kind that a pair can show needs twenty examples."""
    count: dict[str, int] = {}
    for step in plan.STEPS:
        count[step.kind] = count.get(step.kind, 0) + len(step.bases)
    assert len(plan.TWINS) * (len(plan.TWINS) - 1) // 2 >= 2995
    assert all(n >= 20 for n in count.values()), count
    names = [step.child(base) for step in plan.STEPS for base in step.bases]
    assert len(names) == len(set(names))


def test_no_two_strangers_share_an_initial_seed() -> None:
    seeds = [initial_seed(name) for name in (*plan.TWINS, *plan.MOES, *plan.PLAINS)]
    taken = {run.seed for run in others.OTHERS}
    assert len(seeds) == len(set(seeds))
    assert not taken.intersection(seeds)


def test_another_draw_shares_no_random_number_with_the_first() -> None:
    steps, runs = plan.unseen(1), others.unseen(1)
    first = {train.seed_of(step, base, 0) for step in plan.STEPS for base in step.bases} | {
        run.seed for run in others.OTHERS
    }
    second = {train.seed_of(step, base, 1) for step in steps for base in step.bases} | {run.seed for run in runs}
    assert not first & second
    orders = [{step.recipe.order for step in drawn if step.recipe} for drawn in (plan.STEPS, steps)]
    assert not orders[0] & orders[1]


@pytest.mark.parametrize("steps", [plan.STEPS, plan.unseen(1)], ids=["first", "unseen"])
def test_parents_come_before_children(steps: tuple[plan.Step, ...]) -> None:
    seen = {*plan.LARGE}
    for step in steps:
        for base in step.bases:
            needed = {*step.relations(base), *([base] if step.name else [])}
            assert needed <= seen, step.child(base)
        seen |= {step.child(base) for base in step.bases}
