"""Lists, dicts and objects that a call is given and changes: what they hold afterwards belongs to its result.

``outs.append(x)`` in a child changes a list of its caller's, ``cache.update(k, v)`` a cache. The code of such a call's
result is that of a :class:`ResultAndChanges`. So a match compares the content as well, and a symbolic trace of the
caller continues with it. Lists, dicts and dataclasses are followed, among the arguments or inside of them, in one place
each, and objects that consist of their attributes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from fxdebug.capture.replay.introspect import members_in, slots_of
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.encoding import OpaqueArg, State, Struct, is_same_code, leaves_in, note_contents, state_of

Place = int | str | tuple[Any, ...]  # the position or the name of an argument, with the keys to something inside it
DICTS = (dict, OrderedDict)
_KEYS = ("result", "changed", "objects")


@dataclass(eq=False)
class ResultAndChanges:
    """The result of a call, the content of each list or dict that it changed, and the objects that it changed.

    ``objects`` are pairs of an object and its attributes; in a code, each is the code of the object with what it holds.
    """

    result: Any
    changed: dict[Place, Any]
    objects: list[Any] = field(default_factory=list)


def places_of(containers: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Place] | None:
    """Return the place of each container among the arguments; ``None`` if one is elsewhere, or in several places."""
    found: dict[int, list[Place]] = {id(container): [] for container in containers}
    order: list[Place] = []
    pending: list[tuple[Place, Any]] = [*enumerate(args), *kwargs.items()]
    for place, thing in pending:  # grows on the way
        if len(pending) > _MOST_PLACES:
            return None
        if id(thing) in found:
            found[id(thing)].append(place)
            order.append(place)
        below = place if type(place) is tuple else (place,)
        pending.extend([((*below, key), item) for key, item in _items_of(thing)])
    if any(len(places) != 1 for places in found.values()) or not all(map(_can_be_set, containers)):
        return None
    return order


_MOST_PLACES = 10_000


def _can_be_set(container: Any) -> bool:
    kind = type(container)
    return kind is list or kind in DICTS or (is_dataclass(kind) and not issubclass(kind, dict))


def _items_of(thing: Any) -> Iterable[tuple[Any, Any]]:
    kind = type(thing)
    if kind in DICTS:
        return thing.items()  # type: ignore[no-any-return]
    if kind is list:
        return enumerate(thing)
    if issubclass(kind, tuple):
        return enumerate(tuple.__iter__(thing))
    members = (members_in(thing) or {}) if is_dataclass(kind) and not issubclass(kind, dict) else {}
    return members.items()


def argument_at(place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what is at a place among arguments."""
    first, *keys = place if type(place) is tuple else (place,)
    thing: Any = args[first] if type(first) is int else kwargs[first]  # type: ignore[index]
    for key in keys:
        by_key = type(thing) is list or type(thing) in DICTS or issubclass(type(thing), tuple)
        thing = thing[key] if by_key else getattr(thing, key)
    return thing


def code_of_changes(result: Any, changed: dict[Place, Any], objects: list[OpaqueArg] | None = None) -> Struct:
    """Return the code of a result together with the codes of what the changed arguments hold."""
    return Struct(ResultAndChanges, _KEYS, [result, changed, objects or []])


def note_changes(given: Any, copies: ArgumentCopies, coded: Callable[[Any], Any]) -> list[OpaqueArg]:
    """Note what the objects in the code of arguments held when a call began; return those that it changed.

    These are codes of the objects with what they hold now. Nothing is noted where one of the objects is more than its
    attributes: then it is not known how it was changed.
    """
    originals, earlier = copies.originals(), copies.earlier()

    def coded_as_it_was(member: Any) -> Any:
        code = coded(member)
        for leaf in leaves_in(code):
            if type(leaf) is OpaqueArg:
                leaf.object = originals.get(id(leaf.object), leaf.object)
        return code

    def state(thing: Any) -> State:
        return state_of(earlier.get(id(thing), thing))

    note_contents(given, coded_as_it_was, set(), state)
    before = {
        id(leaf.object): leaf for leaf in leaves_in(given) if type(leaf) is OpaqueArg and leaf.contents is not None
    }
    changed = _changed(before, coded) if _has_all(before, copies) else None
    if changed is None:
        for leaf in before.values():
            leaf.contents = None
    return changed or []


def _has_all(noted: dict[int, OpaqueArg], copies: ArgumentCopies) -> bool:
    """Was every object noted that could have been changed?"""
    return all(
        copy is original or type(original) in (tuple, list, dict) or id(original) in noted
        for copy, original in copies.pairs.values()
    )


def _changed(before: dict[int, OpaqueArg], coded: Callable[[Any], Any]) -> list[OpaqueArg] | None:
    changed, known = [], set(before)
    for leaf in before.values():
        members = state_of(leaf.object)
        if members is None or leaf.contents is None:
            return None
        now = OpaqueArg(leaf.object)
        now.contents = Struct(type(leaf.object), tuple(members), [coded(member) for member in members.values()])
        if now.contents.keys != leaf.contents.keys or not is_same_code(now.contents.items, leaf.contents.items):
            note_contents(now.contents, coded, known)
            changed.append(now)
    return changed


def result_in(code: Any) -> Any:
    """Return the result alone, of a code or of a template."""
    return code.items[0] if type(code) is Struct and code.type is ResultAndChanges else code


def changes_in(code: Any) -> dict[Place, Any]:
    """Return what the changed arguments hold, of a code or of a template; mostly there are none."""
    changed: dict[Place, Any] = code.items[1] if type(code) is Struct and code.type is ResultAndChanges else {}
    return changed


def objects_in(code: Any) -> list[Any]:
    """Return the objects that were changed with what they hold, of a code or of a template; mostly there are none."""
    objects: list[Any] = code.items[2] if type(code) is Struct and code.type is ResultAndChanges else []
    return objects


def with_changes(code: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a result with the arguments that were changed according to ``code``, as they are now."""
    places = changes_in(code)
    if type(code) is not Struct or code.type is not ResultAndChanges:
        return result
    return ResultAndChanges(result, {place: argument_at(place, args, kwargs) for place in places})


def change_arguments(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the arguments the content that they have after a call; return its result alone."""
    if type(result) is not ResultAndChanges:
        return result
    for place, content in result.changed.items():
        container = argument_at(place, args, kwargs)
        if content is container:
            pass
        elif type(container) is list:
            container[:] = content
        elif type(container) in DICTS:
            container.clear()
            container.update(content)
        else:
            set_members(container, members_in(content) or {})
    for thing, members in result.objects:
        set_members(thing, members)
    return result.result


def set_members(thing: Any, members: dict[str, Any]) -> None:
    """Give an object these attributes, and no others; a list or dict that it holds stays the same object.

    ``...`` stands for what the attribute is now.
    """
    kind: Any = type(thing)
    slots, attributes = slots_of(kind), getattr(thing, "__dict__", {})
    for name in [name for name in attributes if name not in members]:
        del attributes[name]
    for name in slots:
        if name not in members and hasattr(thing, name):
            object.__delattr__(thing, name)
    for name, member in members.items():
        if member is ...:
            continue
        if name in slots:  # works on frozen objects, too
            object.__setattr__(thing, name, member)
            continue
        held = attributes.get(name)
        if type(held) is list and type(member) is list and held is not member:
            held[:] = member
        elif type(held) is dict and type(member) is dict and held is not member:
            held.clear()
            held.update(member)
        else:
            attributes[name] = member
