"""Note the operations of a forward at which gradients stop: what they are given asks for gradients, their result not.
Beside them those whose derivative is 0.

What follows from such a result is marked. A stop counts where something marked meets what asks for gradients, or is the
loss; it is told of parameters without a gradient that it depends on.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import named_tensors
from fxdebug.features.shared.records.gradients import Cancelled, GradientStop


@dataclass
class _Stop:
    """A stop: what it was given that asks for gradients, the stops before it, and whether it counts."""

    roots: tuple[Any, ...]
    after: frozenset[int]
    about: GradientStop | None = None
    counts: bool = False
    exact: bool = True  # its result holds floating numbers, not a mask or indices
    leaves: set[int] | None = field(default=None, repr=False)


class GradientStops:
    """Follow the operations of one forward.

    >>> import torch
    >>> weight, stops = torch.ones(2, requires_grad=True), GradientStops()
    >>> hidden = weight * 2
    >>> cut = hidden.detach()
    >>> stops.follow((hidden,), {}, cut)
    True
    >>> stops.note(GradientStop("", 0, "detach", None, False, ()))
    >>> stops.end(cut)
    >>> [(stop.op, stop.parameters) for stop in stops.of({"weight": weight})]
    [('detach', ('weight',))]
    """

    def __init__(self) -> None:
        self._stops: list[_Stop] = []
        self._flat: list[_Stop] = []
        self._arrived: set[Any] = set()  # nodes of these, at which a gradient arrived that is not 0
        self._cancelled: list[tuple[_Stop, Cancelled]] = []
        self._marks: dict[int, tuple[weakref.ref[Tensor], frozenset[int]]] = {}

    def note_flat(self, result: Tensor, about: GradientStop) -> None:
        """Note an operation whose derivative is 0 everywhere."""
        self._flat.append(_Stop((result.grad_fn,), frozenset(), about))

    def note_arrived(self, node: Any) -> None:
        """Note that a gradient that is not 0 arrived at the node of an operation whose derivative is 0."""
        self._arrived.add(node)

    def note_cancelled(self, node: Any, about: Cancelled) -> None:
        """Note a result, by its node, at which gradients cancel."""
        self._cancelled.append((_Stop((node,), frozenset()), about))

    @property
    def makes_zeros(self) -> bool:
        """Was there an operation whose derivative is 0, or at which gradients cancel?"""
        return bool(self._flat or self._cancelled)

    def cancelled_of(self, zero: Mapping[str, Tensor]) -> tuple[Cancelled, ...]:
        """Return where gradients cancel that parameters with a gradient of 0 lead to, with these; last first."""
        found = []
        for stop, about in self._cancelled:
            leaves = self._leaves(stop)
            names = tuple([name for name, parameter in zero.items() if id(parameter) in leaves])
            if names:
                found.append(replace(about, parameters=names))
        return tuple(found)

    def flat_of(self, zero: Mapping[str, Tensor]) -> tuple[GradientStop, ...]:
        """Return the operations whose derivative is 0 that parameters with a gradient of 0 lead to, with these."""
        stops = []
        for stop in [one for one in self._flat if one.roots[0] in self._arrived]:
            leaves = self._leaves(stop)
            names = tuple([name for name, parameter in zero.items() if id(parameter) in leaves])
            if names and stop.about is not None:
                stops.append(replace(stop.about, parameters=names))
        return tuple(stops)

    def follow(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> bool:
        """Look at an operation that has run; return whether gradients stop there. :meth:`note` then adds the facts."""
        made = [tensor for _, tensor in named_tensors(result)]
        if not made:
            return False
        given = [tensor for _, tensor in named_tensors((args, kwargs))]
        marks = frozenset().union(*[self._marks_of(tensor) for tensor in given])
        if any(tensor.requires_grad for tensor in made):
            for mark in marks:
                self._stops[mark].counts = True
            return False
        asking = [tensor for tensor in given if tensor.requires_grad]
        if asking:
            roots = tuple([tensor if tensor.grad_fn is None else tensor.grad_fn for tensor in asking])
            exact = any(tensor.is_floating_point() or tensor.is_complex() for tensor in made)
            self._stops.append(_Stop(roots, marks, exact=exact))
            marks = frozenset([len(self._stops) - 1])
        if marks:
            for tensor in made:
                self._marks[id(tensor)] = weakref.ref(tensor), marks
        return bool(asking)

    def note(self, about: GradientStop) -> None:
        """Note what is known of the stop that was seen last."""
        self._stops[-1].about = about

    def end(self, loss: Tensor) -> None:
        """Note the loss: what it depends on counts."""
        for mark in self._marks_of(loss):
            self._stops[mark].counts = True

    def of(self, missing: Mapping[str, Tensor]) -> tuple[GradientStop, ...]:
        """Return the stops of parameters that got no gradient, each parameter at the first that counts for it.

        Where gradients are off over many operations, the first of them stands for all.
        """
        if not missing or not self._stops:
            return ()
        for position in range(len(self._stops) - 1, -1, -1):
            if self._stops[position].counts:
                for before in self._stops[position].after:
                    self._stops[before].counts = True
        found: dict[int, list[str]] = {}
        counting = [position for position, stop in enumerate(self._stops) if stop.counts and stop.about is not None]
        counting.sort(key=lambda position: not self._stops[position].exact)
        for name, parameter in missing.items():
            first = next((p for p in counting if id(parameter) in self._leaves(self._stops[p])), None)
            if first is not None:
                found.setdefault(self._head(first), []).append(name)
        stops = []
        for position, names in sorted(found.items()):
            about = self._stops[position].about
            assert about is not None
            stops.append(replace(about, parameters=tuple(names)))
        return tuple(stops)

    def forget(self) -> None:
        """Let go of tensors and of autograd's graph."""
        self._stops.clear()
        self._flat.clear()
        self._arrived.clear()
        self._cancelled.clear()
        self._marks.clear()

    def _head(self, position: int) -> int:
        """Return the first of the operations in a row that ran with gradients off."""
        while True:
            stop = self._stops[position]
            before = [p for p in stop.after if (about := self._stops[p].about) is not None and about.off]
            if stop.about is None or not stop.about.off or not before:
                return position
            position = min(before)

    def _marks_of(self, tensor: Tensor) -> frozenset[int]:
        known = self._marks.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else frozenset()

    def _leaves(self, stop: _Stop) -> set[int]:
        """Return the ids of the leaves that a stop depends on."""
        if stop.leaves is None:
            stop.leaves, seen, pending = set(), set(), list(stop.roots)
            while pending:
                node = pending.pop()
                if isinstance(node, Tensor):
                    stop.leaves.add(id(node))
                elif node not in seen:
                    seen.add(node)
                    variable = getattr(node, "variable", None)
                    if isinstance(variable, Tensor):
                        stop.leaves.add(id(variable))
                    pending += [before for before, _ in node.next_functions if before is not None]
        return stop.leaves
