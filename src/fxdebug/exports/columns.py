"""The columns of a call tree: facts about calls in words, and every measure of calls with its unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fxdebug.analyses.measures import available, derive
from fxdebug.data.calls import Call, Parameter
from fxdebug.data.measures import CALL, Measure, names_in, scale
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Sharding, shape_text
from fxdebug.errors import UsageError, nearest
from fxdebug.query.folding import FoldedCalls, Row, main_output
from fxdebug.query.measures import STATISTICS, Number, measures_in, measures_of, number_of_all, require_measure

Calls: TypeAlias = Sequence[Call]

_SHORT_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A fact about a call in words: its name, its heading, one line of explanation, and how it is read."""

    name: str
    heading: str
    about: str
    text: Callable[[TraceData, Calls], str]


@dataclass(frozen=True)
class Column:
    """A column of a call tree: its heading (for a measure with a unit two lines), and a cell for each row."""

    name: str
    heading: str
    cells: tuple[str, ...]
    measure: Measure | None = None


def _dtype(trace: TraceData, calls: Calls) -> str:
    value = main_output(calls[0])
    return "" if value is None else _SHORT_DTYPES.get(value.dtype, value.dtype)


def _kernel(trace: TraceData, calls: Calls) -> str:
    prefix = f"{calls[0].path}."
    return kernel_text(calls[0], [one for one in trace.parameters if one.name.startswith(prefix)])


def kernel_text(call: Call, own: list[Parameter]) -> str:
    """Return the sizes of a convolution's kernel: its weight beyond channels."""
    if "Conv" not in call.type or call.children:
        return ""
    weights = [p for p in own if p.name.rpartition(".")[2] == "weight" and len(p.shape) > 2]
    return shape_text(weights[0].shape[2:]) if weights else ""


FACTS: dict[str, Fact] = {
    fact.name: fact
    for fact in (
        Fact("input", "in", "shape of the first tensor given", lambda trace, calls: shapes([c.inputs for c in calls])),
        Fact("output", "out", "shape of the first result", lambda trace, calls: shapes([c.outputs for c in calls])),
        Fact("dtype", "dtype", "dtype of the first result", _dtype),
        Fact("kernel", "kernel", "sizes of a convolution's kernel", _kernel),
        Fact("status", "status", "trust in the graph", lambda trace, calls: calls[0].status or ""),
        Fact("source", "source", "line that made the call", lambda trace, calls: _file(calls[0].source)),
    )
}


def require_columns(trace: TraceData, names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, given as a list or with commas between them, after taking what they need.

    Raises ``UsageError`` for a name that is neither a fact nor a measure of calls that this run has.
    """
    asked = names_in(names)
    derive(trace, *asked)
    for name in asked:
        if name not in FACTS and name not in measures_of(trace):
            known = [*FACTS, *(measure.name for measure in measures_in(available(trace), [CALL]))]
            raise UsageError(f"this run has no column {name!r}.{nearest(name, known)} It has {', '.join(known)}")
        if name not in FACTS:
            require_measure(trace, name, [CALL])
    return asked


def columns_of(trace: TraceData, rows: Sequence[Row], names: Sequence[str]) -> list[Column]:
    """Return the columns of a call tree; numbers of repeated layers are summed where they add up.

    The numbers of a column are in one unit, that of the largest.
    """
    return [_fact_column(trace, rows, FACTS[name]) if name in FACTS else _column(trace, rows, name) for name in names]


def _fact_column(trace: TraceData, rows: Sequence[Row], fact: Fact) -> Column:
    cells = [fact.text(trace, row.calls) if isinstance(row, FoldedCalls) else "" for row in rows]
    return Column(fact.name, fact.heading, tuple(cells))


def _column(trace: TraceData, rows: Sequence[Row], name: str) -> Column:
    measure = require_measure(trace, name, [CALL])
    numbers = [number_of_all(trace, row.calls, name) if isinstance(row, FoldedCalls) else None for row in rows]
    largest = max([abs(one) for one in numbers if one is not None], default=0.0)
    unit, factor = scale(largest, measure.unit)
    missing = "" if name in STATISTICS else "n/a"  # of no tensor there are no statistics
    cells = [
        "" if not isinstance(row, FoldedCalls) else missing if one is None else _in_units(one, factor)
        for row, one in zip(rows, numbers, strict=True)
    ]
    return Column(name, f"{name}\n{unit}" if unit else name, tuple(cells), measure)


def _in_units(one: float | int | complex, factor: float) -> str:
    """Return a number in some units; whole numbers without a unit, such as those of parameters, in full."""
    if factor != 1.0:
        return number(one / factor)
    return str(int(one)) if isinstance(one, int) else number(one)


def column_values(trace: TraceData, call: Call, names: Sequence[str]) -> dict[str, str | Number]:
    """Return the facts and numbers of one call by the names of columns, in plain units."""
    return {
        name: FACTS[name].text(trace, [call]) if name in FACTS else number_of_all(trace, [call], name) for name in names
    }


# Texts -------------------------------------------------------------------------------------------


def number(x: Number) -> str:
    """Return a number in at most eight characters.

    >>> number(-0.0031415), number(123456), number(1.5e-7), number(2.0)
    ('-0.00314', '123456', '1.5e-07', '2')
    """
    if x is None:
        return ""
    if isinstance(x, complex):
        return f"{abs(x):.3g}∠"
    if isinstance(x, int) and abs(x) < 10_000_000:
        return str(int(x))
    text = f"{x:.3g}"
    return text if len(text) <= 8 else f"{x:.1e}"


def shapes(calls: Sequence[Inputs | Outputs | None]) -> str:
    """Return the shape of the first tensor, a range where it grows from call to call, and how many more there are."""
    first = [] if not calls or calls[0] is None else list(calls[0])
    if not first:
        return ""
    main = [first[0], *(value for slots in calls[1:] if slots is not None and (value := next(iter(slots), None)))]
    more = f" +{len(first) - 1}" if len(first) > 1 else ""
    return shape_range([value.shape for value in main]) + part_text(main[0].sharding) + more


def part_text(sharding: Sharding | None) -> str:
    """Return in a few words which part of a distributed tensor the local one is."""
    if sharding is None:
        return ""
    shard = f" of {shape_text(sharding.shape)}" if sharding.is_shard else ""
    return shard + (" partial" if sharding.is_partial else "")


def shape_range(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the shapes of repetitions as one, with ranges for sizes that differ.

    >>> shape_range([(1, 4, 8), (1, 5, 8), (1, 6, 8)])
    '1×4…6×8'
    """
    if len(set(shapes)) == 1 or len(set(map(len, shapes))) > 1:
        return shape_text(shapes[0])
    sizes = [(min(known), max(known)) for known in zip(*shapes)]
    return "×".join(shape_text([low]) if low == high else f"{low}…{high}" for low, high in sizes)


def _file(source: str | None) -> str:
    return "" if source is None else source.replace("\\", "/").rpartition("/")[2]
