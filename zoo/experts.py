"""Experts as one batched product, and what keeps them evenly used, whichever release of transformers holds them."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn

SPEED = 1e-3  # by which a step moves the bias of an expert that gets more or less than its share


def batch(network: nn.Module) -> None:
    """Every block of experts of `network` from now on computes them all at once."""
    for module in network.modules():
        if getattr(getattr(module, "gate_up_proj", None), "ndim", 0) == 3:
            module.forward = MethodType(every_expert, module)  # type: ignore[method-assign]


def balances(network: nn.Module) -> list[Balance]:
    """One for each router that has a correction bias."""
    return [Balance(module) for module in network.modules() if hasattr(module, "e_score_correction_bias")]


def every_expert(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """All experts on all tokens, those not chosen weighted zero: for few small experts faster than gathering.

    hidden_states: (token, d_model); top_k_index and top_k_weights: (token, chosen).
    """
    rows = hidden_states.reshape(-1, hidden_states.shape[-1])
    weights = top_k_weights.new_zeros(len(rows), len(self.gate_up_proj))
    weights = weights.scatter(1, top_k_index.view(len(rows), -1), top_k_weights.view(len(rows), -1))
    gate, up = torch.matmul(rows, self.gate_up_proj.transpose(1, 2)).chunk(2, dim=-1)
    out = torch.matmul(self.act_fn(gate) * up, self.down_proj.transpose(1, 2))
    return (out * weights.t().unsqueeze(-1).to(out.dtype)).sum(0).to(hidden_states.dtype).view_as(hidden_states)


class Balance:
    """Counts what a router chose while training, and moves its correction bias towards equal use.  [DeepSeek-V3]"""

    def __init__(self, router: Any) -> None:
        self.router = router
        self.load = torch.zeros_like(router.e_score_correction_bias)
        router.register_forward_hook(self._count)

    @torch.no_grad()
    def _count(self, router: Any, _: Any, output: Any) -> None:
        if not router.training:
            return
        logits = output[0] if isinstance(output, tuple) else output
        scores = logits.float().sigmoid() + router.e_score_correction_bias
        chosen = scores.topk(router.top_k, dim=-1).indices
        self.load += nn.functional.one_hot(chosen, scores.shape[-1]).sum((0, 1))

    @torch.no_grad()
    def step(self) -> None:
        self.router.e_score_correction_bias += SPEED * torch.sign(self.load.mean() - self.load)
        self.load.zero_()
