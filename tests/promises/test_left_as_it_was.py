"""Every function about the cost or health of a model leaves it, torch and the process as they were, also on failure."""

from __future__ import annotations

import copy
import gc
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug


class Awkward(nn.Module):
    """A model with state of every kind: it draws numbers, counts its calls, changes buffers; it may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 4).eval()
        self.dropout = nn.Dropout(0.5)
        self.calls = 0
        self.raises = False
        self.first.weight.requires_grad_(False)
        self.first.register_forward_hook(lambda module, args, output: output * 1.0)
        self.frozen.register_full_backward_hook(lambda module, inputs, outputs: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        random.random()
        np.random.rand()
        self.frozen.train()
        self.second = self.calls  # an attribute, a buffer, a flag and gradients that a run leaves behind
        self.register_buffer("late", torch.ones(1))
        self.register_parameter("later", nn.Parameter(torch.ones(1)))
        self.latest = nn.Identity()
        self.norm.register_forward_hook(lambda module, args, output: None)
        self.norm.weight.requires_grad_(False)
        with torch.enable_grad():
            self.norm.bias.square().sum().backward()
        with fxdebug.region("whole"):
            x = self.dropout(self.norm(self.first(x)))
            fxdebug.snapshot("in the middle")
        if self.raises:
            raise RuntimeError("midway")
        return self.frozen(x)


def loss_of(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def raising(y: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("of the loss")


def many(y: torch.Tensor) -> torch.Tensor:
    return y


X = torch.linspace(-1, 1, 24).reshape(6, 4)
QUICK: dict[str, Any] = {"repeats": 2, "warmup": 1}
CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "profile": lambda m: fxdebug.profile(m, X, **QUICK),
    "profile with a loss": lambda m: fxdebug.profile(m, X, loss=loss_of, **QUICK),
    "profile, the loss raises": lambda m: fxdebug.profile(m, X, loss=raising, **QUICK),
    "profile, the loss is no number": lambda m: fxdebug.profile(m, X, loss=many, **QUICK),
    "memory": lambda m: fxdebug.memory(m, X),
    "memory with a loss": lambda m: fxdebug.memory(m, X, loss=loss_of, steps=3),
    "memory, the loss raises": lambda m: fxdebug.memory(m, X, loss=raising),
    "memory, the loss is no number": lambda m: fxdebug.memory(m, X, loss=many),
    "memory with an estimate": lambda m: fxdebug.memory(
        m, X, loss=loss_of, estimate={"batch": 9, "dtype": torch.float64}
    ),
    "summary": lambda m: fxdebug.summary(m, X),
    "flops": lambda m: fxdebug.flops(m, X),
    "gradients": lambda m: fxdebug.gradients(m, X, loss_of),
    "gradients with an optimizer": lambda m: fxdebug.gradients(
        m, X, loss_of, optimizer=torch.optim.AdamW(m.parameters(), lr=0.1)
    ),
    "gradients, the loss raises": lambda m: fxdebug.gradients(m, X, raising),
    "gradients, the loss is no number": lambda m: fxdebug.gradients(m, X, many),
    "weights with inputs": lambda m: fxdebug.weights(m, X),
    "activations": lambda m: fxdebug.activations(m, batches=[X, X]),
    "attention": lambda m: fxdebug.attention(m, X),
    "check": lambda m: fxdebug.check(m, X, config=False),
    "check with gradients": lambda m: fxdebug.check(m, X, loss_of, config=False),
    "shadow": lambda m: fxdebug.shadow(m, X),
    "compare_models": lambda m: fxdebug.compare_models(m, copy.deepcopy(m), X),
    "compare_models, the second": lambda m: fxdebug.compare_models(copy.deepcopy(m), m, X),
    "edit": lambda m: fxdebug.edit(m, {"norm": lambda out: out * 0}, X),
}


def state(model: nn.Module) -> dict[str, Any]:
    """Everything that must be the same afterwards, comparable with ``==``."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "modules": [path for path, _ in model.named_modules()],
        "training": [module.training for module in model.modules()],
        "hooks": [[list(getattr(module, name)) for name in hooks] for module in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "forwards": ["forward" in vars(module) for module in model.modules()],
        "names of buffers": [[*module._buffers, *module._non_persistent_buffers_set] for module in model.modules()],
        "calls": getattr(model, "calls", None),
        "parameters": [(id(p), p.dtype, p.requires_grad, p.detach().tolist()) for p in model.parameters()],
        "versions": [p._version for p in model.parameters()],
        "gradients": [None if p.grad is None else (id(p.grad), p.grad.tolist()) for p in model.parameters()],
        "buffers": [(id(b), b.tolist()) for b in model.buffers()],
        "inputs": X.tolist(),
        "torch random": torch.get_rng_state().tolist(),
        "python random": random.getstate(),
        "numpy random": str(np.random.get_state()),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "call code": nn.Module._call_impl.__code__,
        "gc": (gc.isenabled(), gc.get_threshold()),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "running threads": sorted(thread.name for thread in threading.enumerate()),
    }


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_all_is_as_it_was(name: str, raises: bool, grad: bool) -> None:
    torch.manual_seed(0)
    model = Awkward()
    for position, parameter in enumerate(model.parameters()):
        if position % 2 and parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    model.raises = raises
    with torch.set_grad_enabled(grad):
        before = state(model)
        fails = "raises" in name or "no number" in name
        if raises or fails:
            with pytest.raises((RuntimeError, fxdebug.UsageError)):
                CALLS[name](model)
        else:
            CALLS[name](model)
        after = state(model)
    assert {key: after[key] for key in after if after[key] != before[key]} == {}


class Noisy(nn.Module):
    """A model in eval mode that still draws numbers and counts; not while torch exports it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            self.calls = random.random() + np.random.rand() + float(torch.rand(()))
            self.norm.running_mean += 1  # type: ignore[operator]
            self.norm.train()
            self.norm.weight.requires_grad_(False)
        return self.norm(x)  # type: ignore[no-any-return]


def test_a_model_that_was_exported_is_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model = Noisy()
    before = state(model)
    fxdebug.export_onnx(model, tmp_path / "model.onnx", X)
    after = state(model) | {"running threads": before["running threads"]}  # onnxscript's progress bar starts one
    assert {key: after[key] for key in after if after[key] != before[key]} == {}
