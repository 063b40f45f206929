"""The numbers of a run by the names of their measures: those that every trace has, and those that analyses took.

Every trace has the statistics and sizes of tensors, the parameters of modules and the durations of calls. A measure of
tensors is, of a call or an operation, that of the first tensor of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from fxdebug.data.calls import Call, Origin, Parameter
from fxdebug.data.measures import CALL, OPERATION, PARAMETER, VALUE, Measure, Subject, Taken, Unit, register
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats, Value, pooled
from fxdebug.errors import UsageError, nearest
from fxdebug.operators.dtypes import bytes_of
from fxdebug.query.network import Node, network_of, root_name

Tensor: TypeAlias = Value | Parameter
Number: TypeAlias = float | int | complex | None
Item: TypeAlias = Call | Node | Tensor

_TENSORS: Final[tuple[Subject, ...]] = (CALL, OPERATION, VALUE, PARAMETER)


def _of_tensors(name: str, about: str, unit: Unit = "", *, adds: bool = False) -> Measure:
    return register(name, unit, about, _TENSORS, adds=adds)


STATISTICS: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        _of_tensors("count", "elements that were measured", adds=True),
        _of_tensors("mean", "mean of the finite elements"),
        _of_tensors("std", "standard deviation of the finite elements, with n − 1"),
        _of_tensors("min", "smallest finite element"),
        _of_tensors("max", "largest finite element"),
        _of_tensors("absmax", "largest magnitude of a finite element"),
        _of_tensors("nan", "elements that are NaN", adds=True),
        _of_tensors("posinf", "elements that are +Inf", adds=True),
        _of_tensors("neginf", "elements that are −Inf", adds=True),
        _of_tensors("inf", "elements that are +Inf or −Inf", adds=True),
        _of_tensors("zeros", "elements that are 0", adds=True),
        _of_tensors("finite", "elements that are neither NaN nor infinite", adds=True),
    )
}
_NUMEL = _of_tensors("numel", "elements of the tensor", adds=True)
_NDIM = _of_tensors("ndim", "dimensions of the tensor")
_REQUIRES_GRAD = _of_tensors("requires_grad", "1 for a tensor that requires a gradient, else 0")
_BYTES = _of_tensors("bytes", "bytes of the tensor's elements", "B", adds=True)
_DURATION = register("duration", "s", "time of the call in the traced run, with all calls in it", [CALL], adds=True)
_PARAMS = register("params", "", "elements of the parameters of the module and of modules in it", [CALL], adds=True)
_TRAINABLE = register("trainable", "", "elements of those parameters that require a gradient", [CALL], adds=True)


def _statistic(name: str) -> Callable[[Tensor], Number]:
    if name == "inf":
        return lambda tensor: None if tensor.stats is None else tensor.stats.posinf + tensor.stats.neginf
    return lambda tensor: None if tensor.stats is None else getattr(tensor.stats, name)


def elements_of(tensor: Tensor) -> int | None:
    """Return the number of elements; of ragged tensors those that were counted, ``None`` where none were."""
    if min(tensor.shape, default=0) < 0:
        return None if tensor.stats is None else tensor.stats.count
    return math.prod(tensor.shape)


def size_of(tensor: Tensor) -> int | None:
    """Return the bytes of the elements of a tensor; ``None`` for sparse tensors, whose indices are not known."""
    elements = elements_of(tensor)
    is_sparse = isinstance(tensor, Value) and tensor.layout.startswith("sparse")
    return None if elements is None or is_sparse else bytes_of(tensor.dtype, (elements,))


# The measures of tensors, each with the function that reads it.
OF_TENSORS: dict[str, Callable[[Tensor], Any]] = {
    **{name: _statistic(name) for name in STATISTICS},
    _NUMEL.name: lambda tensor: elements_of(tensor),
    _NDIM.name: lambda tensor: len(tensor.shape),
    _REQUIRES_GRAD.name: lambda tensor: tensor.requires_grad,
    _BYTES.name: lambda tensor: size_of(tensor),
}
EVERY_RUN: dict[str, Measure] = {
    **STATISTICS,
    **{measure.name: measure for measure in (_NUMEL, _NDIM, _REQUIRES_GRAD, _BYTES, _DURATION, _PARAMS, _TRAINABLE)},
}


def measures_of(trace: TraceData) -> dict[str, Measure]:
    """Return the measures that a trace has numbers of, by name: those of every run first.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
    >>> measures_of(trace)["absmax"].about
    'largest magnitude of a finite element'
    """
    return EVERY_RUN | {name: taken.measure for name, taken in _taken(trace).items()}


def derived(trace: TraceData) -> dict[str, Taken]:
    """Return the measures that were derived from the trace itself: an analysis adds to them when one is asked for."""
    found: dict[str, Taken] = trace.cache.setdefault("measures", {})
    return found


def _taken(trace: TraceData) -> dict[str, Taken]:
    return {**derived(trace), **trace.taken}


def require_measure(trace: TraceData, name: str, of: Iterable[Subject] = _TENSORS) -> Measure:
    """Return a measure of a trace by name.

    Raises ``UsageError`` for a name that the trace has no numbers of, and for a measure of none of the subjects ``of``.
    """
    known = measures_of(trace)
    measure = known.get(name)
    if measure is None:
        raise UsageError(
            f"this run has no measure {name!r}.{nearest(name, known)} It has {', '.join(known)}. An analysis takes "
            "others: trace.with_measures(report), or --into RUN and --save; fxdebug measures lists them"
        )
    if not measure.of.intersection(of):
        subjects = " and ".join(f"{subject}s" for subject in sorted(measure.of))
        raise UsageError(f"{name} is a measure of {subjects}, not of {' or '.join(f'{one}s' for one in of)}")
    return measure


def id_of(trace: TraceData, item: Call | Node | Parameter) -> str:
    """Return the id that numbers of a call, a node or a parameter go by."""
    if isinstance(item, Call):
        return f"{item.path or root_name(trace)}#{item.number}"
    return item.id if isinstance(item, Node) else item.name


def number_of(trace: TraceData, item: Item, name: str) -> Number:
    """Return a number of a call, an operation, a value or a parameter; ``None`` where it is not known.

    Raises ``UsageError`` for a measure that the trace does not have.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 3), torch.ones(4, 2))
    >>> number_of(trace, trace.root, "params"), number_of(trace, trace.root, "bytes")
    (9, 48)
    """
    return _reader(trace, name)(item)


def _reader(trace: TraceData, name: str) -> Callable[[Item], Number]:
    """Return the function that reads a measure of one item: looked up once for all items."""
    taken = _taken(trace).get(name)
    if taken is not None:
        numbers = taken.numbers
        return lambda item: None if isinstance(item, Value) else numbers.get(id_of(trace, item))
    require_measure(trace, name)
    read = OF_TENSORS.get(name)
    if read is not None:
        return lambda item: None if (tensor := _tensor_of(item)) is None else read(tensor)
    if name == _DURATION.name:
        return lambda item: item.duration if isinstance(item, Call) else None
    return lambda item: parameters_in(trace, [item], name) if isinstance(item, Call) else None


def _tensor_of(item: Item) -> Tensor | None:
    """Return the tensor that numbers about tensors are of: itself, or the first of a result."""
    if isinstance(item, Call):
        return None if item.outputs is None else next(iter(item.outputs), None)
    return item.value if isinstance(item, Node) else item


def parameters_in(trace: TraceData, calls: Iterable[Call], name: str) -> int | None:
    """Return the elements of all parameters (or those that are ``trainable``) in the modules of calls, each once.

    ``None`` where one of the modules is registered nowhere, since the trace has no parameters of such ones, and where
    one of the parameters has no shape yet.
    """
    calls = list(calls)
    if any(call.origin in UNREGISTERED for call in calls):
        return None
    below = parameters_below(trace)
    numbers: set[int] = set().union(*[below.get(path, ()) for path in {call.path for call in calls}])
    found = [trace.parameters[number] for number in numbers]
    sizes = [one.elements for one in found if one.requires_grad or name != _TRAINABLE.name]
    return None if None in sizes else sum(size for size in sizes if size is not None)


UNREGISTERED: Final[tuple[Origin, ...]] = ("unregistered", "unnamed")


def parameters_below(trace: TraceData) -> dict[str, set[int]]:
    """Return the positions in ``trace.parameters`` of the parameters in each module and in those in it, by path."""
    found: dict[str, set[int]] | None = trace.cache.get("parameters below")
    if found is None:
        found = trace.cache["parameters below"] = {}
        for number, parameter in enumerate(trace.parameters):
            for name in parameter.names if parameter.kind == "parameter" else ():
                path = name
                while path:
                    path = path.rpartition(".")[0]
                    found.setdefault(path, set()).add(number)
    return found


def numbers_of(trace: TraceData, name: str) -> dict[str, Number]:
    """Return every number of a measure: of calls and operations by their ids, of parameters by their names.

    >>> import torch, fxdebug
    >>> numbers_of(fxdebug.fx_debug(torch.nn.ReLU(), torch.tensor([-1.0, 2.0])), "zeros")
    {'ReLU#0': 1, 'ReLU#0/relu': 1}
    """
    measure = require_measure(trace, name)
    items: list[Call | Node | Parameter] = list(trace.calls) if CALL in measure.of else []
    if OPERATION in measure.of and trace.graph_source is not None:
        nodes = network_of(trace).nodes.values()
        items += [node for node in nodes if node.kind in ("call_function", "call_method")]
    if PARAMETER in measure.of:
        items += trace.parameters
    read = _reader(trace, name)
    found = {id_of(trace, item): read(item) for item in items}
    return {id: number for id, number in found.items() if number is not None}


def number_of_all(trace: TraceData, items: Sequence[Call | Node], name: str) -> Number:
    """Return one number for repeated calls or operations: a sum where numbers add up, else pooled or averaged.

    Parameters that several of the calls share count once. ``None`` where none of them has a number, and for a sum
    where one of them has none.
    """
    calls = [item for item in items if isinstance(item, Call)]
    if name in (_PARAMS.name, _TRAINABLE.name) and name not in _taken(trace):
        return parameters_in(trace, calls, name) if calls else None
    if name in STATISTICS:
        tensors = [tensor for item in items if (tensor := _tensor_of(item)) is not None]
        stats = [tensor.stats for tensor in tensors if tensor.stats is not None]
        return _of_stats(pooled(stats), name) if stats else None
    read = _reader(trace, name)
    numbers = [read(item) for item in items]
    known = [number for number in numbers if number is not None]
    adds = require_measure(trace, name).adds
    if not known or (adds and len(known) < len(numbers)):
        return None
    return sum(known) if adds or len(known) == 1 else sum(known) / len(known)


def _of_stats(stats: Stats, name: str) -> Number:
    number: Number = stats.posinf + stats.neginf if name == "inf" else getattr(stats, name)
    return number


def measures_in(measures: Mapping[str, Measure], of: Iterable[Subject]) -> list[Measure]:
    """Return the measures of some subjects, in the order of the registry."""
    wanted = set(of)
    return [measure for measure in measures.values() if wanted & measure.of]
