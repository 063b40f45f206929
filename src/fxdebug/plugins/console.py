"""The commands of the console: a registry of functions, each with its names, its help and what Tab completes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fxdebug.errors import UsageError, nearest

Function: TypeAlias = Callable[[Any, str], None]  # of a session of the console, and what was typed
Completes: TypeAlias = Literal["", "place", "stop", "break", "expression", "command", "file", "stopper"]


@dataclass(frozen=True)
class Command:
    """A command: a function of the session and of what was typed after its name.

    ``usage`` shows the arguments, the docstring of the function is the help: its first line in the list of commands.
    ``completes`` is what Tab offers for the arguments. ``repeats``: an empty line does it again. ``moves``: the stop is
    shown afterwards if it is another one.
    """

    name: str
    aliases: tuple[str, ...]
    usage: str
    group: str
    function: Function
    completes: Completes = ""
    repeats: bool = False

    @property
    def about(self) -> str:
        """The first line of the help."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its short forms."""
        return (self.name, *self.aliases)


COMMANDS: dict[str, Command] = {}  # by name and by every alias


def command(
    names: str, usage: str = "", *, group: str, completes: Completes = "", repeats: bool = False
) -> Callable[[Function], Function]:
    """Register a function as a command; ``names`` are its name and its aliases, with blanks between.

    >>> @command("greet hi", "NAME", group="example")
    ... def greet(session, argument):
    ...     '''Greet somebody.'''
    >>> COMMANDS["hi"].usage, COMMANDS.pop("greet").about, COMMANDS.pop("hi").name
    ('NAME', 'Greet somebody.', 'greet')
    """

    def register(function: Function) -> Function:
        name, *aliases = names.split()
        entry = Command(name, tuple(aliases), usage, group, function, completes, repeats)
        for one in entry.names:
            assert one not in COMMANDS, f"two commands are called {one}"
            COMMANDS[one] = entry
        return function

    return register


def command_named(name: str) -> Command:
    """Return a command by its name or alias. Raises ``UsageError`` with the nearest names."""
    found = COMMANDS.get(name)
    if found is None:
        raise UsageError(f"there is no command {name!r}.{nearest(name, COMMANDS)} help lists all")
    return found


def every_command() -> list[Command]:
    """Return each command once, in the order of registration."""
    return list(dict.fromkeys(COMMANDS.values()))
