"""Symbolic trace of one module body, made along the tape of its run.

The body's Python runs again with placeholders for tensors, and nothing is computed. Each torch function that it calls
must be the next one on the tape, with the same producers, constants and grad state; its result is then a placeholder
with the metadata on the tape. A child module is a leaf: its call returns placeholders for its recorded results. The
outcome is a :class:`~fxdebug.capture.graphs.template.GraphTemplate`, from which
:class:`~fxdebug.capture.graphs.to_fx.FxBuild` makes a ``torch.fx.Graph``.
"""

from __future__ import annotations

import math
import operator
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs import symbolic_size
from fxdebug.capture.graphs.match_arguments import ArgumentMatcher
from fxdebug.capture.graphs.names import argument_names, operation_name, relative_paths, size_names
from fxdebug.capture.graphs.placeholder_tensor import (
    NoWritesMode,
    PlaceholderTensor,
    TracingMode,
    lengths_are_sizes,
)
from fxdebug.capture.graphs.symbolic_size import Shape, Size, plain
from fxdebug.capture.graphs.template import GraphTemplate, HandedOver, Switched, TemplateGuard
from fxdebug.capture.hooks.calls_around import CallsAround
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.replay.ambient_state import AmbientState
from fxdebug.capture.replay.rng import RngWatch
from fxdebug.capture.replay.sandbox import Sandbox
from fxdebug.capture.replay.variables import PLAIN, Change, ClassAttribute, Item, in_force
from fxdebug.capture.source.source_line import Line, runs_user_code, user_line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.earlier_attributes import EarlierAttributes, RunStart
from fxdebug.capture.tape.encoding import tensor_ids_in
from fxdebug.capture.tape.made_modules import is_same_kind_of
from fxdebug.capture.tape.op_traits import LAYOUT, METADATA, NUMEL, UNANSWERABLE
from fxdebug.capture.tape.raised import Raised, like
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import context_now, in_context
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.errors import first_line

_getter = {name: getattr(Tensor, name).__get__ for name in ("shape", "requires_grad", "ndim", "_version")}
_OF_LAYOUT: dict[Any, Callable[[torch.layout], Any]] = {
    Tensor.layout.__get__: lambda layout: layout,  # type: ignore[attr-defined]
    Tensor.is_sparse.__get__: lambda layout: layout is torch.sparse_coo,  # type: ignore[attr-defined]
    Tensor.is_sparse_csr.__get__: lambda layout: layout is torch.sparse_csr,  # type: ignore[attr-defined]
}
_iterate = Tensor.__iter__
# Questions whose answer follows from shape and dtype, and from the device.
_OF_SHAPE: dict[Any, Callable[[tuple[int, ...], torch.dtype], Any]] = {
    **{
        getattr(Tensor, name).__get__: answer
        for name, answer in (
            ("shape", lambda shape, dtype: torch.Size(shape)),
            ("ndim", lambda shape, dtype: len(shape)),
            ("dtype", lambda shape, dtype: dtype),
            ("itemsize", lambda shape, dtype: dtype.itemsize),
            ("nbytes", lambda shape, dtype: dtype.itemsize * math.prod(shape)),
        )
    },
    **dict.fromkeys((Tensor.dim, Tensor.ndimension), lambda shape, dtype: len(shape)),
    **dict.fromkeys(NUMEL, lambda shape, dtype: math.prod(shape)),
    **dict.fromkeys((Tensor.is_floating_point, torch.is_floating_point), lambda shape, dtype: dtype.is_floating_point),
    **dict.fromkeys((Tensor.is_complex, torch.is_complex), lambda shape, dtype: dtype.is_complex),
    Tensor.element_size: lambda shape, dtype: dtype.itemsize,
    Tensor.__len__: lambda shape, dtype: shape[0],
}
_OF_DEVICE = frozenset(
    [getattr(Tensor, name).__get__ for name in ("device", "is_cuda", "is_cpu", "layout", "is_sparse", "is_meta")]
)
# What every tensor that requires no gradient answers.
_WITHOUT_GRADIENT = {
    getattr(Tensor, name).__get__: answer
    for name, answer in (("grad_fn", None), ("is_leaf", True), ("output_nr", 0), ("retains_grad", False))
}


