"""What commands print to a pipe of Windows, whose encoding lacks most of our characters."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.apps.cli import main
from fxdebug.narrow_output import write_what_it_can


def printed(text: str, encoding: str, *, as_json: bool = False) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    write_what_it_can(stream, as_json=as_json)
    stream.write(text)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_signs_stand_for_characters_that_an_encoding_lacks() -> None:
    text = "├ 0 Linear 8×32 · −1 … 層 😀"
    assert printed(text, "utf-8") == text
    assert printed(text, "cp1252") == "+ 0 Linear 8×32 · -1 … \\u5c64 \\U0001f600"
    assert printed(text, "ascii") == "+ 0 Linear 8x32 - -1 ... \\u5c64 \\U0001f600"


def test_json_reads_back_as_it_was() -> None:
    data = {"name": "層 × − 😀", "path": "a…b"}
    for encoding in ("utf-8", "cp1252", "ascii"):
        assert json.loads(printed(json.dumps(data, ensure_ascii=False), encoding, as_json=True)) == data


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_command_prints_into_such_a_pipe(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential()
    model.add_module("層", nn.Linear(2, 2))
    fx_debug(model, torch.tensor([[torch.nan, 1.0]]), save=tmp_path / "run")
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(raw, encoding="cp1252")
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", pipe)
        patched.setattr("sys.argv", ["fxdebug", "find", str(tmp_path / "run"), "層", *more])
        main.main()
    pipe.flush()
    text = raw.getvalue().decode("cp1252")
    assert "層" in json.dumps(json.loads(text), ensure_ascii=False) if more else "\\u5c64" in text


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_a_script_prints_runs_and_answers_into_such_a_pipe(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    trace = fx_debug(model, torch.tensor([[torch.nan, 1.0]]))
    answers = [trace, fxdebug.check(trace), fxdebug.compare(trace, trace), fxdebug.flops(trace), fxdebug.weights(model)]
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(raw, encoding=encoding)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", pipe)
        for answer in answers:
            print(answer, flush=True)
    text = raw.getvalue().decode(encoding)
    assert ("├ 0 Linear" if encoding == "utf-8" else "+ 0 Linear") in text
    assert text.count("\\u") == 0
