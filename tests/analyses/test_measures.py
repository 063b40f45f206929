"""All measures there are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.analyses.measures import FLOPS, available, derive, every_measure
from fxdebug.data.measures import MEASURES, SUBJECTS
from fxdebug.query.measures import derived

SOURCE = Path(fxdebug.__file__).parent


def test_every_measure_that_the_code_registers_is_listed() -> None:
    listed = every_measure()
    named = set()
    for path in SOURCE.rglob("*.py"):
        for tree in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(tree, ast.Call) and getattr(tree.func, "id", "") in ("register", "_of_tensors"):
                named |= {one.value for one in tree.args[:1] if isinstance(one, ast.Constant)}
    assert {"time.self", "memory.peak", "flops", "macs", "params", "absmax"} <= named <= listed.keys()
    assert all(one.about and one.of and one.of <= set(SUBJECTS) for one in listed.values())


def test_listing_the_measures_needs_no_torch() -> None:
    source = "import sys; from fxdebug.analyses.measures import every_measure as e; e(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_operations_are_counted_when_a_line_asks_for_them_and_once() -> None:
    trace = fx_debug(nn.Linear(2, 2), torch.ones(1, 2))
    derive(trace, None, "absmax > 1 and overflops.self > 2", len)
    assert derived(trace) == {} and set(FLOPS) <= available(trace).keys()
    derive(trace, "params > 1 and flops > 2")
    assert list(derived(trace)) == ["flops", "flops.self", "flops.backward", "macs"]
    numbers = derived(trace)["macs"].numbers
    derive(trace, "macs")
    assert derived(trace)["macs"].numbers is numbers and trace.taken == {}
    assert "flops" not in available(fx_debug(nn.ReLU(), torch.ones(1), graph=False)) and "flops" in MEASURES
