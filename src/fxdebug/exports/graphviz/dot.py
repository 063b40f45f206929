"""The graph of a run as DOT: boxes are modules, nested as they called one another; nodes are operations and
closed calls, coloured by how far their graph can be trusted or by a statistic; NaN and Inf are red.

What is drawn is decided in ``drawn``; ``pictures`` has it drawn.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import graphviz

from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError, nearest
from fxdebug.exports.graphviz.colors import (
    BAD_FILL,
    COLORS,
    GREY,
    LINE,
    MEANING,
    SCALE,
    STATUS,
    Coloring,
    strength,
    swatch,
    undone,
)
from fxdebug.exports.graphviz.drawing import Arrow, Box, Drawing, Step, drawing
from fxdebug.exports.graphviz.labels import (
    RED,
    box_title,
    facts,
    html,
    index,
    is_bad,
    numbers,
    plain,
    shape_of,
    shortened,
    step_tip,
    tip,
    trust,
)
from fxdebug.exports.text import number

_FONT = {"fontname": "Helvetica,Arial,sans-serif"}
_WIDEST = 30  # letters of a line


def write_dot(
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
    """The DOT text. What is drawn: see ``drawn.drawing``; ``color`` is one of :data:`COLORS`."""
    drawn = drawing(trace, depth=depth, fold=fold, leaves=leaves, everything=everything)
    path.write_text(source(trace, drawn, color=color, rankdir=rankdir), "utf-8")
    return path


@dataclass(frozen=True)
class Mark:
    """How one node or box looks in place of what its status or statistics say, with lines for its label and tooltip."""

    fill: str
    line: str = LINE
    width: str = "0.6"
    dashed: bool = False
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marks:
    """Marks of drawn nodes by id and of boxes by the index of their first call, and what the legend says of them."""

    nodes: Mapping[str, Mark]
    boxes: Mapping[int, Mark]
    meanings: Sequence[tuple[str, str]]
    facts: Sequence[str] = ()


def source(
    trace: TraceData, drawn: Drawing, *, color: Coloring = "status", rankdir: str = "TB", marks: Marks | None = None
) -> str:
    """The DOT text of a drawing. ``marks`` are in place of ``color``."""
    if color not in COLORS:
        raise UsageError(f"color={color!r}: use one of {', '.join(COLORS)}.{nearest(color, COLORS)}")
    if rankdir not in ("TB", "LR", "BT", "RL"):
        raise UsageError(f"rankdir={rankdir!r}: use TB (downwards) or LR (to the right)")
    return _Writer(trace, drawn, color, marks).text(rankdir)


class _Writer:
    def __init__(self, trace: TraceData, drawn: Drawing, color: Coloring, marks: Marks | None = None) -> None:
        self._trace = trace
        self._drawn = drawn
        self._names: dict[str, str] = {}
        self._color: Coloring = color if marks is None else "none"
        self._marks = marks
        self._uses = Counter(arrow.source for arrow in drawn.arrows)
        self._stats = {id: step.stats for id, step in drawn.steps.items()}
        amounts = [a for step in drawn.steps.values() if (a := self._amount(step)) is not None]
        self._range = (min(amounts), max(amounts)) if amounts else (0.0, 0.0)

    def text(self, rankdir: str) -> str:
        """The whole graph."""
        graph = graphviz.Digraph(plain(self._trace.model, 100))
        graph.attr(
            label=self._legend(), labelloc="t", labeljust="l", rankdir=rankdir, dpi="110", compound="true",
            newrank="true", nodesep="0.22", ranksep="0.3", pad="0.2", tooltip=plain(self._trace.model), **_FONT,
        )  # fmt: skip
        graph.attr("node", shape="box", style="filled", fontsize="10", margin="0.1,0.05", color=LINE, **_FONT)
        graph.attr("edge", fontsize="7.5", color="#7c7c86", fontcolor="#8a8a94", arrowsize="0.55", **_FONT)
        steps = self._drawn.steps.values()
        for step in steps:
            if step.kind == "input":
                self._end(graph, step)
        with graph.subgraph() as last:
            last.attr(rank="sink")
            for step in steps:
                if step.kind == "output":
                    self._end(last, step)
        if self._drawn.root is None:
            for step in steps:
                if step.kind == "call":
                    self._step(graph, step)
        else:
            self._boxes(graph, self._drawn.root)
        for arrow in self._drawn.arrows:
            self._arrow(graph, arrow)
        return str(graph.source)

    # Boxes ---------------------------------------------------------------------------------------

    def _boxes(self, graph: graphviz.Digraph, root: Box) -> None:
        """Clusters in clusters, written from the innermost out."""
        order: list[Box] = []
        pending = [root]
        while pending:
            box = pending.pop()
            order.append(box)
            pending.extend(box.boxes)
        made: dict[int, graphviz.Digraph] = {}
        for box in reversed(order):
            cluster = graphviz.Digraph(f"cluster_{len(made)}")
            call, failed = box.row.first, box.row.first.error is not None
            repeated = box.row.repeats > 1
            cluster.attr(
                label=box_title(box), labeljust="l", labelloc="t", style="rounded,filled", margin="10",
                color=RED if failed else "#7f93b2" if repeated else "#c9c9d2",
                fillcolor="#eef2f9" if repeated else "#fafafc", penwidth="1.4" if repeated or failed else "0.8",
                fontsize="10.5", tooltip=tip([call.id, call.source, trust(box.status, call.reason)]), **_FONT,
            )  # fmt: skip
            mark = None if self._marks is None else self._marks.boxes.get(call.index)
            if mark is not None:
                cluster.attr(color=mark.line, penwidth=mark.width)
            for step in sorted(box.steps, key=lambda step: step.node.position):
                self._step(cluster, step)
            for inner in box.boxes:
                cluster.subgraph(made[id(inner)])
            made[id(box)] = cluster
        graph.subgraph(made[id(root)])

    # Nodes ---------------------------------------------------------------------------------------

    def _step(self, cluster: graphviz.Digraph, step: Step) -> None:
        stats, call = self._stats[step.id], step.kind == "call"
        bad = is_bad(stats) or step.failed
        options = {
            "label": self._label(step), "fillcolor": self._fill(step), "tooltip": step_tip(step, stats),
            "color": RED if bad else LINE, "penwidth": "1.3" if call else "0.6",
        }  # fmt: skip
        if call:
            options["style"] = "rounded,filled"
            options["peripheries"] = "2" if step.repeats > 1 else "1"
        elif step.kind == "arranging" and not bad:
            options |= {"fillcolor": "#ffffff", "color": "#c9c9d2"}
        mark = self._mark(step)
        if mark is not None:
            options |= {"fillcolor": mark.fill, "color": mark.line, "penwidth": mark.width}
            options["style"] = options.get("style", "filled") + (",dashed" if mark.dashed else "")
        cluster.node(self._name(step.id), **options)

    def _mark(self, step: Step) -> Mark | None:
        return None if self._marks is None else self._marks.nodes.get(step.id)

    def _end(self, graph: graphviz.Digraph, step: Step) -> None:
        """An input or an output of the whole run."""
        stats = self._stats[step.id]
        color = RED if is_bad(stats) else "#44546a"
        graph.node(
            self._name(step.id), label=self._label(step), style="filled", fillcolor="#ffffff", color=color,
            shape="note" if step.kind == "input" else "box", penwidth="1.1",
            tooltip=tip([step.title, *facts(step, stats)]),
        )  # fmt: skip

    def _label(self, step: Step) -> str:
        """The title, and in small letters what came out."""
        call = step.node.call
        title = shortened(step.title) if step.kind != "arranging" else step.title
        if step.kind == "call" and step.title != call.type:
            head = f"<B>{html(title)}</B>  {html(shortened(call.type))}"
        elif step.kind == "arranging":
            head = f'<FONT COLOR="{GREY}">' + "<BR/>".join(map(html, textwrap.wrap(title, _WIDEST))) + "</FONT>"
        else:
            head = f"<B>{html(title)}</B>" + html(index(step.node))
        mark = self._mark(step)
        lines = []
        if mark is not None:
            lines = [f'<FONT COLOR="{mark.line}"><B>{html(text)}</B></FONT>' for text in mark.text]
        if step.failed:
            lines.append(f'<FONT COLOR="{RED}">raised {html(str(call.error and call.error.type))}</FONT>')
        if step.values:
            lines.append(html(f"{step.values[0].dtype} {shape_of(step.values[0].shape)}"))
        if step.kind != "arranging" or is_bad(self._stats[step.id]):
            lines += map(html, numbers(self._stats[step.id], step.values[0].dtype if step.values else ""))
            if self._color not in ("status", "mean", "std", "none") and self._amount(step) is not None:
                lines.append(html(f"{self._color} {number(getattr(self._stats[step.id], self._color))}"))
        small = "<BR/>".join(lines)
        if not small:
            return f"<{head}>"
        return f'<{head}<BR/><FONT POINT-SIZE="3"> </FONT><BR/><FONT POINT-SIZE="8" COLOR="#4a4a52">{small}</FONT>>'

    def _fill(self, step: Step) -> str:
        stats = self._stats[step.id]
        if is_bad(stats) or step.failed:
            return BAD_FILL
        if self._color == "status":
            return STATUS.get(step.status, STATUS[None])
        amount = self._amount(step)
        if amount is None:
            return "#ffffff"
        low, high = self._range
        share = 0.0 if high <= low else (amount - low) / (high - low)
        return SCALE[min(int(share * len(SCALE)), len(SCALE) - 1)]

    def _amount(self, step: Step) -> float | None:
        """How strongly to colour an operation or a call: not by token ids, masks or what only passes through."""
        if (
            step.kind not in ("op", "call")
            or not step.values
            or step.values[0].dtype.startswith(("int", "uint", "bool"))
        ):
            return None
        return strength(self._stats[step.id], self._color)

    def _arrow(self, graph: graphviz.Digraph, arrow: Arrow) -> None:
        known = "" if arrow.value is None else shape_of(arrow.value.shape)
        options = {"style": {"data": "solid", "memory": "dashed", "order": "dotted"}[arrow.kind]}
        if arrow.kind == "order":
            options |= {"arrowhead": "open", "color": "#b0b0b8"}
        elif self._drawn.steps[arrow.target].kind != "output":  # it says its shape itself
            options["label"] = graphviz.nohtml(f" {known}")
        if self._uses[arrow.source] == 1:
            options["weight"] = "8"  # in a row: dot keeps it straight
        steps = self._drawn.steps
        ends = [plain(steps[id].title, 60) for id in (arrow.source, arrow.target)]
        options["tooltip"] = options["labeltooltip"] = tip(
            [f"{ends[0]} → {ends[1]}", None if arrow.value is None else arrow.value.label]
        )
        graph.edge(self._name(arrow.source), self._name(arrow.target), **options)

    def _name(self, id: str) -> str:
        """DOT reads a colon in a node's name as a port: nodes are numbered instead."""
        return self._names.setdefault(id, f"n{len(self._names)}")

    # The legend ----------------------------------------------------------------------------------

    def _legend(self) -> str:
        """Above the picture: the model, what of it is drawn, and what the colours mean."""
        trace, drawn = self._trace, self._drawn
        deepest = max(call.depth for call in trace.calls) + 1
        facts = [f"{len(trace.calls)} calls", f"{len(drawn.steps)} nodes drawn", *(self._marks or _NONE).facts]
        if drawn.depth is not None and drawn.depth < deepest:
            facts.append(f"calls {drawn.depth} levels down are closed")
        name, known = shortened(trace.model), " · ".join(facts)
        rows = f'<TR><TD ALIGN="LEFT"><B><FONT POINT-SIZE="15">{html(name)}</FONT></B></TD></TR>'
        rows += f'<TR><TD ALIGN="LEFT">{_small(known)}</TD></TR>'
        meanings = self._meanings()
        if meanings:
            cells = "".join(
                swatch(color) + (f"<TD>{_small(text)}&#160;</TD>" if text else "") for color, text in meanings
            )
            # about what is left of the row: dot would stretch the colours to fill it
            left = max(10 * len(name), 5 * len(known)) - sum(20 + 5 * len(text) for _, text in meanings)
            cells += f'<TD WIDTH="{left}"></TD>' if left > 0 else ""
            table = f'<TABLE BORDER="0" CELLSPACING="3" CELLPADDING="1"><TR>{cells}</TR></TABLE>'
            rows += f'<TR><TD ALIGN="LEFT">{table}</TD></TR>'
        return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2">{rows}</TABLE>>'

    def _meanings(self) -> list[tuple[str, str]]:
        """Colours that occur, and what they say."""
        found: list[tuple[str, str]] = []
        steps = self._drawn.steps.values()
        if self._marks is not None:
            found = list(self._marks.meanings)
        elif self._color == "status":
            here = {step.status for step in steps if step.kind in ("op", "call")}
            found = [(STATUS[status], MEANING[status]) for status in MEANING if status in here]
        elif self._color != "none" and self._range[1] > self._range[0]:
            low, high = (number(undone(end, self._color)) for end in self._range)
            found = [("", f"{self._color} from {low}"), *((color, "") for color in SCALE), ("", f"to {high}")]
        if self._marks is None and any(is_bad(stats) for stats in self._stats.values()):
            found.append((BAD_FILL, "NaN or Inf"))
        if any(step.failed for step in steps):
            found.append((BAD_FILL, "raised"))
        kinds = {arrow.kind for arrow in self._drawn.arrows}
        if "memory" in kinds:
            found.append(("", "dashed: through memory or an object"))
        if "order" in kinds:
            found.append(("", "dotted: ran next, its input is not known"))
        return found


_NONE = Marks({}, {}, ())


def _small(text: str) -> str:
    return f'<FONT POINT-SIZE="9" COLOR="{GREY}">{html(text)}</FONT>'
