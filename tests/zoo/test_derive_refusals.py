"""Arguments that mean nothing are refused in one sentence, before anything is made of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from models import tiny  # noqa: E402
from zoo.checkpoints import Model  # noqa: E402

from zoo import derive  # noqa: E402

TOKENIZER = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"t0": 0}, "unk_token": "t0"}}


def lora(role: str, b: tuple[int, ...], a: tuple[int, ...], scale: float = 1.0) -> Callable[[Model], Model]:
    return lambda m: derive.merged_lora(m, {role: (torch.ones(b), torch.ones(a))}, scale)


REFUSED: dict[str, tuple[Callable[[Model], Model], str]] = {
    "lora on a gain": (lora("final_norm", (64, 2), (2, 64)), "final_norm has shape (64,): expected a matrix"),
    "lora that does not fit": (
        lora("1.k", (64, 2), (2, 64)),
        "1.k: expected B of shape (32, rank) and A of shape (rank",
    ),
    "lora that is broadcast": (lora("1.q", (1, 2), (2, 64)), "found (1, 2) and (2, 64)"),
    "lora of two ranks": (lora("1.q", (64, 2), (3, 64)), "found (64, 2) and (3, 64)"),
    "lora of no rank": (lora("1.q", (64, 0), (0, 64)), "found (64, 0) and (0, 64)"),
    "lora of vectors": (lora("1.q", (64,), (64,)), "found (64,) and (64,)"),
    "lora without scale": (lora("1.q", (64, 2), (2, 64), float("nan")), "scale is nan: expected a finite number"),
    "lora of nothing": (lambda m: derive.merged_lora(m, {}, 1.0), "no factors: expected B and A"),
    "graft of nothing": (lambda m: derive.graft_layers(m, m, {}), "no layers to graft: expected at least one"),
    "empty token": (lambda m: derive.extend_vocabulary(m, [""], seed=1), "expected at least one new token, none empty"),
    "slerp beyond": (lambda m: derive.slerp(m, m, 1.5), "t is 1.5: expected 0 to 1"),
    "slerp before": (lambda m: derive.slerp(m, m, -0.1), "t is -0.1: expected 0 to 1"),
    "slerp nowhere": (lambda m: derive.slerp(m, m, float("nan")), "t is nan: expected 0 to 1"),
    "soup of nothing": (lambda _: derive.soup([]), "no models: expected at least one"),
    "linear of nothing": (lambda _: derive.linear([], []), "no models: expected at least one"),
    "ties of nothing": (lambda m: derive.ties(m, [], [], 0.5), "no models: expected at least one"),
    "dare of nothing": (lambda m: derive.dare(m, [], [], 0.5, seed=1), "no models: expected at least one"),
    "ties by nan": (lambda m: derive.ties(m, [m], [float("nan")], 0.5), "weight nan: expected a finite number"),
    "passthrough of nothing": (lambda _: derive.passthrough([]), "no layers: expected pairs"),
    "copied to none": (lambda m: derive.upcycle_copied(m, 0, seed=1), "experts is 0: expected at least 1"),
    "split to none": (lambda m: derive.upcycle_split(m, 0, seed=1), "experts is 0: expected at least 1"),
    "split to fewer": (lambda m: derive.upcycle_split(m, -4, seed=1), "experts is -4: expected at least 1"),
    "split for none": (lambda m: derive.upcycle_split(m, 4, 0, seed=1), "top_k is 0: expected 1 to 4"),
    "split by nan": (lambda m: derive.upcycle_split(m, seed=1, scale=float("nan")), "scale is nan: expected a finite"),
    "no heads": (lambda m: derive.reinitialise_attention(m, 0, 1, seed=1), "heads is 0: expected at least 1"),
    "no groups": (lambda m: derive.reinitialise_attention(m, 4, 0, seed=1), "kv_heads is 0: expected at least 1"),
    "no dtype": (lambda m: derive.cast(m, "x"), "dtype is 'x': expected one of torch's"),
    "dtype of integers": (lambda m: derive.cast(m, torch.int8), "dtype is torch.int8: expected one of torch's"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_argument_that_means_nothing_is_refused(case: str):
    act, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        act(replace(tiny("llama"), tokenizer=TOKENIZER))
    assert "\n" not in str(raised.value)


def test_a_lora_of_another_dtype_gives_weights_of_ours():
    base = tiny("llama")
    factors = {"1.q": (torch.ones(64, 1, dtype=torch.float64), torch.ones(1, 64, dtype=torch.bfloat16))}
    child = derive.merged_lora(base, factors, 0.5)
    assert child.weights["1.q"].dtype == torch.float32
    torch.testing.assert_close(child.weights["1.q"], base.weights["1.q"] + 0.5)
