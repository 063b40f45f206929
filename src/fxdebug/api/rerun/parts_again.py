"""Two runs of one sequence, whole in a and in parts in b: what b keeps from one part to the next, beside what a has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.api.comparison import Comparison
from fxdebug.api.rerun.kept_keys import held_otherwise
from fxdebug.api.rerun.places_of_parts import joined_with_gaps, misplaced_part
from fxdebug.api.rerun.stretches import CLOSE, are_alike, places_in, rest_of
from fxdebug.api.rerun.tried_in_traces import LiveRun
from fxdebug.capture.probe import ObservedRun, members, named_tensors, untracked
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.comparison.diagnosis.cause import UNPAIRED
from fxdebug.comparison.pairing.called_in_parts import CALLED
from fxdebug.comparison.result import Row
from fxdebug.data.calls import Call
from fxdebug.data.values import Group
from fxdebug.errors import FxDebugError
from fxdebug.operators.attention import FUSED, bound
from fxdebug.operators.categories import PRODUCTS
from fxdebug.operators.names import CONVOLUTIONS, canonical
from fxdebug.query.network import Network, Node, network_of

MOST = 1 << 20  # elements of a result that is looked at
HIDDEN = -1e3  # what is added to a score to hide its key is below
FACTOR = 0.01  # by which a multiple differs from the thing itself
RECURRENT = frozenset(["gru", "lstm", "rnn_tanh", "rnn_relu"])
ZEROS = frozenset(["zeros", "new_zeros", "zeros_like"])
STARTED = PRODUCTS | frozenset(
    ["add", "sub", "lerp", "addcmul", "cat"]
)  # what a scan makes of the state it begins with


@dataclass(frozen=True)
class _Result:
    """The tensor that an operation returned, with the number of its call and its name."""

    call: int
    position: int
    op: str
    tensor: Tensor


@dataclass(frozen=True)
class _Seen:
    """A run with the results of its operations, in order, and the tensors that it was given."""

    run: ObservedRun
    net: Network
    results: tuple[_Result, ...]
    given: tuple[Tensor, ...]
    model: nn.Module

    def within(self, call: Call) -> list[_Result]:
        """Return the results of the operations in a call."""
        inside = {self.run.place(each)[0] for each in call.walk()}
        return [each for each in self.results if each.call in inside]

    def node(self, result: _Result) -> Node | None:
        """Return the node of a result."""
        call = self.run.call((result.call, result.position))
        names = [name for name, place in self.run.nodes(call).items() if place == (result.call, result.position)]
        return self.net.nodes.get(f"{self.net.call_id(call)}/{names[0]}") if names else None


@dataclass(frozen=True)
class _Part:
    """A call of b on a part, and the call of a on the whole: the part stands at ``start`` of ``length``."""

    whole: Call
    call: Call
    start: int
    count: int
    length: int

    @property
    def text(self) -> str:
        """Its place in words."""
        return f"{self.start}:{self.start + self.count}"


def told_of_parts(found: Comparison, models: Sequence[LiveRun] = ()) -> Comparison:
    """Return a comparison that says what is wrong with what b keeps of the parts before, where runs can be made again.

    It is asked where a module is called on parts, or where nothing that could be paired says since when results differ.
    """
    first = found.first
    if first is None:
        return found
    unlike = first.because.endswith(UNPAIRED) or first.has_two_shapes
    misplaced = (misplaced_part(found.a, found.b) or joined_with_gaps(found.a, found.b)) if unlike else None
    if misplaced is not None:
        node, call = misplaced.node, misplaced.call
        source = node.source if node is not None else call.source
        op = None if node is None else node.op
        told = replace(first, path=call.path, op=op, source=source or first.source, because=misplaced.text, sure=0.9)
        rest = [row for row in found.findings[1:] if not row.has_two_shapes]  # they follow from it
        return replace(found, findings=(told, *rest))
    if not _may_be_of_parts(found, first):
        return found
    sides = (LiveRun.of(found.a, "a"), LiveRun.of(found.b, "b"))
    live = models or [one for one in sides if one is not None]
    if len(live) != 2:
        return found
    try:
        a, b = (_observed(one.model, *one.given) for one in live)
        reason = _reason(a, b, first)
    except FxDebugError:
        raise
    except Exception:  # of the models
        return found
    if reason is None:
        return found
    node, what = reason
    in_parts = first.because.startswith(CALLED)
    told = replace(
        first,
        path=node.path if not in_parts else first.path,
        op=node.op,
        source=node.source or first.source,
        because=f"{what} ({first.because})" if in_parts else what,
        sure=first.sure if in_parts else 0.9,
    )
    return replace(found, findings=(told, *found.findings[1:]))


def _may_be_of_parts(found: Comparison, first: Row) -> bool:
    if first.because.startswith(CALLED) or first.because.endswith(UNPAIRED):
        return True
    counts = [Counter(call.path for call in trace.calls) for trace in (found.a, found.b)]
    in_parts = any(count > 1 and counts[0][path] == 1 for path, count in counts[1].items())
    return in_parts and first.op is not None and canonical(first.op) == "cat"


def _observed(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Seen:
    results: list[_Result] = []

    def look(place: tuple[int, int], name: str, result: Any) -> None:
        if place[1] < 0:
            return
        with untracked(), torch.no_grad():
            for _, tensor in named_tensors(result):
                if type(tensor) is Tensor and 0 < tensor.numel() <= MOST and not tensor.is_complex():
                    results.append(_Result(*place, canonical(name), tensor.detach().clone()))
                    break

    with state_restored(model):
        own, named = deep_copy((tuple(args), dict(kwargs)))
        run = ObservedRun(model, own, named, {"values": "stats"}, look, weights=False)
    if run.raised is not None:
        raise run.raised
    given = tuple([tensor.detach() for _, tensor in named_tensors((args, kwargs)) if type(tensor) is Tensor])
    return _Seen(run, network_of(run.trace), tuple(results), given, model)


def _reason(a: _Seen, b: _Seen, first: Row) -> tuple[Node, str] | None:
    with untracked(), torch.no_grad():
        part = _part_of(a, b, first) if first.because.startswith(CALLED) else None
        results = b.results if part is None else b.within(part.call)
        parameters = {name: each.detach() for name, each in members.named_parameters_of(b.model)}
        known = [*a.given, *[each.tensor for each in (a.results if part is None else a.within(part.whole))]]
        short = None if part is None else _short_cache(a, b, results, part)
        if short is not None:
            return short
        for result in results:
            node = b.node(result)
            if node is None:
                continue
            what = None
            if result.op == "cat":
                what = _wrong_state(
                    b, node, result.tensor, known, a.results, part or _part_at(a, b, node.call), parameters
                )
            elif part is not None and result.op == "softmax":
                what = _other_keys(result, part, a)
            elif part is not None and result.op in RECURRENT:
                what = _wrong_start(b, node, part, a)
            elif part is not None and result.op in ZEROS:
                what = _zeros_again(b, node, result, part, a)
            elif part is not None and (result.op == "pad" or result.op in CONVOLUTIONS):
                what = _padded_again(b, node, result, part, a) or _wrong_place(b, node, result, part, a)
            elif part is not None:
                what = _wrong_place(b, node, result, part, a)
                if what is None and result.op == FUSED:
                    what = _other_fused_keys(b, node, result, part, a)
            if what:
                return node, what
        return None if part is None else _held_otherwise(a, b, part)


def _held_otherwise(a: _Seen, b: _Seen, part: _Part) -> tuple[Node, str] | None:
    """Say which positions a cache holds, where a attends to others."""
    whole = a.within(part.whole)
    fused = [node for each in whole if each.op == FUSED and (node := a.node(each)) is not None]
    causal = any(
        node.step is not None and bound(FUSED, node.step.args, node.step.kwargs).get("is_causal") is True
        for node in fused
    )
    found = held_otherwise(whole, b.within(part.call), part.start, part.count, part.length, causal=causal)
    node = None if found is None else b.node(found[0])
    return None if found is None or node is None else (node, found[1])


def _part_of(a: _Seen, b: _Seen, first: Row) -> _Part | None:
    if first.b is None or first.a is None or first.a.call is None or first.b.call is None:
        return None
    return _part(a.run.trace.calls[first.a.call.index], b.run.trace.calls[first.b.call.index], b)


def _part_at(a: _Seen, b: _Seen, call: Call) -> _Part | None:
    """Return the part that a call is given, by the only call of a of its module."""
    wholes = [each for each in a.run.trace.calls if each.path == call.path]
    return _part(wholes[0], call, b) if len(wholes) == 1 and call.path else None


def _part(whole: Call, call: Call, b: _Seen) -> _Part | None:
    alike = [each for each in b.run.trace.calls if each.path == call.path]
    one, sizes = _shape(whole), [_shape(each) for each in alike]
    dims = [dim for dim, size in enumerate(one) if any(len(s) == len(one) and s[dim] != size for s in sizes)]
    if len(dims) != 1 or call not in alike:
        return None
    counts = [size[dims[0]] for size in sizes]
    at = alike.index(call)
    return _Part(whole, call, sum(counts[:at]), counts[at], one[dims[0]])


def _shape(call: Call) -> tuple[int, ...]:
    return next((tuple(value.shape) for value in call.outputs or ()), ())


# What is put before the new positions ---------------------------------------------------------------


def _wrong_state(
    b: _Seen,
    node: Node,
    joined: Tensor,
    known: Sequence[Tensor],
    results: Sequence[_Result],
    part: _Part | None,
    parameters: Mapping[str, Tensor],
) -> str | None:
    """Say what is put before a new part, where that lies in a beside something else."""
    sides = [edge.value for edge in b.net.into.get(node.id, ()) if edge.value is not None]
    if len(sides) != 2 or any(len(side.shape) != joined.ndim for side in sides):
        return None
    dims = [dim for dim in range(joined.ndim) if sum(side.shape[dim] for side in sides) == joined.shape[dim]]
    dims = [dim for dim in dims if all(rest_of(side.shape, dim) == rest_of(joined.shape, dim) for side in sides)]
    if len(dims) != 1:
        return None
    dim, kept = dims[0], sides[0].shape[dims[0]]
    state, new = joined.narrow(dim, 0, kept), joined.narrow(dim, kept, joined.shape[dim] - kept)
    if not kept or not new.numel() or bool((new == new.flatten()[0]).all()):
        return None
    for whole in known:
        place, sure = _place_of(whole, new, dim)
        if not place:
            continue
        count = min(kept, place)
        wanted, own = whole.narrow(dim, place - count, count), state.narrow(dim, kept - count, count)
        if are_alike(own, wanted):
            return None
        if not sure and not _relation(own, wanted, dim, parameters):
            continue
        # by what stands before the first position of a
        padded = 0 if part is None else max(0, min(place - part.start, whole.shape[dim] - part.length))
        at_end = place - padded
        there = f"{at_end - count}:{at_end}"
        before = f"before positions {at_end}:{at_end + new.shape[dim]} it puts "
        if not bool(own.any()):
            return f"{before}0, not what a has at {there}"
        shifted = places_in(whole, own, dim)
        if shifted:
            return f"{before}what a has at {shifted[0] - padded}:{shifted[0] - padded + count}, not at {there}"
        relation = _relation(own, wanted, dim, parameters)
        if relation:
            return f"{before}what a has at {there}{relation}"
        for other in results:
            tensor = other.tensor
            fits = tensor.ndim == own.ndim and rest_of(tensor.shape, dim) == rest_of(own.shape, dim)
            if fits and tensor.shape[dim] >= at_end and are_alike(own, tensor.narrow(dim, at_end - count, count)):
                return f"{before}what {other.op} returns in a at {there}, not what a has there"
        return f"{before}something else than what a has at {there}"
    return None


def _place_of(whole: Tensor, new: Tensor, dim: int) -> tuple[int, bool]:
    """Return where a part lies in a whole, if at one place; or, less surely, its first half: its end may be unfinished.

    Of parts that overlap, the next one adds to the end.
    """
    at = places_in(whole, new, dim)
    if len(at) == 1:
        return at[0], True
    half = new.narrow(dim, 0, new.shape[dim] // 2)
    at = places_in(whole, half, dim) if half.shape[dim] > 1 and not at else []
    return (at[0] if len(at) == 1 else 0), False


def _relation(own: Tensor, wanted: Tensor, dim: int, parameters: Mapping[str, Tensor]) -> str:
    """Say that what is kept is a multiple of what it should be, or more by a parameter; empty for anything else."""
    if own.shape != wanted.shape or not own.is_floating_point() or not bool(wanted.any()):
        return ""
    factor = float((own * wanted).sum() / wanted.square().sum())
    if abs(factor - 1) > FACTOR and factor and are_alike(own, factor * wanted):
        return f", times {factor:.4g}"
    for name, parameter in parameters.items():
        shape = [1] * own.ndim
        sizes = [at for at in range(own.ndim) if at != dim and own.shape[at] == parameter.numel()]
        for at in sizes if parameter.ndim == 1 and bool(parameter.any()) else ():
            shape[at] = -1
            for times, word in ((1, ", and {} once more: each part that overlaps there adds it"), (-1, ", without {}")):
                if are_alike(own, wanted + times * parameter.reshape(shape)):
                    return word.format(name)
            shape[at] = 1
    return ""


# A recurrent layer, and an operation on the new positions alone --------------------------------------


def _wrong_start(b: _Seen, node: Node, part: _Part, a: _Seen) -> str | None:
    """Say with which state a recurrent layer begins a part, by its size."""
    edges = [edge.value for edge in b.net.into.get(node.id, ()) if edge.value is not None and not edge.value.name]
    states = [value for value in edges if len(value.shape) == 3 and value.stats is not None][1:2]
    if not states or not part.start or states[0].stats is None:
        return None
    if states[0].stats.absmax == 0:
        return f"it begins at {part.start} with the state 0: that after position {part.start - 1} is not passed on"
    for whole in a.within(part.whole):
        if whole.op in RECURRENT and whole.tensor.ndim == 3:
            dim = next((dim for dim in (0, 1) if whole.tensor.shape[dim] == part.length), None)
            if dim is None:
                continue
            states_of_a = [float(one.double().square().mean().sqrt()) for one in whole.tensor.unbind(dim)]
            own = _size(states[0].stats)
            if own is None or abs(own - states_of_a[part.start - 1]) <= CLOSE * own:
                return None
            at = [place for place, size in enumerate(states_of_a) if abs(size - own) <= CLOSE * own]
            after = f"that after position {at[0]} of a" if at else "a state that a has nowhere"
            return f"it begins at {part.start} with {after}, not with that after position {part.start - 1}"
    return None


def _zeros_again(b: _Seen, node: Node, result: _Result, part: _Part, a: _Seen) -> str | None:
    """Say that a part begins with the zeros that a begins with, as a scan whose state is not passed on.

    Their size does not depend on that of the part, as that of room for results does; something is computed of them.
    """
    if not part.start or result.tensor.any():
        return None
    own = [each for each in a.within(part.whole) if each.op == result.op and each.tensor.shape == result.tensor.shape]
    users = [b.net.nodes.get(edge.target) for edge in b.net.out_of.get(node.id, ())]
    if not own or not any(user is not None and user.op in STARTED for user in users):
        return None
    return f"it begins at {part.start} with zeros, as at 0: what the positions before it left is not passed on"


def _padded_again(b: _Seen, node: Node, result: _Result, part: _Part, a: _Seen) -> str | None:
    """Say that zeros are put before the first position of a part, as before that of a, which has others there."""
    given = next((edge.value for edge in b.net.into.get(node.id, ()) if edge.value is not None), None)
    if not part.start or given is None or not any(each.op == result.op for each in a.within(part.whole)):
        return None
    left = max((_zeros_before(node, result, given.shape, dim) for dim in _of_size(given.shape, part.count)), default=0)
    if not left:
        return None
    there = f"{max(0, part.start - left)}:{part.start}"
    return f"before positions {part.text} it puts 0, not what a has at {there}"


def _of_size(shape: Sequence[int], size: int) -> list[int]:
    return [dim for dim, each in enumerate(shape) if each == size]


def _zeros_before(node: Node, result: _Result, given: Sequence[int], dim: int) -> int:
    """Return how many zeros an operation puts before the first position along a dimension."""
    if result.op == "pad":
        added = result.tensor.shape[dim] - given[dim] if result.tensor.ndim == len(given) else 0
        return next((at for at in range(added) if result.tensor.narrow(dim, at, 1).any()), max(added, 0))
    args, kwargs = (node.step.args, node.step.kwargs) if node.step is not None else ((), {})
    padding = kwargs.get("padding", args[4] if len(args) > 4 else 0)
    sizes = padding.items if isinstance(padding, Group) else (padding,) * len(given)
    size = sizes[dim - 2] if 2 <= dim < 2 + len(sizes) else 0
    return size if isinstance(size, int) else 0


def _size(stats: Any) -> float | None:
    """Return the root mean square of a value by its statistics."""
    if stats.mean is None or stats.std is None or not stats.count:
        return None
    spread = float(stats.std) ** 2 * (stats.count - 1) / stats.count
    return float((float(stats.mean) ** 2 + spread) ** 0.5)


def _wrong_place(b: _Seen, node: Node, result: _Result, part: _Part, a: _Seen) -> str | None:
    """Say for which positions of a an operation on a part returns what it does, where it is for others.

    What uses it returns something else than in a, too: a count may begin at 0 and be shifted later.
    """
    places = _places_in_a(result, part, a)
    causal = "" if part.start in places else _causal_from_the_first(b, node)
    if causal:
        return causal
    if not places or part.start in places or not _has_effect(b, node, part, a):
        return None
    if not _was_right_before(b, result, part, a):
        return None  # as in parts that return what a does
    there = f"{places[0]}:{places[0] + part.count}"
    return f"for positions {part.text} it returns what {result.op} of a returns for {there}"


def _causal_from_the_first(b: _Seen, node: Node) -> str:
    """Say how many keys the queries of a part see by ``is_causal``, which counts both from their first."""
    if node.op != FUSED or node.step is None:
        return ""
    given = bound(FUSED, node.step.args, node.step.kwargs)
    sizes = [edge.value.shape[-2] for edge in b.net.into.get(node.id, ()) if edge.value is not None][:2]
    if given.get("is_causal") is not True or len(sizes) != 2 or sizes[0] >= sizes[1]:
        return ""
    queries = f"its {sizes[0]} queries" if sizes[0] > 1 else "its query"
    return f"is_causal counts from the first key: {queries} see{'s' * (sizes[0] == 1)} {sizes[0]} of {sizes[1]} keys"


def _was_right_before(b: _Seen, result: _Result, part: _Part, a: _Seen) -> bool:
    """Did the same operation return what a does at its place in the part before, if there is one of that size?"""
    at = [each.op for each in b.within(part.call)], b.within(part.call).index(result)
    alike = [each for each in b.run.trace.calls if each.path == part.call.path]
    for call in reversed(alike[: alike.index(part.call)]):
        before, own = _part(part.whole, call, b), b.within(call)
        if before is not None and before.count == part.count and before.start and [each.op for each in own] == at[0]:
            return before.start in _places_in_a(own[at[1]], before, a)
    return True


def _has_effect(b: _Seen, node: Node, part: _Part, a: _Seen) -> bool:
    """Does no operation that uses a result return what it does in a, and does one return something else?"""
    of_nodes = {found.id: result for result in b.within(part.call) if (found := b.node(result)) is not None}
    pending, seen, differing = [node.id], {node.id}, False
    while pending:
        for edge in b.net.out_of.get(pending.pop(), ()):
            user = of_nodes.get(edge.target)
            if edge.target in seen:
                continue
            seen.add(edge.target)
            if user is None:
                pending.append(edge.target)
            elif part.start in _places_in_a(user, part, a):
                return False
            else:
                differing = True
    return differing


def _places_in_a(result: _Result, part: _Part, a: _Seen) -> list[int]:
    """Return the positions at which an operation of a returns what one on a part does."""
    places: list[int] = []
    for whole in a.within(part.whole):
        dims = _longer(whole.tensor, result.tensor, part)
        if whole.op != result.op or len(dims) != 1:
            continue
        places += places_in(whole.tensor, result.tensor, dims[0])
    return places


def _other_keys(result: _Result, part: _Part, a: _Seen) -> str | None:
    """Say how many keys the last position of a part has weights for, where a has weights for more or fewer."""
    for whole in a.within(part.whole):
        one, other = whole.tensor, result.tensor
        if whole.op != "softmax" or one.ndim != other.ndim or one.ndim < 2 or one.shape[:-2] != other.shape[:-2]:
            continue
        if (other.shape[-2], one.shape[-2]) != (part.count, part.length):
            continue
        for at in range(part.count):
            rows = one[..., part.start + at, :], other[..., at, :]
            seen = [int((row.reshape(-1, row.shape[-1])[0] != 0).sum()) for row in rows]
            if seen[0] != seen[1]:
                return f"position {part.start + at} attends to {seen[1]} keys, to {seen[0]} in a"
    return None


def _other_fused_keys(b: _Seen, node: Node, result: _Result, part: _Part, a: _Seen) -> str | None:
    """Say how many keys the last position of a part sees by its mask, where a sees more or fewer."""
    for whole in a.within(part.whole):
        in_a = a.node(whole) if whole.op == FUSED and len(_longer(whole.tensor, result.tensor, part)) == 1 else None
        if in_a is None:
            continue
        last = part.count - 1
        seen, wanted = _keys_seen(b, node, last), _keys_seen(a, in_a, part.start + last)
        if seen is not None and wanted is not None and seen != wanted:
            return f"position {part.start + last} attends to {seen} keys, to {wanted} in a"
    return None


def _keys_seen(side: _Seen, node: Node, query: int) -> int | None:
    """Return how many keys a query sees; ``None`` where its mask is not known."""
    if node.step is None:
        return None
    edges = [edge for edge in side.net.into.get(node.id, ()) if edge.value is not None]
    masks = [edge for edge in edges if edge.argument.rpartition(".")[2] in ("attn_mask", "args[3]")]
    sizes = [edge.value.shape for edge in edges[:2] if edge.value is not None]
    if len(sizes) < 2 or len(sizes[1]) < 2:
        return None
    keys = sizes[1][-2]
    if not masks:
        is_causal = bound(FUSED, node.step.args, node.step.kwargs).get("is_causal") is True
        return min(query + 1, keys) if is_causal else keys
    made = [each for each in side.results if (one := side.node(each)) is not None and one.id == masks[0].source]
    if len(made) != 1 or made[0].tensor.shape[-1] != keys or made[0].tensor.ndim < 2:
        return None
    mask = made[0].tensor.reshape(-1, *made[0].tensor.shape[-2:])[0]
    row = mask[query if mask.shape[0] > 1 else 0]
    return int((row if row.dtype == torch.bool else row > HIDDEN).sum())


def _short_cache(a: _Seen, b: _Seen, results: Sequence[_Result], part: _Part) -> tuple[Node, str] | None:
    """Say that b keeps fewer positions before a part than a position of a attends to, by weights or by their mask."""
    for result in results:
        other = result.tensor
        if other.ndim < 2 or other.shape[-2] != part.count or not part.count < other.shape[-1] <= part.length:
            continue
        if result.op != "softmax" and other.dtype != torch.bool:
            continue
        first = part.start + part.count - other.shape[-1]  # the position of a that its first column stands for
        for whole in a.within(part.whole):
            one = whole.tensor
            if (whole.op, one.dtype, one.ndim) != (result.op, other.dtype, other.ndim) or first <= 0:
                continue
            if one.shape[:-2] != other.shape[:-2] or one.shape[-2:] != (part.length, part.length):
                continue
            rows = one[..., part.start : part.start + part.count, :].reshape(-1, part.count, part.length)[0] != 0
            own = other.reshape(-1, part.count, other.shape[-1])[0] != 0
            if result.op != "softmax" and not torch.equal(rows[:, first:], own):
                continue  # a mask of what is hidden, or another one
            at = next((at for at in range(part.count) if bool(rows[at, :first].any())), None)
            node = b.node(result)
            if at is None or node is None:
                continue
            needed = int(rows[at].nonzero()[0])
            kept = f"{other.shape[-1] - part.count} position{'s' if other.shape[-1] - part.count > 1 else ''}"
            return node, (
                f"position {part.start + at} attends to keys from {needed} on in a; b keeps {kept} before "
                f"{part.text}, from {first} on"
            )
    return None


def _longer(whole: Tensor, part: Tensor, of: _Part) -> list[int]:
    if whole.ndim != part.ndim:
        return []
    return [dim for dim in range(part.ndim) if (part.shape[dim], whole.shape[dim]) == (of.count, of.length)]
