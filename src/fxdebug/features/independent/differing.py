"""Operations of two runs that differ at the places of a sample, and the first of them with an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.probe import ObservedRun, named_tensors, untracked
from fxdebug.features.independent.beside import Alone
from fxdebug.operators.categories import VIEWS
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import COPYING, UNINITIALISED
from fxdebug.query.network import Network, Node, network_of

RESHAPES = frozenset(["view", "reshape", "flatten", "unflatten"])
ROUNDINGS, MOST = 1024, 0.05  # kernels add in another order when the batch is of another size


Fewer: TypeAlias = dict[tuple[int, ...], Set[int]]
"""The dimensions in which results of a shape are shorter for a sample alone."""


class Results:
    """The results of the operations of a run, copied as they are made, by path, name and number."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], tuple[tuple[str, int], list[Tensor]]] = {}
        self._count: Counter[str] = Counter()

    def look(self, place: tuple[int, int], name: str, result: Any) -> None:
        """Keep a result."""
        key = f"{place[0]} {name}" if place[1] >= 0 else f"call {place[0]}"
        with untracked(), torch.no_grad():
            kept = [tensor.detach().clone() for _, tensor in named_tensors(result) if type(tensor) is Tensor]
        self.of[place] = (key, self._count[key]), kept
        self._count[key] += 1


@dataclass(frozen=True)
class Difference:
    """A sample that differs: the first operation, the places of the tokens, and the error of what is returned."""

    error: float
    compared: int
    unpaired: int
    first: Node | None = None
    op_error: float = 0.0
    is_known: bool = True  # has what is returned a part that is the sample's?
    places: tuple[int, ...] = ()


def difference(run: ObservedRun, given: Results, other: Results, alone: Alone, half: Results) -> Difference:
    """Compare a run with that of a sample alone, operation by operation; ``half`` is that of half of the tokens."""
    by_key, shorter = dict(other.of.values()), dict(half.of.values())
    errors: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
    unpaired, end = 0, run.place(run.trace.root)
    for place, (key, results) in given.of.items():
        cut = shorter.get(key, [])
        pairs = [
            (alone.pair(a, b, cut[number] if number < len(cut) else None), a)
            for number, (a, b) in enumerate(zip(results, by_key.get(key, [])))
        ]
        known = [(*pair, a) for pair, a in pairs if pair is not None]
        by_token = [(part, b, a) for part, b, a in known if alone.token_dims(a, part)]
        if by_token or (place == end and alone.row is None):
            known = by_token  # what a sequence returns as one beside it, such as a last state, may differ
        unpaired += len(known) < len(results) or key not in by_key
        if known:
            worst = max(((_error(part, other), part, other, a) for part, other, a in known), key=lambda row: row[0])
            errors[place] = worst[0], _tokens(*worst[1:], alone)
    error = errors.get(end, (0.0, ()))[0]
    fewer = {place: _cut(results, by_key.get(key, [])) for place, (key, results) in given.of.items()}
    first = _first(run, errors, fewer) if error else None
    if first is None:
        return Difference(error, len(errors), unpaired, is_known=end in errors)
    node, place = first
    return Difference(error, len(errors), unpaired, node, errors[place][0], places=errors[place][1])


def _error(part: Tensor, other: Tensor) -> float:
    """Return the largest difference over the largest element; 0 within what rounding explains."""
    if not part.is_floating_point() and not part.is_complex():
        return 0.0 if torch.equal(part, other) else 1.0
    unequal = (part != other) & ~(part.isnan() & other.isnan())
    if not bool(unequal.any()):
        return 0.0
    one, two = part.double() if not part.is_complex() else part, other.double() if not other.is_complex() else other
    gaps = torch.where(unequal, (one - two).abs(), 0.0).nan_to_num(nan=torch.inf, posinf=torch.inf)
    sizes = two.abs()[two.isfinite()]
    scale = float(sizes.max()) if sizes.numel() else 1.0
    error = float(gaps.max()) / (scale or 1.0)
    return error if error > min(ROUNDINGS * EPS.get(str(other.dtype)[6:], 0.0), MOST) else 0.0


def _tokens(part: Tensor, other: Tensor, whole: Tensor, alone: Alone) -> tuple[int, ...]:
    """Return the tokens of a sample, as they were given, at which its results differ."""
    dims = alone.token_dims(whole, part)
    if alone.places is None or not dims:
        return ()
    bound = 0 if not part.is_floating_point() else EPS.get(str(part.dtype)[6:], 0.0) * ROUNDINGS
    gaps = (part.double() - other.double()).abs().nan_to_num(nan=0.0, posinf=1e300)
    differs = gaps > bound * float(other.double().nan_to_num(0.0, 0.0, 0.0).abs().max())
    kept = differs.movedim(dims[0], 0).flatten(1).any(1) if differs.ndim > 1 else differs
    return tuple(alone.places[kept.cpu()].tolist())


