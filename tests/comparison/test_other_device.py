"""Two runs of one model on two devices: a device is no constant, and the last digits of its kernels are no fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug


def moved_to_a_gpu(folder: Path, tf32: str) -> None:
    """Rewrite a saved run as a GPU writes it: another device everywhere, other last digits of what kernels return."""
    file = folder / "trace.json"
    run = json.loads(
        file.read_text(encoding="utf-8").replace('"cpu"', '"cuda:0"').replace("device=cpu", "device=cuda:0")
    )
    run["settings"]["tf32"] = tf32
    columns = run["values"]["columns"]
    number, name, stats = (columns.index(each) for each in ("number", "name", "stats"))
    for row in run["values"]["rows"]:
        if row[name] is None and row[number]:
            row[stats][1:6] = [digits * (1 + 1e-4) for digits in row[stats][1:6]]
    file.write_text(json.dumps(run), encoding="utf-8")


@pytest.mark.parametrize(
    "model, x, tf32, told",
    [
        (nn.LSTM(8, 8, batch_first=True), torch.randn(2, 3, 8), "cudnn", "cudnn"),
        (nn.LSTM(8, 8, batch_first=True), torch.randn(2, 3, 8), "cuda.matmul", ""),
        (nn.Linear(8, 8), torch.randn(2, 8), "cudnn cuda.matmul", "cuda.matmul"),
        (nn.Softmax(-1), torch.randn(2, 8), "", ""),
    ],
)
def test_a_difference_beyond_tolerance_is_told_with_both_devices_and_no_guess(
    tmp_path: Path, model: nn.Module, x: Any, tf32: str, told: str
) -> None:
    with torch.no_grad():
        fx_debug(model, x, save=tmp_path / "a")
        fx_debug(model, x, save=tmp_path / "b")
    moved_to_a_gpu(tmp_path / "b", tf32)
    if told:
        told = f" (with TF32, 10 bits: torch.backends.{told}.allow_tf32)"
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b")
    assert (found.first.kind, found.first.because) == ("values", f"computed on cpu in a, on cuda:0{told} in b")
    assert found.first.op == {nn.LSTM: "lstm", nn.Linear: "linear", nn.Softmax: "softmax"}[type(model)]
