"""What correlations along the hidden axes would be between strangers: the axes of one model renumbered, all at once.

All layers of a model share one set of axes, so one renumbering moves all of them together. Renumberings are taken in
whole orbits: of a renumbering drawn at random all `d` cyclic shifts, which one Fourier transform gives together. The
first orbit starts at the numbering as it is. Under the null the true numbering is as likely as any other of its orbit,
and its orbit as likely as any of the drawn ones; so the share of renumberings that do as well as the true one is an
exact p-value, for any statistic. It is never below one over the number of renumberings, and is for display: what may
convict is asked by `compare`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, irfft, next_fast_len, rfft

from modelkin.stats.montecarlo import drawn_pvalue
from modelkin.stats.permutation import step_down
from modelkin.survey.vectors import Doubles, Places

FEWEST = 4096  # renumberings; a model this wide needs one orbit

Spectra = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Shifted:
    """The vectors of one model in every orbit, transformed: (orbits, layers, frequencies). Rows left out are zero."""

    spectra: Spectra
    width: int
    used: NDArray[np.bool_]
    room: int  # layers and zeros after them: as many that no layers meet which an offset does not bring together

    def scaled(self, lengths: Doubles) -> Shifted:
        """Every vector times its length; a vector without one (NaN) is left out. Saves transforming them anew."""
        used = np.isfinite(lengths)
        spectra = self.spectra * np.where(used, lengths, 0.0)[:, None]
        return Shifted(spectra, self.width, used, self.room)

    @cached_property
    def by_layer(self) -> Spectra:
        """Transformed along the layers as well."""
        return np.asarray(fft(self.spectra, n=self.room, axis=1))


def orbits(width: int) -> int:
    return -(-FEWEST // width)


def shifted(rows: Doubles, numbering: NDArray[np.intp], room: int, rng: np.random.Generator) -> Shifted:
    """rows (layers, d), each already without its mean; a row with NaN is left out.

    `numbering` is one random order of the axes, the same for all models: neighbours must not be neighbours by habit.
    """
    used: NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1))
    clean = np.where(used[:, None], rows, 0.0)[:, numbering]
    width = rows.shape[1]
    orders = [np.arange(width), *(rng.permutation(width) for _ in range(orbits(width) - 1))]
    spectra = np.asarray(rfft(np.stack([clean[:, order] for order in orders]), axis=2))
    return Shifted(spectra, width, used, next_fast_len(room))


def at_layers(a: Shifted, b: Shifted, rows_a: Places, rows_b: Places) -> Doubles:
    """Inner products of given rows in every renumbering: (renumberings, pairs). The first is the one observed."""
    products = np.conj(a.spectra[:, rows_a]) * b.spectra[:, rows_b]
    return _laid_out(np.asarray(irfft(products, n=a.width, axis=2)))


def of_sums(a: Shifted, b: Shifted) -> Doubles:
    """The sum of the inner products of all rows with all rows, in every renumbering."""
    product = np.conj(a.spectra.sum(axis=1)) * b.spectra.sum(axis=1)
    return np.asarray(irfft(product, n=a.width, axis=1)).ravel()


def at_offsets(a: Shifted, b: Shifted, offsets: NDArray[np.intp]) -> Doubles:
    """Sums of the inner products of row i of a and row i + offset of b: (renumberings, offsets)."""
    products = ifft(np.conj(a.by_layer) * b.by_layer, axis=1)
    return _laid_out(np.asarray(irfft(products[:, offsets % a.room], n=a.width, axis=2)))


def pvalue(values: Doubles) -> float:
    """The share of renumberings that do at least as well as the first, itself included."""
    return drawn_pvalue(float(values[0]), values[1:])


def adjusted(values: Doubles) -> tuple[float, ...]:
    """(renumberings, m) -> m p-values, each paid for having looked m times (step-down max-T)."""
    return step_down(values[0], values[1:])


def _laid_out(values: Doubles) -> Doubles:
    """(orbits, m, d) -> (orbits · d, m)"""
    return np.moveaxis(values, 1, 2).reshape(-1, values.shape[1])
