"""Channels that are reduced, taken apart or joined as a whole where they are groups: of norms, of heads, of gates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.operators.names import family
from fxdebug.repair.candidates.variations.variation import NEEDED, Change, Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit

MOST_GROUPS = 32
PARTS = (3, 2, 4)  # queries, keys and values, gate and up, the gates of an LSTM

_REDUCING = frozenset(["mean", "sum", "var", "std", "amax", "amin", "norm", "linalg_vector_norm"])
_WITH_ANOTHER = frozenset(["var_mean", "std_mean"])  # which return two results
_VIEWS = frozenset(["view", "reshape", "flatten", "unflatten"])
_NORMALISING = frozenset(["softmax", "log_softmax", "normalize"])
_PARTING = frozenset(["chunk", "split", "unbind", "tensor_split", "split_with_sizes"])


def in_groups(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation that reduces or normalises the last dimension with this done in each of several groups."""
    given = ran.args[0] if ran.args else None
    if not isinstance(given, Tensor) or not isinstance(ran.result, Tensor) or not given.ndim:
        return
    width, is_kept = given.shape[-1], ran.result.ndim == given.ndim
    if name == "rms_norm" or name in _NORMALISING or (name in _REDUCING and is_kept and ran.result.shape[-1] == 1):
        for groups in _divisors(width):
            each = f"each of {groups} groups of {width // groups}"
            told = f"it is over all {width} of the last dimension{NEEDED}it over {each}"
            words = f"{{op}} over each of {groups} groups"
            yield Variation(told, words, partial(_in_groups, groups), resizes=name in _REDUCING)


