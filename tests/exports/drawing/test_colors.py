"""The colours of nodes: by status, by a statistic, red from where NaN began."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.drawn import dot, fills, svg, texts
from support.trees import linear, ones


def test_nodes_are_coloured_by_status_or_by_a_statistic(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        trace = fx_debug(nn.Sequential(nn.Linear(8, 8), layer), torch.ones(1, 3, 8))
    text = dot(trace, tmp_path)
    assert fills(text) | {"input": "", "output": ""} == {"input": "", "0": "#dff0e1", "1": "#d5d6de", "output": ""}
    assert "opaque: nothing inside can be seen" in text and "recorded:" not in text
    by_number = dot(trace, tmp_path, color="absmax")
    assert fills(by_number)["0"] != fills(by_number)["1"]
    assert "absmax from " in by_number and "opaque: nothing" not in by_number
    assert set(fills(dot(trace, tmp_path, color="none")).values()) == {"#ffffff"}


def test_a_statistic_that_colours_is_written_too_and_token_ids_take_no_part(tmp_path):
    trace = fx_debug(nn.Sequential(nn.Embedding(1000, 2), nn.Linear(2, 2)), torch.tensor([[999, 5]]))
    loudest = max(call.outputs[0].stats.absmax for call in trace.calls)
    text = dot(trace, tmp_path, color="absmax")
    assert text.count("<BR/>absmax ") == 2
    assert f"to {loudest:.3g}</FONT>" in text
    assert "<BR/>std " not in dot(trace, tmp_path, color="std")  # it stands behind the ± already


def test_a_call_that_raised_is_red_and_named(tmp_path):
    with pytest.raises(RuntimeError):
        fx_debug(nn.Sequential(linear(), nn.Linear(3, 3)), ones())
    trace = fxdebug.last_failed()
    assert (
        texts(svg(trace, tmp_path, layout="dot")).count("raised RuntimeError") == 2
    )  # the box of the model, and the call
    assert fills(dot(trace, tmp_path)) == {"input": "#ffffff", "0": "#dff0e1", "1": "#f7c6c5"}
