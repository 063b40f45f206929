"""Which tensors are kept, where, and how they come back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import LoadError, SaveError
from support.stored import SHARD, Small, run


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
    for one in (trace, fxdebug.load(tmp_path)):
        assert torch.equal(one.tensor(given), x)
        assert torch.equal(one.tensor(returned), x.tanh())


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
    from fxdebug.store.tensors import safetensors_file, shards

    budget, waiting, written = 4 << 16, [], []
    add, write = shards.ShardWriter.add, safetensors_file._write

    def watched(self: Any, value: Any, body: Any) -> None:
        add(self, value, body)
        waiting.append(self._batch_bytes + self._thread._waiting)

    def slow(file: Any, data: Any) -> None:
        written.append(len(data))
        time.sleep(0.002)
        write(file, data)

    x = torch.zeros(1 << 14)
    with mock.patch.object(shards.ShardWriter, "add", watched), mock.patch.object(safetensors_file, "_write", slow):
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
    with mock.patch("fxdebug.store.tensors.live_data.TEXT_IN_MEMORY_BYTES", 1):
        run(model, rows=400, values="repr", save=tmp_path / "disk")
    texts = [(tmp_path / place / "Small_debug_tree_FULL_TENSORS.json").read_text() for place in ("memory", "disk")]
    assert texts[0] == texts[1] and "..." in texts[0]


def test_a_budget_smaller_than_a_tensor_still_saves_it(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path, budget=1)
    assert torch.equal(trace.tensor(trace.root.outputs["logits"]), trace.output["logits"])


class Large(nn.Module):
    """Returns tensors far larger than the budget, arranged in several ways."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = x * 2
        return {
            "contiguous": whole,
            "again": x * 2,
            "transposed": whole.t(),
            "a part": whole[1:, ::3],
            "complex": torch.complex(whole, x).conj(),
            "odd bytes": (whole > 1).flatten()[1:],
            "bfloat16": whole.bfloat16(),
            "expanded": whole[:, None].expand(-1, 3, -1),
            "one long row": whole.reshape(1, 1, -1),
            "small": whole[0, :3].clone(),
        }


def test_a_tensor_larger_than_the_budget_is_written_in_pieces_and_never_copied_whole(tmp_path: Path) -> None:
    from fxdebug.store.tensors import copy_buffers, encode

    copied, pieces = [], []
    copy, storable = copy_buffers.CopyBuffers.copy, encode._storable

    def watched(self: Any, tensor: torch.Tensor) -> torch.Tensor:
        copied.append(tensor.nbytes)
        return copy(self, tensor)

    def piece(tensor: torch.Tensor) -> torch.Tensor:
        pieces.append(tensor.nbytes)
        return storable(tensor)

    x, budget = torch.rand(301, 1001), 1 << 18
    with (
        mock.patch.object(copy_buffers.CopyBuffers, "copy", watched),
        mock.patch.object(encode, "_storable", piece),
    ):
        trace = fx_debug(Large(), x, values="tensors", save=tmp_path, budget=budget)
    assert max(copied) <= budget and max(pieces) <= budget and len(pieces) > 20
    loaded = fxdebug.load(tmp_path)
    for name, value in loaded.root.outputs.named():
        expected = trace.output[name.strip("[]'\"")]
        for source in (trace, loaded):
            assert torch.equal(source.tensor(value), expected), name
    outputs = dict(loaded.root.outputs.named())
    assert outputs["contiguous"].digest == outputs["again"].digest  # equal data lie in one place
    assert outputs["contiguous"].saved == outputs["again"].saved
    small = fx_debug(Large(), x, values="tensors", save=tmp_path / "whole")
    assert [value.digest for value in small.root.outputs] == [value.digest for value in loaded.root.outputs]


def test_a_full_disk_at_a_large_tensor_is_reported_when_the_run_is_over(tmp_path: Path) -> None:
    from fxdebug.store.tensors import safetensors_file

    def full(file: Any, *parts: Any) -> None:
        raise OSError(28, "No space left on device")

    x = torch.rand(301, 1001)
    with (
        mock.patch.object(safetensors_file, "_write", full),
        pytest.raises(SaveError, match="No space left"),
    ):
        fx_debug(Large(), x, values="tensors", save=tmp_path, budget=1 << 18)


def test_a_value_inside_a_body_is_not_kept_and_says_so(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors")
    inside = next(value for value in trace.values if value.saved is None)
    with pytest.raises(LoadError, match="only inputs and outputs of module calls are kept"):
        trace.tensor(inside)


def test_a_tensor_that_was_not_kept_says_how_to_keep_it(tmp_path: Path) -> None:
    for trace in (run(Small()), fxdebug.load(run(Small()).save(tmp_path))):
        with pytest.raises(LoadError, match=r"was not kept: run with values='tensors'"):
            trace.tensor(trace.values[0])
