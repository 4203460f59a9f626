"""What checkpoints carry that a formula makes is told from trained weights, in any shape and float format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.linalg import dft, hadamard
from scipy.signal import get_window
from scipy.signal.windows import gaussian
from scipy.stats import ortho_group

import modelkin.demo
from modelkin.questions.digests import TensorDigest
from modelkin.questions.formulas import is_formula, unfolded
from tensor_models import LLAMA, Tensors, anatomy, compared, llama, sinusoids, whole

Array = NDArray[Any]


def fourier(size: int, window: str = "hann") -> tuple[Array, Array]:
    """Real and imaginary part of the transform of a windowed frame, (size // 2 + 1, 1, size)."""
    kernel = dft(size)[: size // 2 + 1] * get_window(window, size)
    return kernel.real[:, None], kernel.imag[:, None]


def mel_bank(bands: int, bins: int) -> Array:
    """Triangles, evenly spaced on a scale that grows like a logarithm, of area one."""
    edges = 700 * (10 ** (np.linspace(0, 2840, bands + 2) / 2595) - 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    at = np.linspace(0, 8000, bins)
    triangles = np.maximum(0, np.minimum((at - low) / (middle - low), (high - at) / (high - middle)))
    return np.asarray(triangles * 2 / (high - low))


def rotary(places: int, width: int) -> Array:
    return np.outer(np.arange(places), 1 / 10000 ** (np.arange(0, width, 2) / width))


def patch_positions(side: int, width: int) -> Array:
    """Of a vision tower: waves of the row in one half, of the column in the other; (1, side², width)."""
    rows, columns = np.divmod(np.arange(side * side), side)
    waves = sinusoids(side, width // 2)
    return np.concatenate([waves[rows], waves[columns]], axis=1)[None]


def grid(side: int) -> Array:
    x, y = np.meshgrid(np.arange(side) + 0.5, np.arange(side) + 0.5)
    return np.stack([x.reshape(-1), y.reshape(-1)], axis=1) / side


def wavelets(count: int, size: int) -> Array:
    """Waves under a bell, (count, 1, 1, size)."""
    waves = np.sin(np.outer(np.geomspace(0.05, 2.5, count), np.arange(size)))
    return np.asarray((waves * gaussian(size, size / 8))[:, None, None])


def hippo(size: int) -> Array:
    root = np.sqrt(2 * np.arange(size) + 1)
    return np.tril(np.outer(root, root), -1) + np.diag(np.arange(size) + 1)


def log_coordinates(window: int) -> Array:
    """Relative places of patches, as tables of position biases are made from: (1, 2w − 1, 2w − 1, 2)."""
    steps = np.arange(1 - window, window) / window
    table = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1)
    return np.asarray(np.sign(table) * np.log2(1 + 8 * np.abs(table)))[None]


MADE: dict[str, Array] = {
    "Fourier kernel, real part": fourier(1024)[0],
    "Fourier kernel, imaginary part": fourier(1024)[1],
    "Fourier kernel of four axes": fourier(512)[0][:, :, None],
    "Fourier kernel without window": fourier(256, "boxcar")[1],
    "the upper frequencies alone": fourier(1024)[0][400:],
    "cosine transform": np.cos(np.pi / 128 * np.outer(np.arange(128), np.arange(128) + 0.5)),
    "mel bank": mel_bank(128, 1025),
    "mel bank, transposed, in a batch": mel_bank(80, 513).T[None],
    "window": np.kaiser(2048, 14.0)[None, None],
    "windows": np.stack([get_window(name, 1024) for name in ("hann", "hamming", "blackman")]),
    "Hadamard rotation": hadamard(64) / 8,
    "rotation drawn from a seed": ortho_group.rvs(96, random_state=3),
    "signed Hadamard rotation": hadamard(128) * np.random.default_rng(0).choice([-0.1, 0.1], 128),
    "rotary angles": rotary(2048, 64),
    "rotary cosines": np.cos(rotary(2048, 64))[None, None],
    "rotary numbers as pairs": np.stack([np.cos(rotary(512, 64)), np.sin(rotary(512, 64))], axis=-1),
    "sinusoids": sinusoids(1500, 384),
    "sinusoids, transposed": sinusoids(512, 256).T,
    "positions of patches": patch_positions(24, 64),
    "grid of anchors": grid(40),
    "index of relative positions": np.subtract.outer(np.arange(64), np.arange(64)) + 64 * np.arange(64)[:, None],
    "token numbers": np.random.default_rng(1).permutation(32000)[:4096].reshape(64, 64),
    "mask": np.triu(np.full((64, 64), -np.inf), 1)[None, None],
    "decay": 0.97 ** np.abs(np.subtract.outer(np.arange(80.0), np.arange(80.0))),
    "bells of an image blur": np.outer(gaussian(41, 6), gaussian(41, 6))[None, None],
    "wavelets": wavelets(48, 256),
    "coordinates on a log scale": log_coordinates(24),
    "state matrix of orthogonal polynomials": hippo(64),
    "repeated for every channel": np.tile(np.log(np.arange(1, 17)), (96, 1)),
}
FORMATS = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("name", list(MADE))
def test_formulas_are_recognised_in_every_float_format(name: str, form: np.dtype[Any]) -> None:
    assert is_formula(MADE[name].astype(form).astype(np.float32))


@pytest.mark.parametrize("name", list(MADE))
def test_equal_tables_do_not_relate_strangers(tmp_path: Path, name: str) -> None:
    """Two of each, under names of weights."""
    table = np.ascontiguousarray(MADE[name], np.float32)
    same = {"front.first.weight": table, "front.second.weight": np.ascontiguousarray(table * np.float32(0.7))}
    answer = whole(anatomy(llama(0) | same), anatomy(llama(1) | same))
    assert (answer.statistic, answer.grade) == (0, None)
    if name == "Fourier kernel, real part":
        assert compared(tmp_path, llama(0) | same, llama(1) | same, "full", LLAMA).verdict.outcome != "related"


def test_a_row_of_numbers_without_a_role_never_counts() -> None:
    """Statistics and windows stay vectors, whatever axes of length one they are stored with."""
    vector = np.random.default_rng(2).normal(size=4096).astype(np.float32)
    for shape in ((4096,), (1, 4096), (4096, 1), (1, 4096, 1, 1)):
        same: Tensors = {f"front.{i}.weight": (vector * np.float32(1 + i)).reshape(shape) for i in range(3)}
        assert whole(anatomy(llama(0) | same), anatomy(llama(1) | same)).statistic == 0


def trained() -> list[Array]:
    folder = Path(modelkin.demo.__file__).parent / "models"
    tensors = [array for path in sorted(folder.glob("*/model.safetensors")) for array in load_file(path).values()]
    return [array.astype(np.float32) for array in tensors if array.ndim > 1]


def test_no_trained_matrix_is_taken_for_a_formula() -> None:
    matrices = trained()
    assert len(matrices) > 100
    assert not any(map(is_formula, matrices))


def test_neither_noise_nor_low_rank_nor_pruning_is_a_formula() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(256, 192))
    pruned = np.where(rng.random(noise.shape) < 0.8, 0, noise)
    pairs = noise.reshape(-1, 4)
    two_of_four = np.where(np.argsort(np.argsort(np.abs(pairs), axis=1), axis=1) < 2, 0, pairs).reshape(noise.shape)
    low_rank = rng.normal(size=(256, 3)) @ rng.normal(size=(3, 192))
    kernels = rng.normal(size=(64, 32, 3, 3))
    depthwise = rng.normal(size=(512, 1, 31))
    for array in (noise, noise.T, pruned, two_of_four, low_rank, kernels, depthwise):
        assert not is_formula(array.astype(np.float32))


def test_chance_hardly_ever_looks_like_a_formula() -> None:
    """The shortest lines that can show a wave, and the fewest numbers that can count at all."""
    rng = np.random.default_rng(5)
    shapes = ((42, 24), (24, 42), (8, 125), (16, 64), (2, 500), (5, 8, 25))
    found = [is_formula(rng.normal(size=shape).astype(np.float32)) for shape in shapes for _ in range(200)]
    assert sum(found) == 0


def test_the_shape_is_found_again_from_rows_of_a_block() -> None:
    pairs = np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)
    rows = pairs.reshape(-1, 4)
    assert np.array_equal(unfolded(rows, pairs.shape), pairs)
    assert np.array_equal(unfolded(rows[:20], pairs.shape), pairs[:1])
    assert np.array_equal(unfolded(rows[:12], pairs.shape), pairs[0, :2])
    assert np.array_equal(unfolded(rows[:3], pairs.shape), pairs[0, 0, :3])
    assert np.array_equal(unfolded(rows[:3], rows.shape), rows[:3])


def test_a_digest_sees_the_shape_through_its_rows() -> None:
    """The table of pairs looks like noise to who sees rows of two."""
    table = MADE["rotary numbers as pairs"].astype(np.float32)
    digest = TensorDigest(["F32"], table.shape)
    digest.update(table.reshape(-1, 2)[:4096])
    assert not digest.says_something
