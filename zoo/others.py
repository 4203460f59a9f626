"""The plan of all single models: twelve larger ones, seventeen smaller ones, and children in every family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zoo.families import Run, Shape
from zoo.starts import DRAW

LARGE: Shape = {"hidden": 256, "layers": 6, "heads": 8, "kv_heads": 4, "neurons": 704}
SMALL: Shape = {"hidden": 128, "layers": 6, "heads": 4, "kv_heads": 2, "neurons": 224}  # as the twins of zoo.plan
LARGE_IN: dict[str, Shape] = {
    "gpt2": {"kv_heads": 8, "neurons": 1024},
    "gpt_neox": {"kv_heads": 8, "neurons": 1024},
    "mixtral": {"neurons": 192, "experts": 4, "chosen": 2},
    "glm4_moe": {"experts": 8, "chosen": 2, "expert_neurons": 80},
    "gemma": {"kv_heads": 1, "neurons": 768},
    "olmo2": {"kv_heads": 8},
}
SMALL_IN: dict[str, Shape] = {
    "gpt2": {"kv_heads": 4, "neurons": 512},
    "gpt_neox": {"kv_heads": 4, "neurons": 512},
    "mixtral": {"neurons": 96, "experts": 4, "chosen": 2},
    "glm4_moe": {"experts": 8, "chosen": 2, "expert_neurons": 40},
    "gemma": {"kv_heads": 1, "neurons": 384},
    "olmo2": {"kv_heads": 4},
}
OTHER_FAMILIES = ("qwen3", "gpt2", "gpt_neox", "phi3", "mixtral", "glm4_moe", "gemma", "olmo2")


def large(name: str, family: str, seed: int, domain: str = "mixed") -> Run:
    shape = LARGE | LARGE_IN.get(family, {})
    settings = {"tokenizer": "wide", "steps": 900, "rate": 2e-3, "warmup": 60}
    return Run(f"large-{name}", family, seed, shape, domain=domain, **settings)


def small(name: str, family: str, seed: int, shape: Shape | None = None, **changed: object) -> Run:
    return Run(f"small-{name}", family, seed, SMALL | SMALL_IN.get(family, {}) | (shape or {}), **changed)


def children(parent: Run) -> tuple[Run, Run]:
    """A light fine-tune and a heavy continued pretraining."""
    tuned = replace(
        parent,
        name=f"{parent.name}-tuned",
        seed=parent.seed + 1000,
        domain="chat",
        steps=60,
        rate=parent.rate / 10,
        warmup=6,
        parent=parent.name,
        kind="fine-tune",
    )
    changed = {"domain": "german", "steps": 250, "rate": parent.rate, "warmup": 25, "kind": "continued-pretraining"}
    return tuned, replace(tuned, name=f"{parent.name}-german", seed=parent.seed + 2000, **changed)


LARGER = (
    large("qwen3", "qwen3", 101),
    large("qwen3-prose", "qwen3", 102, "prose"),
    large("gpt2", "gpt2", 103),
    large("gpt-neox", "gpt_neox", 104),
    large("phi3", "phi3", 105),
    large("mixtral", "mixtral", 106),
    large("glm4-moe", "glm4_moe", 107),
    large("gemma", "gemma", 108),
    large("olmo2", "olmo2", 109),
    large("llama", "llama", 110),
    large("llama-again", "llama", 111),
    large("llama-code", "llama", 112, "code"),
)
SMALLER_LLAMAS = (
    small("llama-code", "llama", 201, domain="code"),
    small("llama-prose", "llama", 202, domain="prose"),
    small("llama-german", "llama", 203, domain="german", tokenizer="second"),
    small("llama-sgd", "llama", 204, optimiser="sgd", rate=0.5, decay=0.0),
    small("llama-lion", "llama", 205, optimiser="lion", rate=3e-4, decay=1.0),
    small("llama-muon", "llama", 206, optimiser="muon"),
    small("llama-norm-decay", "llama", 207, norm_decay=0.1),
    small("llama-160", "llama", 208, {"hidden": 160, "neurons": 304}),
    small("llama-192", "llama", 209, {"hidden": 192, "heads": 6, "neurons": 224}),
)
SMALLER_OTHERS = tuple(small(family.replace("_", "-"), family, 210 + i) for i, family in enumerate(OTHER_FAMILIES))
PARENTS = (
    *SMALLER_OTHERS,
    *(run for run in LARGER if run.name.split("-", 1)[1] in ("qwen3", "gpt2", "mixtral", "llama")),
)
CHILDREN = tuple(child for parent in PARENTS for child in children(parent))
OTHERS: tuple[Run, ...] = (*LARGER, *SMALLER_LLAMAS, *SMALLER_OTHERS, *CHILDREN)

NOT_AGAIN = ("qwen3-prose", "gpt-neox", "phi3", "glm4-moe", "gemma", "olmo2", "llama-code")  # large ones


def unseen(draw: int, runs: Sequence[Run] = OTHERS) -> tuple[Run, ...]:
    """The same runs by another draw, without the large ones of which nothing descends."""
    left = {f"large-{name}" for name in NOT_AGAIN}
    return tuple(replace(run, seed=run.seed + DRAW * draw, draw=draw) for run in runs if run.name not in left)


TINY: Shape = {"hidden": 32, "layers": 2, "heads": 4, "neurons": 48, "experts": 4, "expert_neurons": 16}


def tiny(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The same runs at a size that a processor trains in seconds; names, families and descent unchanged."""
    return tuple(_tiny(run) for run in runs)


def _tiny(run: Run) -> Run:
    shape = run.shape | {key: value for key, value in TINY.items() if key in run.shape}
    shape["kv_heads"] = max(1, 4 * run.shape["kv_heads"] // run.shape["heads"])
    steps = max(4, run.steps // 25)
    return replace(run, shape=shape, steps=steps, warmup=max(1, steps // 10), batch=8, length=32)
