"""Make the whole zoo:  python -m zoo.train [--out DIR] [--tiny] [--unseen DRAW]

Trains the strangers, then every derivative of `zoo.plan` and `zoo.others`, as Hugging Face folders with a truth.json
each. A folder that is there is not made again, so an interrupted run goes on where it stopped. One GPU, but for what
needs no training, which any machine makes from the models it has; with --tiny a few very small models on the processor,
in minutes. The text must have been fetched (python -m zoo.corpus), except
with --tiny, which reads the standard library.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from zoo import corpus as texts
from zoo import others, plan
from zoo.checkpoints import Model
from zoo.commands import run, say
from zoo.corpus import Corpus
from zoo.families import Run
from zoo.lab import Lab, as_stored, extended
from zoo.plan import Step
from zoo.scheduler import run_all
from zoo.stack import Recipe, Stack, held_out_losses, train
from zoo.starts import initial_seed

OUT = Path(__file__).resolve().parent / "made" / "models"
AT_ONCE = 40  # models in one stack: eighty need twice the memory and are no faster
GAINED = 1.0  # nats a token below the unigram entropy that a trained model must reach


def open_lab(out: Path, device: str, tiny: bool, draw: int = 0) -> Lab:
    out.mkdir(parents=True, exist_ok=True)
    found = texts.tiny_texts() if tiny else texts.read_texts()
    corpus = Corpus.prepare(found, out / ".tokens")
    return Lab(out, extended(corpus), device, tiny, draw)


def run_steps(lab: Lab, steps: Sequence[Step]) -> None:
    began = time.monotonic()
    for number, step in enumerate(steps, 1):
        made = run_step(lab, step)
        minutes = (time.monotonic() - began) / 60
        say(
            f"[{number}/{len(steps)}, {minutes:.1f} min] {step.name or step.bases[0]}: {made} of {len(step.bases)} made"
        )


def run_step(lab: Lab, step: Step) -> int:
    """Make the children that are not there yet; models of one shape are trained together. Returns how many."""
    missing = [base for base in step.bases if not lab.has(step.child(base))]
    together: dict[str, list[tuple[str, Model]]] = defaultdict(list)
    for base in missing:
        model = step.start(lab, base, step.seed(base, lab.draw))
        together[shape_of(model)].append((base, model))
    for group in together.values():
        for i in range(0, len(group), AT_ONCE):
            make(lab, step, group[i : i + AT_ONCE])
    return len(missing)


def shape_of(model: Model) -> str:
    return json.dumps({role: list(tensor.shape) for role, tensor in model.weights.items()})


def make(lab: Lab, step: Step, group: list[tuple[str, Model]]) -> None:
    names, models = [base for base, _ in group], [model for _, model in group]
    if step.recipe:
        finished, learnt = trained(lab, step, step.recipe, names, models)
    else:
        finished = [as_stored(model) for model in models]
        learnt = [measured(lab, m, lab.truth(b)["domain"]) for b, m in zip(names, finished, strict=True)]
    for base, model, facts in zip(names, finished, learnt, strict=True):
        lab.keep(model, truth(step, base, lab.draw) | facts)


def trained(
    lab: Lab, step: Step, recipe: Recipe, names: Sequence[str], models: list[Model]
) -> tuple[list[Model], list[dict[str, Any]]]:
    tokenizer = lab.tokenizer_name(models[0])
    if tokenizer == "renumbered":
        raise SystemExit(f"{names[0]} has a tokenizer that this text does not give: choose an empty --out")
    text, unseen = (lab.corpus.tokens(tokenizer, recipe.domain, side) for side in texts.SPLITS)
    teacher = Stack([lab.load(base) for base in names], lab.device) if step.teacher else None
    before = held_out_losses(Stack(models, lab.device), unseen, windows=lab.windows)
    stack = Stack(models, lab.device, [step.seed(base, lab.draw) for base in names])
    finished = train(stack, recipe, text, teacher, lambda line: say(f"  {step.name or names[0]}: {line}"))
    if step.finish:
        finished = [step.finish(lab, base, model) for base, model in zip(names, finished, strict=True)]
    after = held_out_losses(Stack(finished, lab.device), unseen, windows=lab.windows)
    told = {"steps": recipe.steps, "tokens_seen": recipe.tokens, "optimiser": optimiser(recipe)}
    learnt = {"domain": recipe.domain, "tokenizer": tokenizer, "unigram_entropy": lab.entropy(tokenizer, recipe.domain)}
    return finished, [{**learnt, "loss": a, "first_loss": b, **told} for a, b in zip(after, before, strict=True)]


def optimiser(recipe: Recipe) -> dict[str, Any]:
    kept = ("rate", "warmup", "decay", "batch", "length", "order", "lora_rank", "distil")
    return {"optimiser": "adamw"} | {key: value for key, value in asdict(recipe).items() if key in kept}


def measured(lab: Lab, model: Model, domain: str) -> dict[str, Any]:
    """Of a model that was not trained. A disguise may have renumbered its tokens, so it reads by its own tokenizer."""
    ids = texts.encode(texts.load_tokenizer(model.tokenizer or {}), lab.corpus.texts[domain].held_out)
    loss = held_out_losses(Stack([model], lab.device), ids, windows=lab.windows)[0]
    entropy = texts.unigram_entropy(ids, model.config["vocab_size"])
    return {"domain": domain, "tokenizer": lab.tokenizer_name(model), "loss": loss, "unigram_entropy": entropy}


def truth(step: Step, base: str, draw: int = 0) -> dict[str, Any]:
    relations = step.relations(base)
    told: dict[str, Any] = {"name": step.child(base), "kind": step.kind, "parents": list(relations)}
    if relations:
        told["relations"] = relations
    elif step.teacher:
        told["teachers"] = [base]
    elif step.kind == "shared-init":
        told["same_seed_as"] = base
    return told | {"seed": seed_of(step, base, draw)}


def seed_of(step: Step, base: str, draw: int) -> int:
    begins = step.kind in ("unrelated", "shared-init")
    return initial_seed(base, draw) if begins else step.seed(base, draw)


def run_singles(lab: Lab, runs: Sequence[Run], workers: int, stop: threading.Event | None = None) -> None:
    lab.corpus.ensure(sorted({(run.tokenizer, run.domain) for run in runs}))

    def arrays(run: Run) -> tuple[Path, Path, Path]:
        train_path, held_out_path = (lab.corpus.path(run.tokenizer, run.domain, side) for side in texts.SPLITS)
        return train_path, held_out_path, lab.corpus.tokenizer_path(run.tokenizer)

    run_all(runs, arrays, lab.root, lab.device, workers, stop)


def make_all(lab: Lab, runs: Sequence[Run], steps: Sequence[Step], workers: int) -> None:
    """Strangers and single models side by side, then what descends from them."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        singles = beside.submit(run_singles, lab, runs, workers, stop)
        try:
            run_steps(lab, [step for step in steps if not step.name])
            singles.result()
        except BaseException:
            stop.set()
            raise
    run_steps(lab, [step for step in steps if step.name])


