"""Commands that move: pdb's step, next, finish, until, continue, and back, reverse-continue, goto."""

from __future__ import annotations

from fxdebug.errors import UsageError
from fxdebug.features.console.breakpoints import split_condition
from fxdebug.features.console.machine import Stop, Until
from fxdebug.features.console.session import Session
from fxdebug.plugins.console import command

GROUP = "move"
MOST_TIMES = 1_000_000


def _times(argument: str) -> int:
    """Return how often to do a movement. Raises ``UsageError`` for anything but a number."""
    if not argument:
        return 1
    if not argument.isdecimal() or not 0 < int(argument) <= MOST_TIMES:
        raise UsageError(f"{argument!r} is no number of steps")
    return int(argument)


@command("step s", "[N]", group=GROUP, repeats=True)
def step(session: Session, argument: str) -> None:
    """Go on to the next stop: into a call, to the next operation, or to the end of the call.

    With N, go on by N stops, unless a breakpoint stops the run before.
    """
    left = _times(argument)
    session.go(_countdown(left))


@command("next n", "[N]", group=GROUP, repeats=True)
def next_(session: Session, argument: str) -> None:
    """Step over the calls made by this call; each is shown when it ends."""
    for _ in range(_times(argument)):
        session.go(_over_calls(session.machine.stop))
        if session.machine.ended or not session.open:
            break


@command("finish fin return r", "", group=GROUP, repeats=True)
def finish(session: Session, argument: str) -> None:
    """Go on until this call, or the one selected with up, has ended, and show what it returned."""
    stop = session.machine.stop
    depth = session.frame.depth - (stop.kind == "return" and session.frame_up == 0)
    session.go(lambda s: s.kind == "return" and s.depth <= depth)


@command("until unt", "[PLACE]", group=GROUP, completes="break", repeats=True)
def until(session: Session, argument: str) -> None:
    """Go on to a later line of this forward, out of its loops; with PLACE, until there, as a breakpoint says it."""
    if argument:
        _to(session, argument, back=False)
        return
    stop = session.machine.stop
    base, line, here = stop.depth - (stop.kind == "return"), _line(stop), _over_calls(stop)
    session.go(lambda s: here(s) and (s.depth < base or (s.depth == base and s.kind == "return") or _later(s, line)))


@command("continue cont c", "[PLACE]", group=GROUP, completes="break", repeats=True)
def continue_(session: Session, argument: str) -> None:
    """Go on to the next breakpoint or change of a watched expression, else to the end; with PLACE, at most there."""
    if argument:
        _to(session, argument, back=False)
    else:
        session.go()


@command("back reverse-step rs", "[N]", group=GROUP, repeats=True)
def back(session: Session, argument: str) -> None:
    """Go back to the stop before this one; with N, by N stops."""
    session.go(_countdown(_times(argument)), back=True)


@command("reverse-next rn", "[N]", group=GROUP, repeats=True)
def reverse_next(session: Session, argument: str) -> None:
    """Go back in this call: over the calls that it made, to where each of them begins."""
    for _ in range(_times(argument)):
        session.go(_over_calls(session.machine.stop, back=True), back=True)
        if session.machine.stop.number == 0 or not session.open:
            break


@command("reverse-continue rc", "[PLACE]", group=GROUP, completes="break", repeats=True)
def reverse_continue(session: Session, argument: str) -> None:
    """Go back to a breakpoint or to a change of a watched expression, else to the beginning; with PLACE, to there.

    A condition about results, as in "reverse-continue nan > 0", stops where it became true: at the operation that has
    it in its result and in no operand.
    """
    if argument:
        _to(session, argument, back=True)
    else:
        session.go(back=True)


@command("goto jump j", "PLACE|N|start|end", group=GROUP, completes="stop")
def goto(session: Session, argument: str) -> None:
    """Stand at a call, an operation or a stop by its number; goto start and goto end are the first and the last."""
    count = session.machine.count
    if not argument:
        raise UsageError("goto needs a call (h.0.attn), an operation (h.0.attn#0/softmax), a number, start or end")
    if argument == "start":
        session.jump(0)
    elif argument == "end" and count is not None:
        session.jump(count - 1)
    elif argument == "end":  # a live run goes there
        session.machine.forward(lambda stop: False)
        session.jump(session.machine.stop.number)
    elif argument.isdecimal():
        session.jump(int(argument) - 1)
    else:
        session.jump(session.machine.find_stop(argument))


def _over_calls(stop: Stop, *, back: bool = False) -> Until:
    """Return the condition of the next stop of the same call, where a call that it makes is one step."""
    entrance, exit = ("return", "call") if back else ("call", "return")
    base = stop.depth - (stop.kind == exit)
    return lambda s: (s.depth <= base and s.kind != entrance) or (s.depth == base + 1 and s.kind == exit)


def _to(session: Session, text: str, *, back: bool) -> None:
    """Move to a place that is described as for a breakpoint."""
    where, condition = split_condition(text)
    place = session.stoppers.place(where, condition=condition)
    matches = place.matches_back if back else place.matches
    if not session.go(lambda stop: matches(stop) and place.holds(stop), back=back):
        session.screen.line((f"{place.what}: not found on the way to the {'beginning' if back else 'end'}", "yellow"))


def _countdown(left: int) -> Until:
    """Return a condition that is true when it is asked for the n-th time."""

    def reached(stop: Stop) -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    return reached


def _line(stop: Stop) -> tuple[str, int] | None:
    """Return the file and the line of a stop."""
    file, _, line = (stop.source or "").rpartition(":")
    return (file, int(line)) if line.isdecimal() else None


def _later(stop: Stop, line: tuple[str, int] | None) -> bool:
    """Is a stop on a later line of the same file, or is that not known?"""
    own = _line(stop)
    return line is None or own is None or own[0] != line[0] or own[1] > line[1]
