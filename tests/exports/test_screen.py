"""Text for a screen is safe and as long as it is shown; colour is printed where a terminal or the user asks for it."""

from __future__ import annotations

import sys

import pytest
from rich.text import Text

from fxdebug.exports.screen import Screen, wants_color


@pytest.mark.parametrize(
    "environment, terminal, expected",
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_for_terminals_unless_the_user_says_otherwise(
    environment: dict[str, str], terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert wants_color() is expected


def test_a_program_without_an_output_prints_in_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", None)
    assert not wants_color()


def test_names_are_no_markup_no_emoji_and_move_no_cursor() -> None:
    screen = Screen(40)
    screen.print("[red]:smile: 12 'a' \x1b[2J")
    assert screen.written() == "[red]:smile: 12 'a' \\x1b[2J\n"


def test_only_our_own_styles_are_colours() -> None:
    plain, coloured = Screen(40), Screen(40, color=True)
    for screen in (plain, coloured):
        screen.print(Text.assemble(("bad", "red"), "  12 'a' True  "))
    assert plain.written() == "bad  12 'a' True  \n" and plain.text() == "bad  12 'a' True"
    assert coloured.written() == "\x1b[31mbad\x1b[0m  12 'a' True  \n"
