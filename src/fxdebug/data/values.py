"""Tensors of a run, and the arguments and results that held them: plain data without torch.

A :class:`Value` is one distinct version of a tensor. Arguments and results keep their structure: :class:`Inputs` and
:class:`Outputs` hold nested items. An item is a :class:`Value`, a :class:`Group` (a container and its items), a
:class:`Thing` (any other object, as text) or a plain ``None``, ``bool``, ``int``, ``float``, ``complex``, ``str`` or
``bytes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from fxdebug.brief import brief
from fxdebug.data import call_html
from fxdebug.errors import NotFound, nearest
from fxdebug.printable import printable

Keeping: TypeAlias = Literal["stats", "samples", "repr", "tensors"]  # what a run keeps of each value
VALUES: tuple[Keeping, ...] = get_args(Keeping)

LONGEST_INT_BITS = 2_000  # bits of an integer: Python refuses to read very long ones from decimals

_NANS: dict[str, Any] = {}


def canonical_nan(number: Any) -> Any:
    """Return a float or complex number; equal NaN become one object, so that tuples with NaN compare equal.

    Tuples compare their elements by identity first, and NaN is not equal to itself.

    >>> (canonical_nan(float("nan")),) == (canonical_nan(-float("nan")),)
    True
    """
    return number if number == number else _NANS.setdefault(repr(number), number)


NAN = canonical_nan(math.nan)

Kind = TypeVar("Kind")


def fast_constructor(kind: type[Kind]) -> type[Kind]:
    """Return a constructor of a frozen dataclass that takes an eighth of the time, for records made by the thousand.

    A frozen dataclass sets its own fields through ``object.__setattr__``. This constructor sets them on an instance of
    a class that is not frozen and has the same layout, and then assigns ``__class__``.

    >>> fast_constructor(Stats)(1, 2.0, 0.0, 2.0, 2.0, absmax=2.0) == Stats(1, 2.0, 0.0, 2.0, 2.0, 2.0)
    True
    """
    names: dict[str, Any] = {"_kind": kind, "_missing": MISSING}  # with _: fields have no such names
    parameters, body = [], []
    for entry in fields(kind):  # type: ignore[arg-type]
        name, value = entry.name, entry.name
        if entry.default_factory is not MISSING:
            names[f"new_{name}"] = entry.default_factory
            value = f"new_{name}() if {name} is _missing else {name}" if entry.init else f"new_{name}()"
            default = "=_missing"
        else:
            names[f"default_{name}"] = entry.default
            default = "" if entry.default is MISSING else f"=default_{name}"
        if entry.init:
            parameters.append(name + default)
        body.append(f"    _instance.{name} = {value}")
    layout = {"__slots__": kind.__slots__} if "__slots__" in kind.__dict__ else {}  # type: ignore[attr-defined]
    names["_unfrozen"] = type(kind.__name__, kind.__bases__, layout)
    lines = [
        f"def make({', '.join(parameters)}):",
        "    _instance = _unfrozen()",
        *body,
        "    _instance.__class__ = _kind",
        "    return _instance",
    ]
    exec("\n".join(lines), names)
    return cast("type[Kind]", names["make"])


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the elements of one tensor; mean, std, min, max and absmax are over the finite elements.

    ``std`` divides by n - 1 as ``torch.std`` does and is 0.0 for a single element. The five are
    ``None`` when there is no finite element. Integers keep exact ``min`` and ``max``; booleans
    count as 0 and 1. A complex tensor has a complex ``mean`` and no ``min`` and ``max``; an element counts
    as NaN or infinite if either part is (``posinf`` counts all infinities).
    """

    count: int
    mean: float | complex | None
    std: float | None
    min: float | int | None
    max: float | int | None
    absmax: float | int | None
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0

    @property
    def finite(self) -> int:
        """The number of elements that are neither NaN nor infinite."""
        return self.count - self.nan - self.posinf - self.neginf


