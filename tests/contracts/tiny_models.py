"""Tiny random models of the families that transformers implements: a table, a builder, and a tape of one forward pass.

The table says where in a live model a thing happens, never how it is stored: that is left to transformers' own
`save_pretrained`. Sizes differ wherever a family lets them, so that no shape explains two roles.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers
from torch.overrides import TorchFunctionMode

from modelkin.records import Role, Slot

BATCH = 5
VOCABULARY = 97


@dataclass(frozen=True)
class Block:
    """Module paths within one layer. The MLP is given by the module that reads its input and the one that writes."""

    attention: str = "self_attn"
    o: str = "self_attn.o_proj"
    mlp: tuple[str, str] = ("mlp", "mlp")
    norms: Mapping[Role, str] = field(
        default_factory=lambda: {Role.INPUT_NORM: "input_layernorm", Role.POST_NORM: "post_attention_layernorm"}
    )
    cross: tuple[str, str] | None = None  # attention, o
    activation: str = "silu"
    router: str = "gate"
    shared: str = ""


@dataclass(frozen=True)
class Stack:
    layers: str
    block: Block = Block()
    name: str = ""
    count: int = 2


@dataclass(frozen=True)
class Family:
    """`outer`: tensors outside the layers, role -> live names. `final`: norms outside the layers, slot -> module path.

    `apart`: prefixes of stored names that an anatomy of the text model sets aside.
    """

    id: str
    model: str
    config: Mapping[str, Any]
    stacks: tuple[Stack, ...]
    outer: Mapping[Role, tuple[str, ...]]
    final: Mapping[Slot, str] = field(default_factory=lambda: {Slot(Role.FINAL_NORM): "model.norm"})
    apart: tuple[str, ...] = ()
    heads: int = 6
    kv_heads: int = 6
    head_dim: int = 8

    def __str__(self) -> str:
        return self.id


BARE = {"vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PLAIN = BARE | {"intermediate_size": 56, "max_position_embeddings": 40} | TOKENS
GROUPED = PLAIN | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 10}
ROUTED = {"moe_intermediate_size": 20, "num_experts_per_tok": 2}
DEEPSEEK_EXPERTS = ROUTED | {"n_routed_experts": 3, "n_group": 1, "topk_group": 1}
LATENT = {"kv_lora_rank": 22, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 9, "num_key_value_heads": 6}
EYE = {"hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 3}
EYE |= {"image_size": 8, "patch_size": 4}
SEQ2SEQ = {"vocab_size": VOCABULARY, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3}
SEQ2SEQ |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 56, "decoder_ffn_dim": 64}
SEQ2SEQ |= TOKENS | {"decoder_start_token_id": 1}
T5 = {"vocab_size": VOCABULARY, "d_model": 48, "d_kv": 10, "d_ff": 56, "num_layers": 2, "num_decoder_layers": 3}
T5 |= {"num_heads": 6, "decoder_start_token_id": 0}

SANDWICH = {
    Role.INPUT_NORM: "input_layernorm",
    Role.ATTN_OUT_NORM: "post_attention_layernorm",
    Role.POST_NORM: "pre_feedforward_layernorm",
    Role.MLP_OUT_NORM: "post_feedforward_layernorm",
}
GEMMA = Block(activation="gelu_pytorch_tanh")
GEMMA_SANDWICH = replace(GEMMA, norms=SANDWICH)
GLM4_NORMS = {
    Role.INPUT_NORM: "input_layernorm",
    Role.ATTN_OUT_NORM: "post_self_attn_layernorm",
    Role.POST_NORM: "post_attention_layernorm",
    Role.MLP_OUT_NORM: "post_mlp_layernorm",
}
SHARED = Block(shared="shared_experts")
NEOX = Block("attention", "attention.dense", activation="gelu")
BLOOM = Block(
    "self_attention",
    "self_attention.dense",
    ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    activation="gelu_pytorch_tanh",  # Bloom's own GELU is this formula
)
FALCON = replace(BLOOM, activation="gelu")
BERT = Block(
    "attention.self",
    "attention.output.dense",
    ("intermediate", "output.dense"),
    {Role.ATTN_OUT_NORM: "attention.output.LayerNorm", Role.MLP_OUT_NORM: "output.LayerNorm"},
    activation="gelu",
)
MPNET = replace(
    BERT,
    attention="attention.attn",
    o="attention.attn.o",
    norms={Role.ATTN_OUT_NORM: "attention.LayerNorm", Role.MLP_OUT_NORM: "output.LayerNorm"},
)
DISTILBERT = Block(
    "attention",
    "attention.out_lin",
    ("ffn", "ffn"),
    {Role.ATTN_OUT_NORM: "sa_layer_norm", Role.MLP_OUT_NORM: "output_layer_norm"},
    activation="gelu",
)
OPT = Block(
    "self_attn",
    "self_attn.out_proj",
    ("fc1", "fc2"),
    {Role.INPUT_NORM: "self_attn_layer_norm", Role.POST_NORM: "final_layer_norm"},
    activation="relu",
)
OPT_350 = replace(OPT, norms={Role.ATTN_OUT_NORM: "self_attn_layer_norm", Role.MLP_OUT_NORM: "final_layer_norm"})
BART_ENCODER = replace(OPT_350, activation="gelu")
BART_DECODER = replace(
    BART_ENCODER,
    norms=BART_ENCODER.norms | {Role.CROSS_OUT_NORM: "encoder_attn_layer_norm"},
    cross=("encoder_attn", "encoder_attn.out_proj"),
)
WHISPER_ENCODER = replace(OPT, activation="gelu")
WHISPER_DECODER = replace(
    WHISPER_ENCODER,
    norms=OPT.norms | {Role.CROSS_NORM: "encoder_attn_layer_norm"},
    cross=("encoder_attn", "encoder_attn.out_proj"),
)
T5_ENCODER = Block(
    "layer.0.SelfAttention",
    "layer.0.SelfAttention.o",
    ("layer.1.DenseReluDense", "layer.1.DenseReluDense"),
    {Role.INPUT_NORM: "layer.0.layer_norm", Role.POST_NORM: "layer.1.layer_norm"},
    activation="relu",
)
T5_DECODER = replace(
    T5_ENCODER,
    mlp=("layer.2.DenseReluDense", "layer.2.DenseReluDense"),
    norms=T5_ENCODER.norms | {Role.CROSS_NORM: "layer.1.layer_norm", Role.POST_NORM: "layer.2.layer_norm"},
    cross=("layer.1.EncDecAttention", "layer.1.EncDecAttention.o"),
)


def causal(id: str, model: str, config: Mapping[str, Any], block: Block = Block(), **more: Any) -> Family:
    """A decoder laid out like Llama's, with an untied head unless the config ties it."""
    outer = {Role.EMBEDDING: ("model.embed_tokens.weight",), Role.HEAD: ("lm_head.weight",)}
    dims = {"kv_heads": config.get("num_key_value_heads", 6), "head_dim": config.get("head_dim", 8)}
    return Family(id, model, config, (Stack("model.layers", block),), **({"outer": outer} | dims | more))


