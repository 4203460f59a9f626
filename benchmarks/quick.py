"""How long a user waits for a verdict on two local 7B-shaped checkpoints, and how much memory it takes.

    python benchmarks/quick.py

Three models have the names, shapes and shards of a 32-layer, 4096-wide llama: a base, a light perturbation of it, and
an independent one. Their files are sparse: numbers stand where any budget but `full` reads, the rest is holes, so that
three times 13.5 GB take some 300 MB of disk. Every command runs in a process of its own; wall seconds with the start
of the interpreter, processor seconds of all threads, the best of several runs, and the most memory that was resident.
Beside it, measured in the same run: a bare start of Python, one that imports the parts of numpy and scipy that a
comparison needs, and reading both checkpoints once from beginning to end, which holes make faster than it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from local_read import HIDDEN, VOCABULARY, write_checkpoint

import modelkin
from modelkin.architectures import Anatomy
from modelkin.questions import QUESTIONS, CannotAsk, Pair
from modelkin.records import Cut

RUNS = {"start": 5, "quick": 5, "standard": 2, "whole": 1}
TARGET_SECONDS, TARGET_MEGABYTES = 3.0, 500
START = "pass"
LIBRARIES = "import numpy, scipy.optimize, scipy.special"
READ_WHOLE = """
import sys
from pathlib import Path
buffer = bytearray(16 << 20)
for folder in sys.argv[1:]:
    for path in Path(folder).glob("*.safetensors"):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
"""
# A process of its own, small: what is spent before a child becomes another program is that of its parent.
WAIT = """
import os, subprocess, sys, time
began = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
print(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, kilobytes / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Spent:
    seconds: float
    processor: float
    megabytes: float


def run(*arguments: str) -> Spent:
    """A fresh Python, waited for."""
    command = [sys.executable, "-c", WAIT, sys.executable, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Spent(*map(float, done.stdout.split()))


def as_installed(work: Path) -> None:
    """With compiled modules, whatever the environment says; the first run of a command writes them."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")


def best(runs: int, *arguments: str) -> Spent:
    """Shortest times and largest memory."""
    found = [run(*arguments) for _ in range(runs)]
    least = (min(values) for values in zip(*((spent.seconds, spent.processor) for spent in found), strict=True))
    return Spent(*least, max(spent.megabytes for spent in found))


# The models.


def make(folder: Path) -> Path:
    folder.mkdir()
    write_checkpoint(folder)
    words = {f"word{i}": i for i in range(VOCABULARY)}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": words, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def wanted(folder: Path) -> list[Cut]:
    """All that `quick` and `standard` read of such a model."""
    model = modelkin.identify(modelkin.open(str(folder)))
    found: dict[Cut, None] = {}
    for question in QUESTIONS:
        try:
            found |= dict.fromkeys(question.cuts(Pair(model, model, 0, "standard"))[0])
        except CannotAsk:
            continue
    return list(found)


def fill(folder: Path, cuts: Sequence[Cut], seed: int, noise: float = 0.0) -> None:
    """Numbers where they are read: those of the seed, moved a little by `noise`."""
    model = modelkin.identify(modelkin.open(str(folder)))
    for number, cut in enumerate(cuts):
        rng = np.random.default_rng([seed, number])
        values = rng.normal(size=(_height(model, cut), HIDDEN)).astype(np.float32)
        if noise:
            values += noise * np.random.default_rng([seed, number, 1]).normal(size=values.shape).astype(np.float32)
        centre, spread = (1.0, 0.1) if cut.slot.role.is_gain else (0.0, 0.02)
        _write(folder, model, cut, (centre + spread * values).astype(ml_dtypes.bfloat16))


def _height(model: Anatomy, cut: Cut) -> int:
    if cut.start is None or cut.stop is None:
        return len(cut.rows) or (1 if cut.slot.role.is_gain else model.shape(cut.slot)[0])
    return cut.stop - cut.start


def _write(folder: Path, model: Anatomy, cut: Cut, values: np.ndarray) -> None:
    ref = model.checkpoint.tensors[model.view(cut.slot).tensor]
    first = cut.start or 0
    with (folder / ref.file).open("r+b") as file:
        for row, line in zip(cut.rows or range(first, first + len(values)), values, strict=True):
            file.seek(ref.start + row * HIDDEN * 2)
            file.write(line.tobytes())


# The report.


def compared(a: Path, b: Path, budget: str, work: Path) -> tuple[Spent, str]:
    out = work / "comparison.json"
    spent = best(RUNS[budget], "-m", "modelkin", "compare", str(a), str(b), "--budget", budget, "--json", str(out))
    record = json.loads(out.read_bytes())
    cost, verdict = record["cost"], record["verdict"]
    read = f"{cost['tensor_bytes_a'] / 1e6:.2f} + {cost['tensor_bytes_b'] / 1e6:.2f} MB of weights"
    return spent, f"{verdict['outcome']}, {read}"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        as_installed(work)
        base, child, stranger = (make(work / name) for name in ("base", "child", "stranger"))
        cuts = wanted(base)
        fill(base, cuts, 1)
        fill(child, cuts, 1, noise=0.1)
        fill(stranger, cuts, 2)
        rows = [
            ("a bare start of Python", best(RUNS["start"], "-c", START), ""),
            ("the same with numpy and scipy", best(RUNS["start"], "-c", LIBRARIES), ""),
        ]
        for budget in ("quick", "standard"):
            for other in (child, stranger):
                rows.append((f"{budget}, base and {other.name}", *compared(base, other, budget, work)))
        whole = best(RUNS["whole"], "-c", READ_WHOLE, str(base), str(child))
        rows.append(("reading both from end to end", whole, "26.95 GB"))
    show(rows)


def show(rows: Sequence[tuple[str, Spent, str]]) -> None:
    start = rows[1][1].seconds
    print(f"{'':32}{'wall':>9} {'ratio':>7} {'processor':>10} {'memory':>9}")
    for name, spent, told in rows:
        times = f"{spent.seconds:7.2f} s {spent.seconds / start:6.1f}x {spent.processor:8.2f} s"
        print(f"{name:32}{times} {spent.megabytes:6.0f} MB   {told}")
    quick = [spent for name, spent, _ in rows if name.startswith("quick")]
    met = all(spent.seconds < TARGET_SECONDS and spent.megabytes < TARGET_MEGABYTES for spent in quick)
    print(f"quick under {TARGET_SECONDS:.0f} s and {TARGET_MEGABYTES} MB: {'yes' if met else 'NO'}")


if __name__ == "__main__":
    main()
