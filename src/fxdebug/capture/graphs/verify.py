"""From tapes to graphs: each call of a run ends ``verified``, ``recorded`` or ``opaque``.

A template that was proven for another call of the class is tried first: a match is proof enough and runs no Python
of the model. Otherwise the body is traced symbolically along its tape. The trace need not be trusted, because only a
match makes it ``verified``. Where neither matches, the tape itself is the graph, with the reason in words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.from_tape import template_of_tape
from fxdebug.capture.graphs.known_templates import (
    names_as_proven,
    remember,
    remember_untraced,
    templates_of,
    untraced_of,
)
from fxdebug.capture.graphs.leaf_calls import LeafCalls, has_hooks_of_program
from fxdebug.capture.graphs.match import Match, match_tape
from fxdebug.capture.graphs.names import operation_name
from fxdebug.capture.graphs.placeholder_tensor import replace_leaked
from fxdebug.capture.graphs.symbolic_tracer import ModuleTracer
from fxdebug.capture.graphs.template import GraphTemplate, sizes_passed
from fxdebug.capture.reasons import NO_REASON, CannotTrace, ReasonText, assumptions
from fxdebug.capture.replay.functions import home_of, patches_in
from fxdebug.capture.replay.sandbox import Sandbox, sandboxed
from fxdebug.capture.replay.snapshot import Snapshot
from fxdebug.capture.source.source_line import raised_at, with_line
from fxdebug.capture.tape.argument_copies import is_lasting
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, made_in, takes_from_body
from fxdebug.capture.tape.earlier_attributes import RunStart
from fxdebug.capture.tape.encoding import OpaqueArg, leaves_in, opaque_objects_in, tensor_ids_in
from fxdebug.capture.tape.in_place import handed_on
from fxdebug.capture.tape.raised import Raised
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import closes_untracked
from fxdebug.capture.torch_state.whose_code import is_part_of
from fxdebug.data.graphs import OPAQUE, RECORDED, VERIFIED, Status
from fxdebug.errors import first_line

_NOTHING: Mapping[int, Any] = MappingProxyType({})
_NO_TENSORS: Set[TensorId] = frozenset()


@dataclass(eq=False, slots=True)
class VerifiedCall:
    """The graph of one call: its template, the tensors in the template's slots, and how far it is trusted.

    ``reused`` says that the template was proven for another call. ``objects`` are the modules, functions and classes
    among its arguments and operands, by their number in the template; ``handed_over`` are tensors that its graph puts
    into attributes of the modules it calls.
    """

    tape: CallTape
    status: Status
    reason: ReasonText
    template: GraphTemplate | None = None
    tensor_ids: list[TensorId | None] | None = None
    reused: bool = False
    objects: Mapping[int, Any] = field(default_factory=lambda: _NOTHING)
    handed_over: Set[TensorId] = _NO_TENSORS


class GraphVerifier:
    """Finds the graphs of one run's calls.

    ``kept`` are tensors that the program holds in places of its own. A body that made one is not run again, because a
    placeholder would end up there.
    """

    def __init__(
        self, model: nn.Module, modules: list[nn.Module], values: ValueTable, kept: frozenset[TensorId]
    ) -> None:
        self._model = model
        self._modules = modules
        self._values = values
        self._kept = kept
        self._sandbox: Sandbox | None = None
        self._leaf_calls: LeafCalls | None = None
        self._ended_by_body = False  # does what the body does, and nothing around it, end its trace?
        self._run_starts: list[RunStart] = []
        self._reused: list[CallTape] = []  # whose bodies were not traced
        self._callers: dict[int, CallTape] = {}  # the same by index of the calls in them

    @closes_untracked
    def verify(self, tapes: list[CallTape]) -> list[VerifiedCall]:
        """Return one :class:`VerifiedCall` per tape, in their order."""
        passed_objects = [  # compared by identity: callbacks, caches, and objects that calls made for their callers
            each
            for tape in tapes
            for code in ((tape.args, tape.kwargs, tape.out) if tape.has_opaque_args else (tape.out,))
            if type(code) is not TensorId
            for each in opaque_objects_in(code)
        ]
        modes_off = (
            internals.disable_current_modes() if internals.len_torch_dispatch_stack() else contextlib.nullcontext()
        )
        with modes_off, sandboxed(self._model, passed_objects) as sandbox:
            self._sandbox = sandbox
            self._run_starts = [tape.run_start for tape in tapes if tape.run_start is not None][:1]
            try:
                verified = [self._safely(tape) for tape in tapes]  # callers first: see _note_sizes_given
                hidden = set(map(id, _handing_over_unseen(verified)))
                return [self._safely(each.tape, anew=True) if id(each) in hidden else each for each in verified]
            finally:
                try:
                    self._end()
                finally:
                    self._end()  # what an interrupt (Ctrl-C) left undone the first time

    def _end(self) -> None:
        if self._sandbox is not None:
            self._sandbox.restore()  # with the wrappers on, as they were when the snapshot was taken
            self._sandbox = None
        if self._leaf_calls is not None:
            self._leaf_calls.end()
            self._leaf_calls = None

    def _safely(self, tape: CallTape, anew: bool = False) -> VerifiedCall:
        """Verify one call; a failure of the debugger costs this call its graph, and no other."""
        try:
            verified = self._traced_anew(tape) if anew else self._verify(tape)
            _note_sizes_given(verified)
            return verified
        except Exception as error:
            return VerifiedCall(
                tape, OPAQUE, reasons.NOT_EXPLAINED(error=f"{type(error).__name__}: {first_line(error)}")
            )

    def _verify(self, tape: CallTape) -> VerifiedCall:
        if tape.unobserved is not None:
            return VerifiedCall(tape, OPAQUE, tape.unobserved)
        if tape.untraceable is None and not tape.raised:  # what a call did that raised is on no template
            for template, note_match in templates_of(tape):
                match = match_tape(template, tape, self._values)
                if match is not None and names_as_proven(template, tape):
                    note_match(tape, template)
                    self._reused.append(tape)
                    return _verified(match, reused=True)
            again = self._untraced_again(tape)
            if again is not None:
                return again
        return self._traced_anew(tape)

    def _traced_anew(self, tape: CallTape) -> VerifiedCall:
        """Verify one call by tracing its body."""
        self._ended_by_body = False
        traced, reason = self._attempt(tape)
        if traced is not None:
            match = match_tape(traced, tape, self._values)
            if match is not None:
                remember(tape, traced)
                return _verified(match)
            reason = reasons.GRAPH_DIFFERS()
        recorded, tensor_ids = template_of_tape(tape, self._values)
        if self._ended_by_body:
            remember_untraced(tape, recorded, reason)
        return VerifiedCall(tape, RECORDED, reason, recorded, tensor_ids)

    def _untraced_again(self, tape: CallTape) -> VerifiedCall | None:
        """Return the recorded graph of a call that does what its module did before, when it could not be traced."""
        recorded, reason = untraced_of(tape) or (None, NO_REASON)
        match = None if recorded is None else match_tape(recorded, tape, self._values)
        if match is None:
            return None
        return VerifiedCall(tape, RECORDED, reason, match.template, match.tensor_ids, reused=True)

    def _attempt(self, tape: CallTape) -> tuple[GraphTemplate | None, ReasonText]:
        """Trace a body symbolically. Return its template, or ``None`` and the reason why there is none."""
        if tape.untraceable is not None:
            return None, tape.untraceable
        lost = internals.missing_for("verification")
        if lost is not None:
            return None, reasons.VERSION_LACKS(missing=lost)
        if self._kept and not self._kept.isdisjoint(tape.tensor_ids()) and not _is_torch(tape.forward):
            return None, reasons.KEPT_ELSEWHERE()
        template, reason, met_sizes = self._followed(tape)
        for way in self._other_ways(tape, met_sizes) if template is None else ():
            other, _, _ = self._followed(tape, **way)
            if other is not None and match_tape(other, tape, self._values) is not None:
                if "earlier" in way:
                    other.not_reusable = other.not_reusable or reasons.CHANGES_WHAT_LASTS(what="")
                return other, NO_REASON
        return template, (_taken_past(tape) or reason) if template is None else reason

    def _other_ways(self, tape: CallTape, met_sizes: bool) -> list[dict[str, Any]]:
        """Return other ways to run a body, for one that shows something else as it is now; the likeliest first."""
        as_it_was: dict[str, Any] = {}
        caller = self._untraced_caller(tape)
        if caller is not None:  # its trace finds what it changed around its calls
            self._followed(caller)
        if tape.surroundings:
            as_it_was["in_surroundings"] = True
        if tape.earlier_attributes is not None:
            as_it_was["earlier"] = tape.earlier_attributes
        ways = [as_it_was] if as_it_was else []
        ways += [{**as_it_was, "earlier": start} for start in self._run_starts]
        if met_sizes:
            ways += [{"fixed_sizes": True}, *[{**way, "fixed_sizes": True} for way in ways]]
        if _has_contents(tape):
            ways.append({"objects_as_they_are": True})
        if handed_on(tape):
            ways += [{"one_name": True}, *[{**way, "one_name": True} for way in ways]]
        if any(isinstance(entry.what, nn.Module) and has_hooks_of_program(entry.what) for entry in _and_raised(tape)):
            ways = [{"with_hooks": True}, *ways, *[{**way, "with_hooks": True} for way in ways]]
        return ways

    def _untraced_caller(self, tape: CallTape) -> CallTape | None:
        """Return the tape of a call's caller, if that was not traced; once for each call."""
        for reused in self._reused:
            self._callers.update({entry.tape.index: reused for entry in reused.entries if entry.tape is not None})
        self._reused.clear()
        return self._callers.pop(tape.index, None)

    def _followed(self, tape: CallTape, **way: Any) -> tuple[GraphTemplate | None, ReasonText, bool]:
        """Trace a body in one way. Return its template or the reason why there is none, and whether it met sizes.

        Nothing of the trace is left, and if something was, it is no trace.
        """
        assert self._sandbox is not None
        tracer = ModuleTracer(tape, self._values, self._sandbox, **way)
        template, reason = self._traced(tracer, tape)
        placeholders, met_sizes = tracer.placeholders, tracer.met_sizes
        tracer.forget()
        if tracer.hashed_sizes and (template is None or template.not_reusable):
            # it computed anew what is cached by size, or filled a cache once more: the body as it is now decides
            tracer = ModuleTracer(tape, self._values, self._sandbox, sizes_as_keys=True, **way)
            baked, reason_of_baked = self._traced(tracer, tape)
            placeholders, met_sizes = [*placeholders, *tracer.placeholders], met_sizes or tracer.met_sizes
            tracer.forget()
            if template is None or baked is None:
                template, reason = baked, reason_of_baked
            else:
                template.not_reusable = baked.not_reusable
        if replace_leaked(placeholders, self._values.tensor_with):
            return None, reasons.KEPT_ELSEWHERE(), met_sizes
        return template, reason, met_sizes

    def _traced(self, tracer: ModuleTracer, tape: CallTape) -> tuple[GraphTemplate | None, ReasonText]:
        if self._leaf_calls is None:
            self._leaf_calls = LeafCalls()
            self._leaf_calls.begin(self._modules)
        assert self._sandbox is not None
        # the snapshot is taken with the wrappers on, so that restoring keeps them
        snapshot = None if _only_computes(tape) else self._sandbox.snapshot()
        if snapshot is not None and snapshot.cannot_restore and not _is_torch(tape.forward):
            return None, snapshot.cannot_restore
        try:
            with self._leaf_calls.of(tracer):
                template = self._sandbox.run(tracer.template_of, tape.forward, restoring=snapshot is not None)
            if snapshot is not None:
                template.not_reusable = _not_reusable(snapshot, tracer)
                if template.not_reusable:
                    template.switched.clear()
            return template, NO_REASON
        except CannotTrace as error:
            self._ended_by_body = True
            return None, with_line(error.reason, raised_at(error) or tracer.line())
        except RecursionError:
            return None, reasons.NESTS_TOO_DEEP()
        except Exception as error:  # the body's Python may do anything with placeholders
            what = f"{type(error).__name__}: {first_line(error)}"
            return None, with_line(reasons.RAISES_WITHOUT_DATA(error=what), raised_at(error))


