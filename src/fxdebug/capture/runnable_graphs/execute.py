"""Execute a verified graph and check its guards on the way.

Children are called for real, or answered by the caller (from the records of a run, say).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxdebug.capture import reasons
from fxdebug.capture.graphs.grad_and_autocast import closed
from fxdebug.capture.graphs.names import member
from fxdebug.capture.graphs.symbolic_size import GIVEN, is_given
from fxdebug.capture.graphs.template import Attribute, GraphTemplate, OpaqueSlot, Slot
from fxdebug.capture.graphs.to_fx import Absent, FxBuild
from fxdebug.capture.hooks.patch import OwnAttribute
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.tape.encoding import Struct, have_same_keys, is_same, members_of, state_of
from fxdebug.errors import with_article


class GuardFailed(Exception):
    """The refusal to run a graph; ``reason`` says which assumption does not hold, or what is missing."""

    def __init__(self, reason: ReasonText) -> None:
        super().__init__(reason)
        self.reason = reason


class Executor(fx.Interpreter):
    """Runs a verified graph for the module it belongs to, and checks its guards on the way.

    ``child`` answers ``call_module`` nodes: ``(module, args, kwargs) → result``; by default its ``forward`` is called.
    ``objects`` are those that the graph may work on, by their number in the template.
    """

    def __init__(
        self,
        build: FxBuild,
        module: nn.Module,
        child: Callable[..., Any] | None = None,
        objects: Mapping[int, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(nn.Module(), graph=build.graph)
        self.extra_traceback = False  # torch would add lines about itself to what is raised
        self._build = build
        self._module = module
        self._child = child
        self._objects = objects
        self._set: list[OwnAttribute] = []  # attributes of modules that the graph has set
        self._guards = {guard.entry: guard for guard in build.template.guards if guard.entry is not None}
        self._expected = {index: build.template.entries[index].out for index in self._guards}

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[Any, Any]:
        """Return arguments in Python's own containers: a child may write to them, but not to those of torch.fx."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return _mutable(args), {name: _mutable(arg) for name, arg in kwargs.items()}

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return a parameter, a buffer, or another object that the graph names."""
        constant = self._build.constants.get(target)
        if type(constant) is Absent:
            return self._objects.get(constant.number, constant)
        return constant if constant is not None else member(self._module, str(target))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a function; an attribute of a module is set until the graph has run."""
        if target is setattr and isinstance(args[0], nn.Module):
            module, name, tensor = args
            patch = OwnAttribute("<module>.<attribute>", vars(module), name, tensor)
            self._set.append(patch)
            patch.put()
            return None
        return super().call_function(target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a child, or have it answered."""
        constant = self._build.constants.get(target)
        module = constant if constant is not None else member(self._module, str(target))
        if self._child is not None:
            return self._child(module, args, kwargs)
        # not the module: operations of its hooks and __call__ are in this graph, but those that were compiled with it
        run = module.__dict__.get("_compiled_call_impl") or module.forward
        return run(*args, **kwargs)

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the graph; no block that it entered is left open, and no attribute that it set is left changed."""
        count = self._build.template.inputs
        try:
            with closed():
                return super().run(*[args[slot] for slot in self._build.inputs], *args[count:], **options)
        finally:
            while self._set:
                self._set[-1].restore()
                self._set.pop()

    def run_node(self, n: fx.Node) -> Any:
        """Run a node. Raises :class:`GuardFailed` if the graph assumes a value for it and another comes out."""
        if self._build.object_of.get(n) in self._objects:
            return self._objects[self._build.object_of[n]]  # it was given
        result = super().run_node(n)
        index = self._build.entry_of.get(n)
        if index in self._guards:
            expected = self._expected[index]
            if type(result) is not type(expected) or not is_same(result, expected):
                guard = self._guards[index]
                raise GuardFailed(reasons.OTHER_ANSWER(assumption=guard, answer=repr(result)))
        return result


def _mutable(argument: Any) -> Any:
    kind = type(argument)  # containers of the program's own classes are passed as they are
    if kind is immutable_dict:
        return {key: _mutable(item) for key, item in argument.items()}
    if kind is immutable_list:
        return [_mutable(item) for item in argument]
    return tuple([_mutable(item) for item in argument]) if kind is tuple else argument


def inputs_of(template: GraphTemplate, args: Any, kwargs: Any, objects: dict[int, Any]) -> list[Any]:
    """Return the arguments that a graph is run on: the tensors by slot, then the integers that are sizes.

    ``objects`` get the objects among the arguments, by number. Raises :class:`GuardFailed` if they do not fit.
    """
    bound: dict[Any, Any] = {}
    bind_arguments(template.args, args, bound, objects)
    bind_arguments(template.kwargs, kwargs, bound, objects)
    sizes = [bound[GIVEN, number] for number in range(len(template.size_names))]
    return [*[bound[slot] for slot in range(template.inputs)], *sizes]


def bind_arguments(template: Any, argument: Any, into: dict[Any, Any], objects: dict[int, Any]) -> None:
    """Put the tensors of an argument into ``into``, by slot, and its sizes, by expression.

    Raises :class:`GuardFailed` if it does not fit.

    ``objects`` are those that the graph may work on: each must be passed again. An object whose contents are in the
    template is added to them.
    """
    kind = type(template)
    if kind is Slot:
        if not isinstance(argument, Tensor):
            raise GuardFailed(reasons.TENSOR_EXPECTED(given=type(argument).__name__))
        if into.setdefault(template.number, argument) is not argument:
            raise GuardFailed(reasons.SAME_TENSOR_EXPECTED())
    elif kind in (tuple, list):
        if type(argument) is not kind and (kind is list or type(argument) is not torch.Size):
            raise GuardFailed(reasons.KIND_EXPECTED(kind=kind.__name__, given=type(argument).__name__))
        if len(argument) != len(template):
            raise GuardFailed(reasons.ITEMS_EXPECTED(count=len(template), given=len(argument)))
        for x, y in zip(template, argument):
            bind_arguments(x, y, into, objects)
    elif kind is dict:
        if type(argument) is not dict or not have_same_keys(argument, template):
            raise GuardFailed(reasons.KEYWORDS_EXPECTED(names=", ".join(map(str, template)) or "none"))
        for key, item in template.items():
            bind_arguments(item, argument[key], into, objects)
    elif kind is Struct:
        members = members_of(argument) if type(argument) is template.type else None
        if members is None or members[0] != template.keys or len(members[1]) != len(template.items):
            raise GuardFailed(reasons.FIELDS_EXPECTED(kind=template.type.__name__))
        for x, y in zip(template.items, members[1]):
            bind_arguments(x, y, into, objects)
    elif is_given(template):
        if type(argument) is not int:
            raise GuardFailed(reasons.KIND_EXPECTED(kind="whole number", given=type(argument).__name__))
        into[template.expression] = argument
    elif kind is OpaqueSlot and template.contents is not None:
        held = state_of(argument) if type(argument) is template.type else None
        if held is None or tuple(held) != template.contents.keys:
            raise GuardFailed(reasons.FIELDS_EXPECTED(kind=template.type.__name__))
        if objects.setdefault(template.number, argument) is not argument:
            raise GuardFailed(reasons.SAME_OBJECT_EXPECTED(kind=template.type.__name__))
        for x, y in zip(template.contents.items, held.values()):
            bind_arguments(x, y, into, objects)
    elif kind is OpaqueSlot:
        if template.number not in objects:
            raise GuardFailed(reasons.WORKS_ON(kinds=with_article(template.type.__name__)))
        if argument is not objects[template.number]:
            raise GuardFailed(reasons.SAME_OBJECT_EXPECTED(kind=template.type.__name__))
    elif kind is not Attribute and (type(argument) is not kind or not is_same(argument, template)):
        raise GuardFailed(reasons.HOLDS_FOR(expected=repr(template), given=repr(argument)))
