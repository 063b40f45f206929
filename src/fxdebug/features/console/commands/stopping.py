"""Commands about what stops a run, and what is shown when it does: breakpoints, watched expressions, displays."""

from __future__ import annotations

from fxdebug.errors import UsageError
from fxdebug.features.console.breakpoints import KINDS, Breakpoint, split_condition
from fxdebug.features.console.expressions import Expression, shown
from fxdebug.features.console.session import Session
from fxdebug.plugins.console import command

GROUP = "stop"


@command("break b", "[PLACE [if CONDITION]]", group=GROUP, completes="break")
def break_(session: Session, argument: str) -> None:
    """Set a breakpoint; without PLACE, list breakpoints and watches.

    PLACE is a call by its path (h.*.attn) or class, an operation (softmax), a line of the code (model.py:12), a line
    about results (nan > 0), "unverified" (a call whose graph is not verified), or "against RUN" (the first difference
    from another run). A word in front settles which: path, class, operation, source, where. With a condition on its
    result, a call stops where it has ended.
    """
    if not argument:
        _list(session)
        return
    _set(session, argument, temporary=False)


@command("tbreak", "PLACE [if CONDITION]", group=GROUP, completes="break")
def tbreak(session: Session, argument: str) -> None:
    """Set a breakpoint that stops the run once and is gone then."""
    if not argument:
        raise UsageError("tbreak needs a place, such as h.0.attn or softmax")
    _set(session, argument, temporary=True)


def _set(session: Session, argument: str, *, temporary: bool) -> None:
    place, condition = split_condition(argument)
    found = session.stoppers.add(place, condition=condition, temporary=temporary)
    session.screen.line(str(found))


def _list(session: Session) -> None:
    stoppers, screen = session.stoppers, session.screen
    if not stoppers.breakpoints and not stoppers.watches:
        screen.line("nothing is set. break PLACE takes one of:")
        for kind, about in KINDS.items():
            screen.line((f"  {kind:<10}", "bold"), about)
    for one in stoppers.breakpoints.values():
        screen.line(str(one), "" if one.enabled else " (disabled)", (_counts(one), "dim"))
        for line in one.commands:
            screen.line(f"    {line}")
    for watch in stoppers.watches.values():
        screen.line(str(watch), (f"  {_times(watch.hits)}", "dim"))


def _counts(one: Breakpoint) -> str:
    return f"  {_times(one.hits)}" + (f", ignores the next {one.ignore}" if one.ignore else "")


def _times(hits: int) -> str:
    return f"hit {hits} time{'' if hits == 1 else 's'}" if hits else "not hit yet"


@command("condition", "N [CONDITION]", group=GROUP)
def condition(session: Session, argument: str) -> None:
    """Give breakpoint N a condition, a line such as absmax > 3 or Python; without one it stops always."""
    number, _, text = argument.partition(" ")
    found = session.stoppers.named(number)
    session.stoppers.set_condition(found, text.strip())
    session.screen.line(str(found))


@command("ignore", "N [COUNT]", group=GROUP)
def ignore(session: Session, argument: str) -> None:
    """Let breakpoint N pass the next COUNT times (0: none)."""
    number, _, count = argument.partition(" ")
    found, times = session.stoppers.named(number), count.strip() or "0"
    if not times.isdecimal():
        raise UsageError(f"{times!r} is no number of times")
    found.ignore = int(times)
    session.screen.line(str(found), (_counts(found), "dim"))


@command("commands", "[N]", group=GROUP)
def commands(session: Session, argument: str) -> None:
    """Give breakpoint N (default: the last one) commands to run where it stops: the lines up to "end"."""
    known = session.stoppers.breakpoints
    if not argument and not known:
        raise UsageError("there is no breakpoint to give commands to: break PLACE sets one")
    found = session.stoppers.named(argument or str(max(known)))
    lines: list[str] = []
    while True:
        line = session.read_more(f"(commands {found.number}) ")
        if line is None or line.strip() == "end":
            break
        if line.strip():
            lines.append(line.strip())
    found.commands = lines


@command("delete d clear", "[N …]", group=GROUP)
def delete(session: Session, argument: str) -> None:
    """Remove the breakpoints and watches of these numbers; without numbers, all."""
    if not argument:
        count = session.stoppers.clear()
        session.screen.line(f"removed {count}")
    for number in argument.split():
        session.screen.line(f"removed {session.stoppers.delete(number)}")


@command("enable", "N …", group=GROUP)
def enable(session: Session, argument: str) -> None:
    """Let breakpoints stop the run again."""
    _switch(session, argument, on=True)


@command("disable", "N …", group=GROUP)
def disable(session: Session, argument: str) -> None:
    """Keep breakpoints without stopping at them."""
    _switch(session, argument, on=False)


def _switch(session: Session, argument: str, *, on: bool) -> None:
    if not argument:
        raise UsageError(f"name breakpoints by their numbers: {'enable' if on else 'disable'} 1")
    for number in argument.split():
        found = session.stoppers.named(number)
        found.enabled = on
        session.screen.line(str(found), "" if on else " (disabled)")


@command("watch", "EXPR", group=GROUP, completes="expression")
def watch(session: Session, argument: str) -> None:
    """Stop where the value of an expression changes, and show the old and the new one.

    EXPR is a tensor (bn.running_mean, hidden), a measure or fact of one (hidden.absmax), of each result in turn
    (dtype, nan), or Python.
    """
    found = session.stoppers.watch(argument)
    now = "no value here yet" if found.last is None else shown(found.last)
    session.screen.line(f"{found}  ", (f"now {now}" if found.last is not None else now, "dim"))


@command("display", "[EXPR]", group=GROUP, completes="expression")
def display(session: Session, argument: str) -> None:
    """Show an expression at every stop; without one, show all of them now."""
    if argument:
        Expression(session.machine, argument).require_possible_names()
        session.displays[max(session.displays, default=0) + 1] = argument
    shown_now = {max(session.displays): argument} if argument else session.displays
    for number, text in shown_now.items():
        session.screen.line((f"{number}: ", "dim"), f"{text} = {session.shown(text)}")


@command("undisplay", "[N]", group=GROUP)
def undisplay(session: Session, argument: str) -> None:
    """Show an expression no longer; without its number, none of them."""
    if not argument:
        session.displays.clear()
    elif not argument.isdecimal() or session.displays.pop(int(argument), None) is None:
        raise UsageError(f"there is no display {argument!r}")
