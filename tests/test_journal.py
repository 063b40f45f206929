"""A run whose process dies leaves its trace: what had begun, what had ended, and where it was."""

from __future__ import annotations

import subprocess
import sys

import fxdebug

SCRIPT = """
import os, sys, torch
from torch import nn
from fxdebug import fx_debug

class Dies(nn.Module):
    def forward(self, x):
        os._exit(9)

model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), Dies()))
fx_debug(model, torch.ones(1, 2), save=sys.argv[1])
"""


def test_a_process_that_dies_at_once_leaves_every_call_that_had_begun(tmp_path):
    assert subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=False).returncode == 9
    trace = fxdebug.load(tmp_path)
    errors = {call.path: call.error and call.error.here for call in trace.calls}
    assert errors == {"": False, "0": None, "1": False, "1.0": None, "1.1": True}
    assert trace.find("0")[0].outputs[0].shape == (1, 3)
    assert str(trace).splitlines()[-2:] == [
        "raised in 1.1: Unfinished: the process ended while this call ran",
        "note: recovered from an unfinished run: its process ended before it was complete",
    ]