def _handing_over_unseen(verified: list[VerifiedCall]) -> list[VerifiedCall]:
    """Return the calls whose template was proven for another call and lacks what their own body hands to its calls.

    A weight that a body exchanges for one call is on the tape of that call only, whose graph is recorded then: there is
    another tensor in its place now.
    """
    below: set[int] = set()  # calls that are recorded, or have such in them
    found: list[VerifiedCall] = []
    if not any(each.status == RECORDED for each in verified):
        return found
    for each in reversed(verified):
        inner = [entry.tape for entry in each.tape.entries if entry.tape is not None]
        has_recorded = any(tape.index in below for tape in inner)
        if each.status == RECORDED or has_recorded:
            below.add(each.tape.index)
        if has_recorded and each.reused and each.status == VERIFIED and takes_from_body(each.tape, each.handed_over):
            found.append(each)
    return found


def _and_raised(tape: CallTape) -> list[TapeEntry | Raised]:
    """Return the operations and calls of a tape, also those that raised."""
    return [*tape.entries, *tape.raised]


def _taken_past(tape: CallTape) -> ReasonText | None:
    """Return the reason if an operation takes a tensor that was made inside a call and that no call returned."""
    passed = {*tape.input_layouts, *tensor_ids_in((tape.args, tape.kwargs))}
    made: dict[TensorId, CallTape] = {}
    for raised in tape.raised:
        if raised.tape is not None:
            made.update(dict.fromkeys(made_in(raised.tape), raised.tape))
    for entry in tape.entries:
        for tensor_id in tensor_ids_in((entry.args, entry.kwargs)):
            if tensor_id in made and tensor_id not in passed:
                operation, module = operation_name(entry.what), type(made[tensor_id].module).__name__
                return with_line(reasons.TAKEN_PAST(operation=operation, module=module), entry.line)
        if entry.tape is not None:
            made.update(dict.fromkeys(made_in(entry.tape), entry.tape))
        passed.update(tensor_ids_in(entry.out))
    return None


