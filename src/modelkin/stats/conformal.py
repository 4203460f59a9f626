"""Where an observed value stands among control pairs of unrelated models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from modelkin.records import Null, Significance
from modelkin.stats.arrays import finite
from modelkin.stats.montecarlo import KEPT


@dataclass(frozen=True, slots=True)
class Conformal:
    """`floor` is the smallest p that so many controls can give."""

    floor: float
    significance: Significance


def conformal(observed: float, controls: ArrayLike) -> Conformal:
    """p = (1 + #{controls ≥ observed}) / (N + 1).  controls: (N,).

    Valid if the pair would be exchangeable with the controls were it unrelated, which is a judgement and not a theorem:
    never grade A. The picture keeps evenly spaced quantiles of the controls. [Vovk et al. 2005]
    """
    values = finite(controls, 1, "controls")
    if not math.isfinite(observed):
        raise ValueError(f"observed must be finite, found {observed}")
    p = (1 + int(np.count_nonzero(values >= observed))) / (values.size + 1)
    floor = 1 / (values.size + 1)
    quantiles = np.quantile(values, np.linspace(0, 1, min(KEPT, values.size))) if values.size else values
    return Conformal(
        floor,
        Significance(
            statistic=float(observed),
            log10_pvalue=math.log10(p),
            null=Null(
                f"{values.size} control pairs of unrelated models; p cannot be below 1/{values.size + 1}",
                tuple(quantiles.tolist()),
            ),
            n=values.size,
            exact=False,
        ),
    )
