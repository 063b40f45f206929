"""The commands ``export`` and ``open``: runs as files of other programs, and these programs started on them."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fxdebug import api
from fxdebug.api.commands.parts import OK, chosen_model, load_run
from fxdebug.apps.cli.commands import compared
from fxdebug.errors import RankNeeded, UsageError
from fxdebug.plugins.features import folder_kind


def export(options: argparse.Namespace) -> int:
    """Write a run, two runs compared, a training or a report for another program; a model is run once first."""
    if options.output is None:
        raise UsageError("name what to write: -o FILE, or -o FOLDER --to NAME")
    chosen, path = chosen_options(options.option), Path(options.output)
    if options.other is not None:
        compared(options, options.target, options.other).export(path, options.to, **chosen)
    elif _kind(options) == "model" and (options.to or path.suffix.lower()).lstrip(".") == "onnx":
        model, inputs = chosen_model(options)
        print(api.export_onnx(model, path, inputs, **chosen).text())
    else:
        _write(options, path, options.to, chosen)
    print(f"wrote {options.output}")
    return OK


def open(options: argparse.Namespace) -> int:
    """Start a program on a run, or on a file that was exported for it, and wait until it is interrupted."""
    if options.program is None:
        raise UsageError(f"name the program: {' or '.join(f'--{name}' for name in api.VIEWERS)}")
    viewer = api.VIEWERS[options.program]
    with tempfile.TemporaryDirectory(prefix="fxdebug-") as folder:
        path = Path(options.target or "")
        if options.target is None or not viewer.accepts(path):
            path = Path(folder) / f"run{viewer.suffix}"
            _write(options, path, viewer.form, chosen_options(options.option))
        try:
            arguments = api.viewer_command(viewer, path, options.port, browse=not options.no_browser)
            return subprocess.run(arguments, check=False).returncode
        except KeyboardInterrupt:
            return OK


def _kind(options: argparse.Namespace) -> str:
    """Return what is to be written: a model, a run, a report, or a folder of a feature, such as a training."""
    path = Path(options.target or "")
    if options.target is None or not path.exists():
        return "model" if options.hf is not None or ":" in (options.target or "") else "trace"
    if path.is_dir():
        return "trace" if folder_kind(path) is None else "folder"
    return "report" if path.suffix == ".json" else "trace"


def _write(options: argparse.Namespace, path: Path, to: str | None, chosen: dict[str, Any]) -> None:
    kind = _kind(options)
    if kind == "folder":
        api.export_training(options.target, path, to, rank=options.rank, **chosen)
    elif kind == "report":
        api.Report.load(options.target).export(path, to, **chosen)
    elif kind == "model":
        import torch

        model, inputs = chosen_model(options)
        with torch.no_grad():
            api.fx_debug(model, inputs).export(path, to, **chosen)
    elif options.target is None:
        raise UsageError("nothing to write: give the folder of a run, FILE.py:function, or --hf with a folder or name")
    else:
        _write_run(options, path, to, chosen)


def _write_run(options: argparse.Namespace, path: Path, to: str | None, chosen: dict[str, Any]) -> None:
    """Write a run; of a distributed one all ranks, where the form shows several and none was chosen."""
    try:
        run = api.load(options.target, rank=options.rank)
    except RankNeeded as error:
        if api.shows_ranks(path, to):
            api.export_ranks(error.folder, path, to, **chosen)
            return
        run = load_run(options.target, options)
    run.export(path, to, **chosen)


def chosen_options(options: Sequence[str]) -> dict[str, Any]:
    """Return the options of an exporter, given as NAME=VALUE; numbers, true, false, null and lists as in JSON."""
    wrong = next((text for text in options if "=" not in text), None)
    if wrong is not None:
        raise UsageError(f"--option {wrong}: give NAME=VALUE, such as depth=2")
    return {name.strip().replace("-", "_"): _value(text) for name, _, text in (one.partition("=") for one in options)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