def masked(id: str, model: str, prefix: str, block: Block, config: Mapping[str, Any], **more: Any) -> Family:
    """An encoder with a masked-language head; `more` adds what a family has besides."""
    embeddings = f"{prefix}.embeddings"
    outer = {
        Role.EMBEDDING: (f"{embeddings}.word_embeddings.weight",),
        more.pop("positions", Role.POSITION): (f"{embeddings}.position_embeddings.weight",),
    }
    final = {Slot(Role.EMBEDDING_NORM): f"{embeddings}.LayerNorm", Slot(Role.HEAD_NORM): more.pop("head_norm")}
    stacks = (Stack(f"{prefix}.{more.pop('layers', 'encoder.layer')}", block),)
    return Family(id, model, config, stacks, outer | more.pop("outer"), final, **more)


def paired(id: str, model: str, config: Mapping[str, Any], prefix: str, blocks: Any, **more: Any) -> Family:
    """An encoder of two layers and a decoder of three."""
    stacks = tuple(
        Stack(f"{prefix}{stack}.{more.get('word', 'layers')}", block, stack, count)
        for stack, block, count in zip(("encoder", "decoder"), blocks, (2, 3), strict=True)
    )
    more.pop("word", None)
    return Family(id, model, config, stacks, **more)


def both(role: Role, path: str) -> dict[Slot, str]:
    return {Slot(role, stack=stack): path.format(stack) for stack in ("encoder", "decoder")}


def transformer(id: str, model: str, config: Mapping[str, Any], block: Block, **more: Any) -> Family:
    """A decoder under `transformer.`, as GPT-2, Bloom, Falcon and MPT have it."""
    stacks = (Stack(f"transformer.{more.pop('layers', 'h')}", block),)
    outer = {Role.EMBEDDING: (more.pop("embedding", "transformer.word_embeddings.weight"),)} | more.pop("outer", {})
    final = {Slot(Role.FINAL_NORM): f"transformer.{more.pop('norm', 'ln_f')}"} | more.pop("final", {})
    return Family(id, model, config, stacks, outer, final, **more)


