"""The lines of a session, from a terminal with Tab and history, a script, or a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fxdebug.errors import MissingExtra
from fxdebug.features.console.input.completion import completions
from fxdebug.features.console.input.terminal import toolkit_reader
from fxdebug.features.console.session import Session

PROMPT = "(fxdebug) "
HISTORY_LINES = 1000

Reader = Callable[[str], str]  # shows a prompt and returns a line; raises EOFError at the end


def talk(session: Session, *, after_script: bool = False) -> None:
    """Read lines from the terminal until the session ends; Ctrl-D ends it, Ctrl-C clears the line."""
    with _reader(session) as read:
        session.read_more = _or_none(read)
        while session.open:
            try:
                line = read(PROMPT)
            except EOFError:
                session.screen.line("")
                session.close()
                break
            except NotImplementedError:  # a kernel that cannot ask, as where a notebook is run as a script
                if not after_script:
                    session.screen.line(("no lines can be typed here: give commands=[…]", "dim"))
                session.close()
                break
            except KeyboardInterrupt:
                session.screen.line("")
                continue
            session.run_line(line)


def run_lines(session: Session, lines: Iterable[str]) -> bool:
    """Run the lines of a script, each shown after the prompt; return whether all of them worked."""
    waiting = iter(lines)

    def more(prompt: str) -> str | None:
        line = next(waiting, None)
        if line is not None:
            session.screen.line((prompt, "dim"), line.rstrip("\r\n"))
        return line

    session.read_more = more
    worked = True
    while session.open and (line := more(PROMPT)) is not None:
        session.run_line(line.rstrip("\r\n"))
        worked = worked and not session.failed
    return worked


def _or_none(read: Reader) -> Callable[[str], str | None]:
    def more(prompt: str) -> str | None:
        try:
            return read(prompt)
        except EOFError:
            return None

    return more


# Terminals ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reader(session: Session) -> Iterator[Reader]:
    """Give the best reader that there is: prompt_toolkit on a terminal, else readline, else plain input."""
    history = history_file()
    if is_terminal() and os.environ.get("TERM") != "dumb" and not _inside_event_loop():
        with contextlib.suppress(MissingExtra):
            yield toolkit_reader(lambda line: completions(session, line), history)
            return
    with _readline(session, history) if is_terminal() else contextlib.nullcontext():
        yield input


def is_terminal() -> bool:
    """Do people read and write: are input and output a terminal?"""
    return bool(sys.stdin and sys.stdout and sys.stdin.isatty() and sys.stdout.isatty())


def is_notebook() -> bool:
    """Is this a kernel of a notebook, which asks for a line in a field of the page?"""
    kernel = sys.modules.get("ipykernel")
    return kernel is not None and "ipykernel" in type(sys.stdout).__module__


def _inside_event_loop() -> bool:
    """Does an event loop of asyncio run in this thread? prompt_toolkit would need one of its own."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def history_file() -> Path:
    """Return the file of typed lines, in the user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else "")
    return Path(given or Path.home() / ".cache") / "fxdebug" / "console_history"


@contextlib.contextmanager
def _readline(session: Session, history: Path) -> Iterator[None]:
    """Let ``input`` complete and remember lines; everything of readline's is put back afterwards."""
    try:
        import readline
    except ImportError:  # Windows
        yield
        return
    before, delimiters = readline.get_completer(), readline.get_completer_delims()
    others = [readline.get_history_item(i + 1) for i in range(readline.get_current_history_length())]
    readline.clear_history()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_completer(_completer(session))
    readline.set_completer_delims(" \t\n()<>=!+*,")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(HISTORY_LINES)
            readline.write_history_file(history)
        readline.clear_history()
        for line in others:
            readline.add_history(line)
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)


def _completer(session: Session) -> Callable[[str, int], str | None]:
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        nonlocal found
        import readline

        if state == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            start, words = completions(session, line)
            found = [word[max(readline.get_begidx() - start, 0) :] for word in words]
        return found[state] if state < len(found) else None

    return complete
