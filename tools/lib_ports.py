"""Real ports: one architecture in two public libraries, in a small configuration, with the same random weights.

``PORTS`` has a function for each pair, which builds it; ``tools/lib_ports_check.py`` compares them. Nothing is
downloaded. To add a pair, write in ``lib_ports_images.py``, ``lib_ports_text.py`` or ``lib_ports_sound.py``::

    @port("vit/timm")
    def _() -> Port:
        reference = randomized(transformers.ViTForImageClassification(config))
        suspect = timm.models.vision_transformer.VisionTransformer(...)
        carried(suspect, renamed(reference.state_dict(), (r"^vit\\.layers", "blocks"), ...))
        return Port(reference, suspect, {"pixel_values": images}, images, lambda out: out.logits)

The libraries are imported inside the function, so that a pair whose library is missing can be skipped.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "PORTS",
    "Port",
    "built",
    "carried",
    "carried_in_order",
    "fused",
    "missing_kernels_declared",
    "port",
    "randomized",
    "renamed",
]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
FAMILIES = ("lib_ports_images", "lib_ports_text", "lib_ports_sound")  # the modules that fill PORTS


@dataclass(frozen=True)
class Port:
    """A reference and its port, in eval mode, and the inputs of each as ``fx_debug`` takes them.

    ``result`` and ``result_b`` take what a model returns and return the tensor that must be the same.
    """

    reference: nn.Module
    port: nn.Module
    inputs: Any
    inputs_b: Any
    result: Callable[[Any], Tensor] = lambda out: out
    result_b: Callable[[Any], Tensor] = lambda out: out

    def difference(self) -> float:
        """Return the largest difference between the two results, relative to the largest number of the reference."""
        with torch.no_grad():
            one = self.result(_called(self.reference, self.inputs))
            other = self.result_b(_called(self.port, self.inputs_b))
        return float((one - other).abs().max() / one.abs().max())


PORTS: dict[str, Callable[[], Port]] = {}


def port(name: str) -> Callable[[Callable[[], Port]], Callable[[], Port]]:
    """Register a function that builds a pair; the name is ``architecture/library of the port``."""

    def register(build: Callable[[], Port]) -> Callable[[], Port]:
        assert name not in PORTS, name
        PORTS[name] = build
        return build

    return register


def built(name: str, *, seed: int = 0, initial: bool = False) -> Port:
    """Build a pair, the same one for each seed; raises ``ImportError`` where its library is missing.

    ``initial`` leaves the weights as the reference initialises them: zeros, ones and tiny scales among them.
    """
    names()
    torch.manual_seed(seed)
    _options["initial"] = initial
    pair = PORTS[name]()
    pair.reference.eval()
    pair.port.eval()
    return pair


def names() -> list[str]:
    """Return the names of all pairs."""
    missing_kernels_declared()
    for family in FAMILIES:
        importlib.import_module(family)
    return list(PORTS)


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


_options = {"initial": False}


# Weights -------------------------------------------------------------------------------------------


def randomized(model: nn.Module) -> nn.Module:
    """Change every weight and running statistic: defaults such as 0 and 1 would hide a fault."""
    if _options["initial"]:
        return model
    with torch.no_grad():
        for weight in model.parameters():
            fan_in = weight[0].numel() if weight.dim() > 1 else 1
            weight.add_(torch.randn_like(weight) * (0.5 / fan_in**0.5 if weight.dim() > 1 else 0.1))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.2)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str | Callable[[re.Match[str]], str]]) -> dict[str, Tensor]:
    """Return a state under other names: each rule, a pattern and its replacement, is applied in turn."""
    result = {}
    for name, value in state.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        result[name] = value
    return result


def fused(state: Mapping[str, Tensor], parts: tuple[str, ...], into: str) -> dict[str, Tensor]:
    """Return a state with weights concatenated: ``("q_proj.", "k_proj.", "v_proj.")`` into ``"qkv."``."""
    result = dict(state)
    for name in state:
        if parts[0] in name:
            pieces = [result.pop(name.replace(parts[0], part)) for part in parts]
            result[name.replace(parts[0], into)] = torch.cat(pieces)
    return result


def carried(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Load a state into the port; every weight must find its place, reshaped where only the shape differs."""
    own = model.state_dict()
    shaped = {name: value.reshape(own[name].shape) if name in own else value for name, value in state.items()}
    missing, unexpected = model.load_state_dict(shaped, strict=False)
    missing = [name for name in missing if name in dict(model.named_parameters())]
    if missing or unexpected:
        raise ValueError(f"{type(model).__name__}: no weights for {missing}, no place for {unexpected}")
    return model


def carried_in_order(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Load a state whose weights come in the order of the port's own, under whatever names."""
    own = [name for name, value in model.state_dict().items() if value.dim()]
    values = [value for value in state.values() if value.dim()]
    if len(own) != len(values):
        raise ValueError(f"{type(model).__name__} has {len(own)} weights, the reference {len(values)}")
    return carried(model, dict(zip(own, values)))


# Libraries -----------------------------------------------------------------------------------------

_declared: list[Any] = []  # torch.library forgets operators when the library object dies


def missing_kernels_declared() -> None:
    """Declare what wheels of torchvision and torchaudio built for CUDA lack on a torch for the CPU; none is called."""
    if _declared:
        return
    if torch.version.cuda is None:
        kernels = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            kernels.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _declared.append(kernels)
        extension = types.ModuleType("torchaudio._extension.utils")
        extension._load_lib = lambda name: False  # type: ignore[attr-defined]
        extension._check_cuda_version = extension._init_dll_path = lambda: None  # type: ignore[attr-defined]
        sys.modules.setdefault(extension.__name__, extension)
    _declared.append(True)