def pooled(parts: Sequence[Stats]) -> Stats:
    """Return the statistics of several tensors taken together (Chan's update of mean and deviation).

    >>> pooled([Stats(2, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(2, 3.0, 0.0, 3.0, 3.0, 3.0)]).mean
    2.0
    """
    known = [part for part in parts if part.mean is not None and part.std is not None]
    counts = [sum(getattr(part, name) for part in parts) for name in ("count", "nan", "posinf", "neginf", "zeros")]
    count, nan, posinf, neginf, zeros = counts
    if not known:
        return Stats(count, None, None, None, None, None, nan, posinf, neginf, zeros)
    total, mean, root = 0, known[0].mean, 0.0  # the root of the squared deviations: squares of 1e200 are infinite
    for part in known:
        assert mean is not None and part.mean is not None and part.std is not None
        step, n = part.mean - mean, part.finite
        mean = mean + step * (n / (total + n))
        root = math.hypot(root, part.std * math.sqrt(n - 1), abs(step) * math.sqrt(total * n / (total + n)))
        total += n
    extremes = [[getattr(p, name) for p in known if getattr(p, name) is not None] for name in ("min", "max", "absmax")]
    low, high, absmax = extremes
    return Stats(
        count,
        mean,
        root / math.sqrt(total - 1) if total > 1 else 0.0,
        min(low, default=None),
        max(high, default=None),
        max(absmax, default=None),
        nan,
        posinf,
        neginf,
        zeros,
    )