def over_other_dimensions(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a reduction that keeps its dimensions over one more of them, or over one less."""
    given, made = (ran.args[0] if ran.args else None), ran.result
    if name in _WITH_ANOTHER and type(made) in (tuple, list) and made:
        made = made[0]
    if name not in _REDUCING | _WITH_ANOTHER or not isinstance(given, Tensor) or not isinstance(made, Tensor):
        return
    at_key = next((key for key in ("dim", "axis") if key in ran.kwargs), None)
    old: Any = ran.kwargs[at_key] if at_key else ran.args[1] if len(ran.args) > 1 else None
    dims = [old] if type(old) is int else list(old) if type(old) in (list, tuple) else []
    if made.ndim != given.ndim or not dims or any(type(dim) is not int for dim in dims):
        return
    own = {dim % given.ndim for dim in dims}
    rest = [dim for dim in range(given.ndim) if dim not in own and given.shape[dim] > 1]
    others = [[dim] for dim in rest if len(own) == 1]
    more = [sorted({*own, dim}) for dim in rest]
    for new in (*others, *more, *([dim for dim in sorted(own) if dim != left] for left in sorted(own) if len(own) > 1)):
        told = f"dim={old}{NEEDED}dim={tuple(new) if len(new) > 1 else new[0]}"
        yield Variation(told, f"{{op}} with dim={tuple(new)}", partial(_over, at_key, new), "constant", resizes=True)


def _over(key: str | None, dims: list[int], ran: Ran) -> Any:
    if key is not None:
        return ran.function(*ran.args, **{**ran.kwargs, key: dims})
    return ran.function(ran.args[0], dims, *ran.args[2:], **ran.kwargs)


def _divisors(width: int) -> list[int]:
    return [count for count in range(2, min(MOST_GROUPS, width // 2) + 1) if width % count == 0]


def _in_groups(groups: int, ran: Ran) -> Any:
    given, rest, kwargs = ran.args[0], list(ran.args[1:]), dict(ran.kwargs)
    if given.shape[-1] % groups:
        raise NoEdit
    parts = given.unflatten(-1, (groups, -1))
    if ran.function.__name__ == "rms_norm":
        weight = kwargs.pop("weight", rest[1] if len(rest) > 1 else None)
        eps = kwargs.pop("eps", rest[2] if len(rest) > 2 else None)
        made = ran.function(parts, (parts.shape[-1],), None, eps).flatten(-2)
        return made if weight is None else made * weight
    dims = [given.ndim - 1, -1]
    if rest and not isinstance(rest[0], Tensor):
        rest[0] = _last(rest[0], dims)
    kwargs = {key: _last(each, dims) if key in ("dim", "axis") else each for key, each in kwargs.items()}
    made = ran.function(parts, *rest, **kwargs)
    return made.expand_as(parts).flatten(-2) if made.shape != parts.shape else made.flatten(-2)


def _last(dim: Any, dims: Sequence[int]) -> Any:
    """Return a dimension, or a list of one, counted from the end; raise ``NoEdit`` where it is not the last one."""
    if dim in dims:
        return -1
    if type(dim) in (list, tuple) and len(dim) == 1 and dim[0] in dims:
        return [-1]
    raise NoEdit


def interleaved(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a product, and what parts a result, with channels that lie in turn put into whole parts, or the reverse."""
    given = ran.result if family(name) == "product" else ran.args[0] if name in _PARTING and ran.args else None
    if not isinstance(given, Tensor) or not given.ndim:
        return
    of_product = family(name) == "product"
    words = "{op} with its rows in that order" if of_product else "{op} of its input in that order"
    for parts in PARTS:
        for groups in _divisors(given.shape[-1] // parts) if given.shape[-1] % parts == 0 else ():
            texts = f"as {parts} parts in each of {groups} groups", f"as {parts} whole parts"
            for (lie, taken), sizes in ((texts, (groups, parts)), (texts[::-1], (parts, groups))):
                make = partial(_regrouped, sizes)
                change: Change = partial(_result_of, make) if of_product else partial(with_operand, 0, make)
                yield Variation(f"the channels of {{op}} lie {lie}, and b takes them {taken}", words, change)


def interleaved_elements(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a view with the even elements of its last dimension before the odd ones, or the halves interleaved.

    So packed numbers are laid out for a kernel that takes them in pairs, and rotary dimensions.
    """
    made = ran.result
    if name not in _VIEWS or not isinstance(made, Tensor) or not made.ndim or made.shape[-1] % 2 or made.shape[-1] < 4:
        return
    half = made.shape[-1] // 2
    texts = "its even elements before the odd ones", "the two halves of its elements in turn"
    for text, sizes in zip(texts, ((half, 2), (2, half))):
        told = f"the last dimension of {{op}} is taken as it lies{NEEDED}{text}"
        yield Variation(told, f"{{op}} with {text}", partial(_result_of, partial(_regrouped, sizes)))


def _regrouped(sizes: tuple[int, int], tensor: Tensor) -> Tensor:
    one, other = sizes
    if tensor.shape[-1] % (one * other):
        raise NoEdit
    return tensor.unflatten(-1, (one, other, -1)).transpose(-2, -3).flatten(-3)


def _result_of(make: Any, ran: Ran) -> Any:
    return make(ran.result)


def in_any_order(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield what parts a tensor with its results in an order that no exchange of two of them makes."""
    results = ran.result
    if name not in _PARTING or type(results) not in (tuple, list) or not 3 <= len(results) <= max(PARTS):
        return
    for order in itertools.permutations(range(len(results))):
        if sum(at != number for at, number in enumerate(order)) > 2:
            counted = ", ".join(str(number + 1) for number in order)
            told = f"the {len(results)} results of {{op}} are taken as 1 to {len(results)}{NEEDED}them as {counted}"
            yield Variation(told, "{op} with its results in that order", partial(_in_order, order))


def _in_order(order: Sequence[int], ran: Ran) -> Any:
    results = ran.result
    if type(results) not in (tuple, list) or len({each.shape for each in results}) > 1 or len(results) != len(order):
        raise NoEdit
    new = [results[number] for number in order]
    return new if type(results) is list else tuple(new)
