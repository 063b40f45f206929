"""From tapes to graphs: each call of a run ends ``verified``, ``recorded`` or ``opaque``.

A pattern that was proven for another call of the class is tried first: matching is proof enough and
runs no Python of the model. Otherwise the body is traced symbolically along its tape. Where neither
comes out as what ran, the tape itself is the graph, with the reason in words.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.class_traits import traits_of
from fxdebug.capture.graphs.from_tape import pattern_of_tape
from fxdebug.capture.graphs.known_templates import remember, templates_of
from fxdebug.capture.graphs.match import match
from fxdebug.capture.graphs.placeholder_tensor import taken_back
from fxdebug.capture.graphs.symbolic_tracer import ModuleTracer
from fxdebug.capture.graphs.template import GraphTemplate
from fxdebug.capture.hooks import module_call
from fxdebug.capture.hooks.compiled_modules import Way, compiled_code_of, stand_in_front, step_aside
from fxdebug.capture.hooks.observers import hidden_from_recordings
from fxdebug.capture.reasons import NO_REASON, CannotTrace, Words, assumptions
from fxdebug.capture.replay import side_effects
from fxdebug.capture.replay.paused import gc_paused
from fxdebug.capture.replay.reachable import home_of, replaced_in
from fxdebug.capture.replay.side_effects import side_effects_blocked
from fxdebug.capture.replay.snapshot import State
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import opaque_in
from fxdebug.capture.tape.source_line import at, raised_at
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import closes_untracked
from fxdebug.data.graphs import OPAQUE, RECORDED, VERIFIED, Status
from fxdebug.errors import first_line


@dataclass(eq=False)
class VerifiedCall:
    """What became of one call: its pattern, the tensors in the pattern's slots, and how far it is trusted."""

    body: CallTape
    status: Status
    reason: Words
    pattern: GraphTemplate | None = None
    uids: list[TensorId | None] | None = None
    reused: bool = False


class GraphVerifier:
    """Explains the bodies of one run.

    ``kept`` are tensors that somebody's Python holds on to: a body that made one is not run again.
    """

    def __init__(
        self, model: nn.Module, modules: list[nn.Module], values: ValueTable, kept: frozenset[TensorId]
    ) -> None:
        self._model = model
        self._modules = modules
        self._values = values
        self._kept = kept
        self._given: list[Any] = []  # objects that bodies were given: callbacks, caches
        self._state: State | None = None
        self._tracing: _Tracing | None = None

    @closes_untracked
    def explain(self, bodies: list[CallTape]) -> list[VerifiedCall]:
        """One :class:`Explained` per body, in their order."""
        self._given = [x for body in bodies if body.opaque for x in (*opaque_in(body.args), *opaque_in(body.kwargs))]
        modes_off = (
            internals.disable_current_modes() if internals.len_torch_dispatch_stack() else contextlib.nullcontext()
        )
        with modes_off, gc_paused(), hidden_from_recordings():
            try:
                return [self._safely(body) for body in bodies]
            finally:
                try:
                    self._end()
                finally:
                    self._end()  # what an interrupt (Ctrl-C) left undone the first time

    def _end(self) -> None:
        if self._state is not None:
            self._state.put_back()  # with the wrappers on, as it was taken
            self._state = None
        if self._tracing is not None:
            self._tracing.end()
            self._tracing = None

    def _safely(self, body: CallTape) -> VerifiedCall:
        """What fails in here leaves one graph unexplained, not all of them."""
        try:
            return self._explained(body)
        except Exception as error:
            return VerifiedCall(
                body, OPAQUE, reasons.NOT_EXPLAINED(error=f"{type(error).__name__}: {first_line(error)}")
            )

    def _explained(self, body: CallTape) -> VerifiedCall:
        if body.suspended is not None:
            return VerifiedCall(body, OPAQUE, body.suspended)
        if body.hazard is None:
            patterns = templates_of(body)
            for pattern in patterns:
                found = match(pattern, body, self._values)
                if found is not None:
                    if len(patterns) > 1:
                        pattern.fits(body.module)
                    return VerifiedCall(body, VERIFIED, _why(pattern), pattern, found.uids, reused=True)
        traced, reason = self._attempt(body)
        if traced is not None:
            found = match(traced, body, self._values)
            if found is not None:
                traced.traits = traits_of(body.module)
                remember(body, traced)
                return VerifiedCall(body, VERIFIED, _why(traced), traced, found.uids)
            reason = reasons.GRAPH_DIFFERS()
        recorded, uids = pattern_of_tape(body, self._values)
        return VerifiedCall(body, RECORDED, reason, recorded, uids)

    def _attempt(self, body: CallTape) -> tuple[GraphTemplate | None, Words]:
        """The pattern of a body that is run again symbolically; without one, the reason."""
        if body.hazard is not None:
            return None, body.hazard
        lost = internals.has_lost("verification")
        if lost is not None:
            return None, reasons.VERSION_LACKS(missing=lost)
        if self._kept and not self._kept.isdisjoint(body.met()) and not _is_torch(body.forward):
            return None, reasons.KEPT_ELSEWHERE()
        tracer = ModuleTracer(body, self._values, self._is_altered_for)
        pattern, reason = self._traced(tracer, body)
        tracer.forget()
        if taken_back(tracer.made, self._values.tensor):
            return None, reasons.KEPT_ELSEWHERE()
        return pattern, reason

    def _is_altered_for(self, module: nn.Module) -> bool:
        return self._state is not None and self._state.is_altered_for(module)

    def _traced(self, tracer: ModuleTracer, body: CallTape) -> tuple[GraphTemplate | None, Words]:
        if self._tracing is None:
            self._tracing = _Tracing()
            self._tracing.begin(self._modules)
        only_computes = _only_computes(body)
        if self._state is None and not only_computes:  # with the wrappers on: what is put back keeps them
            self._state = State(self._model, self._given)
        state = None if only_computes else self._state
        if state is not None and state.why_not and not _is_torch(body.forward):
            return None, state.why_not
        try:
            with (
                contextlib.nullcontext() if state is None else state.kept(),
                self._tracing.of(tracer),
                side_effects_blocked(),
            ):
                pattern = contextvars.copy_context().run(tracer.pattern_of, body.forward)
            if state is not None:
                pattern.only_here = _only_here(state, tracer)
            return pattern, NO_REASON
        except CannotTrace as error:
            return None, at(error.reason, raised_at(error) or tracer.line())
        except RecursionError:
            return None, reasons.NESTS_TOO_DEEP()
        except Exception as error:  # whatever the body's Python does with stand-ins
            what = f"{type(error).__name__}: {first_line(error)}"
            return None, at(reasons.RAISES_WITHOUT_DATA(error=what), raised_at(error))


