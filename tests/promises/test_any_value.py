"""Modules may pass anything to one another: no exception, no missing call, a note where a value cannot be measured."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import json
import math
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.data.values import Group, Thing, Value
from support.sweep import sampled, whole

MANY = 200_000 if whole() else 110_000  # more than the 100,000 that are walked

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of prototypes we make on purpose


class Emit(nn.Module):
    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make()


class Take(nn.Module):
    def forward(self, given: Any, *, again: Any = None) -> Any:
        return given


class Passing(nn.Module):
    """Has one leaf that makes an object and one that gets it twice, and returns the object."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.emit, self.take = Emit(lambda: thing), Take()

    def forward(self, x: torch.Tensor) -> Any:
        return self.take(self.emit(x), again=x)


PATHS = ["", "emit", "take"]


def passed(thing: Any, **options: Any) -> Trace:
    """Return the trace of a model that passes ``thing`` on, after a check that its output is that very object."""
    trace = fx_debug(Passing(thing), torch.ones(2), **options)
    assert trace.output is thing
    assert [call.path for call in trace.calls] == PATHS
    assert all(call.error is None and call.outputs is not None for call in trace.calls)
    return trace


# Things to pass ----------------------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A plain subclass."""


class Hearing(torch.Tensor):
    """Counts the operations that it sees: only those of the model may be among them."""

    heard = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("nobody may do anything with this")


class Wrapping(torch.Tensor):
    """A wrapper subclass: its data is in another tensor, and every operation goes through dispatch."""

    heard = 0

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapping:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard += 1
        plain = torch.utils._pytree.tree_map(lambda x: x.inner if isinstance(x, Wrapping) else x, (args, kwargs or {}))
        return function(*plain[0], **plain[1])


