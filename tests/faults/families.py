"""Small models of further families with inputs: decoders, convolutions, windows, state spaces, recurrent ones.

``family("gemma2")`` gives a fresh model, ``given("gemma2")`` what it is called with. Weights, biases, norms and running
statistics are such that each of them shows, as in ``originals``.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from .own_models import Tagger, TextEncoder, UNet

__all__ = ["FAMILIES", "configured", "family", "given", "pristine", "twins"]

WORDS = 99
_TEXT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip

# name -> (model class, its configuration's class, options)
_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": WORDS, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40},
    ),
    "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {
        **_TEXT, "intermediate_size": 48, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {
        **_TEXT, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 10.0, "sliding_window": 4,
        "attn_implementation": "eager",
    }),
    "bloom": ("BloomForCausalLM", "BloomConfig", {
        "vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4, "bos_token_id": None, "eos_token_id": None,
    }),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {
        **_TEXT, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 16,
    }),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        "vocab_size": WORDS, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 40, "word_embed_proj_dim": 32, "bos_token_id": None, "eos_token_id": None,
    }),
    "mamba": ("MambaForCausalLM", "MambaConfig", {
        "vocab_size": WORDS, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 2,
        "bos_token_id": None, "eos_token_id": None, "use_cache": False,
    }),
    "convnext": ("ConvNextModel", "ConvNextConfig", {
        "hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "patch_size": 4, "image_size": 32,
        "layer_scale_init_value": 0.5,
    }),
    "resnet": ("ResNetModel", "ResNetConfig", {
        "embedding_size": 8, "hidden_sizes": [16, 24], "depths": [1, 2], "layer_type": "bottleneck",
    }),
    "swin": ("SwinModel", "SwinConfig", {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2,
        "drop_path_rate": 0.0,
    }),
    "clip": ("CLIPModel", "CLIPConfig", {
        "text_config": {
            "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 20, "eos_token_id": 2, "bos_token_id": 1,
            "pad_token_id": 0,
        },
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4,
        },
        "projection_dim": 16,
    }),
}  # fmt: skip
_OWN: dict[str, Callable[[], nn.Module]] = {"tagger": Tagger, "unet": UNet, "encoder": TextEncoder}
FAMILIES = (*_MODELS, *_OWN)


def configured(name: str, **options: Any) -> Any:
    """The configuration of a model, with options changed."""
    kind, settings = _MODELS[name][1:]
    return getattr(transformers, kind)(**{**settings, **options})


@functools.cache
def pristine(name: str) -> nn.Module:
    """The model that all share: nobody may change it."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = _OWN[name]() if name in _OWN else getattr(transformers, _MODELS[name][0])(configured(name))
        for number, (path, tensor) in enumerate([*model.named_parameters(), *model.named_buffers()]):
            torch.manual_seed(2000 + number)
            with torch.no_grad():
                _weigh(name, path, tensor)
        return model.eval()


def family(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A fresh model in evaluation mode, its weights always the same."""
    return copy.deepcopy(pristine(name)).to(dtype)


def twins(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """The reference, a copy to plant a fault in, and inputs."""
    return pristine(name), family(name), given(name)


def _weigh(name: str, path: str, tensor: Tensor) -> None:
    """Values of the size that a trained model has, relative to its width; buffers but running statistics stay."""
    last = path.rsplit(".", 1)[-1]
    if last == "running_var":
        tensor.uniform_(0.5, 2.0)
    elif last in ("running_mean", "in_proj_bias") or last.startswith("bias"):
        tensor.normal_(0.0, 0.3)
    elif not isinstance(tensor, nn.Parameter) or last in ("A_log", "D", "logit_scale"):
        return
    elif tensor.dim() == 1:
        tensor.normal_(0.0 if name == "gemma2" else 1.0, 0.3)  # Gemma adds the one itself
    elif "embed" in path or "wte" in path or "class_embedding" in path:
        tensor.normal_(0.0, 0.5)
    elif "relative_position" in path:
        tensor.normal_(0.0, 1.0)
    else:
        queries = any(part in path for part in ("q_lin", "k_lin", "q_proj", "k_proj", "query_key", "in_proj_weight"))
        tensor.normal_(0.0, (1.5 if queries else 1.1) * tensor[0].numel() ** -0.5)


def given(name: str) -> dict[str, Any]:
    """What the model is called with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return _INPUTS[name]()


def _tokens(*lengths: int) -> dict[str, Tensor]:
    ids = torch.randint(3, WORDS, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def _image(size: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def _both() -> dict[str, Tensor]:
    ids = torch.randint(3, WORDS, (2, 7))
    ids[:, -1] = 2  # where text is pooled
    return {"input_ids": ids, **_image(16)}


_INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "distilbert": lambda: _tokens(11, 8, 5),
    "neox": lambda: _tokens(11, 8),
    "gemma2": lambda: _tokens(11, 8),
    "bloom": lambda: _tokens(11, 8),
    "qwen3": lambda: _tokens(11, 8),
    "opt": lambda: _tokens(11, 8),
    "mamba": lambda: {"input_ids": torch.randint(3, WORDS, (2, 7))},
    "convnext": lambda: _image(24),
    "resnet": lambda: _image(32),
    "swin": lambda: _image(16),
    "clip": _both,
    "tagger": lambda: {"tokens": torch.randint(1, WORDS, (3, 9))},
    "unet": lambda: {"image": torch.randn(2, 3, 16, 16)},
    "encoder": lambda: {
        "tokens": torch.randint(1, WORDS, (3, 9)),
        "padding": torch.arange(9)[None] >= torch.tensor([9, 7, 4])[:, None],
    },
}
