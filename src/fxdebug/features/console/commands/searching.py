"""Commands that search the whole run: tree, find, upstream, downstream, findings, compare."""

from __future__ import annotations

from collections.abc import Sequence

from fxdebug import api
from fxdebug.analyses.measures import derive
from fxdebug.data.calls import Call
from fxdebug.errors import UsageError
from fxdebug.exports import records, text
from fxdebug.features.console.breakpoints import fits_id, is_id, kind_of
from fxdebug.features.console.expressions import value_line
from fxdebug.features.console.session import Session
from fxdebug.plugins.console import command
from fxdebug.query import find as queries
from fxdebug.query import walk
from fxdebug.query.network import Node, network_of
from fxdebug.query.node_lookup import node_at

GROUP = "search"
MOST_FOUND = 30  # lines
OPERATIONS = ("call_function", "call_method")
TREE_DEPTH = 2  # levels below the model


@command("tree t", "[DEPTH|all]", group=GROUP)
def tree(session: Session, argument: str) -> None:
    """Show the calls of the run with the statistics of their results; repeated layers are one line."""
    if argument and argument != "all" and not argument.isdecimal():
        raise UsageError(f"tree {argument}: give a number of levels, or all")
    depth = None if argument == "all" else int(argument or TREE_DEPTH)
    screen = session.screen
    screen.lines(
        session.text_of_run(
            f"tree {depth}", lambda run: text.tree(run, width=screen.width, color=screen.color, depth=depth)
        )
    )


@command("find f", "WHAT", group=GROUP, completes="break")
def find(session: Session, argument: str) -> None:
    """List the calls or operations that a breakpoint of these words would stop at: find nan > 0, find *.attn."""
    if not argument:
        raise UsageError("find needs a path, a class, an operation, a line of code, or a condition: find nan > 0")
    trace = session.trace
    kind, name = kind_of(session.machine, argument)
    found: Sequence[Call | Node]
    asked: str | None = None
    if kind in ("path", "operation") and is_id(session.machine, name):
        found = _with_id(trace, kind, name)
    elif kind == "path":
        found = queries.find_calls(trace, name)
    elif kind == "class":
        found = queries.find_calls(trace, type=name)
    elif kind == "graph":
        found = [call for call in trace.calls if call.status in ("recorded", "opaque")]
    elif kind == "where":
        derive(trace, name)
        asked = name
        has_operations = trace.graph_source is not None
        found = queries.find_ops(trace, where=name) if has_operations else queries.find_calls(trace, where=name)
    elif kind == "source":
        found = queries.find_ops(trace, source=name)
    elif kind == "operation":
        found = queries.find_ops(trace, name)
    else:
        raise UsageError("find against RUN: compare RUN shows the differences")
    rows = records.found_rows(trace, found[:MOST_FOUND], None, None, asked)
    lines = text.listing(rows, session.screen.width)
    session.screen.lines(lines if len(found) <= MOST_FOUND else lines.rpartition("\n")[0])
    if len(found) > MOST_FOUND:
        session.screen.line(f"{len(found)} found; the first {MOST_FOUND} are shown")


def _with_id(trace: api.Trace, kind: str, pattern: str) -> list[Call | Node]:
    net = network_of(trace)
    if kind == "path":
        return [call for call in trace.calls if fits_id(net.call_id(call), pattern) or fits_id(call.id, pattern)]
    ran = (node for node in net.nodes.values() if node.kind in OPERATIONS)
    return [node for node in ran if fits_id(node.id, pattern)]


@command("upstream", "[PLACE] [STEPS]", group=GROUP, completes="place")
def upstream(session: Session, argument: str) -> None:
    """List the operations that a result depends on, the nearest last; STEPS operations away (default 3)."""
    _walk(session, argument, back=True)


@command("downstream", "[PLACE] [STEPS]", group=GROUP, completes="place")
def downstream(session: Session, argument: str) -> None:
    """List the operations that depend on a result, the nearest first; STEPS operations away (default 3)."""
    _walk(session, argument, back=False)


def _walk(session: Session, argument: str, *, back: bool) -> None:
    words = argument.split()
    steps = int(words.pop()) if words and words[-1].isdecimal() else 3
    if len(words) > 1:
        raise UsageError(f"{'upstream' if back else 'downstream'} takes one place and a number of steps")
    trace = session.trace
    place = node_at(trace, words[0] if words else session.machine.stop.id)
    found = (walk.upstream if back else walk.downstream)(trace, place, steps=steps)
    shown = [node for node in found if node.kind in OPERATIONS or _is_end(node)]
    for node in shown[-MOST_FOUND:] if back else shown[:MOST_FOUND]:
        line = "" if node.value is None else value_line(node.value)
        session.screen.line((f"{node.id:<32} ", "bold"), line)
    more = f", {MOST_FOUND} are shown" if len(shown) > MOST_FOUND else ""
    direction = "before" if back else "after"
    session.screen.line(
        (f"{len(shown)} within {steps} step{'s' if steps != 1 else ''} {direction} {place.id}{more}", "dim")
    )


def _is_end(node: Node) -> bool:
    """Is the node an input of the model, a weight, or a call whose operations are not known?"""
    if node.kind == "call_module":
        return not node.call.children and node.call.graph is None
    return node.kind == "get_attr" or (node.kind == "placeholder" and node.call.parent is None)


@command("findings", "", group=GROUP)
def findings(session: Session, argument: str) -> None:
    """Show what is wrong with the numbers of the run: where NaN, infinities and lost digits come from."""
    screen = session.screen
    screen.lines(
        session.text_of_run(
            "findings", lambda run: run.check(tensors=False).text(width=screen.width, color=screen.color)
        )
    )


@command("compare cmp", "RUN", group=GROUP, completes="file")
def compare(session: Session, argument: str) -> None:
    """Compare this run with another one, the reference; "break against RUN" stops where they part."""
    if not argument:
        raise UsageError("compare needs the folder of a saved run")
    screen = session.screen
    comparison = api.compare(argument, session.trace)
    screen.lines(comparison.text(width=screen.width, color=screen.color))