LM_HEAD = {
    Role.HEAD_TRANSFORM: ("lm_head.dense.weight",),
    Role.HEAD_TRANSFORM_BIAS: ("lm_head.dense.bias",),
    Role.HEAD_BIAS: ("lm_head.bias",),
}
BERT_HEAD = {
    Role.HEAD_TRANSFORM: ("cls.predictions.transform.dense.weight",),
    Role.HEAD_TRANSFORM_BIAS: ("cls.predictions.transform.dense.bias",),
    Role.HEAD_BIAS: ("cls.predictions.bias",),
    Role.POOLER: ("bert.pooler.dense.weight",),
    Role.POOLER_BIAS: ("bert.pooler.dense.bias",),
    Role.TOKEN_TYPE: ("bert.embeddings.token_type_embeddings.weight",),
}
DISTILBERT_HEAD = {
    Role.HEAD_TRANSFORM: ("vocab_transform.weight",),
    Role.HEAD_TRANSFORM_BIAS: ("vocab_transform.bias",),
    Role.HEAD_BIAS: ("vocab_projector.bias",),
}
SHARED_EMBEDDING = {Role.EMBEDDING: ("model.shared.weight",), Role.HEAD_BIAS: ("final_logits_bias",)}
T5_OUTER = {
    Role.EMBEDDING: ("shared.weight",),
    Role.RELATIVE_BIAS: tuple(
        f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight" for stack in ("encoder", "decoder")
    ),
}
NESTED = {
    "stacks": (Stack("model.language_model.layers"),),
    "final": {Slot(Role.FINAL_NORM): "model.language_model.norm"},
    "outer": {Role.EMBEDDING: ("model.language_model.embed_tokens.weight",), Role.HEAD: ("lm_head.weight",)},
}
TIED = {"outer": {Role.EMBEDDING: ("model.embed_tokens.weight",)}}
FALCON_7B = {"multi_query": True, "parallel_attn": True, "ffn_hidden_size": 56}
FALCON_40B = {"num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 56}
FALCON_RW = {"multi_query": False, "parallel_attn": False, "alibi": True, "bias": True, "ffn_hidden_size": 56}
OPT_CONFIG = BARE | {"ffn_dim": 56, "max_position_embeddings": 40}
OPT_OUTER = {Role.EMBEDDING: ("model.decoder.embed_tokens.weight",)}
OPT_OUTER |= {Role.POSITION: ("model.decoder.embed_positions.weight",)}
OPT_STACK = (Stack("model.decoder.layers", OPT),)
OPT_PROJECTIONS = {Role.EMBEDDING_PROJECTION: tuple(f"model.decoder.project_{way}.weight" for way in ("in", "out"))}
DISTIL = {"vocab_size": VOCABULARY, "dim": 48, "hidden_dim": 56, "n_layers": 2, "n_heads": 6}
DISTIL |= {"max_position_embeddings": 40}

FAMILIES = (
    causal("llama", "LlamaForCausalLM", WIDE),
    causal("llama-biased", "LlamaForCausalLM", GROUPED | {"attention_bias": True, "mlp_bias": True}),
    causal("llama-tied", "LlamaForCausalLM", GROUPED | {"tie_word_embeddings": True}, **TIED),
    causal("mistral", "MistralForCausalLM", WIDE),
    causal("qwen2", "Qwen2ForCausalLM", GROUPED),
    causal("qwen3", "Qwen3ForCausalLM", WIDE),
    causal(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        GROUPED | ROUTED | {"num_experts": 3, "shared_expert_intermediate_size": 28, "mlp_only_layers": [0]},
        Block(shared="shared_expert"),
    ),
    causal("qwen3_moe", "Qwen3MoeForCausalLM", WIDE | ROUTED | {"num_experts": 3}),
    # Stacked, gate and up of an expert are as tall together as the model is wide.
    causal("qwen3_moe-square", "Qwen3MoeForCausalLM", WIDE | ROUTED | {"num_experts": 3, "moe_intermediate_size": 24}),
    causal("mixtral", "MixtralForCausalLM", GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}),
    causal("phi3", "Phi3ForCausalLM", GROUPED),
    causal(
        "phimoe",
        "PhimoeForCausalLM",
        GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True},
        Block(router="router"),
        outer={
            Role.EMBEDDING: ("model.embed_tokens.weight",),
            Role.HEAD: ("lm_head.weight",),
            Role.HEAD_BIAS: ("lm_head.bias",),
        },
    ),
    causal("gemma", "GemmaForCausalLM", WIDE, GEMMA, **TIED),
    causal("gemma2", "Gemma2ForCausalLM", WIDE, GEMMA_SANDWICH, **TIED),
    causal("gemma3_text", "Gemma3ForCausalLM", WIDE, GEMMA_SANDWICH, **TIED),
    causal("glm", "GlmForCausalLM", WIDE | {"attention_bias": True}),
    causal("glm4", "Glm4ForCausalLM", WIDE | {"attention_bias": True}, Block(norms=GLM4_NORMS)),
    causal(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        WIDE | DEEPSEEK_EXPERTS | {"first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": True},
        SHARED,
    ),
    causal("solar_open", "SolarOpenForCausalLM", WIDE | DEEPSEEK_EXPERTS | {"n_shared_experts": 2}, SHARED),
    causal(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        PLAIN | DEEPSEEK_EXPERTS | LATENT | {"q_lora_rank": None, "n_shared_experts": 2, "first_k_dense_replace": 1},
        SHARED,
        head_dim=10,
    ),
    causal(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        PLAIN | DEEPSEEK_EXPERTS | LATENT | {"q_lora_rank": 26, "first_k_dense_replace": 1, "attention_bias": True},
        SHARED,
        head_dim=10,
    ),
    causal("olmo", "OlmoForCausalLM", GROUPED, Block(norms={}), final={}),
    causal(
        "olmo2",
        "Olmo2ForCausalLM",
        GROUPED,
        Block(norms={Role.ATTN_OUT_NORM: "post_attention_layernorm", Role.MLP_OUT_NORM: "post_feedforward_layernorm"}),
    ),
    transformer(
        "gpt2",
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 40, "n_inner": 56},
        Block("attn", "attn.c_proj", norms={Role.INPUT_NORM: "ln_1", Role.POST_NORM: "ln_2"}, activation="gelu_new"),
        embedding="transformer.wte.weight",
        outer={Role.POSITION: ("transformer.wpe.weight",)},
    ),
    Family(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        BARE | {"intermediate_size": 56, "max_position_embeddings": 40, "tie_word_embeddings": False},
        (Stack("gpt_neox.layers", NEOX),),
        {Role.EMBEDDING: ("gpt_neox.embed_in.weight",), Role.HEAD: ("lm_head.weight",)},
        {Slot(Role.FINAL_NORM): "gpt_neox.final_layer_norm"},
    ),
    transformer(
        "bloom",
        "BloomForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 2, "n_head": 6},
        BLOOM,
        final={Slot(Role.EMBEDDING_NORM): "transformer.word_embeddings_layernorm"},
    ),
    transformer(
        "falcon-7b",
        "FalconForCausalLM",
        BARE | FALCON_7B,
        replace(FALCON, norms={Role.INPUT_NORM: "input_layernorm"}),
        kv_heads=1,
    ),
    transformer(
        "falcon-40b",
        "FalconForCausalLM",
        BARE | FALCON_40B,
        replace(FALCON, norms={Role.INPUT_NORM: "ln_attn", Role.POST_NORM: "ln_mlp"}),
        kv_heads=2,
    ),
    transformer("falcon-rw", "FalconForCausalLM", BARE | FALCON_RW, FALCON),
    transformer(
        "mpt",
        "MptForCausalLM",
        {"vocab_size": VOCABULARY, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 40},
        Block(
            "attn",
            "attn.out_proj",
            ("ffn.up_proj", "ffn.down_proj"),
            {Role.INPUT_NORM: "norm_1", Role.POST_NORM: "norm_2"},
            activation="gelu",
        ),
        layers="blocks",
        embedding="transformer.wte.weight",
        norm="norm_f",
    ),
    Family(
        "opt",
        "OPTForCausalLM",
        OPT_CONFIG,
        OPT_STACK,
        OPT_OUTER,
        {Slot(Role.FINAL_NORM): "model.decoder.final_layer_norm"},
    ),
    Family(
        "opt-350m",
        "OPTForCausalLM",
        OPT_CONFIG | {"word_embed_proj_dim": 36, "do_layer_norm_before": False},
        (Stack("model.decoder.layers", OPT_350),),
        OPT_OUTER | OPT_PROJECTIONS,
        {},
    ),
    masked(
        "bert",
        "BertForPreTraining",
        "bert",
        BERT,
        PLAIN,
        head_norm="cls.predictions.transform.LayerNorm",
        outer=BERT_HEAD,
        apart=("cls.seq_relationship.",),
    ),
    *(
        masked(
            id,
            model,
            "roberta",
            BERT,
            PLAIN,
            head_norm="lm_head.layer_norm",
            outer=LM_HEAD | {Role.TOKEN_TYPE: ("roberta.embeddings.token_type_embeddings.weight",)},
        )
        for id, model in (("roberta", "RobertaForMaskedLM"), ("xlm-roberta", "XLMRobertaForMaskedLM"))
    ),
    *(
        masked(
            id,
            "DistilBertForMaskedLM",
            "distilbert",
            DISTILBERT,
            DISTIL | {"sinusoidal_pos_embds": positions is Role.FIXED_POSITION},
            layers="transformer.layer",
            head_norm="vocab_layer_norm",
            outer=DISTILBERT_HEAD,
            positions=positions,
        )
        for id, positions in (("distilbert", Role.POSITION), ("distilbert-sinusoidal", Role.FIXED_POSITION))
    ),
    masked(
        "mpnet",
        "MPNetForMaskedLM",
        "mpnet",
        MPNET,
        PLAIN,
        head_norm="lm_head.layer_norm",
        outer=LM_HEAD | {Role.RELATIVE_BIAS: ("mpnet.encoder.relative_attention_bias.weight",)},
    ),
    paired(
        "marian",
        "MarianMTModel",
        SEQ2SEQ | {"max_position_embeddings": 40},
        "model.",
        (BART_ENCODER, BART_DECODER),
        outer=SHARED_EMBEDDING,
        final={},
    ),
    paired(
        "bart",
        "BartForConditionalGeneration",
        SEQ2SEQ | {"max_position_embeddings": 40},
        "model.",
        (BART_ENCODER, BART_DECODER),
        outer=SHARED_EMBEDDING
        | {Role.POSITION: ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")},
        final=both(Role.EMBEDDING_NORM, "model.{}.layernorm_embedding"),
    ),
    paired(
        "t5",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "relu"},
        "",
        (T5_ENCODER, T5_DECODER),
        word="block",
        outer=T5_OUTER,
        final=both(Role.FINAL_NORM, "{}.final_layer_norm"),
        head_dim=10,
    ),
    paired(
        "t5-gated",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "",
        (replace(T5_ENCODER, activation="gelu_new"), replace(T5_DECODER, activation="gelu_new")),
        word="block",
        outer=T5_OUTER | {Role.HEAD: ("lm_head.weight",)},
        final=both(Role.FINAL_NORM, "{}.final_layer_norm"),
        head_dim=10,
    ),
    paired(
        "whisper",
        "WhisperForConditionalGeneration",
        SEQ2SEQ | {"num_mel_bins": 8, "max_source_positions": 5, "max_target_positions": 40},
        "model.",
        (WHISPER_ENCODER, WHISPER_DECODER),
        outer={
            Role.EMBEDDING: ("model.decoder.embed_tokens.weight",),
            Role.POSITION: ("model.decoder.embed_positions.weight",),
            Role.FIXED_POSITION: ("model.encoder.embed_positions.weight",),
            Role.FRONT_CONV: ("model.encoder.conv1.weight", "model.encoder.conv2.weight"),
            Role.FRONT_CONV_BIAS: ("model.encoder.conv1.bias", "model.encoder.conv2.bias"),
        },
        final=both(Role.FINAL_NORM, "model.{}.layer_norm"),
    ),
    Family(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        {"text_config": WIDE, "vision_config": EYE, "mm_tokens_per_image": 1, "image_token_index": 96},
        (Stack("model.language_model.layers", GEMMA_SANDWICH),),
        {Role.EMBEDDING: ("model.language_model.embed_tokens.weight",)},
        {Slot(Role.FINAL_NORM): "model.language_model.norm"},
        apart=("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
        kv_heads=2,
        head_dim=10,
    ),
    Family(
        "llava",
        "LlavaForConditionalGeneration",
        {
            "text_config": GROUPED | {"model_type": "llama"},
            "vision_config": EYE | {"model_type": "clip_vision_model"},
            "image_token_index": 96,
        },
        **NESTED,
        apart=("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
        kv_heads=2,
    ),
    Family(
        "qwen2_vl",
        "Qwen2VLForConditionalGeneration",
        {
            "text_config": GROUPED | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
            "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 48, "num_heads": 2, "mlp_ratio": 2},
            "image_token_id": 96,
            "video_token_id": 95,
            "vision_start_token_id": 94,
        },
        **NESTED,
        apart=("visual.", "model.visual."),
        kv_heads=2,
    ),
    # Saved with its experts stacked, and published with them stacked the other way round.
    Family(
        "qwen3_vl_moe",
        "Qwen3VLMoeForConditionalGeneration",
        {
            "text_config": WIDE
            | ROUTED
            | {"num_experts": 3, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 2, 2]}},
            "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2}
            | {"out_hidden_size": 48, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
            "image_token_id": 96,
            "video_token_id": 95,
            "vision_start_token_id": 94,
        },
        **NESTED,
        apart=("model.visual.", "visual."),
        kv_heads=2,
        head_dim=10,
    ),
)


