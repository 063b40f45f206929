"""Other ways to compute an operation, that people write by mistake: exchanged, with other settings, or shifted by one.

Each is computed from what the operation was given, so that it can be put in its place in a further run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.api.candidates.groupings import groupings
from fxdebug.api.candidates.other_numbers import other_settings, other_switches
from fxdebug.api.candidates.shifted_rows import shifted
from fxdebug.api.candidates.variation import Variation
from fxdebug.api.trials.edits_of_operations import NoEdit, is_inplace, tensors_of, with_tensors
from fxdebug.capture.pausing.replaced_operations import Ran
from fxdebug.operators.names import ACTIVATIONS, RANDOM, UNINITIALISED, family

Vary: TypeAlias = Callable[[str, Ran, Sequence[float]], Iterator[Variation]]
"""Yields other ways to compute an operation."""


def kinds_of_variations() -> tuple[Vary, ...]:
    """Return what yields the other ways to compute an operation, the likely ones first.

    Each is given the operation's canonical name, the operation as it ran, and constants of the other run, which may
    stand in the place of its own.
    """
    return _exchanged, other_switches, other_settings, groupings, _twins, _turned_results, shifted


def may_be_varied(name: str, ran: Ran) -> bool:
    """Can an operation be computed a second time in another way?

    Not if it draws, or writes to its input, nor if its kernel may end the process where arguments do not fit: it is
    private or none of torch, or does not check them.
    """
    of_torch = not name.startswith("_") and getattr(ran.function, "namespace", "aten") == "aten"
    return of_torch and name not in RANDOM | UNINITIALISED | _UNCHECKED and not is_inplace(ran)


_UNCHECKED = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu", "as_strided", "embedding_bag", "ctc_loss", "set"])


# Operands and results --------------------------------------------------------------------------------


def _operands_exchanged(ran: Ran) -> Any:
    """Compute an operation with its last two tensors of one shape exchanged."""
    tensors = tensors_of(ran)
    if len(tensors) < 2 or tensors[-1].shape != tensors[-2].shape or tensors[-1].dtype != tensors[-2].dtype:
        raise NoEdit
    last = len(tensors) - 1
    args, kwargs = with_tensors(ran, {last - 1: tensors[last], last: tensors[last - 1]})
    return ran.function(*args, **kwargs)


def _results_exchanged(ran: Ran) -> Any:
    """Return the two results of an operation, of one shape, the other way round."""
    results = ran.result
    if not isinstance(results, (tuple, list)) or len(results) != 2 or results[0].shape != results[1].shape:
        raise NoEdit
    return [results[1], results[0]] if isinstance(results, list) else (results[1], results[0])


def _repeated_otherwise(ran: Ran) -> Any:
    """Return the repetition of a vector, or along a single dimension, with each element, or all elements, in turn."""
    given, made = tensors_of(ran)[0], ran.result
    grown = [at for at, size in enumerate(made.shape) if given.ndim == made.ndim and given.shape[at] != size]
    if len(grown) != 1 or given.shape[grown[0]] < 2:
        raise NoEdit
    (along,) = grown
    size = given.shape[along]
    in_turn = ran.function.__name__ == "repeat_interleave"
    apart = made.unflatten(along, (size, -1) if in_turn else (-1, size))
    return apart.transpose(along, along + 1).flatten(along, along + 1)


_ROUND = "{op} the other way round"
_EXCHANGED = Variation("the two operands of {op} stand the other way round than in a", _ROUND, _operands_exchanged)
_RETURNED = Variation("the two results of {op} are taken the other way round than in a", _ROUND, _results_exchanged)
_IN_TURN = "each element is repeated in turn in b, all of them in turn in a"
_ALL = "all elements are repeated in turn in b, each of them in turn in a"
_ORDERS: dict[str, tuple[Variation, ...]] = {
    **dict.fromkeys(["stack", "cat", "where", "sub", "div", "pow", "atan2", "lerp"], (_EXCHANGED,)),
    **dict.fromkeys(["chunk", "split", "unbind", "meshgrid"], (_RETURNED,)),
    **dict.fromkeys(["repeat", "tile"], (Variation(_ALL, _ROUND, _repeated_otherwise),)),
    "repeat_interleave": (Variation(_IN_TURN, _ROUND, _repeated_otherwise),),
}


def _exchanged(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield an operation with its operands or its results in the other order."""
    yield from _ORDERS.get(name, ())


def _turned_results(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield the results of products and repetitions with two dimensions of one size transposed."""
    made = ran.result
    if not isinstance(made, Tensor) or not (family(name) == "product" or name in _REPEATING):
        return
    for i, j in itertools.combinations(range(made.ndim), 2):
        if made.shape[i] == made.shape[j] > 1:

            def change(again: Ran, i: int = i, j: int = j) -> Any:
                return again.result.transpose(i, j) if again.result.shape[i] == again.result.shape[j] else again.result

            told = f"dimensions {i} and {j} of what {{op}} returns stand the other way round than in a"
            yield Variation(told, f"{{op}} with dimensions {i} and {j} of its result transposed", change)


_REPEATING = frozenset(["repeat", "tile", "expand", "expand_as", "broadcast_to", "repeat_interleave"])


# Other operations of the same arguments --------------------------------------------------------------


def _twins(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield operations of the same arguments that are easily taken for each other."""
    activations = tuple(sorted(ACTIVATIONS & _PLAIN)) if name in _PLAIN else ()
    for twin in dict.fromkeys([*_TWINS.get(name, ()), *activations]):
        function = getattr(torch, twin, None) or getattr(torch.nn.functional, twin)
        if twin == name or (twin in _PLAIN and len(ran.args) > 1):
            continue

        def change(again: Ran, function: Any = function) -> Any:
            return function(*again.args, **again.kwargs)

        yield Variation(f"{{op}} in b, where a's values need {twin}", f"{twin} in the place of {{op}}", change)


_PLAIN = frozenset(["gelu", "silu", "relu", "tanh", "sigmoid", "softplus", "mish", "hardswish", "hardsigmoid"])
_PAIRS = [
    ("add", "sub"), ("mul", "div"), ("maximum", "minimum"), ("tril", "triu"), ("cos", "sin"), ("gt", "ge"),
    ("lt", "le"), ("sum", "mean"), ("amax", "mean"), ("floor", "round"), ("ceil", "floor"), ("exp", "expm1"),
    ("log", "log1p"), ("sqrt", "rsqrt"), ("softmax", "log_softmax"), ("sigmoid", "tanh"), ("zeros_like", "ones_like"),
]  # fmt: skip
_TWINS: dict[str, tuple[str, ...]] = {
    name: tuple([y if x == name else x for x, y in _PAIRS if name in (x, y)]) for pair in _PAIRS for name in pair
}
