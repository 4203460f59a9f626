"""What modelkin reads from a saved model is what transformers computes with.

The expected values come from live modules of transformers, never from a table of layouts: queries, keys and values are
taken where they are multiplied, the rest from what modules read and wrote. See tiny_models.py.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from tiny_models import FAMILIES, Block, Family, alive, build  # noqa: E402
from transformers.activations import ACT2FN  # noqa: E402

from modelkin.architectures import identify  # noqa: E402
from modelkin.checkpoint import open_checkpoint  # noqa: E402
from modelkin.records import Role, Slot  # noqa: E402
from modelkin.sources.memory import MemorySource  # noqa: E402

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

BY_ID = {family.id: family for family in FAMILIES}
EXPERTS = [f.id for f in FAMILIES if "num_experts_per_tok" in f.config and f.id != "qwen3_moe-square"]
WEIGHTS = "model.safetensors"


def saved(model, **options):
    """The files that `save_pretrained` writes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **options)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def tensors_of(files):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, WEIGHTS)
        path.write_bytes(files[WEIGHTS])
        return {name: tensor.clone() for name, tensor in load_file(path).items()}


def with_tensors(files, tensors):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, WEIGHTS)
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
        return files | {WEIGHTS: path.read_bytes()}


def pickled(model):
    """The state dict as a torch zip; tied tensors are stored once and named twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pytorch_model.bin")
        torch.save(model.state_dict(), path)
        return {name: body for name, body in saved(model).items() if name != WEIGHTS} | {path.name: path.read_bytes()}


def anatomy_of(files):
    return identify(open_checkpoint(MemorySource(files)))


@cache
def saved_anatomy(family_id):
    return anatomy_of(saved(alive(family_id)[0]))


@pytest.fixture(params=FAMILIES, ids=str)
def family(request) -> Family:
    return request.param


@pytest.fixture
def anatomy(family):
    return saved_anatomy(family.id)


class Layer:
    """Slots of one layer, or of one expert in it."""

    def __init__(self, anatomy, layer, stack="", expert=None):
        self.anatomy, self.layer, self.stack, self.expert = anatomy, layer, stack, expert

    def slot(self, role):
        return Slot(role, self.layer, self.expert, self.stack)

    def has(self, role):
        return self.slot(role) in self.anatomy.slots

    def __call__(self, role):
        array = self.anatomy.read(self.slot(role))
        assert array.dtype == np.float32
        return array

    def bias(self, role):
        role = getattr(Role, f"{role.name}_BIAS", None)
        return self(role) if role and self.has(role) else 0.0

    def project(self, role, x):
        return x @ self(role).T + self.bias(role)

    def norm(self, role, x, eps):
        return normed(x, self(role), self.bias(role), eps, self.anatomy.facts.norm)

    def mlp(self, x, activation, prefix=""):
        """Gated where the layer has a gate."""
        gate, up, down = (Role(f"{prefix}{name}") for name in ("gate", "up", "down"))
        act = lambda a: ACT2FN[activation](torch.from_numpy(a)).numpy()  # noqa: E731
        inner = act(self.project(gate, x)) * self.project(up, x) if self.has(gate) else act(self.project(up, x))
        return self.project(down, inner)


def normed(x, gain, bias, eps, kind):
    x = x.astype(np.float64)
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    else:
        assert kind == "rms"
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain + bias


def layers(family, anatomy):
    """(slots of the layer, its path in the live model, its block) for every layer of every stack."""
    for stack in family.stacks:
        for layer in range(stack.count):
            yield Layer(anatomy, layer, stack.name), f"{stack.layers}.{layer}.", stack.block


def assert_close(got, expected, what):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5 * scale, err_msg=what)


def epsilon(module):
    return getattr(module, "eps", None) or module.variance_epsilon


def heads_apart(x, count):
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def test_every_stored_number_has_one_place(family, anatomy):
    assert anatomy.unmapped == ()
    stored = {name: ref.parameters for name, ref in anatomy.checkpoint.tensors.items()}
    apart = {name for name in stored if name.startswith(family.apart or "\0")}
    assert set(anatomy.apart) == apart
    assert all(anatomy.apart.values()), "a tensor is set apart for a reason"
    assert len(set(anatomy.slots)) == len(anatomy.slots)
    assert sum(anatomy.read(slot).size for slot in anatomy.slots) == sum(stored.values()) - sum(map(stored.get, apart))


def qkv(own, model, path, x, source, family, cross=""):
    """(batch, heads, tokens, head width) each, from slots alone."""
    q, k, v = (Role(f"{cross}{name}") for name in "qkv")
    if own.has(Role.KV_A):
        return latent_qkv(own, model.config, x)
    expected = []
    for role, norm, count, read in (
        (q, Role.Q_NORM, family.heads, x),
        (k, Role.K_NORM, family.kv_heads, source),
        (v, None, family.kv_heads, source),
    ):
        flat = own.project(role, read)
        assert flat.shape[-1] == count * family.head_dim, own.slot(role)
        split = heads_apart(flat, count)
        if norm and own.has(norm):
            eps = epsilon(model.get_submodule(f"{path}.{norm.value}"))
            whole = own(norm).size == flat.shape[-1] != family.head_dim
            split = heads_apart(own.norm(norm, flat, eps), count) if whole else own.norm(norm, split, eps)
        expected.append(split.repeat(family.heads // count, axis=1))
    return expected


def latent_qkv(own, config, x):
    """Multi-head latent attention; the turned part of a head comes last."""
    eps, heads, nope = 1e-6, config.num_attention_heads, config.qk_nope_head_dim
    if own.has(Role.Q_A):
        q = own.project(Role.Q_B, own.norm(Role.Q_A_NORM, own.project(Role.Q_A, x), eps))
    else:
        q = own.project(Role.Q, x)
    latent, turned = np.split(own.project(Role.KV_A, x), [config.kv_lora_rank], axis=-1)
    kv = heads_apart(own.project(Role.KV_B, own.norm(Role.KV_A_NORM, latent, eps)), heads)
    k = np.concatenate([kv[..., :nope], heads_apart(turned, 1).repeat(heads, axis=1)], -1)
    return heads_apart(q, heads), k, kv[..., nope:]


def deinterleaved(x, family, config):
    """DeepSeek-V3 puts even before odd coordinates of the turned part on the fly; its weights are interleaved."""
    if family.id != "deepseek_v3":
        return x
    still, turned = np.split(x, [config.qk_nope_head_dim], axis=-1)
    return np.concatenate([still, turned[..., 0::2], turned[..., 1::2]], -1)


def test_attention_multiplies_the_queries_keys_and_values_of_the_slots(family, anatomy):
    model, tape = alive(family.id)
    for own, path, block in layers(family, anatomy):
        for cross, (attention, o) in {"": (block.attention, block.o), "cross_": block.cross or ("", "")}.items():
            if not attention:
                continue
            at = path + attention
            x = tape.read[at]
            q, k, v = qkv(own, model, at, x, tape.context[at] if cross else x, family, cross)
            (q_live, k_live), (weights, v_live) = tape.products[at]
            batch, tokens = x.shape[:2]
            q_live = q_live.reshape(batch, family.heads, tokens, -1)
            k_live = k_live.reshape(batch, -1, *k_live.shape[-2:]).swapaxes(-1, -2)
            v_live = v_live.reshape(batch, -1, *v_live.shape[-2:])
            # Some families scale queries before the product, others scale the product.
            scale = 1.0 if np.allclose(np.abs(q_live).max(), np.abs(q).max(), rtol=1e-3) else q.shape[-1] ** -0.5
            assert_close(q_live, scale * deinterleaved(q, family, model.config), f"{own.slot(Role.Q)} {cross}")
            expected_k = np.broadcast_to(k_live, k.shape)
            assert_close(expected_k, deinterleaved(k, family, model.config), f"{own.slot(Role.K)} {cross}")
            assert_close(np.broadcast_to(v_live, v.shape), v, f"{own.slot(Role.V)} {cross}")
            seen = (weights.reshape(batch, family.heads, tokens, -1) @ v).swapaxes(1, 2).reshape(batch, tokens, -1)
            wrote = tape.wrote[path + o].reshape(batch, tokens, -1)
            assert_close(wrote, own.project(Role(f"{cross}o"), seen), f"{own.slot(Role.O)} {cross}")


def test_mlp_computes_with_the_slots(family, anatomy):
    model, tape = alive(family.id)
    for own, path, block in layers(family, anatomy):
        reads, writes = (path + name for name in block.mlp)
        module = model.get_submodule(reads)
        if hasattr(module, "experts"):
            assert_experts_compute(own, module, tape.read[reads].reshape(-1, 48), block)
        else:
            expected = own.mlp(tape.read[reads], block.activation)
            assert_close(tape.wrote[writes], expected, str(own.slot(Role.DOWN)))


def assert_experts_compute(own, module, x, block: Block):
    """Every expert alone, by sending every token to it; then the router and the shared expert."""
    with torch.no_grad():
        tokens = torch.from_numpy(x)
        for expert in range(module.experts.num_experts):
            index = torch.full((len(x), 1), expert)
            alone = module.experts(tokens, index, torch.ones(len(x), 1)).numpy()
            slots = Layer(own.anatomy, own.layer, own.stack, expert)
            assert_close(alone, slots.mlp(x, block.activation), str(slots.slot(Role.DOWN)))
        assert not Layer(own.anatomy, own.layer, own.stack, module.experts.num_experts).has(Role.UP)
        router = getattr(module, block.router)
        logits = torch.nn.functional.linear(tokens, router.weight).numpy()
        assert_close(logits, x @ own(Role.ROUTER).T, str(own.slot(Role.ROUTER)))
        if hasattr(router, "e_score_correction_bias"):
            np.testing.assert_array_equal(own(Role.ROUTER_BIAS), router.e_score_correction_bias.numpy())
        if block.shared:
            shared = getattr(module, block.shared)(tokens).numpy()
            assert_close(shared, own.mlp(x, block.activation, "shared_"), str(own.slot(Role.SHARED_DOWN)))
        if hasattr(module, "shared_expert_gate"):
            np.testing.assert_array_equal(own(Role.SHARED_ROUTER), module.shared_expert_gate.weight.numpy())


def test_norms_scale_by_the_effective_gain(family, anatomy):
    model, tape = alive(family.id)
    wanted = [
        (own, role, path + norm) for own, path, block in layers(family, anatomy) for role, norm in block.norms.items()
    ]
    wanted += [(Layer(anatomy, slot.layer, slot.stack), slot.role, path) for slot, path in family.final.items()]
    for own, role, path in wanted:
        expected = own.norm(role, tape.read[path], epsilon(model.get_submodule(path)))
        assert_close(tape.wrote[path], expected, str(own.slot(role)))
    gains = {slot for slot in anatomy.slots if slot.role.is_gain and not slot.role.name.startswith(("Q_", "K_", "KV_"))}
    assert gains == {own.slot(role) for own, role, _ in wanted}


def test_norm_roles_name_the_neighbour(family):
    """The table's own check: a norm's role is who reads what it writes, or who wrote what it reads."""
    _, tape = alive(family.id)
    for _, path, block in layers(family, None):
        readers = {Role.INPUT_NORM: block.attention, Role.POST_NORM: block.mlp[0]}
        writers = {Role.ATTN_OUT_NORM: (block.o, block.attention), Role.MLP_OUT_NORM: (block.mlp[1], block.mlp[0])}
        if block.cross:
            readers[Role.CROSS_NORM] = block.cross[0]
            writers[Role.CROSS_OUT_NORM] = (block.cross[1], block.cross[0])
        for role, norm in block.norms.items():
            norm = path + norm
            if role in readers:
                np.testing.assert_array_equal(tape.read[path + readers[role]], tape.wrote[norm])
            else:
                writer, reader = writers[role]
                scaled = tape.read[norm].reshape(-1, 48)
                wrote, read = tape.wrote[path + writer].reshape(-1, 48), tape.read[path + reader].reshape(-1, 48)
                assert np.array_equal(scaled, wrote) or np.allclose(scaled, wrote + read, atol=1e-4)


def test_what_lies_outside_the_layers(family, anatomy):
    state = alive(family.id)[0].state_dict()
    for role, names in family.outer.items():
        slots = [slot for slot in anatomy.slots if slot.role is role]
        assert len(slots) == len(names)
        left = [state[name].numpy() for name in names]
        for slot in slots:
            read = anatomy.read(slot)
            same = [array for array in left if array.size == read.size and np.array_equal(array.ravel(), read.ravel())]
            assert len(same) == 1, f"{slot} is none of {names}"
            assert read.shape == (same[0].shape if role.value != "head_bias" else (97,)) or role is Role.FRONT_CONV
            left = [array for array in left if array is not same[0]]
    inner = {Role.EMBEDDING, Role.HEAD, Role.POSITION, Role.FIXED_POSITION, Role.TOKEN_TYPE, Role.RELATIVE_BIAS}
    assert {slot.role for slot in anatomy.slots} & inner == set(family.outer) & inner


def test_facts_agree_with_the_live_model(family, anatomy):
    model, _ = alive(family.id)
    facts, head = anatomy.facts, model.get_output_embeddings()
    counts = {stack.name: stack.count for stack in family.stacks}
    assert (facts.heads, facts.kv_heads, facts.head_dim) == (family.heads, family.kv_heads, family.head_dim)
    assert (facts.hidden, facts.vocabulary) == (48, 97)
    assert facts.layers == facts.configured_layers == counts.get("", counts)
    assert facts.tied == (head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr())
    experts = [module.num_experts for name, module in model.named_modules() if name.endswith(".experts")]
    assert facts.experts == (experts[0] if experts else None)
    assert facts.gated == any(re.search(r"gate(_up)?_proj|wi_0", name) for name, _ in model.named_parameters())


def test_norm_facts_agree_with_the_live_model(family, anatomy):
    model, tape = alive(family.id)
    facts, (stack, *_) = anatomy.facts, family.stacks
    norms = {role: f"{stack.layers}.0.{path}" for role, path in stack.block.norms.items()}
    before, after = Role.INPUT_NORM in norms, Role.ATTN_OUT_NORM in norms
    parallel = family.id in ("falcon-7b", "falcon-40b", "gpt_neox")
    placement = "parallel" if parallel else "sandwich" if before and after else "post" if after else "pre"
    assert facts.norm_placement == placement
    assert facts.gain_offset == (1.0 if family.id.startswith("gemma") else 0.0)
    assert facts.norm_bias == any(
        getattr(model.get_submodule(path), "bias", None) is not None for path in norms.values()
    )
    summed = after and not np.array_equal(tape.read[norms[Role.ATTN_OUT_NORM]], wrote_by(tape, stack))
    assert facts.stream_norm == summed


def wrote_by(tape, stack):
    return tape.wrote[f"{stack.layers}.0.{stack.block.o}"]


def test_positions_are_named(family, anatomy):
    model, _ = alive(family.id)
    if any("RotaryEmbedding" in type(module).__name__ for module in model.modules()) and family.id != "falcon-rw":
        expected = {"rotary"}
    elif family.id in ("bloom", "mpt", "falcon-rw"):
        expected = {"alibi"}
    else:
        names = {Role.POSITION: "learned", Role.FIXED_POSITION: "fixed", Role.RELATIVE_BIAS: "relative"}
        expected = {names[role] for role in family.outer if role in names} or {"fixed"}  # Marian's are not stored
    assert anatomy.facts.positions in expected


def assert_rows_agree(anatomy):
    wholes = anatomy.read_many([(slot, None) for slot in anatomy.slots])
    for pick in (slice(1, None, 2), [-1, 0, 0], slice(0, 0)):
        chosen = [np.arange(len(whole))[pick] for whole in wholes]
        parts = anatomy.read_many(list(zip(anatomy.slots, chosen, strict=True)))
        for slot, whole, index, part in zip(anatomy.slots, wholes, chosen, parts, strict=True):
            np.testing.assert_array_equal(part, whole[index], err_msg=f"{slot} {pick}")
    assert [anatomy.shape(slot) for slot in anatomy.slots] == [whole.shape for whole in wholes]


def test_rows_of_a_slot_are_rows_of_the_whole(anatomy):
    assert_rows_agree(anatomy)


def with_live_names(name):
    """The files with the tensors as they are held in memory: experts stacked, other prefixes; tied ones once."""
    model, _ = alive(name)
    state = model.state_dict()
    if saved_anatomy(name).facts.tied:
        del state["lm_head.weight"]
    return with_tensors(saved(model), state)


@pytest.mark.parametrize("name", EXPERTS)
def test_stacked_experts_are_taken_apart(name):
    anatomy = anatomy_of(with_live_names(name))
    assert any(len(ref.shape) == 3 for ref in anatomy.checkpoint.tensors.values())
    assert anatomy.unmapped == ()
    assert set(anatomy.slots) == set(saved_anatomy(name).slots)
    test_mlp_computes_with_the_slots(BY_ID[name], anatomy)
    assert_rows_agree(anatomy)


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_vl_moe"])
def test_experts_stacked_the_other_way_round_are_turned(name):
    """Qwen3-VL publishes (expert, in, out); transformers takes both and tells them apart by shape."""
    files = with_live_names(name)
    turned = {n: t.transpose(1, 2) if ".experts." in n else t for n, t in tensors_of(files).items()}
    anatomy = anatomy_of(with_tensors(files, turned))
    assert set(anatomy.slots) == set(saved_anatomy(name).slots)
    assert_same_slots(anatomy, saved_anatomy(name))
    assert_rows_agree(anatomy)


def test_experts_of_unclear_orientation_are_never_read_wrongly():
    """Gate and up of an expert are together as tall as the model is wide: right, or left over with a note."""
    name = "qwen3_moe-square"
    anatomy, expected = anatomy_of(with_live_names(name)), saved_anatomy(name)
    missing = set(expected.slots) - set(anatomy.slots)
    assert set(anatomy.slots) <= set(expected.slots)
    for slot in anatomy.slots:
        np.testing.assert_array_equal(anatomy.read(slot), expected.read(slot), err_msg=str(slot))
    assert {slot.role for slot in missing} <= {Role.GATE, Role.UP}
    assert bool(missing) == bool(anatomy.unmapped) == bool(anatomy.notes)


def assert_same_slots(anatomy, expected):
    assert anatomy.unmapped == ()
    assert set(anatomy.slots) >= set(expected.slots)
    for slot in expected.slots:
        np.testing.assert_array_equal(anatomy.read(slot), expected.read(slot), err_msg=str(slot))


@pytest.mark.parametrize("name", ["llama-tied", "phi3", "gpt2", "opt", "bert", "marian", "bart", "t5", "whisper"])
def test_a_pickled_state_dict_reads_the_same(name):
    anatomy = anatomy_of(pickled(alive(name)[0]))
    assert_same_slots(anatomy, saved_anatomy(name))
    assert anatomy.facts.tied == saved_anatomy(name).facts.tied


@pytest.mark.parametrize("name", ["phi3", "mixtral", "bert"])
def test_shards_read_like_one_file(name):
    files = saved(alive(name)[0], max_shard_size="20KB")
    assert "model.safetensors.index.json" in files
    assert_same_slots(anatomy_of(files), saved_anatomy(name))


@pytest.mark.parametrize("name", ["gpt_neox", "gemma3", "llava", "qwen2_vl"])
def test_names_held_in_memory_read_like_the_names_saved(name):
    """`torch.save(model.state_dict())` and files of other versions of transformers carry these names."""
    assert_same_slots(anatomy_of(with_live_names(name)), saved_anatomy(name))


HEADLESS = [f.id for f in FAMILIES if f.model != "T5ForConditionalGeneration"]


@pytest.mark.parametrize("name", HEADLESS)
def test_a_model_saved_without_its_head_reads_the_same(name):
    """`AutoModel` writes names without the outer prefix, as in most embedding models."""
    anatomy, expected = anatomy_of(saved(alive(name)[0].base_model)), saved_anatomy(name)
    assert anatomy.unmapped == ()
    kept = {slot for slot in expected.slots if not slot.role.name.startswith("HEAD")}
    # Marian's sinusoids are left out of the whole model's file and written into this one.
    assert {slot for slot in anatomy.slots if slot.role is not Role.FIXED_POSITION} == {
        slot for slot in kept if slot.role is not Role.FIXED_POSITION
    }
    for slot in kept:
        np.testing.assert_array_equal(anatomy.read(slot), expected.read(slot), err_msg=str(slot))


@pytest.mark.parametrize("name", ["phi3", "glm", "gpt_neox", "bloom", "falcon-7b", "falcon-40b", "falcon-rw", "mpt"])
def test_without_a_config_nothing_fused_is_cut_by_guess(name):
    """Heads cannot be counted from a shape: right, or left over."""
    anatomy, expected = anatomy_of({WEIGHTS: saved(alive(name)[0])[WEIGHTS]}), saved_anatomy(name)
    assert set(anatomy.slots) <= set(expected.slots)
    for slot in anatomy.slots:
        np.testing.assert_array_equal(anatomy.read(slot), expected.read(slot), err_msg=str(slot))
    assert anatomy.notes


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_half_precision_is_widened_before_an_offset_is_added(name):
    model = build(BY_ID[name]).to(torch.bfloat16)
    anatomy = anatomy_of(saved(model))
    offset = anatomy.facts.gain_offset
    assert offset == (1.0 if name == "gemma2" else 0.0)
    for layer, live in enumerate(model.model.layers):
        gain = live.input_layernorm.weight.detach().float().numpy()
        np.testing.assert_array_equal(anatomy.read(Slot(Role.INPUT_NORM, layer)), gain + np.float32(offset))
        np.testing.assert_array_equal(
            anatomy.read(Slot(Role.K, layer)), live.self_attn.k_proj.weight.detach().float().numpy()
        )


@pytest.mark.parametrize("name", ["glm4_moe", "deepseek_v3"])
def test_an_extra_prediction_layer_is_set_apart(name):
    """Published files have one layer more than `num_hidden_layers`; transformers drops it on loading."""
    model, _ = alive(name)
    files = saved(model)
    tensors = tensors_of(files)
    extra = {n.replace("layers.1.", "layers.2."): t.clone() for n, t in tensors.items() if "layers.1." in n}
    for part in ("enorm", "hnorm", "shared_head.norm"):
        extra[f"model.layers.2.{part}.weight"] = torch.randn(48)
    extra["model.layers.2.eh_proj.weight"] = torch.randn(48, 96)
    extra["model.layers.2.embed_tokens.weight"] = torch.randn(97, 48)
    extra["model.layers.2.shared_head.head.weight"] = torch.randn(97, 48)
    anatomy = anatomy_of(with_tensors(files, tensors | extra))
    assert set(anatomy.slots) == set(saved_anatomy(name).slots)
    assert_same_slots(anatomy, saved_anatomy(name))
    assert set(anatomy.apart) == set(extra)


LEFTOVERS = {
    "llama": ["model.layers.{}.self_attn.rotary_emb.inv_freq"],
    "gpt2": ["transformer.h.{}.attn.bias", "transformer.h.{}.attn.masked_bias"],
    "gpt_neox": ["gpt_neox.layers.{}.attention." + n for n in ("bias", "masked_bias", "rotary_emb.inv_freq")],
    "falcon-7b": ["transformer.h.{}.self_attention.rotary_emb.inv_freq"],
    "bert": ["bert.embeddings.position_ids"],
    "roberta": ["roberta.embeddings.position_ids"],
    "bart": ["model.encoder.version", "model.decoder.version"],
    "t5": ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"],
}


@pytest.mark.parametrize("name", LEFTOVERS)
def test_buffers_of_old_files_are_set_apart(name):
    """Masks, frequencies and position numbers that older versions stored beside the weights."""
    files = saved(alive(name)[0])
    shapes = {"attn.bias": (1, 1, 40, 40), "attention.bias": (1, 1, 40, 40), "inv_freq": (4,), "position_ids": (1, 40)}
    shapes |= {"relative_attention_bias.weight": (32, 6)}
    added = {}
    for pattern in LEFTOVERS[name]:
        shape = next((shape for end, shape in shapes.items() if pattern.endswith(end)), ())
        kind = torch.int64 if pattern.endswith("position_ids") else torch.float32
        added |= {pattern.format(layer): torch.ones(shape, dtype=kind) for layer in range(2)}
    anatomy = anatomy_of(with_tensors(files, tensors_of(files) | added))
    assert set(anatomy.slots) == set(saved_anatomy(name).slots)
    assert_same_slots(anatomy, saved_anatomy(name))
    assert set(anatomy.apart) >= set(added)


def test_old_names_of_layer_norm_are_understood():
    """BERT's published file still says gamma and beta."""
    files = saved(alive("bert")[0])
    old = {re.sub("Norm.weight$", "Norm.gamma", n): t for n, t in tensors_of(files).items()}
    old = {re.sub("Norm.bias$", "Norm.beta", n): t for n, t in old.items()}
    assert "bert.embeddings.LayerNorm.gamma" in old
    assert_same_slots(anatomy_of(with_tensors(files, old)), saved_anatomy("bert"))