def _has_contents(tape: CallTape) -> bool:
    """Are there objects on the tape that can be made anew from what they hold?"""
    codes = (tape.args, tape.kwargs, tape.out, *[(entry.args, entry.kwargs, entry.out) for entry in tape.entries])
    return any(type(leaf) is OpaqueArg and leaf.contents is not None for leaf in leaves_in(codes))


def _not_reusable(snapshot: Snapshot, tracer: ModuleTracer) -> ReasonText | None:
    """Return the reason why the graph does not do all that the body's Python does; ``None`` if it does."""
    if snapshot.has_changes:
        return reasons.CHANGES_WHAT_LASTS(what=f" ({snapshot.changed})" if snapshot.changed else "")
    if tracer.ambient.change_around_call:
        return tracer.ambient.change_around_call
    return reasons.DRAWS_RANDOM_NUMBERS() if snapshot.has_drawn_numbers else None


def _note_sizes_given(verified: VerifiedCall) -> None:
    """Tell each call in a verified body which of the integers it was given were computed from sizes."""
    if verified.status != VERIFIED or verified.template is None:
        return
    for index, sizes in sizes_passed(verified.template):
        inner = verified.tape.entries[index].tape
        if inner is not None:
            inner.sizes_given = sizes


_COMPUTING = frozenset(
    [
        f"torch.nn.modules.{name}"
        for name in (
            "activation", "conv", "distance", "dropout", "flatten", "linear", "normalization", "padding",
            "pixelshuffle", "pooling", "sparse", "upsampling",
        )
    ]
)  # fmt: skip


