"""Nulls and tests. Every test returns a `Significance`, or a frozen record that holds one; chance enters as `rng`."""

from __future__ import annotations

from modelkin.stats.arrays import rank_scores
from modelkin.stats.checks import hidden_autocorrelation, importance_order, index_meaning
from modelkin.stats.conformal import Conformal, conformal
from modelkin.stats.intervals import Interval, PairRate, clopper_pearson, pair_rate, upper_bound, wilson
from modelkin.stats.layers import (
    Layers,
    NeuronLayers,
    neurons_over_layers,
    over_layers,
    surest_fixed_points,
    total_fixed_points,
)
from modelkin.stats.multiplicity import Budget, fisher, holm
from modelkin.stats.pair_swap import pair_swap_axes
from modelkin.stats.permutation import JointPermutation, LayerOffset, joint_permutation, layer_offset
from modelkin.stats.rencontres import (
    e_value,
    log_chosen_tail,
    log_e_mixture,
    log_e_value,
    log_rencontres_tail,
    log_total_tail,
)
from modelkin.stats.roll_call import Neurons, RollCall, better_of, hidden_axes, neurons, roll_call
from modelkin.stats.row_order import Traits, likeness_of, places_of, row_order, traits
from modelkin.stats.rows import PooledRows, pooled_rows, smallest_detectable, smallest_detectable_exactly

__all__ = [
    "Budget",
    "Conformal",
    "Interval",
    "JointPermutation",
    "LayerOffset",
    "Layers",
    "NeuronLayers",
    "Neurons",
    "PairRate",
    "PooledRows",
    "RollCall",
    "Traits",
    "better_of",
    "clopper_pearson",
    "conformal",
    "e_value",
    "fisher",
    "hidden_autocorrelation",
    "hidden_axes",
    "holm",
    "importance_order",
    "index_meaning",
    "joint_permutation",
    "layer_offset",
    "likeness_of",
    "log_chosen_tail",
    "log_e_mixture",
    "log_e_value",
    "log_rencontres_tail",
    "log_total_tail",
    "neurons",
    "neurons_over_layers",
    "over_layers",
    "pair_rate",
    "pair_swap_axes",
    "places_of",
    "pooled_rows",
    "rank_scores",
    "roll_call",
    "row_order",
    "smallest_detectable",
    "smallest_detectable_exactly",
    "surest_fixed_points",
    "total_fixed_points",
    "traits",
    "upper_bound",
    "wilson",
]
