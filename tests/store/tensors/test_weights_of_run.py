"""Weights that a saved run with tensors keeps, and those that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.store.tensors import weights_of_run


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.embed(ids)))  # type: ignore[no-any-return]


IDS = torch.tensor([1, 4, 7])


def run(folder: Path | None, **options: Any) -> tuple[nn.Module, fxdebug.Trace]:
    torch.manual_seed(0)
    model = Tied().train(options.pop("training", False))
    return model, fxdebug.fx_debug(model, IDS, save=folder, **({"values": "tensors"} | options))


def kept(trace: fxdebug.Trace) -> dict[str, Tensor]:
    return {str(value.name): trace.tensor(value) for value in trace.values if value.name and value.saved}


def test_a_saved_run_with_tensors_has_the_weights_that_it_read_each_once(tmp_path: Path) -> None:
    model, live = run(tmp_path)
    read = kept(fxdebug.load(tmp_path))
    assert sorted(read) == ["embed.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.weight"]
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in read.items())
    places = {value.saved for value in live.values if value.name == "embed.weight"}
    assert len(places) == 1 and fxdebug.load(tmp_path) == live


@pytest.mark.parametrize("options", [{"weights": False}, {"values": "stats"}, {"values": "samples"}])
def test_a_run_without_tensors_or_weights_has_none(options: dict[str, Any], tmp_path: Path) -> None:
    assert kept(run(tmp_path, **options)[1]) == {}


def test_a_run_that_is_not_saved_has_its_model(tmp_path: Path) -> None:
    assert kept(run(None)[1]) == {}


def test_a_weight_that_the_run_changed_is_not_kept(tmp_path: Path) -> None:
    assert sorted(kept(run(tmp_path, training=True)[1])) == ["embed.weight", "norm.bias", "norm.weight"]


def test_each_forward_of_a_training_is_saved_without_the_weights(tmp_path: Path) -> None:
    model = Tied().eval()
    with fxdebug.trace_forwards(model, save=tmp_path / "run", values="tensors") as traces:
        model(IDS)
    assert kept(traces[0]) == {}


def test_of_many_bytes_only_digests_are_kept_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxdebug.api.run_store.MOST_BYTES", 100)
    assert weights_of_run.MOST_BYTES == 2 << 30
    _, live = run(tmp_path / "large")
    assert kept(live) == {} and all(value.digest for value in live.values if value.name)
    assert [note.what for note in fxdebug.load(tmp_path / "large").notes if "weights" in note.what] == [
        "the weights (0.0 GB) were not saved: compare takes them as weights_a or weights_b"
    ]
    monkeypatch.undo()
    _, whole = run(tmp_path / "whole")
    assert {v.name: v.digest for v in whole.values if v.name} == {v.name: v.digest for v in live.values if v.name}


def test_a_saved_run_copied_elsewhere_keeps_its_weights(tmp_path: Path) -> None:
    _, live = run(tmp_path / "one")
    live.save(tmp_path / "two")
    assert kept(fxdebug.load(tmp_path / "two")).keys() == kept(live).keys() != set()


def test_saved_runs_write_a_script_with_their_weights(tmp_path: Path) -> None:
    for name, eps in (("a", 1e-5), ("b", 0.1)):
        torch.manual_seed(0)
        with torch.no_grad():
            model = nn.Sequential(nn.LayerNorm(4, eps=eps))
            fxdebug.fx_debug(model, torch.arange(8.0).view(2, 4), values="tensors", save=tmp_path / name)
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b").first
    assert found is not None and "eps=0.1)" in found.repro(tmp_path / "repro").read_text()
