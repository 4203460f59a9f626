"""What is kept of the zoo when its weights are gone: samples of every model, statistics of every pair, all truths.

A folder holds `truths.json.xz`, `pairs.csv.xz`, and samples in `twins.xz`, `moes.xz`, `plains.xz`, `others.xz`,
`derivatives-1.xz`, …: each an xz stream of

    8 bytes            length of the index, little-endian
    index              JSON: `schema`, `offset` (of the sampled neurons), `tokens` (strings), and `models`, a list of
                       `name`, `gain_offset`, `token_ids` (of the first tokens) and `arrays`, in order:
                       [key, shape, source]
    upper bytes        of all 16-bit codes of all models, one after another
    lower bytes        likewise

The numbers are the bfloat16 patterns of the checkpoint, to the bit, with the sign turned to the lowest place, so that
the upper bytes are the exponents. Where `source` is [model, key], the codes are differences from the first rows of that
array (see `differences`): a light fine-tune then takes a fraction of the room.

Strangers have all that `zoo.measure` samples. Of their relatives less is kept where the room is short: see `thinned`.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint16]
Floats = NDArray[np.float32]

SCHEMA = "modelkin.zoo-samples/1"
HERE = Path(__file__).resolve().parent / "measured"
FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}
]  # numbers have no neighbours to learn from
LARGEST = 6_000_000  # numbers in one file: 12 MB before compression, about 8 MB after
MATRICES = ("gate", "up", "router", "embedding")
NUMBERED = ("twin", "moe", "plain")  # strangers that differ in a number: twin-07
TRUTHS, PAIRS = "truths.json.xz", "pairs.csv.xz"
SAMPLES = re.compile(rf"({'|'.join(f'{word}s' for word in NUMBERED)}|others|derivatives)(-\d+)?\.xz")


@dataclass(frozen=True)
class Sample:
    """Part of one model. Keys of `arrays` are `final_norm`, `3.input_norm`, `3.gate`, `3.gate.1` (expert 1), …"""

    name: str
    arrays: Mapping[str, Bits]
    gain_offset: float = 0.0
    tokens: tuple[str, ...] = ()  # whose embedding rows are kept, in order
    token_ids: tuple[int, ...] = ()  # the model's own numbers for them
    offset: int = 0  # the first sampled neuron
    truth: Mapping[str, Any] = field(default_factory=dict)

    def gains(self) -> dict[str, Floats]:
        """All gains and biases on the residual stream as the model applies them, each (hidden,)."""
        return {key: self.vector(key) for key in self.arrays if role_of(key) not in MATRICES}

    def vector(self, key: str) -> Floats:
        values = floats(self.arrays[key])
        return values + np.float32(self.gain_offset) if role_of(key).endswith("_norm") else values

    def rows(self, role: str, layer: int, expert: int | None = None) -> Floats:
        """The sampled neurons of one matrix, (rows, hidden)."""
        return floats(self.arrays[key_of(role, layer, expert)])

    def router(self, layer: int) -> Floats:
        return self.rows("router", layer)

    @property
    def embedding(self) -> Floats | None:
        """Rows of `tokens`, (tokens, hidden)."""
        return floats(self.arrays["embedding"]) if "embedding" in self.arrays else None


def key_of(role: str, layer: int | None = None, expert: int | None = None) -> str:
    return ".".join(str(part) for part in (layer, role, expert) if part is not None)


def role_of(key: str) -> str:
    return next(part for part in key.split(".") if not part.isdigit())


def bits(values: NDArray[np.floating]) -> Bits:
    """The bfloat16 patterns of numbers that have one; others are refused, for nothing may be lost."""
    pattern = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if np.any(pattern & 0xFFFF):
        raise ValueError("these weights are no bfloat16 numbers: 16 bits cannot hold them")
    return (pattern >> 16).astype(np.uint16)


def floats(pattern: Bits) -> Floats:
    return (pattern.astype(np.uint32) << 16).view(np.float32)


def turned(pattern: Bits) -> Bits:
    """Sign to the lowest place: exponents above, mantissa and sign below."""
    return (pattern << 1) | (pattern >> 15)


def turned_back(codes: Bits) -> Bits:
    return (codes >> 1) | (codes << 15)


def differences(pattern: Bits, base: Bits) -> Bits:
    """How many representable numbers lie between, modulo 2¹⁶; 0, -1, 1, -2, … become 0, 1, 2, 3, …"""
    steps = (_ranked(pattern) - _ranked(base)).view(np.int16)
    return ((steps << 1) ^ (steps >> 15)).view(np.uint16)


def added(codes: Bits, base: Bits) -> Bits:
    """The inverse of `differences`."""
    steps = (codes >> 1) ^ (-(codes & 1).astype(np.int16)).view(np.uint16)
    ranks = _ranked(base) + steps
    return np.where(ranks >> 15, ranks & 0x7FFF, ~ranks)


def _ranked(pattern: Bits) -> Bits:
    """Patterns in the order of the numbers they mean."""
    return np.where(pattern >> 15, ~pattern, pattern | 0x8000)


def packed(samples: Sequence[Sample], known: Mapping[str, Sample]) -> bytes:
    """One file. `known` holds all samples, among them the parents that differences are taken from."""
    codes, entries = [], []
    for sample in samples:
        arrays = []
        for key, pattern in sample.arrays.items():
            code, source = _coded(key, pattern, sample, known)
            codes.append(code.ravel())
            arrays.append([key, list(pattern.shape), source])
        facts = {"name": sample.name, "gain_offset": sample.gain_offset, "token_ids": list(sample.token_ids)}
        entries.append(facts | {"arrays": arrays})
    tokens = max((sample.tokens for sample in samples), key=len)
    shared = {"schema": SCHEMA, "offset": samples[0].offset, "tokens": list(tokens)}
    index = json.dumps(shared | {"models": entries}, separators=(",", ":")).encode()
    planes = np.concatenate(codes).astype("<u2").view(np.uint8).reshape(-1, 2)
    body = planes[:, 1].tobytes() + planes[:, 0].tobytes()
    return lzma.compress(len(index).to_bytes(8, "little") + index + body, filters=FILTERS)


def _coded(key: str, pattern: Bits, sample: Sample, known: Mapping[str, Sample]) -> tuple[Bits, list[str] | None]:
    """The shorter of the patterns themselves and their differences from a parent's array; and which, if any."""
    ways: list[tuple[Bits, list[str] | None]] = [(turned(pattern), None)]
    for parent in sample.truth.get("parents", ()):
        for other in _counterparts(key, sample.truth) if parent in known else ():
            base = known[parent].arrays.get(other)
            if base is not None and base.shape[1:] == pattern.shape[1:] and len(base) >= len(pattern):
                ways.append((differences(pattern, base[: len(pattern)]), [parent, other]))
    return min(ways, key=lambda way: _bits_needed(way[0]))


