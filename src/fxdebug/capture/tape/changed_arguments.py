"""Lists, dicts and objects that a call is given and changes: what they hold afterwards belongs to its result.

``outs.append(x)`` in a child changes a list of its caller's, ``cache.update(k, v)`` a cache. The code of such a call's
result is that of a :class:`ResultAndChanges`. So a match compares the content as well, and a symbolic trace of the
caller continues with it. Only lists and dicts that are arguments themselves, once each, are followed, and objects that
consist of their attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fxdebug.capture.replay.introspect import slots_of
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.encoding import OpaqueArg, State, Struct, is_same_code, leaves_in, note_contents, state_of

Place = int | str  # the position or the name of an argument
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
    given: list[tuple[Place, Any]] = [*enumerate(args), *kwargs.items()]
    found: list[Place] = []
    for container in containers:
        places = [place for place, argument in given if argument is container]
        if len(places) != 1 or type(container) not in (list, dict) or _is_inside(container, args, kwargs):
            return None
        found += places
    return sorted(found, key=[place for place, _ in given].index)


def _is_inside(container: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is this container an item of another one among the arguments, too?"""
    pending = [*args, *kwargs.values()]
    for _ in range(1000):
        if not pending:
            return False
        thing = pending.pop()
        items = thing.values() if type(thing) is dict else thing if type(thing) in (list, tuple) else ()
        if any(item is container for item in items):
            return True
        pending.extend(items)
    return True


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
    return ResultAndChanges(result, {place: args[place] if type(place) is int else kwargs[place] for place in places})  # type: ignore[index]


def change_arguments(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the arguments the content that they have after a call; return its result alone."""
    if type(result) is not ResultAndChanges:
        return result
    for place, content in result.changed.items():
        container: Any = args[place] if type(place) is int else kwargs[place]  # type: ignore[index]
        if type(container) is list:
            container[:] = content
        elif content is not container:
            container.clear()
            container.update(content)
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
