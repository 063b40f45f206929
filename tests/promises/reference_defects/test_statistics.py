"""Statistics and facts of tensors that the JSON of transformers' debugger lacks."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

import fxdebug
from fxdebug import model_addition_debugger_context as drop_in
from support.emitted import emitted, emitting
from support.trees import assert_text_equal, saved, tree

ALL_DTYPES = [
    torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip


def test_float64_without_statistics(tmp_path: Path) -> None:
    """Tensors of every dtype have statistics, and complex ones a complex mean."""
    for dtype in ALL_DTYPES:
        value = torch.tensor([0, 1, 1, 0]).to(dtype)
        if dtype is not torch.complex128:  # of which the reference cannot write a file
            assert_text_equal(emitting(value))
        trace = saved(*emitting(value)(), tmp_path / str(dtype), values="tensors")
        kept = trace.find("emit")[0].outputs[0]
        stats = kept.stats
        assert (stats.count, stats.mean, stats.zeros, stats.absmax) == (4, 0.5, 2, 1), dtype
        assert stats.std == pytest.approx(math.sqrt(1 / 3))
        assert (stats.min, stats.max) == ((None, None) if dtype.is_complex else (0, 1))
        assert str(dtype) == f"torch.{kept.dtype}" and trace.tensor(kept).dtype == dtype


def test_statistics_are_repr_strings(tmp_path: Path) -> None:
    """Statistics are numbers, as exact as the tensor's are."""
    value = torch.tensor([1.0, 1.00001, 1.00002, 1.00007])
    _, kept = emitted(value, tmp_path)
    exact = value.double()
    assert kept.stats.mean == pytest.approx(exact.mean().item(), rel=1e-9)
    assert kept.stats.std == pytest.approx(exact.std().item(), rel=1e-6)
    assert (kept.stats.min, kept.stats.max) == (1.0, exact.max().item())
    assert all(isinstance(number, float) for number in (kept.stats.mean, kept.stats.std, kept.stats.min))
    assert tree(tmp_path, "SUMMARY")["children"][0]["outputs"]["std"].startswith("tensor(")


class Tagged(torch.Tensor):
    """A subclass of the user's."""


def test_device_and_layout_not_recorded(tmp_path: Path) -> None:
    """Shape, dtype, device, layout, strides, offset, class, storage and requires_grad are fields of their own types."""
    leaf = torch.ones(3, 4, requires_grad=True)
    value = [leaf, leaf.detach().t()[1:], torch.ones(2).as_subclass(Tagged), torch.empty(2, device="meta")]
    model, inputs = emitting(value)()
    trace = saved(model, inputs, tmp_path)
    looks = [(v.shape, v.dtype, v.device, v.layout, v.type) for v in trace.find("emit")[0].outputs]
    assert looks == [
        ((3, 4), "float32", "cpu", "strided", "Tensor"),
        ((3, 3), "float32", "cpu", "strided", "Tensor"),
        ((2,), "float32", "cpu", "strided", "Tagged"),
        ((2,), "float32", "meta", "strided", "Tensor"),
    ]
    first, second, _, _ = trace.find("emit")[0].outputs
    assert (first.requires_grad, first.stride, first.offset) == (True, (4, 1), 0)
    assert (second.requires_grad, second.stride, second.offset, second.storage) == (False, (1, 4), 1, first.storage)
    sparse, inputs = emitting(torch.eye(2).to_sparse())()
    assert saved(sparse, inputs, tmp_path / "sparse").find("emit")[0].outputs[0].layout == "sparse_coo"
    assert_text_equal(emitting([leaf.detach(), leaf.detach().t()[1:]]))


def test_integer_dtype_range_missing(tmp_path: Path) -> None:
    """The range of token ids and masks is known exactly, in 64 bits too."""

    def made(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"ids": torch.tensor([[101, 2**62 + 1, 0]]), "mask": torch.tensor([True, False, True])}

    _, group = emitted(made, tmp_path)
    ids, mask = group["ids"].stats, group["mask"].stats
    assert (ids.min, ids.max, ids.zeros, type(ids.max)) == (0, 2**62 + 1, 1, int)
    assert (mask.min, mask.max, mask.zeros, mask.mean) == (0, 1, 1, pytest.approx(2 / 3))
    assert set(tree(tmp_path, "SUMMARY")["children"][0]["outputs"]["ids"]) == {"shape", "dtype"}


def test_nan_hides_extremes(tmp_path: Path) -> None:
    """NaN and infinities are counted, and the statistics are over what is finite."""
    value = torch.tensor([math.nan, 1.0, -math.inf, 0.0, math.inf, math.inf, 5.0])
    _, kept = emitted(value, tmp_path / "mixed")
    stats = kept.stats
    assert (stats.count, stats.nan, stats.posinf, stats.neginf, stats.finite) == (7, 1, 2, 1, 3)
    assert (stats.mean, stats.min, stats.max, stats.absmax, stats.zeros) == (2.0, 0.0, 5.0, 5.0, 1)
    assert tree(tmp_path / "mixed", "SUMMARY")["children"][0]["outputs"]["max"] == "tensor(nan)"
    _, kept = emitted(torch.full((3,), math.nan), tmp_path / "only")
    assert kept.stats == fxdebug.Stats(3, None, None, None, None, None, nan=3)


def test_one_element_std_is_nan(tmp_path: Path) -> None:
    """The std of a single element is 0, and measuring it warns about nothing."""
    for shape in ((), (1,), (1, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model, inputs = emitting(torch.full(shape, 2.5))()
            for values in ("stats", "repr", "tensors"):
                trace = saved(model, inputs, tmp_path / f"{len(shape)}{values}", values=values)
                stats = trace.find("emit")[0].outputs[0].stats
                assert (stats.count, stats.mean, stats.std, stats.min, stats.max) == (1, 2.5, 0.0, 2.5, 2.5)
            with drop_in(model, tmp_path / "drop_in"):
                model(**inputs)
        assert tree(tmp_path / "drop_in")["children"][0]["outputs"]["std"] == "tensor(nan)"
        assert_text_equal(emitting(torch.full(shape, 2.5)))
