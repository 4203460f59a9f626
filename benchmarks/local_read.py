"""How long a user waits for a local model: `modelkin inspect` on a 7B-shaped checkpoint, and `modelkin --help`.

    python benchmarks/local_read.py

The checkpoint has the names, shapes and shards of a 32-layer, 4096-wide llama; its files are sparse, so they take
13.5 GB of nothing. Times are wall clock, interpreter start included, the best of five, beside a bare `import numpy`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HIDDEN, LAYERS, NEURONS, VOCABULARY, SHARDS = 4096, 32, 11008, 32000, 3
TARGET_INSPECT, TARGET_HELP = 0.6, 0.3


def layout() -> list[dict[str, tuple[int, ...]]]:
    """Tensor shapes of each shard."""
    square, wide, tall = (HIDDEN, HIDDEN), (NEURONS, HIDDEN), (HIDDEN, NEURONS)
    named: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        named |= {f"{at}self_attn.{p}_proj.weight": square for p in "qkvo"}
        named |= {f"{at}mlp.gate_proj.weight": wide, f"{at}mlp.up_proj.weight": wide, f"{at}mlp.down_proj.weight": tall}
        named |= {f"{at}{n}_layernorm.weight": (HIDDEN,) for n in ("input", "post_attention")}
    named |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    names = list(named)
    size = -(-len(names) // SHARDS)
    return [{name: named[name] for name in names[i : i + size]} for i in range(0, len(names), size)]


def write_checkpoint(folder: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": NEURONS,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    weight_map = {}
    rng = np.random.default_rng(0)
    for number, shapes in enumerate(layout(), start=1):
        name = f"model-{number:05}-of-{SHARDS:05}.safetensors"
        weight_map |= dict.fromkeys(shapes, name)
        write_shard(folder / name, shapes, rng)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def write_shard(path: Path, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> None:
    header, at, norms = {}, 0, []
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        if len(shape) == 1:
            norms.append(at)
        at += size
    body = json.dumps(header).encode()
    with open(path, "wb") as handle:
        handle.write(len(body).to_bytes(8, "little") + body)
        for offset in norms:
            handle.seek(8 + len(body) + offset)
            gains = rng.normal(1.0, 0.05, HIDDEN).astype(np.float32)
            handle.write((gains.view(np.uint32) >> 16).astype("<u2").tobytes())
        handle.truncate(8 + len(body) + at)


def best(command: list[str], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    modelkin = [sys.executable, "-m", "modelkin"]
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        inspected = best([*modelkin, "inspect", folder])
    shown = best([*modelkin, "--help"])
    bare = best([sys.executable, "-c", "import numpy"])
    print(f"modelkin inspect, 7B shape, local   {inspected:6.3f} s   target {TARGET_INSPECT} s")
    print(f"modelkin --help                     {shown:6.3f} s   target {TARGET_HELP} s")
    print(f"python -c 'import numpy'            {bare:6.3f} s   for comparison")
    print(f"inspect / import numpy              {inspected / bare:6.2f} ×")


if __name__ == "__main__":
    main()
