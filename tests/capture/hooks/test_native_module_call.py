"""The way into a call through the native core: whatever a program does to its modules, the trace is Python's."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import fxdebug
from fxdebug.native import core
from support.both_ways import Case, assert_same_both_ways
from support.trees import Does, linear, ones


@pytest.fixture(scope="module")
def build() -> ModuleType:
    found = core.loaded()
    if found.module is None:
        pytest.skip(f"no build of the native core is in use: {found.why}")
    return found.module


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Add a case, named after its function."""
    CASES[make.__name__.replace("_", " ")] = make
    return make


def does(body: Callable[..., Any], *args: Any, seen: list[Any] | None = None, **parts: nn.Module) -> Case:
    """A case of one module with parts, given ``args`` or a tensor of ones."""
    return Case(Does(body, **parts), args or (ones(),), seen=[] if seen is None else seen)


def layers() -> nn.Sequential:
    return nn.Sequential(linear(), nn.ReLU())


# Hooks --------------------------------------------------------------------------------------------------------------


@case
def hooks_added_and_removed_during_the_run() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        x = self.child(x)
        handles = [
            self.child.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
            self.child[0].register_forward_hook(lambda module, args, output: output * 2),
            self.child[1].register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True),
        ]
        x = self.child(x)
        for handle in handles:
            handle.remove()
        return self.child(x)

    return does(body, child=layers())


@case
def a_hook_that_takes_itself_off() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        handle = self.child[0].register_forward_hook(lambda *_: handle.remove())
        return self.child(self.child(x))

    return does(body, child=layers())


@case
def a_hook_that_calls_its_module() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            handle.remove()
            return output + module(args[0])

        handle = self.child[0].register_forward_hook(hook)
        return self.child(x)

    return does(body, child=layers())


@case
def hooks_that_raise() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        def hook(*args: Any) -> None:
            raise ValueError("of a hook")

        for register in (self.child.register_forward_hook, self.child.register_forward_pre_hook):
            handle = register(hook)
            with contextlib.suppress(ValueError):
                self.child(x)
            handle.remove()
        self.child.register_forward_hook(lambda *_: None, always_call=True)
        return self.child(x)

    return does(body, child=layers())


@case
def hooks_for_all_modules() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        handle = torch_module.register_module_forward_hook(lambda module, args, output: None)
        try:
            x = self.child(x)
        finally:
            handle.remove()
        return self.child(x)

    return does(body, child=layers())


@case
def hooks_on_the_backward_pass() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            handle = self.child.register_full_backward_hook(lambda *_: None)
            x = self.child(x.detach().requires_grad_())
            x.sum().backward()
            handle.remove()
            return self.child(x.detach())

    return does(body, child=layers())


# Forwards -----------------------------------------------------------------------------------------------------------


class Patched(nn.Module):
    """Its class gets another forward during the run."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Metaclass(type):
    """Makes ``forward`` anew each time that it is looked up on the class."""

    def __getattribute__(cls, name: str) -> Any:
        found = super().__getattribute__(name)
        return types.FunctionType(found.__code__, found.__globals__) if name == "forward" else found


class MadeAnew(nn.Module, metaclass=Metaclass):
    """No two look-ups of its forward find the same function."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 3


class Multiplied:
    """A callable object that is a forward."""

    def __call__(self, x: Tensor) -> Tensor:
        return x * 2


class WithProperty(nn.Module):
    """Its forward is computed."""

    @property
    def forward(self) -> Any:  # type: ignore[override]
        return lambda x: x + 2


class PartialForward(nn.Module):
    """Its forward is a partial method."""

    def scaled(self, scale: float, x: Tensor) -> Tensor:
        return x * scale

    forward = functools.partialmethod(scaled, 2.0)


class ClassMethodForward(nn.Module):
    """Its forward is a method of the class."""

    @classmethod
    def forward(cls, x: Tensor) -> Tensor:  # type: ignore[override]
        return x + len(cls.__name__)


class Given(nn.Module):
    """Gets its forward from __getattr__."""

    forward = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.forward = lambda x: x - 2  # type: ignore[method-assign,assignment]


for odd in (MadeAnew, WithProperty, PartialForward, ClassMethodForward, Given):
    CASES[f"a forward of class {odd.__name__}"] = lambda odd=odd: does(  # type: ignore[misc]
        lambda self, x: self.child(self.other(self.child(x))), child=odd(), other=linear()
    )


@case
def a_class_patched_during_the_run() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        x = self.child(x)
        original = Patched.forward
        try:
            Patched.forward = lambda self, x: original(self, x) * 2  # type: ignore[method-assign]
            x = self.child(x)
        finally:
            Patched.forward = original  # type: ignore[method-assign]
        return self.child(x)

    return does(body, child=Patched())


@case
def an_instance_given_another_forward() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        before = self.child.forward
        self.child.forward = lambda x: before(x) * 2
        x = self.child(x)
        self.child.forward = Multiplied()
        x = self.child(x)
        self.child.forward = before
        x = self.child(x)
        del self.child.forward
        return self.child(x)

    return does(body, child=linear())


