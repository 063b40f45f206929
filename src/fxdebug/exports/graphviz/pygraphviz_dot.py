"""Graphviz without a system package: the one inside pygraphviz's wheel (extra ``draw``)."""

from __future__ import annotations

import importlib.util
import sys

# In a process of its own: Graphviz is C, and what goes wrong in it must not take the program along.
_DRAW = """
import sys, pygraphviz
pygraphviz.AGraph(string=sys.stdin.buffer.read().decode()).draw(sys.argv[2], format=sys.argv[1], prog="dot")
"""


def command(format: str, path: str) -> list[str] | None:
    """A command that draws DOT from its standard input, or ``None`` if pygraphviz is not installed."""
    if importlib.util.find_spec("pygraphviz") is None:
        return None
    return [sys.executable, "-c", _DRAW, format, path]
