"""A run on disk: equal when it comes back, needing neither model nor torch, and never half-written."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from zoo import zoo
from zoo import zoo_sample
from safetensors.torch import load_file
from torch import nn

import fxdebug
from fxdebug import LoadError, SaveError, Trace, fx_debug

SUMMARY, FULL = "Small_debug_tree_SUMMARY.json", "Small_debug_tree_FULL_TENSORS.json"
SHARD = "tensors-0001.safetensors"
FILES = {
    "stats": ["trace.json", SUMMARY],
    "repr": ["trace.json", SUMMARY, FULL],
    "tensors": ["trace.json", SUMMARY, FULL, SHARD],
}


class Small(nn.Module):
    """Two inputs, a layer called twice, a container, several outputs of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.runs = 0

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        self.runs += 1
        hidden = self.layer(self.layer(x)) * scale
        return {"logits": self.block(hidden), "hidden": (hidden, None, "text", 1 + 2j, float("nan"))}


class Fails(Small):
    """Raises in the middle, in a module."""

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"no way with {tuple(x.shape)}")

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(), self.Broken())


def run(model: nn.Module, rows: int = 1, **options: Any) -> Trace:
    return fx_debug(model, torch.arange(4.0 * rows).view(rows, 4), {"scale": 0.5}, **options)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# There and back ----------------------------------------------------------------------------------

PLAIN = [entry for entry in zoo_sample.entries(False) if not entry[0].startswith(("hf/", "scale/", "modes/"))]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says what is in beta
@pytest.mark.parametrize("build", [build for _, build in PLAIN], ids=[name for name, _ in PLAIN])
def test_a_loaded_run_is_equal_to_the_run(build: Any, tmp_path: Path) -> None:
    model, inputs = build()
    trace = fx_debug(model, inputs)
    assert fxdebug.load(trace.save(tmp_path / "run")) == trace
    assert str(fxdebug.load(tmp_path / "run")) == str(trace)


@pytest.mark.parametrize("values", FILES)
def test_saving_later_writes_the_files_that_saving_at_once_writes(values: str, tmp_path: Path) -> None:
    trace = run(Small(), values=values, save=tmp_path / "at once")
    assert names(tmp_path / "at once") == sorted(FILES[values])
    trace.save(tmp_path / "later")
    assert contents(tmp_path / "later") == contents(tmp_path / "at once")
    assert fxdebug.load(tmp_path / "later") == fxdebug.load(tmp_path / "at once") == trace


def test_saving_a_loaded_run_writes_the_files_again(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path / "first")
    again = fxdebug.load(fxdebug.load(tmp_path / "first").save(tmp_path / "second"))
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    assert again == trace
    assert all(torch.equal(again.tensor(value), trace.tensor(value)) for value in trace.values if value.saved)


@pytest.mark.parametrize("again", [lambda trace: pickle.loads(pickle.dumps(trace)), copy.deepcopy, copy.copy])
def test_a_trace_can_be_pickled_and_copied_without_its_live_objects(again: Any, tmp_path: Path) -> None:
    model: nn.Module = nn.Linear(4, 4)
    for _ in range(60):
        model = nn.Sequential(model)
    for trace in (fx_debug(model, torch.ones(1, 4)), fx_debug(model, torch.ones(1, 4), values="repr")):
        other = again(trace)
        assert other == trace and str(other) == str(trace)
        assert [call.parent and call.parent.id for call in other.calls] == [None, *[c.id for c in trace.calls[:-1]]]
        assert all(call.parent is None or call.parent in other.calls for call in other.calls)
        assert [call.status for call in other.calls] == ["verified"] * 61
        with pytest.raises(fxdebug.UsageError, match="holds no output"):
            _ = other.output
        assert torch.equal(trace.calls[-1].fx(torch.ones(1, 4)), trace.output)  # the original has kept all of it
    saved = fx_debug(model, torch.ones(1, 4), values="tensors", save=tmp_path)
    assert torch.equal(again(saved).tensor(saved.root.outputs[0]), saved.output)


def test_what_differs_in_two_runs_makes_them_unequal() -> None:
    one, two = run(Small()), run(Small(), rows=2)
    assert one == one
    assert one != two
    assert one != "a trace"


WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "safetensors", "transformers"}:
            raise ImportError(f"{name} is not to be imported here")

sys.meta_path.insert(0, Blocked())
import fxdebug

trace = fxdebug.load(sys.argv[1])
print(trace)
print(len(trace.graph), [call.id for call in trace.find(type="Linear")], len(trace._repr_html_()))
trace.export(sys.argv[2] + ".html")
trace.export(sys.argv[2] + ".graphml")
print(fxdebug.load(trace.save(sys.argv[2])) == trace)
"""


def test_a_run_is_loaded_shown_asked_and_saved_without_torch_and_without_the_model(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path / "run")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "run"), str(tmp_path / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found = [call.id for call in trace.find(type="Linear")]
    assert done.stdout == f"{trace}\n{len(trace.graph)} {found} {len(trace._repr_html_())}\nTrue\n"
    assert contents(tmp_path / "copy") == contents(tmp_path / "run")


# Tensors -----------------------------------------------------------------------------------------


def test_every_tensor_can_be_had_back_from_memory_from_the_folder_and_after_loading(tmp_path: Path) -> None:
    model = Small()
    kept = run(model, values="tensors")
    saved = run(model, values="tensors", save=tmp_path)
    loaded = fxdebug.load(tmp_path)
    for trace in (kept, saved, loaded):
        logits, hidden = trace.root.outputs["logits"], trace.root.outputs["hidden[0]"]
        assert torch.equal(trace.tensor(logits), saved.output["logits"])
        assert torch.equal(trace.tensor(hidden), saved.output["hidden"][0])
        at_calls = [value for call in trace.calls for value in (*call.inputs, *(call.outputs or ()))]
        assert [trace.tensor(value).shape for value in at_calls] == [value.shape for value in at_calls]


def test_a_value_inside_vmap_comes_back_with_the_batch_that_it_is_part_of(tmp_path: Path) -> None:
    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(self.inner)(x)

    x = torch.randn(3, 4)
    trace = fxdebug.fx_debug(Rows(), x, values="tensors", save=tmp_path)
    given, returned = trace.calls[1].inputs[0], trace.calls[1].outputs[0]
    assert given.shape == (4,)
    for run in (trace, fxdebug.load(tmp_path)):
        assert torch.equal(run.tensor(given), x)
        assert torch.equal(run.tensor(returned), x.tanh())


def test_equal_data_is_written_once_and_any_safetensors_reader_reads_it(tmp_path: Path) -> None:
    class Repeats(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x.clone() for _ in range(10)] + [x.clone().to(torch.float64), x.clone().view(2, -1)]

    x = torch.arange(8.0)
    trace = fx_debug(nn.Sequential(Repeats()), x, values="tensors", save=tmp_path)
    places = [value.saved for value in trace.root.outputs]
    assert len(set(places)) == 3 and len(set(places[:10])) == 1 and places[0] == trace.root.inputs[0].saved
    stored = load_file(tmp_path / SHARD)
    assert all(torch.equal(stored[value.saved.partition("#")[2]], trace.tensor(value)) for value in trace.root.outputs)


class Many(nn.Module):
    """Returns tensors of 64 KiB, all different."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        made = []
        for number in range(32):
            x = self.step(x, number)
            made.append(x)
        return made

    def __init__(self) -> None:
        super().__init__()
        self.step = _Adds()


class _Adds(nn.Module):
    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x + number + 1


def test_no_more_than_the_budget_waits_to_be_written_however_slow_the_disk(tmp_path: Path) -> None:
    from fxdebug.store import tensors, writer

    budget, waiting, written = 4 << 16, [], []
    keep, write = tensors.Shards.keep, writer._write

    def watched(self: Any, value: Any, body: Any) -> None:
        keep(self, value, body)
        waiting.append(self._batched + self._writer._waiting)

    def slow(file: Any, data: Any) -> None:
        written.append(len(data))
        time.sleep(0.002)
        write(file, data)

    x = torch.zeros(1 << 14)
    with mock.patch.object(tensors.Shards, "keep", watched), mock.patch.object(writer, "_write", slow):
        trace = fx_debug(Many(), x, values="tensors", save=tmp_path, budget=budget)
    assert len(waiting) >= 33 and budget // 2 < max(waiting) <= budget
    assert [size for size in written if size == x.nbytes] == [x.nbytes] * 33
    for value, tensor in zip(trace.root.outputs, trace.output):
        assert torch.equal(fxdebug.load(tmp_path).tensor(value), tensor)


