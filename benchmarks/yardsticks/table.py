"""Every yardstick, and what its paper calls a match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.yardsticks.awm import aligned_cka
from benchmarks.yardsticks.direct import deviation_profile, gain_cosine, parameter_cosine
from benchmarks.yardsticks.huref import invariant_terms
from benchmarks.yardsticks.independence import agreement, kept_order_of_all, kept_order_of_up
from benchmarks.yardsticks.spectra import ghost_spectra, polar_trace

from modelkin.architectures import Anatomy


@dataclass(frozen=True)
class Yardstick:
    """`score` is higher the more alike. `match`: what its authors take for kinship, in words."""

    name: str
    score: Callable[[Anatomy, Anatomy], float]
    source: str
    match: str


YARDSTICKS = (
    Yardstick("gain cosine", gain_cosine, "public claim, 2026", "0.9 and above; 0.99 was called proof"),
    Yardstick("PCS", parameter_cosine, "HuRef's baseline", "0.8 to 0.9 and above, by habit"),
    Yardstick("HuRef", invariant_terms, "NeurIPS 2024", "near 1; unrelated models near 0"),
    Yardstick("AWM", aligned_cka, "ICLR 2026", "far above 0.0038 ± 0.0028, its 90 unrelated pairs"),
    Yardstick("csu", kept_order_of_up, "ICML 2025", "−log10 p of 6 and more; 308 is the ceiling of its floats a layer"),
    Yardstick("csw", kept_order_of_all, "ICML 2025", "the same, of every matrix"),
    Yardstick("match", agreement, "ICML 2025", "the same, of gate against up; here without forward passes"),
    Yardstick("std profile", deviation_profile, "arXiv 2507.03014", "correlation above 0.9"),
    Yardstick("GhostSpec", ghost_spectra, "AAAI 2026", "a distance near 0, through a sigmoid fitted to its pairs"),
    Yardstick(
        "MDIR", polar_trace, "arXiv 2508.06309", "a trace share from 0.07 at 4,096 axes, by a bound for rotations"
    ),
)
