"""Modules that compare equal, or have attributes with the names of ``nn.Module``'s methods, are as any other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Report, fx_debug

X = torch.linspace(-1, 1, 12).view(3, 4)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.l(x)) * self.scale


def by_type(self: Any, other: Any) -> bool:
    return type(self) is type(other)


def by_value(self: Any, other: Any) -> bool:
    return bool(self.l.in_features == other.l.in_features)


def raises(self: Any, other: Any = None) -> Any:
    raise RuntimeError("asked for what no debugger may ask")


def by_elements(self: Any, other: Any) -> Any:
    return self.l.weight == 0


SHADOWED = (
    "modules parameters buffers children named_modules named_parameters named_buffers named_children type apply to "
    "half double float train eval zero_grad state_dict load_state_dict requires_grad_ register_buffer "
    "register_parameter register_module add_module register_forward_hook register_forward_pre_hook "
    "register_full_backward_hook get_submodule get_parameter get_buffer extra_repr compile share_memory"
).split()


def shadowing_in_instances() -> type[nn.Module]:
    class Shadows(Layer):
        def __init__(self) -> None:
            super().__init__()
            vars(self).update({name: ["of the program"] for name in SHADOWED}, training=True)

    return Shadows


def of_class(**members: Any) -> type[nn.Module]:
    return type("Layer", (Layer,), members)


KINDS: dict[str, Callable[[], type[nn.Module]]] = {
    "equal by type": lambda: of_class(__eq__=by_type, __hash__=lambda self: hash(type(self))),
    "equal by value": lambda: of_class(__eq__=by_value, __hash__=lambda self: 4),
    "without a hash": lambda: of_class(__eq__=by_type, __hash__=None),
    "raises when compared": lambda: of_class(__eq__=raises, __hash__=lambda self: 4),
    "raises when hashed": lambda: of_class(__hash__=raises),
    "equal by elements": lambda: of_class(__eq__=by_elements, __hash__=lambda self: 4),
    "attributes of instances": shadowing_in_instances,
    "attributes of the class": lambda: of_class(**{n: "of the program" for n in SHADOWED if not n.startswith("regis")}),
    "properties": lambda: of_class(
        **{n: property(lambda self: [1]) for n in SHADOWED if not n.startswith(("regis", "add"))}
    ),
    "other methods": lambda: of_class(
        **{n: lambda self, a, b, c: a for n in SHADOWED if not n.startswith(("regis", "add"))}
    ),
}


def model_of(kind: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(kind(), kind())


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


def rows(report: Report) -> list[Any]:
    return [(getattr(row, "call", None), getattr(row, "path", None), getattr(row, "name", None)) for row in report.rows]


def traced(model: nn.Module, folder: Path) -> Any:
    trace = fx_debug(model, X, save=folder / "run", values="tensors")
    assert fxdebug.load(folder / "run") == trace
    assert torch.equal(trace.root.fx(X), model(X))
    trace.export(folder / "run.html")
    return [(call.id, call.status, call.outputs[0].stats) for call in trace.calls], trace.parameters


def watched(model: nn.Module, folder: Path) -> Any:
    weights = [weight for layer in model for weight in (layer.l.weight, layer.l.bias)]  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with fxdebug.watch(model, optimizer, every=1, save=folder / "train") as watching:
        for _ in range(3):
            optimizer.zero_grad()
            mean(model(X)).backward()
            optimizer.step()
    return rows(watching.report()), weights


def in_context(model: nn.Module, folder: Path) -> Any:
    with fxdebug.model_addition_debugger_context(model, debug_path=str(folder), do_prune_layers=False):
        model(X)
    return sorted(path.name for path in folder.iterdir())


USES: dict[str, Callable[[nn.Module, Path], Any]] = {
    "fx_debug": traced,
    "summary": lambda model, folder: rows(fxdebug.summary(model, X)),
    "flops": lambda model, folder: rows(fxdebug.flops(model, X)),
    "memory": lambda model, folder: rows(fxdebug.memory(model, X, loss=mean)),
    "profile": lambda model, folder: sorted(rows(fxdebug.profile(model, X, loss=mean, repeats=1, warmup=0))),
    "check": lambda model, folder: rows(fxdebug.check(model, X, mean)),
    "weights": lambda model, folder: rows(fxdebug.weights(model)),
    "weights of two": lambda model, folder: rows(fxdebug.weights(model, copy.deepcopy(model))),
    "gradients": lambda model, folder: rows(fxdebug.gradients(model, X, mean)),
    "activations": lambda model, folder: rows(fxdebug.activations(model, X)),
    "attention": lambda model, folder: rows(fxdebug.attention(model, X)),
    "compare_models": lambda model, folder: str(fxdebug.compare_models(model, copy.deepcopy(model), X)),
    "shadow": lambda model, folder: rows(fxdebug.shadow(model, X)),
    "watch": watched,
    "the drop-in": in_context,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_awkward_modules_give_what_plain_ones_give(kind: str, use: str, tmp_path: Path) -> None:
    plain = type(KINDS[kind]().__name__, (Layer,), {})
    (tmp_path / "plain").mkdir()
    (tmp_path / "awkward").mkdir()
    expected = USES[use](model_of(plain), tmp_path / "plain")
    found = USES[use](model_of(KINDS[kind]()), tmp_path / "awkward")
    assert repr(found) == repr(expected)