@dataclass(frozen=True, slots=True)
class Sharding:
    """The layout of a DTensor over its device mesh; the :class:`Value` around it is the local part."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    mesh: tuple[int, ...]
    mesh_dims: tuple[str, ...] | None
    placements: tuple[str, ...]

    @property
    def is_shard(self) -> bool:
        """Is the local part one of several along some dimension?"""
        return any("S(" in placement for placement in self.placements)

    @property
    def is_partial(self) -> bool:
        """Is the local part a term of a sum (or of another reduction) that is still to be taken over the mesh?"""
        return any(placement.startswith("P") for placement in self.placements)

    def __str__(self) -> str:
        """Return what the local part is: ``local shard of 6×4``, ``partial sum``; empty for a whole copy."""
        shard = f"local shard of {shape_text(self.shape)}" if self.is_shard else ""
        kinds = [placement[2:-1] or "sum" for placement in self.placements if placement.startswith("P")]
        return ", ".join(filter(None, [shard, *(f"partial {kind}" for kind in dict.fromkeys(kinds))]))


UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Value:
    """One version of a tensor: measured once, saved once, and referred to wherever it appeared.

    A tensor object that appears twice with no write in between is one ``Value``; an in-place operation makes a new
    one. ``storage`` numbers the memory: values with equal ``storage`` are views of one another. ``offset`` and
    ``stride`` count elements. A size that is not one number (ragged, or data-dependent in a fake tensor) is
    ``UNKNOWN``, -1.
    """

    number: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    layout: str = "strided"
    stride: tuple[int, ...] | None = None
    offset: int = 0
    type: str = "Tensor"
    requires_grad: bool = False
    storage: int | None = None
    name: str | None = None  # of the model's parameter or buffer, where it is one
    stats: Stats | None = None
    saved: str | None = None  # the place of its data: "<file>#<key>"
    digest: str | None = None  # of dtype, shape and data; set when the data was saved
    sharding: Sharding | None = None
    detail: str | None = None  # facts that no field above can hold ("quantised …", "inside vmap …")

    def __repr__(self) -> str:
        known = "" if self.stats is None or self.stats.mean is None else f" mean {self.stats.mean:.4g}"
        return printable(f"<value {self.number} {self.label}{known}>")

    def _repr_html_(self) -> str:
        return call_html.value_html(self)

    @property
    def numel(self) -> int:
        """The number of elements of ``shape``."""
        return math.prod(self.shape)

    @property
    def label(self) -> str:
        """Dtype and shape in one word.

        >>> Value(0, (2, 8), "float32", "cpu").label
        'float32[2, 8]'
        """
        return f"{self.dtype}[{', '.join(map(_size_text, self.shape))}]"


@brief
@dataclass(frozen=True, slots=True)
class Thing:
    """An object that is kept as text only: its type, its ``repr``, and a number that identifies it.

    In ``text`` memory addresses are replaced. ``number`` is the same wherever this object appears in the trace.
    """

    type: str
    text: str
    number: int | None = None


def as_item(value: Any) -> Any:
    """Return the item for a plain value: itself, or a :class:`Thing` for an integer too long to read from decimals.

    >>> as_item(2), as_item(1 << 4000).text[:6]
    (2, '0x1000')
    """
    if type(value) is int and value.bit_length() > LONGEST_INT_BITS:
        return Thing("int", hex(value))
    return canonical_nan(value) if type(value) in (float, complex) else value


@brief
@dataclass(frozen=True, slots=True)
class Group:
    """A container and its items.

    ``kind`` is ``sequence`` (list, tuple and their subclasses), ``mapping`` (dict and its
    subclasses) or ``object`` (a dataclass, a set, anything with attributes). ``keys`` are the
    mapping's keys, the object's attributes or the named tuple's fields, and ``None`` for the rest.
    ``text`` is the ``repr`` of an object, as in :class:`Thing`.
    """

    kind: str
    type: str
    items: tuple[Item, ...]
    keys: tuple[Any, ...] | None = None
    text: str | None = None
    number: int | None = None

    def __getitem__(self, key: Any) -> Item:
        """Return an item by position, or by key where there are keys; raises ``NotFound`` with those there are."""
        if self.keys is not None and key in self.keys:
            return self.items[self.keys.index(key)]
        if isinstance(key, int) and self.kind == "sequence":
            return self.items[key]
        known = self.keys if self.keys is not None else range(len(self.items))
        raise NotFound(f"no {key!r} in this {self.type}; it has {', '.join(map(repr, known)) or 'nothing'}")

    def __len__(self) -> int:
        return len(self.items)


Item: TypeAlias = Value | Group | Thing | bool | int | float | complex | str | bytes | None


def leaves(item: Item, slot: str = "") -> Iterator[tuple[str, Value]]:
    """Yield every tensor value inside ``item`` with its slot, in order, depth first.

    >>> v = Value(0, (2,), "float32", "cpu")
    >>> [slot for slot, _ in leaves(Group("mapping", "dict", (v, Group("sequence", "list", (v,))), ("a", "b")))]
    ['a', 'b[0]']
    """
    pending: list[tuple[str, Item]] = [(slot, item)]  # containers may be nested deeper than Python can recurse
    while pending:
        slot, item = pending.pop()
        if isinstance(item, Value):
            yield slot, item
        elif isinstance(item, Group):  # it may have many numbers: they get no slots
            keys = item.keys if item.keys is not None else range(len(item.items))
            inside = [(key, child) for key, child in zip(keys, item.items) if isinstance(child, (Value, Group))]
            pending.extend([(_slot(slot, key), child) for key, child in reversed(inside)])


def numbers(item: Item) -> dict[str, float | str]:
    """Return the numbers (``True`` and ``False`` too) and texts inside ``item`` by slot, without those in objects.

    >>> numbers(Group("mapping", "dict", (0.5, None, Group("sequence", "list", (3, True))), ("loss", "y", "n")))
    {'loss': 0.5, 'n[0]': 3, 'n[1]': True}
    """
    return {place: leaf for place, leaf in _items(item) if isinstance(leaf, (int, float, str))}


def rebuilt(item: Item, leaf: Callable[[Any], Any], group: Callable[[Group, tuple[Any, ...]], Item]) -> Any:
    """Return an item with other leaves, and the groups that ``group`` makes of each group and its new items.

    >>> rebuilt(Group("sequence", "list", (1, Group("sequence", "list", (2,)))), str, lambda one, items: items)
    ('1', ('2',))
    """
    if not isinstance(item, Group):
        return leaf(item)
    groups = [item]
    for one in groups:  # the list grows meanwhile: groups may be nested deeper than Python can recurse
        groups.extend(inner for inner in one.items if isinstance(inner, Group))
    made: dict[int, Any] = {}
    for one in reversed(groups):
        made[id(one)] = group(one, tuple([made[id(x)] if isinstance(x, Group) else leaf(x) for x in one.items]))
    return made[id(item)]


def _items(item: Item) -> Iterator[tuple[str, Item]]:
    pending: list[tuple[str, Item]] = [("", item)]
    while pending:
        slot, item = pending.pop()
        if not isinstance(item, Group):
            yield slot, item
        elif item.kind != "object":
            keys = item.keys if item.keys is not None else range(len(item.items))
            inside = [(_slot(slot, key), child) for key, child in zip(keys, item.items)]
            pending.extend(reversed(inside))


def _slot(parent: str, key: Any) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{parent}.{key}" if parent else key
    try:
        return f"{parent}[{key!r}]"
    except RecursionError:  # of a file that somebody has changed: what a recording keeps is not so deep
        return f"{parent}[<a key that is nested too deep to be shown>]"


class _Slots:
    """Access by position and by slot, for :class:`Inputs` and :class:`Outputs`: a sequence of tensor values."""

    __slots__ = ()

    def named(self) -> Iterator[tuple[str, Value]]:
        """Yield pairs of slot and value, in order."""
        raise NotImplementedError

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the tensors: ``args[0]``, a keyword, a key or a field."""
        return tuple(slot for slot, _ in self.named())

    def __iter__(self) -> Iterator[Value]:
        return (value for _, value in self.named())

    def __len__(self) -> int:
        return sum(1 for _ in self.named())

    def __getitem__(self, key: int | str) -> Value:
        """Return a value by position or by slot; raises ``NotFound`` with the slots there are."""
        pairs = list(self.named())
        if isinstance(key, int):
            if -len(pairs) <= key < len(pairs):
                return pairs[key][1]
            raise NotFound(f"no tensor {key} here: there are {len(pairs)}")
        for slot, value in pairs:
            if slot == key:
                return value
        names = [slot for slot, _ in pairs]
        raise NotFound(f"no tensor in slot {key!r}; there is {', '.join(names) or 'none'}.{nearest(key, names)}")


