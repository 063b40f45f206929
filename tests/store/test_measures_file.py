"""``measures.json``: the measures of a saved run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import LoadError, UsageError, api, fx_debug

MODEL = nn.Sequential(nn.Linear(2, 3), nn.ReLU())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trace = fx_debug(MODEL, torch.ones(1, 2))
    return trace.with_measures(fxdebug.flops(trace)).save(tmp_path / "run")


def test_measures_are_the_same_after_saving_and_loading(folder: Path) -> None:
    trace = fxdebug.load(folder)
    assert list(trace.taken) == ["flops", "flops.self", "flops.backward"]
    assert trace.numbers("flops") == {"Sequential#0": 12, "0#0": 12, "1#0": 0, "0#0/linear": 12, "1#0/relu": 0}
    again = fxdebug.load(trace.save(folder.parent / "again", private=True))
    assert again.taken == trace.taken
    assert json.loads((folder / "measures.json").read_text())["measures"][1][:6] == [
        "flops.self", "FLOP", trace.measures["flops.self"].about, ["call", "operation"], True, True,
    ]  # fmt: skip


def test_a_run_without_measures_has_no_file(tmp_path: Path) -> None:
    fx_debug(MODEL, torch.ones(1, 2), save=tmp_path)
    assert not (tmp_path / "measures.json").exists() and fxdebug.load(tmp_path).taken == {}


def test_measures_are_attached_to_a_saved_run_and_replaced(folder: Path) -> None:
    trace = fxdebug.load(folder).with_measures(fxdebug.memory(MODEL, torch.ones(1, 2)))
    before = (folder / "trace.json").read_bytes()
    assert api.save_measures(trace) == folder / "measures.json" and (folder / "trace.json").read_bytes() == before
    assert fxdebug.load(folder) == trace and "memory.peak" in fxdebug.load(folder).taken
    with pytest.raises(UsageError, match=r"this run was not saved: write it with trace\.save\(folder\)"):
        api.save_measures(fx_debug(MODEL, torch.ones(1, 2)))


def test_a_later_run_in_the_folder_takes_the_measures_of_the_earlier_one_away(folder: Path) -> None:
    fx_debug(MODEL, torch.ones(1, 2), save=folder)
    assert not (folder / "measures.json").exists() and fxdebug.load(folder).notes == ()


def test_the_measures_of_another_models_run_keep_their_run(folder: Path) -> None:
    fx_debug(nn.ReLU(), torch.ones(1), save=folder)
    assert fxdebug.load(folder).taken == {}
    assert list(fxdebug.load(folder / "trace.1.json").taken) == ["flops", "flops.self", "flops.backward"]


def test_measures_of_another_run_are_left_out_with_a_note(folder: Path, tmp_path: Path) -> None:
    fx_debug(MODEL, torch.ones(1, 2), save=tmp_path / "other")
    (tmp_path / "other" / "measures.json").write_bytes((folder / "measures.json").read_bytes())
    trace = fxdebug.load(tmp_path / "other")
    assert trace.taken == {}
    assert trace.notes[-1].what == "measures.json has measures of another run, of Sequential: they were not read"


def _changed(content: dict[str, Any], keys: tuple[Any, ...], cell: Any) -> dict[str, Any]:
    inner: Any = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = cell
    return content


@pytest.mark.parametrize(
    ("keys", "cell", "message"),
    [
        (
            ("version",),
            2,
            "has format version 2, this fxdebug reads version 1: the file is newer than this fxdebug, upgrade",
        ),
        (("version",), True, "has format version true"),
        (("format",), "else", 'it has no "format": "fxdebug-measures"'),
        (("calls",), "3", "calls is '3', not an integer"),
        (("measures",), {}, "measures is an object of 0, not a list"),
        (("measures", 0), ["flops"], "measures.*a list of 8"),
        (("measures", 0, 1), "parsec", "unit is 'parsec', not one of"),
        (("measures", 0, 3), ["layer"], "of.*'layer', not one of 'call'"),
        (("measures", 0, 4), 1, "adds is 1, not true or false"),
        (("measures", 0, 6), {"0#0": "1"}, r"measures\[0\]\.numbers\['0#0'\] is '1', not an integer or a number"),
        (("measures", 0, 6), {"0#0": 1e301}, "not a number of usual size"),
        (("measures", 0, 0), "flops.self", "measures has a name twice"),
        (("measures", 0, 0), "a\x1b[31m", "in measures is no name: letters, digits, underscores, and dots"),
    ],
)
def test_a_damaged_file_is_a_load_error_that_names_the_place(
    folder: Path, keys: tuple[Any, ...], cell: Any, message: str
) -> None:
    path = folder / "measures.json"
    path.write_text(json.dumps(_changed(json.loads(path.read_text()), keys, cell)))
    with pytest.raises(LoadError, match=message) as raised:
        fxdebug.load(folder)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", '{"format": "fxdebug-measures", "version": 1}'])
def test_a_file_that_is_cut_short_is_a_load_error(folder: Path, text: str) -> None:
    (folder / "measures.json").write_text(text)
    with pytest.raises(LoadError, match=r"measures\.json"):
        fxdebug.load(folder)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    (folder / "measures.json").replace(outside)
    (folder / "measures.json").symlink_to(outside)
    with pytest.raises(LoadError, match="is a link out of its folder"):
        fxdebug.load(folder)
