"""The picture of the floors in CONTRIBUTING is the one that the import lines and the rooms' docstrings make now."""

from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

import pytest


def test_floors_are_drawn_as_the_code_is_now(tool: ModuleType, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        tool.PICTURE.write_text(tool.drawn(), encoding="utf-8")
    assert tool.PICTURE.read_text(encoding="utf-8") == tool.drawn(), "--update-golden draws it anew"


def test_floors_have_every_name_of_the_import_line_once(tool: ModuleType) -> None:
    root = ElementTree.fromstring(tool.drawn())
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "name"]
    assert sorted(names) == sorted(name for floor in tool.floors() for name in floor)


def test_floors_say_what_each_room_says_of_itself(tool: ModuleType) -> None:
    assert tool.charter("query") == "Asking a trace: find, walk, fold; the whole run as one graph"
    assert tool.charter("stats").startswith("Measure a tensor: three ways to its Stats")
    assert [name for floor in tool.rows()[:-1] for name in floor if not tool.charter(name)] == []