def build(family: Family) -> transformers.PreTrainedModel:
    """The model on the CPU in float32, every stored number random but for tables of fixed positions."""
    kind = getattr(transformers, family.model)
    torch.manual_seed(sum(map(ord, family.id)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind._from_config(kind.config_class(**family.config), attn_implementation="eager").float().eval()
    if family.config.get("tie_word_embeddings") is False and model.config.tie_word_embeddings:
        # T5 1.1 is published with a head of its own and a config that says so; its config class reads that otherwise.
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    fixed = set(family.outer.get(Role.FIXED_POSITION, ()))
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if tensor.is_floating_point() and name not in fixed:
                tensor.normal_(0.0, 0.25)
    return model


PRODUCTS = {"matmul", "__matmul__", "bmm", "baddbmm"}


class Tape(TorchFunctionMode):
    """What every module read and wrote in one forward pass, and the products of activations made inside it.

    In an attention module run eagerly the first product is queries by keys, the second weights by values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[str, np.ndarray] = {}
        self.context: dict[str, np.ndarray] = {}  # what cross-attention looks at
        self.wrote: dict[str, np.ndarray] = {}
        self.products: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        self._inside: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in PRODUCTS and self._inside:
            named = [kwargs[name] for name in ("batch1", "batch2") if name in kwargs]
            left, right = named or args[:2]
            self.products[self._inside[-1]].append((left.numpy(), right.numpy()))
        return func(*args, **kwargs)

    def enter(self, name: str, args: Any, kwargs: Any) -> None:
        self._inside.append(name)
        hidden = args[0] if args else kwargs.get("hidden_states")
        context = kwargs.get("key_value_states", kwargs.get("encoder_hidden_states"))
        for table, tensor in ((self.read, hidden), (self.context, context)):
            if isinstance(tensor, torch.Tensor):
                table[name] = tensor.detach().clone().numpy()

    def leave(self, name: str, output: Any) -> None:
        assert self._inside.pop() == name
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, torch.Tensor):
            self.wrote[name] = first.detach().clone().numpy()


def inputs(family: Family, model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """One token a sequence where positions turn queries and keys: at position 0 the turn is the identity."""
    tokens = torch.arange(3, 3 + BATCH)[:, None]
    if family.id == "whisper":
        return {"input_features": torch.randn(BATCH, 8, 10), "decoder_input_ids": tokens}
    if model.config.is_encoder_decoder:
        return {"input_ids": torch.cat([tokens, tokens + 20], 1), "decoder_input_ids": tokens}
    return {"input_ids": tokens}


def listen(family: Family, model: transformers.PreTrainedModel) -> Tape:
    tape = Tape()
    hooks = []
    for name, module in model.named_modules():
        before = lambda _, args, kwargs, name=name: tape.enter(name, args, kwargs)  # noqa: E731
        after = lambda _, args, kwargs, output, name=name: tape.leave(name, output)  # noqa: ARG005, E731
        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after, with_kwargs=True))
    with warnings.catch_warnings(), torch.no_grad(), tape:
        warnings.simplefilter("ignore")
        model(**inputs(family, model))
    for hook in hooks:
        hook.remove()
    return tape


@cache
def alive(family_id: str) -> tuple[transformers.PreTrainedModel, Tape]:
    """A family's model and the tape of its one pass, made once."""
    family = next(family for family in FAMILIES if family.id == family_id)
    model = build(family)
    return model, listen(family, model)