def to_train(out: Path, runs: Sequence[Run], steps: Sequence[Step]) -> list[str]:
    """The models that are not there yet and need training; all others can be made from their parents anywhere."""
    children = [step.child(base) for step in steps if step.recipe for base in step.bases]
    return [name for name in [run.name for run in runs] + children if not (out / name / "truth.json").exists()]


def share_the_gpu() -> None:
    """Kernels of several processes run at the same time only under NVIDIA's MPS. Must come before the first use."""
    if control := shutil.which("nvidia-cuda-mps-control"):
        subprocess.run([control, "-d"], check=False)  # says so and fails where one is running already


def check(truths: Iterable[dict[str, Any]]) -> None:
    """Strangers must have learnt something: a test on untrained models would mean nothing."""
    lazy = [t for t in truths if t["kind"] == "unrelated" and t["unigram_entropy"] - t["loss"] < GAINED]
    for t in lazy:
        say(f"{t['name']}: loss {t['loss']:.2f}, unigram entropy only {t['unigram_entropy']:.2f} nats a token")
    if lazy:
        raise SystemExit(f"{len(lazy)} models learnt less than {GAINED} nat a token")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="where the models go")
    parser.add_argument("--tiny", action="store_true", help="very small models, on the processor")
    parser.add_argument("--unseen", type=int, metavar="DRAW", help="a smaller zoo from other random numbers")
    parser.add_argument("--workers", type=int, default=12, help="single models trained side by side")
    arguments = parser.parse_args()
    if not arguments.tiny:
        share_the_gpu()
    device = "cuda" if torch.cuda.is_available() and not arguments.tiny else "cpu"
    if arguments.workers < 1:
        raise SystemExit("--workers: at least one")
    draw = arguments.unseen or 0
    if draw < 0:
        raise SystemExit("--unseen: a number from one on")
    runs, steps = (others.unseen(draw), plan.unseen(draw)) if draw else (others.OTHERS, plan.STEPS)
    if arguments.tiny:
        runs, steps = others.tiny(runs), plan.tiny(steps)
    if device == "cpu" and not arguments.tiny and (count := len(to_train(arguments.out, runs, steps))):
        raise SystemExit(f"no GPU found, and {count} models are to be trained (--tiny makes a very small zoo without)")
    lab = open_lab(arguments.out, device, arguments.tiny, draw)
    if any(truth.get("draw", 0) != draw for truth in lab.truths().values()):
        raise SystemExit(f"{arguments.out} holds models of another draw: choose an empty --out")
    make_all(lab, runs, steps, arguments.workers)
    if not arguments.tiny:
        check(lab.truths().values())
    say(f"{len(lab.truths())} models in {arguments.out}")


if __name__ == "__main__":
    run(main)
