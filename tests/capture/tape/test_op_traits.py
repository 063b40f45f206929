"""What is known of torch's functions by their names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fxdebug.capture.tape.op_traits import (
    function_name,
    may_write,
    node_name,
    op_name,
    running_statistics,
    shares_memory,
    written_form,
)

SET_DATA: Any = Tensor.data.__set__  # type: ignore[attr-defined]
GET_DATA: Any = Tensor.data.__get__  # type: ignore[attr-defined]
GET_SHAPE: Any = Tensor.shape.__get__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "name", "op", "written"),
    [
        (Tensor.numpy, "numpy", "numpy", "numpy()"),
        (Tensor.__add__, "__add__", "add", "__add__()"),
        (Tensor.add_, "add_", "add", "add_()"),
        (SET_DATA, "data", "data", "data = …"),
        (GET_SHAPE, "shape", "shape", "__get__()"),
        (functional.relu, "relu", "relu", "relu()"),
    ],
)
def test_functions_have_names_for_graphs_and_for_people(function: Any, name: str, op: str, written: str) -> None:
    assert (function_name(function), op_name(function), written_form(function)) == (name, op, written)


def test_nodes_have_names_that_python_has_not() -> None:
    assert [node_name(*one) for one in (("mul", 0), ("mul", 2), ("max", 0), ("max", 1), ("lambda", 0))] == [
        "mul", "mul_2", "max_1", "max_2", "lambda_1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "kwargs", "writes"),
    [
        (Tensor.add, {}, False),
        (Tensor.add, None, False),
        (torch.add, {"out": 1}, True),
        (Tensor.add_, None, True),
        (Tensor.__iadd__, None, True),
        (Tensor.__setitem__, None, True),
        (Tensor.__add__, {"out": 1}, False),
        (Tensor.__getitem__, None, False),
    ],
)
def test_what_may_write_is_told_by_its_name(function: Any, kwargs: Any, writes: bool) -> None:
    assert may_write(function, kwargs) is writes


def test_memory_is_shared_by_data_and_by_what_leaves_torch() -> None:
    shared = [(GET_DATA, "__get__"), (SET_DATA, "__set__"), (Tensor.numpy, "numpy"), (Tensor.resize_, "resize_")]
    alone = [(GET_SHAPE, "__get__"), (Tensor.register_hook, "register_hook"), (Tensor.add_, "add_")]
    assert [shares_memory(*one) for one in (*shared, *alone)] == [True] * 4 + [False] * 3


def test_norms_write_their_running_statistics_in_training() -> None:
    norm: Any = functional.batch_norm
    x, mean, var = "x", "mean", "var"
    assert running_statistics(norm, (x, mean, var, "w", "b", True), {}) == (mean, var)
    assert (
        running_statistics(norm, (x, mean, var), {})
        == running_statistics(norm, (x, mean, var), {"training": False})
        == ()
    )
    assert running_statistics(norm, (x,), {"running_mean": mean, "running_var": var, "training": True}) == (mean, var)
    assert running_statistics(functional.instance_norm, (x, None, var), {}) == (var,)
    assert running_statistics(torch.batch_norm, (x, "w", "b", mean, var, True, 0.1, 1e-5, True), {}) == (mean, var)
