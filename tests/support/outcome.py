"""Everything that a program can see of a forward and a backward pass, to hold a watched run against a plain one."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

from support.same import difference


class Outcome:
    """Everything that a program can see of a forward and a backward pass."""

    def __init__(self, build: Any, call: Any, grad: bool) -> None:
        model, inputs = build()
        torch.manual_seed(7)
        random.seed(7)
        self.output: Any = None
        self.error: Any = None
        before = [(m, dict(m.__dict__)) for m in model.modules()]
        torch.set_warn_always(True)  # torch's C++ warns once a process otherwise: only the first run would
        with warnings.catch_warnings(record=True) as caught, torch.set_grad_enabled(grad):
            warnings.simplefilter("always")
            try:
                self.output = call(model, inputs)
            except BaseException as error:
                self.error = error
        self.warnings = [(w.category, str(w.message).split("(Triggered")[0]) for w in caught]
        torch.set_warn_always(False)
        self.changed = [
            (type(m).__name__, [k for k in sorted({*m.__dict__, *was}) if m.__dict__.get(k) is not was.get(k)])
            for m, was in before
        ]
        self.gradients = _gradients(self.output, model, inputs) if grad and self.error is None else None
        self.state = dict(model.named_parameters()) | dict(model.named_buffers())
        self.inputs = inputs
        self.training = [m.training for m in model.modules()]
        self.random = (torch.get_rng_state(), random.getstate())


def _gradients(output: Any, model: torch.nn.Module, inputs: Any) -> Any:
    """Return all gradients of the sum of the first differentiable output, or the error of ``backward``."""
    leaves = [x for x in _tensors(output, 0) if x.requires_grad and x.layout is torch.strided and not x.is_nested]
    leaves = [x for x in leaves if not x.is_meta and x.dtype.is_floating_point]
    if not leaves:
        return None
    try:
        leaves[0].double().sum().backward()
    except RuntimeError as error:
        return str(error)
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _tensors(output: Any, depth: int) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    members = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
    return [] if depth > 3 else [tensor for member in members for tensor in _tensors(member, depth + 1)]


def native(model: Any, inputs: Any) -> Any:
    """Run the model as it is."""
    return model(**inputs)


def assert_same(build: Any, call: Callable[[Any, Any], Any], grad: bool) -> None:
    """Check that a call of a model does what a plain call does, to the bit."""
    plain, ours = Outcome(build, native, grad), Outcome(build, call, grad)
    assert (plain.error is None) == (ours.error is None), (plain.error, ours.error)
    if plain.error is not None:
        assert type(ours.error) is type(plain.error)
        assert _text(ours.error) == _text(plain.error)
    assert plain.warnings == ours.warnings
    assert plain.changed == ours.changed
    assert plain.training == ours.training
    assert difference(plain.output, ours.output, "output") is None
    assert difference(plain.gradients, ours.gradients, "gradients") is None
    assert difference(plain.state, ours.state, "state") is None
    assert difference(plain.inputs, ours.inputs, "inputs") is None
    assert difference(plain.random, ours.random, "random numbers") is None


def _text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "too deep"  # Python words it by what it was doing at the limit
    try:
        return str(error)
    except Exception as second:
        return repr(second)