def places_of(run: ObservedRun) -> dict[str, tuple[int, int]]:
    """Return the places of the operations of a run by their ids."""
    net = network_of(run.trace)
    return {f"{net.call_id(call)}/{name}": place for call in run.trace.calls for name, place in run.nodes(call).items()}


def _first(
    run: ObservedRun,
    errors: dict[tuple[int, int], tuple[float, tuple[int, ...]]],
    fewer: dict[tuple[int, int], Fewer],
) -> tuple[Node, tuple[int, int]] | None:
    """Return the first operation that differs and that the difference of what is returned comes from."""
    net, places = network_of(run.trace), places_of(run)
    found: list[tuple[int, Node, tuple[int, int]]] = []
    pending, seen = [net.call_id(run.trace.root)], set[str]()
    while pending:
        id = pending.pop()
        if id in seen:
            continue
        seen.add(id)
        place = places.get(id)
        if place is not None and place in errors:
            if not errors[place][0] or net.nodes[id].op in UNINITIALISED:
                continue  # equal: what differs before it has no effect; or memory that is yet to be written
            found.append((net.nodes[id].position, net.nodes[id], place))
        pending += _sources(net, id)
    if not found:
        return None
    _, node, place = min(found, key=lambda row: row[0])
    if node.op in VIEWS | COPYING:  # it mixes nothing: what does stands before it
        unknown = _unpaired_before(net, node, {id for id, place in places.items() if place in errors})
        node = unknown[0] if len(unknown) == 1 else node
    else:
        node = _mixing_view(net, node, {id: fewer[place] for id, place in places.items() if place in fewer}) or node
    return node, place


def _cut(results: list[Tensor], alone: list[Tensor]) -> Fewer:
    """Return, by the shape of each result, the dimensions in which an operation returns less for a sample alone."""
    return {
        tuple(one.shape): {dim for dim, sizes in enumerate(zip(one.shape, other.shape)) if sizes[0] != sizes[1]}
        for one, other in zip(results, alone)
        if one.ndim == other.ndim
    }


def _mixing_view(net: Network, node: Node, fewer: dict[str, Fewer]) -> Node | None:
    """Return the reshape before an operation that puts elements of several samples into one place."""
    pending = _sources(net, node.id)
    while pending:
        view = net.nodes[pending.pop()]
        for id in _sources(net, view.id):
            before, after = net.nodes[id].shape, view.shape
            if view.op not in RESHAPES or before is None or after is None:
                continue
            if mixes(before, after, _fewer_in(net, id, fewer).get(before, set())):
                return view
        if view.kind == "placeholder" or view.op in VIEWS:
            pending += _sources(net, view.id)
    return None


def _fewer_in(net: Network, id: str, fewer: dict[str, Fewer]) -> Fewer:
    """Return what a node has less of for a sample alone; one that picks a result of a call has what that has."""
    while id not in fewer:
        node, sources = net.nodes[id], _sources(net, id)
        inner = [each for each in sources if net.nodes[each].shape == node.shape] or sources[:1]
        if not inner or (node.op != "getitem" and node.kind not in ("call_module", "output")):
            return {}
        id = inner[-1]
    return fewer[id]


def mixes(before: tuple[int, ...], after: tuple[int, ...], dims: Set[int]) -> bool:
    """Does a reshape mix some dimensions with others: is it more than to split or to join them?

    >>> mixes((4, 3, 8), (3, 4, 8), {1}), mixes((4, 3, 8), (12, 8), {1}), mixes((4, 3, 8), (4, 3, 2, 4), {1})
    (True, False, False)
    """
    sides = [[(dim, size) for dim, size in enumerate(shape) if size != 1] for shape in (before, after)]
    while all(sides):
        parts = [[side.pop(0)] for side in sides]
        products = [part[0][1] for part in parts]
        while products[0] != products[1]:
            less = int(products[1] < products[0])
            if not sides[less]:
                return False  # of another number of elements
            parts[less].append(sides[less].pop(0))
            products[less] *= parts[less][-1][1]
        if min(map(len, parts)) > 1 and any(dim in dims for dim, _ in parts[0]):
            return True
    return False


def _unpaired_before(net: Network, node: Node, known: Set[str]) -> list[Node]:
    """Return the operations before a node that have no tokens to pair in their result, but for views."""
    found: list[Node] = []
    pending, seen = _sources(net, node.id), set[str]()
    while pending:
        id = pending.pop()
        if id in known or id in seen:
            continue
        seen.add(id)
        one = net.nodes[id]
        computes = one.kind in ("call_function", "call_method") and one.shape is not None
        if computes and one.op not in VIEWS | COPYING:
            found.append(one)
        pending += _sources(net, id)
    return found


def _sources(net: Network, id: str) -> list[str]:
    return [edge.source for edge in net.into.get(id, ())]
