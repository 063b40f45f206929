"""Codes of arguments are compared by what they hold, objects by what they are, and built again as they were."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from transformers.utils import ModelOutput

from fxdebug.capture.tape.encoding import (
    OpaqueArg,
    Struct,
    are_plain_keys,
    is_same_code,
    leaves_in,
    members_of,
    opaque_objects_in,
)

Pair = namedtuple("Pair", "a b")
ONE = object()


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int


@dataclasses.dataclass
class Slotted:
    __slots__ = ("a", "b")
    a: int
    b: int


@dataclasses.dataclass
class Output(ModelOutput):
    a: Any = None
    b: Any = None


class Ends(tuple):  # type: ignore[type-arg]
    def __del__(self) -> None: ...


class HasMore(tuple):  # type: ignore[type-arg]
    """A tuple with attributes beside its items."""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (True, 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), False),
        ([1, 2], [1], False),
        ([1, 2], [1, 3], False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({"a": 1}, {"a": 2}, False),
        ({1: 1}, {True: 1}, False),
        (OpaqueArg(ONE), OpaqueArg(ONE), True),
        (OpaqueArg(ONE), OpaqueArg(object()), False),
        (Struct(Pair, None, [1, 2]), Struct(Pair, None, [1, 2]), True),
        (Struct(Pair, None, [1, 2]), Struct(Pair, None, [1, 3]), False),
        (Struct(Pair, None, [1, 2]), Struct(tuple, None, [1, 2]), False),
        (Struct(Frozen, ("a", "b"), [1, 2]), Struct(Frozen, ("b", "a"), [1, 2]), False),
    ],
)
def test_codes_are_the_same_where_all_they_hold_is(one: Any, other: Any, same: bool) -> None:
    assert is_same_code(one, other) is is_same_code(other, one) is same


@pytest.mark.parametrize(
    ("thing", "keys", "items"),
    [
        (Pair(1, 2), None, [1, 2]),
        (torch.Size([1, 2]), None, [1, 2]),
        (torch.ones(2, 2).max(0), None, None),
        (OrderedDict(a=1, b=2), ("a", "b"), [1, 2]),
        (Frozen(1, 2), ("a", "b"), [1, 2]),
        (Slotted(1, 2), ("a", "b"), [1, 2]),
        (Output(a=1), ("a",), [1]),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_an_object_made_of_members_is_built_again(thing: Any, keys: Any, items: Any) -> None:
    found = members_of(thing)
    assert found is not None and found[0] == keys and items in (None, found[1])
    built = Struct(type(thing), *found).build(found[1])
    assert type(built) is type(thing) and members_of(built) == found


def test_other_objects_are_not_taken_apart() -> None:
    more = HasMore([1])
    more.also = 2  # type: ignore[attr-defined]
    ordered = OrderedDict({(1, 2): 3})
    assert [members_of(each) for each in (Ends([1]), more, ordered, {"a": 1}, 1, object())] == [None] * 6


def test_keys_are_plain_where_no_code_of_the_program_compares_them() -> None:
    class Key(str):
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = str.__hash__

    assert are_plain_keys(["a", 1, None, ("a", (1, 2))])
    assert not are_plain_keys([Key("a")]) and not are_plain_keys([("a", Key("b"))])


def test_leaves_are_in_order_with_what_objects_hold() -> None:
    opaque, empty = OpaqueArg(ONE), OpaqueArg(2)
    opaque.contents = Struct(Frozen, ("a", "b"), [7, [8]])
    code = [1, (2, {"a": 3}), Struct(Pair, None, [4, 5]), slice(6, None, 1), opaque, empty]
    plain = [1, 2, 3, 4, 5, 6, None, 1]
    assert list(leaves_in(code)) == [*plain, opaque, 7, 8, empty]
    assert list(leaves_in(code, in_objects=False)) == [*plain, opaque, empty]
    assert list(opaque_objects_in(code)) == [ONE, 2]
