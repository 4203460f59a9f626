"""What the zoo consists of, as data: strangers, and every step that makes one model from others.

A child is called after its step and its base, `sft.twin-03`. Steps are in order: parents come before children.
The single models of other families are listed in `zoo.others`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from zoo import derive, disguise, starts
from zoo.checkpoints import Model
from zoo.lab import Lab
from zoo.stack import Recipe
from zoo.starts import LARGE, MOE, PLAIN, TWIN, TWINS, Start, children, stranger

PLAINS = tuple(f"plain-{i:02}" for i in range(46))  # 1,035 pairs
MOES = tuple(f"moe-{i:02}" for i in range(46))  # 1,035 pairs
SMALL, SOME, FEW = TWINS[:12], TWINS[:8], TWINS[:6]
BASES = (*SMALL, *LARGE)

ORDERS = 1000  # orders of the text of one draw lie below those of the next

Relations = Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """`start` gives the model at the outset, from (lab, base, seed); `recipe` trains it on, or None leaves it so.

    `finish` may change the trained model once more. `others` names parents beside the base, and how the child stands
    to them. Where a child does not descend from its base, the base is a teacher or has the same initial seed.
    """

    name: str
    kind: str
    bases: tuple[str, ...]
    start: Start
    recipe: Recipe | None = None
    finish: Callable[[Lab, str, Model], Model] | None = None
    others: Callable[[str], Relations] = lambda _: {}
    descends: bool = True

    def child(self, base: str) -> str:
        return f"{self.name}.{base}" if self.name else base

    def relations(self, base: str) -> dict[str, str]:
        return {**({base: self.kind} if self.descends else {}), **self.others(base)}

    def seed(self, base: str, draw: int = 0) -> int:
        return crc32(f"{self.child(base)}|{draw}".encode() if draw else self.child(base).encode())

    @property
    def teacher(self) -> bool:
        return self.recipe is not None and self.recipe.distil is not None


def full(domain: str, order: int, **changed: Any) -> Recipe:
    """As long and as fast as a pretraining."""
    return replace(Recipe(domain, 800, 3e-3, order=order), **changed)


def sparse(lab: Lab, base: str, tuned: Model) -> Model:
    return derive.sparse_update(lab.load(base), tuned, density=0.1)


def host(base: str) -> Relations:
    return {stranger(base): "fine-tune"}


def decoy(base: str) -> Relations:
    return {stranger(base): "merge"}


def merge(name: str, start: Start, *steps: str) -> Step:
    """Of children of one base."""
    relations: Callable[[str], Relations] = lambda base: dict.fromkeys(children(base, *steps), "merge")  # noqa: E731
    return Step(name, "merge", SOME, start, others=relations, descends=False)


def strangers(names: tuple[str, ...], config: Mapping[str, Any], recipe: Recipe) -> Step:
    return Step("", "unrelated", names, starts.anew(config), recipe, descends=False)


def child_of(step: str, bases: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{step}.{base}" for base in bases)


def upcycled(function: Callable[..., Model], **more: Any) -> Start:
    return starts.seeded(function, experts=4, top_k=2, **more)


UNRELATED = (
    strangers(TWINS, TWIN, full("mixed", 1)),
    strangers(MOES, MOE, full("mixed", 2, steps=500)),
    strangers(PLAINS, PLAIN, full("mixed", 3, steps=500)),
)
FINE_TUNES = (
    Step("sft", "fine-tune", BASES, starts.same, Recipe("chat", 80, 3e-4, order=11)),
    Step("sft-prose", "fine-tune", BASES, starts.same, Recipe("prose", 80, 3e-4, order=12)),
    Step("rl", "fine-tune", BASES, starts.same, Recipe("chat", 40, 1e-4, order=13), finish=sparse),
    Step("lora-4", "merged-lora", BASES, starts.same, Recipe("chat", 120, 1e-3, order=14, decay=0.0, lora_rank=4)),
    Step("lora-16", "merged-lora", BASES, starts.same, Recipe("prose", 120, 1e-3, order=15, decay=0.0, lora_rank=16)),
)
CONTINUED = (
    Step("cpt-light", "continued-pretraining", BASES, starts.same, Recipe("prose", 120, 1e-3, order=16)),
    Step("cpt-heavy", "continued-pretraining", BASES, starts.same, full("mixed", 17)),
    Step("cpt-german", "continued-pretraining", BASES, starts.same, Recipe("german", 400, 2e-3, order=18)),
    Step("cpt-rewarmed", "continued-pretraining", BASES, starts.same, Recipe("mixed", 200, 3e-3, order=19)),
    Step("pooled", "continued-pretraining", (*SOME, *LARGE), starts.fewer_values, Recipe("mixed", 150, 1e-3, order=29)),
)
VOCABULARIES = (
    Step("swap", "vocabulary-surgery", BASES, starts.other_tokenizer, full("german", 20)),
    Step("extend", "vocabulary-surgery", BASES, starts.more_words, Recipe("german", 250, 1e-3, order=21)),
)
RESHAPED = (
    Step("moe-copied", "moe-upcycle", BASES, upcycled(derive.upcycle_copied), Recipe("mixed", 150, 1e-3, order=22)),
    Step(
        "moe-split",
        "moe-upcycle",
        BASES,
        upcycled(derive.upcycle_split, scale=4.0),
        Recipe("mixed", 200, 1e-3, order=23),
    ),
    Step("moe-partly", "moe-upcycle", BASES, upcycled(derive.upcycle_partly), Recipe("mixed", 200, 1e-3, order=24)),
    Step("upscale", "depth-upscale", BASES, starts.upscaled, Recipe("mixed", 150, 1e-3, order=25)),
    Step("shallow", "depth-prune", BASES, starts.shallower, Recipe("mixed", 150, 1e-3, order=26)),
    Step("narrow", "width-prune", BASES, starts.narrower, Recipe("mixed", 250, 1e-3, order=27)),
    Step("stacked", "depth-upscale", SOME, starts.upscaled),
    Step("cut", "depth-prune", SOME, starts.shallower),
    Step("squeezed", "width-prune", SOME, starts.narrower),
)
COMPONENTS = (
    Step("heads", "component-reuse", (*SOME, *LARGE), starts.more_heads, Recipe("mixed", 300, 2e-3, order=28)),
    Step("norms", "component-reuse", FEW, starts.seeded(derive.keep_norms), full("mixed", 30)),
    Step("norms", "component-reuse", MOES[:3], starts.norms_and_tokenizer, full("prose", 36)),
    Step("embeddings", "component-reuse", FEW, starts.seeded(derive.keep_embeddings), full("mixed", 31)),
    Step("layer", "component-reuse", FEW, starts.one_layer, full("mixed", 32)),
    Step("neurons", "component-reuse", FEW, starts.some_neurons, full("mixed", 33)),
    Step(
        "grafted-layer", "component-reuse", FEW, starts.grafted_layer, Recipe("mixed", 60, 5e-4, order=34), others=host
    ),
    Step(
        "grafted-neurons",
        "component-reuse",
        FEW,
        starts.grafted_neurons,
        Recipe("mixed", 60, 5e-4, order=35),
        others=host,
    ),
)
NOT_DESCENT = (
    Step("seed-prose", "shared-init", TWINS[:10], starts.same_seed, full("prose", 37), descends=False),
    Step("seed-german", "shared-init", TWINS[10:20], starts.same_seed, full("german", 38), descends=False),
    Step("student", "distilled", SOME, starts.newborn, full("mixed", 39, distil="logits"), descends=False),
    Step(
        "narrow-student", "distilled", SOME, starts.narrow_newborn, full("mixed", 40, distil="logits"), descends=False
    ),
    Step("shadow", "distilled", SOME, starts.newborn, full("mixed", 41, distil="hidden"), descends=False),
)
MERGES = (
    merge("linear", starts.merge(derive.linear, "sft", "sft-prose", weights=[0.6, 0.4]), "sft", "sft-prose"),
    merge("slerp", starts.slerped, "sft", "sft-prose"),
    merge("ties", starts.task_merge(derive.ties, density=0.3), "sft", "cpt-light"),
    merge("dare", starts.task_merge(derive.dare, density=0.6), "sft", "cpt-light"),
    merge("passthrough", starts.stacked, "sft", "cpt-light"),
    merge("soup", starts.merge(derive.soup, "sft", "sft-prose", "cpt-light"), "sft", "sft-prose", "cpt-light"),
)
RE_ENCODED = (
    *(Step(s, "re-encoded", FEW, starts.by(derive.quantised, scheme=s)) for s in ("int8", "int4", "fp8", "nf4")),
    *(Step(f"sparse-{n}", "re-encoded", FEW, starts.by(derive.pruned, share=n / 100)) for n in (30, 50)),
)
CHAINS = (
    Step("shallow", "depth-prune", child_of("cpt-light", FEW), starts.shallower, Recipe("mixed", 150, 1e-3, order=42)),
    Step("sft", "fine-tune", child_of("linear", FEW), starts.same, Recipe("chat", 80, 3e-4, order=43)),
    Step(
        "cpt-german",
        "continued-pretraining",
        child_of("moe-copied", FEW),
        starts.same,
        Recipe("german", 200, 2e-3, order=44),
    ),
)
HIDDEN_UNDER = ("sft", "cpt-heavy", "swap", "shallow", "upscale", "narrow", "moe-copied")
DISGUISES = (
    Step("masked", "obfuscated", SMALL, starts.masked),
    *(Step("masked", "obfuscated", child_of(step, (*FEW, *LARGE)), starts.masked_with_noise) for step in HIDDEN_UNDER),
    *(
        Step(name.replace("_", "-"), "obfuscated", (MOES if "experts" in name else TWINS)[:2], starts.moved(name))
        for name in disguise.MOVES
    ),
    *(Step(f"noise-{n}", "obfuscated", FEW, starts.with_noise(n / 1000)) for n in (5, 10, 20)),
    Step("shuffled", "obfuscated", FEW, starts.seeded(disguise.shuffle_layers)),
    *(Step(f"decoy-{n}", "merge", FEW, starts.with_decoy(n / 100), others=decoy) for n in (10, 30, 50)),
)
STEPS: tuple[Step, ...] = (
    *UNRELATED,
    *FINE_TUNES,
    *CONTINUED,
    *VOCABULARIES,
    *RESHAPED,
    *COMPONENTS,
    *NOT_DESCENT,
    *MERGES,
    *RE_ENCODED,
    *CHAINS,
    *DISGUISES,
)

UNSEEN = {*TWINS[:10], *LARGE, *MOES[:3]}
UNSEEN_STRANGERS = {*TWINS[:20], *TWINS[40:60], *MOES[:16], *PLAINS[:16]}


def unseen(draw: int, steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    """The same steps by another draw, on fewer bases: to try what was set on the first on models nobody has seen.

    Ten of the small bases instead of twelve, forty twins that are strangers instead of eighty; the text is read in
    another order.
    """
    return tuple(fewer for step in steps if (fewer := _unseen(step, draw)).bases)


def _unseen(step: Step, draw: int) -> Step:
    wanted = UNSEEN if step.name and step.name != "seed-german" else UNSEEN_STRANGERS
    bases = tuple(base for base in step.bases if base.rpartition(".")[2] in wanted)
    recipe = step.recipe and replace(step.recipe, order=step.recipe.order + ORDERS * draw)
    return replace(step, bases=bases, recipe=recipe)


TINY_TWINS = {"twin-00", "twin-01", *(stranger(name) for name in ("twin-00", "twin-01"))}


def tiny(steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    """The same steps on few bases and for few updates: minutes on a processor."""
    return tuple(small for step in steps if (small := _tiny(step)).bases)


def _tiny(step: Step) -> Step:
    wanted = TINY_TWINS if not step.name else {"twin-00", "twin-01"}
    bases = tuple(b for b in step.bases if b.rpartition(".")[2] in {*wanted, *MOES[:2], *PLAINS[:2]})
    if "seed-german" in step.name:
        bases = step.bases[:1]
    recipe = step.recipe and replace(step.recipe, steps=max(2, step.recipe.steps // 40), batch=4, length=32)
    return replace(step, bases=bases, recipe=recipe)