@brief
@dataclass(frozen=True, slots=True)
class Inputs(_Slots):
    """The arguments of a call. Iterating gives its tensors; slots are ``args[0]`` and keyword names."""

    args: tuple[Item, ...] = ()
    kwargs: Mapping[str, Item] = field(default_factory=dict)

    def named(self) -> Iterator[tuple[str, Value]]:
        """Yield positional arguments as ``args[0]`` and keyword arguments by name."""
        for position, item in enumerate(self.args):
            yield from leaves(item, f"args[{position}]")
        for name, item in self.kwargs.items():
            yield from leaves(item, name)


@brief
@dataclass(frozen=True, slots=True)
class Outputs(_Slots):
    """The result of a call. Iterating gives its tensors; ``item`` keeps the whole structure."""

    item: Item = None

    def __eq__(self, other: object) -> bool:
        """Compare as tuples do, by identity first, so that an item of NaN equals itself (see ``canonical_nan``)."""
        return (self.item,) == (other.item,) if isinstance(other, Outputs) else NotImplemented

    def named(self) -> Iterator[tuple[str, Value]]:
        """Yield each tensor with its slot: a key, a field, ``[0]``; the slot of a single tensor is empty."""
        return leaves(self.item)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape with × between its sizes.

    >>> shape_text((2, 8, 384))
    '2×8×384'
    """
    return "×".join(map(_size_text, shape)) if shape else "·"


def _size_text(size: int) -> str:
    return "?" if size == UNKNOWN else str(size)


SAMPLES = 16  # elements kept of a value with values="samples"


def sample_positions(numel: int) -> list[int]:
    """Return the positions at which a value of ``numel`` elements is sampled: spread over all of it, always the same.

    >>> sample_positions(3), len(sample_positions(1000))
    ([0, 1, 2], 16)
    """
    if numel <= SAMPLES:
        return list(range(numel))
    # multiples of the golden section: no period that a row or a column could share
    return sorted({int(((i + 1) * 0.6180339887498949) % 1.0 * numel) for i in range(SAMPLES)})