def test_tensors_that_are_written_while_the_model_runs_change_no_graph(tmp_path: Path) -> None:
    x = torch.zeros(1 << 14)
    saved = fx_debug(Many(), x, values="tensors", save=tmp_path, budget=4 << 16)
    assert [call.status for call in saved.calls] == [call.status for call in fx_debug(Many(), x).calls]
    assert {call.status for call in saved.calls} == {"verified"}


def test_text_that_went_to_disk_while_the_model_ran_is_the_text_that_stayed_in_memory(tmp_path: Path) -> None:
    model = Small()
    run(model, rows=400, values="repr", save=tmp_path / "memory")
    with mock.patch("fxdebug.store.kept.SPOOLED", 1):
        run(model, rows=400, values="repr", save=tmp_path / "disk")
    texts = [(tmp_path / place / "Small_debug_tree_FULL_TENSORS.json").read_text() for place in ("memory", "disk")]
    assert texts[0] == texts[1] and "..." in texts[0]


@pytest.mark.parametrize("kind", ["links", "no links"])
def test_values_with_several_names_replace_the_files_of_an_earlier_process(kind: str, tmp_path: Path) -> None:
    def written(x: torch.Tensor) -> dict[str, bytes]:
        model = nn.Sequential(nn.Identity(), nn.Identity())
        with fxdebug.model_addition_debugger_context(model, str(tmp_path), use_repr=False):
            model(x)
        return contents(tmp_path)

    def refused(source: str, name: str) -> None:
        raise OSError(1, "Operation not permitted")

    first = written(torch.zeros(3))
    with mock.patch("fxdebug.store.folder._published", {}), contextlib.ExitStack() as stack:
        if kind == "no links":
            stack.enter_context(mock.patch("os.link", refused))
        second = written(torch.ones(3))
    assert sorted(second) == sorted(first)
    tensors = [name for name in first if name.endswith(".safetensors")]
    assert len(tensors) == 5
    for name in tensors:
        assert load_file(tmp_path / name)["data"].tolist() == [1.0] * 3
    assert {(tmp_path / name).stat().st_nlink for name in tensors} == {5 if kind == "links" else 1}


def test_a_budget_smaller_than_a_tensor_still_saves_it(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path, budget=1)
    assert torch.equal(trace.tensor(trace.root.outputs["logits"]), trace.output["logits"])