@case
def forwards_of_instances() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        return self.first(self.second(self.third(x)))

    first, second, third = linear(), linear(), nn.Identity()
    first.forward = Multiplied()  # type: ignore[method-assign]
    second.forward = functools.partial(lambda scale, x: x * scale, 3)  # type: ignore[method-assign]
    third.forward = types.MethodType(lambda self, x: x + 1, third)  # type: ignore[method-assign]
    return does(body, first=first, second=second, third=third)


@case
def forwards_called_directly() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        x = self.child.forward(x) + self.child[0].forward(x)
        x = nn.Linear.forward(self.child[0], x)
        return x + self.child.__call__(x) + self.child._call_impl(x) + nn.Module.__call__(self.child, x)

    return does(body, child=layers())


@case
def a_bound_forward_that_is_kept() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        kept = self.child.forward
        del self.child.forward
        return kept(x) + self.child(x)

    return does(body, child=linear())


@case
def a_module_that_becomes_another_class() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        x = self.child(x)
        self.child.__class__ = nn.Identity
        x = self.child(x)
        self.child.__class__ = nn.Linear
        return self.child(x)

    return does(body, child=linear())


@case
def a_dict_that_is_copied() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        other = nn.Linear.__new__(nn.Linear)
        other.__dict__ = dict(self.child.__dict__)
        return other(x) + self.child(x)

    return does(body, child=linear())


@case
def a_module_replaced_in_its_parent() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        for _ in range(5):
            self.child = nn.ReLU()
            x = self.child(x)
        return x

    return does(body, child=linear())


# Torch's own ways ---------------------------------------------------------------------------------------------------


@case
def compiled_with_a_backend_that_compiles_nothing() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        return torch.compile(self.child, backend="eager")(x) + self.child(x)

    return does(body, child=layers())


@case
def exported_during_the_run() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        program = torch.export.export(self.child, (x,))
        return self.child(x) + len(program.graph.nodes)

    return does(body, child=layers())


@case
def checkpointed() -> Case:
    from torch.utils.checkpoint import checkpoint

    def body(self: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = checkpoint(self.child, x.detach().requires_grad_(), use_reentrant=False)
            y.sum().backward()
        return y.detach()

    return does(body, child=layers())


@case
def attention_with_a_fused_kernel() -> Case:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    return does(lambda self, x: self.child(x[None]), child=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


@case
def weights_in_another_s_place() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        weights = {name: weight * 2 for name, weight in self.child.named_parameters()}
        return torch.func.functional_call(self.child, weights, (x,)) + self.child(x)

    return does(body, child=layers())


@case
def a_parametrized_weight() -> Case:
    child = nn.utils.parametrizations.weight_norm(linear())
    return does(lambda self, x: self.child(x), child=child)


# Python's own ways --------------------------------------------------------------------------------------------------


@case
def under_a_profiler_of_python() -> Case:
    seen: list[Any] = []

    def body(self: Any, x: Tensor) -> Tensor:
        sys.setprofile(lambda frame, event, argument: seen.append(event) if frame.f_code is inner.__code__ else None)
        try:
            return self.child(x)
        finally:
            sys.setprofile(None)

    def inner(self: Any, x: Tensor) -> Tensor:
        return x + 1

    return does(body, seen=seen, child=Does(inner))


@case
def under_a_tracer_of_python() -> Case:
    seen: list[Any] = []

    def body(self: Any, x: Tensor) -> Tensor:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code is inner.__code__:
                seen.append((event, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return self.child(x)
        finally:
            sys.settrace(before)

    def inner(self: Any, x: Tensor) -> Tensor:
        x = x + 1
        return x * 2

    return does(body, seen=seen, child=Does(inner))


@case
def called_from_c() -> Case:
    def body(self: Any, x: Tensor) -> Tensor:
        parts = [*map(self.child, [x, x + 1]), functools.partial(self.child)(x), functools.reduce(self.pair, [x, x, x])]
        return max(parts, key=lambda part: float(self.child(part).sum()))

    return does(body, child=layers(), pair=Does(lambda self, a, b: a + b))


@pytest.mark.parametrize("graph", [True, False], ids=["with a graph", "without a graph"])
@pytest.mark.parametrize("name", CASES)
def test_the_trace_is_pythons(name: str, graph: bool, build: ModuleType) -> None:
    assert_same_both_ways(CASES[name], build, graph=graph)


def test_recordings_that_end_in_any_order_record_the_same_both_ways(build: ModuleType, tmp_path: Path) -> None:
    def make() -> Case:
        seen: list[Any] = []

        def body(self: Any, x: Tensor) -> Tensor:
            with fxdebug.model_addition_debugger_context(self.child, tmp_path) as inner:
                x = self.child(x)
            seen.append(inner is None)
            return self.child(x)

        return does(body, seen=seen, child=layers())

    assert_same_both_ways(make, build)