def _only_computes(tape: CallTape) -> bool:
    """Is the module one of torch's own leaves, and unpatched? Their Python writes to nothing that lasts."""
    kind: Any = type(tape.module)
    forward = getattr(tape.forward, "__func__", None)
    return (
        kind.__module__ in _COMPUTING
        and forward is kind.forward
        and home_of(forward) in _COMPUTING
        and not tape.module._modules
        and not patches_in(forward)
    )


def _is_torch(forward: Callable[..., Any]) -> bool:
    """Is this forward torch's own? It keeps no tensor outside its module."""
    return is_part_of(getattr(forward, "__module__", None), "torch.nn")


def _verified(match: Match, reused: bool = False) -> VerifiedCall:
    template, objects = match.template, _NOTHING
    if match.objects:
        objects = {number: each for number, each in match.objects.items() if is_lasting(each)}
    return VerifiedCall(
        match.tape,
        VERIFIED,
        _guards(template),
        template,
        match.tensor_ids,
        reused,
        objects,
        match.handed_over() if template.handed_over else _NO_TENSORS,
    )


def _guards(template: GraphTemplate) -> ReasonText:
    """Return the first assumptions of a verified graph, as its reason."""
    if template.assumed is None:
        template.assumed = assumptions(list(map(str, template.guards)))
    return template.assumed
