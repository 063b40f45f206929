"""The graph of a run as DOT text.

Boxes are modules, nested as they called one another. Nodes are operations and closed calls, coloured by how far their
graph can be trusted or by a statistic; NaN and Inf are red. ``build_drawing`` decides what is drawn, ``render`` makes
a picture of the text.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import graphviz

from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.colors import CARRIED, LINE, RED, WHITE, Colors, is_bad, require_colors
from fxdebug.exports.drawing.drawing import NEXT_TURN, Arrow, Box, Drawing, Step
from fxdebug.exports.drawing.marks import NO_MARKS, Marks
from fxdebug.exports.drawing.options import DEFAULTS, KIND, NONE, STATUS, DrawOptions
from fxdebug.features.diagrams.build_drawing import drawing_of
from fxdebug.features.diagrams.escaping import plain
from fxdebug.features.diagrams.labels import (
    arrow_tooltip,
    box_label,
    box_tooltip,
    end_tooltip,
    shape_label,
    step_label,
    step_tooltip,
)
from fxdebug.features.diagrams.legend import legend_label
from fxdebug.files.write_file import write_text

_FONT = {"fontname": "Helvetica,Arial,sans-serif"}
_ARROW_STYLES = {"data": "solid", "memory": "dashed", "order": "dotted", "carried": "solid"}


def write_dot(trace: TraceData, path: Path, options: DrawOptions = DEFAULTS) -> Path:
    """Write the DOT text of a run."""
    require_colors(trace, options)
    return write_text(path, dot_text(trace, drawing_of(trace, options), options))


def dot_text(trace: TraceData, drawing: Drawing, options: DrawOptions = DEFAULTS, marks: Marks | None = None) -> str:
    """Return the DOT text of a drawing; ``marks`` take the place of ``options.color``."""
    return _DotWriter(trace, drawing, options, marks).text()


class _DotWriter:
    def __init__(self, trace: TraceData, drawing: Drawing, options: DrawOptions, marks: Marks | None) -> None:
        self._trace = trace
        self._drawing = drawing
        self._rankdir = options.rankdir
        self._marks = marks
        coloring, measures = (options.color, options.measures) if marks is None else (NONE, ())
        self._colors = Colors(trace, drawing, STATUS if coloring == KIND else coloring, measures)
        self._names: dict[str, str] = {}
        self._uses = Counter(arrow.source for arrow in drawing.arrows if arrow.kind != "carried")

    def text(self) -> str:
        """Return the whole graph."""
        graph = graphviz.Digraph(plain(self._trace.model, 100))
        graph.attr(
            label=legend_label(self._trace, self._drawing, self._colors, self._marks),
            labelloc="t",
            labeljust="l",
            rankdir=self._rankdir,
            dpi="110",
            compound="true",
            newrank="true",
            nodesep="0.22",
            ranksep="0.3",
            pad="0.2",
            tooltip=plain(self._trace.model),
            **_FONT,
        )
        graph.attr("node", shape="box", style="filled", fontsize="10", margin="0.1,0.05", color=LINE, **_FONT)
        graph.attr("edge", fontsize="7.5", color="#7c7c86", fontcolor="#8a8a94", arrowsize="0.55", **_FONT)
        steps = self._drawing.steps.values()
        for step in steps:
            if step.kind == "input":
                self._add_end(graph, step)
        with graph.subgraph() as last:
            last.attr(rank="sink")
            for step in steps:
                if step.kind == "output":
                    self._add_end(last, step)
        if self._drawing.root is None:
            for step in steps:
                if step.kind == "call":
                    self._add_step(graph, step)
        else:
            self._add_boxes(graph, self._drawing.root)
        for arrow in self._drawing.arrows:
            self._add_arrow(graph, arrow)
        return str(graph.source)

    def _add_boxes(self, graph: graphviz.Digraph, root: Box) -> None:
        """Add all boxes as clusters in clusters, written from the innermost out."""
        order: list[Box] = []
        pending = [root]
        while pending:
            box = pending.pop()
            order.append(box)
            pending.extend(box.boxes)
        clusters: dict[int, graphviz.Digraph] = {}  # by the id of the box
        for box in reversed(order):
            cluster = graphviz.Digraph(f"cluster_{len(clusters)}")
            self._describe_box(cluster, box)
            for step in sorted(box.steps, key=lambda step: step.node.position):
                self._add_step(cluster, step)
            for inner in box.boxes:
                cluster.subgraph(clusters[id(inner)])
            clusters[id(box)] = cluster
        graph.subgraph(clusters[id(root)])

    def _describe_box(self, cluster: graphviz.Digraph, box: Box) -> None:
        failed, repeated = box.call is not None and box.call.error is not None, box.row.repeats > 1
        cluster.attr(
            label=box_label(box, self._colors),
            labeljust="l",
            labelloc="t",
            style="rounded,filled",
            margin="10",
            color=RED if failed else "#7f93b2" if repeated else "#c9c9d2",
            fillcolor="#eef2f9" if repeated else "#fafafc",
            penwidth="1.4" if repeated or failed else "0.8",
            fontsize="10.5",
            tooltip=box_tooltip(box),
            **_FONT,
        )
        mark = None if box.call is None else (self._marks or NO_MARKS).boxes.get(box.call.index)
        if mark is not None:
            cluster.attr(color=mark.line, penwidth=mark.width)

    def _add_step(self, cluster: graphviz.Digraph, step: Step) -> None:
        """Add an operation or a closed call."""
        stats, call = self._colors.stats[step.id], step.kind == "call"
        mark = (self._marks or NO_MARKS).nodes.get(step.id)
        bad = is_bad(stats) or step.failed
        options = {
            "label": step_label(step, self._colors, mark),
            "fillcolor": self._colors.fill(step),
            "tooltip": step_tooltip(step, stats, self._colors.lines(step)),
            "color": RED if bad else LINE,
            "penwidth": "1.3" if call else "0.6",
        }
        if call:
            options["style"] = "rounded,filled"
            options["peripheries"] = "2" if step.repeats > 1 else "1"
        elif step.kind == "arranging" and not bad:
            options |= {"fillcolor": WHITE, "color": "#c9c9d2"}
        if mark is not None:
            options |= {"fillcolor": mark.fill, "color": mark.line, "penwidth": mark.width}
            options["style"] = options.get("style", "filled") + (",dashed" if mark.dashed else "")
        cluster.node(self._name(step.id), **options)

    def _add_end(self, graph: graphviz.Digraph, step: Step) -> None:
        """Add an input or an output of the whole run."""
        stats = self._colors.stats[step.id]
        mark = (self._marks or NO_MARKS).nodes.get(step.id)
        graph.node(
            self._name(step.id),
            label=step_label(step, self._colors, mark),
            style="filled",
            fillcolor=WHITE,
            color=RED if is_bad(stats) else "#44546a",
            shape="note" if step.kind == "input" else "box",
            penwidth="1.1",
            tooltip=end_tooltip(step, stats),
        )

    def _add_arrow(self, graph: graphviz.Digraph, arrow: Arrow) -> None:
        source, target = self._drawing.steps[arrow.source], self._drawing.steps[arrow.target]
        options = {"style": _ARROW_STYLES[arrow.kind]}
        if arrow.kind == "order":
            options |= {"arrowhead": "open", "color": "#b0b0b8"}
        elif target.kind != "output":  # the node of an output shows its shape itself
            shape = "" if arrow.value is None else shape_label(list(arrow.shapes) or [arrow.value.shape])
            options["label"] = graphviz.nohtml(f" {shape}")
        if arrow.kind == "carried":
            options |= {"color": CARRIED, "fontcolor": CARRIED, "constraint": "false"}
            options["label"] = graphviz.nohtml(f"{options.get('label', '')} {NEXT_TURN}")
        elif self._uses[arrow.source] == 1:
            options["weight"] = "8"  # the only arrow from here: dot keeps it straight
        options["tooltip"] = options["labeltooltip"] = arrow_tooltip(arrow, source, target)
        graph.edge(self._name(arrow.source), self._name(arrow.target), **options)

    def _name(self, id: str) -> str:
        """Return a numbered name for a node: DOT reads a colon in a name as a port."""
        return self._names.setdefault(id, f"n{len(self._names)}")
