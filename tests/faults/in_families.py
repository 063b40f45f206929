"""Faults planted in copies of decoders and encoders of further families."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .case import Pair, fault, plant
from .families import configured, twins

# DistilBERT ----------------------------------------------------------------------------------------


@fault(
    "distilbert/positions-from-one", "embeddings embeddings.position_embeddings", "getitem get_attr embedding Embedding"
)
def _() -> Pair:
    a, b, inputs = twins("distilbert")
    ids = b.embeddings.position_ids
    b.embeddings.position_ids = torch.cat([ids[:, 1:], ids[:, :1]], dim=1)
    return Pair(a, b, inputs)


@fault("distilbert/one-weight", "transformer.layer.1.ffn.lin1", "linear", "weights")
def _() -> Pair:
    a, b, inputs = twins("distilbert")
    b.transformer.layer[1].ffn.lin1.weight.data[3, 5] += 0.5
    return Pair(a, b, inputs)


@fault("distilbert/attention-dropout-left-on", "transformer.layer.0.attention", "scaled_dot_product_attention")
def _() -> Pair:
    a, b, inputs = twins("distilbert")
    b.transformer.layer[0].attention.train()
    return Pair(a, b, inputs)


@fault("distilbert/dropout-left-on", "transformer.layer.1.ffn.dropout", "dropout", "random")
def _() -> Pair:
    a, b, inputs = twins("distilbert")
    b.transformer.layer[1].ffn.dropout.train()
    return Pair(a, b, inputs)


def without_residual(self: Any, hidden_states: Tensor, attention_mask: Any = None, **kwargs: Any) -> Tensor:
    attended, _ = self.attention(hidden_states, attention_mask=attention_mask, **kwargs)
    attended = self.sa_layer_norm(attended + hidden_states)
    return self.output_layer_norm(self.ffn(attended))


@fault(
    "distilbert/second-residual-missing",
    "transformer.layer.0 transformer.layer.0.output_layer_norm",
    "add LayerNorm",
    "missing wiring",
)
def _() -> Pair:
    a, b, inputs = twins("distilbert")
    plant(b.transformer.layer[0], forward=without_residual)
    return Pair(a, b, inputs)


# GPT-NeoX ------------------------------------------------------------------------------------------


# The second norm is handed the sum too early; the last sum lacks a term or has it twice.
@fault(
    "neox/one-residual-after-the-other",
    "gpt_neox.layers.1 gpt_neox.layers.1.post_attention_layernorm",
    "add LayerNorm GPTNeoXMLP",
)
def _() -> Pair:
    a, b, inputs = twins("neox")
    b.gpt_neox.layers[1].use_parallel_residual = False
    return Pair(a, b, inputs)


@fault("neox/tanh-gelu", "gpt_neox.layers.0.mlp.act", "gelu", "constant values")
def _() -> Pair:
    a, b, inputs = twins("neox")
    b.gpt_neox.layers[0].mlp.act = nn.GELU("tanh")
    return Pair(a, b, inputs)


@fault("neox/rotary-over-the-whole-head", "gpt_neox.rotary_emb", "get_attr mul matmul to float")
def _() -> Pair:
    a, b, inputs = twins("neox")
    whole = configured(
        "neox", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    )
    b.gpt_neox.rotary_emb = type(b.gpt_neox.rotary_emb)(whole)
    return Pair(a, b, inputs)


@fault("neox/rotary-base", "gpt_neox.rotary_emb", "get_attr mul matmul to float", "weights values constant")
def _() -> Pair:
    a, b, inputs = twins("neox")
    other = configured(
        "neox", rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    )
    b.gpt_neox.rotary_emb = type(b.gpt_neox.rotary_emb)(other)
    return Pair(a, b, inputs)


@fault("neox/bias-of-one-head-zeroed", "gpt_neox.layers.1.attention.query_key_value", "linear", "weights")
def _() -> Pair:
    a, b, inputs = twins("neox")
    b.gpt_neox.layers[1].attention.query_key_value.bias.data[16:24] = 0.0
    return Pair(a, b, inputs)


# Gemma 2 -------------------------------------------------------------------------------------------


@fault("gemma2/attention-softcap", "model.layers.1.self_attn", "truediv div", "constant")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.model.layers[1].self_attn.attn_logit_softcapping = 5.0
    return Pair(a, b, inputs)


@fault("gemma2/no-attention-softcap", "model.layers.0.self_attn", "truediv div tanh mul", "missing")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.model.layers[0].self_attn.attn_logit_softcapping = None
    return Pair(a, b, inputs)


@fault("gemma2/scale-of-the-head", "model.layers.1.self_attn", "mul", "constant")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.model.layers[1].self_attn.scaling = 8**-0.5
    return Pair(a, b, inputs)


@fault("gemma2/embeddings-not-scaled", "model.embed_tokens", "mul to get_attr", "weights")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.model.embed_tokens.embed_scale.fill_(1.0)
    return Pair(a, b, inputs)


def weight_alone(self: Any, x: Tensor) -> Tensor:
    return (self._norm(x.float()) * self.weight.float()).type_as(x)


@fault("gemma2/norm-without-one", "model.layers.1.pre_feedforward_layernorm", "add __radd__ mul", "missing values")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    plant(b.model.layers[1].pre_feedforward_layernorm, forward=weight_alone)
    return Pair(a, b, inputs)


@fault("gemma2/no-final-softcap", ".", "truediv div tanh mul", "missing wiring")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.config = configured("gemma2", final_logit_softcapping=None)
    return Pair(a, b, inputs)


def norm_after_sum(self: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
    kwargs.pop("position_ids", None)
    attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
    hidden_states = self.post_attention_layernorm(hidden_states + attended)
    ahead = self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(hidden_states)))
    return hidden_states + ahead


# The sum comes before the norm, which is handed another value; or the sum is of another value.
@fault(
    "gemma2/post-norm-after-the-sum",
    "model.layers.0 model.layers.0.post_attention_layernorm",
    "Gemma2RMSNorm add mean pow",
    "wiring extra missing",
)
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    plant(b.model.layers[0], forward=norm_after_sum)
    return Pair(a, b, inputs)


# Layer 0 slides. The masks are made by the model; the first to use one is the sum in the layer.
@fault(
    "gemma2/layers-take-turns-the-other-way",
    "model model.layers.0.self_attn",
    "Gemma2DecoderLayer add",
    "wiring values",
)
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    b.model.config = configured("gemma2", layer_types=["full_attention", "sliding_attention"])
    return Pair(a, b, inputs)


@fault("gemma2/swapped-gate-and-up", "model.layers.0.mlp", "Linear linear mul act_fn GELUTanh", "wiring")
def _() -> Pair:
    a, b, inputs = twins("gemma2")
    plant(
        b.model.layers[0].mlp, forward=lambda self, x: self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x))
    )
    return Pair(a, b, inputs)


# BLOOM ---------------------------------------------------------------------------------------------


def gentler(self: Any, attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    slopes = torch.pow(torch.tensor(2.0), -torch.arange(1, num_heads + 1))  # of eight heads
    places = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask)[:, None, :]
    return (slopes[..., None] * places).reshape(-1, 1, attention_mask.shape[1]).to(dtype)


@fault("bloom/alibi-slopes", "transformer", "pow mul tensor arange add __radd__ neg")
def _() -> Pair:
    a, b, inputs = twins("bloom")
    plant(b.transformer, build_alibi_tensor=gentler)
    return Pair(a, b, inputs)


@fault("bloom/scale", "transformer.h.1.self_attention", "baddbmm", "constant")
def _() -> Pair:
    a, b, inputs = twins("bloom")
    b.transformer.h[1].self_attention.inv_norm_factor = 32**-0.5
    return Pair(a, b, inputs)


@fault("bloom/residual-of-the-norm", "transformer.h.0 transformer.h.0.self_attention", "BloomAttention add", "wiring")
def _() -> Pair:
    a, b, inputs = twins("bloom")
    b.transformer.h[0].apply_residual_connection_post_layernorm = True
    return Pair(a, b, inputs)


@fault(
    "bloom/embedding-norm-skipped",
    "transformer transformer.word_embeddings_layernorm",
    "layer_norm LayerNorm Identity BloomBlock -",
)
def _() -> Pair:
    a, b, inputs = twins("bloom")
    b.transformer.word_embeddings_layernorm = nn.Identity()
    return Pair(a, b, inputs)


# Qwen 3 --------------------------------------------------------------------------------------------


@fault("qwen3/norms-of-queries-and-keys-swapped", "model.layers.0.self_attn.q_norm", "mul", "weights")
def _() -> Pair:
    a, b, inputs = twins("qwen3")
    one = b.model.layers[0].self_attn
    one.q_norm, one.k_norm = one.k_norm, one.q_norm
    return Pair(a, b, inputs)


@fault(
    "qwen3/keys-not-normed",
    "model.layers.1.self_attn model.layers.1.self_attn.k_norm",
    "Qwen3RMSNorm Identity - pow mean rsqrt mul",
)
def _() -> Pair:
    a, b, inputs = twins("qwen3")
    b.model.layers[1].self_attn.k_norm = nn.Identity()
    return Pair(a, b, inputs)


@fault("qwen3/epsilon-of-the-query-norm", "model.layers.1.self_attn.q_norm", "add", "constant")
def _() -> Pair:
    a, b, inputs = twins("qwen3")
    b.model.layers[1].self_attn.q_norm.variance_epsilon = 1e-2
    return Pair(a, b, inputs)


# OPT -----------------------------------------------------------------------------------------------


@fault("opt/positions-with-another-offset", "model.decoder.embed_positions", "add", "constant")
def _() -> Pair:
    a, b, inputs = twins("opt")
    b.model.decoder.embed_positions.offset = 1
    return Pair(a, b, inputs)


@fault("opt/gelu-for-relu", "model.decoder.layers.1.activation_fn", "gelu relu", "values")
def _() -> Pair:
    a, b, inputs = twins("opt")
    b.model.decoder.layers[1].activation_fn = nn.GELU()
    return Pair(a, b, inputs)


# Norm and attention change places: the attention is handed another value by the layer.
@fault(
    "opt/norm-after-attention",
    "model.decoder.layers.1 model.decoder.layers.1.self_attn model.decoder.layers.1.self_attn_layer_norm",
    "LayerNorm OPTAttention layer_norm linear add -",
    "wiring missing extra",
)
def _() -> Pair:
    a, b, inputs = twins("opt")
    b.model.decoder.layers[1].do_layer_norm_before = False
    return Pair(a, b, inputs)


# Mamba ---------------------------------------------------------------------------------------------


@fault("mamba/one-decay", "backbone.layers.1.mixer", "float exp get_attr", "weights")
def _() -> Pair:
    a, b, inputs = twins("mamba")
    b.backbone.layers[1].mixer.A_log.data[3, 1] += 1.0
    return Pair(a, b, inputs)


@fault("mamba/no-skip", "backbone.layers.0.mixer", "float mul getitem get_attr", "weights")
def _() -> Pair:
    a, b, inputs = twins("mamba")
    nn.init.zeros_(b.backbone.layers[0].mixer.D)
    return Pair(a, b, inputs)


@fault("mamba/bias-of-the-step-zeroed", "backbone.layers.1.mixer", "float add getitem to get_attr", "weights")
def _() -> Pair:
    a, b, inputs = twins("mamba")
    nn.init.zeros_(b.backbone.layers[1].mixer.dt_proj.bias)
    return Pair(a, b, inputs)


@fault("mamba/gelu-after-the-convolution", "backbone.layers.0.mixer.<GELUActivation>", "gelu", "values")
def _() -> Pair:
    a, b, inputs = twins("mamba")
    b.backbone.layers[0].mixer.activation = "gelu"
    return Pair(a, b, inputs)


@fault("mamba/residual-of-the-norm", "backbone.layers.1", "add", "wiring")
def _() -> Pair:
    a, b, inputs = twins("mamba")

    def of_norm(self: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        normed = self.norm(hidden_states)
        return normed + self.mixer(normed, **kwargs)

    plant(b.backbone.layers[1], forward=of_norm)
    return Pair(a, b, inputs)