class Rewrapping(Wrapping):
    """Turns the result of every operation into one of its own class."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_dispatch__(function, types, args, kwargs)
        return cls(found) if isinstance(found, torch.Tensor) else found


class Opaque(Wrapping):
    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("no operations")

    def __repr__(self, **options: Any) -> str:
        raise RuntimeError("no repr")


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(torch.ones(2, 3))


def nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(1, 3), torch.ones(2, 3)], layout=layout)


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    str(dtype)[6:]: lambda dtype=dtype: torch.tensor([0, 1, 2]).to(dtype)
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.bool, torch.int8, torch.uint8,
        torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.complex32,
        torch.complex64, torch.complex128,
    )
}  # fmt: skip
TENSORS |= {
    "float8_e8m0fnu": lambda: torch.tensor([0, 1, 2]).to(torch.float8_e8m0fnu),
    "float4": lambda: torch.tensor([17, 34], dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "bits8": lambda: torch.tensor([17, 34], dtype=torch.uint8).view(torch.bits8),
    "0-dim": lambda: torch.tensor(1.5),
    "empty": lambda: torch.empty(0, 3),
    "NaN": lambda: torch.full((3,), math.nan),
    "sparse COO": lambda: torch.eye(3).to_sparse(),
    "sparse, uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)),
    "sparse CSR": lambda: torch.eye(3).to_sparse_csr(),
    "sparse CSC": lambda: torch.eye(3).to_sparse_csc(),
    "sparse BSR": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "sparse BSC": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "sparse, integers": lambda: torch.eye(3).long().to_sparse(),
    "hybrid sparse": lambda: torch.ones(2, 3).to_sparse(1),
    "MKL-DNN": lambda: torch.ones(2, 3).to_mkldnn(),
    "nested": lambda: nested(torch.strided),
    "jagged": lambda: nested(torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "quantised, 4 bits": lambda: torch.quantize_per_channel(
        torch.ones(2, 4), torch.ones(2), torch.zeros(2), 0, torch.quint4x2
    ),
    "quantised by channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 3), torch.ones(2), torch.zeros(2), 0, torch.qint8
    ),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "fake": fake,
    "expanded": lambda: torch.ones(1).expand(1000, 1000, 10),
    "overlapping": lambda: torch.arange(5.0).as_strided((3, 3), (1, 1)),
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j]).conj().imag,
    "freed storage": lambda: torch.ones(3).requires_grad_(False),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "subclass": lambda: torch.ones(2).as_subclass(Tagged),
    "subclass with __torch_function__": lambda: torch.ones(2).as_subclass(Hearing),
    "subclass that refuses": lambda: torch.ones(2).as_subclass(Refusing),
    "wrapper": lambda: Wrapping(torch.ones(2)),
    "wrapper that refuses": lambda: Opaque(torch.ones(2)),
    "64 dimensions": lambda: torch.ones((1,) * 64),
}


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    scores: dict[str, torch.Tensor]
    missing: Any = None


class Pair(NamedTuple):
    first: Any
    second: Any


class Slotted:
    __slots__ = ("inside", "unset")

    def __init__(self) -> None:
        self.inside = torch.ones(2)


class Raising:
    """Raises whatever it is asked."""

    def __init__(self) -> None:
        object.__setattr__(self, "tensor", torch.ones(2))

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("getattr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("iter")


class RaisingOnEverything(Raising):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("getattribute")


class BareException(BaseException):
    """Not an ``Exception``: like a timeout of a test runner, or the stop button of a notebook."""


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("str of the exception")


class RaisesBadly:
    def __repr__(self) -> str:
        raise BadText


class ReprIsNoText:
    def __repr__(self) -> str:
        return 3  # type: ignore[return-value]


class ReprOfSurrogates:
    def __repr__(self) -> str:
        return "broken \ud800 text\x00\x1b[31m\u2028"


class HugeRepr:
    def __repr__(self) -> str:
        return "x" * 3_000_000


class HugeNumber:
    def __repr__(self) -> str:
        return str(10**5000)


class Recursive:
    def __repr__(self) -> str:
        return repr(self)


class Properties:
    asked = 0

    def __init__(self) -> None:
        self.tensor = torch.ones(2)

    @property
    def costly(self) -> Any:
        type(self).asked += 1
        raise RuntimeError("property")


class LyingList(list):
    def __len__(self) -> int:
        raise RuntimeError("len")

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("iter")


class EndlessList(list):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield 1


class LyingDict(dict):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("iter")

    def keys(self) -> Any:
        raise RuntimeError("keys")


class BadKey:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        raise RuntimeError("repr of a key")


class LyingClass:
    @property
    def __class__(self) -> type:
        raise RuntimeError("class")


class PretendsToBeATensor:
    @property
    def __class__(self) -> type:
        return torch.Tensor


class Color(enum.Enum):
    RED = 1


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


@dataclasses.dataclass
class HalfMade:
    hidden: torch.Tensor
    late: torch.Tensor = dataclasses.field(init=False)


@dataclasses.dataclass
class Node:
    value: Any
    next: Any = None


def deep(make: Callable[[Any], Any], levels: int = 10_000) -> Any:
    thing: Any = torch.ones(2)
    for _ in range(levels):
        thing = make(thing)
    return thing


def cyclic_list() -> list[Any]:
    thing: list[Any] = [torch.ones(2)]
    thing.append(thing)
    return thing


def cyclic_dict() -> dict[str, Any]:
    thing: dict[str, Any] = {"x": torch.ones(2)}
    thing["self"] = [thing, (thing,)]
    return thing


def cyclic_object() -> Any:
    thing = types.SimpleNamespace(x=torch.ones(2))
    thing.self = thing
    return thing


def doubling(levels: int = 60) -> list[Any]:
    """Return a list that is small in memory and has 2**levels items when it is walked."""
    thing: list[Any] = [torch.ones(2)]
    for _ in range(levels):
        thing = [thing, thing]
    return thing


def woven_objects(width: int = 40) -> Any:
    """Return objects that all refer to each other: walking every path through them takes for ever."""
    crowd = [Properties() for _ in range(width)]
    for i, one in enumerate(crowd):
        for j, other in enumerate(crowd):
            setattr(one, f"o{j}", other)
        one.tensor = i
    return crowd[0]


def numbers() -> Iterator[int]:
    yield from range(3)


def model_output() -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=torch.ones(2, 3), hidden_states=(torch.ones(2),))


def cache() -> Any:
    from transformers import DynamicCache

    made = DynamicCache()
    made.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    return made


THINGS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "huge integer": lambda: 10**5000,
    "negative zero": lambda: -0.0,
    "NaN": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "complex": lambda: complex(math.nan, math.inf),
    "bytes": lambda: bytes(range(256)),
    "bytearray": lambda: bytearray(b"abc"),
    "text": lambda: "naïve \U0001f600 \ud800 \x00 text",
    "subclass of str": lambda: Text("a"),
    "subclass of int": lambda: Whole(3),
    "enum": lambda: Color.RED,
    "Ellipsis": lambda: ...,
    "slice": lambda: slice(1, None),
    "range": lambda: range(10**12),
    "decimal": lambda: decimal.Decimal("1.1"),
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "Size": lambda: torch.Size([1, 2]),
    "Generator": lambda: torch.Generator(),
    "class": lambda: Output,
    "function": lambda: numbers,
    "module": lambda: nn.Sequential(nn.Linear(2, 2)),
    "optimizer": lambda: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1),
    "storage": lambda: torch.ones(3).untyped_storage(),
    "lock": lambda: __import__("threading").Lock(),
    "exception": lambda: ValueError("passed on, not raised"),
    "file": lambda: open(__file__, encoding="utf-8"),  # noqa: SIM115
    "numpy array": lambda: np.arange(6.0).reshape(2, 3),
    "numpy objects": lambda: np.array([{}, torch.ones(2)], dtype=object),
    "numpy scalar": lambda: np.float32(1.5),
    "numpy record": lambda: np.zeros(2, dtype=[("a", "f4"), ("b", "O")]),
    "dataclass": lambda: Output(torch.ones(2), {"a": torch.ones(3)}),
    "half-made dataclass": lambda: HalfMade(torch.ones(2)),
    "named tuple": lambda: Pair(torch.ones(2), [torch.ones(3)]),
    "ModelOutput": model_output,
    "key-value cache": cache,
    "torch.return_types": lambda: torch.ones(2, 3).max(dim=1),
    "packed sequence": lambda: nn.utils.rnn.pack_sequence([torch.ones(2, 3), torch.ones(1, 3)]),
    "slots": Slotted,
    "set of tensors": lambda: {torch.ones(2), torch.ones(3)},
    "frozenset": lambda: frozenset({1, "a", None}),
    "set of objects whose repr raises": lambda: {BadKey(), BadKey()},
    "deque": lambda: collections.deque([torch.ones(2)], maxlen=3),
    "ordered dict": lambda: collections.OrderedDict(a=torch.ones(2)),
    "default dict": lambda: collections.defaultdict(list, a=[torch.ones(2)]),
    "counter": lambda: collections.Counter("abca"),
    "mapping proxy": lambda: types.MappingProxyType({"a": torch.ones(2)}),
    "keys of a dict": lambda: {"a": torch.ones(2)}.keys(),
    "values of a dict": lambda: {"a": torch.ones(2)}.values(),
    "odd keys": lambda: {
        1: 0, "1": 1, None: torch.ones(2), (1, 2): 2, math.nan: 3, float("nan"): 4, b"b": 5, Color.RED: 6, 1.5: 7,
        frozenset(): 8, torch.float32: 9, BadKey(): torch.ones(3), "": 10, "a/b": 11,
    },
    "tensor as a key": lambda: {torch.ones(2): 1},
    "cyclic list": cyclic_list,
    "cyclic dict": cyclic_dict,
    "cyclic object": cyclic_object,
    "10,000 lists deep": lambda: deep(lambda inner: [inner]),
    "10,000 dicts deep": lambda: deep(lambda inner: {"a": inner}),
    "10,000 tuples deep": lambda: deep(lambda inner: (inner,)),
    "10,000 objects deep": lambda: deep(lambda inner: types.SimpleNamespace(inner=inner)),
    "linked list of 10,000": lambda: deep(lambda inner: Node(torch.zeros(1), inner)),
    f"list of {MANY:,} numbers": lambda: list(range(MANY)),
    f"dict of {MANY:,} numbers": lambda: dict.fromkeys(range(MANY), 1.5),
    f"set of {MANY:,} numbers": lambda: set(range(MANY)),
    "thousand lists of a thousand lists": lambda: [[[[]] * 1000] * 1000] * 1000,
    "lists that double": doubling,
    "woven objects": woven_objects,
    "generator": numbers,
    "iterator": lambda: iter([torch.ones(2)]),
    "zip": lambda: zip([1], [2]),
    "coroutine function": lambda: asynchronous,
    "everything raises": Raising,
    "really everything raises": RaisingOnEverything,
    "raises something unprintable": RaisesBadly,
    "repr gives no text": ReprIsNoText,
    "repr with surrogates": ReprOfSurrogates,
    "repr of three million letters": HugeRepr,
    "repr without end": Recursive,
    "huge integer in a repr": HugeNumber,
    "subclass of int, huge": lambda: Whole(10**5000),
    "dict with a huge key": lambda: {10**5000: [10**5000]},
    "list of raising objects": lambda: [Raising(), torch.ones(2), Raising()],
    "properties that raise": Properties,
    "list that cannot be walked": lambda: LyingList([torch.ones(2)]),
    "list without end": lambda: EndlessList([torch.ones(1)]),
    "dict that cannot be walked": lambda: LyingDict(a=torch.ones(2)),
    "class that raises": LyingClass,
    "no tensor at all": PretendsToBeATensor,
    "trace": lambda: fx_debug(nn.Linear(2, 2), torch.ones(1, 2)),
}  # fmt: skip


async def asynchronous() -> None:
    pass


for name, dtype in (("float8_e8m0fnu", "float8_e8m0fnu"), ("float4", "float4_e2m1fn_x2")):
    if not hasattr(torch, dtype):  # torch has them from 2.7 and 2.8 on
        del TENSORS[name]
ALL = {f"tensor: {name}": make for name, make in TENSORS.items()} | THINGS


ENDLESS = ("lists that double", "list without end")
LONG = [kind for kind in ALL if f"{MANY:,}" in kind or "thousand lists" in kind or kind in ENDLESS]
SHORTENED = () if whole() else LONG
WITH_FILES = frozenset(sampled([kind for kind in ALL if kind not in SHORTENED], 3))  # as files of tensors, too


# Every one of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_anything_can_be_passed_around(kind: str, tmp_path: Path) -> None:
    thing = ALL[kind]()
    stats = passed(thing, save=tmp_path / "stats")
    assert fxdebug.load(tmp_path / "stats") == stats
    for values in () if kind in SHORTENED else ("repr", "tensors"):
        trace = passed(thing, values=values, save=tmp_path / values)
        loaded = fxdebug.load(tmp_path / values)
        assert loaded == trace
        assert str(loaded) == str(trace) and len(str(trace).splitlines()) >= len(PATHS) + 2
        assert [call.id for call in trace.calls] == [call.id for call in stats.calls]
    for use_repr in (True, False) if kind in WITH_FILES else (True,):
        folder = tmp_path / f"standard, use_repr={use_repr}"
        with fxdebug.model_addition_debugger_context(model := Passing(thing), folder, use_repr=use_repr):
            assert model(torch.ones(2)) is thing
        tree = json.loads((folder / "Passing_debug_tree_FULL_TENSORS.json").read_text())
        assert [child["module_path"] for child in tree["children"]] == ["Passing.emit", "Passing.take"]


WITHOUT_NUMBERS = {
    "bits8": "no statistics: torch.bits8 has no arithmetic",
    "meta": "no statistics: a meta tensor has no data",
    "fake": "no statistics: a fake tensor has no data",
    "wrapper that refuses": "no statistics",
}


@pytest.mark.parametrize("kind", TENSORS)
def test_every_tensor_is_a_value_with_statistics_or_a_note_that_says_why_not(kind: str) -> None:
    trace = passed(TENSORS[kind]())
    (value,) = trace.calls[1].outputs
    assert trace.calls[2].inputs[0] is trace.root.outputs[0] is value
    said = [note for note in trace.notes if note.what.startswith("no statistics")]
    if kind in WITHOUT_NUMBERS:
        assert value.stats is None
        assert any(note.what.startswith(WITHOUT_NUMBERS[kind]) and note.where == "emit" for note in said), trace.notes
        assert trace.calls[1].notes
    else:
        assert said == [] and value.stats is not None


def test_a_parameter_that_has_no_shape_yet_is_a_thing_with_a_note() -> None:
    (call, taker) = passed(nn.UninitializedParameter()).calls[1:]
    assert (
        call.outputs.item
        == taker.inputs.args[0]
        == Thing("UninitializedParameter", "<UninitializedParameter that cannot be described>")
    )
    assert call.notes[0].what.startswith("a UninitializedParameter was not recorded: RuntimeError: Can't access")


def test_a_note_says_where_an_object_could_not_be_shown() -> None:
    said = {
        "everything raises": "the repr of a Raising raised RuntimeError: repr",
        "raises something unprintable": "the repr of a RaisesBadly raised BadText: (its text cannot be shown",
        "10,000 lists deep": "containers nested deeper than 200 are not followed",
        f"list of {MANY:,} numbers": "containers of more than 100000 items in all: what comes after",
        "lists that double": "containers of more than 100000 items in all: what comes after",
        "huge integer in a repr": "the repr of a HugeNumber raised ValueError",
        "10,000 objects deep": "the repr of a SimpleNamespace raised RecursionError",
    }
    for kind, words in said.items():
        notes = passed(THINGS[kind]()).calls[1].notes
        assert any(note.what.startswith(words) for note in notes), (kind, notes)


# What becomes of some ----------------------------------------------------------------------------


def item(thing: Any) -> Any:
    return passed(thing).calls[1].outputs.item


def test_containers_keep_their_kind_class_and_names() -> None:
    a, b = torch.ones(1), torch.ones(2)
    for thing, expected in (
        ([a, 1], ("sequence", "list", None)),
        ((a,), ("sequence", "tuple", None)),
        (Pair(a, b), ("sequence", "Pair", ("first", "second"))),
        (torch.ones(2, 2).max(dim=1), ("sequence", "max", ("values", "indices"))),
        ({"k": a, 1: b}, ("mapping", "dict", ("k", 1))),
        (collections.OrderedDict(k=a), ("mapping", "OrderedDict", ("k",))),
        (Output(a, {}), ("object", "Output", ("hidden", "scores", "missing"))),
        (model_output(), ("mapping", "BaseModelOutput", ("last_hidden_state", "hidden_states"))),
        ({a}, ("object", "set", None)),
        (Slotted(), ("object", "Slotted", ("inside",))),
    ):
        found = item(thing)
        assert (found.kind, found.type, found.keys) == expected
    assert isinstance(item(Pair(a, b))["second"], Value)
    assert item(Output(a, {"s": b}))["scores"]["s"].shape == (2,)


def test_plain_values_are_recorded_with_their_own_type() -> None:
    for thing in (None, True, 7, 2**600, 2.5, "text", b"\x00", 1 + 2j, -math.inf):
        found = item(thing)
        assert type(found) is type(thing) and found == thing
    assert math.isnan(item(math.nan)) and item(math.nan) is item(-float("nan"))
    assert item(10**5000) == Thing("int", hex(10**5000))  # Python does not read 5001 digits from text
    assert item(Whole(3)) == Thing("Whole", "3", item(Whole(3)).number)


def test_one_object_in_two_places_has_one_number_and_two_equal_objects_have_two() -> None:
    class Plain:
        pass

    one = Plain()
    first, again, other = item([one, one, Plain()]).items
    assert first == again and first.number != other.number
    assert first.text.endswith("Plain object at 0xXXXXXXXX>")


def test_the_keys_1_and_text_1_stay_apart_and_so_do_two_nans(tmp_path: Path) -> None:
    thing = {1: "a", "1": "b", math.nan: "c", float("nan"): "d", True and 2: "e"}
    passed(thing, save=tmp_path)
    found = fxdebug.load(tmp_path).calls[1].outputs.item
    assert [type(key) for key in found.keys] == [int, str, float, float, int]
    assert found.items == ("a", "b", "c", "d", "e")
    assert (found[1], found["1"], found[2]) == ("a", "b", "e")


def test_a_cycle_ends_where_it_comes_back_to_itself() -> None:
    found = item(cyclic_list())
    assert found.items[1] == Thing("list", "<cycle: the list 1 up>")
    found = item(cyclic_dict())
    assert found["self"].items[0] == Thing("dict", "<cycle: the dict 2 up>")
    assert found["self"].items[1].items[0] == Thing("dict", "<cycle: the dict 3 up>")


def test_a_container_that_is_shared_many_times_is_recorded_up_to_a_limit_with_a_note() -> None:
    trace = passed(doubling())
    assert any("items" in note.what for note in trace.calls[1].notes)


def test_a_generator_that_is_passed_on_is_not_consumed() -> None:
    made = numbers()
    passed(made)
    assert list(made) == [0, 1, 2]


def test_properties_are_not_run_and_passed_objects_are_not_changed() -> None:
    thing = Properties()
    before = dict(vars(thing))
    assert isinstance(item(thing), Group)
    assert Properties.asked == 0
    assert vars(thing) == before


def test_a_subclass_does_not_see_our_own_operations() -> None:
    hearing = torch.ones(2).as_subclass(Hearing)
    Hearing.heard = 0
    passed(hearing, values="tensors")
    assert Hearing.heard == 0
    wrapping = Wrapping(torch.ones(2))
    Wrapping.heard = 0
    trace = passed(wrapping)
    assert trace.calls[1].outputs[0].type == "Wrapping"


def test_only_exceptions_that_stop_a_program_get_through() -> None:
    """An interrupt inside of a ``__repr__`` is the user's Ctrl-C, not a value that cannot be shown."""

    class Interrupted:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    model = Passing(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fx_debug(model, torch.ones(2))
    assert "forward" not in model.__dict__


def test_values_that_modules_change_in_place_are_recorded_before_and_after() -> None:
    class Doubles(nn.Module):
        def forward(self, x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            x["a"].mul_(2)
            x["b"] = x["a"] + 1
            return x

    given = {"a": torch.ones(2)}
    trace = fx_debug(Doubles(), (given,))
    assert trace.output is given
    (before,), (after, new) = trace.root.inputs, trace.root.outputs
    assert (before.stats.mean, after.stats.mean, new.stats.mean) == (1.0, 2.0, 3.0)
    assert before.storage == after.storage != new.storage


def test_a_wrapper_of_wrappers_is_not_saved_and_the_rest_of_the_run_is(tmp_path: Path) -> None:
    trace = fx_debug(Emit(lambda: Rewrapping(torch.ones(2))), torch.ones(3), values="tensors", save=tmp_path)
    assert any("Rewrapping has no memory of its own" in note.what for note in trace.notes)
    assert torch.equal(fxdebug.load(tmp_path).tensor(trace.root.inputs[0]), torch.ones(3))


def test_a_masked_tensor_warns_as_often_as_without_tracing() -> None:
    from torch.masked import masked_tensor

    class Masks(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (masked_tensor(x, x > 0) + masked_tensor(x, x > 0)).sum()

    x = torch.tensor([1.0, -1.0])
    counts = []
    for run in (lambda: Masks()(x), lambda: fx_debug(Masks(), x)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run()
        counts.append([(warning.filename, warning.lineno) for warning in said])
    assert counts[0] == counts[1] != []
