"""``save(private=True)``: no path, no text of an object, no string argument, no text of an exception in any file."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.apps.cli.main import main
from fxdebug.store.private import PRIVATE
from support.stored import contents

SECRET = "hunter2"


class Account:
    def __repr__(self) -> str:
        return f"Account({SECRET!r})"


class Inner(nn.Module):
    def forward(self, x: torch.Tensor, prompt: str, user: Any) -> Any:
        y = nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")
        return {
            "out": torch.einsum("abij->ij", y),
            "said": prompt,
            f"to {SECRET} ann": x,
            "who": user,
            "raw": b"hunter2",
        }


class Outer(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.inner, self.fails = Inner(), fails

    def forward(self, x: torch.Tensor, prompt: str, user: Any) -> Any:
        result = self.inner(x, prompt=f"{prompt}!", user=[user, {SECRET + " key": 1}])
        if self.fails:
            raise ValueError(f"no such user: {SECRET}")
        return result


@pytest.mark.parametrize("values", ["stats", "repr", "tensors"])
@pytest.mark.parametrize("fails", [False, True])
def test_no_secret_and_no_folder_is_in_any_file(values: Any, fails: bool, tmp_path: Path) -> None:
    with contextlib.suppress(ValueError):
        fx_debug(Outer(fails), (torch.ones(2, 2), SECRET, Account()), values=values, save=tmp_path / "plain")
    trace = fxdebug.load(tmp_path / "plain")
    trace.save(tmp_path / "private", private=True)
    plain, private = (b"".join(contents(tmp_path / name).values()).decode("latin1") for name in ("plain", "private"))
    for text in (SECRET, str(Path(__file__).parent)):
        assert text in plain and text not in private
    assert "bilinear" in private and "abij->ij" in private  # words of torch's functions


def test_everything_else_is_kept_and_the_trace_says_what_is_missing(tmp_path: Path) -> None:
    trace = fx_debug(Outer(), (torch.ones(2, 2), SECRET, Account()), values="tensors", save=tmp_path / "plain")
    again = fxdebug.load(trace.save(tmp_path / "private", private=True))
    assert [note.what for note in again.notes] == [PRIVATE]
    assert [(call.id, call.status, len(call.graph or ())) for call in again.calls] == [
        (call.id, call.status, len(call.graph or ())) for call in trace.calls
    ]
    assert [value.stats for value in again.values] == [value.stats for value in trace.values]
    assert torch.equal(again.tensor(again.root.outputs["out"]), trace.output["out"])
    assert fxdebug.compare(trace, again).equal
    found = [[call.id for call in run.find(source="test_private.py")] for run in (again, trace)]
    assert found[0] == found[1] != []
    assert again.save(tmp_path / "again", private=True) and fxdebug.load(tmp_path / "again") == again


def test_the_command_saves_privately_also_what_raised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["import torch", "class Keys(torch.nn.Module):", "    def forward(self, x, key):"]
    lines += ["        if x.sum() > 5:", "            raise ValueError(key)", "        return x, key"]
    lines += ["def small():", f"    return Keys(), (torch.ones(2), {SECRET!r})"]
    lines += ["def large():", f"    return Keys(), (torch.ones(9), {SECRET!r})"]
    (tmp_path / "keys.py").write_text("\n".join(lines))
    main(["run", f"{tmp_path}/keys.py:small", "--save", str(tmp_path / "small"), "--private"])
    with pytest.raises(ValueError, match=SECRET):
        main(["run", f"{tmp_path}/keys.py:large", "--save", str(tmp_path / "large"), "--private"])
    for name in ("small", "large"):
        assert all(SECRET.encode() not in data for data in contents(tmp_path / name).values())
        assert PRIVATE in [note.what for note in fxdebug.load(tmp_path / name).notes]
    assert main(["run", f"{tmp_path}/keys.py:small", "--private"]) == 2
    assert "--private needs --save" in capsys.readouterr().err


def test_containers_of_any_depth_are_saved_as_private_and_as_golden(tmp_path: Path) -> None:
    trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2), save=tmp_path / "run")
    content = json.loads((tmp_path / "run" / "trace.json").read_text())
    place = content["calls"]["columns"].index("inputs")
    content["calls"]["rows"][0][place] = "here"
    for kind in ('"sequence":"list"', '"mapping":"dict","keys":["k"]', '"object":"O","text":null,"keys":["k"]'):
        deep = f'{{{kind},"items":[' * 3_000 + '{"value":0}' + "]}" * 3_000
        text = json.dumps(content).replace('"here"', f'[[{{"value":0}},{deep}],{{}}]')
        (tmp_path / "run" / "trace.json").write_text(text)
        trace = fxdebug.load(tmp_path / "run")
        assert fxdebug.load(trace.save(tmp_path / "private", private=True)).root.inputs[1].shape == (2,)
        assert fxdebug.load(fxdebug.save_golden(trace, tmp_path / "golden.json")).root.inputs[1].shape == (2,)
        assert repr(trace.root.inputs) and trace.text() and trace.describe("")


def test_keys_that_are_nested_too_deep_for_python_are_damage(tmp_path: Path) -> None:
    fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2), save=tmp_path)
    content = json.loads((tmp_path / "trace.json").read_text())
    key = '{"sequence":"tuple","items":[' * 1_000 + "1" + "]}" * 1_000
    content["calls"]["rows"][0][content["calls"]["columns"].index("inputs")] = "here"
    deep = f'[[{{"mapping":"dict","items":[1],"keys":[{key}]}}],{{}}]'
    (tmp_path / "trace.json").write_text(json.dumps(content).replace('"here"', deep))
    with pytest.raises(fxdebug.LoadError, match="has a key of containers more than 100 deep"):
        fxdebug.load(tmp_path)
