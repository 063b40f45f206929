"""A session of the console: a machine, what stops it, what is displayed, and the lines that a person types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from fxdebug import api
from fxdebug.data.trace import TraceData
from fxdebug.errors import FxDebugError, UsageError, first_line
from fxdebug.features.console.breakpoints import Stoppers
from fxdebug.features.console.expressions import Expression, shown
from fxdebug.features.console.machine import Machine, Stop, Until
from fxdebug.features.console.screen import Screen
from fxdebug.features.console.stop_text import show_stop
from fxdebug.plugins.console import COMMANDS, Command, command_named

MOST_NESTED = 20  # commands of breakpoints may move on to other breakpoints


class Session:
    """One session: ``run_line`` does what a line says, and no error in a line ends it.

    ``frame_up`` counts the calls between the innermost one and the one that ``up`` and ``down`` have selected.
    ``displays`` are expressions shown at every stop. ``open`` is false after ``quit``.
    """

    def __init__(
        self, machine: Machine, write: Callable[[str], object], *, width: int = 80, color: bool = False
    ) -> None:
        self.machine = machine
        self.screen = Screen(write, width=width, color=color)
        self.stoppers = Stoppers(machine)
        self.displays: dict[int, str] = {}
        self.frame_up = 0
        self.open = True
        self.failed = False  # did the last line end with an error?
        self.read_more: Callable[[str], str | None] = lambda prompt: None  # a further line, for `commands`
        self._last = ""
        self._nested = 0
        self._trace: tuple[TraceData, api.Trace] | None = None
        self._texts: dict[str, str] = {}  # about that trace

    # Lines -----------------------------------------------------------------------------------------

    def run_line(self, line: str) -> None:
        """Run a line; an empty one repeats the last movement. An error is printed and changes nothing else."""
        self.failed = True
        try:
            self._run(line)
            self.failed = False
        except FxDebugError as error:
            self.screen.error(str(error))
        except KeyboardInterrupt:
            self.screen.line("")  # behind the ^C of the terminal
            self.screen.error("interrupted")
        except BrokenPipeError:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:  # of an expression, of a library: the session goes on
            self.screen.error(f"{type(error).__name__}: {first_line(error)}".removesuffix(": "))

    def _run(self, line: str) -> None:
        text = line.strip()
        if text.startswith("#"):
            return
        if not text:
            text, self._last = self._last, ""
            if not text:
                return
        found, argument = parsed(text)
        self._last = text if found.repeats else ""
        found.function(self, argument)

    # Moving ----------------------------------------------------------------------------------------

    def go(self, until: Until | None = None, *, back: bool = False) -> bool:
        """Move to the next stop where ``until`` holds or something stops the run, show it; return if there was one."""
        machine = self.machine
        if machine.ended and not back:
            raise UsageError("the run has ended: back, reverse-continue and goto lead into it, quit ends")
        if back and machine.stop.number == 0:
            raise UsageError("this is the beginning of the run")
        self.frame_up = 0
        found, reasons = self.stoppers.move(until, back=back)
        if machine.interrupted and not back:
            self.screen.line("")  # behind the ^C of the terminal
            reasons = (*reasons, "paused by Ctrl-C")
        self.show_stop(reasons)
        self._run_commands()
        return found

    def jump(self, number: int) -> None:
        """Stand at the stop of a number, and show it."""
        self.machine.goto(number)
        self.frame_up = 0
        self.stoppers.arrived()
        self.show_stop(())

    def show_stop(self, reasons: tuple[str, ...] = ()) -> None:
        """Show where the machine stands, why it stopped, and what is displayed."""
        for reason in reasons:
            for line in reason.split("\n"):
                self.screen.line((line, "yellow"))
        show_stop(self.screen, self.machine, self.machine.stop)
        for number, text in self.displays.items():
            self.screen.line((f"{number}: ", "dim"), f"{text} = {self.shown(text)}")

    def shown(self, expression: str) -> str:
        """Return the value of an expression as text; where it has none here, the reason in brackets."""
        try:
            return shown(Expression(self.machine, expression).value(self.frame))
        except FxDebugError as error:
            return f"({first_line(error)})"

    def _run_commands(self) -> None:
        """Run the commands of the breakpoints that were hit; a command that moves runs those of the next stop."""
        lines = self.stoppers.commands_of_hits()
        if not lines:
            return
        if self._nested >= MOST_NESTED:
            raise UsageError(f"the commands of breakpoints moved on {MOST_NESTED} times within one another")
        with self._one_deeper():
            for line in lines:
                self._run(line)
                if not self.open:
                    break

    @contextlib.contextmanager
    def _one_deeper(self) -> Iterator[None]:
        self._nested += 1
        try:
            yield
        finally:
            self._nested -= 1

    # Where it stands -------------------------------------------------------------------------------

    @property
    def frame(self) -> Stop:
        """The ``call`` stop of the selected frame."""
        frames = self.machine.frames
        return frames[max(len(frames) - 1 - self.frame_up, 0)]

    # The whole run ---------------------------------------------------------------------------------

    @property
    def trace(self) -> api.Trace:
        """The run, a live one as far as it has gone: the same trace until it goes on."""
        now = self.machine.trace
        if self._trace is None or self._trace[0] is not now:
            self._trace = now, now if isinstance(now, api.Trace) else api.Trace.of(now)
            self._texts = {}
        return self._trace[1]

    def text_of_run(self, what: str, make: Callable[[api.Trace], str]) -> str:
        """Return a text about the whole run by its name; it is made once, until the run continues."""
        trace = self.trace
        if what not in self._texts:
            self._texts[what] = make(trace)
        return self._texts[what]

    def close(self) -> None:
        """End the session; a live run is let go."""
        self.open = False
        self.machine.close()


def parsed(text: str) -> tuple[Command, str]:
    """Return the command of a line and its arguments; ``p`` and its operand may stand together as ``p(x)`` does.

    Raises ``UsageError`` for an unknown command.
    """
    name, _, argument = text.partition(" ")
    if name not in COMMANDS and name[:1] in ("!", "?"):
        return command_named("print" if name[0] == "!" else "help"), text[1:].strip()
    return command_named(name), argument.strip()
