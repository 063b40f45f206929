"""Numbers that leave tensors for Python and come back: a list of numbers is read, and made, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.values import Thing
from fxdebug.features.profile.wasted.timed_ops import Work, costliest

MANY = 256  # numbers
_FROM_LISTS = frozenset("tensor as_tensor asarray FloatTensor LongTensor".split())


def python_numbers(work: Work, least: float) -> Iterator[Finding]:
    """Tell of tensors that are made of lists of numbers in each run, and of long lists that are made of tensors."""
    made = [op for op in work.ops if op.name in _FROM_LISTS and not op.operands and _of_a_list(op.step.args)]
    made = [op for op in made if op.results and op.results[0].numel >= MANY]
    lists = [op for op in work.ops if op.name == "tolist" and op.operands and op.operands[0].numel >= MANY]
    share = work.share(sum(op.seconds for op in (*made, *lists)))
    if share < least:
        return
    op = costliest([*made, *lists])
    count = (op.results or op.operands)[0].numel
    what = (
        f"{count:,} numbers of Python become a tensor one by one" if made else f"{count:,} numbers are read to Python"
    )
    if made and lists:
        what += f", after tolist read {costliest(lists).operands[0].numel:,} out of one"
    what += "; what Python does between comes on top"
    advice = "Could it be computed with operations on the tensor?"
    yield work.finding("numbers of Python", op, share, least, what, advice)


def _of_a_list(args: tuple[object, ...]) -> bool:
    is_array = bool(args) and isinstance(args[0], Thing) and args[0].text == "<ndarray>"  # copied as a whole
    return bool(args) and not is_array and not isinstance(args[0], (int, float, bool))
