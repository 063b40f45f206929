"""Build the drawing of a run: choose the open calls and the steps, and add the arrows between them."""

from __future__ import annotations

from dataclasses import replace

from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.drawing import Drawing
from fxdebug.exports.drawing.options import DEFAULTS, DrawOptions
from fxdebug.features.diagrams.arrows import ArrowBuilder
from fxdebug.features.diagrams.boxes import BoxBuilder, OpenCalls
from fxdebug.features.diagrams.grouping import join_rearranging
from fxdebug.query.network import network_of

READABLE = 60  # the most steps that a person can take in at once
DEEPEST = 12  # levels that are opened by default, at most


def drawing_of(trace: TraceData, options: DrawOptions = DEFAULTS, open_calls: OpenCalls | None = None) -> Drawing:
    """Return the drawing of a run.

    Calls without calls inside stay closed (a Linear is one step) unless ``options.leaves``. Steps that return no
    tensor (sizes), that only take a part of a result or that read a parameter are left out, and rearranging ones are
    joined, unless ``options.everything``. ``open_calls`` names the open calls one by one, in place of ``depth`` and
    ``leaves``.
    """
    if options.depth is None and not options.everything and open_calls is None:
        options = replace(options, depth=_readable_depth(trace, options))
    net = network_of(trace)
    builder = BoxBuilder(trace, net, options, open_calls)
    root = builder.build()
    builder.add_inputs()
    arrows = ArrowBuilder(trace, net, builder.steps, builder.stands_for, builder.turns).build()
    if not options.everything and root is not None:
        arrows = join_rearranging(root, builder.steps, arrows)
    return Drawing(root, builder.steps, arrows, options.depth, builder.stands_for)


def count_steps(trace: TraceData, options: DrawOptions = DEFAULTS, open_calls: OpenCalls | None = None) -> int:
    """Return about how many steps a drawing would have; rearranging ones do not count, since they are joined."""
    builder = BoxBuilder(trace, network_of(trace), options, open_calls)
    builder.build()
    return sum(step.kind != "arranging" for step in builder.steps.values())


def _readable_depth(trace: TraceData, options: DrawOptions) -> int:
    deepest = max(call.depth for call in trace.calls)
    readable = 1
    for depth in range(1, min(deepest + 1, DEEPEST) + 1):
        if count_steps(trace, replace(options, depth=depth)) > READABLE:
            break
        readable = depth
    return readable
