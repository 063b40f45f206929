"""Results that are tensors from before: of operations that return an argument, as ``x.float()`` may, and of such calls.

Both names of such a tensor are one object, so a tape cannot tell which of them a later operation was given. A symbolic
trace can: there each name is a placeholder of its own. Where the operation has written to the tensor, the tensor has
its new numbers under both names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from torch import nn

from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.encoding import leaves_in, tensor_ids_in
from fxdebug.capture.tape.op_traits import may_write
from fxdebug.capture.tensors.tensor_ref import TensorId

HandedOn: TypeAlias = Mapping[int, Mapping[int, bool]]
"""By entry, and by number of the tensor in its result: was the tensor written to?"""

_NONE: HandedOn = MappingProxyType({})


def handed_on(tape: CallTape) -> HandedOn:
    """Return the results on a tape that are tensors from before, and whether each was written to."""
    if tape.handed_on is None:
        tape.handed_on = _found(tape) or _NONE
    return tape.handed_on


def written_in(results: HandedOn) -> frozenset[tuple[int, int]]:
    """Return those of the results that were written to."""
    return frozenset([(index, place) for index, found in results.items() for place in found if found[place]])


def tensors_returned(entry: TapeEntry) -> Iterator[TensorId]:
    """Yield the tensors in a result, in order, without those that lie in objects."""
    if type(entry.out) is TensorId:
        yield entry.out
    else:
        leaves = leaves_in(result_in(entry.out), in_objects=False)
        yield from (leaf for leaf in leaves if type(leaf) is TensorId)


def _found(tape: CallTape) -> dict[int, dict[int, bool]]:
    found: dict[int, dict[int, bool]] = {}
    numbers: dict[TensorId, int | None] = dict.fromkeys(tensor_ids_in((tape.args, tape.kwargs)))  # of their values
    numbers.update({tensor_id: value.number for tensor_id, value in tape.input_values.items()})
    for index, entry in enumerate(tape.entries):
        for argument in entry.args:
            if type(argument) is TensorId:
                numbers.setdefault(argument, None)
            elif type(argument) in (tuple, list, dict):
                numbers.update({each: None for each in tensor_ids_in(argument) if each not in numbers})
        if entry.kwargs:
            numbers.update({each: None for each in tensor_ids_in(entry.kwargs) if each not in numbers})
        for place, (tensor_id, value) in enumerate(zip(tensors_returned(entry), entry.values)):
            if tensor_id in numbers:
                before = numbers[tensor_id]
                is_written = before not in (None, value.number) or _writes(entry, tensor_id)
                found.setdefault(index, {})[place] = is_written
            numbers[tensor_id] = value.number
        for tensor_id, value in entry.writes:
            numbers[tensor_id] = value.number
    return found


def _writes(entry: TapeEntry, tensor_id: TensorId) -> bool:
    """Does an entry write to a tensor that it returns, though perhaps the numbers that were there?"""
    if any(written == tensor_id for written, _ in entry.writes):
        return True
    if not isinstance(entry.what, nn.Module):
        is_changed = entry.changed is not None and entry.changed[0] == tensor_id
        return is_changed or may_write(entry.what, entry.kwargs) or entry.kwargs.get("inplace") is True
    if entry.tape is None or not _without_versions(entry):
        return False
    inner: list[Any] = [each for each in entry.tape.entries if tensor_id in tensors_returned(each)]
    return any(_writes(each, tensor_id) for each in inner)


def _without_versions(entry: TapeEntry) -> bool:
    """Did it run in inference mode, where tensors do not count their writes?"""
    return entry.context[1]
