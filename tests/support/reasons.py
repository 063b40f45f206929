"""Reading the reasons that calls are given: the words, and the text of the source line that they name."""

from __future__ import annotations

import re
from pathlib import Path

import fxdebug

TESTS = Path(__file__).parents[1]


def reason_of(call: fxdebug.Call) -> tuple[str, str]:
    """The words of a call's reason and the source line it names, ``""`` where it names none."""
    return split(call.reason)


def split(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*) \((.*\.py):(\d+)\)", text)
    if found is None:
        return text, ""
    words, file, number = found.groups()
    path = next(iter(TESTS.rglob(Path(file).name)), Path(file))
    if not path.is_file():  # a library's
        return words, f"{file}:{number}"
    return words, path.read_text(encoding="utf-8").splitlines()[int(number) - 1].strip()


def guards_of(call: fxdebug.Call) -> list[tuple[str, str, str]]:
    """What was asked, the answer, and the source line that asked."""
    return [(guard.what, guard.answer, split(f" ({guard.source})")[1]) for guard in call.guards]
