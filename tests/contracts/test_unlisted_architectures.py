"""Architectures without a family: what has a place is what transformers computes with, and no fact is invented.

The models are live ones of transformers. Which matrix a module reads with, and which norm stands before whom, is taken
from a forward pass; the names are only used to find the modules.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.pytorch_utils import Conv1D  # noqa: E402

from modelkin.architectures import identify  # noqa: E402
from modelkin.checkpoint import open_checkpoint  # noqa: E402
from modelkin.records import Role  # noqa: E402
from modelkin.sources.memory import MemorySource  # noqa: E402

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PLAIN = TOKENS | {
    "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 56,
    "max_position_embeddings": 40,
}  # fmt: skip
GROUPED = PLAIN | {"num_key_value_heads": 2, "head_dim": 8}
SHORT = {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 40}
STACKS = {"vocab_size": 97, "d_model": 48, "max_position_embeddings": 40} | {
    f"{stack}_{what}": n for stack in ("encoder", "decoder") for what, n in
    (("layers", 2), ("attention_heads", 6), ("ffn_dim", 56))
}  # fmt: skip
LINEAR = {f"linear_num_{kind}_heads": 2 for kind in ("key", "value")} | {
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
SHARED = {"shared_expert_intermediate_size": 20}
WHOLE = {"layer_types": ["full_attention"] * 2, "sliding_window": 4}


@dataclass(frozen=True)
class Case:
    """A model class, its config, and what is true of it: norm, placement, positions."""

    model: str
    config: dict[str, Any]
    truth: tuple[str, str, str]


CASES = {
    "nemotron": Case("NemotronForCausalLM", GROUPED, ("layer", "pre", "rotary")),
    "vaultgemma": Case("VaultGemmaForCausalLM", GROUPED, ("rms", "pre", "rotary")),
    "qwen3_next": Case("Qwen3NextForCausalLM", GROUPED | LINEAR | EXPERTS | SHARED, ("rms", "pre", "rotary")),
    "qwen3_5_text": Case("Qwen3_5ForCausalLM", GROUPED | LINEAR, ("rms", "pre", "rotary")),
    "exaone4": Case("Exaone4ForCausalLM", GROUPED | WHOLE, ("rms", "post", "rotary")),
    "flex_olmo": Case("FlexOlmoForCausalLM", GROUPED | EXPERTS, ("rms", "post", "rotary")),
    "openai-gpt": Case("OpenAIGPTLMHeadModel", SHORT, ("layer", "post", "learned")),
    "imagegpt": Case("ImageGPTForCausalImageModeling", SHORT, ("rms", "pre", "learned")),
    "pegasus": Case("PegasusForConditionalGeneration", STACKS, ("layer", "pre", "fixed")),
    "mbart": Case("MBartForConditionalGeneration", STACKS, ("layer", "pre", "learned")),
    "roformer": Case("RoFormerForMaskedLM", PLAIN, ("layer", "post", "rotary")),
    "electra": Case("ElectraForMaskedLM", PLAIN | {"embedding_size": 32}, ("layer", "post", "learned")),
    "deberta": Case("DebertaForMaskedLM", PLAIN, ("layer", "post", "relative")),
    "cohere2": Case("Cohere2ForCausalLM", GROUPED | WHOLE, ("layer", "parallel", "rotary")),
    "starcoder2": Case("Starcoder2ForCausalLM", GROUPED, ("layer", "pre", "rotary")),
    "gpt_oss": Case(
        "GptOssForCausalLM", GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}, ("rms", "pre", "rotary")
    ),
    "phi": Case("PhiForCausalLM", PLAIN, ("layer", "parallel", "rotary")),
}


@pytest.fixture(params=CASES)
def case(request) -> str:
    return request.param


@cache
def built(name):
    """The live model with every parameter random, and its anatomy."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some modules warn on being imported
        made = getattr(transformers, CASES[name].model)
        model = made(made.config_class(**CASES[name].config)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return model, identify(open_checkpoint(MemorySource(files)))


@cache
def taped(name):
    """What every module read and wrote first in one forward pass, by its path."""
    model, _ = built(name)
    read, wrote = {}, {}

    def keep(path):
        def hook(_, given, out):
            if given and torch.is_tensor(given[0]):
                read.setdefault(path, given[0].numpy().copy())
            if torch.is_tensor(out):
                wrote.setdefault(path, out.numpy().copy())

        return hook

    hooks = [module.register_forward_hook(keep(path)) for path, module in model.named_modules()]
    ids = torch.arange(3, 11)[None]
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        model(input_ids=ids, **extra)
    for hook in hooks:
        hook.remove()
    return read, wrote


def live_matrix(model, path, role):
    """(out, in), by the kind of the module that holds it."""
    if ".experts." in path:
        stack, expert, part = path.rsplit(".", 2)
        experts = model.get_submodule(stack)
        if part == "down_proj":
            return experts.down_proj[int(expert)].detach().numpy()
        return np.split(experts.gate_up_proj[int(expert)].detach().numpy(), 2)[part == "up_proj"]
    module = model.get_submodule(path)
    known = (torch.nn.Linear, torch.nn.Embedding, Conv1D)
    assert isinstance(module, known) or role is Role.ROUTER, f"{path} is a {type(module).__name__}"
    weight = module.weight.detach().numpy()
    return weight.T if isinstance(module, Conv1D) else weight


def test_no_fact_about_an_unlisted_architecture_is_invented(case):
    facts = built(case)[1].facts
    assert facts.family == "unknown"
    said = (facts.norm, facts.norm_placement, facts.positions)
    assert all(word in ("unknown", true) for word, true in zip(said, CASES[case].truth, strict=True)), said
    assert facts.gain_offset is facts.stream_norm is None
    assert facts.hidden == 48
    assert not (facts.exchangeable_hidden and CASES[case].truth[2] == "fixed")


def test_matrices_of_an_unlisted_architecture_are_those_of_the_live_modules(case):
    model, anatomy = built(case)
    for slot, view in anatomy.slots.items():
        path, _, kind = view.tensor.rpartition(".")
        if slot.role.is_gain or slot.role.is_bias:
            expected = getattr(model.get_submodule(path), kind).detach().numpy().reshape(-1)
        else:
            expected = live_matrix(model, path, slot.role)
        np.testing.assert_array_equal(anatomy.read(slot), expected, err_msg=f"{slot} from {view.tensor}")


def test_heads_of_an_unlisted_architecture_are_only_those_of_the_config(case):
    _, anatomy = built(case)
    facts = anatomy.facts
    rows = {Role.Q: facts.heads * facts.head_dim}
    if facts.kv_heads is not None:  # a config that is silent is not made to speak
        rows[Role.K] = facts.kv_heads * facts.head_dim
    assert all(anatomy.shape(slot)[0] == rows[role] for role in rows for slot in anatomy.of(role))


NEIGHBOURS = {  # a norm's role: who reads what it writes
    Role.INPUT_NORM: (Role.Q, Role.K),
    Role.POST_NORM: (Role.UP, Role.GATE, Role.SHARED_UP, Role.ROUTER),
}
WRITERS = {Role.ATTN_OUT_NORM: Role.O, Role.MLP_OUT_NORM: Role.DOWN}


def same(one, other):
    return one.size == other.size and np.array_equal(one.reshape(-1), other.reshape(-1))


def test_norms_of_an_unlisted_architecture_stand_beside_whom_they_name(case):
    _, anatomy = built(case)
    read, wrote = taped(case)
    place = {
        (slot.role, slot.layer, slot.stack): view.tensor.rpartition(".")[0] for slot, view in anatomy.slots.items()
    }
    checked = set()
    for (role, layer, stack), path in place.items():
        readers = [place.get((reader, layer, stack)) for reader in NEIGHBOURS.get(role, ())]
        readers += [f"{path.rpartition('.')[0]}.mlp"] if role is Role.POST_NORM else []
        checked |= {role for reader in readers if reader in read}
        assert all(same(wrote[path], read[reader]) for reader in readers if reader in read), path
        writer = place.get((WRITERS.get(role), layer, stack))
        assert writer not in wrote or same(read[path], wrote[writer]), path
    assert checked == {role for role, _, _ in place} & NEIGHBOURS.keys()


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("exaone4", "post_attention_layernorm"),
        ("flex_olmo", "post_attention_layernorm"),
        ("qwen3_next", "q_proj"),
        ("qwen3_5_text", "q_proj"),
        ("openai-gpt", "c_fc"),
        ("openai-gpt", "ln_1"),
        ("imagegpt", "c_fc"),
    ],
)
def test_what_the_names_alone_do_not_tell_is_left_over(name, module):
    _, anatomy = built(name)
    assert any(f".{module}.weight" in left for left in anatomy.unmapped)
    assert not any(f".{module}." in view.tensor for view in anatomy.slots.values())


@pytest.mark.parametrize("name", ["pegasus", "mbart", "roformer", "electra", "imagegpt"])
def test_tables_of_positions_are_set_apart(name):
    _, anatomy = built(name)
    assert "positions of unknown kind" in anatomy.apart.values()
    assert not anatomy.of(Role.POSITION)


def test_a_classifier_of_transformers_is_not_tied():
    made = transformers.BertForSequenceClassification
    model = made(made.config_class(**PLAIN))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    anatomy = identify(open_checkpoint(MemorySource(files)))
    assert "task head" in anatomy.apart.values()
    assert not anatomy.facts.tied
