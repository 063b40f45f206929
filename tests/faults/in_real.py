"""One model of transformers held against another that computes the same: BERT and RoBERTa, Llama and Mistral."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from .case import Pair, equal, fault
from .originals import configuration, inputs_of, original, reference

PADDING = 1  # RoBERTa counts places from the one after its padding token


def _roberta(source: Any, offset: int = PADDING + 1, **options: Any) -> nn.Module:
    """``RobertaModel`` with BERT's weights: its table of places has ``offset`` rows more in front."""
    settings = source.config.to_dict()
    settings["max_position_embeddings"] += PADDING + 1
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    names += ("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "hidden_act")
    chosen = {**{name: settings[name] for name in names}, "pad_token_id": PADDING, **options}
    model = transformers.RobertaModel(transformers.RobertaConfig(**chosen)).eval()
    weights = dict(source.state_dict())
    places = weights["embeddings.position_embeddings.weight"]
    weights["embeddings.position_embeddings.weight"] = torch.cat(
        [torch.zeros(offset, 32), places, torch.zeros(PADDING + 1 - offset, 32)]
    )
    model.load_state_dict(weights)
    return model


def _unpadded() -> dict[str, Any]:
    """Without padding: RoBERTa gives padded tokens another place than BERT does."""
    inputs = inputs_of("bert")
    return {name: x[:1] for name, x in inputs.items()}


@equal("real/bert-and-roberta")
def _() -> Pair:
    a = reference("bert")
    return Pair(a, _roberta(a), _unpadded())


# The table's rows are shifted, which RoBERTa's way of counting does not know: what looks them up is right, and so is
# the counting of places from the tokens, which BERT does not do: which of the two is wrong cannot be told.
@fault(
    "real/roberta-places-without-their-offset",
    "embeddings embeddings.position_embeddings",
    "embedding get_attr Embedding ne int cumsum type_as mul long add getitem to",
    "weights values wiring extra missing",
)
def _() -> Pair:
    a = reference("bert")
    return Pair(a, _roberta(a, offset=0), _unpadded())


@fault("real/roberta-with-its-own-epsilon", "embeddings.LayerNorm", "layer_norm", "constant")
def _() -> Pair:
    a = original("bert")
    with torch.no_grad():
        for name, parameter in a.embeddings.named_parameters():
            if "LayerNorm" not in name:
                parameter.mul_(0.02)
    return Pair(a, _roberta(a, layer_norm_eps=1e-5), _unpadded())


@fault("real/roberta-with-tanh-gelu", "encoder.layer.0.intermediate.intermediate_act_fn", "gelu")
def _() -> Pair:
    a = reference("bert")
    return Pair(a, _roberta(a, hidden_act="gelu_pytorch_tanh"), _unpadded())


def _mistral(source: Any, **options: Any) -> nn.Module:
    config = configuration("llama").to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_parameters")
    settings: dict[str, Any] = {**{name: config[name] for name in names}, "sliding_window": None, **options}
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**settings)).eval()
    model.load_state_dict(source.state_dict())
    return model


@equal("real/llama-and-mistral")
def _() -> Pair:
    a = reference("llama")
    return Pair(a, _mistral(a), inputs_of("llama"))


# The window is cut into the mask, which the model makes before its layers: any step of making it, or the first
# operation that it goes into.
@fault(
    "real/mistral-with-a-sliding-window",
    "model model.layers.0.self_attn",
    "gt le ge lt sub and __and__ expand to getitem new_ones add scaled_dot_product_attention",
)
def _() -> Pair:
    a = reference("llama")
    return Pair(a, _mistral(a, sliding_window=4), inputs_of("llama"))


@fault("real/mistral-with-another-rotary-base", "model.rotary_emb", "mul matmul get_attr to", "weights values constant")
def _() -> Pair:
    a = reference("llama")
    return Pair(a, _mistral(a, rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0}), inputs_of("llama"))


@fault("real/mistral-with-another-epsilon", "model.layers.0.input_layernorm", "add", "constant")
def _() -> Pair:
    a = reference("llama")
    return Pair(a, _mistral(a, rms_norm_eps=1e-3), inputs_of("llama"))
