"""Places of what calls on parts are given in what the one on the whole is given: frames off their grid, or left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fxdebug.api.rerun.stretches import places_in, rest_of
from fxdebug.capture.probe import untracked
from fxdebug.comparison.pairing.called_in_parts import once_and_several_times
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Value
from fxdebug.operators.names import CONVOLUTIONS, canonical
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node, network_of

FEWEST = 3  # positions of a part that is looked for: one alone may be as another one by a fault of its own
POOLS = frozenset([f"{kind}_pool{dim}d" for kind in ("avg", "max") for dim in (1, 2, 3)])


@dataclass(frozen=True)
class Misplaced:
    """A call on a part that is given other places than it should be, with the operation that cuts them, if one does."""

    call: Call
    node: Node | None
    text: str


def misplaced_part(a: TraceData, b: TraceData) -> Misplaced | None:
    """Return the first call of b on a part that begins between two windows of a, or behind a gap; ``None`` without one.

    It takes what calls are given, and what they return, of both runs; parts are found in a by their numbers.
    """
    with untracked(), torch.no_grad():
        for whole, calls in once_and_several_times(a, b):
            given = _tensor(a, whole.inputs)
            parts = [_tensor(b, call.inputs) for call in calls]
            found = _starts(given, parts)
            if given is None or found is None:
                continue
            dim, starts = found
            for number, (call, start) in enumerate(zip(calls, starts)):
                if _returns_a_part(a, whole, b, call):
                    continue
                node = _windows(b, call, start, dim)
                if node is not None:
                    return Misplaced(call, node[0], _between(node[0].op, node[1], number, start))
            ends = [start + part.shape[dim] for start, part in zip(starts, parts) if part is not None]
            for number, start in enumerate(starts[1:], 1):
                reached = max(ends[:number])
                if start > reached:
                    left = f"{reached}:{start}" if start - reached > 1 else f"{reached}"
                    what = (
                        f"part {number} of what it is given begins at {start} of what a has, and those before end at "
                    )
                    return Misplaced(calls[number], None, f"{what}{reached}: {left} is left out")
    return None


def joined_with_gaps(a: TraceData, b: TraceData) -> Misplaced | None:
    """Return the first part that b joins to what it returns behind a gap in a, or once more; ``None`` without one.

    Parts are found in what a returns by the numbers in their last half: those in front may see other neighbours.
    """
    with untracked(), torch.no_grad():
        one, other = (next(iter(trace.root.returned or trace.root.outputs or ()), None) for trace in (a, b))
        whole, joined = (None if each is None else _tensor(trace, [each]) for trace, each in ((a, one), (b, other)))
        if whole is None or joined is None or joined.ndim != whole.ndim:
            return None
        net = network_of(b)
        joins = [node for node in net.nodes.values() if canonical(node.op) == "cat" and node.shape == joined.shape]
        edges = net.into.get(joins[-1].id, ()) if joins else ()
        shapes = [edge.value.shape for edge in edges if edge.value is not None and len(edge.value.shape) == whole.ndim]
        if not shapes or len(shapes) < len(edges):
            return None
        dims = [dim for dim in range(whole.ndim) if {whole.shape[dim], shapes[0][dim]} != {joined.shape[dim]}]
        if len(dims) != 1:
            return None
        dim, node, reached, at = dims[0], joins[-1], 0, 0
        sizes = [shape[dim] for shape in shapes]
        if sum(sizes) != joined.shape[dim] or min(sizes) < FEWEST:
            return None
        for number, (edge, size) in enumerate(zip(edges, sizes)):
            half = size // 2
            places = places_in(whole, joined.narrow(dim, at + half, size - half), dim)
            if len(places) != 1:
                return None
            start = places[0] - half
            if start != reached:
                return Misplaced(b.root, node, _unlike(net, edge, dim, number, start, reached))
            at, reached = at + size, start + size
    return None


def _unlike(net: Network, edge: Edge, dim: int, number: int, start: int, reached: int) -> str:
    """Say which part begins elsewhere than where those before it end, and what it is cut from."""
    left = f"{min(start, reached)}:{max(start, reached)}"
    fault = "left out" if start > reached else "there twice"
    what = f"part {number} that it joins begins at {start} of what a returns, and those before end at {reached}: "
    what += f"{left} is {fault}"
    maker = net.nodes.get(edge.source)
    cut = [one.value for one in net.into.get(edge.source, ()) if one.value is not None]
    if maker is None or maker.op != "getitem" or len(cut) != 1 or edge.value is None or len(cut[0].shape) <= dim:
        return what
    return f"{what} (the part is {edge.value.shape[dim]} of {cut[0].shape[dim]}, by {maker.op})"


def _between(op: str, step: int, number: int, start: int) -> str:
    before = start // step * step
    return (
        f"part {number} of what it is given begins at {start} of what a has, between two windows, which begin at "
        f"{before} and {before + step} there: {op} makes one every {step}"
    )


def _tensor(trace: TraceData, values: Iterable[Value]) -> Tensor | None:
    """Return the first of some values, where its data are there."""
    value = next(iter(values), None)
    if value is None or value.saved is None or not value.numel:
        return None
    try:
        return trace.tensor(value).detach()
    except Exception:  # deleted since
        return None


def _starts(whole: Tensor | None, parts: Sequence[Tensor | None]) -> tuple[int, list[int]] | None:
    """Return the dimension of the parts, and where each begins; ``None`` where one lies nowhere, or twice."""
    if whole is None or not whole.is_floating_point():
        return None
    dims = [
        dim
        for dim in range(whole.ndim)
        if all(
            part is not None
            and part.ndim == whole.ndim
            and part.shape[dim] < whole.shape[dim]
            and rest_of(part.shape, dim) == rest_of(whole.shape, dim)
            for part in parts
        )
    ]
    if len(dims) != 1:
        return None
    places = [places_in(whole, part, dims[0]) for part in parts if part is not None]
    if any(len(each) != 1 for each in places):
        return None
    return dims[0], [each[0] for each in places]


def _returns_a_part(a: TraceData, whole: Call, b: TraceData, call: Call) -> bool:
    one, other = _tensor(a, whole.outputs or ()), _tensor(b, call.outputs or ())
    if one is None or other is None or one.ndim != other.ndim:
        return True  # nothing is known
    return any(bool(places_in(one, other, dim)) for dim in range(one.ndim))


def _windows(b: TraceData, call: Call, start: int, dim: int) -> tuple[Node, int] | None:
    """Return the first operation of a call that takes windows of what it is given, if none begins at a place of a."""
    net = network_of(b)
    size = next((value.shape[dim] for value in call.inputs), 0)
    prefix = f"{net.call_id(call)}/"
    for node in (each for id, each in net.nodes.items() if id.startswith(prefix)):
        shapes = [edge.value.shape for edge in net.into.get(node.id, ()) if edge.value is not None]
        dims = [at for at, each in enumerate(shapes[0]) if each == size] if shapes else []
        step = _step(node, dims[0], len(shapes[0])) if len(dims) == 1 else 0
        if step > 1:
            return (node, step) if start % step else None
    return None


def _step(node: Node, dim: int, ndim: int) -> int:
    """Return by how many places the windows of an operation are apart along a dimension; 0 where it takes none."""
    if node.step is None:
        return 0
    args, kwargs, name = node.step.args, node.step.kwargs, canonical(node.op)
    if name == "unfold":
        of_dim, step = kwargs.get("dimension", args[1] if len(args) > 1 else None), kwargs.get("step", args[-1])
        return step if isinstance(of_dim, int) and of_dim % ndim == dim and isinstance(step, int) else 0
    if name in CONVOLUTIONS:
        step = kwargs.get("stride", args[3] if len(args) > 3 else 1)
    elif name in POOLS:
        window = kwargs.get("kernel_size", args[1] if len(args) > 1 else 0)
        step = kwargs.get("stride", args[2] if len(args) > 2 else None) or window
    else:
        return 0
    steps = step.items if isinstance(step, Group) else (step,) * ndim
    at = dim - 2
    found = steps[at if len(steps) > 1 else 0] if 0 <= at < max(len(steps), ndim - 2) else 0
    return found if isinstance(found, int) else 0