def _counterparts(key: str, truth: Mapping[str, Any]) -> list[str]:
    """Where a parent may keep the same: in the same place, without experts, or in another layer."""
    layer, dot, rest = key.partition(".")
    order = truth.get("made_by", {}).get("details", {}).get("layer_map")
    moved = [f"{order[int(layer)]}.{rest}"] if dot and order else []
    return list(
        dict.fromkeys([*moved, key, *(place.rpartition(".")[0] for place in (*moved, key) if place[-1:].isdigit())])
    )


def _bits_needed(codes: Bits) -> float:
    """What an ideal coder of single bytes needs for both planes."""
    needed = 0.0
    for plane in (codes >> 8, codes & 0xFF):
        counts = np.bincount(plane.ravel())
        counts = counts[counts > 0]
        needed -= float(np.sum(counts * np.log2(counts / plane.size)))
    return needed


@dataclass(frozen=True)
class Coded:
    """An array as a file has it."""

    codes: Bits
    source: list[str] | None


def unpacked(files: Iterable[bytes], truths: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Sample]:
    """All samples of the files; a file may refer to models in another."""
    coded: dict[tuple[str, str], Coded] = {}
    models: dict[str, Sample] = {}
    for body in files:
        index, codes = _opened(body)
        start = 0
        for entry in index["models"]:
            name, ids = entry["name"], tuple(entry["token_ids"])
            told = {"tokens": tuple(index["tokens"][: len(ids)]), "token_ids": ids, "offset": index["offset"]}
            models[name] = Sample(name, {}, entry["gain_offset"], truth=(truths or {}).get(name, {}), **told)
            for key, shape, source in entry["arrays"]:
                size = int(np.prod(shape))
                coded[name, key] = Coded(codes[start : start + size].reshape(shape), source)
                start += size
    patterns: dict[tuple[str, str], Bits] = {}
    arrays: dict[str, dict[str, Bits]] = {name: {} for name in models}
    for name, key in coded:
        arrays[name][key] = _decoded((name, key), coded, patterns)
    return {name: replace(sample, arrays=arrays[name]) for name, sample in models.items()}


def _opened(body: bytes) -> tuple[dict[str, Any], Bits]:
    content = lzma.decompress(body)
    end = 8 + int.from_bytes(content[:8], "little")
    index = json.loads(content[8:end])
    if index["schema"] != SCHEMA:
        raise ValueError(f"samples are of schema {index['schema']}, expected {SCHEMA}")
    upper, lower = np.frombuffer(content, np.uint8, offset=end).reshape(2, -1).astype(np.uint16)
    return index, (upper << 8) | lower


