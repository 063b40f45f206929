"""``export_onnx``: a model as an ONNX file that runs, checked against the model itself."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, fx_debug
from fxdebug.capture.probe import deep_copy, state_restored
from fxdebug.data.calls import Note
from fxdebug.data.findings import ERROR, WARNING, Finding
from fxdebug.data.report import Column
from fxdebug.errors import UsageError, with_article
from fxdebug.features.onnx.model import CheckedOutput, export_model

COLUMNS = (
    Column("output", "output"),
    Column("shape", "shape"),
    Column("dtype", "dtype"),
    Column("error", "max |Δ|", about="largest difference between onnxruntime and the model"),
    Column("relative", "relative", about="that over the largest magnitude of the model's output"),
    Column("reason", "", about="why it was not compared", shown=False),
)


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: bool = True,
    external_data: bool = False,
    tolerance: float = 1e-4,
) -> Report[CheckedOutput]:
    """Write a model as ONNX, and report how far its outputs in onnxruntime are from the model's own.

    The model runs once, traced; torch's exporter then traces it again. Sizes of the inputs that are free are open
    (``dynamic``): model and file run at other sizes, and where they do not agree, or the model does not run, the size
    stays fixed and a note says why. Nodes carry the path of their module, the call of the run and the
    statistics of what it returned. ``external_data`` writes the weights to ``path`` + ``.data``; above 2 GB they are
    there in any case. A difference of more than ``tolerance``, relative to the largest magnitude of the output, is an
    error in the findings. Flags, hooks, weights, buffers and random state of the model stay as they are.

    Raises ``UsageError`` for a model in training mode and for what is no path, ``SaveError`` where torch cannot export
    it, ``MissingExtra`` without ``fxdebug[onnx]``.
    """
    if not isinstance(path, (str, os.PathLike)):
        got = with_article(type(path).__name__)
        raise UsageError(f"the path of the file comes second, not {got}: call it as export_onnx(model, path, inputs)")
    args, keywords = arguments(inputs, kwargs)
    with torch.no_grad(), state_restored(model):
        run = fx_debug(model, *deep_copy((args, keywords)), graph=False)
    done = export_model(
        model, args, keywords, run, Path(path), dynamic=dynamic, external_data=external_data, tolerance=tolerance
    )
    return Report(
        analysis="export_onnx",
        subject=run.model,
        columns=COLUMNS,
        rows=done.outputs,
        totals={
            "nodes": (done.nodes, ""),
            "nodes joined with a call": (done.joined, ""),
            "size": (done.bytes, "B"),
            "inputs": ("; ".join(done.inputs), ""),
        },
        findings=tuple(finding for one in done.outputs if (finding := _finding(one, tolerance)) is not None),
        notes=(
            *[Note(f"{one.output} was not compared: {one.reason}") for one in done.outputs if one.reason],
            *[Note(text) for text in done.fixed],
        ),
        settings={"dynamic": dynamic, "tolerance": tolerance},
        ranked=False,
        folds=False,
    )


def _finding(one: CheckedOutput, tolerance: float) -> Finding | None:
    if one.relative is not None and one.relative <= tolerance:
        return None
    if one.relative is None:
        what = f"{one.output} was not compared: {one.reason}"
    elif one.error is None or not math.isfinite(one.error) or not math.isfinite(one.relative):
        what = f"{one.output} has NaN or infinities at other places than the model's"
    else:
        what = f"{one.output} differs by {one.error:.3g} from the model's, {one.relative:.1e} of its largest magnitude"
    return Finding(
        rule="exported model differs",
        severity=WARNING if one.relative is None else ERROR,
        path="",
        call="#0",
        op="",
        what=what,
        measured=one.relative,
        threshold=tolerance,
    )
