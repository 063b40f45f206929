"""Compare two models once more with fused operations written out, where a port writes out what the original has as one.

An attention, a norm, the cells of a recurrent layer: plain runs end at such an operation, and name all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace

from torch import nn

from fxdebug.comparison.diagnosis.cause import LONG_LIST
from fxdebug.comparison.diagnosis.missing_steps import SEVERAL
from fxdebug.comparison.result import ComparisonData, Kind, Row
from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op
from fxdebug.operators.names import ACTIVATIONS
from fxdebug.repair.decompositions.decomposed import FUSED, IN_TWO_FORMS, decomposed
from fxdebug.repair.trials.tried_repairs import with_told

# Kinds of findings that may stand for something else within an operation that one of the models has as a whole.
_BEYOND_A_FUSED_OPERATION = ("values", "missing", "extra", "wiring", "nonfinite")
# The operations in modules that may run as one kernel.
_INSIDE_KERNELS = {
    "MultiheadAttention": {"multi_head_attention_forward"},
    "TransformerEncoderLayer": {"multi_head_attention_forward", "layer_norm", "gelu"},
}
_SAME_NAME = re.compile(r"the result of \S*?(\w+) in a, of \S*?\b\1 in b$")  # it tells nothing apart
NAMED = 3  # it names a setting or a weight, as do all kinds that are not in the table
_CLOSENESS: dict[Kind, int] = {"missing": 2, "shape": 2, "wiring": 1, "values": 1, "nonfinite": 1, "extra": 0}


def with_fused_written_out(a: nn.Module, b: nn.Module, compared: Callable[[], ComparisonData]) -> ComparisonData:
    """Return the comparison of two models; with fused operations written out where that names the cause more closely.

    ``compared`` runs and compares them as they are set now.

    >>> import torch
    >>> from fxdebug.api.compare_live import compare_models
    >>> model = torch.nn.Sequential(torch.nn.GELU())
    >>> with_fused_written_out(model, model, lambda: compare_models(model, model, torch.ones(2))).equal
    True
    """
    found = compared()
    first = found.first
    is_named = first is None or (first.proven and not first.by_region and closeness(first))
    if first is None or is_named or first.kind not in _BEYOND_A_FUSED_OPERATION:
        return found
    operations = _fused_in_one(found)
    known = [side.call for side in (first.a, first.b) if side is not None]
    homes = [*known, *(call.parent for call in known if call.parent is not None)]
    calls = [call for home in homes for call in (home.walk() if home.parent is not None else (home,))]
    inside = {op.op for call in calls for op in _ops_of(call)}
    if operations.isdisjoint(inside.union(*[_INSIDE_KERNELS.get(call.type, ()) for call in calls])):
        return found
    for in_another_form in (False, True) if operations & IN_TWO_FORMS else (False,):
        try:
            with decomposed(a, b, operations=operations, in_another_form=in_another_form):
                again = compared()
        except Exception:  # of a model that asks for a kernel
            return found
        if again.first is not None and _is_closer(again.first, found.first, operations, by_name=in_another_form):
            note = f"run as the operations that they are made of, in both models: {', '.join(sorted(operations))}"
            found = with_proof(replace(again, notes=(*again.notes, note)), first)
        if again.first is None or again.first.proven:
            break
    return found


def with_proof(found: ComparisonData, of: Row) -> ComparisonData:
    """Return a comparison whose first finding has the proof of a wider one, where it has none of its own."""
    first = found.first
    if first is None or first.proven or not of.proven:
        return found
    return with_told(found, [first.proven_by(of.repair, by_region=of.by_region), *found.findings[1:]])


def _fused_in_one(found: ComparisonData) -> Set[str]:
    """Return the names of operations that one run has as a whole more often than the other."""
    counts = [Counter(op.op for call in run.calls for op in _ops_of(call)) for run in (found.a, found.b)]
    kernels = [Counter(call.type for call in run.calls if not _ops_of(call)) for run in (found.a, found.b)]
    names = {name for name in FUSED if counts[0][name] != counts[1][name]}
    for kind, inside in _INSIDE_KERNELS.items():
        names |= inside if kernels[0][kind] != kernels[1][kind] else set()
    return names


def _ops_of(call: Call) -> tuple[Op, ...]:
    return () if call.graph is None else call.graph.ops


def _is_closer(row: Row, than: Row | None, operations: Set[str], *, by_name: bool) -> bool:
    """Does a finding name a cause more closely than another one? ``by_name``: it must name a setting or a weight."""
    known = closeness(row), closeness(than)
    if row.by_region and known[0] < known[1]:  # a region of a repairs much: it is what the finding says that counts
        return False
    if row.proven or row.kind == "weights":  # where these are in another layout, what faces what is a guess
        return row.proven
    sides = [] if than is None else [side.op for side in (than.a, than.b) if side is not None]
    of_activation = than is not None and bool(ACTIVATIONS.intersection(sides))
    if of_activation and than is not None and than.kind == "values" and known[1]:
        return False  # numbers of two activations that face each other are no cause, unless one of them was proven
    other_activation = of_activation and than is not None and than.kind in ("missing", "extra")
    if by_name or other_activation:  # parts of two activations that face each other say less than their names
        return known[0] >= NAMED > known[1]
    whole = than.a.op if than is not None and than.kind == "missing" and than.a is not None else None
    is_part = whole in operations and whole not in ACTIVATIONS  # of which nobody lacks a part
    return known[0] >= known[1] if is_part else known[0] > known[1]


def closeness(row: Row | None) -> int:
    """Return how precise a finding is: a list of operations in the place of others may have many causes.

    >>> closeness(None), closeness(Row("0", kind="constant")), closeness(Row("0", kind="wiring"))
    (0, 3, 1)
    """
    if row is None or row.kind is None or SEVERAL in row.because or LONG_LIST in row.because:
        return 0
    if _SAME_NAME.search(row.because):
        return -1
    if row.kind == "constant" and ", and not in " in row.because:
        return _CLOSENESS["values"]  # a number that one side alone has is a part of another formula
    return _CLOSENESS.get(row.kind, NAMED)