def _decoded(
    place: tuple[str, str], coded: Mapping[tuple[str, str], Coded], patterns: dict[tuple[str, str], Bits]
) -> Bits:
    if place not in patterns:
        codes, source = coded[place].codes, coded[place].source
        if source is None:
            patterns[place] = turned_back(codes)
        else:
            base = _decoded((source[0], source[1]), coded, patterns)
            patterns[place] = added(codes, base[: len(codes)])
    return patterns[place]


def group_of(sample: Sample) -> str:
    """Strangers that are numbered (twin-07) with their like, other strangers, and everything else."""
    if sample.truth.get("kind", "unrelated") != "unrelated":
        return "derivatives"
    word, _, number = sample.name.rpartition("-")
    return f"{word}s" if word in NUMBERED and number.isdigit() else "others"


def thinned(sample: Sample, level: int) -> Sample:
    """Less of a model that is no stranger. 1: half of the tokens, one expert; 2: the up projection in the layers at a
    third and at two thirds of the depth only; 3: half of the rows as well. Gains are always kept."""
    if not level or group_of(sample) != "derivatives":
        return sample
    arrays = dict(sample.arrays)
    tokens = len(sample.tokens) // 2
    if "embedding" in arrays:
        arrays["embedding"] = arrays["embedding"][:tokens]
    arrays = {key: array for key, array in arrays.items() if not re.fullmatch(r"\d+\.\w+\.[1-9]\d*", key)}
    depth = 1 + max((int(key.split(".")[0]) for key in arrays if key[0].isdigit()), default=-1)
    if level > 1 and any(role_of(key) == "gate" for key in arrays):
        kept = {depth // 3, 2 * depth // 3}
        arrays = {k: array for k, array in arrays.items() if role_of(k) != "up" or int(k.split(".")[0]) in kept}
    if level > 2:
        half = {key: len(array) // 2 for key, array in arrays.items() if role_of(key) in ("gate", "up")}
        arrays = {key: array[: half.get(key)] for key, array in arrays.items()}
    return replace(sample, arrays=arrays, tokens=sample.tokens[:tokens], token_ids=sample.token_ids[:tokens])


def grouped(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """File name -> its samples; a group that is too large is numbered and split."""
    parts: dict[str, list[list[Sample]]] = {}
    for sample in samples:
        group = parts.setdefault(group_of(sample), [[]])
        if group[-1] and sum(map(size_of, [*group[-1], sample])) > LARGEST:
            group.append([])
        group[-1].append(sample)
    return {
        f"{name}{f'-{number}' if len(group) > 1 else ''}.xz": part
        for name, group in parts.items()
        for number, part in enumerate(group, 1)
    }


def is_ours(path: Path) -> bool:
    """Whether a file of this name belongs to a folder of measurements; others that lie there are left alone."""
    return path.name in (TRUTHS, PAIRS) or SAMPLES.fullmatch(path.name) is not None


def put_in_place(made: Path, out: Path) -> None:
    """Every file of `made` into `out`, on the same disk, instead of the measurements that are there."""
    out.mkdir(parents=True, exist_ok=True)
    new = {path.name: path for path in made.iterdir()}
    for old in [path for path in out.iterdir() if is_ours(path) and path.name not in new]:
        old.unlink()
    for name, path in new.items():
        path.replace(out / name)


def size_of(sample: Sample) -> int:
    return sum(array.size for array in sample.arrays.values())


def write_text(path: Path, text: str) -> None:
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def write_truths(folder: Path, truths: Mapping[str, Mapping[str, Any]]) -> None:
    write_text(folder / TRUTHS, json.dumps(truths, ensure_ascii=False, separators=(",", ":")))


def write_pairs(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(folder / PAIRS, text.getvalue())


def truths(folder: Path = HERE) -> dict[str, dict[str, Any]]:
    """Every model's truth.json, with its `shape` beside; disguises without the orders that their seeds give."""
    return dict(json.loads(lzma.decompress((folder / TRUTHS).read_bytes())))


def pairs(folder: Path = HERE) -> list[dict[str, str]]:
    """Every measured pair as text by column; see `zoo.comparison` for the columns."""
    text = lzma.decompress((folder / PAIRS).read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))


def load(folder: Path = HERE) -> dict[str, Sample]:
    """Every model's sample by name, with its truth."""
    files = sorted(path for path in folder.iterdir() if SAMPLES.fullmatch(path.name))
    return unpacked((path.read_bytes() for path in files), truths(folder))