def test_a_value_inside_a_body_is_not_kept_and_says_so(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors")
    inside = next(value for value in trace.values if value.saved is None)
    with pytest.raises(LoadError, match="only what goes into and comes out of module calls is kept"):
        trace.tensor(inside)


def test_a_tensor_that_was_not_kept_says_how_to_keep_it(tmp_path: Path) -> None:
    for trace in (run(Small()), fxdebug.load(run(Small()).save(tmp_path))):
        with pytest.raises(LoadError, match=r"was not kept: run with values='tensors'"):
            trace.tensor(trace.values[0])


# Several runs in one folder ----------------------------------------------------------------------


def test_a_later_run_of_the_same_model_replaces_the_earlier_one(tmp_path: Path) -> None:
    model = Small()
    for rows in (1, 2, 3):
        trace = run(model, rows, values="tensors", save=tmp_path)
    assert fxdebug.load(tmp_path) == trace
    assert len(names(tmp_path)) == len(FILES["tensors"])


def test_runs_of_other_models_in_one_folder_get_numbers_and_stay_whole(tmp_path: Path) -> None:
    models = [Small(), Small(), Small()]
    traces = [run(model, rows, values="tensors", save=tmp_path) for rows, model in enumerate(models, 1)]
    for file, trace in zip(("trace.1.json", "trace.2.json", "trace.json"), traces):
        loaded = fxdebug.load(tmp_path / file)
        assert [call.inputs for call in loaded.calls] == [call.inputs for call in trace.calls]
        assert torch.equal(loaded.tensor(loaded.root.outputs["logits"]), trace.output["logits"])
    summaries = [name for name in names(tmp_path) if "SUMMARY" in name]
    assert summaries == [f"{SUMMARY[:-5]}{number}.json" for number in (".1", ".2", "")]


@pytest.mark.parametrize("use_repr", [True, False])
def test_each_forward_in_the_drop_ins_block_has_its_files_and_the_last_has_the_names(
    use_repr: bool, tmp_path: Path
) -> None:
    model = Small()
    with fxdebug.model_addition_debugger_context(model, str(tmp_path), use_repr=use_repr):
        for rows in (1, 2, 3):
            model(torch.ones(rows, 4))
    for rows, number in enumerate((".1", ".2", ""), 1):
        for name in (SUMMARY, FULL):
            tree = json.loads((tmp_path / f"{name[:-5]}{number}.json").read_text())
            assert tree["inputs"]["args"][0]["shape"] == f"torch.Size([{rows}, 4])"
        if not use_repr:
            stored = load_file(tmp_path / tree["inputs"]["args"][0]["value"])
            assert torch.equal(stored["data"], torch.ones(rows, 4))


# Errors ------------------------------------------------------------------------------------------

UNWRITABLE = {
    "a file": lambda folder: (folder / "file").write_text("mine") and folder / "file",
    "below a file": lambda folder: (folder / "file").write_text("mine") and folder / "file" / "run",
    "a place that takes no folders": lambda folder: Path("/proc/run"),
    **({} if os.geteuid() == 0 else {"a folder without permission": lambda folder: _without_permission(folder)}),
}


def _without_permission(folder: Path) -> Path:
    (folder / "locked").mkdir(mode=0o500)
    return folder / "locked" / "run"


@pytest.mark.parametrize("place", UNWRITABLE)
def test_a_place_that_cannot_be_written_to_is_told_before_the_model_runs(place: str, tmp_path: Path) -> None:
    model, target = Small(), UNWRITABLE[place](tmp_path)
    with pytest.raises(SaveError) as raised:
        run(model, save=target)
    assert str(raised.value).startswith(f"cannot save to {target}: ")
    with pytest.raises(SaveError), fxdebug.model_addition_debugger_context(model, str(target)):
        model(torch.ones(1, 4))
    assert model.runs == 0
    trace = run(model)
    with pytest.raises(SaveError) as raised:
        trace.save(target)
    assert str(raised.value).startswith(f"cannot save to {target}: ")
    assert {path.read_text() for path in tmp_path.glob("file")} <= {"mine"}


FULL_DISK = """
import resource, signal, sys, torch, fxdebug
from torch import nn

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model, x = nn.Sequential(nn.Linear(64, 64), *[nn.Tanh() for _ in range(20)]), torch.ones(1, 64)
fxdebug.fx_debug(model, x, save=sys.argv[1], values=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # from now on no file grows beyond 8 KiB
try:
    fxdebug.fx_debug(model, torch.ones(4096, 64), save=sys.argv[1], values=sys.argv[2])
except fxdebug.SaveError as error:
    print(error.trace.root.outputs[0].shape, str(error))
"""


@pytest.mark.parametrize("values", ["tensors", "repr"])
def test_a_disk_that_is_full_in_mid_run_leaves_the_earlier_run_and_nothing_else(values: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", FULL_DISK, str(folder), values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("(4096, 64) ") and str(folder) in done.stdout
    assert fxdebug.load(folder).root.inputs[0].shape == (1, 64)
    assert [name for name in names(folder) if name.startswith(".")] == []


def test_a_model_that_raises_leaves_its_partial_run_with_the_failing_call_marked(tmp_path: Path) -> None:
    model = Fails()
    with pytest.raises(ValueError, match=r"no way with \(1, 4\)") as raised:
        run(model, save=tmp_path, values="tensors")
    assert type(raised.value) is ValueError
    trace = fxdebug.load(tmp_path)
    assert trace == fxdebug.last_failed()
    marks = {call.id: call.error and (call.error.type, call.error.here) for call in trace.calls}
    assert marks == {
        "#0": ("ValueError", False),
        "layer#0": None,
        "layer#1": None,
        "block#0": ("ValueError", False),
        "block.0#0": None,
        "block.1#0": ("ValueError", True),
    }
    assert trace.find("block.1")[0].error.message == "no way with (1, 4)"
    assert "raise ValueError" in trace.find("block.1")[0].error.traceback
    assert torch.equal(trace.tensor(trace.find("layer")[0].outputs[0]), model.layer(torch.arange(4.0).view(1, 4)))
    with pytest.raises(fxdebug.UsageError, match="the model raised"):
        _ = trace.output


# What is no run of ours --------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run(Small(), values="tensors", save=tmp_path / "run")
    return tmp_path / "run"


def test_a_trace_that_is_cut_short_is_an_error_wherever_it_is_cut(saved: Path) -> None:
    whole = (saved / "trace.json").read_bytes().rstrip()
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        (saved / "trace.json").write_bytes(whole[:length])
        with pytest.raises(LoadError, match=r"trace\.json"):
            fxdebug.load(saved)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x95\xff", "it is not text"),
        (b"[1, 2]", 'it has no "format": "fxdebug-trace"'),
        (b'{"format": "another"}', 'it has no "format": "fxdebug-trace"'),
        (b'{"format": "fxdebug-trace", "version": 999}', "has format version 999"),
        (b'{"format": "fxdebug-trace", "version": 1}', "is damaged: KeyError"),
        (b"import os", "is not a trace"),
    ],
)
def test_a_file_that_is_not_ours_or_newer_says_so(saved: Path, content: bytes, told: str) -> None:
    (saved / "trace.json").write_bytes(content)
    with pytest.raises(LoadError) as raised:
        fxdebug.load(saved)
    assert str(saved / "trace.json") in str(raised.value) and told in str(raised.value)


