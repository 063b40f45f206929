"""Exceptions that a body catches: the operation or call that raised has no entry on the tape, and no node in a graph.

So it must have left nothing behind: no written tensor, no drawn random number. A symbolic trace meets it again at the
same place. An operation raises an exception like the one that was noted; the body of a call runs along its own tape
until it raises.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.encoding import ATOMS
from fxdebug.capture.tape.op_traits import NORMS, may_write, op_name, running_statistics
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.capture.torch_state.whose_code import is_part_of
from fxdebug.operators.categories import DRAWS
from fxdebug.operators.names import RANDOM


class Raised(NamedTuple):
    """An operation or a call of a body that raised an exception; ``position`` entries of the tape came before it.

    ``error`` is like the exception of an operation, ``None`` if none can be made. ``tape`` is that of a call.
    """

    position: int
    what: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    context: Context
    kind: type[Exception]
    error: Exception | None
    tape: CallTape | None
    leaves_nothing: bool


def raised_by_operation(
    tape: CallTape, function: Any, codes: tuple[Any, Any], context: Context, error: Exception
) -> Raised:
    """Return the note on an operation that raised."""
    args, kwargs = codes
    harmless = not may_write(function, kwargs) and not (_is_python(function) and _draws(function, args, kwargs))
    return Raised(len(tape.entries), function, args, kwargs, context, type(error), like(error), None, harmless)


def raised_by_call(parent: CallTape, tape: CallTape, error: Exception) -> Raised:
    """Return the note on a call that raised, for the tape of its caller; its own tape ends where it raised."""
    return Raised(
        len(parent.entries),
        tape.module,
        tape.args,
        tape.kwargs,
        tape.context,
        type(error),
        None,
        tape,
        leaves_nothing(tape),
    )


def leaves_nothing(tape: CallTape) -> bool:
    """Did the operations of a call, and those of the calls in it, write to nothing and draw no random number?"""
    if tape.unobserved is not None or tape.untraceable is not None or tape.callers_modes is not None:
        return False
    return all(map(_leaves_nothing, tape.entries)) and all(each.leaves_nothing for each in tape.raised)


def _leaves_nothing(entry: TapeEntry) -> bool:
    if entry.writes or entry.changed is not None:
        return False
    if entry.tape is not None:
        return leaves_nothing(entry.tape)
    function, args, kwargs = entry.what, entry.args, entry.kwargs
    if op_name(function) in NORMS and running_statistics(function, args, kwargs):
        return False
    return not may_write(function, kwargs) and not _draws(function, args, kwargs)


def like(error: Exception) -> Exception | None:
    """Return an exception of the same class with the same arguments; ``None`` if these could keep a tensor alive."""
    kind = type(error)
    if vars(error) or not all(type(argument) in ATOMS for argument in error.args):
        return None
    try:
        made: Exception = kind.__new__(kind, *error.args)
    except Exception:
        return None
    made.args = error.args
    return made


def _draws(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """May an operation with these arguments draw random numbers?"""
    if not _may_draw(function):
        return False
    name = op_name(function)
    if name == "scaled_dot_product_attention":
        return bool(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))
    if name.endswith(("dropout", "dropout1d", "dropout2d", "dropout3d", "rrelu")):
        return (args[2] if len(args) > 2 else kwargs.get("training", True)) is not False
    return True


@functools.cache
def _may_draw(function: Any) -> bool:
    name = op_name(function)
    if name in RANDOM or name in DRAWS or name in _DRAWING:
        return True
    if not is_part_of(str(getattr(function, "__module__", None) or "torch"), "torch"):
        return True  # a function of the program's, or of another library's
    packet = getattr(torch.ops.aten, name, None)
    overloads = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else [function]
    return any(torch.Tag.nondeterministic_seeded in getattr(overload, "tags", ()) for overload in overloads)


# Functions of torch's in Python that draw in some step of theirs.
_DRAWING = frozenset(
    "multi_head_attention_forward fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
    "fractional_max_pool3d_with_indices svd_lowrank pca_lowrank lobpcg".split()
)


def _is_python(function: Any) -> bool:
    """Is it written in Python? Code in C++ looks at its arguments before it draws."""
    return hasattr(function, "__code__")
