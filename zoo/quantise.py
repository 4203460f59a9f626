"""The same weights in fewer bits or with fewer of them, read back as float32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import pad

from zoo.checkpoints import Model, Weights
from zoo.derivation import check_share, derived, is_linear, largest

INT4_GROUP = 32
NF4_BLOCK = 64
TINY = 1e-12  # an all-zero row or block has no scale of its own


def int8(tensor: torch.Tensor) -> torch.Tensor:
    """One scale a row, 255 levels around zero."""
    step = tensor.abs().amax(1, keepdim=True).clamp(min=TINY) / 127
    return (tensor / step).round() * step


def int4(tensor: torch.Tensor) -> torch.Tensor:
    """16 levels a group of 32 columns, with a whole zero point, so that zero stays zero."""
    columns = tensor.shape[1]
    # The range of a group includes zero in any case, so that padding with it moves no level.
    groups = pad(tensor, (0, -columns % INT4_GROUP)).view(len(tensor), -1, INT4_GROUP)
    low, high = groups.amin(2, keepdim=True).clamp(max=0), groups.amax(2, keepdim=True).clamp(min=0)
    step = (high - low).clamp(min=TINY) / 15
    zero = (-low / step).round()
    codes = ((groups / step).round() + zero).clamp(0, 15)
    return ((codes - zero) * step).view(len(tensor), -1)[:, :columns]


def fp8(tensor: torch.Tensor) -> torch.Tensor:
    """e4m3 with one scale a tensor."""
    kind = torch.float8_e4m3fn
    step = tensor.abs().max().clamp(min=TINY) / torch.finfo(kind).max
    return (tensor / step).to(kind).float() * step


def nf4_levels() -> torch.Tensor:
    """The 16 levels of QLoRA (Dettmers et al., 2023): normal quantiles, 8 above zero, 7 below, and zero itself."""
    # The outermost quantile averages those at which 16 and 15 equal shares of the normal law would end.
    outermost = 1 - (1 / 32 + 1 / 30) / 2
    above, below = (torch.special.ndtri(torch.linspace(outermost, 0.5, n).double()[:-1]) for n in (9, 8))
    levels = torch.cat([above, torch.zeros(1), -below]).sort().values
    return (levels / levels.abs().max()).float()


def nf4(tensor: torch.Tensor) -> torch.Tensor:
    """The nearest of 16 normal quantiles, scaled to the largest of each block of 64 entries in row order."""
    flat = tensor.flatten()
    blocks = pad(flat, (0, -flat.numel() % NF4_BLOCK)).view(-1, NF4_BLOCK)
    largest_of_block = blocks.abs().amax(1, keepdim=True).clamp(min=TINY)
    levels = nf4_levels()
    between = (levels[1:] + levels[:-1]) / 2
    nearest = levels[torch.bucketize(blocks / largest_of_block, between)]
    return (nearest * largest_of_block).flatten()[: flat.numel()].view(tensor.shape)


SCHEMES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"int8": int8, "int4": int4, "fp8": fp8, "nf4": nf4}


def quantised(model: Model, scheme: str) -> Model:
    """The linear layers on the lattice of a scheme; norms, biases, embeddings, head and router as they were."""
    if scheme not in SCHEMES:
        raise ValueError(f"no scheme {scheme!r}; known are {', '.join(SCHEMES)}")
    changed = {role: SCHEMES[scheme](tensor) for role, tensor in _linear_layers(model).items()}
    return derived(model, "re-encoded", "quantised", {"scheme": scheme}, {**model.weights, **changed})


def cast(model: Model, dtype: torch.dtype) -> Model:
    """Every value rounded through a dtype. Where all survive it, the result is the same model."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype!r}: expected one of torch's for floating-point numbers, as torch.bfloat16")
    rounded = {role: tensor.to(dtype).float() for role, tensor in model.weights.items()}
    same = all(torch.equal(tensor, model.weights[role]) for role, tensor in rounded.items())
    details = {"dtype": str(dtype).removeprefix("torch.")}
    return derived(model, "identical" if same else "re-encoded", "cast", details, rounded)


def pruned(model: Model, share: float) -> Model:
    """The given share of every linear layer, its entries of smallest magnitude, set to zero."""
    check_share("share", share)
    changed = {role: tensor * largest(tensor, 1 - share) for role, tensor in _linear_layers(model).items()}
    return derived(model, "re-encoded", "pruned", {"share": share}, {**model.weights, **changed})


def _linear_layers(model: Model) -> Weights:
    return {role: tensor for role, tensor in model.weights.items() if is_linear(role)}
