"""Modules whose forward is a function, and the kinds of what is found in a run."""

from __future__ import annotations

from torch import nn


class Body(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def kinds(trace):
    return [(finding.kind, finding.severity, finding.op) for finding in trace.check()]


class Runs(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)
