"""Commands about the console itself: help, quit."""

from __future__ import annotations

import inspect

from fxdebug.features.console.session import Session
from fxdebug.plugins.console import Command, command, command_named, every_command

GROUP = "console"


@command("help h ?", "[COMMAND]", group=GROUP, completes="command")
def help_(session: Session, argument: str) -> None:
    """List the commands, or tell about one."""
    if argument:
        _about(session, command_named(argument.split()[0]))
        return
    groups: dict[str, list[Command]] = {}
    for one in every_command():
        groups.setdefault(one.group, []).append(one)
    for group, members in groups.items():
        names = "  ".join(f"{one.name} ({min(one.aliases, key=len)})" if one.aliases else one.name for one in members)
        session.screen.wrapped(names, first=f"{group:<9}")
    session.screen.line(("help COMMAND tells more; Tab completes; an empty line repeats a movement", "dim"))


def _about(session: Session, found: Command) -> None:
    short = f"   short: {', '.join(found.aliases)}" if found.aliases else ""
    session.screen.line((f"{found.name} {found.usage}".rstrip(), "bold"), (short, "dim"))
    for paragraph in inspect.cleandoc(found.function.__doc__ or "").split("\n\n"):
        session.screen.wrapped(" ".join(paragraph.split()), first="    ")


@command("quit q exit EOF", "", group=GROUP)
def quit_(session: Session, argument: str) -> None:
    """End the session; a live run ends, and the model is restored."""
    session.close()
