"""One module body, traced symbolically along the tape of what it really did.

The body's Python runs again with stand-ins for tensors and nothing is computed: each torch function
it calls must be the next one on the tape, with the same producers, constants and grad state; its
result is then a stand-in with the metadata the tape has. A child module is a leaf: it returns the
stand-ins of what it returned. The outcome is a :class:`~fxdebug.capture.graphs.template.GraphTemplate`, of which
:meth:`ModuleTracer.graph` makes a ``torch.fx.Graph``.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs import symbolic_size
from fxdebug.capture.graphs.placeholder_tensor import Guide, NothingWritten, PlaceholderTensor
from fxdebug.capture.graphs.symbolic_size import Shape, Size, plain
from fxdebug.capture.graphs.template import (
    Attribute,
    GraphTemplate,
    Guard,
    Node,
    OpaqueSlot,
    Slot,
    argument_names,
    attribute_names,
    is_another_of,
    name_of,
    object_name,
    relative_paths,
    short,
)
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.replay.ambient_state import AmbientState
from fxdebug.capture.replay.rng import RngWatch
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import (
    ATOMS,
    Copies,
    OpaqueArg,
    Struct,
    again,
    have_same_keys,
    is_same,
    members_of,
    rebuilt,
    uids_in,
)
from fxdebug.capture.tape.op_traits import METADATA, NUMEL, UNANSWERABLE
from fxdebug.capture.tape.source_line import Line, begins, user_line
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import context_now, in_context
from fxdebug.data.values import UNKNOWN

_getter = {name: getattr(Tensor, name).__get__ for name in ("shape", "requires_grad", "ndim")}
_iterate = Tensor.__iter__


class ModuleTracer(fx.Tracer):
    """Traces the body of one call; use it once."""

    def __init__(self, body: CallTape, values: ValueTable, is_changed_for: Callable[[nn.Module], bool]) -> None:
        super().__init__(autowrap_modules=())  # none is to be wrapped: a look through math takes 0.1 ms
        self.ambient = AmbientState(is_changed_for)
        self._rng = RngWatch()
        self.body = body
        self.values = values
        self.pattern = GraphTemplate(args=(), kwargs={}, context=body.context, proven=True)
        self._position = 0
        self._standins: dict[TensorId, PlaceholderTensor] = {}
        self.made: list[weakref.ref[PlaceholderTensor]] = []
        self._real: dict[TensorId, Tensor] = {}
        self._facts = dict(body.before)  # uid → shape, dtype, requires_grad as they are now
        self._held: list[tuple[Any, Any]] = []  # (object in the trace, object on the tape), by number
        self._names = attribute_names(body.module)
        self._paths: dict[int, str] | None = None

    # The trace -----------------------------------------------------------------------------------

    @begins
    def pattern_of(self, forward: Callable[..., Any]) -> GraphTemplate:
        """Run ``forward`` along the tape. Raises :class:`Mismatch`, or whatever the body's Python raises."""
        body, pattern = self.body, self.pattern
        args, kwargs = self._arguments()
        pattern.args = self._template_of(body.args)
        pattern.kwargs = self._template_of(body.kwargs)
        pattern.inputs = pattern.slots
        pattern.names = argument_names(forward, body, pattern.inputs)
        before = symbolic_size.listen(self._asked)
        try:
            self._rng.check()  # a body may set the very seed that the run has left
            with in_context(body.context), Guide(self.operation), NothingWritten():
                self.ambient.begin()
                output = forward(*args, **kwargs)
            self._rng.check(reasons.SETS_RANDOM_STATE_LAST)
        finally:
            symbolic_size.listen(before)
            self._rng.restore()
        if self._position != len(body.entries):
            missing = name_of(body.entries[self._position].what)
            raise CannotTrace(reasons.ENDS_EARLY(operation=missing, reached=self._position, count=len(body.entries)))
        try:
            pattern.out = self._matched(output, body.out)
        except CannotTrace as error:
            if any(uid not in self._standins and uid not in self._real for uid in uids_in(body.out)):
                raise CannotTrace(reasons.GATHERED_PAST()) from None
            raise CannotTrace(reasons.RETURNS_OTHER(difference=error.reason)) from None
        pattern.held = len(self._held)
        return pattern

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call's arguments with stand-ins for tensors and copies of opaque objects as they were."""
        body = self.body
        if not body.opaque:
            return self._decoded(body.args), self._decoded(body.kwargs)
        if body.copies is None:
            raise CannotTrace(reasons.EARLIER_STATE_LOST())
        fresh = Copies(body.copies.copy)  # copied once more: the state that was kept must survive this trace
        originals = body.copies.originals()
        for copy, earlier in fresh.pairs.values():
            original = originals.get(id(earlier), earlier)
            if copy is not original and type(copy) not in (tuple, list, dict):
                self._held.append((copy, original))
        return self._decoded(body.args), self._decoded(body.kwargs)

    def line(self) -> Line | None:
        """Where in the user's source the trace has come to on the tape."""
        entries = self.body.entries
        return entries[min(self._position, len(entries)) - 1].line if entries and self._position else None

    def knows(self, module: nn.Module) -> bool:
        """Was this module called in the body, registered or not, or one just like it made there?"""
        return any(entry.what is module or is_another_of(module, entry.what) for entry in self.body.entries)

    def forget(self) -> None:
        """Let go of all stand-ins."""
        self._standins.clear()
        self._real.clear()
        self._held.clear()

    def operation(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The body calls a torch function: it must be the next entry; its recorded result is the answer."""
        if function in UNANSWERABLE and args and type(args[0]) is PlaceholderTensor:
            attribute = getattr(function, "__self__", None)  # a getter is its method
            raise CannotTrace(reasons.ASKS_FOR(attribute=getattr(attribute, "__name__", function.__name__)))
        if function in METADATA:
            return self._metadata(function, args, kwargs)
        self._rng.check()
        self.ambient.check_operation(function)
        entry = self._next(function)
        if type(entry.what) is not type(function) or entry.what != function:
            raise CannotTrace(reasons.CALLS_OTHER(now=name_of(function), then=name_of(entry.what)))
        templates = self._call_templates(entry, args, kwargs)
        if entry.changed is not None:
            uid, shape, dtype, gradient = entry.changed
            known = self._facts.get(TensorId(uid))
            if known is None or known[0] != shape or known[1] != dtype:
                raise CannotTrace(reasons.CHANGES_SHAPE(operation=name_of(function)))
            self._facts[TensorId(uid)] = (shape, dtype, gradient)
            if TensorId(uid) in self._standins:
                self._standins[TensorId(uid)].gradient = gradient
        result = self._result(entry)
        self._add(function, None, templates, entry)
        if not any(True for _ in uids_in(entry.out)):
            return self._answer(function, entry, result)
        return iter(result) if function is _iterate else result

    def child(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The body calls a module: it must be the next entry; it returns the stand-ins of what it returned."""
        with internals.DisableTorchFunction():  # a module's call is no torch function: the guide is on here
            return self._child(module, args, kwargs)

    def _child(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry = self._next(module)
        if entry.what is not module and not is_another_of(module, entry.what):
            raise CannotTrace(reasons.CALLS_OTHER(now=name_of(module), then=name_of(entry.what)))
        self._rng.check()
        self.ambient.check_call(entry.what)
        templates = self._call_templates(entry, args, kwargs)
        result = self._result(entry)
        if self._paths is None:
            self._paths = relative_paths(self.body.module)
        path = self._paths.get(id(entry.what))
        if path is None:
            self.pattern.reusable = False
        self._add(None, entry.what if path is None else path, templates, entry)
        return result

    def _next(self, what: Any) -> TapeEntry:
        if self._position >= len(self.body.entries):
            raise CannotTrace(reasons.RUNS_ON(operation=name_of(what)))
        self._position += 1
        return self.body.entries[self._position - 1]

    def _call_templates(
        self, entry: TapeEntry, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if context_now() != entry.context:
            raise CannotTrace(reasons.OTHER_CONTEXT(operation=name_of(entry.what)))
        if len(args) != len(entry.args) or kwargs.keys() != entry.kwargs.keys():
            raise CannotTrace(reasons.OTHER_ARGUMENTS(operation=name_of(entry.what)))
        try:
            return (
                tuple([self._matched(x, y) for x, y in zip(args, entry.args)]),
                {name: self._matched(x, entry.kwargs[name]) for name, x in kwargs.items()},
            )
        except CannotTrace as error:
            raise CannotTrace(reasons.IN_OPERATION(difference=error.reason, operation=name_of(entry.what))) from None

    def _result(self, entry: TapeEntry) -> Any:
        for uid in uids_in(entry.out):
            if uid not in self._facts:
                first = self.values.first_values[uid]
                self._facts[uid] = (first.shape, getattr(torch, first.dtype), first.requires_grad)
        return self._decoded(entry.out)

    def _add(self, function: Any, module: str | nn.Module | None, templates: Any, entry: TapeEntry) -> None:
        args, kwargs = templates
        out = self._template_of(entry.out)
        self.pattern.nodes.append(Node(function, module, args, kwargs, out, entry.context, entry.line))

    # Questions -----------------------------------------------------------------------------------

    def _metadata(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = args[0] if args else None
        if type(asked) is not PlaceholderTensor:
            return function(*args, **kwargs)
        shape = self._facts[asked.uid][0]
        if function == _getter["shape"] or function is Tensor.size:
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            if dim is None:
                return Shape([Size(size, ("size", asked.slot, i)) for i, size in enumerate(shape)])
            dim = plain(dim) % len(shape)
            return Size(shape[dim], ("size", asked.slot, dim))
        if function in NUMEL:
            return Size(torch.Size(shape).numel(), ("numel", asked.slot))
        if function is Tensor.__len__:
            return Size(shape[0], ("size", asked.slot, 0))
        if function == _getter["requires_grad"]:
            self._guard(reasons.GRADIENT_ASKED(), asked.gradient, None)
            return asked.gradient
        return function(*args, **kwargs)

    def _answer(self, function: Callable[..., Any], entry: TapeEntry, result: Any) -> Any:
        """A question about values (``bool``, ``item``, ``tolist``): the answer is an assumption from now on."""
        index = len(self.pattern.nodes) - 1
        if type(result) in (bool, int, float, complex, str, list):
            self._guard(reasons.VALUE_ASKED(function=name_of(function).strip("_")), result, index)
        if type(result) is int and function is Tensor.item:
            return Size(result, ("node", index))
        return iter(result) if function is _iterate else result

    def _asked(self, what: str, answer: Any) -> None:
        self._guard(what, answer, None)

    def _guard(self, what: str, answer: Any, node: int | None) -> None:
        line = user_line(sys._getframe(2), {}) or self.body.line
        text = repr(answer)
        guard = Guard(what, text if len(text) < 60 else text[:57] + "…", None if line is None else line.text(), node)
        if guard not in self.pattern.guards:
            self.pattern.guards.append(guard)

    # Codes ↔ what the body's Python sees ↔ templates ---------------------------------------------

    def _decoded(self, code: Any) -> Any:
        """What the body is given for a code."""
        return rebuilt(code, self._given, Struct.build)

    def _given(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            return self._tensor(code)
        if kind is OpaqueArg:
            for mine, recorded in self._held:
                if recorded is code.thing:
                    return mine
            self._held.append((code.thing, code.thing))  # made by a child: handed on as it is
            return code.thing
        return code

    def _tensor(self, uid: TensorId) -> Tensor:
        known = self._standins.get(uid)
        if known is not None:
            return known
        if uid in self._real:
            return self._real[uid]
        first = self.values.first_values[uid]
        shape, dtype, gradient = self._facts.get(uid) or (first.shape, getattr(torch, first.dtype), first.requires_grad)
        if (first.detail or "").startswith("inside"):
            raise CannotTrace(reasons.INSIDE_TRANSFORM())
        if first.layout != "strided" or (first.detail or "").startswith(("nested", "quantised")):
            kind = first.layout if first.detail is None else first.detail.split()[0].strip(":,")
            raise CannotTrace(reasons.NO_SYMBOL_FOR_KIND(kind=kind))
        if UNKNOWN in shape:
            raise CannotTrace(reasons.NO_SYMBOL_FOR_SIZE())
        if first.sharding is not None:
            shape = first.sharding.shape
            self._facts[uid] = (shape, dtype, gradient)
        stride = first.stride if shape == first.shape else None
        standin = PlaceholderTensor(uid, self.pattern.slots, shape, stride, dtype, torch.device(first.device), gradient)
        self.pattern.slots += 1
        self._standins[uid] = standin
        self.made.append(weakref.ref(standin))
        return standin

    def _template_of(self, code: Any) -> Any:
        """The template for a code that has been decoded."""
        return rebuilt(code, self._in_template)

    def _in_template(self, code: Any) -> Any:
        kind = type(code)
        if kind is TensorId:
            return Slot(self._standins[code].slot) if code in self._standins else self._attribute(self._real[code])
        if kind is OpaqueArg:
            for number, (_, recorded) in enumerate(self._held):
                if recorded is code.thing:
                    return OpaqueSlot(number, type(recorded))
            self._held.append((code.thing, code.thing))
            return OpaqueSlot(len(self._held) - 1, type(code.thing))
        return code

    def _matched(self, thing: Any, code: Any) -> Any:
        """The template for ``thing``, which must be what the tape has as ``code``."""
        kind = type(thing)
        if kind is PlaceholderTensor:
            standin = self._standins.get(code) if type(code) is TensorId else None
            if standin is None or standin is not thing or standin.uid != code:
                raise CannotTrace(reasons.OTHER_TENSOR())
            return Slot(standin.slot)
        if kind is Size:
            if type(code) is not int or plain(thing) != code:
                raise CannotTrace(reasons.OTHER_SIZE(now=plain(thing), then=repr(code)))
            return thing
        if kind in ATOMS:
            if type(code) is kind and (code is thing or is_same(code, thing)):
                return thing
            raise CannotTrace(reasons.OTHER_CONSTANT(now=short(thing), then=short(code)))
        if isinstance(thing, Tensor):
            return self._real_tensor(thing, code)
        if kind is Shape or kind is torch.Size or (kind is tuple and type(code) is Struct and code.type is torch.Size):
            return self._matched_sizes(thing, code)
        if kind is tuple or kind is list:
            if type(code) is not kind or len(code) != len(thing):
                raise CannotTrace(reasons.OTHER_LENGTH(kind=kind.__name__))
            return kind([self._matched(x, y) for x, y in zip(thing, code)])
        if kind is dict:
            if type(code) is not dict or not have_same_keys(thing, code):
                raise CannotTrace(reasons.OTHER_KEYS())
            return {key: self._matched(item, code[key]) for key, item in thing.items()}
        if kind is slice:
            if type(code) is not slice:
                raise CannotTrace(reasons.OTHER_KIND(kind="slice", then=short(code)))
            return slice(*(self._matched(getattr(thing, n), getattr(code, n)) for n in ("start", "stop", "step")))
        if type(code) is Struct and code.type is kind:
            return self._matched_struct(thing, code)
        if type(code) is OpaqueArg:
            return self._matched_object(thing, code)
        if isinstance(thing, (int, float, complex, str)) and type(code) is kind and code == thing:
            return thing
        raise CannotTrace(reasons.OTHER_KIND(kind=kind.__name__, then=short(code)))

    def _matched_sizes(self, thing: Any, code: Any) -> Any:
        """A ``torch.Size`` or a tuple, whichever ran: what Python makes of a shape is not always another shape."""
        if type(code) is Struct and code.type is torch.Size:
            return again(code, list(self._matched(tuple(thing), tuple(code.items))))
        return self._matched(tuple(thing), code)

    def _matched_struct(self, thing: Any, code: Struct) -> Struct:
        members = members_of(thing)
        if members is None or members[0] != code.keys or len(members[1]) != len(code.items):
            raise CannotTrace(reasons.OTHER_FIELDS(kind=code.type.__name__))
        return again(code, [self._matched(x, y) for x, y in zip(members[1], code.items)])

    def _matched_object(self, thing: Any, code: OpaqueArg) -> OpaqueSlot | Attribute:
        if thing is code.thing:
            name = object_name(self.body.module, thing)
            if name is not None:
                return Attribute(name, None)
        for number, (mine, recorded) in enumerate(self._held):
            if mine is thing:
                if recorded is not code.thing:
                    raise CannotTrace(reasons.OTHER_OBJECT(kind=type(thing).__name__))
                return OpaqueSlot(number, type(thing))
        if thing is not code.thing and (
            type(thing) is not type(code.thing) or any(recorded is code.thing for _, recorded in self._held)
        ):
            raise CannotTrace(reasons.OTHER_OBJECT(kind=type(thing).__name__))
        self._held.append((thing, code.thing))
        return OpaqueSlot(len(self._held) - 1, type(thing))

    def _real_tensor(self, tensor: Tensor, code: Any) -> Attribute:
        entry = self.values.lookup(tensor)
        if entry is None or type(code) is not TensorId or entry.tensor_id != code:
            if type(code) is TensorId and (self.values.first_values[code].detail or "").startswith("inside"):
                raise CannotTrace(reasons.INSIDE_TRANSFORM())
            name = None if entry is None else self._names.get(id(tensor)) or object_name(self.body.module, tensor)
            raise CannotTrace(reasons.NEW_TENSOR() if name is None else reasons.REPLACED_TENSOR(name=name))
        self._real[entry.tensor_id] = tensor
        return self._attribute(tensor)

    def _attribute(self, tensor: Tensor) -> Attribute:
        name = self._names.get(id(tensor))
        self.pattern.reusable &= name is not None
        return Attribute(name, None if name is not None else tensor)
