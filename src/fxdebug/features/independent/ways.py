"""Inputs of a model without what stands beside a sample, in the ways in which that may be meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from fxdebug.errors import UsageError
from fxdebug.features.independent.beside import Alone, AloneInList, AloneInPack
from fxdebug.features.independent.graphs import graphs_alone
from fxdebug.features.independent.sequences import (
    Tokens,
    alone_in,
    along,
    is_whole,
    of_told,
    padded_from,
    sequences,
    tensors_of,
    told,
)

Over: TypeAlias = Literal["batch", "length", "padding", "pack"]
KINDS: tuple[Over, ...] = get_args(Over)
Dim: TypeAlias = "int | Mapping[str, int] | None"
MOST = 4  # samples that are run alone


@dataclass(frozen=True)
class Way:
    """Samples without what stands beside them; ``text`` says what was left out, ``note`` why, if that is not known."""

    text: str
    samples: tuple[Alone, ...]
    tokens: Tokens | None = None
    note: str = ""


def ways_of(inputs: Mapping[str, Any], over: Over, pads: Collection[int] = (), dim: Dim = None) -> list[list[Way]]:
    """Return the ways to leave out what stands beside a sample, for each sequence that has such neighbours.

    ``pads`` are the indices that embeddings of the model take for padding. The ways of a list are tried in order: the
    first that the model runs with is meant. Raises ``UsageError`` where the inputs have nothing to leave out.
    """
    tensors = tensors_of(inputs)
    if over == "pack":
        return [_unpacked(inputs, tensors)]
    if not any(tensor.ndim for tensor in tensors.values()):
        raise UsageError(f"over={over!r} needs a tensor among the inputs: none of {', '.join(inputs) or 'them'} is one")
    if over == "batch":
        graphs = graphs_alone(inputs, tensors) if dim is None else []
        of_graphs = [Way("one graph of those that no edge connects", tuple(graphs))] if graphs else []
        return [[*of_graphs, *_by_rows(inputs, dim)]]
    if over == "length":
        return [_by_length(inputs, dim)]
    return _unpadded(inputs, tensors, pads, dim)


# Rows ------------------------------------------------------------------------------------------------


def _by_rows(inputs: Mapping[str, Any], dim: Dim) -> list[Way]:
    tensors = tensors_of(inputs)
    name = next(name for name, tensor in tensors.items() if tensor.ndim)
    at = 0
    if dim is not None:
        (name, at), *_ = told(inputs, dim)
    first = tensors[name]
    rows = first.shape[at]
    if rows < 2:
        raise UsageError("over='batch' needs at least two samples: the first input has one row")
    length = first.shape[1 if at == 0 else 0] if first.ndim > 1 else rows
    same = {each: at for each, tensor in tensors.items() if tensor.ndim > at and tensor.shape[at] == rows}
    square = [each for each in same if tensors[each].shape[:2] == (rows, rows) and each != name]
    options = [same, {each: at for each in same if each not in square}, {name: at}]
    if dim is not None and not isinstance(dim, int):
        options = [dict(told(inputs, dim))]
    ways: list[Way] = []
    for option in options:
        samples = tuple(
            Alone(f"row {row}", _rows_at(inputs, option, row), row, rows, None, length)
            for row in range(min(rows, MOST))
        )
        ways.append(Way(f"one row of {', '.join(option).replace('*', 'argument ')}", samples))
    return ways


def _rows_at(inputs: Mapping[str, Any], dims: Mapping[str, int], row: int) -> dict[str, Any]:
    return {name: value.narrow(dims[name], row, 1) if name in dims else value for name, value in inputs.items()}


# The tokens behind -----------------------------------------------------------------------------------


def _by_length(inputs: Mapping[str, Any], dim: Dim) -> list[Way]:
    if dim is None:
        places = list(sequences(inputs))
        names = {name for name, _ in places if "mask" not in name}
        # one of two sequences of a length, as of an encoder and a decoder, before both of them at once
        found = [alone_in(inputs, name, at) for name, at in places if name in names and len(names) > 1]
        found += [one for name, at in places for one in along(inputs, name, at)]
    else:
        found = of_told(inputs, dim)
    ways = [_halved(inputs, tokens) for tokens in found if tokens.length > 1]
    if not ways:
        raise UsageError("over='length' needs inputs of at least two tokens, in dimension 1")
    return ways


def _halved(inputs: Mapping[str, Any], tokens: Tokens) -> Way:
    first, length = inputs[tokens.name], tokens.length
    rows = first.shape[0] if tokens.dim else first.shape[1] if first.ndim > 1 else 1
    places = torch.arange((length + 1) // 2)
    name = f"the first half (tokens 0 to {len(places) - 1})"
    half = Alone(name, tokens.at(inputs, places), None, rows, places, length, shares_row=True)
    return Way(f"half of {tokens.text}", (half, *_with_other_ends(inputs, tokens, rows)), tokens)


def _with_other_ends(inputs: Mapping[str, Any], tokens: Tokens, rows: int) -> Iterator[Alone]:
    """Yield the inputs with other tokens at the end: blocks that end where the first half does hide nothing from it."""
    first, length = inputs[tokens.name], tokens.length
    places = torch.arange(length - (1 if length % 2 == 0 else 2))
    if not len(places):
        return
    changed = first.clone()
    changed.narrow(tokens.dim, len(places), length - len(places)).copy_(first.narrow(tokens.dim, 0, 1))
    if torch.equal(changed, first):
        return
    given = {**inputs, tokens.name: changed}
    name = f"the start (tokens 0 to {len(places) - 1})"
    yield Alone(name, given, None, rows, places, length, beside=True, shares_row=True)


def last_half(inputs: Mapping[str, Any], way: Way) -> Alone | None:
    """Return the last half of what a way gives the first half of."""
    if way.tokens is None:
        return None
    half = way.samples[0]
    assert half.places is not None
    places = torch.arange(len(half.places), half.length)
    return Alone("the last half", way.tokens.at(inputs, places), None, half.rows, places, half.length, shares_row=True)


# Padding ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Padded:
    """Places of tokens in each row, by what is said of them: rows are in ``row_dim``."""

    tokens: Tokens
    kept: Tensor
    row_dim: int = 0
    shares: str | None = None  # lengths as shares of the longest
    note: str = ""

    @property
    def is_padded(self) -> bool:
        """Is there padding, and something else in each row?"""
        return not bool(self.kept.all()) and bool(self.kept.any(1).all())


def _unpadded(
    inputs: Mapping[str, Any], tensors: Mapping[str, Tensor], pads: Collection[int], dim: Dim
) -> list[list[Way]]:
    first = next(tensor for tensor in tensors.values() if tensor.ndim)
    whole = next((t for name, t in tensors.items() if "mask" in name and t.ndim > 2 and t.shape == first.shape), None)
    if whole is not None and not bool(whole.bool().all()):
        samples = tuple(_without_edges(inputs, whole.bool(), first.shape[0]))
        return [[Way("the padding of each dimension", samples)]]
    chosen = None if dim is None else dict(told(inputs, dim))
    groups = [_chosen(group, chosen) for group in _by_what_is_said(tensors, inputs)]
    groups = [group for group in groups if group] or [
        _chosen(list(_by_what_stands_there(tensors, inputs, pads)), chosen)
    ]
    if not any(groups):
        raise UsageError(
            "over='padding' needs a mask of shape (rows, tokens) among the inputs, with 0 where padding is, or lengths "
            "(whole numbers, or shares of the longest), of which one is shorter, or the padding_idx of an embedding"
        )
    return [[_without_padding(inputs, padded) for padded in group] for group in groups]


def _chosen(group: list[_Padded], dims: Mapping[str, int] | None) -> list[_Padded]:
    return [
        each for each in group if each.is_padded and (dims is None or dims.get(each.tokens.name) == each.tokens.dim)
    ]


def _by_what_is_said(tensors: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> Iterator[list[_Padded]]:
    """Yield where tokens are by each mask, or else by each of the lengths: the ways in which they may be meant."""
    first = next(tensor for tensor in tensors.values() if tensor.ndim)
    masks = [(name, tensor) for name, tensor in tensors.items() if "mask" in name and tensor.ndim == 2]
    masks = [(name, mask) for name, mask in masks if mask.shape[0] == first.shape[0]]
    for name, mask in masks:
        yield [_Padded(tokens, _kept(name, mask)) for tokens in along(inputs, name, 1)]
    if masks:
        return
    for name, tensor in tensors.items():
        if _are_lengths(name, tensor):
            yield [
                _Padded(tokens, _counted(tensor, tokens.length), row_dim)
                for other, dim, row_dim in _of_lengths(name, tensor, tensors)
                for tokens in along(inputs, other, dim, first=0 if row_dim else 1)
            ]
        elif _are_shares(name, tensor, first):
            found = [tokens for other, dim in sequences(inputs) for tokens in along(inputs, other, dim)]
            yield [
                _Padded(tokens, _counted((tensor * tokens.length).round(), tokens.length), 0, name) for tokens in found
            ]


def _of_lengths(name: str, lengths: Tensor, tensors: Mapping[str, Tensor]) -> list[tuple[str, int, int]]:
    """Return the dimensions that lengths may count, and that of the rows: where one number stands beyond them first.

    Then comes what the name says (``question_len``), what is as long as the longest, and ids.
    """
    longest, found = int(lengths.max()), []
    for order, (other, tensor) in enumerate(tensors.items()):
        if tensor is lengths or tensor.ndim < 2:
            continue
        for row_dim, dims in ((0, range(1, tensor.ndim)), (1, range(1))):
            if tensor.shape[row_dim] != len(lengths) or (row_dim and tensor.shape[0] == len(lengths)):
                continue
            for dim in dims:
                if tensor.shape[dim] >= longest:
                    likely = (
                        padded_from(tensor, dim, lengths, row_dim),
                        _stem(other) in name or _stem(name) in other,
                        tensor.shape[dim] == longest,
                        is_whole(tensor) and tensor.ndim == 2,
                        tensor.shape[dim],
                    )
                    found.append((tuple(-int(each) for each in likely), order, (other, dim, row_dim)))
    return [place for *_, place in sorted(found)]


def _stem(name: str) -> str:
    """Return a name without what says that it counts, and without a plural: ``question`` of ``question_len``."""
    for word in ("lengths", "length", "lens", "len", "counts", "sizes", "num"):
        name = name.removesuffix(f"_{word}")
    return name.rstrip("s") or name


def _by_what_stands_there(
    tensors: Mapping[str, Tensor], inputs: Mapping[str, Any], pads: Collection[int]
) -> Iterator[_Padded]:
    """Yield where tokens are by what padding is: the index that an embedding has for it, or one number at the ends."""
    ids = {name: tensor for name, tensor in tensors.items() if tensor.ndim == 2 and is_whole(tensor)}
    for name, tensor in ids.items():
        for pad in pads:
            for tokens in along(inputs, name, 1):
                yield _Padded(tokens, tensor != pad)
    for name, tensor in ids.items():
        for number in dict.fromkeys((0, *tensor[:, -1].tolist(), *tensor[:, 0].tolist())):
            if _stands_at_one_end(tensor == number, 1 if number == 0 else 2):
                for tokens in along(inputs, name, 1):
                    yield _Padded(tokens, tensor != number, note=f"padding is taken to be the {number} at the ends")
    for name, tensor in tensors.items():
        for dim in range(1, tensor.ndim) if tensor.is_floating_point() and tensor.ndim > 2 else ():
            zero = (tensor.movedim(dim, 1) == 0).flatten(2).all(2)
            if _stands_at_one_end(zero, 2):
                for tokens in along(inputs, name, dim):
                    yield _Padded(tokens, ~zero, note="padding is taken to be the zeros at the ends")


def _stands_at_one_end(marked: Tensor, least: int) -> bool:
    """Are marked places of each row all at its end, or all at its start, and at least so many in a row?"""
    counts = marked.sum(1, keepdim=True)
    at = torch.arange(marked.shape[1], device=marked.device)
    ends = at >= marked.shape[1] - counts, at < counts
    return int(counts.max()) >= least and any(bool((marked == end).all()) for end in ends)


def _without_padding(inputs: Mapping[str, Any], padded: _Padded) -> Way:
    rows, tokens = padded.kept.shape[0], padded.tokens
    samples = []
    dims = {
        name: padded.row_dim
        for name, value in inputs.items()
        if isinstance(value, Tensor) and value.ndim > padded.row_dim and value.shape[padded.row_dim] == rows
    }
    if padded.row_dim:  # lengths have a number for each row, and no tokens
        dims = {name: at for name, at in dims.items() if name in tokens.dims}
        counts = {name for name, value in tensors_of(inputs).items() if value.ndim == 1 and len(value) == rows}
        dims |= dict.fromkeys(counts, 0)
    for row in [row for row in range(rows) if not bool(padded.kept[row].all())][:MOST]:
        places = padded.kept[row].nonzero().flatten().cpu()
        alone = tokens.at(_rows_at(inputs, dims, row), places)
        if padded.shares is not None:  # of its own longest sample
            alone[padded.shares] = torch.ones_like(alone[padded.shares])
        samples.append(Alone(f"row {row}", alone, row, rows, places, tokens.length))
    return Way(f"the padding along {tokens.text}", tuple(samples), tokens, padded.note)


def _without_edges(inputs: Mapping[str, Any], mask: Tensor, rows: int) -> Iterator[Alone]:
    """Yield rows of tables without the padding of one dimension, each dimension by itself: lines, then columns."""
    same = {name: 0 for name, value in tensors_of(inputs).items() if value.ndim and value.shape[0] == rows}
    for dim in range(1, mask.ndim):
        kept = mask.movedim(dim, 1).flatten(2).any(2)
        for row in [row for row in range(rows) if not bool(kept[row].all()) and bool(kept[row].any())][:MOST]:
            places, length = kept[row].nonzero().flatten().cpu(), mask.shape[dim]
            own = _rows_at(inputs, same, row)
            alone = {name: _at_dim(value, places, length, dim) for name, value in own.items()}
            yield Alone(f"row {row}, in dimension {dim},", alone, row, rows, places, length)


def _at_dim(value: Any, places: Tensor, length: int, dim: int) -> Any:
    if isinstance(value, Tensor) and value.ndim > dim and value.shape[dim] == length:
        return value.index_select(dim, places.to(value.device))
    return value


def _kept(name: str, mask: Tensor) -> Tensor:
    """Return where tokens are: a row without padding tells which of both that is, else the name does."""
    marked = mask.bool()
    if bool(marked.all(1).any()):
        return marked
    hides = not bool(marked.any(1).all()) or (mask.dtype == torch.bool and "padding" in name)
    return ~marked if hides else marked


def _are_lengths(name: str, tensor: Tensor) -> bool:
    named = any(word in name for word in ("len", "count", "size", "num"))
    return named and tensor.ndim == 1 and is_whole(tensor) and tensor.numel() > 0 and int(tensor.min()) > 0


def _are_shares(name: str, tensor: Tensor, first: Tensor) -> bool:
    """Are these lengths as shares of the longest sample, which is 1?"""
    if tensor.ndim != 1 or not tensor.is_floating_point() or "len" not in name or first.ndim < 2:
        return False
    return len(tensor) == first.shape[0] and float(tensor.min()) > 0 and float(tensor.max()) == 1.0


def _counted(lengths: Tensor, length: int) -> Tensor:
    """Return where tokens are."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]


