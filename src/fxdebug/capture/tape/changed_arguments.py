"""Lists and dicts that a call is given and changes: their content afterwards belongs to its result.

``outs.append(x)`` in a child changes a list of its caller's. The code of such a call's result is that of a
:class:`ResultAndChanges`. So a match compares the content as well, and a symbolic trace of the caller continues with
it. Only lists and dicts that are arguments themselves, once each, are followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxdebug.capture.tape.encoding import Struct

Place = int | str  # the position or the name of an argument
_KEYS = ("result", "changed")


@dataclass(eq=False)
class ResultAndChanges:
    """The result of a call, and the content of each argument that it changed."""

    result: Any
    changed: dict[Place, Any]


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


def code_of_changes(result: Any, changed: dict[Place, Any]) -> Struct:
    """Return the code of a result together with the codes of what the changed arguments hold."""
    return Struct(ResultAndChanges, _KEYS, [result, changed])


def result_in(code: Any) -> Any:
    """Return the result alone, of a code or of a template."""
    return code.items[0] if type(code) is Struct and code.type is ResultAndChanges else code


def changes_in(code: Any) -> dict[Place, Any]:
    """Return what the changed arguments hold, of a code or of a template; mostly there are none."""
    changed: dict[Place, Any] = code.items[1] if type(code) is Struct and code.type is ResultAndChanges else {}
    return changed


def with_changes(code: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a result with the arguments that were changed according to ``code``, as they are now."""
    places = changes_in(code)
    if not places:
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
    return result.result
