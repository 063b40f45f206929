"""The sandbox in which forwards are re-executed without side effects."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

from torch import nn

from fxdebug.capture.hooks.observers import hidden_from_recordings
from fxdebug.capture.replay.pause_gc_and_threads import gc_paused, in_turn
from fxdebug.capture.replay.side_effects import side_effects_blocked
from fxdebug.capture.replay.snapshot import Snapshot
from fxdebug.capture.replay.variables import Change

_R = TypeVar("_R")


@contextlib.contextmanager
def sandboxed(model: nn.Module, extra_roots: Iterable[Any] = ()) -> Iterator[Sandbox]:
    """Run the Python of a model a second time without side effects, inside this block.

    A body has run once already, with the data of the program. It runs again in two places: ``graphs/verify.py`` runs it
    with placeholders, to make its graph, and ``runnable_graphs/check_inputs.py`` on fake tensors or copies, to see
    whether a graph holds for other inputs. Every other effect of that Python has happened once and must not happen
    twice: a counter must not count two, a line must not be printed again, a list must not keep a placeholder::

        with sandboxed(model, arguments) as sandbox:
            snapshot = sandbox.snapshot()
            if snapshot.cannot_restore:
                ...  # the reason why the model must not run again
            result = sandbox.run(forward, x)

    **Around everything**, from ``with`` to its end:

    0. *One thread at a time does so* (``pause_gc_and_threads.in_turn``). Two of them would take the seeds that
       ``rng.RngWatch`` sets, and the settings and objects that are restored, for what the body of the other wrote.
    1. *The garbage collector is off* (``pause_gc_and_threads.gc_paused``). A finalizer that ran meanwhile could not be
       told from the body: its writes would be undone, and removing a file would be refused.
    2. *Recordings do not see this thread* (``observers.hidden_from_recordings``). Only observers that register within
       the sandbox see the calls of modules that run in it. Recordings in other threads go on.
    3. *The snapshot is restored at the end* (``snapshot.Snapshot.restore``): generators, and objects that still
       differ. It is restored twice, because an interrupt (Ctrl-C) may cut the first time short.

    **Around each** :meth:`Sandbox.run`, from the outside to the inside:

    4. *Other threads wait* (``pause_gc_and_threads.threads_paused``), if the program has any: their writes must stay.
    5. *Objects and settings are restored* (``snapshot.Snapshot.restoring``). Objects are those that the walk from the
       model finds (``reachable``): attributes, containers, closures, globals of the program, patched functions of
       libraries. An object whose state cannot be restored, such as an open file, has a blocker in its place
       (``stateful_objects``). Settings are those of ``global_settings``.
    6. *Effects outside the process are blocked* (``side_effects.side_effects_blocked``). Functions that print, warn or
       wait do nothing in this thread; functions that write files, start threads or change settings of torch raise
       ``CannotTrace``, with the reason that the user reads.
    7. *Context variables are a copy* (``contextvars``): a variable that the body sets is not set for the program.

    The order matters. Threads must wait from before the snapshot is brought up to date until objects are restored.
    Blocking is innermost, because restoring uses functions that it blocks.

    ``ambient_state`` and ``rng.RngWatch`` belong to this package but not to the sandbox: they watch what the body does
    between two operations, and the tracer asks them at each operation.

    ``extra_roots`` are objects that the program passes to the bodies, such as caches and callbacks.
    """
    sandbox = Sandbox(model, extra_roots)
    with in_turn(), gc_paused(), hidden_from_recordings():
        try:
            yield sandbox
        finally:
            try:
                sandbox.restore()
            finally:
                sandbox.restore()  # what an interrupt left undone the first time


class Sandbox:
    """One snapshot, and runs after which everything is as in the snapshot; made by :func:`sandboxed`."""

    def __init__(self, model: nn.Module, extra_roots: Iterable[Any] = ()) -> None:
        self._model = model
        self._extra_roots = extra_roots
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the model. The first call takes it: patches that are to stay must be in place by then.

        All runs in one sandbox share it, as taking it is slow for a large model.
        """
        if self._snapshot is None:
            self._snapshot = Snapshot(self._model, self._extra_roots)
        return self._snapshot

    def run(self, function: Callable[..., _R], *args: Any, restoring: bool = True) -> _R:
        """Return ``function(*args)``, run without side effects. Raises what it raises.

        ``restoring=False`` leaves out the snapshot (4 and 5 above): for code that is known to write to nothing.
        """
        with self.snapshot().restoring() if restoring else contextlib.nullcontext(), side_effects_blocked():
            return contextvars.copy_context().run(function, *args)

    def is_changed_for(self, module: nn.Module, apart_from: Mapping[int, Set[str]] | None = None) -> bool:
        """Inside a run: would a call of this module find other attributes or objects than before the run?

        ``apart_from`` are names of attributes that do not count, by the ``id`` of a module's ``__dict__``.
        """
        return self._snapshot is not None and self._snapshot.is_changed_for(module, apart_from)

    def changes_for(self, module: nn.Module, apart_from: Mapping[int, Set[str]] | None = None) -> list[Change]:
        """Inside a run: return what a call of this module would find another than before the run, with switches."""
        return [] if self._snapshot is None else self._snapshot.changes_for(module, apart_from)

    def plain_changes(self) -> list[Change]:
        """Inside a run: return the numbers, texts and flags that it has changed so far."""
        return [] if self._snapshot is None else self._snapshot.plain_changes()

    def naming_len(self) -> list[dict[str, Any]]:
        """Return the namespaces of the program whose code calls ``len``."""
        return [] if self._snapshot is None else self._snapshot.naming_len

    def has_switched(self) -> bool:
        """Inside a run: did it set a switch of a library's? Whether calls do something else then shows in a check."""
        return self._snapshot is not None and self._snapshot.has_switched()

    def put_back(self, attributes: dict[str, Any], name: str) -> None:
        """Give one attribute, in these attributes of a module, the content that it had before the run."""
        if self._snapshot is not None:
            self._snapshot.put_back(attributes, name)

    def restore(self) -> None:
        """Restore everything now; the end of the block does it otherwise."""
        if self._snapshot is not None:
            self._snapshot.restore()
            self._snapshot = None