# Packs -----------------------------------------------------------------------------------------------


def _unpacked(inputs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[Way]:
    rows: list[list[int]] = []
    for name, tensor in sorted(tensors.items(), key=lambda item: "position" not in item[0]):
        if "cu_seq" in name or "cu_len" in name:
            rows = [tensor.tolist()]
        elif not rows and tensor.ndim and not tensor.is_floating_point() and tensor.numel() > 1:
            found = [_bounds(row, "position" in name) for row in tensor.reshape(-1, tensor.shape[-1]).tolist()]
            rows = found if all(found) else []
    if not any(len(bounds) > 2 and bounds[0] == 0 for bounds in rows):
        of_lists = _each_of_a_list(inputs)
        if of_lists:
            return [Way("all samples of a list but one", tuple(of_lists))]
        raise UsageError(
            "over='pack' needs position_ids that begin again at 0 for each sample, cumulative lengths (cu_seqlens), "
            "the number of its sample for each token (0, 0, 0, 1, 1), or a list of samples"
        )
    if rows.count(rows[0]) == len(rows):  # where samples begin at the same places, they are taken out of all rows
        rows = rows[:1]
    samples = [
        (row, number, start, end) for row, each in enumerate(rows) for number, (start, end) in enumerate(pairwise(each))
    ]
    found_alone: list[Alone] = []
    for row, number, start, end in samples[:MOST]:
        places, length = torch.arange(start, end), rows[row][-1]
        own = dict(inputs)
        if len(rows) > 1:
            same = {name: 0 for name, value in tensors.items() if value.ndim and value.shape[0] == len(rows)}
            own = _rows_at(inputs, same, row)
        alone = {
            name: torch.tensor([0, end - start], dtype=value.dtype, device=value.device)
            if isinstance(value, Tensor) and "cu_" in name
            else _at(value, places, length)
            for name, value in own.items()
        }
        if len(rows) > 1:
            found_alone.append(Alone(f"row {row} #{number}", alone, row, len(rows), places, length, shares_row=True))
            continue
        of_pack = number, len(samples)
        found_alone.append(AloneInPack(f"sample {number}", alone, None, 1, places, length, False, True, *of_pack))
    return [Way("one sample of the pack", tuple(found_alone))]


def _each_of_a_list(inputs: Mapping[str, Any]) -> list[Alone]:
    """Return each of several tensors alone that a model is given in a list, or as further arguments, and joins."""
    further = [name for name in inputs if name.startswith("*")]
    lists = {name: value for name, value in inputs.items() if type(value) in (list, tuple) and _are_alike(value)}
    count = max(map(len, lists.values()), default=0)
    if count > 1:
        of_samples = [
            {
                name: type(value)([value[at]]) if len(lists.get(name, ())) == count else value
                for name, value in inputs.items()
            }
            for at in range(count)
        ]
    elif len(further) > 1 and _are_alike([inputs[name] for name in further]):
        rest = {name: value for name, value in inputs.items() if name not in further}
        of_samples = [{further[0]: inputs[name], **rest} for name in further]
    else:
        return []
    return [
        AloneInList(f"sample {at}", given, at, len(of_samples), None, len(of_samples))
        for at, given in enumerate(of_samples)
    ]


def _are_alike(values: list[Any] | tuple[Any, ...]) -> bool:
    """Are these tensors of as many dimensions, of at least two?"""
    return (
        len(values) > 1
        and all(isinstance(each, Tensor) and each.ndim > 1 for each in values)
        and (len({each.ndim for each in values}) == 1)
    )


def _bounds(row: list[int], are_positions: bool) -> list[int]:
    """Return where samples begin, and the end: by positions that begin again at 0, or by a number for each sample.

    >>> _bounds([0, 1, 2, 0, 1], False), _bounds([1, 1, 1, 2, 2], False), _bounds([7, 3, 3, 9], False)
    ([0, 3, 5], [0, 3, 5], [])
    """
    steps = [after - before for before, after in pairwise(row)]
    count_on = row[0] == 0 and all(step == 1 or after == 0 for step, after in zip(steps, row[1:]))
    if are_positions or count_on:
        return [place for place, at in enumerate(row) if at == 0] + [len(row)]
    if row[0] in (0, 1) and set(steps) == {0, 1}:
        return [0, *[place + 1 for place, step in enumerate(steps) if step], len(row)]
    return []


def _at(value: Any, places: Tensor, length: int) -> Any:
    """Return the chosen places of every dimension that is as long as the tokens."""
    if isinstance(value, Tensor):
        for dim in range(value.ndim):
            if value.shape[dim] == length:
                value = value.index_select(dim, places.to(value.device))
    return value
