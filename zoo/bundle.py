"""Choose from a zoo the eight models that ship inside the package:  python -m zoo.bundle MODELS [--out DIR]

MODELS is the folder that `python -m zoo.train` filled. Writes DIR/models, a Hugging Face folder a model under a name
that tells nothing, and DIR/truth.json, which tells everything. The disguised copy gets other tensor names as well.
Nothing is written where the eight are too big, where one of them learnt too little (--unchecked writes it all the
same, to try the script on a tiny zoo), or where a file names a folder of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from zoo.checkpoints import Model, by_name, load, write_json, write_sides, write_tensors
from zoo.commands import run, say
from zoo.corpus import load_tokenizer
from zoo.lab import SCHEMA, as_stored
from zoo.stack import Stack, next_token_losses
from zoo.train import GAINED

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "src" / "modelkin" / "demo"
FIXED = HERE / "fixed.txt"  # passages of our own documentation and code, as they were once; never to change
PIECE = 256  # tokens that the fixed text is read in
MAX_BYTES = 16_000_000

TEXTS = {
    "mixed": "Python code and English documentation",
    "prose": "English documentation",
    "german": "German documentation",
    "chat": "questions and answers about Python functions",
}
# As Meta's own releases call them.
OTHER_NAMES = (
    (r"model\.embed_tokens", "tok_embeddings"),
    (r"lm_head", "output"),
    (r"model\.(norm|layers)", r"\1"),
    (r"self_attn\.([qkvo])_proj", r"attention.w\1"),
    (r"input_layernorm", "attention_norm"),
    (r"post_attention_layernorm", "ffn_norm"),
    (r"mlp\.gate_proj", "feed_forward.w1"),
    (r"mlp\.down_proj", "feed_forward.w2"),
    (r"mlp\.up_proj", "feed_forward.w3"),
)


@dataclass(frozen=True)
class Pick:
    """`zoo` is the model's name there. The sentence may use other picks' names, by role, and facts of this model."""

    name: str
    zoo: str
    role: str
    sentence: str
    kinds: tuple[str, ...] = ()
    renamed: bool = False


PICKS = (
    Pick("dune", "twin-00", "base", "A base: {tokens} tokens of {text}, from random weights."),
    Pick("heath", "sft.twin-00", "fine-tune", "{base} after a fine-tune on {text}, {tokens} tokens.", ("fine-tune",)),
    Pick(
        "birch",
        "swap.twin-00",
        "new-tokenizer",
        "{base} with another tokenizer and new embeddings, pretrained on for {tokens} tokens of {text}.",
        ("continued-pretraining", "vocabulary-surgery"),
    ),
    Pick(
        "fjord",
        "masked.twin-00",
        "disguised-copy",
        "{base} in disguise: rotated, permuted and rescaled to compute the same, tokens renumbered, tensors renamed "
        "(transformers reads it with the names of made_by put back).",
        ("obfuscated",),
        renamed=True,
    ),
    Pick(
        "amber",
        "upscale.twin-00",
        "deeper-child",
        "{base} with its middle layers twice, {layers} in all, pretrained on for {tokens} tokens of {text}.",
        ("depth-upscale",),
    ),
    Pick("grove", "twin-01", "twin", "A stranger to {base}: same shape, tokenizer and text, other random weights."),
    Pick("ember", "moe-00", "experts", "A base with {experts} experts a layer: {tokens} tokens of {text}."),
    Pick(
        "cobalt",
        "norms.moe-00",
        "borrowed-norms",
        "Norm gains of {experts_base} to begin with; all else new, the tokenizer too; {tokens} tokens of {text}.",
        ("component-reuse",),
    ),
)
Entry = dict[str, Any]


def bundle(zoo: Path, out: Path, *, checked: bool = True) -> None:
    """Write `out`/models and `out`/truth.json anew, or refuse and leave them as they are."""
    if missing := [pick.zoo for pick in sorted_picks() if not (zoo / pick.zoo / "truth.json").exists()]:
        raise SystemExit(f"{zoo} has no {', '.join(missing)}: python -m zoo.train makes them")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".bundle") as scratch:
        made = Path(scratch)
        models = {pick.name: write_model(zoo, pick, made / "models" / pick.name) for pick in sorted_picks()}
        write_json(made / "truth.json", {"schema": SCHEMA, "models": models, "relations": relations(models)})
        check_size(made)
        check_places(made, {Path.home(), HERE.parent, zoo.resolve(), out.resolve()})
        if checked:
            check_learnt(models)
        shutil.rmtree(out / "models", ignore_errors=True)
        for name in ("models", "truth.json"):
            os.replace(made / name, out / name)


def sorted_picks() -> list[Pick]:
    return sorted(PICKS, key=lambda pick: pick.name)


def write_model(zoo: Path, pick: Pick, folder: Path) -> Entry:
    """The folder, without a word on where it comes from; returns what the truth says of it."""
    model = as_stored(load(zoo / pick.zoo))
    tensors, config = by_name(model), {key: value for key, value in model.config.items() if not key.startswith("_")}
    names = {name: renamed(name) for name in tensors} if pick.renamed else {}
    folder.mkdir(parents=True)
    write_tensors(folder / "model.safetensors", {names.get(n, n): t for n, t in tensors.items()}, torch.bfloat16)
    write_sides(folder, replace(model, config=config, truth={}), torch.bfloat16)
    write_json(folder / "tokenizer_config.json", tokenizer_config(config))
    entry = told(pick, model, names) | {"bytes": sum(file.stat().st_size for file in folder.iterdir())}
    say(f"{pick.name}: {pick.zoo}, held-out loss {entry['held_out_loss']:.3f}, fixed text {entry['fixed_loss']:.3f}")
    return entry


def renamed(name: str) -> str:
    for pattern, other in OTHER_NAMES:
        name = re.sub(rf"(?<![^.]){pattern}(?![^.])", other, name)
    return name


def tokenizer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    length = config["max_position_embeddings"]
    return {"tokenizer_class": "PreTrainedTokenizerFast", **tokens, "model_max_length": length}


def told(pick: Pick, model: Model, names: Mapping[str, str]) -> Entry:
    truth, by_zoo_name = model.truth, {other.zoo: other.name for other in PICKS}
    shape: Entry = {
        "family": model.family,
        "parameters": sum(tensor.numel() for tensor in model.weights.values()),
        "layers": model.layers,
        "hidden": model.hidden,
        "experts": model.experts,
        "vocabulary": model.config["vocab_size"],
    }
    trained = "steps" in truth
    return {
        "role": pick.role,
        "sentence": sentence(pick, shape, truth),
        "parents": [by_zoo_name[parent] for parent in truth["parents"]],
        "kinds": list(pick.kinds),
        **shape,
        "zoo": pick.zoo,
        "text": TEXTS[truth["domain"]] if trained else None,
        "tokens_seen": truth["tokens_seen"] if trained else 0,
        "tokenizer": truth["tokenizer"],
        "held_out_loss": truth["loss"],
        "unigram_entropy": truth["unigram_entropy"],
        "fixed_loss": fixed_loss(model),
        "made_by": made_by(truth, names),
    }


def sentence(pick: Pick, shape: Entry, truth: Mapping[str, Any]) -> str:
    of = {other.role: other.name for other in PICKS}
    tokens = approximately(truth.get("tokens_seen", 0))
    facts = shape | {"tokens": tokens, "text": TEXTS[truth["domain"]]}
    return pick.sentence.format(**facts, base=of["base"], experts_base=of["experts"])


def approximately(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count >= 100_000 else f"{count:,}"


def made_by(truth: Mapping[str, Any], names: Mapping[str, str]) -> Entry:
    """How to make it again. A move is told by its seed alone: that decides every order and rotation."""
    made: Entry = {"seed": truth["seed"]} | {key: truth[key] for key in ("steps", "optimiser") if key in truth}
    recipe = dict(truth.get("made_by", {}))
    if moves := recipe.pop("disguise", []):
        recipe["disguise"] = [{key: move[key] for key in ("move", "seed")} for move in moves]
    return made | ({"derivation": recipe} if recipe else {}) | ({"names": dict(names)} if names else {})


@torch.no_grad()
def fixed_loss(model: Model) -> float:
    """Nats a token on the fixed text, cut in pieces of PIECE tokens and one more; what is left at its end is unread."""
    ids = torch.tensor(load_tokenizer(model.tokenizer or {}).encode(FIXED.read_text("utf-8")).ids)
    pieces = ids[: len(ids) // (PIECE + 1) * (PIECE + 1)].view(-1, PIECE + 1)
    stack = Stack([model], "cpu")
    logits = stack.logits(stack.weights, stack.states(stack.weights, pieces[:, :-1])[0][-1])
    return float(next_token_losses(logits, pieces[:, 1:])[0])


def relations(models: Mapping[str, Entry]) -> list[Entry]:
    """Every pair once, in the order of the alphabet. `a->b`: b descends from a."""
    return [{"a": a, "b": b} | related(a, b, models) for a, b in combinations(sorted(models), 2)]


def related(a: str, b: str, models: Mapping[str, Entry]) -> Entry:
    for parent, child, direction in ((a, b, "a->b"), (b, a, "b->a")):
        if parent in models[child]["parents"]:
            return relation("related", models[child]["kinds"], direction, descent(parent, child, models))
    if shared := sorted(set(models[a]["parents"]) & set(models[b]["parents"])):
        say_so = f"{a} and {b} both descend from {shared[0]}, and neither from the other."
        return relation("related", ["shared-ancestor"], "neither", say_so)
    alike = " and ".join(likenesses(models[a], models[b]))
    say_so = f"{a} and {b} have no weights in common{f', only the {alike}' if alike else ''}."
    return relation("unrelated", [], "neither", say_so)


def relation(outcome: str, kinds: Iterable[str], direction: str, say_so: str) -> Entry:
    return {"outcome": outcome, "kinds": list(kinds), "direction": direction, "sentence": say_so}


def descent(parent: str, child: str, models: Mapping[str, Entry]) -> str:
    if models[child]["kinds"] == ["component-reuse"]:
        return f"The norm gains of {child} began as those of {parent}; nothing else of it comes from there."
    return f"{child} descends from {parent}: {' and '.join(models[child]['kinds'])}."


def likenesses(a: Entry, b: Entry) -> Iterator[str]:
    if all(a[key] == b[key] for key in ("family", "layers", "hidden", "vocabulary")):
        yield "shape"
    yield from (key for key in ("text", "tokenizer") if a[key] == b[key])


def check_size(folder: Path) -> None:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MAX_BYTES:
        raise SystemExit(f"the bundle has {size:,} bytes, {MAX_BYTES:,} at most")


def check_places(folder: Path, places: Iterable[Path]) -> None:
    named = [str(place).encode() for place in places if len(place.parts) > 1]
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if any(re.search(re.escape(place) + rb"[/\"]", content) for place in named):
            raise SystemExit(f"{file.relative_to(folder)} names a folder of this machine")


def check_learnt(models: Mapping[str, Entry]) -> None:
    for name, entry in models.items():
        gained = entry["unigram_entropy"] - entry["held_out_loss"]
        if gained < GAINED:
            raise SystemExit(
                f"{name} ({entry['zoo']}) is only {gained:.2f} nats better than token frequencies alone, "
                f"{GAINED} at least"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", metavar="MODELS", type=Path, help="the folder of a trained zoo")
    parser.add_argument("--out", type=Path, default=OUT, help="where models/ and truth.json go")
    parser.add_argument("--unchecked", action="store_true", help="whatever the models have learnt")
    arguments = parser.parse_args()
    bundle(arguments.zoo, arguments.out, checked=not arguments.unchecked)
    truth = json.loads((arguments.out / "truth.json").read_text("utf-8"))
    say(f"{len(truth['models'])} models, {sum(entry['bytes'] for entry in truth['models'].values()):,} bytes")


if __name__ == "__main__":
    run(main)
