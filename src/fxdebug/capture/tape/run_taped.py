"""Run one forward under the tape: put the tape's mode on the thread's stack, or take it off where it would interfere.

Reading order: after ``recorder/recorder``, which enters a call on the tape and runs it here; then ``tape/tape_mode``,
which notes its operations.

The mode is on while the thread has a call open, except where it would change which kernels run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks.observers import innermost
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.ambient_state import dispatch_modes, function_modes, names_of_modes
from fxdebug.capture.replay.introspect import members_in
from fxdebug.capture.replay.references import ArgumentReferences, KnownReferences, references_to
from fxdebug.capture.source.source_line import Line, search_parts, users_line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, TensorRefs, debugger_failure
from fxdebug.capture.tape.changed_arguments import DICTS, Place, argument_at, places_of, result_in
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.tape.earlier_attributes import (
    EarlierAttributes,
    RunStart,
    attributes_now,
    is_unchanged,
    keeps_nothing,
)
from fxdebug.capture.tape.encoding import ATOMS, OpaqueArg
from fxdebug.capture.tape.op_traits import written_form
from fxdebug.capture.tape.tape_mode import NO_KWARGS, Tape
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import CONTEXTS, context_now
from fxdebug.capture.torch_state.mode_stack import allows_mode_around, may_be_fused
from fxdebug.capture.torch_state.uncounted import uncounted


@uncounted
def run_taped(
    tape: Tape, call_tape: CallTape, args: tuple[Any, ...], kwargs: dict[str, Any], line: Line | None = None
) -> Any:
    """Run the forward of a call that was entered on the tape; return its result, or let its exception pass.

    ``line`` is the line that calls it, if that is known.
    """
    began = perf_counter()
    stack = tape.stack()
    own_time = stack.own_time
    parent = stack[-1] if stack else None
    forward = call_tape.forward
    call_tape.outermost = parent is None
    call_tape.function_modes = functions = internals.len_torch_function_stack()
    kind = type(call_tape.module)
    compares = tape.compares_attributes.get(kind, _UNASKED)
    if compares is _UNASKED:
        compares = tape.compares_attributes[kind] = _compares_attributes(kind)
    call_tape.unobserved = _why_unobserved(
        tape, call_tape.module, parent, functions, (args, kwargs) if compares is None else None
    )
    call_tape.line = users_line(line, None if parent is None else (parent.code, parent.line), tape.lines)
    unusual = [argument for argument in (*args, *kwargs.values()) if type(argument) not in _SIMPLE]
    containers: list[tuple[Any, list[int]]] = []
    if unusual:
        with _noted(call_tape):
            containers = _containers(unusual)
    stack.append(call_tape)
    if functions > stack[0].function_modes + 1 or internals.len_torch_dispatch_stack():  # 1: the tape
        _note_modes(call_tape, stack[0])
    is_outermost, is_observed = parent is None, call_tape.unobserved is None
    attributes = None if compares is False else attributes_now(call_tape.module)
    run_start = RunStart(call_tape.module) if is_outermost and is_observed else None
    own_time.seconds += perf_counter() - began
    try:
        if is_outermost and is_observed:
            with tape.switched_on():
                output = forward(*args, **kwargs)
        elif not is_outermost and not is_observed:
            with tape.switched_off():
                output = forward(*args, **kwargs)
        else:  # the mode is on for the caller already, or it is to stay off
            output = forward(*args, **kwargs)
    except BaseException as error:
        tape.fail_call(call_tape, parent, error)
        raise
    finally:
        while stack and stack.pop() is not call_tape:
            pass
        call_tape.forward = innermost(forward)  # it may be run again, without the recordings around it
    began = perf_counter()
    if attributes is not None:
        call_tape.earlier_attributes = EarlierAttributes.changed(call_tape.module, attributes)
    if run_start is not None:
        call_tape.run_start = run_start.compare()
    _note_compiled(call_tape)
    contents: dict[Place, Any] = {}
    if containers:
        with _noted(call_tape):
            contents = _changed(call_tape, containers, args, kwargs)
    tape.leave_call(call_tape, parent, output, contents)
    if unusual:
        with _noted(call_tape):
            if any(hasattr(type(argument), "__next__") for argument in unusual):
                call_tape.untraceable = call_tape.untraceable or reasons.GIVEN_ITERATOR()
    own_time.seconds += perf_counter() - began
    return output


@contextlib.contextmanager
def _noted(call_tape: CallTape) -> Iterator[None]:
    """Have a call go on without its graph where looking at its arguments raises, as their class may."""
    try:
        yield
    except Exception as error:
        call_tape.untraceable = call_tape.untraceable or debugger_failure(reasons.CALL_UNNOTED, error)


def _changed(
    call_tape: CallTape, containers: list[tuple[Any, list[int]]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[Place, Any]:
    """Return the lists, dicts and dataclasses among the arguments of a call that it changed, by their places."""
    changed = [container for container, before in containers if _items(container) != before]
    places = places_of(changed, args, kwargs) if changed else []
    if places is None:
        call_tape.untraceable = call_tape.untraceable or reasons.CHANGES_ARGUMENT(
            container=_a(type(changed[0]).__name__)
        )
    return {place: argument_at(place, args, kwargs) for place in places or ()}


def core_parts(tape: Tape) -> tuple[Any, ...]:
    """Return what the native core needs to enter, run and leave usual calls as the tape and :func:`run_taped` do."""
    return (
        tape, tape.stacks, tape.call_tapes, tape.values.native, {}, _compares_attributes,
        CallTape, TensorRefs, TapeEntry, ATOMS, NO_KWARGS, CONTEXTS, context_now,
        attributes_now, is_unchanged, EarlierAttributes.changed, _note_compiled, run_taped, tape.lines,
        *search_parts(),
    )  # fmt: skip


def _compares_attributes(kind: type[nn.Module]) -> bool | None:
    """Are the attributes of modules of a class to be compared after a call? ``None`` where no mode may be on."""
    return None if may_be_fused(kind) else not keeps_nothing(kind)


def _note_compiled(call_tape: CallTape) -> None:
    if call_tape.compiled_ops and call_tape.compiled_ops == len(call_tape.entries):
        call_tape.unobserved = reasons.COMPILED()
    elif call_tape.has_unseen_results:  # a graph would have them as constants
        call_tape.unobserved = reasons.RETURNED_UNSEEN()


def _why_unobserved(
    tape: Tape,
    module: nn.Module,
    parent: CallTape | None,
    functions: int,
    given: tuple[tuple[Any, ...], dict[str, Any]] | None,
) -> ReasonText | None:
    """Return the reason why no operation of a call can be noted, if any.

    ``functions`` counts the function modes that are on; ``given`` are the arguments of a module that may be fused.
    """
    if parent is not None and parent.unobserved is not None:
        is_fused = parent.unobserved == _fused(parent.module)
        return reasons.INSIDE_FUSED(module=_kind(parent.module)) if is_fused else parent.unobserved
    if parent is not None and not tape.is_on(functions):
        return _why_unheard(tape)
    return None if given is None or allows_mode_around(module, *given) else _fused(module)


def _note_modes(call_tape: CallTape, outermost: CallTape) -> None:
    """Note modes that a caller put on for this call: they may change its operations, and no graph contains them."""
    names = names_of_modes(function_modes(outermost.function_modes + 1))
    call_tape.callers_modes = reasons.RAN_UNDER_CALLERS_MODE(modes=names) if names else None
    modes = dispatch_modes()
    if call_tape is outermost:
        call_tape.dispatch_modes = modes
    elif modes != outermost.dispatch_modes:
        call_tape.untraceable = call_tape.untraceable or reasons.CALLERS_MODE(modes=names_of_modes(modes))


def references_by_tape(tape: Tape, index: int, output: Any) -> int:
    """Return how many references the tape has to the output of a call."""
    return isinstance(result_in(tape.call_tapes[index].out), OpaqueArg) + (id(output) in tape.opaque_objects)


def close_tape(tape: Tape, output: Any, references: int, model: nn.Module, passed: ArgumentReferences) -> None:
    """Find the tensors that the program still keeps after a run.

    A forward that keeps tensors would keep placeholders if it were run again. ``references`` counts those to the output
    itself, if it is a tensor.
    """
    opaque = list(tape.opaque_objects.values())
    tape.opaque_objects.clear()
    for call_tape in tape.call_tapes.values():
        if call_tape.argument_copies is not None:
            opaque.append(call_tape.argument_copies.copy)
    more = passed.added
    known = KnownReferences([output, *opaque], passed, model)
    alive = [
        (tensor_id, tensor) for tensor_id, tensor in tape.values.live_tensors() if not tape.values.is_weight(tensor)
    ]
    kept = set()
    while alive:
        tensor_id, tensor = alive.pop()
        grown = more.get(id(tensor))
        if grown is None and tensor is output:
            grown = references
        count = references_to(tensor) - 1 if grown is None else grown  # 1: this variable
        if known.has_unknown(tensor, count, is_argument=id(tensor) in more):
            kept.add(tensor_id)
    tape.kept = frozenset(kept)


_UNASKED: Any = object()


def _kind(module: nn.Module) -> str:
    return type(module).__name__


def _fused(module: nn.Module) -> ReasonText:
    return reasons.FUSED(module=_kind(module))


def _a(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _why_unheard(tape: Tape) -> ReasonText:
    """Return the reason why the tape misses the operations of a call that begins now, but noted its caller's."""
    if CompiledRegions.is_inside():
        return reasons.INSIDE_COMPILED()
    running = tape.running_op()
    return reasons.MODE_TAKEN_OFF() if running is None else reasons.INSIDE_OPERATION(function=written_form(running))


