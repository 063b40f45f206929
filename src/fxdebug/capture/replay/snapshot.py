"""Take a snapshot of everything that re-executing a body may change, and restore it.

Contents of modules, containers and variables are compared by identity. An object whose state cannot be restored (an
iterator, an open file) is replaced by a blocker during a re-execution: a body that uses it ends its trace.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.containers import DictHolder, Holder, UnchangedSet, holders_of, switches_of
from fxdebug.capture.replay.global_settings import setting_restorers
from fxdebug.capture.replay.introspect import dicts_of
from fxdebug.capture.replay.pause_gc_and_threads import is_only_thread, threads_paused
from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.replay.rng import RngSnapshot, python_rng_position
from fxdebug.capture.replay.side_effects import muted_if_standard
from fxdebug.capture.replay.stateful_objects import blocker, restorer
from fxdebug.capture.replay.variables import Change, Item
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.errors import with_article


class Snapshot:
    """State of everything reachable from a model and from the objects that its calls get, and of all generators.

    The garbage collector must be off (``gc_paused``) until :meth:`restore` returns: the writes of a finalizer in
    between would be undone.

    ``cannot_restore`` is the reason why the model must not be re-executed at all, or ``None``. ``naming_len`` are the
    namespaces of the program whose code calls ``len``. The other attributes describe the last :meth:`restoring` block:

    - ``has_changes``: it changed an object that outlives it (replacing objects by blockers does not count);
    - ``changed``: the name of what it changed first, where that has one;
    - ``has_drawn_numbers``: it drew numbers from the generator of Python or of numpy.
    """

    def __init__(self, model: nn.Module, extra_roots: Iterable[Any] = ()) -> None:
        reachable = ReachableObjects(model, extra_roots=extra_roots)
        self.cannot_restore: ReasonText | None = None if reachable.is_complete else reasons.HOLDS_TOO_MUCH()
        self.has_changes = False
        self.changed = ""
        self.has_drawn_numbers = False
        self._model = model
        self._holders = holders_of(reachable)
        self._switches = switches_of(reachable)
        self.naming_len = list(reachable.naming_len.values())
        self._empty_containers = reachable.empty_containers
        self._restorers = [restore for thing in reachable.stateful if (restore := restorer(thing)) is not None]
        blockers = self._blockers_for(reachable)
        self._replacements: list[Callable[[], None]] = []
        self._blocked: list[Holder] = []  # holders of an object that a blocker replaces
        for holder in self._holders if blockers else ():
            replacements = holder.replacements(blockers)
            if replacements:
                self._replacements.extend(replacements)
                self._blocked.append(holder)
        self._dicts = [holder for holder in self._holders if isinstance(holder, DictHolder)]
        self._holder_of_dict = {id(holder.dict): holder for holder in self._dicts}
        self._ids_of_own_dicts = {id(each) for module in modules_of(model) for each in dicts_of(module)}
        self._sort()
        self._is_only_thread = is_only_thread()
        self._rng = RngSnapshot()
        self._rng_position = python_rng_position()

    def _blockers_for(self, reachable: ReachableObjects) -> dict[int, Any]:
        """Return the blocker of each object that needs one, by its id.

        Sets ``cannot_restore`` if such an object is held in a place where no blocker can replace it.
        """
        every = [(id(thing), muted_if_standard(thing) or blocker(thing)) for thing in reachable.stateful]
        blockers = {key: each for key, each in every if each is not None}
        for thing in reachable.stateful:
            is_fixed = id(thing) in blockers and id(thing) in reachable.fixed
            if is_fixed and not issubclass(type(thing), functools._lru_cache_wrapper):
                self.cannot_restore = self.cannot_restore or reasons.HELD_FAST(kind=type(thing).__name__)
        return blockers

    def _sort(self) -> None:
        """Gather plain dicts into sets that are compared at once: most holders are plain dicts and rarely change."""
        self._plain = [holder for holder in self._dicts if holder.is_plain() and holder not in self._blocked]
        ids = set(map(id, self._plain))
        self._others = [holder for holder in self._holders if id(holder) not in ids]
        own = self._ids_of_own_dicts
        self._shared = [holder for holder in self._plain if id(holder.dict) not in own]
        self._shared_others = [holder for holder in self._others if id(getattr(holder, "dict", None)) not in own]
        self._all_plain, self._all_shared = UnchangedSet(self._plain), UnchangedSet(self._shared)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Restore, at the end of the block, all objects and settings that the block changed.

        Generators are restored by :meth:`restore` only, once after all blocks.
        """
        if not self._is_only_thread:
            self._rng_position = python_rng_position()  # before all else: numpy lets other threads run here
        with contextlib.nullcontext() if self._is_only_thread else threads_paused():
            if not self._is_only_thread:  # keep the writes of the program's other threads since the last block
                self._refresh()
            for replace in self._replacements:
                replace()
            settings, imported = setting_restorers(), len(sys.modules)
            try:
                yield
            finally:
                self._restore_objects()
                has_changes = self.has_changes
                self._restore_by(settings)
                if len(sys.modules) > imported:  # torch imports parts of itself when they are needed first
                    self.has_changes = has_changes
                before, self._rng_position = self._rng_position, python_rng_position()
                self.has_drawn_numbers = self._rng_position != before

    def _refresh(self) -> None:
        """Take the snapshot of the holders again; those with blockers keep theirs."""
        for holder in (*self._others, *self._switches):
            if holder not in self._blocked:
                holder.snapshot()
        if self._all_plain.is_changed():
            for plain in self._plain:
                plain.snapshot()
            self._sort()

    def is_changed_for(self, module: nn.Module, apart_from: Mapping[int, Set[str]] | None = None) -> bool:
        """Inside a block: would a call of this module find other attributes or objects than before the block?

        Compares the attributes of the module and its submodules, and all objects that belong to no module.
        ``apart_from`` are names of attributes that do not count, by the ``id`` of a module's ``__dict__``.
        """
        return any(True for _ in self._changed_for(module, apart_from or {}))

    def changes_for(self, module: nn.Module, apart_from: Mapping[int, Set[str]] | None = None) -> list[Change]:
        """Inside a block: return what a call of this module would find another than before, switches included.

        ``apart_from`` are names as for :meth:`is_changed_for`.
        """
        names = apart_from or {}
        found = [change for holder in self._changed_for(module, names) for change in holder.changes()]
        found = [each for each in found if not (type(each.variable) is Item and _is_among(each.variable, names))]
        return found + [change for switch in self._switches for change in switch.changes()]

    def _changed_for(self, module: nn.Module, apart_from: Mapping[int, Set[str]]) -> Iterator[Holder]:
        own = [self._holder_of_dict.get(id(each)) for inner in modules_of(module) for each in dicts_of(inner)]
        shared = self._shared if self._all_shared.is_changed() else []
        holders = [holder for holder in (*own, *self._shared_others, *shared) if holder is not None]
        for holder in holders:
            if holder in self._blocked or _is_as_before(holder, apart_from):
                continue
            if holder.is_changed() and not holder.is_changed_by_wrappers_only():
                yield holder

    def plain_changes(self) -> list[Change]:
        """Inside a block: return its changes of numbers, texts and flags."""
        holders = [holder for holder in self._holders if holder not in self._blocked]
        return [each for holder in (*holders, *self._switches) for each in holder.changes() if each.is_plain]

    def has_switched(self) -> bool:
        """Inside a block: did it set a switch of a library's?"""
        return any(switch.is_changed() for switch in self._switches)

    def put_back(self, attributes: dict[str, Any], name: str) -> None:
        """Give one attribute, in these attributes of a module, the content of the snapshot."""
        holder = self._holder_of_dict.get(id(attributes))
        if holder is not None:
            holder.put_back(name)

    def _restore_objects(self) -> None:
        """Restore every object that has changed, and set ``has_changes``."""
        self.has_changes, self.changed = False, ""
        for container in filter(None, self._empty_containers):
            self._note_change(container)
            container.clear()
        changeable: tuple[Holder, ...] = (
            *self._others,
            *self._switches,
            *(self._plain if self._all_plain.is_changed() else ()),
        )
        for holder in changeable:
            if holder.is_changed():
                if holder not in self._blocked:
                    self._note_change(holder.place, holder)
                holder.restore()
        self._restore_by(self._restorers)

    def _note_change(self, place: Any, holder: Holder | None = None) -> None:
        self.has_changes = True
        with contextlib.suppress(Exception):  # only a text is at stake, and classes of the program may do anything
            self.changed = self.changed or self._name_of(place, holder)

    def _name_of(self, place: Any, holder: Holder | None) -> str:
        """Return how a user knows what has changed in a place: ``Layer.calls``, the name of a global, a list."""
        variables = [] if holder is None else [change.variable for change in holder.changes()]
        name = next((text for each in variables if (text := getattr(each, "name", None))), None)
        if isinstance(place, type):
            return place.__name__ if name is None else f"{place.__name__}.{name}"
        for module in modules_of(self._model):
            if name is not None and any(each is place for each in dicts_of(module)):
                return f"{type(module).__name__}.{name}"
            for attribute, content in vars(module).items():
                if content is place:
                    return f"{type(module).__name__}.{attribute}"
        return name or with_article(type(place).__name__)

    def _restore_by(self, restorers: list[Callable[[], bool]]) -> None:
        for restore in restorers:
            self.has_changes = restore() or self.has_changes

    def restore(self) -> None:
        """Restore everything, generators included. May be called several times."""
        if self._is_only_thread:
            self._restore_objects()
        self._rng.restore()


def _is_among(item: Item, names: Mapping[int, Set[str]]) -> bool:
    return item.name in names.get(id(item.items), ())


def _is_as_before(holder: Holder, apart_from: Mapping[int, Set[str]]) -> bool:
    """Is it unchanged but for attributes that do not count?"""
    names = apart_from.get(id(holder.dict)) if isinstance(holder, DictHolder) else None
    return names is not None and isinstance(holder, DictHolder) and not holder.is_changed_apart_from(names)
