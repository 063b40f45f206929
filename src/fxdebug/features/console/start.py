"""``post_mortem``: start a session on a run, with scripts, on a terminal, in a pipe or a notebook."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from fxdebug import api
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports.screen import wants_color
from fxdebug.features.console import all_commands
from fxdebug.features.console.input.prompt import is_notebook, is_terminal, run_lines, talk
from fxdebug.features.console.machine import Machine
from fxdebug.features.console.recorded import RecordedMachine
from fxdebug.features.console.session import Session
from fxdebug.printable import printable

assert all_commands.__all__  # imported to register them

PLAIN_WIDTH = 80  # columns where output is piped


def open_session(machine: Machine) -> Session:
    """Return a session on the standard output, in the columns and colours of the terminal."""
    width = shutil.get_terminal_size().columns if is_terminal() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Session(machine, _write, width=width, color=wants_color())


def _write(text: str) -> None:
    if sys.stdout is not None:  # None where it was closed
        sys.stdout.write(text)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def converse(session: Session, script: Iterable[str] = ()) -> bool:
    """Show where the machine stands, run a script, and read on from the terminal or the pipe until the session ends.

    Without a script, lines come from the standard input, whatever it is; after one only from a terminal or a notebook.
    Return whether all lines of scripts and pipes worked.
    """
    lines = list(script)
    session.show_stop()
    try:
        worked = run_lines(session, lines) if lines else True
        if session.open and (is_terminal() or is_notebook()):
            _flush()
            talk(session, after_script=bool(lines))
        elif session.open and not lines and sys.stdin is not None:
            worked = run_lines(session, sys.stdin)
    finally:
        if session.open:
            session.close()
        _flush()
    return worked


def start_recorded(trace: TraceData, script: Iterable[str] = (), *, against: TraceData | None = None) -> bool:
    """Open the console on a recorded run: at its beginning, where the model raised, or where it differs from another.

    Return whether all lines of the script worked.
    """
    machine = RecordedMachine(trace)
    session = open_session(machine)
    what = "help lists commands"
    raised = machine.raised()
    if against is not None:
        what = _first_difference(machine, against)
    elif raised is not None:
        machine.goto(raised)
        what = "It raised here; goto start leads to its beginning"
    facts = f"  {len(trace.calls)} calls, {machine.count} stops. {what}"
    session.screen.line((printable(trace.model), "bold"), (facts, "dim"))
    return converse(session, script)


def _first_difference(machine: RecordedMachine, reference: TraceData) -> str:
    """Move to the first stop that adds a difference to a reference, and return what to say about it."""
    try:
        found = machine.forward(machine.differs_from(reference))
    except UsageError as error:
        return str(error)
    if not found:  # of weights, or of calls that only the reference has
        machine.goto(0)
        return "The runs differ in nothing that ran here: compare RUN shows in what"
    return "Here they differ first; goto start leads to the beginning"


def post_mortem(
    run: api.Trace | str | os.PathLike[str] | None = None,
    *,
    against: api.Trace | str | os.PathLike[str] | None = None,
    commands: Iterable[str] = (),
) -> None:
    """Open the console on the last run whose model raised, where it raised; ``run``: on this one, or a saved one.

    ``against``: another run, the reference; the console opens at the first difference from it. ``commands`` are run
    first; without a terminal the session ends after them. Raises ``UsageError`` where no run has raised.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))
    >>> try:
    ...     trace = fxdebug.fx_debug(model, torch.ones(1, 2))
    ... except RuntimeError:
    ...     fxdebug.post_mortem(commands=["where", "quit"])  # doctest: +ELLIPSIS
    Sequential  3 calls, ... stops. It raised here; goto start leads to its beginning
    --Raised-- 1#0  Linear  ...
    """
    trace = api.last_failed() if run is None else api.load(run) if isinstance(run, (str, os.PathLike)) else run
    if trace is None:
        raise UsageError("no run has raised: fx_debug(model, inputs) records one, and keeps it when the model raises")
    start_recorded(trace, commands, against=None if against is None else api.run_to_compare(against))


def script_lines(files: Iterable[str], commands: Iterable[str]) -> list[str]:
    """Return the lines of script files, then single commands. Raises ``UsageError`` for a file that cannot be read."""
    lines: list[str] = []
    for name in files:
        try:
            lines += sys.stdin.readlines() if name == "-" else Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the script {name} cannot be read: {error}") from None
    return [*lines, *commands]
