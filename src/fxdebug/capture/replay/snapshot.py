"""What running a body's Python a second time may touch: taken down before, put back after.

A place that holds things (a module's attributes, a container, a variable) is compared by the identity
of what it holds. What cannot be put back (an iterator, an open file) is kept out of reach meanwhile:
a body that uses it ends its trace.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.reasons import Words
from fxdebug.capture.replay.containers import Mapping, UnchangedSet, holders_of
from fxdebug.capture.replay.global_settings import rewinds
from fxdebug.capture.replay.paused import is_alone, threads_paused
from fxdebug.capture.replay.reachable import ReachableObjects, mappings_of
from fxdebug.capture.replay.rng import drawn, numpy_state
from fxdebug.capture.replay.stateful_objects import blocker, restorer


class State:
    """Everything the modules of a model, and what they are ``given``, can reach, and all random generators.

    From here to :meth:`put_back` the garbage of the program is to lie where it is (``uncollected``): what a
    finalizer writes would be taken back.
    """

    def __init__(self, model: nn.Module, given: Iterable[Any] = ()) -> None:
        found = ReachableObjects(model, given=given)
        # what cannot be put back, or kept out of reach
        self.why_not: Words | None = None if found.is_complete else reasons.HOLDS_TOO_MUCH()
        self._places = holders_of(found)
        self._empty = found.empty
        self._rewinds = [back for thing in found.others if (back := restorer(thing)) is not None]
        stubs = {id(thing): instead for thing in found.others if (instead := blocker(thing)) is not None}
        for thing in found.others:
            if (
                id(thing) in stubs
                and id(thing) in found.fixed
                and not issubclass(type(thing), functools._lru_cache_wrapper)
            ):
                self.why_not = self.why_not or reasons.HELD_FAST(kind=type(thing).__name__)
        self._swaps = [swap for place in self._places for swap in place.swaps(stubs)] if stubs else []
        self._swapped = [place for place in self._places if place.swaps(stubs)] if stubs else []
        self._mappings = [place for place in self._places if isinstance(place, Mapping)]
        self._of_modules = {id(place.held): place for place in self._mappings}
        self._own = {id(mapping) for module in model.modules() for mapping in mappings_of(module)}
        self._sort()
        self.changed = False  # was anything else there after the last block? (stubs do not count)
        self.drew = False  # did the last block touch Python's or numpy's random state?
        self._alone = is_alone()
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = numpy_state()
        self._drawn = drawn()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if cuda else None

    def _sort(self) -> None:
        """Most places are dicts that are as they were nearly always: that is seen at once."""
        self._plain = [place for place in self._mappings if place.is_plain() and place not in self._swapped]
        plain = set(map(id, self._plain))
        self._others = [place for place in self._places if id(place) not in plain]
        self._shared = [place for place in self._plain if id(place.held) not in self._own]
        self._others_shared = [place for place in self._others if id(getattr(place, "held", None)) not in self._own]
        self._all_plain, self._all_shared = UnchangedSet(self._plain), UnchangedSet(self._shared)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """A block after which everything that is reached through the modules is as it was before."""
        if not self._alone:
            self._drawn = drawn()  # first of all: numpy lets other threads in
        with contextlib.nullcontext() if self._alone else threads_paused():
            if not self._alone:  # what other threads of the program wrote since the last block stays
                self._take_down()
            for swap in self._swaps:
                swap()
            settings = rewinds()
            try:
                yield
            finally:
                self.put_back_attributes()
                for back in settings:
                    self.changed = back() or self.changed
                before, self._drawn = self._drawn, drawn()
                self.drew = self._drawn != before

    def _take_down(self) -> None:
        for place in self._others:
            if place not in self._swapped:
                place.take_down()
        if self._all_plain.is_altered():
            for place in self._plain:
                place.take_down()
            self._sort()

    def is_altered_for(self, module: nn.Module) -> bool:
        """Inside a block: would a call of this module now find other things than before it?

        What it holds itself, and what is no module's own.
        """
        own = [self._of_modules.get(id(held)) for each in module.modules() for held in mappings_of(each)]
        shared = self._shared if self._all_shared.is_altered() else []
        looked_at = [place for place in (*own, *self._others_shared, *shared) if place is not None]
        return any(
            place.is_altered() and not place.is_only_wrapped() for place in looked_at if place not in self._swapped
        )

    def put_back_attributes(self) -> None:
        """What the places hold, wherever it is something else now."""
        self.changed = False
        if any(self._empty):
            for container in filter(None, self._empty):
                container.clear()
            self.changed = True
        for place in (*self._others, *(self._plain if self._all_plain.is_altered() else ())):
            if place.put_back() and place not in self._swapped:
                self.changed = True
        for back in self._rewinds:
            if back():
                self.changed = True

    def put_back(self) -> None:
        """Everything as it was."""
        if self._alone:
            self.put_back_attributes()
        if not torch.equal(torch.get_rng_state(), self._torch):
            torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
