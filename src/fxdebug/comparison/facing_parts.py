"""Find which rows and positions of one run face those of another: one sample alone, and in a batch, padded or packed.

Two runs of a model are given inputs of other sizes. Where the rows of one input lie in those of the other, by their
numbers, only these are compared: in every value whose sizes are those of the batch and of the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from fxdebug.comparison.thresholds import SAME_SUM
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Outputs, Value
from fxdebug.operators.dtypes import EPS

if TYPE_CHECKING:
    from torch import Tensor

Role: TypeAlias = Literal["batch", "length", "both", "groups", "other"]
"""What a dimension counts: items, positions, positions of all items, parts of items (heads), or something else."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Positions of one row of a, and as many of one row of b, which face each other."""

    row_a: int
    row_b: int
    from_a: int
    from_b: int
    count: int


@dataclass(frozen=True)
class FacingParts:
    """The rows and positions that face each other, and the sizes of the batch and of the sequence, in a and in b.

    ``by`` says what was the same: tokens, numbers of an input, or one of the words: ``cache`` and ``values`` (one run
    has the last positions of the other), ``start`` (the first ones), ``list`` (one of the tensors that the other has).
    """

    stretches: tuple[Stretch, ...]
    batch: tuple[int, int]
    length: tuple[int, int]
    by: str

    def roles(self, a: Sequence[int], b: Sequence[int]) -> list[Role] | None:
        """Return the roles of the dimensions of two shapes that differ; ``None`` where they do not explain it."""
        if len(a) != len(b) or tuple(a) == tuple(b):
            return None
        roles: list[Role] = []
        for sizes in zip(a, b):
            role = self._role(sizes, roles)
            if role is None:
                return None
            roles.append(role)
        return roles

    def _role(self, sizes: tuple[int, int], before: Sequence[Role]) -> Role | None:
        has_batch = any(role in ("batch", "both", "groups") for role in before)
        (batch_a, batch_b), (length_a, length_b) = self.batch, self.length
        if sizes == self.batch and not has_batch and (max(self.batch) > 1 or not before):
            return "batch"
        if sizes == self.length and length_a != length_b:
            return "length"
        if sizes[0] == sizes[1]:
            return "other"
        if sizes == (batch_a * length_a, batch_b * length_b) and max(self.batch) > 1 and not has_batch:
            return "both"
        if self._begin_alike and "length" not in before and self._are_fewer(sizes):
            return "length"
        if self.by == "values" and "length" not in before and sizes[0] * length_b == sizes[1] * length_a:
            return "length"  # with fewer or more positions for each of the input's, by a stride
        if has_batch:
            return None
        if sizes == (batch_a * length_a, batch_b * length_b):
            return "both"
        if self.by in ("start", "list"):
            return None
        is_multiple = sizes[0] * batch_b == sizes[1] * batch_a and sizes[0] % batch_a == 0
        return "groups" if is_multiple else None

    @property
    def _begin_alike(self) -> bool:
        """Do all that face each other stand at the start, of a signal or of its rows?"""
        return self.by not in ("cache", "values") and all(each.from_a == each.from_b == 0 for each in self.stretches)

    def _are_fewer(self, sizes: tuple[int, int]) -> bool:
        """Are these as many times fewer than the positions of the inputs, as strides leave them?"""
        shorter = self.length[0] < self.length[1]
        if any(size > length for size, length in zip(sizes, self.length)) or (sizes[0] < sizes[1]) != shorter:
            return False
        return abs(sizes[0] * self.length[1] - sizes[1] * self.length[0]) <= sum(
            self.length
        )  # one more or less in each

    def of(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the parts of two tensors that face each other, each in one dimension; ``None`` where none do."""
        import torch

        roles = self.roles(a.shape, b.shape)
        if roles is None:
            return None
        sides = []
        spread = [self._spread(tensor, roles, is_b) for tensor, is_b in ((a, False), (b, True))]
        sizes = list(zip(*(tensor.shape for tensor, _ in spread)))
        for (tensor, dims), is_b in zip(spread, (False, True)):
            parts = [self._part(tensor, dims, stretch, is_b, sizes) for stretch in self.stretches]
            found = [part for part in parts if part is not None]
            if len(found) < len(parts):
                return None
            sides.append(torch.cat(found))
        return sides[0], sides[1]

    def _spread(self, tensor: Tensor, roles: Sequence[Role], is_b: bool) -> tuple[Tensor, list[Role]]:
        """Return a tensor with a dimension of its own for the batch."""
        shape: list[int] = []
        dims: list[Role] = []
        for size, role in zip(tensor.shape, roles):
            if role == "both":
                shape += [self.batch[is_b], self.length[is_b]]
                dims += ["batch", "length"]
            elif role == "groups":
                shape += [self.batch[is_b], size // self.batch[is_b]]
                dims += ["batch", "other"]
            else:
                shape.append(size)
                dims.append(role)
        return tensor.reshape(shape), dims

    def _part(
        self, tensor: Tensor, dims: Sequence[Role], stretch: Stretch, is_b: bool, sizes: Sequence[tuple[int, int]]
    ) -> Tensor | None:
        """Return the elements of a stretch; ``None`` where it does not begin and end with positions of the tensor.

        Of runs that begin alike, these are as many as both have, by ``sizes``: strides leave fewer.
        """
        row, start = (stretch.row_b, stretch.from_b) if is_b else (stretch.row_a, stretch.from_a)
        for dim, role in enumerate(dims):
            if role == "batch":
                tensor = tensor.narrow(dim, row, 1)
            elif role == "length" and self._begin_alike:
                shares = [math.ceil(stretch.count * size / whole) for size, whole in zip(sizes[dim], self.length)]
                tensor = tensor.narrow(dim, 0, min(sizes[dim] if self.by == "start" else shares))
            elif role == "length":
                size, whole = tensor.shape[dim], self.length[is_b]
                if start * size % whole or stretch.count * size % whole:
                    return None
                tensor = tensor.narrow(dim, start * size // whole, stretch.count * size // whole)
        return tensor.reshape(-1)

    @property
    def larger(self) -> str:
        """The run with more positions, or with more rows of as many: ``a`` or ``b``."""
        sizes = list(zip(self.length, self.batch))
        return "a" if sizes[0] > sizes[1] else "b"

    def text(self) -> str:
        """Say what was compared with what."""
        long, short = self.larger, "b" if self.larger == "a" else "a"
        said = [
            f"row {one.row_a}{_positions(one.from_a, one.count, self.length[0])} of a with "
            f"row {one.row_b}{_positions(one.from_b, one.count, self.length[1])} of b"
            for one in self.stretches[:3]
        ]
        if self.by == "start":
            one = f"{long} has {max(self.length)} positions, {short} {min(self.length)}"
            return f"{one}: they are compared with the first ones of {long}"
        if self.by == "list":
            return f"what {short} is given is one of the inputs of {long}; compared are {', '.join(said)}"
        if self.by in ("cache", "values"):
            count = min(self.length)
            last = f"one: it is compared with the last one of {long}"
            if count > 1:
                last = f"{count}: they are compared with the last ones of {long}"
            return f"{long} has {max(self.length)} positions, {short} {last}"
        more = f" and {len(self.stretches) - 3} more" if len(self.stretches) > 3 else ""
        return f"compared are {', '.join(said)}{more}, which have the same {self.by}"


def _positions(start: int, count: int, length: int) -> str:
    if count == length:
        return ""
    return f", position {start}," if count == 1 else f", positions {start} to {start + count - 1},"


def facing_parts(a: TraceData, b: TraceData) -> FacingParts | None:
    """Return what faces each other where two runs were given inputs of other sizes; ``None`` where nothing is found."""
    start = _first_values(a, b)
    if start is not None:
        return start
    last = _last_positions(a, b)
    if last is not None and not _is_another_token(a, b):
        return last
    return _same_rows(a, b) or last or _last_values(a, b) or _one_of_a_list(a, b)


# One run is the last positions of the other --------------------------------------------------------


def _last_positions(a: TraceData, b: TraceData) -> FacingParts | None:
    """Find the lengths of the sequences of two runs, where one is the last positions of the other.

    They are read from inputs in one slot whose shapes differ in one dimension, behind that of the batch. The shorter
    one is 1, or it ends with as many positions as the other: it is given the rest in a cache, and returns both.
    """
    for _, one, other in _other_shapes(a, b):
        differing = [(x, y) for x, y in zip(one.shape[1:], other.shape[1:]) if x != y]
        if len(differing) == 1 and one.shape[:1] == other.shape[:1]:
            lengths, batch = differing[0], one.shape[0]
            if min(lengths) == 1 or _returns_whole_caches(a, b, lengths):
                count = min(lengths)
                rows = [Stretch(r, r, lengths[0] - count, lengths[1] - count, count) for r in range(batch)]
                return FacingParts(tuple(rows), (batch, batch), lengths, "cache")
    return None


def _is_another_token(a: TraceData, b: TraceData) -> bool:
    """Is the one token that a run was given not the last one of the other run, in data that both have?"""
    for _, one, other in _other_shapes(a, b):
        left, right = _data(a, one), _data(b, other)
        if (
            one.dtype in EPS
            or left is None
            or right is None
            or left.ndim != 2
            or 1 not in (left.shape[1], right.shape[1])
        ):
            continue
        if 1 in (left.shape[1], right.shape[1]):
            return bool((left[:, -1] != right[:, -1]).any())
    return False


def _last_values(a: TraceData, b: TraceData) -> FacingParts | None:
    """Find an input of one run that is the end of that of the other, along one dimension: a block of a signal.

    What the model kept of the blocks before is a further input, or state of its modules.
    """
    for _, one, other in _other_shapes(a, b):
        differing = [dim for dim, (x, y) in enumerate(zip(one.shape, other.shape)) if x != y]
        left, right = _data(a, one), _data(b, other)
        if len(differing) != 1 or not differing[0] or left is None or right is None or one.dtype not in EPS:
            continue
        dim = differing[0]
        lengths, batch = (one.shape[dim], other.shape[dim]), one.shape[0]
        count = min(lengths)
        ends = [tensor.narrow(dim, tensor.shape[dim] - count, count) for tensor in (left, right)]
        if count > 1 and bool((ends[0] == ends[1]).all()):
            rows = [Stretch(r, r, lengths[0] - count, lengths[1] - count, count) for r in range(batch)]
            return FacingParts(tuple(rows), (batch, batch), lengths, "values")
    return None


def _first_values(a: TraceData, b: TraceData) -> FacingParts | None:
    """Find an input of one run that is the start of that of the other, along one dimension: the first frames.

    Positions in the second dimension, and tokens, are found as those of rows are, which may stand anywhere.
    """
    for _, one, other in _other_shapes(a, b):
        differing = [dim for dim, (x, y) in enumerate(zip(one.shape, other.shape)) if x != y]
        if len(differing) != 1 or differing[0] < 2 or one.dtype not in EPS:
            continue
        dim, (left, right) = differing[0], (_data(a, one), _data(b, other))
        lengths, batch = (one.shape[dim], other.shape[dim]), one.shape[0]
        count = min(lengths)
        if left is None or right is None or not bool((left.narrow(dim, 0, count) == right.narrow(dim, 0, count)).all()):
            continue
        rows = [Stretch(r, r, 0, 0, count) for r in range(batch)]
        return FacingParts(tuple(rows), (batch, batch), lengths, "start")
    return None


# One run is given one of the tensors that the other one joins ----------------------------------------


def _one_of_a_list(a: TraceData, b: TraceData) -> FacingParts | None:
    """Find where what one run makes of an input lies in what the other one makes of that and others, by its numbers."""
    inputs = [[(value, _data(trace, value)) for value in trace.root.inputs] for trace in (a, b)]
    flips = len(inputs[0]) > len(inputs[1])
    few, many = inputs[flips], inputs[not flips]
    if len(few) == len(many) or not few or any(data is None or data.ndim < 2 for _, data in few + many):
        return None
    if any(not any(_are_equal(data, other) for _, other in many) for _, data in few):
        return None
    counts = len(few), len(many)
    short, long = (b, a) if flips else (a, b)
    of_path = {(call.path, call.number): call for call in reversed(long.calls) if call.parent is not None}
    for call in short.calls:
        partner = of_path.get((call.path, call.number))
        for one, other in zip(call.inputs, partner.inputs) if partner is not None else ():
            found = _place_in(short, one, long, other, counts)
            if found is not None:
                return found if not flips else _flipped(found)
    return None


def _are_equal(one: Tensor | None, other: Tensor | None) -> bool:
    import torch

    return one is not None and other is not None and one.shape == other.shape and torch.equal(one, other)


def _place_in(
    short: TraceData, one: Value, long: TraceData, other: Value, counts: tuple[int, int]
) -> FacingParts | None:
    """Find one value in another one: as a stretch of its first dimension, or as a row that is padded."""
    if len(one.shape) != len(other.shape) or one.shape == other.shape or len(one.shape) < 2 or one.dtype not in EPS:
        return None
    differing = [dim for dim, (x, y) in enumerate(zip(one.shape, other.shape)) if x != y]
    left, right = _data(short, one), _data(long, other)
    if left is None or right is None or any(x > y for x, y in zip(one.shape, other.shape)):
        return None
    batches = (one.shape[0], other.shape[0])
    if batches == counts and differing in ([0], [0, 1]) and counts[0] == 1:
        size, whole = one.shape[1], other.shape[1]
        rows = [row for row in range(counts[1]) if _are_close(left[0], right[row].narrow(0, 0, size))]
        if len(rows) == 1:
            return FacingParts((Stretch(0, rows[0], 0, 0, size),), counts, (size, whole), "list")
        return None
    if len(differing) != 1:
        return None
    dim = differing[0]
    size, whole = one.shape[dim], other.shape[dim]
    at = [at for at in range(whole - size + 1) if _are_close(left, right.narrow(dim, at, size))]
    if len(at) != 1:
        return None
    batch = 1 if dim == 0 else one.shape[0]
    rows_of = [Stretch(row, row, 0, at[0], size) for row in range(batch)]
    return FacingParts(tuple(rows_of), (batch, batch), (size, whole), "list")


def _are_close(one: Tensor, other: Tensor) -> bool:
    """Are two tensors equal but for what sums of another order leave?"""
    gap = float((one - other).abs().max())
    return gap <= SAME_SUM * float(one.abs().max())


def _flipped(found: FacingParts) -> FacingParts:
    stretches = [Stretch(each.row_b, each.row_a, each.from_b, each.from_a, each.count) for each in found.stretches]
    return FacingParts(tuple(stretches), found.batch[::-1], found.length[::-1], found.by)


def _other_shapes(a: TraceData, b: TraceData) -> Iterator[tuple[str, Value, Value]]:
    """Yield the inputs in one slot that have as many dimensions and other sizes."""
    others = dict(b.root.inputs.named())
    for slot, value in a.root.inputs.named():
        other = others.get(slot)
        if other is not None and len(value.shape) == len(other.shape) and value.shape != other.shape:
            yield slot, value, other


def _returns_whole_caches(a: TraceData, b: TraceData, lengths: tuple[int, int]) -> bool:
    """Do both runs return tensors with the longer length in one slot, of which the shorter run was given a part?"""
    short, long = (a, b) if lengths[0] < lengths[1] else (b, a)
    whole = dict(long.root.outputs.named()) if long.root.outputs is not None else {}
    known = [
        slot for slot, x in (short.root.outputs or Outputs()).named() if slot in whole and x.shape == whole[slot].shape
    ]
    rest = max(lengths) - min(lengths)
    return any(max(lengths) in whole[slot].shape for slot in known) and any(
        rest in value.shape for value in short.root.inputs
    )


# Rows of one run are in those of the other ---------------------------------------------------------


def _same_rows(a: TraceData, b: TraceData) -> FacingParts | None:
    """Find each row of the run with fewer rows in those of the other, by the numbers of an input that is saved."""
    for slot, one, other in sorted(_other_shapes(a, b), key=lambda found: found[1].dtype in EPS):
        left, right = _data(a, one), _data(b, other)
        if left is None or right is None or "mask" in slot or (_counts_rows(a, one) and _counts_rows(b, other)):
            continue
        rows = [tensor.unsqueeze(0) if tensor.dim() == 1 else tensor for tensor in (left, right)]
        stretches = _found_rows(rows[0], rows[1], _mask_beside(a, one), _mask_beside(b, other))
        if stretches:
            sizes = [(tensor.shape[0], tensor.shape[1]) for tensor in rows]
            what = "tokens" if one.dtype not in EPS else f"numbers in {slot or 'the input'}"
            return FacingParts(tuple(stretches), (sizes[0][0], sizes[1][0]), (sizes[0][1], sizes[1][1]), what)
    return None


def _counts_rows(trace: TraceData, value: Value) -> bool:
    """Has a whole number for each row of another input, as lengths are given?"""
    rows = {other.shape[0] for other in trace.root.inputs if len(other.shape) > 1}
    return value.dtype not in EPS and len(value.shape) == 1 and value.shape[0] in rows


def _data(trace: TraceData, value: Value) -> Tensor | None:
    if value.saved is None or math.prod(value.shape) == 0:
        return None
    try:
        tensor = trace.tensor(value)
    except Exception:  # deleted since: then nothing is paired
        return None
    return None if tensor.is_nested or tensor.is_sparse else tensor.detach()


def _mask_beside(trace: TraceData, tokens: Value) -> Tensor | None:
    """Return the mask of real positions among the inputs: numbers or booleans in the shape of the tokens, 0 or 1."""
    for slot, value in trace.root.inputs.named():
        if "mask" in slot and value.shape[:2] == tokens.shape[:2] and len(value.shape) == 2:
            mask = _data(trace, value)
            if mask is not None and bool(((mask == 0) | (mask == 1)).all()):
                return mask == 1
    counts = [value for value in trace.root.inputs if len(value.shape) == 1 and _counts_rows(trace, value)]
    lengths = [_data(trace, value) for value in counts if value.shape == tokens.shape[:1]]
    rows = _data(trace, tokens) if lengths and len(tokens.shape) > 1 else None
    return (
        None if rows is None else next((kept for each in lengths if (kept := _kept_by(each, rows)) is not None), None)
    )


def _kept_by(lengths: Tensor | None, rows: Tensor) -> Tensor | None:
    """Return where lengths say that rows are, if one number stands behind each of them."""
    import torch

    if lengths is None or not bool(((lengths > 0) & (lengths <= rows.shape[1])).all()):
        return None
    ends = [row[length:] for row, length in zip(rows, lengths.tolist())]
    if not all(bool((end == end.reshape(-1)[0]).all()) for end in ends if end.numel()):
        return None
    return torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]


def _found_rows(a: Tensor, b: Tensor, mask_a: Tensor | None, mask_b: Tensor | None) -> list[Stretch] | None:
    """Return a stretch for each row of the tensor with fewer rows; ``None`` where a row is not in the other one.

    Of as many rows, those are looked for that have fewer real positions.
    """
    sizes = [(rows.shape[0], _real(mask, 0, rows)[1]) for rows, mask in ((a, mask_a), (b, mask_b))]
    flips = sizes[0] > sizes[1]
    few, many, mask_few, mask_many = (b, a, mask_b, mask_a) if flips else (a, b, mask_a, mask_b)
    found: list[Stretch] = []
    used: set[tuple[int, int]] = set()
    for row in range(few.shape[0]):
        start, count = _real(mask_few, row, few)
        wanted = few[row].narrow(0, start, count) if few.dim() > 1 else few[row]
        place = _place_of(wanted, many, mask_many, used)
        if place is None:
            return None
        used.add(place)
        other, at = place
        found.append(Stretch(other, row, at, start, count) if flips else Stretch(row, other, start, at, count))
    return found


def _real(mask: Tensor | None, row: int, rows: Tensor) -> tuple[int, int]:
    """Return the first real position of a row, and how many follow; all of them where no mask tells."""
    if mask is None:
        return 0, rows.shape[1]
    real = mask[row].nonzero().flatten().tolist()
    if not real or real[-1] - real[0] + 1 != len(real):
        return 0, rows.shape[1]
    return real[0], len(real)


def _place_of(wanted: Tensor, rows: Tensor, mask: Tensor | None, used: set[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the row, and the position in it, at which the wanted ones lie: whole real rows first, then parts."""
    import torch

    count = wanted.shape[0]
    places = []
    for row in range(rows.shape[0]):
        start, length = _real(mask, row, rows)
        for at in range(rows.shape[1] - count + 1):
            if (row, at) not in used and torch.equal(rows[row, at : at + count], wanted):
                places.append((not (at == start and count == length), row, at))
    return min(places)[1:] if places else None
