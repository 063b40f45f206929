"""Faults planted in copies of transformers' Llama and Mixtral."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb, repeat_kv

from .case import Pair, fault, plant
from .originals import copies, inputs_of, original, reference


def _llama(attention: str = "eager") -> tuple[Any, Any, dict[str, Any]]:
    return reference("llama", attention), original("llama", attention), {**inputs_of("llama"), "use_cache": False}


def _mixtral(experts: str = "grouped_mm") -> tuple[Any, Any, dict[str, Any]]:
    if experts == "grouped_mm":  # which is the default
        return reference("mixtral"), original("mixtral"), inputs_of("mixtral")
    a, b = copies("mixtral")
    for model in (a, b):
        model.set_experts_implementation(experts)
    return a, b, inputs_of("mixtral")


# Llama ---------------------------------------------------------------------------------------------


@fault("llama/norm-epsilon", "model.layers.1.post_attention_layernorm", "add", "constant")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    b.model.layers[1].post_attention_layernorm.variance_epsilon = 1e-3
    return Pair(a, b, inputs)


@fault("llama/rotary-base", "model.rotary_emb", "mul matmul get_attr to", "weights values constant")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    rates = 1.0 / (500_000.0 ** (torch.arange(0, 16, 2, dtype=torch.float32) / 16))
    b.model.rotary_emb.inv_freq.copy_(rates)
    return Pair(a, b, inputs)


def interleaved(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotated_in_pairs(self: Any, hidden_states: Tensor, position_embeddings: Any, attention_mask: Any, **_: Any) -> Any:
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
    cos, sin = (part.unsqueeze(1) for part in position_embeddings)
    q, k = q * cos + interleaved(q) * sin, k * cos + interleaved(k) * sin
    k, v = repeat_kv(k, self.num_key_value_groups), repeat_kv(v, self.num_key_value_groups)
    weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * self.scaling + attention_mask, dim=-1)
    return self.o_proj(torch.matmul(weights, v).transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)), weights


# Any step of the rotation: elements are taken, negated and put together otherwise.
@fault("llama/rotary-in-pairs", "model.layers.1.self_attn", "getitem neg stack cat flatten mul add")
def _() -> Pair:
    a, b, inputs = _llama("eager")
    plant(b.model.layers[1].self_attn, forward=rotated_in_pairs)
    return Pair(a, b, inputs)


@fault("llama/scale-of-another-head-size", "model.layers.0.self_attn", "scaled_dot_product_attention", "constant")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    b.model.layers[0].self_attn.scaling = (32 // 4) ** -0.5
    return Pair(a, b, inputs)


def activates_up(self: Any, x: Tensor) -> Tensor:
    return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


@fault("llama/swapped-gate-and-up", "model.layers.1.mlp", "SiLUActivation mul", "wiring values")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    plant(b.model.layers[1].mlp, forward=activates_up)
    return Pair(a, b, inputs)


def tiled(self: Any, hidden_states: Tensor, position_embeddings: Any, attention_mask: Any, **_: Any) -> Any:
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
    q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
    k, v = (part.repeat(1, self.num_key_value_groups, 1, 1) for part in (k, v))  # 0 1 0 1 in place of 0 0 1 1
    weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * self.scaling + attention_mask, dim=-1)
    return self.o_proj(torch.matmul(weights, v).transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)), weights


# The repetition is written otherwise: its own step, the one that it stands for, or the product that shows it.
@fault("llama/kv-heads-tiled", "model.layers.1.self_attn", "repeat expand reshape")
def _() -> Pair:
    a, b, inputs = _llama("eager")
    plant(b.model.layers[1].self_attn, forward=tiled)
    return Pair(a, b, inputs)


def one_row_late(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
    return LlamaAttention.forward(self, hidden_states, attention_mask=attention_mask.roll(-1, dims=-2), **options)


@fault("llama/mask-off-by-one", "model.layers.0.self_attn", "roll scaled_dot_product_attention")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    plant(b.model.layers[0].self_attn, forward=one_row_late)
    return Pair(a, b, inputs)


def in_bfloat16(self: Any, hidden_states: Tensor) -> Tensor:
    x = hidden_states.to(torch.bfloat16)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
    return self.weight * x.to(hidden_states.dtype)


@fault("llama/norm-in-bfloat16", "model.layers.2.input_layernorm", "to", "dtype values constant")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    plant(b.model.layers[2].input_layernorm, forward=in_bfloat16)
    return Pair(a, b, inputs)


def forgets_the_first_residual(self: Any, hidden_states: Tensor, **options: Any) -> Tensor:
    hidden_states, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


@fault("llama/dropped-residual", "model.layers.1", "add LlamaRMSNorm", "missing wiring")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    plant(b.model.layers[1], forward=forgets_the_first_residual)
    return Pair(a, b, inputs)


def takes_the_normed(self: Any, hidden_states: Tensor, **options: Any) -> Tensor:
    residual = hidden_states
    hidden_states, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
    hidden_states = residual + hidden_states
    hidden_states = self.post_attention_layernorm(hidden_states)
    return hidden_states + self.mlp(hidden_states)  # the residual is the normed one


@fault("llama/residual-taken-after-the-norm", "model.layers.2", "add", "wiring values")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    plant(b.model.layers[2], forward=takes_the_normed)
    return Pair(a, b, inputs)


@fault("llama/norm-weight-lost", "model.norm", "mul get_attr", "weights")
def _() -> Pair:
    a, b, inputs = _llama("sdpa")
    nn.init.ones_(b.model.norm.weight)
    return Pair(a, b, inputs)


@fault("llama/value-of-another-layer", "model.layers.2.self_attn.v_proj", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _llama("eager")
    with torch.no_grad():
        b.model.layers[2].self_attn.v_proj.weight.copy_(b.model.layers[1].self_attn.v_proj.weight)
    return Pair(a, b, inputs)


# Mixtral -------------------------------------------------------------------------------------------


def not_normalised(self: Any, hidden_states: Tensor) -> Any:
    logits = F.linear(hidden_states.reshape(-1, self.hidden_dim), self.weight)
    scores, indices = torch.topk(F.softmax(logits.float(), dim=-1), self.top_k, dim=-1)
    return logits, scores, indices


# The division is missing: it, the sum it needs, or, in the suspect, what is returned in its place.
@fault("mixtral/weights-not-normalised", "model.layers.0.mlp.gate", "div_ sum getitem output", "missing wiring")
def _() -> Pair:
    a, b, inputs = _mixtral()
    plant(b.model.layers[0].mlp.gate, forward=not_normalised)
    return Pair(a, b, inputs)


def next_expert(self: Any, hidden_states: Tensor) -> Any:
    logits = F.linear(hidden_states.reshape(-1, self.hidden_dim), self.weight)
    scores, indices = torch.topk(F.softmax(logits.float(), dim=-1), self.top_k, dim=-1)
    scores /= scores.sum(dim=-1, keepdim=True)
    return logits, scores, (indices + 1) % self.num_experts


@fault("mixtral/wrong-experts", "model.layers.1.mlp.gate", "add remainder mod", "extra values wiring")
def _() -> Pair:
    a, b, inputs = _mixtral()
    plant(b.model.layers[1].mlp.gate, forward=next_expert)
    return Pair(a, b, inputs)


@fault("mixtral/one-expert-a-token", "model.layers.0.mlp.gate", "topk", "constant shape")
def _() -> Pair:
    a, b, inputs = _mixtral()
    b.model.layers[0].mlp.gate.top_k = 1
    return Pair(a, b, inputs)


# The weight, or the product it goes into, however experts are run; or the one that takes the halves apart, which has
# to do it the other way round for these weights.
@fault(
    "mixtral/gate-and-up-halves-swapped",
    "model.layers.0.mlp.experts",
    "get_attr _grouped_mm linear transpose getitem to chunk",
    "weights values",
)
def _() -> Pair:
    a, b, inputs = _mixtral()
    experts = b.model.layers[0].mlp.experts
    experts.gate_up_proj = nn.Parameter(experts.gate_up_proj.detach().roll(24, dims=1))
    return Pair(a, b, inputs)


@fault(
    "mixtral/one-corrupted-element-of-an-expert",
    "model.layers.1.mlp.experts",
    "get_attr _grouped_mm linear transpose getitem to",
    "weights values",
)
def _() -> Pair:
    a, b, inputs = _mixtral("eager")
    with torch.no_grad():
        b.model.layers[1].mlp.experts.down_proj[2, 3, 4] += 9.0
    return Pair(a, b, inputs)


@fault("mixtral/transposed-output", "model.layers.0.self_attn.o_proj", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _mixtral()
    output = b.model.layers[0].self_attn.o_proj
    output.weight = nn.Parameter(output.weight.detach().T.contiguous())
    return Pair(a, b, inputs)
