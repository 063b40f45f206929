"""Equal operations on equal inputs: what each layer or step makes anew, and bodies that run again on the same input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.values import Group, Item, Thing, Value
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_function

SHOWN = 3  # modules in a sentence
PART = 8  # of these make up what is worth a finding, at most


def equal_work(work: Work, least: float) -> Iterator[Finding]:
    """Operations that compute what an earlier one has computed: one finding for those that depend on one another."""
    keys, again = repeated_ops(work)
    for group, bodies, count in _groups(work, keys, again, least):
        share = work.share(sum(op.seconds for op in group))
        if share < least:
            continue
        op = costliest(group)
        if bodies:
            body = (
                bodies[0] if len(bodies) == 1 else f"each of {', '.join(bodies[:3])}{', …' if len(bodies) > 3 else ''}"
            )
            what = f"{body} runs {count} times on equal inputs, with equal results"
            advice = "Could it run once, and its result be passed to all that use it?"
        else:
            distinct = len({keys[one] for one in group})
            made = "this is" if distinct == 1 else f"these {distinct} operations are"
            what = f"{made} computed {count} times of equal inputs, with equal results"
            advice = "Could it be computed once, before the layers or steps that use it, and be passed to them?"
        yield work.finding("repeated work", op, share, least, what, advice)


def told_as_repeated(work: Work, least: float) -> set[TimedOp]:
    """Return the operations that a finding about repeated work is about: other rules need not tell of them."""
    groups = [group for group, _, _ in _groups(work, *repeated_ops(work), least)]
    return {op for ops in groups if work.share(sum(op.seconds for op in ops)) >= least for op in ops}


def _groups(
    work: Work, keys: dict[TimedOp, int], again: set[TimedOp], least: float
) -> Iterator[tuple[list[TimedOp], list[str], int]]:
    """Yield repeated operations that are one cause, with the modules that run again, and how often.

    Those are together that use one another's results, and those that each layer or step repeats equally often, where
    each takes a good part of ``least``: many that take nothing are no cause.
    """
    times = Counter(keys[one] for one in work.ops if one in keys)
    by_count: defaultdict[tuple[int, bool], list[TimedOp]] = defaultdict(list)
    bodies: defaultdict[int, list[str]] = defaultdict(list)
    whole = _whole_calls(work, again)
    for group in _connected(work, keys, again):
        count, body = max(times[keys[one]] for one in group), _body(work, group, whole)
        if work.share(sum(op.seconds for op in group)) * PART < least:
            continue
        by_count[count, body is not None] += group
        bodies[count] += [body] if body is not None else []
    for (count, has_bodies), ops in by_count.items():
        yield sorted(ops, key=lambda op: op.position), sorted(bodies[count]) if has_bodies else [], count


def repeated_ops(work: Work) -> tuple[dict[TimedOp, int], set[TimedOp]]:
    """Return a number for each operation, equal for equal operations on equal inputs, and those that came before."""
    numbers: dict[object, int] = {}
    of_value: dict[int, object] = {}
    keys: dict[TimedOp, int] = {}
    again: set[TimedOp] = set()
    for op in work.ops:
        if not op.results or not is_function(op, work):
            continue
        arguments = tuple([_key(arg, of_value) for arg in op.step.args])
        named = tuple(sorted([(name, _key(arg, of_value)) for name, arg in op.step.kwargs.items()], key=str))
        key = op.step.op.op, arguments, named
        if key in numbers:
            again.add(op)
        keys[op] = number = numbers.setdefault(key, len(numbers))
        for slot, value in enumerate(op.results):
            of_value.setdefault(value.number, ("made", number, slot))
    return keys, again


def _key(item: Item, of_value: dict[int, object]) -> object:
    if isinstance(item, Value):
        return of_value.get(item.number, ("value", item.number))
    if isinstance(item, Group):
        keys = None if item.keys is None else tuple(map(str, item.keys))
        return item.type, keys, tuple([_key(one, of_value) for one in item.items])
    if isinstance(item, Thing):
        return item.type, item.text
    return type(item).__name__, repr(item)


def _connected(work: Work, keys: dict[TimedOp, int], again: set[TimedOp]) -> list[list[TimedOp]]:
    """Return the repeated operations in groups of those that use one another's results."""
    parent: dict[int, int] = {}

    def root(number: int) -> int:
        while parent.setdefault(number, number) != number:
            number = parent[number]
        return number

    for op in again:
        for value in op.operands:
            maker = work.maker.get(value.number)
            if maker is not None and maker in again:
                parent[root(keys[op])] = root(keys[maker])
    groups: defaultdict[int, list[TimedOp]] = defaultdict(list)
    for op in sorted(again, key=lambda op: op.position):
        groups[root(keys[op])].append(op)
    return list(groups.values())


def _whole_calls(work: Work, again: set[TimedOp]) -> dict[int, bool]:
    """Return for each call whether all that it and the calls in it compute is repeated work."""
    whole: dict[int, bool] = {}
    for profile in reversed(work.calls):  # callees come after their callers
        own = [one.call.index for one in profile.children]
        whole[profile.call.index] = all(whole[index] for index in own)
    for op in work.ops:
        if op.seconds and op not in again:
            call = op.profile.call
            while call is not None and whole[call.index]:
                whole[call.index] = False
                call = work.trace.calls[call.parent_index] if call.parent_index is not None else None  # type: ignore[assignment]
    return whole


def _body(work: Work, group: list[TimedOp], whole: dict[int, bool]) -> str | None:
    """Return the path of the module whose whole calls are the repeated work, if there is one."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for op in group:
        call = top = op.profile.call
        if not whole[call.index]:
            continue
        while call.parent_index is not None and whole[call.parent_index]:
            call = top = work.trace.calls[call.parent_index]
        seconds[top.path] += op.seconds
    if not seconds:
        return None
    path = max(seconds, key=lambda path: seconds[path])
    return path if path and 2 * seconds[path] >= sum(op.seconds for op in group) else None