def _containers(arguments: list[Any]) -> list[tuple[Any, list[int]]]:
    """Return the lists, dicts and dataclasses among arguments, each with the ids of its items."""
    containers: list[tuple[Any, list[int]]] = []
    pending = [argument for argument in arguments if _is_container(argument)]
    while pending and len(containers) < 1000:
        container = pending.pop()
        if not issubclass(type(container), tuple):
            containers.append((container, _items(container)))
        pending.extend([item for item in _inside(container) if _is_container(item)])
    return containers


def _is_container(thing: Any) -> bool:
    kind = type(thing)
    if kind in _CONTAINERS or issubclass(kind, tuple):
        return True
    return hasattr(kind, "__dataclass_fields__") and members_in(thing) is not None


def _items(container: Any) -> list[int]:
    keys = container if type(container) in DICTS else ()
    return list(map(id, (*keys, *_inside(container))))


def _inside(container: Any) -> Iterable[Any]:
    kind = type(container)
    if kind in DICTS:
        return container.values()  # type: ignore[no-any-return]
    if kind is list:
        return container  # type: ignore[no-any-return]
    if issubclass(kind, tuple):
        return tuple.__iter__(container)
    return (members_in(container) or {}).values()


_CONTAINERS = (list, tuple, *DICTS)
_SIMPLE = frozenset((*PLAIN, type(None), bool, int, float, str))  # types of nearly all arguments
