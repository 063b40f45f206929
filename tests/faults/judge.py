"""Run a pair in a mode, compare the two traces, and say whether the answer is right.

``mode`` is what is kept of values: ``statistics`` (numbers only) or ``tensors`` (the data).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug, last_failed

from .case import Equal, Fault, Pair

__all__ = ["MODES", "Answer", "answer", "compared", "false_alarms", "told", "traced"]

MODES = ("statistics", "tensors")


@dataclass(frozen=True)
class Answer:
    """What ``compare`` said about a planted fault, and whether that is right."""

    name: str
    mode: str
    path: str | None  # None: nothing was found
    op: str | None
    kind: str | None
    source: str | None
    call_right: bool
    op_right: bool
    kind_right: bool
    calls: frozenset[str]
    ops: frozenset[str]
    seconds: float  # of the comparison alone

    @property
    def right(self) -> bool:
        """The call and the operation are right."""
        return self.call_right and self.op_right

    def __str__(self) -> str:
        named = "nothing" if self.path is None else f"{self.path or '(root)'} {self.op} ({self.kind}, {self.source})"
        calls = " or ".join(path or "(root)" for path in sorted(self.calls))
        wanted = f"{calls}, operation {' or '.join(sorted(self.ops))}"
        return f"{self.name} [{self.mode}]: named {named}, wanted {wanted}"


def traced(model: nn.Module, inputs: Any, mode: str, save: Path | None = None) -> Trace:
    """The trace of one run; the partial one where the model raises."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fx_debug(model, inputs, values="stats" if mode == "statistics" else mode, save=save)
        except Exception:
            partial = last_failed()
            assert partial is not None
            return partial


_traces: dict[tuple[Any, ...], Trace] = {}


def _reference(pair: Pair, mode: str) -> Trace:
    """The trace of the reference, made once where many pairs share it."""
    from .families import FAMILIES, pristine
    from .originals import NAMES, reference

    shared = {id(reference(name, attention)) for name in NAMES for attention in ("sdpa", "eager")}
    shared |= {id(pristine(name)) for name in FAMILIES}
    if id(pair.a) not in shared:
        return traced(pair.a, _fresh(pair.inputs), mode)
    given = tuple((name, str(x.tolist()) if isinstance(x, torch.Tensor) else x) for name, x in pair.inputs.items())
    key = (id(pair.a), mode, given)
    if key not in _traces:
        _traces[key] = traced(pair.a, _fresh(pair.inputs), mode)
    return _traces[key]


def compared(pair: Pair, mode: str, saved: bool = False) -> Any:
    """The comparison of a pair; ``saved``: the reference is written to a folder and given as its path."""
    with contextlib.ExitStack() as stack:
        a: Trace | str
        if saved:
            a = stack.enter_context(tempfile.TemporaryDirectory(prefix="fxdebug-faults-"))
            traced(pair.a, _fresh(pair.inputs), mode, Path(a))
        else:
            a = _reference(pair, mode)
        b = traced(pair.b, _fresh(pair.inputs if pair.inputs_b is None else pair.inputs_b), mode)
        found = fxdebug.compare(a, b)
        str(found)  # the screen must come, and while the files are there
        return found


def answer(fault: Fault, mode: str) -> Answer:
    """What ``compare`` says about a planted fault."""
    pair = fault.build()
    a = _reference(pair, mode)
    b = traced(pair.b, _fresh(pair.inputs if pair.inputs_b is None else pair.inputs_b), mode)
    began = time.perf_counter()
    first = fxdebug.compare(a, b).first
    seconds = time.perf_counter() - began
    path, op, kind, source = (None,) * 4 if first is None else (first.path, first.op, first.kind, first.source)
    return Answer(
        fault.name,
        mode,
        path,
        op,
        kind,
        source,
        call_right=path in fault.calls,
        op_right=path in fault.calls and plain(op) in {plain(name) for name in fault.ops},
        kind_right=not fault.kinds or kind in fault.kinds,
        calls=fault.calls,
        ops=fault.ops,
        seconds=seconds,
    )


# The same operation under another name: operators, in place, with its operands exchanged.
_SAME = {"truediv": "div", "rpow": "pow", "rsub": "sub", "remainder": "mod", "invert": "bitwise_not"}


def plain(op: str | None) -> str:
    """The name of an operation without what says how it was written: ``add_`` and ``__iadd__`` are ``add``."""
    if op is None:
        return "-"
    name = op.strip("_")
    name = name[1:] if name in ("iadd", "isub", "imul", "itruediv") else name
    return _SAME.get(name, name)


def false_alarms(pair: Equal, mode: str, saved: bool = False) -> list[str]:
    """What is found in an equal pair, and must not be."""
    found = compared(pair.build(), mode, saved)
    return [told(row) for row in found.findings or ([] if found.first is None else [found.first])] or (
        [] if found.equal else ["not equal, and no finding says why"]
    )


def told(row: Any) -> str:
    """A finding in a few words."""
    source = (row.source or "").rpartition("/")[2]  # the line, without where this machine has the file
    return f"{row.path or '(root)'} {row.op}: {row.kind}, {source}, error {row.error:.2g}"


def _fresh(inputs: dict[str, Any]) -> dict[str, Any]:
    """Copies, so that nothing a model does to its inputs reaches the other one."""
    return {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
