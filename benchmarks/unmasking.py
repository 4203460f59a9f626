"""What it costs to see through a disguise: an alignment of two models as wide as an 8B one, weights made up.

    python benchmarks/unmasking.py [--layers 32] [--strangers] [--models FOLDER]

Two checkpoints with the names and shapes of an 8B llama (4096 wide, 14,336 neurons, 32 query and 8 key heads, BF16) are
written to a temporary folder, 7 GB each: attention of every layer, MLPs of the layers that are judged; the rest is
holes. Weights are Gaussian, attention with a few strong directions, as trained models have them. b is a with other
signs and numbers for hidden axes and neurons, and noise of a tenth of every tensor; or, with --strangers, drawn apart.
The method makes no use of axes being merely renumbered, so a dense rotation costs the same. With --models they are
kept, and not written again. Memory is what the process holds itself: pages of the files, which are mapped, can be
dropped at any time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import modelkin
from modelkin.alignment import align, bytes_needed
from modelkin.alignment.aligning import MOST_JUDGED
from modelkin.alignment.sides import evenly

WIDTH, NEURONS, HEADS, GROUPS, SIZE = 4096, 14_336, 32, 8, 128
STRONG, NOISE = 24, 0.1
TARGET_SECONDS, TARGET_GIGABYTES = 600.0, 4.0
Floats = NDArray[np.float32]
SHAPES = {
    "input_layernorm.weight": (WIDTH,),
    "post_attention_layernorm.weight": (WIDTH,),
    "self_attn.q_proj.weight": (HEADS * SIZE, WIDTH),
    "self_attn.k_proj.weight": (GROUPS * SIZE, WIDTH),
    "self_attn.v_proj.weight": (GROUPS * SIZE, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, HEADS * SIZE),
    "mlp.gate_proj.weight": (NEURONS, WIDTH),
    "mlp.up_proj.weight": (NEURONS, WIDTH),
    "mlp.down_proj.weight": (WIDTH, NEURONS),
}


class Disguise:
    """Other numbers and signs for the hidden axes, other numbers for the neurons, and a little noise."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.axes, self.signs = rng.permutation(WIDTH), rng.choice([-1.0, 1.0], WIDTH).astype(np.float32)
        self.neurons = rng.permutation(NEURONS)
        self.rng = rng

    def __call__(self, name: str, values: Floats) -> Floats:
        if values.ndim == 1:
            return values[self.axes]
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            found = values[self.axes] * self.signs[:, None]
        else:
            found = values[:, self.axes] * self.signs
        if ".mlp." in name:
            found = found[:, self.neurons] if "down" in name else found[self.neurons]
        return found + NOISE * values.std() * self.rng.standard_normal(values.shape, dtype=np.float32)


def drawn(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    """A tensor from its own seed: a gain around one, or Gaussian; what attention reads has strong directions."""
    rng = np.random.default_rng([seed, *name.encode()])
    if len(shape) == 1:
        return (1 + 0.1 * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)
    values = rng.standard_normal(shape, dtype=np.float32)
    if "self_attn" in name:
        sizes = np.geomspace(8, 1, STRONG, dtype=np.float32) * np.sqrt(np.float32(max(shape)))
        left, right = (rng.standard_normal((side, STRONG), dtype=np.float32) for side in shape)
        values += (left / np.linalg.norm(left, axis=0) * sizes) @ (right / np.linalg.norm(right, axis=0)).T
    return np.asarray(0.02 * values, dtype=np.float32)


def tensors(layers: int) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name, shape, and whether anything is written there."""
    judged = evenly(range(layers), MOST_JUDGED)
    for layer in range(layers):
        for part, shape in SHAPES.items():
            yield f"model.layers.{layer}.{part}", shape, "mlp." not in part or layer in judged


def write(folder: Path, layers: int, seed: int, change: Callable[[str, Floats], Floats] | None) -> Path:
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "intermediate_size": NEURONS,
        "vocab_size": 16,
    }
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape, _ in tensors(layers):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    body = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(body).to_bytes(8, "little") + body)
        file.truncate(8 + len(body) + at)
        for name, shape, filled in tensors(layers):
            if filled:
                values = drawn(seed, name, shape)
                file.seek(8 + len(body) + header[name]["data_offsets"][0])
                file.write((values if change is None else change(name, values)).astype(ml_dtypes.bfloat16).tobytes())
    return folder


class Memory:
    """The most that the process held itself, looked at ten times a second (Linux)."""

    def __init__(self) -> None:
        self.seen, self.done = 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.done.wait(0.1):
            status = Path("/proc/self/status").read_text().splitlines()
            self.seen = max(self.seen, *(int(line.split()[1]) for line in status if line.startswith("RssAnon")))

    def most(self) -> float:
        self.done.set()
        self.thread.join()
        return self.seen / 2**20


class Watch:
    """Seconds by the first two words of each step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.step, self.since = "opening", time.perf_counter()

    def __call__(self, what: str, *_: int) -> None:
        now = time.perf_counter()
        self.spent[self.step] = self.spent.get(self.step, 0.0) + now - self.since
        self.step, self.since = " ".join(what.split()[:2]).rstrip(","), now


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layers", type=int, default=32)
    options.add_argument("--strangers", action="store_true")
    options.add_argument("--models", type=Path)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = asked.models or Path(temporary)
        change = None if asked.strangers else Disguise(1)
        b = work / ("stranger" if asked.strangers else "b")
        paths = write(work / "a", asked.layers, 1, None), write(b, asked.layers, 2 if asked.strangers else 1, change)
        a, b = (modelkin.identify(modelkin.open(str(path))) for path in paths)
        watch, memory, began, worked = Watch(), Memory(), time.perf_counter(), time.process_time()
        found = align(a, b, np.random.default_rng(0), watch)
        watch("")
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
        gigabytes, needed = memory.most(), bytes_needed(a, b)
    for layer in found.held_out:
        counts = f"{layer.two} of {layer.n} by two ways, {layer.three} by three"
        print(f"layer {layer.a:>2}: {counts}; cosine {layer.likeness:.2f}, of random directions {layer.chance:.2f}")
    print(f"route {found.route}, hidden {found.hidden}; {needed[0] / 1e9:.1f} + {needed[1] / 1e9:.1f} GB of weights")
    for step, spent in watch.spent.items():
        print(f"  {step:24}{spent:8.1f} s")
    print(f"{seconds:.0f} s ({worked:.0f} s of processor time), {gigabytes:.1f} GB at most")
    met = seconds < TARGET_SECONDS and gigabytes < TARGET_GIGABYTES
    print(f"under {TARGET_SECONDS:.0f} s and {TARGET_GIGABYTES:.0f} GB: {'yes' if met else 'NO'}")


if __name__ == "__main__":
    main()
