"""Dicts, sequences and variables are compared with their snapshot, told by what differs, and written back."""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, deque
from typing import Any

import pytest

from fxdebug.capture.replay.containers import (
    DictHolder,
    UnchangedSet,
    _ClassHolder,
    _SequenceHolder,
    _VariableHolder,
    holders_of_one,
)
from fxdebug.capture.replay.introspect import MISSING
from fxdebug.capture.replay.variables import Change, ClassAttribute, ClosureCell, Item, Slot, in_force


def told(holder: DictHolder) -> list[tuple[str | None, Any]]:
    return [(getattr(change.variable, "name", None), change.content) for change in holder.changes()]


CHANGES: dict[str, tuple[Any, list[tuple[str | None, Any]]]] = {
    "nothing": (lambda d: None, []),
    "the same again": (lambda d: d.update(a=1), []),
    "another": (lambda d: d.update(a=3), [("a", 3)]),
    "new": (lambda d: d.update(c=3), [("c", 3)]),
    "gone": (lambda d: d.pop("a"), [("a", MISSING)]),
    "another and gone": (lambda d: (d.pop("b"), d.update(a=7)), [("a", 7), ("b", MISSING)]),
    "another order": (lambda d: d.update(a=d.pop("a")), [(None, MISSING)]),
}


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("name", CHANGES)
def test_a_dict_tells_what_differs_and_is_written_back_in_its_order(name: str, kind: type) -> None:
    change, expected = CHANGES[name]
    items = kind(a=1, b=2)
    holder = DictHolder(items)
    whole = UnchangedSet([holder, DictHolder(kind(x=1))])
    change(items)
    assert holder.is_plain() is (kind is dict)
    assert told(holder) == (expected if kind is dict or not expected else [(None, MISSING)])
    assert holder.is_changed() is whole.is_changed() is bool(expected)
    assert holder.restore() is bool(expected) and list(items.items()) == [("a", 1), ("b", 2)]
    assert not holder.restore() and not whole.is_changed()


def test_a_dict_whose_keys_are_no_texts_is_not_plain() -> None:
    items: dict[Any, int] = {1: 2}
    holder = DictHolder(items)
    items[1] = 3
    assert not holder.is_plain() and told(holder) == [(None, MISSING)]


def test_changes_under_other_names_are_told_apart() -> None:
    items = {"a": 1, "b": 2}
    holder = DictHolder(items)
    items |= {"a": 5, "c": 6}
    assert not holder.is_changed_apart_from({"a", "c"}) and holder.is_changed_apart_from({"a"})
    holder.put_back("a")
    holder.put_back("c")
    holder.put_back("never there")
    assert items == {"a": 1, "b": 2} and not holder.is_changed()


def test_a_wrapper_of_ours_is_no_change() -> None:
    def forward(self: object) -> None: ...

    forward.__fxdebug__ = True  # type: ignore[attr-defined]
    items: dict[str, Any] = {"a": 1}
    holder = DictHolder(items)
    items["forward"] = types.MethodType(forward, object())
    assert holder.is_changed() and holder.is_changed_by_wrappers_only() and told(holder) == []
    items["a"] = 2
    assert not holder.is_changed_by_wrappers_only() and told(holder) == [("a", 2)]


@pytest.mark.parametrize("kind", [list, deque, set])
def test_a_sequence_is_written_back(kind: Any) -> None:
    held = kind([1, 2])
    holder = _SequenceHolder(held)
    assert not holder.restore() and holder.changes() == []
    held.clear()
    assert holder.changes() == [Change(None, MISSING)]
    assert holder.restore() and held == kind([1, 2]) and not holder.is_changed()


class Slots:
    __slots__ = ("a",)


def cell() -> tuple[Any, Any]:
    content = 1

    def read() -> int:
        return content

    assert read.__closure__ is not None
    return ClosureCell(read.__closure__[0]), read


def variables() -> list[Any]:
    slots = Slots()
    slots.a = 1
    return [Item({"a": 1}, "a"), Slot(slots, "a"), ClassAttribute(type("Kind", (), {"a": 1}), "a"), cell()[0]]


@pytest.mark.parametrize("variable", variables(), ids=lambda variable: type(variable).__name__)
def test_a_variable_is_set_and_unset_and_written_back(variable: Any) -> None:
    holder = _VariableHolder(variable)
    assert variable.get() == 1 and not holder.restore()
    for change in (lambda: variable.set(2), variable.delete):
        change()
        assert holder.is_changed() and holder.restore() and variable.get() == 1
    variable.delete()
    unset = _VariableHolder(variable)
    variable.set(3)
    assert unset.restore() and variable.get() is MISSING
    variable.set(1)
    blocked = _VariableHolder(variable)
    assert blocked.replacements({}) == []
    (put,) = blocked.replacements({id(variable.get()): "blocker"})
    put()
    assert variable.get() == "blocker"
    variable.set(1)


def test_objects_are_replaced_by_their_blockers_in_dicts_and_lists_alone() -> None:
    one, other, blocker = object(), object(), object()
    items, listed, gathered = {"a": one, "b": other}, [other, one, one], {one}
    blockers = {id(one): blocker}
    for put in (*DictHolder(items).replacements(blockers), *_SequenceHolder(listed).replacements(blockers)):
        put()
    assert items == {"a": blocker, "b": other} and listed == [other, blocker, blocker]
    assert _SequenceHolder(gathered).replacements(blockers) == []


def test_changes_are_in_force_for_a_block_and_only_numbers_texts_and_flags_are_plain() -> None:
    items: dict[str, Any] = {"a": 1, "b": 2}
    changes = [Change(Item(items, "a"), 5), Change(Item(items, "b"), MISSING), Change(Item(items, "c"), [6])]
    assert [change.is_plain for change in (*changes, Change(None, 1))] == [True, False, False, False]
    with contextlib.suppress(KeyError), in_force([changes[0], changes[2], Change(None, 7)]):
        assert items == {"a": 5, "b": 2, "c": [6]}
        raise KeyError
    assert items == {"a": 1, "b": 2}


def test_the_attributes_of_a_class_are_written_back() -> None:
    kind: Any = type("Kind", (), {"a": 1, "b": 2})
    holder = _ClassHolder(kind)
    kind.a, kind.c = 3, 4
    del kind.b
    found = {(change.variable.name, change.content) for change in holder.changes()}  # type: ignore[union-attr]
    assert found == {("a", 3), ("b", MISSING), ("c", 4)}
    assert holder.restore() and (kind.a, kind.b, hasattr(kind, "c")) == (1, 2, False) and not holder.restore()
    (put,) = holder.replacements({id(kind.b): "blocker"})
    put()
    assert kind.b == "blocker"


class Sub(dict):  # type: ignore[type-arg]
    __slots__ = ("__dict__", "slot")


def test_one_object_is_held_by_its_items_its_attributes_and_its_slots() -> None:
    thing: Any = Sub(a=1)
    thing.attribute, thing.slot = 2, 3
    holders = holders_of_one(thing)
    thing["a"], thing.attribute, thing.slot = 4, 5, 6
    assert [[change.content for change in holder.changes()] for holder in holders] == [[MISSING], [5], [6]]
    assert all(holder.restore() for holder in holders) and (thing["a"], thing.attribute, thing.slot) == (1, 2, 3)
    assert [type(holder).__name__ for holder in holders_of_one([1])] == ["_SequenceHolder"]
    assert holders_of_one(1) == []
