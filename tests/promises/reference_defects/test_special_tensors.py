"""Tensors that transformers' debugger cannot write or writes wrong: empty, sparse, nested, quantised, views."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import model_addition_debugger_context as drop_in
from support.defects import BOTH, FILES, odd, outlines, state
from support.trees import Does, files, linear, ones, returns, saved, tensors, theirs, tree


def _two_ways(value: torch.Tensor, folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the drop-in, ``fx_debug`` and the reference have on disk of a tensor that a module returned."""
    model = Does(lambda self, x: self.emit(x), emit=returns(value))
    with drop_in(model, folder / "ours", use_repr=False):
        model(ones())
    (ours,) = tensors(folder / "ours", tree(folder / "ours")["children"][0]["outputs"])
    trace = saved(model, ones(), folder / "trace", values="tensors")
    with theirs(model, folder / "theirs", use_repr=False):
        model(ones())
    (reference,) = tensors(folder / "theirs", tree(folder / "theirs")["children"][0]["outputs"])
    return ours, trace.tensor(trace.find("emit")[0].outputs[0]), reference


def test_conjugate_view_saved_wrong(tmp_path: Path) -> None:
    """A lazily conjugated tensor, also a transposed or sliced one, is saved as what it is."""
    value = torch.tensor([[1 + 2j, 3 - 4j], [5j, -6j]]).conj()
    ours, traced, reference = _two_ways(value, tmp_path)
    assert torch.equal(ours, value) and torch.equal(traced, value) and not torch.equal(reference, value)
    for number, view in enumerate((value.t(), value[:, 1:], value.expand(3, 2, 2))):
        ours, traced, _ = _two_ways(view, tmp_path / str(number))
        assert torch.equal(ours, view) and torch.equal(traced, view)


def test_negative_view_saved_wrong(tmp_path: Path) -> None:
    """A tensor with the negative bit is saved with its sign."""
    value = torch._neg_view(torch.tensor([1.0, -2.0]))
    assert value.is_neg()
    ours, traced, reference = _two_ways(value, tmp_path)
    assert torch.equal(ours, value) and torch.equal(traced, value) and not torch.equal(reference, value)
    value = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    ours, traced, _ = _two_ways(value, tmp_path / "imag")
    assert value.is_neg() and torch.equal(ours, value) and torch.equal(traced, value)


def test_nested_contexts_leave_wrappers(tmp_path: Path) -> None:
    """Contexts that overlap may end in any order: nothing stays, and gradients are off until the last one ends."""
    model = nn.Sequential(linear(), nn.ReLU())
    before = state(model)
    for number, order in enumerate(itertools.permutations(range(3))):
        contexts = [drop_in(model, tmp_path / f"{number}-{i}") for i in range(3)]
        for context in contexts:
            context.__enter__()
        for left, index in enumerate(order):
            assert not torch.is_grad_enabled()
            model(ones(left + 1))
            contexts[index].__exit__(None, None, None)
        assert torch.is_grad_enabled()
        assert all(a == b for a, b in zip(before, state(model)))
        for left, index in enumerate(order):  # each saw the forwards that ran while it was open
            assert len(files(tmp_path / f"{number}-{index}", "*SUMMARY*")) == left + 1
    outer, inner = theirs(model, tmp_path / "a"), theirs(model, tmp_path / "b")
    outer.__enter__(), inner.__enter__()
    outer.__exit__(None, None, None), inner.__exit__(None, None, None)
    assert hasattr(vars(model)["forward"], "__wrapped__")


def _emitted(trace: fxdebug.Trace) -> fxdebug.Value:
    (value,) = trace.find("emit")[0].outputs
    return value


def test_empty_tensor(tmp_path: Path) -> None:
    """A tensor without elements is recorded like any other: an expert that no token was sent to."""
    trace, printed, on_disk = odd(torch.empty(0, 4), tmp_path, BOTH)
    assert printed["value"] == ["tensor([], size=(0, 4))"] and printed["mean"] == "tensor(nan)"
    assert [tensor.shape for tensor in tensors(tmp_path / "ours-False", on_disk)] == [(0, 4)]
    value = _emitted(trace)
    assert value.shape == (0, 4) and value.stats == fxdebug.Stats(0, None, None, None, None, None)
    assert trace.tensor(value).shape == (0, 4)
    for number, empty in enumerate((torch.empty(0, dtype=torch.long), torch.empty(2, 0, 3), torch.empty(0).bfloat16())):
        trace, _, _ = odd(empty, tmp_path / str(number), BOTH if empty.is_floating_point() else ())
        assert trace.tensor(_emitted(trace)).shape == empty.shape

    def routed(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.low(x[x[:, 0] < 5]), self.high(x[x[:, 0] >= 5])])

    for outline in outlines(Does(routed, low=linear(), high=linear()), tmp_path / "experts"):
        assert outline == ["Does", "  low", "  high"]


