"""Seven small models of transformers with inputs, weighted so that a wrong scale, mask, norm or position shows.

``original("bert")`` gives a fresh model, ``inputs_of("bert")`` what it is called with. The default initialisation
(all weights of 0.02) makes attention uniform and every norm's work trivial; here queries meet keys with scores of
about one, norms have weights of their own, and biases are not zero.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

__all__ = ["NAMES", "configuration", "copies", "inputs_of", "original", "reference"]

NAMES = ("bert", "gpt2", "llama", "mixtral", "t5", "vit", "whisper")
VOCABULARY = 99

# name -> (model class, its configuration's class, options); three layers where layers can change places.
_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": (
        "BertModel",
        "BertConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 40,
        },
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 40,
            "bos_token_id": None,
            "eos_token_id": None,
        },
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,  # not hidden_size / heads: a scale computed from those is wrong
            "max_position_embeddings": 64,
        },
    ),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "max_position_embeddings": 64,
        },
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 16,
            "decoder_start_token_id": 0,
        },
    ),
    "vit": (
        "ViTModel",
        "ViTConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "image_size": 16,
            "patch_size": 4,
        },
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_mel_bins": 8,
            "max_source_positions": 12,
            "max_target_positions": 20,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
}


def configuration(name: str, **options: Any) -> Any:
    """The configuration of a model, with options changed."""
    kind, settings = _MODELS[name][1:]
    return getattr(transformers, kind)(**{**settings, **options})


def original(name: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> nn.Module:
    """A fresh model in evaluation mode, its weights always the same."""
    return copy.deepcopy(reference(name, attention)).to(dtype)


def copies(name: str, attention: str = "sdpa") -> tuple[nn.Module, nn.Module]:
    """The same model twice, sharing nothing."""
    return original(name, attention), original(name, attention)


@functools.cache
def reference(name: str, attention: str = "sdpa") -> nn.Module:
    """The model that all share: nobody may change it, so that its trace need be made once only."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = getattr(transformers, _MODELS[name][0])(configuration(name))
        model.set_attn_implementation(attention)
        for number, (path, parameter) in enumerate(model.named_parameters()):
            torch.manual_seed(1000 + number)
            with torch.no_grad():
                _weigh(path, parameter)
        model.eval()
    return model


def _weigh(path: str, parameter: torch.Tensor) -> None:
    """Values of the size that a trained model has, relative to its width."""
    last = path.rsplit(".", 1)[-1]
    if last == "bias":
        parameter.normal_(0.0, 0.3)
    elif parameter.dim() == 1:  # the weight of a norm
        parameter.normal_(1.0, 0.3)
    elif "embed" in path or "wte" in path or "wpe" in path or path.endswith(("shared.weight", "cls_token")):
        parameter.normal_(0.0, 0.5)
    else:
        fan_in = parameter[0].numel()
        if "c_" in path:  # GPT-2's Conv1D has its weights transposed
            fan_in = parameter.shape[0]
        elif "experts" in path:  # all experts in one
            fan_in = parameter.shape[-1]
        queries = any(part in path for part in ("query", "key", "q_proj", "k_proj", ".q.", ".k."))
        parameter.normal_(0.0, (1.6 if queries else 1.1) * fan_in**-0.5)
        if "Attention" in path and (".q." in path or ".k." in path):  # T5 does not divide by the root of the head
            parameter.mul_(0.6)


def inputs_of(name: str) -> dict[str, Any]:
    """What the model is called with: two or three sequences, padded at the right where it takes a mask."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return _INPUTS[name]()


def _tokens(*lengths: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, VOCABULARY, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def _bert() -> dict[str, Any]:
    tokens = _tokens(11, 8, 5)
    return {**tokens, "token_type_ids": (torch.arange(11)[None] > 4).long().expand(3, -1) * tokens["attention_mask"]}


def _t5() -> dict[str, Any]:
    return {**_tokens(11, 7), "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 6))}


def _whisper() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 24), "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 6))}


_INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "bert": _bert,
    "gpt2": lambda: _tokens(11, 8),
    "llama": lambda: _tokens(11, 8),
    "mixtral": lambda: _tokens(11, 8),
    "t5": _t5,
    "vit": lambda: {"pixel_values": torch.randn(2, 3, 16, 16)},
    "whisper": _whisper,
}