def _only_here(state: State, tracer: ModuleTracer) -> Words | None:
    """Why the graph of a body does not do all that its Python does."""
    if state.changed:
        return reasons.CHANGES_WHAT_LASTS()
    if tracer.around.altered:
        return tracer.around.altered
    return reasons.DRAWS_RANDOM_NUMBERS() if state.drew else None


_COMPUTING = frozenset(
    [
        f"torch.nn.modules.{name}"
        for name in (
            "activation", "conv", "distance", "dropout", "flatten", "linear", "normalization", "padding",
            "pixelshuffle", "pooling", "sparse", "upsampling",
        )
    ]
)  # fmt: skip


def _only_computes(body: CallTape) -> bool:
    """Is it one of torch's own leaves, as torch has it? Their Python writes to nothing that lasts."""
    kind: Any = type(body.module)
    forward = getattr(body.forward, "__func__", None)
    return (
        kind.__module__ in _COMPUTING
        and forward is kind.forward
        and home_of(forward) in _COMPUTING
        and not body.module._modules
        and not replaced_in(forward)
    )


def _is_torch(forward: Callable[..., Any]) -> bool:
    """Is this forward torch's own? It keeps no tensor outside its module."""
    return str(getattr(forward, "__module__", "")).startswith("torch.nn.")


def _why(pattern: GraphTemplate) -> Words:
    """The first assumptions of a verified graph."""
    return assumptions(list(map(str, pattern.guards)))


# Modules as leaves -------------------------------------------------------------------------------

# Hooks of these libraries are part of how a model computes; a user's hooks must not see stand-ins.
_TRUSTED_HOOKS = ("torch.", "transformers.")


class _Tracing:
    """Stands in front of every module while bodies are traced: a call is a leaf of the one that is traced."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._tracer: ModuleTracer | None = None
        self._compiled: list[tuple[nn.Module, Way]] = []

    def begin(self, modules: list[nn.Module]) -> None:
        module_call.begin(self)
        side_effects.begin(self)
        module_call.attach(self, modules)
        # what module.compile() made goes past forward: it is not to be compiled for stand-ins
        way = self._past_compiled_code
        self._compiled = [(module, way) for module in modules if compiled_code_of(module) is not None]
        for module, _ in self._compiled:
            stand_in_front(module, way)

    def _past_compiled_code(self, module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
        return run if self._mine() is None else module._call_impl

    def end(self) -> None:
        for module, way in self._compiled:
            step_aside(module, way)
        self._compiled = []  # a way holds us, too
        side_effects.end(self)
        module_call.end(self)

    @contextlib.contextmanager
    def of(self, tracer: ModuleTracer) -> Iterator[None]:
        self._tracer = tracer
        try:
            yield
        finally:
            self._tracer = None

    def _mine(self) -> ModuleTracer | None:
        return self._tracer if threading.get_ident() == self._thread else None

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        tracer = self._mine()
        return run(*args, **kwargs) if tracer is None else tracer.child(module, args, kwargs)

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._mine() is None or all(_is_trusted(hook) for hook in _hooks(module)):
            return run(*args, **kwargs)
        return module.forward(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        tracer = self._mine()
        return tracer is not None and tracer.knows(module)


def _hooks(module: nn.Module) -> list[Any]:
    from torch.nn.modules import module as torch_module

    tables = (
        module._forward_hooks, module._forward_pre_hooks, torch_module._global_forward_hooks,
        torch_module._global_forward_pre_hooks,
    )  # fmt: skip
    return [hook for table in tables for hook in table.values()]


def _is_trusted(hook: Any) -> bool:
    home = getattr(hook, "__module__", None) or type(hook).__module__
    return str(home).startswith(_TRUSTED_HOOKS)
