"""Work of weights and constants alone, which every run does anew with the same result."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.equal_work import repeated_ops
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_function, is_view
from fxdebug.operators.categories import TO_PYTHON_NUMBERS

_CONSTANTS = frozenset("arange zeros ones full eye linspace logspace tril_indices triu_indices hann_window".split())
_COPIES = ("clone", "contiguous")  # of which there is a rule of its own
_TO_PYTHON = TO_PYTHON_NUMBERS | {"int", "float", "bool", "index", "numpy"}
OF_TABLES = 50.0  # % of the time: a table for the length of an input is not easily kept
OF_TIME = 20.0  # % of the time: below, a table or a mask of each run may be worth no code


def same_each_run(work: Work, _: float) -> Iterator[Finding]:
    """Operations whose operands are weights or constants: a normalised weight, a table of positions.

    Where there is a loss, weights change from step to step, and what is computed of them is no waste.
    """
    found, has_tables = _of_no_input(work)
    share, least = work.share(sum(op.seconds for op in found)), OF_TABLES if has_tables else OF_TIME
    if share < least:
        return
    of_weights = any(value.name is not None for op in found for value in op.operands)
    names = ", ".join(sorted({op.name for op in found})[:4])
    what = f"{counted(len(found), 'operation')} ({names}) without any input of the run, only with "
    what += (
        f"{'weights' if of_weights else 'constants'}, {'computes' if len(found) == 1 else 'compute'} the same each time"
    )
    advice = "Could it be computed once, before the runs, and kept in a buffer?"
    if of_weights:
        advice += " torch.nn.utils.parametrize.remove_parametrizations(module, 'weight') does so for normed weights."
    yield work.finding("same in each run", costliest(found), share, least, what, advice)


def _of_no_input(work: Work) -> tuple[list[TimedOp], bool]:
    """Return the operations that compute something of weights and constants alone, once of those that are equal.

    And whether tables are among them, which are made for the length of an input.
    """
    known: set[int] = set()
    _, again = repeated_ops(work)
    found: list[TimedOp] = []
    for op in work.ops:
        if op.name in _TO_PYTHON and not op.results:  # what is made of numbers from here on may hold those
            break
        if not op.results or not is_function(op, work) or (not op.operands and op.name not in _CONSTANTS):
            continue
        is_known = all(v.number in known or _stays(work, v) for v in op.operands)
        if is_known:
            known |= {value.number for value in op.results}
            found += [op] if op.seconds and not is_view(op) and op.name not in _COPIES and op not in again else []
    return found, any(not op.operands for op in found)


def _stays(work: Work, value: Value) -> bool:
    """Is a value a weight that is the same in the next run: no step changes weights, and this run changes none?"""
    return value.name is not None and not work.has_loss and not work.changed
