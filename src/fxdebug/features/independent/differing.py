"""Operations of two runs that differ at the places of a sample, and the first of them with an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.probe import ObservedRun, named_tensors, untracked
from fxdebug.data.calls import Call
from fxdebug.features.independent.beside import Alone, AloneInList, AloneInPack
from fxdebug.operators.categories import VIEWS
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import COPYING, UNINITIALISED
from fxdebug.query.network import Network, Node, network_of

RESHAPES = frozenset(["view", "reshape", "flatten", "unflatten"])
ROUNDINGS, MOST = 1024, 0.05  # kernels add in another order when the batch is of another size


Fewer: TypeAlias = dict[tuple[int, ...], Set[int]]
"""The dimensions in which results of a shape are shorter for a sample alone."""


Place: TypeAlias = "tuple[int, int]"
Key: TypeAlias = "tuple[str, int, str, int]"
"""The path of a call and how many calls of that path came before; the name of an operation in it, and its number."""


class Results:
    """The results of the operations of a run, copied as they are made."""

    def __init__(self) -> None:
        self.of: dict[Place, tuple[str, list[Tensor]]] = {}

    def look(self, place: Place, name: str, result: Any) -> None:
        """Keep a result."""
        with untracked(), torch.no_grad():
            kept = [tensor.detach().clone() for _, tensor in named_tensors(result) if type(tensor) is Tensor]
        self.of[place] = name if place[1] >= 0 else "", kept


@dataclass(frozen=True)
class Seen:
    """A run with the results of its operations."""

    run: ObservedRun
    results: Results

    @cached_property
    def of(self) -> dict[Place, list[Tensor]]:
        """Results by their places."""
        return {place: results for place, (_, results) in self.results.of.items()}

    @cached_property
    def keys(self) -> dict[Place, Key]:
        """Names of the operations in each run: a call that the other run has not, does not shift the others."""
        paths = {self.run.place(call)[0]: call.path for call in self.run.trace.calls}
        before, numbers = Counter[str](), dict[int, int]()
        for number, path in sorted(paths.items()):
            numbers[number] = before[path]
            before[path] += 1
        keys: dict[Place, Key] = {}
        count = Counter[tuple[int, str]]()
        for place, (name, _) in self.results.of.items():
            keys[place] = paths[place[0]], numbers[place[0]], name, count[place[0], name]
            count[place[0], name] += 1
        return keys

    @cached_property
    def calls(self) -> Counter[str]:
        """Count of the calls of each module, by its path."""
        return Counter(call.path for call in self.run.trace.calls)

    @cached_property
    def by_key(self) -> dict[Key, list[Tensor]]:
        """Results by the names of their operations."""
        return {key: self.of[place] for place, key in self.keys.items()}

    @cached_property
    def times(self) -> Counter[tuple[str, int, str]]:
        """Count of each operation in each call."""
        return Counter(key[:3] for key in self.keys.values())


@dataclass(frozen=True)
class OneSided:
    """A call of a module that one of two runs never calls: the run with all samples, or that of one alone."""

    call: Call
    is_given: bool


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
    one_sided: OneSided | None = None


def difference(given: Seen, other: Seen, alone: Alone, cut: Sequence[Seen]) -> Difference:
    """Compare a run with that of a sample alone, operation by operation; ``cut`` are runs of parts of what is given."""
    errors: dict[Place, tuple[float, tuple[int, ...]]] = {}
    unpaired, end = 0, given.run.place(given.run.trace.root)
    used = _used_results(given.run)
    for place, key in given.keys.items():
        results = given.of[place]
        parts = [one.by_key.get(key, []) for one in cut]
        faces = other.by_key.get(key, []) if _is_one(key, given, other, alone) else []
        pairs = [
            (alone.pair(a, b, [part[number] for part in parts if number < len(part)]), a)
            for number, (a, b) in enumerate(zip(results, faces))
            if number in used.get(place, (number,))
        ]
        known = [(*pair, a) for pair, a in pairs if pair is not None]
        by_token = [(part, b, a) for part, b, a in known if alone.token_dims(a, part)]
        if alone.shares_row and (by_token or (place == end and alone.row is None)):
            known = by_token
        unpaired += len(known) < len(results) or key not in other.by_key
        if known:
            worst = max(((_error(part, other), part, other, a) for part, other, a in known), key=lambda row: row[0])
            errors[place] = worst[0], _tokens(*worst[1:], alone)
    error = errors.get(end, (0.0, ()))[0]
    fewer = {place: _cut(given.of[place], other.by_key.get(key, [])) for place, key in given.keys.items()}
    first = _first(given.run, other.run, errors, fewer) if error else None
    if first is None:
        return Difference(error, len(errors), unpaired, is_known=end in errors)
    node, place = first
    return Difference(
        error,
        len(errors),
        unpaired,
        node,
        errors[place][0],
        places=errors[place][1],
        one_sided=_one_sided(given, other, place, errors),
    )


@dataclass(frozen=True)
class OtherCount:
    """Fewer or more results than samples of a pack: the operation that makes them, and the samples that have none."""

    count: int
    node: Node | None
    lacking: tuple[str, ...]


def other_count(given: Seen, alone: Sequence[tuple[AloneInPack, Seen]]) -> OtherCount | None:
    """Return how many results a pack has, where each sample alone has one, and they are not as many as the samples."""
    end = given.run.place(given.run.trace.root)
    whole = next(iter(given.of.get(end, [])), None)
    single = [(one.name, next(iter(seen.of.get(seen.run.place(seen.run.trace.root), [])), None)) for one, seen in alone]
    known = [(name, result) for name, result in single if result is not None and result.ndim and len(result) == 1]
    if whole is None or not whole.ndim or not known or len(known) < len(single):
        return None
    count, first = len(whole), alone[0][0]
    if count in (first.samples, first.length) or any(each.shape[1:] != whole.shape[1:] for _, each in known):
        return None
    lacking = [name for name, result in known if all(_error(whole[row : row + 1], result) for row in range(count))]
    return OtherCount(count, _counting(given, first.length, count), tuple(lacking) if len(lacking) < len(known) else ())


def _counting(given: Seen, length: int, count: int) -> Node | None:
    """Return the first operation that makes so many results of tokens."""
    net = network_of(given.run.trace)
    for node in sorted(net.nodes.values(), key=lambda each: each.position):
        before = [net.nodes[id] for id in _sources(net, node.id)]
        made = [value.shape for value in node.values]
        if node.kind not in ("call_function", "call_method") or any(length in shape for shape in made):
            continue
        makes = len(made) == count or (len(made) == 1 and made[0][:1] == (count,))
        if makes and any(length in (each.shape or ()) for each in before):
            return node
    return None


def _is_one(key: Key, given: Seen, other: Seen, alone: Alone) -> bool:
    """Do an operation and its call have the same number in both runs: not where one run repeats it for each sample?"""
    if alone.is_from_the_first:
        return True
    path = key[0]
    if isinstance(alone, AloneInList) and given.times[key[:3]] != other.times[key[:3]]:
        return False
    return given.calls[path] == other.calls[path] or not (given.calls[path] and other.calls[path])


def _one_sided(given: Seen, other: Seen, place: Place, errors: Mapping[Place, tuple[float, object]]) -> OneSided | None:
    """Return the module that a result comes from in one run, and that the other run never calls; ``None`` without one.

    Between it and the result nothing stands that both runs return alike.
    """
    key = given.keys[place]
    alike = {given.keys[each] for each, (error, _) in errors.items() if not error}
    for one, another, is_given in ((given, other, True), (other, given, False)):
        net = network_of(one.run.trace)
        ids = {each: id for id, each in places_of(one.run).items()}
        of_ids = {id: one.keys.get(each) for each, id in ids.items()}
        start = next((each for each, own in one.keys.items() if own == key), None)
        calls = {net.call_id(call): call for call in one.run.trace.calls}
        pending, seen = [ids[start]] if start in ids else [], set[str]()
        found: list[Call] = []
        while pending:
            id = pending.pop()
            if id in seen:
                continue
            seen.add(id)
            call = calls.get(id) or calls.get(id.rpartition("/")[0])
            if call is not None and not another.calls[call.path] and not _is_one_of_several(call, another):
                found.append(call)
            if len(seen) > 1 and of_ids.get(id) in alike:
                continue
            pending += _sources(net, id)
        if found:
            first = min(found, key=lambda call: call.index)
            while first.parent is not None and not another.calls[first.parent.path]:
                first = first.parent
            return OneSided(first, is_given)
    return None


def _is_one_of_several(call: Call, another: Seen) -> bool:
    """Does another run call others of the same list, as of experts that are chosen by what they are given?"""
    container, _, number = call.path.rpartition(".")
    return number.isdigit() and any(path.rpartition(".")[0] == container for path in another.calls)


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
    return tuple(alone.places[kept.cpu()].tolist()) if len(kept) == len(alone.places) else ()


def _used_results(run: ObservedRun) -> dict[Place, Set[int]]:
    """Return which results of the operations that have several what is returned depends on, by their numbers."""
    net = network_of(run.trace)
    used: dict[str, set[int | None]] = {}
    pending: list[tuple[str, int | None]] = [(net.call_id(run.trace.root), None)]
    while pending:
        id, number = pending.pop()
        if number in used.setdefault(id, set()):
            continue
        used[id].add(number)
        kind = net.nodes[id].kind
        edges = [(each.source, None if each.value is None else each.value.number) for each in net.into.get(id, ())]
        if kind == "call_module":  # what a call returns has one edge, from its output
            edges = [(source, number) for source, _ in edges]
        elif kind == "output" and number is not None:
            passed = [source for source, _ in edges if any(number == v.number for v in net.nodes[source].values)]
            edges = [(source, number) for source in passed] or edges
        pending += edges
    found: dict[Place, Set[int]] = {}
    for id, place in places_of(run).items():
        if id not in used:
            continue
        numbers = [value.number for value in net.nodes[id].values]
        kept = {at for at, number in enumerate(numbers) if number in used[id]}
        if len(numbers) > 1 and kept and None not in used[id]:
            found[place] = kept
    return found


def places_of(run: ObservedRun) -> dict[str, tuple[int, int]]:
    """Return the places of the operations of a run by their ids."""
    net = network_of(run.trace)
    return {f"{net.call_id(call)}/{name}": place for call in run.trace.calls for name, place in run.nodes(call).items()}


def _first(
    run: ObservedRun,
    alone: ObservedRun,
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
        shorter = {id: fewer[place] for id, place in places.items() if place in fewer}
        node = _mixing_view(net, network_of(alone.trace), node, shorter) or node
    return node, place


def _cut(results: list[Tensor], alone: list[Tensor]) -> Fewer:
    """Return, by the shape of each result, the dimensions in which an operation returns less for a sample alone."""
    return {
        tuple(one.shape): {dim for dim, sizes in enumerate(zip(one.shape, other.shape)) if sizes[0] != sizes[1]}
        for one, other in zip(results, alone)
        if one.ndim == other.ndim
    }


def _mixing_view(net: Network, alone: Network, node: Node, fewer: dict[str, Fewer]) -> Node | None:
    """Return the reshape before an operation that puts elements of several samples into one place."""
    pending = _sources(net, node.id)
    while pending:
        view = net.nodes[pending.pop()]
        for id in _sources(net, view.id):
            before, after = net.nodes[id].shape, view.shape
            if view.op not in RESHAPES or before is None or after is None:
                continue
            if mixes(before, after, _fewer_in(net, id, fewer).get(before) or _shorter(net, alone, id)):
                return view
        if view.kind == "placeholder" or view.op in VIEWS:
            pending += _sources(net, view.id)
    return None


def mixed_by(run: ObservedRun, view: Node) -> str:
    """Return the shapes of a reshape that mixes dimensions: ``7×4×12 becomes 4×84``; empty for any other operation."""
    net = network_of(run.trace)
    for id in _sources(net, view.id) if view.op in RESHAPES else ():
        before, after = net.nodes[id].shape, view.shape
        if before is not None and after is not None and mixes(before, after, set(range(len(before)))):
            return " becomes ".join("×".join(map(str, shape)) for shape in (before, after))
    return ""


def _shorter(net: Network, alone: Network, id: str) -> Set[int]:
    """Return the dimensions of a view, of which no result was kept, that are shorter for a sample alone."""
    both = [one.nodes[id].shape if id in one.nodes else None for one in (net, alone)]
    if both[0] is None or both[1] is None or len(both[0]) != len(both[1]):
        return set()
    return {dim for dim, (size, less) in enumerate(zip(*both)) if size != less}


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
