"""Train the small models that ship inside the package:  python zoo/bundled.py

Each is an ordinary Hugging Face folder under src/modelkin/demo/models/, with a truth.json that says what it is. The
text is the standard library of the Python that runs this script, so nothing is downloaded. One thread, ten to fifteen
minutes a model; the same Python, packages and seed give the same bytes on the same kind of processor. Needs torch,
transformers, tokenizers and safetensors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parent.parent / "src" / "modelkin" / "demo" / "models"
NOT_TEXT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
SPECIAL = ("<unk>", "<s>", "</s>")
HELD_OUT = 20  # every twentieth file measures the loss and trains nothing
MAX_BYTES = 2_600_000


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the bytes of one model."""

    name: str
    kind: str = "base"
    seed: int = 0
    steps: int = 1000
    batch: int = 16
    length: int = 128
    rate: float = 3e-3
    warmup: int = 50
    decay: float = 0.1
    vocabulary: int = 2048
    shape: dict[str, Any] = field(
        default_factory=lambda: {
            "hidden_size": 128,
            "intermediate_size": 352,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
        }
    )


RECIPES = (Recipe("tiny-llama"),)


def standard_library() -> list[tuple[str, str]]:
    """(path inside the library, text) of every module that is no test, in order of path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    inside = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    chosen = [path for path in inside if not NOT_TEXT.intersection(path.parts)]
    return [(path.as_posix(), (root / path).read_text("utf-8", errors="ignore")) for path in chosen]


def split(files: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    kept = [text for i, (_, text) in enumerate(files) if i % HELD_OUT]
    return kept, [text for i, (_, text) in enumerate(files) if i % HELD_OUT == 0]


def train_tokenizer(texts: list[str], size: int) -> Tokenizer:
    """Byte-level BPE, the kind that Llama 3 and GPT-2 use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", SPECIAL.index("<s>"))]
    )
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Every text as `<s> … </s>`, end to end."""
    end = SPECIAL.index("</s>")
    return torch.tensor([i for text in texts for i in [*tokenizer.encode(text).ids, end]], dtype=torch.long)


def unigram_entropy(ids: torch.Tensor, size: int) -> float:
    """Entropy in nats of the token frequencies: the loss of the best guess that ignores context."""
    share = torch.bincount(ids, minlength=size).double() / len(ids)
    return float(-torch.xlogy(share, share).sum())


def build(recipe: Recipe) -> LlamaForCausalLM:
    torch.manual_seed(recipe.seed)
    ids = {"bos_token_id": SPECIAL.index("<s>"), "eos_token_id": SPECIAL.index("</s>"), "pad_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=recipe.vocabulary, **recipe.shape, **ids))


def optimiser(network: LlamaForCausalLM, recipe: Recipe) -> torch.optim.Optimizer:
    matrices = [p for p in network.parameters() if p.ndim > 1]
    gains = [p for p in network.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95))


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    if step < recipe.warmup:
        return recipe.rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def train(recipe: Recipe, ids: torch.Tensor) -> LlamaForCausalLM:
    network, rng = build(recipe), torch.Generator().manual_seed(recipe.seed)
    optimizer, began = optimiser(network, recipe), time.monotonic()
    window = torch.arange(recipe.length + 1)
    for step in range(recipe.steps):
        starts = torch.randint(0, len(ids) - recipe.length - 1, (recipe.batch, 1), generator=rng)
        loss = cross_entropy(network, ids[starts + window])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == recipe.steps - 1:
            seconds = time.monotonic() - began
            say(f"{recipe.name}: step {step + 1} of {recipe.steps}, loss {loss.item():.3f}, {seconds:.0f} s")
    return network


def cross_entropy(network: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    logits = network(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(network: LlamaForCausalLM, ids: torch.Tensor, recipe: Recipe, batches: int = 64) -> float:
    """Mean over evenly spaced windows of the held-out text, in nats a token."""
    count = batches * recipe.batch
    starts = torch.linspace(0, len(ids) - recipe.length - 2, count).long().view(batches, recipe.batch, 1)
    window = torch.arange(recipe.length + 1)
    return sum(cross_entropy(network, ids[part + window]).item() for part in starts) / batches


def save(folder: Path, network: LlamaForCausalLM, tokenizer: Tokenizer, truth: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    network.config.architectures = ["LlamaForCausalLM"]
    config = {k: v for k, v in network.config.to_diff_dict().items() if v is not None and not k.startswith("_")}
    config["dtype"] = "bfloat16"
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_json(folder / "config.json", config)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": network.config.max_position_embeddings,
        },
    )
    write_json(folder / "truth.json", truth)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def make(recipe: Recipe, out: Path) -> dict[str, Any]:
    files = standard_library()
    kept, held_out = split(files)
    say(f"{recipe.name}: training a tokenizer on {len(kept)} modules")
    tokenizer = train_tokenizer(kept, recipe.vocabulary)
    ids, unseen = encode(tokenizer, kept), encode(tokenizer, held_out)
    say(f"{recipe.name}: {len(ids):,} tokens to train on, {len(unseen):,} held out")
    network = train(recipe, ids).to(torch.bfloat16).float()  # measured as it will be stored
    loss, entropy = held_out_loss(network, unseen, recipe), unigram_entropy(unseen, recipe.vocabulary)
    truth = {
        "schema": "modelkin.truth/1",
        **asdict(recipe),
        "parents": [],
        "parameters": sum(p.numel() for p in network.parameters()),
        "tokens_seen": recipe.steps * recipe.batch * recipe.length,
        "held_out_loss": loss,
        "unigram_entropy": entropy,
        "data": {
            "text": "modules of the Python standard library, without its tests; every twentieth held out",
            "python": platform.python_version(),
            "files": len(files),
            "characters": sum(len(text) for _, text in files),
            "sha256": hashlib.sha256("\0".join(text for _, text in files).encode()).hexdigest(),
        },
        "made_with": {"torch": torch.__version__, "tokenizers": tokenizers.__version__},
    }
    save(out / recipe.name, network, tokenizer, truth)
    return truth


def check(folder: Path, truth: dict[str, Any]) -> None:
    """Refuse to ship a model that learnt nothing, is too big, or carries a path of the machine that made it."""
    gained = truth["unigram_entropy"] - truth["held_out_loss"]
    say(
        f"{folder.name}: loss {truth['held_out_loss']:.3f}, unigram entropy {truth['unigram_entropy']:.3f} nats a token"
    )
    if gained < 1:
        raise SystemExit(f"{folder.name}: only {gained:.2f} nats better than token frequencies alone")
    size = (folder / "model.safetensors").stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{folder.name}: {size} bytes of weights, at most {MAX_BYTES}")
    places = {str(Path.home()).encode(), str(OUT.parents[3]).encode()} - {b"/"}
    for path in sorted(folder.iterdir()):
        if any(place in path.read_bytes() for place in places):
            raise SystemExit(f"{path.name} of {folder.name} names a folder of this machine")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="where the folders go")
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script; the result is then not checked")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for recipe in RECIPES:
        short = recipe if arguments.steps is None else replace(recipe, steps=arguments.steps)
        truth = make(short, arguments.out)
        if arguments.steps is None:
            check(arguments.out / recipe.name, truth)


if __name__ == "__main__":
    main()
