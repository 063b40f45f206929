"""How wide layers are: a feature as another package brings it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import fxdebug
from fxdebug.api.commands.parts import load_run, show_report
from fxdebug.data.measures import register
from fxdebug.data.rules import RuleBook, RuleSpec
from fxdebug.exports.report.figures import column_of, draw_bars, stacked_axes
from fxdebug.exports.report.text import lines_of
from fxdebug.plugins import found, measure, report
from fxdebug.plugins.command import RANK, REPORT, RUN, Command
from fxdebug.plugins.console import command
from fxdebug.plugins.feature import Feature
from fxdebug.plugins.given import Card, Folder, RunFiles

register("width", "", "numbers in a row of what a linear layer returns", ["call"])


@dataclass(frozen=True)
class Limits:
    most: int = 4


BOOK = RuleBook(
    "widths", (RuleSpec("wide layer", "error", "a linear layer returns wide rows", "most"),),
    limits=Limits, about={"most": ("", "numbers in a row", "a guess")},
)  # fmt: skip


def widths(trace, limits=None):
    """The width of every linear layer of a run."""
    most = (limits or Limits()).most
    calls = {call.id: call for call in trace.find(type="Linear")}
    width = {id: call.outputs[0].shape[-1] for id, call in calls.items()}
    wide = [
        found(calls[id], f"rows of {n} numbers", measured=n, threshold=most, rule="wide layer", severity="error")
        for id, n in width.items() if n > most
    ]  # fmt: skip
    rows = [{"call": id, "width": n} for id, n in width.items()]
    return report("widths", trace, rows, findings=wide, measures={"width": width})


def draw(data):
    figure, (axis,) = stacked_axes(data, "widths of layers", [2.0])
    draw_bars(axis, lines_of(data, everything=True), column_of(data, "width"))
    return figure


def write(data, path):
    path.write_text("".join(f"{row.call} {row.width}\n" for row in data.rows))
    return path


def write_run(trace, path):
    path.write_text(" ".join(call.id for call in trace.calls))


def read_folder(folder, rank):
    return widths(fxdebug.load(folder / "of.run"))


@measure(adds=True)
def rows(trace):
    """Rows of what a call returns."""
    return {call.id: call.outputs[0].shape[0] for call in trace.calls}


def widths_of_run(options: argparse.Namespace) -> int:
    """Report the widths of a saved run."""
    return show_report(widths(load_run(options.run, options)), options)


@command("widths", group="widths")
def widths_there(session, argument):
    """Say how wide layers are."""
    session.screen.line(str([row.width for row in widths(session.machine.trace).rows]))


# a file with the path of a saved run
SHORTCUT = RunFiles(
    lambda path: path.suffix == ".run", lambda folder: None, lambda path: fxdebug.load(path.read_text())
)
FOLDER = Folder(
    lambda path: (path / "of.run").is_file(),
    lambda path, rank, limits_of: ("widths", read_folder(path, rank)),
    "widths", "widths of a run", read_folder, "report", files=lambda names: ["of.run"] * ("of.run" in names),
)  # fmt: skip


def card(folder):
    return Card("measured", verdict(folder), facts=(f"{len(read_folder(folder, None).rows)} layers",))


def verdict(folder):
    return f"the widest row has {max(row.width for row in read_folder(folder, None).rows)} numbers"


def draw_in_line(trace, path, options):
    path.write_text("→".join(call.id for call in trace.find(type="Linear")))
    return path


def beside(a, b):
    """Tell of two runs whether their widest layers are equally wide."""
    both = [max(row.width for row in widths(run).rows) for run in (a, b)] if isinstance(a, fxdebug.Trace) else (0, 0)
    told = report("widths", b, [{"a": both[0], "b": both[1]}])
    return lambda comparison: replace(told, answer=f"{both[0]} and {both[1]}")


COMMANDS = (Command(widths_of_run, (RUN, *REPORT, RANK)),)
FEATURE = Feature(
    name="widths", functions={"widths": "widths:widths"}, on_run="widths:widths", rules="widths:BOOK",
    measures=("widths",), pictures={"widths": "widths:draw"}, takes={"rows": "widths:rows"},
    exporters={("report", ".widths"): "widths:write", ("trace", ".calls"): "widths:write_run"},
    sheet="widths:widths", commands="widths:COMMANDS", console=("widths",), tools={"widths": "widths:widths"},
    opens="widths:SHORTCUT", folder="widths:FOLDER", card="widths:card", verdict="widths:verdict",
    layouts={("trace", "line"): "widths:draw_in_line"}, beside="widths:beside",
)  # fmt: skip
