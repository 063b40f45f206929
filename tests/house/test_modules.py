"""Modules of the program are walked in one place: their own methods may be anything, and they may compare equal."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "fxdebug"
WALKS = PACKAGE / "capture" / "torch_state" / "module_members.py"
METHODS = {f"{prefix}{name}" for prefix in ("", "named_") for name in ("modules", "parameters", "buffers", "children")}


def asked_in(file: Path) -> list[str]:
    """The calls without arguments of methods that walk a module, each with its line."""
    return [
        f"{file.relative_to(PACKAGE)}:{node.lineno} .{node.func.attr}()"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in METHODS and not node.args and not node.keywords
    ]


def test_no_module_is_asked_for_its_modules_parameters_or_buffers() -> None:
    found = [call for file in sorted(PACKAGE.rglob("*.py")) if file != WALKS for call in asked_in(file)]
    assert found == [], f"use {WALKS.stem}: a model's own method of that name may be anything"
