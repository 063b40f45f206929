"""A line editor on a terminal, by prompt_toolkit: Tab completes, arrows search the history."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fxdebug.errors import needs


def toolkit_reader(complete: Callable[[str], tuple[int, list[str]]], history: Path) -> Callable[[str], str]:
    """Return a function that shows a prompt and reads a line, with Tab and a history file.

    ``complete`` takes the line up to the cursor, and returns where the word begins and what it may be. Raises
    ``MissingExtra`` without prompt_toolkit.
    """
    state = random.getstate()  # the program draws the same numbers, whatever an import does
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.output import ColorDepth
    except ImportError as error:
        raise needs("a line editor with Tab", "prompt_toolkit", "console") from error
    finally:
        random.setstate(state)

    class _Names(Completer):
        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            line = document.text_before_cursor
            with contextlib.suppress(Exception):  # Tab must never end a session
                start, words = complete(line)
                for word in words:
                    yield Completion(word, start_position=start - len(line))

    kept: Any = InMemoryHistory()
    with contextlib.suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        with history.open("ab"):  # can it be written?
            kept = FileHistory(str(history))
    colors = ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None
    session: PromptSession[str] = PromptSession(
        history=kept, completer=_Names(), complete_while_typing=False, color_depth=colors
    )
    return lambda prompt: str(session.prompt(prompt))