def test_a_field_of_the_wrong_kind_is_damage_and_not_a_strange_trace(saved: Path) -> None:
    content = json.loads((saved / "trace.json").read_text())
    for table in ("calls", "values", "parameters"):
        broken = json.loads(json.dumps(content))
        broken[table]["rows"][0] = broken[table]["rows"][0][:-1]
        (saved / "trace.json").write_text(json.dumps(broken))
        with pytest.raises(LoadError, match=f"a row of {table} has"):
            fxdebug.load(saved)
    broken = json.loads(json.dumps(content))
    broken["calls"]["rows"][-1][broken["calls"]["columns"].index("parent_index")] = 10_000
    (saved / "trace.json").write_text(json.dumps(broken))
    with pytest.raises(LoadError, match="damaged"):
        fxdebug.load(saved)


def test_a_folder_without_a_run_and_a_path_that_does_not_exist_say_so(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"holds no trace\.json: it is not a run saved by fxdebug"):
        fxdebug.load(tmp_path)
    with pytest.raises(LoadError, match="nothing here does not exist"):
        fxdebug.load(tmp_path / "nothing here")


def test_tensors_that_are_missing_damaged_or_of_another_run_say_so(saved: Path, tmp_path: Path) -> None:
    trace = fxdebug.load(saved)
    value, shard = trace.values[0], saved / SHARD
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=rf"{SHARD} is damaged"):
        trace.tensor(value)
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # one bit, which no format notices
    with pytest.raises(LoadError, match=rf"{SHARD} is damaged: v\d+ is not what was saved"):
        for each in trace.values:
            if each.saved is not None:
                trace.tensor(each)
    torch_file = fx_debug(nn.Identity(), torch.ones(1), values="tensors", save=tmp_path / "other").folder / SHARD
    shard.write_bytes(torch_file.read_bytes())
    with pytest.raises(LoadError, match="belongs to another run"):
        trace.tensor(trace.values[-1])
    shard.unlink()
    with pytest.raises(LoadError, match=rf"{SHARD} is missing"):
        trace.tensor(value)


def test_a_name_that_tries_to_leave_the_folder_is_not_followed(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes((saved / SHARD).read_bytes())
    text = (saved / "trace.json").read_text()
    assert f'"{SHARD}#' in text
    (saved / "trace.json").write_text(text.replace(f'"{SHARD}#', '"../secret.safetensors#'))
    with pytest.raises(LoadError, match=r"secret\.safetensors#v0' is not where a value can lie"):
        fxdebug.load(saved)


def test_the_zoo_has_what_these_tests_take_from_it() -> None:
    assert len(PLAIN) > 100 and len(list(zoo.zoo())) > len(PLAIN)
