"""Completion by Tab: commands, and for their arguments the names that the run has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fxdebug.errors import FxDebugError
from fxdebug.features.console.expressions import Scope
from fxdebug.features.console.machine import Machine
from fxdebug.features.console.session import Session
from fxdebug.plugins.console import COMMANDS, Command, every_command
from fxdebug.printable import printable
from fxdebug.query.measures import measures_of
from fxdebug.query.network import network_of

MOST = 200  # names that are offered at once
_WORD = re.compile(r"[^\s()<>=!+*,]*$")


def completions(session: Session, line: str) -> tuple[int, list[str]]:
    """Return what may stand at the end of a line: where the word to complete begins, and the words that fit.

    A name that goes on with dots is offered up to the next one, as folders are.
    """
    name, blank, argument = line.lstrip().partition(" ")
    if not blank:
        return len(line) - len(name), sorted(one for one in COMMANDS if one.startswith(name))
    command = COMMANDS.get(name)
    if command is None or not command.completes:
        return len(line), []
    if command.completes == "file":
        return len(line) - len(argument), list(_files(argument))
    word = _WORD.search(argument)
    begun = word[0] if word is not None else ""
    found = dict.fromkeys(one for one in _names(session, command, begun) if one.startswith(begun))
    fitting = [one for one in _by_level(begun, found) if one == printable(one)]
    return len(line) - len(begun), fitting[:MOST]


def _names(session: Session, command: Command, begun: str) -> Iterator[str]:
    """Yield the names that an argument of a command may be."""
    machine = session.machine
    if command.completes == "command":
        yield from (one.name for one in every_command())
        return
    if command.completes == "break":
        yield from ("unverified", "against ", "where ", "source ")
        for kind in ("path", "class", "operation"):
            yield from sorted(machine.known_names(kind))  # type: ignore[arg-type]
        yield from measures_of(machine.trace)
        return
    if command.completes == "stop":
        yield from ("start", "end")
    else:
        yield from Scope(machine, session.frame).names()
    yield from sorted(machine.known_names("path"))
    if "#" in begun or "/" in begun:
        yield from _ids(machine)


def _ids(machine: Machine) -> Iterable[str]:
    try:
        return network_of(machine.trace).nodes
    except FxDebugError:
        return ()


def _by_level(begun: str, names: Iterable[str]) -> list[str]:
    """Return names up to the next dot after what was begun, where many share that part.

    >>> _by_level("h.", ["h.0", "h.0.attn", "h.0.mlp", "h.1"])
    ['h.0', 'h.1']
    """
    found: dict[str, None] = {}
    for name in names:
        dot = name.find(".", len(begun))
        found[name if dot < 0 or "#" in name else name[:dot]] = None
    return list(found)


def _files(begun: str) -> Iterator[str]:
    """Yield the paths that begin with a text; folders end with a slash."""
    folder, slash, start = begun.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(start):
            yield f"{folder}{slash}{entry.name}" + ("/" if entry.is_dir() else "")
