"""Faults planted in copies of transformers' BERT and GPT-2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation, GELUTanh
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from .case import Pair, fault, plant
from .originals import copies, inputs_of, original, reference


def _bert(attention: str = "eager") -> tuple[Any, Any, dict[str, Any]]:
    return reference("bert", attention), original("bert", attention), inputs_of("bert")


def _gpt2(attention: str = "eager") -> tuple[Any, Any, dict[str, Any]]:
    return reference("gpt2", attention), original("gpt2", attention), inputs_of("gpt2")


# BERT: numbers and weights -------------------------------------------------------------------------


@fault("bert/norm-epsilon", "encoder.layer.1.output.LayerNorm", "layer_norm", "constant")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    b.encoder.layer[1].output.LayerNorm.eps = 1e-3
    return Pair(a, b, inputs)


@fault("bert/norm-epsilon-1e-5-on-small-values", "embeddings.LayerNorm", "layer_norm", "constant")
def _() -> Pair:
    a, b = copies("bert")
    with torch.no_grad():
        for model in (a, b):
            for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
                getattr(model.embeddings, table).weight.mul_(0.02)
    b.embeddings.LayerNorm.eps = 1e-5  # what TensorFlow ports have in place of 1e-12
    return Pair(a, b, inputs_of("bert"))


@fault("bert/transposed-square-weight", "encoder.layer.1.attention.self.key", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    key = b.encoder.layer[1].attention.self.key
    key.weight = nn.Parameter(key.weight.detach().T.contiguous())
    return Pair(a, b, inputs)


# By path, `query` has other weights; by weights, `self` uses them crosswise.
@fault(
    "bert/swapped-query-and-key",
    "encoder.layer.0.attention.self.query encoder.layer.0.attention.self",
    "linear get_attr Linear matmul view transpose",
    "weights values wiring",
)
def _() -> Pair:
    a, b, inputs = _bert()
    own = b.encoder.layer[0].attention.self
    own.query, own.key = own.key, own.query
    return Pair(a, b, inputs)


@fault("bert/missing-scale", "encoder.layer.1.attention.self", "mul", "constant")
def _() -> Pair:
    a, b, inputs = _bert("eager")
    b.encoder.layer[1].attention.self.scaling = 1.0
    return Pair(a, b, inputs)


@fault("bert/missing-scale-in-sdpa", "encoder.layer.1.attention.self", "scaled_dot_product_attention", "constant")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    b.encoder.layer[1].attention.self.scaling = 1.0
    return Pair(a, b, inputs)


@fault("bert/one-corrupted-element", "encoder.layer.2.intermediate.dense", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    with torch.no_grad():
        b.encoder.layer[2].intermediate.dense.weight[17, 5] += 8.0
    return Pair(a, b, inputs)


@fault("bert/zeroed-bias", "encoder.layer.1.attention.self.value", "linear get_attr", "weights")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    nn.init.zeros_(b.encoder.layer[1].attention.self.value.bias)
    return Pair(a, b, inputs)


@fault("bert/tanh-gelu", "encoder.layer.0.intermediate.intermediate_act_fn", "gelu")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    b.encoder.layer[0].intermediate.intermediate_act_fn = GELUTanh()
    return Pair(a, b, inputs)


@fault("bert/dropout-left-on", "encoder.layer.0.attention.output.dropout", "dropout")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    b.encoder.layer[0].attention.output.dropout.train()
    return Pair(a, b, inputs)


# BERT: bodies --------------------------------------------------------------------------------------


def without_mask(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
    return BertSelfAttention.forward(self, hidden_states, None, **options)


# In sdpa the mask is an argument; by hand the addition of it is missing, and softmax gets other scores.
@fault("bert/padding-ignored-in-sdpa", "encoder.layer.2.attention.self", "scaled_dot_product_attention")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder.layer[2].attention.self, forward=without_mask)
    return Pair(a, b, inputs)


@fault("bert/padding-ignored", "encoder.layer.2.attention.self", "add softmax", "missing wiring")
def _() -> Pair:
    a, b, inputs = _bert("eager")
    plant(b.encoder.layer[2].attention.self, forward=without_mask)
    return Pair(a, b, inputs)


def without_residual(self: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    return self.LayerNorm(self.dropout(self.dense(hidden_states)))


# The addition is missing; what shows it in the suspect is the norm that gets another input.
@fault("bert/dropped-residual", "encoder.layer.1.output", "add LayerNorm", "missing wiring")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder.layer[1].output, forward=without_residual)
    return Pair(a, b, inputs)


def twice_the_residual(self: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    hidden_states = self.dropout(self.dense(hidden_states)) + input_tensor
    return self.LayerNorm(hidden_states + input_tensor)


@fault("bert/doubled-residual", "encoder.layer.1.attention.output", "add LayerNorm", "extra wiring")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder.layer[1].attention.output, forward=twice_the_residual)
    return Pair(a, b, inputs)


def through_bfloat16(self: Any, hidden_states: Tensor) -> Tensor:
    hidden_states = self.dense(hidden_states).to(torch.bfloat16)
    return self.intermediate_act_fn(hidden_states.to(torch.float32))


@fault("bert/through-bfloat16", "encoder.layer.1.intermediate", "to", "dtype extra values")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder.layer[1].intermediate, forward=through_bfloat16)
    return Pair(a, b, inputs)


def root_of_negatives(self: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    hidden_states = self.dense(hidden_states)
    return self.LayerNorm(hidden_states.sqrt() ** 2 + input_tensor)


@fault("bert/nan", "encoder.layer.1.output", "sqrt", "nonfinite extra")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder.layer[1].output, forward=root_of_negatives)
    return Pair(a, b, inputs)


def one_place_further(self: Any, input_ids: Tensor, token_type_ids: Tensor, **options: Any) -> Tensor:
    places = self.position_ids[:, 1 : input_ids.shape[1] + 1]
    words = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
    return self.dropout(self.LayerNorm(words + self.position_embeddings(places)))


@fault("bert/position-off-by-one", "embeddings", "getitem Embedding", "constant wiring values")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.embeddings, forward=one_place_further)
    return Pair(a, b, inputs)


def in_order(*order: int) -> Any:
    """``BertEncoder.forward`` with its layers in another order."""

    def forward(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
        for number in order:
            hidden_states = self.layer[number](hidden_states, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states)

    return forward


# One may name the body that calls, or the call that is one too many.
@fault("bert/layer-applied-twice", "encoder encoder.layer.1", "BertLayer -", "extra wiring")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder, forward=in_order(0, 1, 1, 2))
    return Pair(a, b, inputs)


# The body, or the layer of the reference that nobody called.
@fault("bert/layer-skipped", "encoder encoder.layer.1", "BertLayer -", "missing wiring")
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder, forward=in_order(0, 2))
    return Pair(a, b, inputs)


# The body hands layer 2 what layer 1 should get: the body, or one of the two as missing here and extra there.
@fault(
    "bert/layers-called-in-another-order",
    "encoder encoder.layer.1 encoder.layer.2",
    "BertLayer -",
    "wiring missing extra",
)
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    plant(b.encoder, forward=in_order(0, 2, 1))
    return Pair(a, b, inputs)


# By path, layer 1 has other weights, and its first product shows it; by weights, the layers changed places.
@fault(
    "bert/layers-in-another-order",
    "encoder encoder.layer.1 encoder.layer.1.attention.self.query",
    "linear get_attr BertLayer -",
    "weights wiring values",
)
def _() -> Pair:
    a, b, inputs = _bert("sdpa")
    first, second, third = b.encoder.layer
    b.encoder.layer = nn.ModuleList([first, third, second])
    return Pair(a, b, inputs)


# GPT-2 ---------------------------------------------------------------------------------------------


def sees_what_comes(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
    everything = attention_mask[:, :, -1:, :]  # the last row: all but padding
    return GPT2Attention.forward(self, hidden_states, attention_mask=everything, **options)


@fault("gpt2/causal-mask-missing", "transformer.h.1.attn", "getitem add", "extra wiring values")
def _() -> Pair:
    a, b, inputs = _gpt2("eager")
    plant(b.transformer.h[1].attn, forward=sees_what_comes)
    return Pair(a, b, inputs)


# transformers writes the tanh form out, so that its last product stands where the function stands.
@fault("gpt2/erf-gelu", "transformer.h.2.mlp.act", "gelu mul")
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    b.transformer.h[2].mlp.act = GELUActivation()
    return Pair(a, b, inputs)


def rescaled_in_place(
    self: Any, hidden_states: Tensor, *args: Any, attention_mask: Any = None, **options: Any
) -> Tensor:
    attention_mask = args[1] if len(args) > 1 else attention_mask
    residual = hidden_states
    hidden_states.div_(hidden_states.std(-1, keepdim=True))  # the norm does not mind, the residual does
    hidden_states = self.attn(self.ln_1(hidden_states), attention_mask=attention_mask)[0] + residual
    return hidden_states + self.mlp(self.ln_2(hidden_states))


# Who writes, or who reads what was overwritten.
@fault("gpt2/residual-overwritten", "transformer.h.1", "div_ add", "overwritten wiring values extra")
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    plant(b.transformer.h[1], forward=rescaled_in_place)
    return Pair(a, b, {**inputs, "use_cache": False})


def normed_afterwards(
    self: Any, hidden_states: Tensor, *args: Any, attention_mask: Any = None, **options: Any
) -> Tensor:
    attention_mask = args[1] if len(args) > 1 else attention_mask
    hidden_states = self.ln_1(hidden_states + self.attn(hidden_states, attention_mask=attention_mask)[0])
    return self.ln_2(hidden_states + self.mlp(hidden_states))


# The norm is not called before attention: the norm as missing there, or the body that wires it otherwise.
@fault(
    "gpt2/post-norm",
    "transformer.h.1 transformer.h.1.ln_1",
    "GPT2Attention LayerNorm layer_norm -",
    "wiring missing extra",
)
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    plant(b.transformer.h[1], forward=normed_afterwards)
    return Pair(a, b, {**inputs, "use_cache": False})


# What stands in the norm's place has no operation.
@fault("gpt2/final-norm-missing", "transformer.ln_f transformer", "layer_norm LayerNorm output -")
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    b.transformer.ln_f = nn.Identity()
    return Pair(a, b, inputs)


@fault("gpt2/untied-head", "lm_head", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    torch.manual_seed(3)
    b.lm_head.weight = nn.Parameter(torch.randn_like(b.lm_head.weight) * 0.5)
    return Pair(a, b, inputs)


def heads_left_apart(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
    q, k, v = self.c_attn(hidden_states).split(self.split_size, dim=2)
    q, k, v = (part.view(*part.shape[:-1], -1, self.head_dim).transpose(1, 2) for part in (q, k, v))
    scores = torch.matmul(q, k.transpose(-1, -2)) * self.scaling + attention_mask
    mixed = torch.matmul(scores.softmax(-1), v)
    mixed = mixed.reshape(hidden_states.shape)  # without transpose(1, 2)
    return self.resid_dropout(self.c_proj(mixed)), None


@fault(
    "gpt2/heads-merged-without-transpose", "transformer.h.0.attn", "reshape transpose", "missing wiring values constant"
)
def _() -> Pair:
    a, b, inputs = _gpt2("eager")
    plant(b.transformer.h[0].attn, forward=heads_left_apart)
    return Pair(a, b, {**inputs, "use_cache": False})


def softmax_over_queries(self: Any, hidden_states: Tensor, attention_mask: Any = None, **options: Any) -> Any:
    q, k, v = self.c_attn(hidden_states).split(self.split_size, dim=2)
    q, k, v = (part.view(*part.shape[:-1], -1, self.head_dim).transpose(1, 2) for part in (q, k, v))
    scores = torch.matmul(q, k.transpose(-1, -2)) * self.scaling + attention_mask
    mixed = torch.matmul(torch.softmax(scores, dim=-2), v).transpose(1, 2)
    return self.resid_dropout(self.c_proj(mixed.reshape(hidden_states.shape))), None


@fault("gpt2/softmax-over-queries", "transformer.h.2.attn", "softmax", "constant values")
def _() -> Pair:
    a, b, inputs = _gpt2("eager")
    plant(b.transformer.h[2].attn, forward=softmax_over_queries)
    return Pair(a, b, {**inputs, "use_cache": False})


# What differs is what the model was given: the root, or the first call that is given it.
@fault("gpt2/padded-at-the-left", ". transformer transformer.wte", "placeholder embedding -", "input")
def _() -> Pair:
    a, b, inputs = _gpt2("sdpa")
    lengths = inputs["attention_mask"].sum(-1)
    left = {name: torch.stack([row.roll(11 - int(n)) for row, n in zip(x, lengths)]) for name, x in inputs.items()}
    return Pair(a, b, inputs, left)