def test_meta_tensor_files(tmp_path: Path) -> None:
    """A meta tensor has no data to save: its place in the tree is empty, and a note says why."""
    value = torch.empty(2, 3, device="meta")
    trace, printed, on_disk = odd(value, tmp_path, FILES)
    assert printed["value"] == ["tensor(..., device='meta', size=(2, 3))"]
    assert on_disk["value"] is None and on_disk["shape"] == "torch.Size([2, 3])"
    assert (_emitted(trace).device, _emitted(trace).shape, _emitted(trace).saved) == ("meta", (2, 3), None)
    assert any("a meta tensor has no data" in note.what for note in trace.notes)


def test_sparse_coo(tmp_path: Path) -> None:
    """A sparse COO tensor is measured, zeros included, printed and saved."""
    value = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    trace, printed, _ = odd(value, tmp_path, BOTH)
    assert printed["value"][-1] == "       size=(2, 2), nnz=1, layout=torch.sparse_coo)"
    assert printed["max"] == "tensor(2.0000e+00)"
    stats = _emitted(trace).stats
    assert (stats.count, stats.mean, stats.zeros, _emitted(trace).layout) == (4, 0.5, 3, "sparse_coo")
    assert torch.equal(trace.tensor(_emitted(trace)).to_dense(), value.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_csr(tmp_path: Path) -> None:
    """Compressed sparse tensors are measured, printed and saved, by row, by column and in blocks."""
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    for value in (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1))):
        layout = str(value.layout)[6:]
        trace, printed, _ = odd(value, tmp_path / layout, BOTH)
        assert layout in printed["value"][-1] and printed["min"] == "tensor(0.)"
        assert (_emitted(trace).layout, _emitted(trace).stats.mean) == (layout, 0.5)
        assert trace.tensor(_emitted(trace)).layout == value.layout
        assert torch.equal(trace.tensor(_emitted(trace)).to_dense(), dense)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def _nested(folder: Path, layout: torch.layout) -> None:
    parts = [torch.ones(1, 2), torch.full((3, 2), 3.0)]
    trace, printed, _ = odd(torch.nested.nested_tensor(parts, layout=layout), folder, BOTH)
    value = _emitted(trace)
    assert (value.shape, value.detail, value.stats.count) == ((2, -1, 2), "nested: (1, 2), (3, 2)", 8)
    assert printed["mean"] == "tensor(2.5000e+00)"
    assert all(map(torch.equal, trace.tensor(value).unbind(), parts))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensor(tmp_path: Path) -> None:
    """A nested tensor is measured over the elements there are, printed and saved part by part."""
    _nested(tmp_path, torch.strided)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensor(tmp_path: Path) -> None:
    """So is a jagged one."""
    _nested(tmp_path, torch.jagged)


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantized_files(tmp_path: Path) -> None:
    """A quantised tensor, per tensor and per channel, is saved, by the drop-in as plain numbers."""
    dense = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    for name, value in {
        "tensor": torch.quantize_per_tensor(dense, 0.5, 3, torch.qint8),
        "channel": torch.quantize_per_channel(dense, torch.tensor([0.5, 0.25]), torch.tensor([1, 2]), 0, torch.qint8),
    }.items():
        trace, _, on_disk = odd(value, tmp_path / name, FILES)
        assert torch.equal(tensors(tmp_path / name / "ours-False", on_disk)[0], dense)
        assert f"quantised per_{name}_affine" in _emitted(trace).detail
        again = trace.tensor(_emitted(trace))
        assert torch.equal(again.int_repr(), value.int_repr()) and torch.equal(again.dequantize(), dense)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex128_files(tmp_path: Path) -> None:
    """Complex numbers of every width are saved to the last bit."""
    value = torch.tensor([1 / 3 + 2j, -1j], dtype=torch.complex128)
    trace, _, on_disk = odd(value, tmp_path / "128", FILES)
    assert torch.equal(torch.view_as_complex(tensors(tmp_path / "128" / "ours-False", on_disk)[0]), value)
    assert torch.equal(trace.tensor(_emitted(trace)), value)
    half = torch.tensor([1 + 2j], dtype=torch.complex32)
    trace, _, _ = odd(half, tmp_path / "32", FILES)
    assert torch.equal(torch.view_as_real(trace.tensor(_emitted(trace))), torch.view_as_real(half))


def test_vmap_files(tmp_path: Path) -> None:
    """A module under ``torch.vmap`` is recorded, with the whole batch on disk."""
    model = Does(lambda self, x: torch.vmap(self.a)(x), a=linear())
    x = torch.arange(8.0).reshape(2, 4)
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(x)
    expected = model(x).detach()
    (on_disk,) = tensors(tmp_path / "ours", tree(tmp_path / "ours")["children"][0]["outputs"])
    assert torch.equal(on_disk, expected)
    trace = saved(model, x, tmp_path / "trace", values="tensors")
    value = trace.find("a")[0].outputs[0]
    assert value.detail.startswith("inside vmap over dimension 0 of (2, 4)") and value.stats.count == 8
    with pytest.raises(Exception), theirs(model, tmp_path / "theirs", use_repr=False):  # noqa: B017
        model(x)
