"""Train one model of any family through transformers, or be a worker that trains one after another.

`python -m zoo.single OUT DEVICE` reads jobs from standard input, a JSON object a line, and answers each with a line on
standard output; `zoo.scheduler` keeps several such workers busy. The same seed gives the same bytes on the same kind of
processor; on a GPU, where some sums have no fixed order, it gives the same batches and the same initial weights.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from zoo import experts
from zoo.corpus import unigram_entropy
from zoo.families import Run, config_for
from zoo.optimisers import learning_rate, optimisers

__all__ = ["Run", "config_for", "parameters", "train_one", "vocabulary_size"]

EVALUATED = 512  # windows of held-out text that measure a loss
AT_ONCE = 64
OPTIMISER = ("optimiser", "rate", "warmup", "decay", "norm_decay", "batch", "length")
STORED = torch.bfloat16

Array = np.ndarray[Any, np.dtype[np.uint16]]


def train_one(
    run: Run, tokens: Array, held_out: Array, vocabulary: int, tokenizer: dict[str, Any], out: Path, device: str = "cpu"
) -> dict[str, Any]:
    """Train `run` into the folder out/name and return its truth. A folder that is there already is left as it is."""
    folder = out / run.name
    if (folder / "truth.json").exists():
        return json.loads((folder / "truth.json").read_text("utf-8"))
    logging.disable_progress_bar()
    network, unseen = initial(run, vocabulary, out).to(device), _on(held_out, device)
    first = held_out_loss(network, unseen, run)
    train(network, run, _on(tokens, device))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.to(STORED))  # measured as it will be stored
    truth = {
        "schema": "modelkin.truth/1",
        "name": run.name,
        "kind": run.kind,
        "parents": [] if run.parent is None else [run.parent],
        **{key: getattr(run, key) for key in ("family", "seed", "domain", "tokenizer", "steps")},
        **({"draw": run.draw} if run.draw else {}),
        "tokens_seen": run.steps * run.batch * run.length,
        "parameters": sum(p.numel() for p in network.parameters()),
        "optimiser": {key: getattr(run, key) for key in OPTIMISER},
        "loss": held_out_loss(network, unseen, run),
        "first_loss": first,
        "unigram_entropy": unigram_entropy(held_out, vocabulary),
    }
    save(network, tokenizer, truth, folder)
    return truth


def _on(tokens: Array, device: str) -> torch.Tensor:
    return torch.from_numpy(np.asarray(tokens, dtype=np.int64)).to(device)


def initial(run: Run, vocabulary: int, out: Path) -> PreTrainedModel:
    """Random by the seed, or as the parent was stored; float32."""
    torch.manual_seed(run.seed)
    if run.parent is None:
        network = AutoModelForCausalLM.from_config(config_for(run, vocabulary), dtype=torch.float32)
    else:
        settings = {"dtype": torch.float32, "attn_implementation": "sdpa"}
        network = AutoModelForCausalLM.from_pretrained(out / run.parent, **settings)
    experts.batch(network)
    return network


def parameters(run: Run, vocabulary: int) -> int:
    """How many numbers the model of `run` has, without making them; a tied embedding counts once."""
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config_for(run, vocabulary))
    network.tie_weights()
    return sum(p.numel() for p in network.parameters())


def train(network: PreTrainedModel, run: Run, ids: torch.Tensor) -> None:
    """`run.steps` steps on windows drawn with replacement. Nothing waits for the device between steps."""
    balances, steppers = experts.balances(network), optimisers(network, run)
    draws = (run.steps, run.batch, 1)
    starts = torch.randint(0, len(ids) - run.length, draws, generator=torch.Generator().manual_seed(run.seed))
    starts, window = starts.to(ids.device), torch.arange(run.length + 1, device=ids.device)
    routed = {"output_router_logits": True} if run.family == "mixtral" else {}
    network.train()
    for step in range(run.steps):
        batch = ids[starts[step] + window]
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.is_cuda):
            output = network(input_ids=batch[:, :-1], use_cache=False, **routed)
        loss = cross_entropy(output.logits, batch)
        if routed:
            loss = loss + network.config.router_aux_loss_coef * output.aux_loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = learning_rate(run, step)
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        for balance in balances:
            balance.step()
    network.eval()


def cross_entropy(logits: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(network: PreTrainedModel, ids: torch.Tensor, run: Run) -> float:
    """Mean over evenly spaced windows of the held-out text, in nats a token, in float32."""
    network.eval()
    starts = torch.linspace(0, len(ids) - run.length - 1, EVALUATED, dtype=torch.float64).long()
    starts, window = starts.to(ids.device).unsqueeze(1), torch.arange(run.length + 1, device=ids.device)
    total = torch.zeros((), dtype=torch.float64, device=ids.device)
    for part in starts.split(AT_ONCE):
        batch = ids[part + window]
        total += cross_entropy(network(input_ids=batch[:, :-1], use_cache=False).logits, batch).double() * len(part)
    return float(total) / EVALUATED


def save(network: PreTrainedModel, tokenizer: dict[str, Any], truth: dict[str, Any], folder: Path) -> None:
    """As an ordinary folder under the family's released names; it appears whole or not at all."""
    for parameter in network.parameters():
        parameter.data = parameter.data.to(STORED)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        network.save_pretrained(partial)
        (partial / "generation_config.json").unlink(missing_ok=True)
        (partial / "model.safetensors").chmod(0o644)
        (partial / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n", "utf-8")
        (partial / "truth.json").write_text(json.dumps(truth, indent=2) + "\n", "utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # a folder without a truth is no model
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def vocabulary_size(tokenizer: dict[str, Any]) -> int:
    """One more than the largest id of a tokenizer.json."""
    words = tokenizer["model"]["vocab"].values()
    return 1 + max([*words, *(token["id"] for token in tokenizer.get("added_tokens", ()))])


def job_line(run: Run, train_path: Path, held_out_path: Path, tokenizer_path: Path) -> str:
    return json.dumps(
        {"run": asdict(run), "paths": [str(p.resolve()) for p in (train_path, held_out_path, tokenizer_path)]}
    )


def work(out: Path, device: str) -> None:
    """Answer jobs until there are no more: a line with the truth and the seconds, or with the error."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not break the answers
    for line in sys.stdin:
        job, began = json.loads(line), time.monotonic()
        try:
            tokens, held_out = (np.load(path, mmap_mode="r") for path in job["paths"][:2])
            tokenizer = json.loads(Path(job["paths"][2]).read_text("utf-8"))
            truth = train_one(Run(**job["run"]), tokens, held_out, vocabulary_size(tokenizer), tokenizer, out, device)
            answer = {"truth": truth, "seconds": time.monotonic() - began}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
