"""An independent judge of verified graphs: execute each one and compare its bits with the native run.

Children are answered from what they returned natively, and what they are asked with is compared too.
Nothing of this is part of the product: it keeps copies of every tensor a call was given and returned.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves

from fxdebug.capture.graphs.to_fx import Absent, FxBuild
from fxdebug.capture.graphs.verify import VerifiedCall
from fxdebug.capture.recorder import recorder
from fxdebug.capture.runnable_graphs.execute import Executor
from fxdebug.capture.tape import run_taped as taped
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.changed_arguments import ResultAndChanges, argument_at, set_members
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.torch_state.grad_mode import in_context
from fxdebug.capture.torch_state.untracked import untracked
from support.same import bits, difference


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Torch's, but a ``torch.Size`` stays one: torch makes a tuple of it, and a graph is right to refuse that."""
    return pytree.tree_map(function, tree, is_leaf=lambda item: isinstance(item, torch.Size))


class Kept:
    """What a call was given and returned, as it was at those moments, and the random state around it."""

    def __init__(self, args: Any, kwargs: Any, module: torch.nn.Module) -> None:
        self.given = (args, kwargs)
        self.passed = tree_map(lambda leaf: leaf, (args, kwargs))  # containers of its own: the body may change those
        leaves = [t for t in _leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        self.versions = [(t, _version(t), _copied(t)) for t in leaves]
        self.buffers = [(b, _version(b), b.clone()) for b in (*module.buffers(), *module.parameters()) if _is_dense(b)]
        # inside torch.vmap: what it was given exists there only, and nothing can be executed on it afterwards
        self.in_vmap = any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in leaves)
        self.inside: dict[int, tuple[torch.Tensor, int | None, torch.Tensor]] = {}  # tensors that objects hold
        self.objects = {id(x): (x, _twin(x, self._noted)) for x in _leaves((args, kwargs)) if _is_object(x)}
        self.random = torch.get_rng_state()
        self.after: Any = None
        self.output: Any = None
        self.mutated = self.changes_objects = False
        self.twins: dict[int, Any] = {}

    def _noted(self, tensor: torch.Tensor) -> torch.Tensor:
        self.inside[id(tensor)] = tensor, _version(tensor), _copied(tensor)
        return tensor

    def finish(self, output: Any) -> None:
        self.mutated = any(version is not None and _version(t) != version for t, version, _ in self.versions)
        self.mutated |= list(map(id, _leaves(self.given))) != list(map(id, _leaves(self.passed)))
        self.objects_left = {id(x): _twin(x, _copied) for x, _ in self.objects.values()}
        self.changes_objects = any(difference(x, twin) is not None for x, twin in self.objects.values())
        self.changes_objects |= any(v is not None and _version(t) != v for t, v, _ in self.inside.values())
        self.left = tree_map(_copied, self.given) if self.mutated or self.changes_objects else self.given
        self.output = _in_order(tree_map(_copied, output), output) if _leaves(output) else output
        self.returned = {id(x): (x, _twin(x, _copied)) for x in _leaves(output) if _has_parts(x)}
        self.after = torch.get_rng_state()

    def inputs(self) -> tuple[Any, Any]:
        """The arguments as they were: copies stand in for tensors that were written to since."""
        changed = {
            id(t): _copied(copy) if t.is_leaf else _answered(copy)
            for t, version, copy in self.versions
            if version is None or _version(t) != version
        }
        written = any(version is None or _version(t) != version for t, version, _ in self.inside.values())

        def as_it_was(t: torch.Tensor) -> torch.Tensor:
            _, version, copy = self.inside[id(t)]
            if version is not None and _version(t) == version:
                return t
            return changed.setdefault(id(t), _copied(copy))  # type: ignore[no-any-return]

        self.twins = {
            id(x): _twin(twin, as_it_was)
            for x, twin in self.objects.values()
            if written or difference(x, twin) is not None
        }  # of those that were changed since
        changed.update(self.twins)
        return tree_map(lambda x: changed.get(id(x), x), self.passed)

    def problem_with_objects(self) -> str | None:
        """How what the last ``inputs()`` hold by now differs from what the call left in them."""
        left = ((twin, self.objects_left[number]) for number, twin in self.twins.items())
        return next((found for a, b in left if (found := differs(a, b, "what it leaves in an object"))), None)

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """Parameters, buffers and random numbers as they were when the call began; afterwards as they are now."""
        state = torch.get_rng_state(), random.getstate()
        changed = [(b, copy, b.clone()) for b, version, copy in self.buffers if _version(b) != version]
        try:
            with torch.no_grad():
                for buffer, copy, _ in changed:
                    buffer.copy_(copy)
            torch.set_rng_state(self.random)
            yield
        finally:
            torch.set_rng_state(state[0])
            random.setstate(state[1])
            with torch.no_grad():
                for buffer, _, now in changed:
                    buffer.copy_(now)


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _is_dense(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


def _leaves(thing: Any) -> list[Any]:
    try:
        return tree_leaves(thing)
    except RecursionError:
        return []


def _copied(x: Any) -> Any:
    """A copy that keeps strides, so that the last bit of what is computed from it stays."""
    if not isinstance(x, torch.Tensor):
        return _copied_dataclass(x) if dataclasses.is_dataclass(x) and not isinstance(x, type) else x
    if torch._C._functorch.is_functorch_wrapped_tensor(x) or x.is_meta:
        return x
    if x.layout is not torch.strided or x.is_nested or x.is_quantized or 0 in x.stride():
        return x.detach().clone().requires_grad_(x.requires_grad) if x.is_floating_point() else x.clone()
    copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    copy.copy_(x.detach())
    return copy.requires_grad_(x.requires_grad) if x.is_floating_point() or x.is_complex() else copy


def _copied_dataclass(x: Any) -> Any:
    """A copy of an object whose fields the caller may set."""
    twin = copy.copy(x)
    for name, member in getattr(twin, "__dict__", {}).items():
        twin.__dict__[name] = tree_map(_copied, member)
    return twin


def _same(x: Any) -> Any:
    return x


def _has_parts(x: Any) -> bool:
    """Is it an object of a class written in Python, which is no part of the program itself, and no dataclass?"""
    return _is_object(x) and not dataclasses.is_dataclass(x)


def _is_object(x: Any) -> bool:
    lasting = (torch.nn.Module, torch.Tensor, type, types.FunctionType, types.MethodType, dict)
    return hasattr(x, "__dict__") and not isinstance(x, lasting)


def _twin(x: Any, tensor: Callable[[Any], Any], made: dict[int, Any] | None = None) -> Any:
    """What an object holds now, in objects and containers of its own; ``tensor`` makes the tensors in it."""
    made = {} if made is None else made
    if id(x) in made:
        return made[id(x)]
    if isinstance(x, torch.Tensor):
        return tensor(x)
    if type(x) in (list, tuple):
        return type(x)(_twin(item, tensor, made) for item in x)
    if type(x) is dict:
        return {key: _twin(item, tensor, made) for key, item in x.items()}
    if not _is_object(x):
        return x
    try:
        twin = made[id(x)] = object.__new__(type(x))
    except TypeError:
        return x
    twin.__dict__.update({name: _twin(item, tensor, made) for name, item in vars(x).items()})
    return twin


def _in_order(copy: Any, thing: Any) -> Any:
    """A copy with the keys of its dicts in the order they had: torch has a ``ModelOutput`` made by its class."""
    if isinstance(thing, dict):
        if isinstance(copy, OrderedDict):
            for key in thing:
                OrderedDict.move_to_end(copy, key)
        for key, item in thing.items():
            _in_order(copy[key], item)
    elif isinstance(thing, (tuple, list)):
        for part, item in zip(copy, thing):
            _in_order(part, item)
    return copy


@contextlib.contextmanager
def keeping() -> Iterator[dict[int, Kept]]:
    """A block in which every call that is recorded keeps what it was given and returned, by its index."""
    kept: dict[int, Kept] = {}
    original = recorder.run_taped

    def run(tape: Tape, body: CallTape, args: Any, kwargs: Any, line: Any = None) -> Any:
        with untracked():
            record = kept[body.index] = Kept(args, kwargs, body.module)
        output = original(tape, body, args, kwargs, line)
        with untracked():
            record.finish(output)
        return output

    with (
        mock.patch.object(recorder, "run_taped", run),
        mock.patch.object(taped, "run_taped", run),
        mock.patch.object(taped, "_compares_attributes", lambda kind: None),  # else the native core runs usual calls
    ):
        yield kept


class Wrong(Exception):
    """An executed graph is not what ran."""


def executed(explained: VerifiedCall, kept: dict[int, Kept], built: FxBuild | None = None) -> Any:
    """Run a verified graph on its call's inputs, children answered from ``kept``; its output."""
    assert explained.template is not None
    built = built or FxBuild(explained.template)
    body = explained.tape
    record = kept[body.index]
    children = iter([entry.tape for entry in body.entries if entry.tape is not None])
    # gradients inside the body go through its children: these run for real
    differentiates = any(getattr(entry.what, "__name__", "") in ("grad", "backward") for entry in body.entries)

    def child(module: Any, args: Any, kwargs: Any) -> Any:
        called = next(children)
        if called.module is not module:
            raise Wrong(f"calls {type(module).__name__}, {type(called.module).__name__} ran")
        answer = kept[called.index]
        if not torch.equal(torch.get_rng_state(), answer.random):
            raise Wrong(f"{type(module).__name__} is called with another random state")
        problem = differs((args, kwargs), answer.inputs())
        if problem:
            raise Wrong(f"{type(module).__name__} is given something else: {problem}")
        is_given_all = not any(isinstance(x, Absent) for x in _leaves((args, kwargs)))
        if answer.mutated or differentiates or (answer.changes_objects and is_given_all):
            return called.forward(*args, **kwargs)
        torch.set_rng_state(answer.after)
        returned = as_returned(answer)
        return _in_order(tree_map(_answered, returned), returned)

    args, kwargs = record.inputs()
    slots: dict[Any, Any] = {}
    _bind(explained.template.args, args, slots)
    _bind(explained.template.kwargs, kwargs, slots)
    given_objects = {key[1]: x for key, x in slots.items() if type(key) is tuple and key[0] == "object"}
    objects = {**explained.objects, **given_objects}
    with record.as_it_was():
        with in_context(body.context):
            given = [slots[i] for i in range(explained.template.inputs)]
            given += [slots["given", i] for i in range(len(explained.template.size_names))]
            output = Executor(built, body.module, child, objects).run(*given)
        if next(children, None) is not None:
            raise Wrong("calls fewer children")
        if not torch.equal(torch.get_rng_state(), record.after):
            raise Wrong("leaves another random state")
        if any(number in objects for number in given_objects):  # else it is not run on them
            for thing, members in output.objects if type(output) is ResultAndChanges else ():
                set_members(thing, members)
            problem = record.problem_with_objects()
            if problem:
                raise Wrong(problem)
        return output


def problem_with(explained: VerifiedCall, kept: dict[int, Kept]) -> str | None:
    """How the executed graph differs from the native run, or ``None``: the audit of one verified call."""
    try:
        output = executed(explained, kept)
    except Wrong as error:
        return str(error)
    record = kept[explained.tape.index]
    if type(output) is not ResultAndChanges:
        return differs(output, as_returned(record))
    args, kwargs = record.left
    left = {place: argument_at(place, args, kwargs) for place in output.changed}
    return differs(output.result, as_returned(record)) or differs(
        output.changed, left, "what it leaves in its arguments"
    )


def as_returned(record: Kept) -> Any:
    """What a call returned, with its objects as they were then."""
    twins = {id(x): twin for x, twin in record.returned.values() if difference(x, twin) is not None}
    return tree_map(lambda x: twins.get(id(x), x), record.output) if twins else record.output


def _answered(x: Any) -> Any:
    """A child's recorded output, again a tensor that is no leaf where it was none."""
    if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
        return x.clone() if x.layout is not torch.strided or x.is_contiguous() else x * 1
    return _copied(x)


def _bind(template: Any, thing: Any, slots: dict[Any, Any]) -> None:
    """Bind what can be bound; opaque objects are passed over."""
    from fxdebug.capture.graphs.symbolic_size import Size
    from fxdebug.capture.graphs.template import OpaqueSlot, Slot
    from fxdebug.capture.tape.encoding import Struct, members_of

    if type(template) is Slot:
        slots.setdefault(template.number, thing)
    elif type(template) is Size:
        slots[template.expression] = thing
    elif type(template) in (tuple, list):
        for x, y in zip(template, thing):
            _bind(x, y, slots)
    elif type(template) is dict:
        for key, item in template.items():
            _bind(item, thing[key], slots)
    elif type(template) is Struct:
        for x, y in zip(template.items, members_of(thing)[1]):
            _bind(x, y, slots)
    elif type(template) is OpaqueSlot and template.contents is not None:
        slots["object", template.number] = thing
        for name, x in zip(template.contents.keys or (), template.contents.items):
            _bind(x, getattr(thing, name), slots)


def differs(a: Any, b: Any, at: str = "") -> str | None:
    """Like ``same.difference``, where an absent object stands for any, and strides do not matter."""
    if isinstance(a, Absent):
        return None
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.is_nested or a.layout is not torch.strided:
            return difference(a.detach(), b.detach(), at)
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            return (
                f"{at}: {a.dtype}{tuple(a.shape)} grad={a.requires_grad}, {b.dtype}{tuple(b.shape)} {b.requires_grad}"
            )
        if not a.is_quantized and not a.is_meta:
            return None if bits(a) == bits(b) else f"{at}: bits"
        return difference(a, b, at)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            return f"{at}: lengths"
        return next((d for i, (x, y) in enumerate(zip(a, b)) if (d := differs(x, y, f"{at}[{i}]"))), None)
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return f"{at}: keys"
        return next((d for k in a if (d := differs(a[k], b[k], f"{at}[{k!r}]"))), None)
    if hasattr(a, "__dataclass_fields__") or (a is not b and _has_parts(a)):
        return differs(vars(a), vars(b), at) if type(a) is type(b) else f"{at}: types"
    return None if a is b else difference(a, b, at)


__all__ = ["Wrong", "as_returned", "differs", "executed", "keeping", "problem_with"]