class ModuleTracer(fx.Tracer):
    """Traces the body of one call; use it once.

    With ``sizes_as_keys``, a size is the same key as the integer. Without, a body finds nothing that was cached by
    size, so that what it computes from sizes stays symbolic; ``hashed_sizes`` says whether that made a difference.
    ``earlier`` are attributes that the call replaced, or the run: the trace begins with these.
    With ``fixed_sizes``, the body gets sizes as Python's own integers, as some code needs (``type(n) is int``): they
    are constants of the graph. ``met_sizes`` says whether the body asked for a size.
    ``in_surroundings``: it begins with what the caller had changed around the call.
    With ``objects_as_they_are``, it gets objects as they are now, not as its calls returned them.
    ``with_hooks``: hooks of the program's own run around the calls that the body makes.
    With ``one_name``, what an operation returns that it was given is the very object, as some code needs that compares
    tensors with ``is``: later uses are then taken from the last such operation.
    """

    def __init__(
        self,
        tape: CallTape,
        values: ValueTable,
        sandbox: Sandbox,
        *,
        sizes_as_keys: bool = False,
        fixed_sizes: bool = False,
        earlier: EarlierAttributes | RunStart | None = None,
        objects_as_they_are: bool = False,
        in_surroundings: bool = False,
        with_hooks: bool = False,
        one_name: bool = False,
    ) -> None:
        super().__init__(autowrap_modules=())  # none: the default searches ``math`` for functions, which takes 0.1 ms
        self.ambient = AmbientState(self._is_changed_for)
        self.hashed_sizes = False
        self.met_sizes = False
        self.with_hooks = with_hooks
        self._last_child: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = {}  # by id of a module
        self._sizes_as_keys = sizes_as_keys
        self._fixed_sizes = fixed_sizes
        self._one_name = one_name
        self._earlier = earlier
        self._in_surroundings = in_surroundings
        self._sandbox = sandbox
        self._handed_over: list[tuple[nn.Module, str]] = []  # attributes of modules that have a placeholder
        self._rng = RngWatch()
        self._tape = tape
        self._reshaped = _reshaped(tape, values)
        self._template = GraphTemplate(args=(), kwargs={}, context=tape.context)
        self._arguments = ArgumentMatcher(tape, values, self._template, objects_as_they_are, one_name)
        self._cursor = TapeCursor(tape)
        self._failing = 0  # how many calls are open that the trace follows until they raise
        self._outside: frozenset[TensorId] = frozenset()  # then: the tensors from before the first of them
        self._paths: dict[int, str] | None = None
        self._around = CallsAround([entry.what for entry in tape.entries if isinstance(entry.what, nn.Module)])

    # The trace -----------------------------------------------------------------------------------

    @runs_user_code
    def template_of(self, forward: Callable[..., Any]) -> GraphTemplate:
        """Run ``forward`` along the tape. Raises :class:`CannotTrace`, or whatever the body's Python raises."""
        tape, template, arguments = self._tape, self._template, self._arguments
        if tape.sizes_given:
            self.met_sizes = True
            template.given_sizes = frozenset() if self._fixed_sizes else tape.sizes_given
        args, kwargs = arguments.arguments()
        template.args, template.kwargs = arguments.templates_of_arguments()
        template.inputs = template.slots
        template.input_names = argument_names(forward, tape, template.inputs)
        if template.given_sizes:
            template.size_names = size_names(forward, tape, template.input_names)
        if self._earlier is not None:
            self._earlier.put_back(tape.module)
        before = symbolic_size.set_listener(self)
        try:
            self._rng.check()  # sets a seed first: a body may set the very one that the generator has now
            surroundings = tape.surroundings if self._in_surroundings else ()
            with (
                in_force(surroundings),
                lengths_are_sizes(forward, type(tape.module), self._sandbox.naming_len()),
                in_context(tape.context),
                TracingMode(self.operation),
                NoWritesMode(),
            ):
                self.ambient.begin()
                output = forward(*args, **kwargs)
            self._rng.check(reasons.SETS_RANDOM_STATE_LAST)
            self._put_back_handed_over()
        finally:
            symbolic_size.set_listener(before)
            self._rng.restore()
        self._cursor.check_end()
        try:
            template.out = arguments.matched_output(output, args, kwargs, tape.out)
        except CannotTrace as error:
            if not arguments.knows_all(tape.out):
                raise CannotTrace(reasons.GATHERED_PAST()) from None
            raise CannotTrace(reasons.RETURNS_OTHER(difference=error.reason)) from None
        template.opaque_slots = arguments.objects
        for index, entry in enumerate(tape.entries):
            if id(entry.what) in self._around.computing:
                template.forwards_only.add(index)
        if self._fixed_sizes:
            template.guards.append(TemplateGuard(reasons.SIZES_FIXED(), "as it was in this call", None))
        if self._one_name:
            template.guards.append(TemplateGuard(reasons.ONE_NAME(), "the last such operation", None))
        return template

    @property
    def placeholders(self) -> list[weakref.ref[PlaceholderTensor]]:
        """The placeholders that were made."""
        return self._arguments.placeholders

    def line(self) -> Line | None:
        """Return the line of the user's source that the trace has reached on the tape."""
        entries, position = self._cursor.tape.entries, self._cursor.position
        return entries[min(position, len(entries)) - 1].line if entries and position else None

    def knows(self, module: nn.Module) -> bool:
        """Did the body, when it ran, call this module (registered or not), or one just like it that it had made?"""
        tape = self._cursor.tape
        called = [entry.what for entry in tape.entries] + [each.what for each in tape.raised]
        return any(each is module or is_same_kind_of(module, each) for each in called)

    def forget(self) -> None:
        """Let go of all placeholders."""
        self._last_child.clear()
        self._arguments.forget()

    def operation(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a torch function that the body calls: it must be the next entry, and gets the recorded result."""
        if function in UNANSWERABLE and args and type(args[0]) is PlaceholderTensor:
            if not args[0].gradient and function in _WITHOUT_GRADIENT:
                self._guard(reasons.GRADIENT_ASKED(), False, None)
                return _WITHOUT_GRADIENT[function]
            attribute = getattr(function, "__self__", None)  # the attribute, if this is its getter
            raise CannotTrace(reasons.ASKS_FOR(attribute=getattr(attribute, "__name__", function.__name__)))
        if function in METADATA:
            return self._metadata(function, args, kwargs)
        self._rng.check()
        self.ambient.check_operation(function)
        self._around.note(sys._getframe(1), _BODY)
        raised = self._cursor.raises()
        if raised is not None:
            raise self._exception_of(raised, function, args, kwargs)
        entry = self._next(function)
        if not _is_same_function(entry.what, function):
            raise CannotTrace(reasons.CALLS_OTHER(now=operation_name(function), then=operation_name(entry.what)))
        templates = self._argument_templates(entry, args, kwargs)
        if entry.changed is not None:
            tensor_id, shape, dtype, gradient = TensorId(entry.changed[0]), *entry.changed[1:]
            if not self._arguments.has_placeholder(tensor_id):  # the tensor itself has had its new shape since the run
                raise CannotTrace(reasons.CHANGES_SHAPE(operation=operation_name(function)))
            self._arguments.set_layout(tensor_id, (shape, dtype, gradient))
        elif type(entry.out) is TensorId and entry.out in self._reshaped:
            self._arguments.set_first_layout(entry.out)
        code = self._code_of_result(entry, args, kwargs)
        result = self._arguments.result_of(entry, code)
        self._add(function, templates, entry, code, self.ambient.kernels_for(entry.kernels, function))
        if not any(True for _ in tensor_ids_in(entry.out)):
            return self._answer(function, entry, result)
        return iter(result) if function is _iterate else result

    def child(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a module that the body calls: it must be the next entry, and returns placeholders.

        A call that raised is made: ``run`` is its forward.
        """
        raised = self._cursor.raises()
        if raised is not None:
            return self._raise_again(raised, module, run, args, kwargs)
        if self._failing:
            return self._follow(self._next(module), module, run, args, kwargs)
        with internals.DisableTorchFunction():  # unlike in ``operation``, the tracing mode is still on
            return self._child(module, args, kwargs)

    def _child(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry = self._next(module)
        if entry.what is not module and not is_same_kind_of(module, entry.what):
            raise CannotTrace(reasons.CALLS_OTHER(now=operation_name(module), then=operation_name(entry.what)))
        self._rng.check()
        self._around.note(sys._getframe(1), _BODY, entry.what)
        self.ambient.check_call(entry.what)
        if entry.tape is not None and not entry.tape.surroundings:
            is_switched = len(self._template.entries) in self._template.switched or self._sandbox.has_switched()
            is_changed = self.ambient.change_around_call or is_switched
            own = self._sandbox.plain_changes() if is_changed else ()
            entry.tape.surroundings = (*self._tape.surroundings, *own)
        templates = self._argument_templates(entry, args, kwargs)
        code = self._code_of_result(entry, args, kwargs)
        result = self._arguments.result_of(entry, code)
        self._add(self._named(entry.what), templates, entry, code)
        result = self._arguments.changed_by_call(result, args, kwargs)
        self._last_child[id(module)] = entry.what, args, kwargs, result
        return result

    def returned(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note a call with hooks: if they exchanged arguments or result, only its ``forward`` is in the graph."""
        called, given, named, made = self._last_child.pop(id(module), (module, args, kwargs, result))
        if made is not result or not _are_same(given, args) or not _are_same(named, kwargs):
            self._around.computing.add(id(called))

    def _named(self, module: nn.Module) -> str | nn.Module:
        """Return the path of a module, or the module itself if it has none: then the template is for this call only."""
        if self._paths is None:
            self._paths = relative_paths(self._tape.module)
        path = self._paths.get(id(module))
        if path is None:
            self._template.for_class = False
        return module if path is None else path

    # Tensors that are handed over in attributes --------------------------------------------------

    def _is_changed_for(self, module: nn.Module) -> bool:
        """Would a call of this module find other attributes or objects than before, but for those that a graph sets?

        A graph sets tensors that are handed over in attributes, and numbers, texts and flags around a call.
        """
        if not self._sandbox.is_changed_for(module) and not self._sandbox.has_switched():
            return False
        changes = self._sandbox.changes_for(module)
        given = _given_in_attributes(module, changes)
        if not given:
            return not self._sets_all(changes, module)
        handed, names = [], dict[int, set[str]]()
        for inner, name, tensor, is_registered in given:
            template = self._arguments.template_of_tensor(tensor)
            if template is None:
                return True
            handed.append(HandedOver(self._named(inner), name, template, is_registered))
            for table in (inner.__dict__, inner._parameters, inner._buffers):
                names.setdefault(id(table), set()).add(name)
            if not is_registered:
                self._handed_over.append((inner, name))
        self._template.handed_over[len(self._template.entries)] = tuple(handed)
        return not self._sets_all(self._sandbox.changes_for(module, names), module)

    def _sets_all(self, changes: list[Change], module: nn.Module) -> bool:
        """Have the graph set all of this around the call of a module; return whether it can."""
        owners: dict[int, nn.Module] = {id(inner.__dict__): inner for inner in modules_of(module)}
        switched = []
        for variable, content in changes:
            owner: type | nn.Module | None = None
            if isinstance(variable, ClassAttribute):
                owner = variable.owner
            elif isinstance(variable, Item):
                owner = owners.get(id(variable.items))
            if owner is None or not isinstance(variable, (ClassAttribute, Item)) or type(content) not in PLAIN:
                return False
            switched.append(Switched(owner if isinstance(owner, type) else self._named(owner), variable.name, content))
        if switched:
            self._template.switched[len(self._template.entries)] = tuple(switched)
        return True

    def _put_back_handed_over(self) -> None:
        """Put back the attributes in which tensors were handed over: the graph sets them, too."""
        for module, name in self._handed_over:
            if type(module.__dict__.get(name)) is PlaceholderTensor:
                self._sandbox.put_back(module.__dict__, name)

    def _next(self, what: Any) -> TapeEntry:
        return self._cursor.next(what)

    # Exceptions that the body catches ------------------------------------------------------------

    def _exception_of(
        self, raised: Raised, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Exception:
        """Return the exception that an operation raised when the body ran; the body must call it once more."""
        if not _is_same_function(raised.what, function):
            raise CannotTrace(reasons.CALLS_OTHER(now=operation_name(function), then=operation_name(raised.what)))
        name = operation_name(function)
        if not raised.leaves_nothing:
            raise CannotTrace(reasons.RAISED_LATE(what=name, error=raised.kind.__name__))
        if raised.error is None:
            raise CannotTrace(reasons.RAISED_OTHERWISE(what=name, error=raised.kind.__name__))
        self._check_arguments(raised, args, kwargs)
        self._cursor.raised += 1
        if not self._failing:
            self._note_exception(name, raised.error)
        return like(raised.error) or raised.error  # one of its own: a traceback keeps placeholders

    def _raise_again(
        self,
        raised: Raised,
        module: nn.Module,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call that raised when the body ran: along its own tape, and with nothing of it in the graph."""
        if raised.tape is None or (raised.what is not module and not is_same_kind_of(module, raised.what)):
            raise CannotTrace(reasons.CALLS_OTHER(now=operation_name(module), then=operation_name(raised.what)))
        kind = type(module).__name__
        if not raised.leaves_nothing:
            raise CannotTrace(reasons.RAISED_LATE(what=kind, error=raised.kind.__name__))
        outer, known = self._cursor, self._arguments.known()
        outer.raised += 1
        if not self._failing:
            self._outside = known[0]
        self._cursor = cursor = TapeCursor(raised.tape)
        self._failing += 1
        try:
            run(*args, **kwargs)
        except CannotTrace:
            raise
        except Exception as error:
            if type(error) is not raised.kind:
                raise CannotTrace(reasons.RAISED_OTHERWISE(what=kind, error=raised.kind.__name__)) from None
            cursor.check_end()
            if self._failing == 1:
                self._note_exception(kind, error)
            raise
        finally:
            self._failing -= 1
            self._cursor = outer
            self._arguments.forget_but(known)
        raise CannotTrace(reasons.RAISED_OTHERWISE(what=kind, error=raised.kind.__name__))

    def _follow(
        self,
        entry: TapeEntry,
        module: nn.Module,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call inside one that raised, which returned when the body ran."""
        if entry.tape is None or (entry.what is not module and not is_same_kind_of(module, entry.what)):
            raise CannotTrace(reasons.CALLS_OTHER(now=operation_name(module), then=operation_name(entry.what)))
        outer, self._cursor = self._cursor, TapeCursor(entry.tape)
        try:
            result = run(*args, **kwargs)
            self._cursor.check_end()
        finally:
            self._cursor = outer
        return result

    def _note_exception(self, name: str, error: Exception) -> None:
        text = first_line(error)
        self._guard(reasons.EXCEPTION_CAUGHT(what=name), error, None, f"{type(error).__name__}: {text}")
        self._template.for_class = False  # whether other calls raise is not on their tapes

    def _check_arguments(self, raised: Raised, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        known = self._arguments.known()
        entry = TapeEntry(raised.what, raised.args, raised.kwargs, None, raised.context)
        self._argument_templates(entry, args, kwargs)
        self._arguments.forget_but(known)

    def _argument_templates(
        self, entry: TapeEntry, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if context_now() != entry.context:
            raise CannotTrace(reasons.OTHER_CONTEXT(operation=operation_name(entry.what)))
        if len(args) != len(entry.args) or kwargs.keys() != entry.kwargs.keys():
            raise CannotTrace(reasons.OTHER_ARGUMENTS(operation=operation_name(entry.what)))
        matched = self._arguments.matched
        try:
            return (
                tuple([matched(x, y) for x, y in zip(args, entry.args)]),
                {name: matched(x, entry.kwargs[name]) for name, x in kwargs.items()},
            )
        except CannotTrace as error:
            operation = operation_name(entry.what)
            raise CannotTrace(reasons.IN_OPERATION(difference=error.reason, operation=operation)) from None

    def _code_of_result(self, entry: TapeEntry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._failing:
            return entry.out
        return self._arguments.with_names(entry, self._cursor.position - 1, args, kwargs)

    def _add(
        self,
        what: Any,
        templates: tuple[tuple[Any, ...], dict[str, Any]],
        entry: TapeEntry,
        code: Any,
        kernels: internals.AttentionKernels | None = None,
    ) -> None:
        if self._failing:
            return
        out = self._arguments.template_of_result(code)
        self._template.entries.append(TapeEntry(what, *templates, out, entry.context, entry.line, kernels=kernels))

    # Questions -----------------------------------------------------------------------------------

    def _metadata(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self._symbolic_metadata(function, args, kwargs)
        kind = type(answer)
        if kind is not Size and kind is not Shape:
            return answer
        self.met_sizes = True
        is_lost = self._failing and getattr(args[0], "tensor_id", None) not in self._outside
        if not self._fixed_sizes and not is_lost:
            return answer
        return plain(answer) if kind is Size else torch.Size([plain(size) for size in answer])

    def _symbolic_metadata(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = args[0] if args else None
        if type(asked) is not PlaceholderTensor:
            return function(*args, **kwargs)
        shape = self._arguments.layouts[asked.tensor_id][0]
        if asked.tensor_id in self._reshaped:  # its sizes are constants: they are others later
            return self._of_reshaped(asked, function, args, kwargs)
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
        if function == _getter["_version"]:  # which is compared with itself: how often it was written to in this body
            passed = self._cursor.tape.entries[: self._cursor.position]
            return sum(asked.tensor_id == written for entry in passed for written, _ in entry.writes)
        if function == _getter["requires_grad"]:
            self._guard(reasons.GRADIENT_ASKED(), asked.gradient, None)
            return asked.gradient
        if asked.sparse is not None and function in _OF_LAYOUT:
            return _OF_LAYOUT[function](asked.sparse)
        if asked.sparse is not None and function in LAYOUT:
            raise CannotTrace(reasons.ASKS_FOR(attribute=function.__name__))
        return function(*args, **kwargs)

    def _of_reshaped(
        self, asked: PlaceholderTensor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer a question about a tensor whose shape or dtype an operation changes in place."""
        shape, dtype, _ = self._arguments.layouts[asked.tensor_id]
        if function is Tensor.size:
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            return torch.Size(shape) if dim is None else shape[plain(dim)]
        if function in _OF_SHAPE:
            return _OF_SHAPE[function](shape, dtype)
        if function == _getter["requires_grad"]:
            self._guard(reasons.GRADIENT_ASKED(), asked.gradient, None)
            return asked.gradient
        if function in _OF_DEVICE:
            return function(*args, **kwargs)
        raise CannotTrace(reasons.ASKS_FOR(attribute=operation_name(function)))

    def _answer(self, function: Callable[..., Any], entry: TapeEntry, result: Any) -> Any:
        """Answer a question about values (``bool``, ``item``, ``tolist``); the answer becomes a guard."""
        index = None if self._failing else len(self._template.entries) - 1
        if type(result) in (bool, int, float, complex, str, list):
            self._guard(reasons.VALUE_ASKED(function=operation_name(function).strip("_")), result, index)
        if type(result) is int and function is Tensor.item and index is not None:
            return Size(result, ("node", index))
        return iter(result) if function is _iterate else result

    def size_asked(self, what: str, answer: Any) -> None:
        """Make a guard of a question about a size."""
        self._guard(what, answer, None)

    def hash_of(self, size: Size) -> int:
        """Return the hash of a size."""
        self.hashed_sizes = True
        return hash(plain(size)) if self._sizes_as_keys else symbolic_size.own_hash(size)

    def _guard(self, what: str, answer: Any, entry: int | None, text: str | None = None) -> None:
        line = user_line(sys._getframe(2), {}) or self._tape.line
        text = repr(answer) if text is None else text
        source = None if line is None else line.text()
        guard = TemplateGuard(what, text if len(text) < 60 else text[:57] + "…", source, entry)
        if guard not in self._template.guards:
            self._template.guards.append(guard)


def _given_in_attributes(module: nn.Module, changes: list[Change]) -> list[tuple[nn.Module, str, Tensor, bool]]:
    """Return the tensors that a call of a module finds in attributes, and whether each is in the place of a weight."""
    changed = {(id(each.variable.items), each.variable.name) for each in changes if isinstance(each.variable, Item)}
    given: list[tuple[nn.Module, str, Tensor, bool]] = []
    for inner in modules_of(module):
        tables = inner._parameters, inner._buffers
        for name, attribute in inner.__dict__.items():
            if type(attribute) is PlaceholderTensor:
                given.append((inner, name, attribute, any((id(table), name) in changed for table in tables)))
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None and (id(table), name) in changed:
                    given.append((inner, name, tensor, True))
    return given


def _reshaped(tape: CallTape, values: ValueTable) -> frozenset[TensorId]:
    """Return the tensors whose shape or dtype an operation of the body changes in place."""
    found = set()
    for entry in tape.entries:
        if entry.changed is not None:
            tensor_id = TensorId(entry.changed[0])
            given = tape.input_layouts.get(tensor_id)
            first = values.first_values[tensor_id]
            before = (first.shape, first.dtype) if given is None else (given[0], str(given[1])[6:])
            if before != (entry.changed[1], str(entry.changed[2])[6:]):
                found.add(tensor_id)
    return frozenset(found)


class TapeCursor:
    """The position of a trace on a tape: how many entries, and exceptions, it has passed."""

    def __init__(self, tape: CallTape) -> None:
        self.tape = tape
        self.position = 0
        self.raised = 0

    def raises(self) -> Raised | None:
        """Return the exception that was raised next, if that was before the next entry."""
        raised = self.tape.raised
        if self.raised < len(raised) and raised[self.raised].position == self.position:
            return raised[self.raised]
        return None

    def next(self, what: Any) -> TapeEntry:
        """Return the next entry, and pass it. Raises :class:`CannotTrace` if ``what`` is called after the last one."""
        if self.position >= len(self.tape.entries):
            raise CannotTrace(reasons.RUNS_ON(operation=operation_name(what)))
        self.position += 1
        return self.tape.entries[self.position - 1]

    def check_end(self) -> None:
        """Raise :class:`CannotTrace` if there is more on the tape."""
        entries, raised = self.tape.entries, self.raises()
        if self.position != len(entries):
            missing = operation_name(entries[self.position].what)
            raise CannotTrace(reasons.ENDS_EARLY(operation=missing, reached=self.position, count=len(entries)))
        if raised is not None:
            what = operation_name(raised.what)
            raise CannotTrace(reasons.RAISED_OTHERWISE(what=what, error=raised.kind.__name__))


def _are_same(one: Any, other: Any) -> bool:
    """Do two lists, or two dicts, hold the very same objects in the same places?"""
    if type(one) is dict:
        return one.keys() == other.keys() and all(each is other[name] for name, each in one.items())
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _is_same_function(recorded: Any, function: Any) -> bool:
    return type(recorded) is type(function) and bool(recorded == function)


_BODY = ModuleTracer.template_of.__code__  # the traced body's frames lie above it
