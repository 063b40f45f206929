"""Every spelling of an operation has one name, and constants that mean the same compare equal."""

from __future__ import annotations

import pytest

from fxdebug.data.values import Value
from fxdebug.features.shared.units.origins import Origin, origin_of
from fxdebug.operators.activation_functions import function_of
from fxdebug.operators.categories import is_from_ranks, is_probability, uses_only_shape
from fxdebug.operators.dtypes import number_kind
from fxdebug.operators.names import (
    canonical,
    convolution_arguments,
    family,
    normalized_constant,
    normalized_constants,
    op_of_module,
    role,
)


@pytest.mark.parametrize(
    ("spellings", "name"),
    [
        ("add add_ __add__ __iadd__ __radd__ add.Tensor", "add"),
        ("div truediv __itruediv__ divide true_divide div_", "div"),
        ("__rtruediv__", "rdiv"),
        ("matmul mm bmm __rmatmul__ imatmul", "matmul"),
        ("and __and__ logical_and bitwise_and", "and"),
        ("__invert__ logical_not", "not"),
        ("cat concat concatenate", "cat"),
        ("softmax _softmax special_softmax", "softmax"),
        ("_", "_"),
        (".x", ".x"),
    ],
)
def test_spellings_of_one_operation_have_one_name(spellings: str, name: str) -> None:
    assert {canonical(spelling) for spelling in spellings.split()} == {name}


def test_an_operation_has_a_role_and_a_family() -> None:
    assert [role(name) for name in ("div", "where", "sub", "sqrt", "relu")] == ["mul", "add", "add", "rsqrt", "relu"]
    assert [family(name) for name in ("linear", "addmm", "relu", "gelu")] == ["product", "product", "clamp", "gelu"]
    modules = ("Linear", "Conv1D", "LayerNorm", "T5LayerNorm", "GemmaRMSNorm", "NewGELUActivation", "GELU")
    assert [op_of_module(name) for name in modules] == [
        "linear",
        "linear",
        "layer_norm",
        "T5LayerNorm",
        "rms_norm",
        "gelu",
        "gelu",
    ]
    functions = ("ReLU", "ReLU6", "QuickGELUActivation", "fast_gelu", "PReLU", "Tanh")
    assert [function_of(name) for name in functions] == ["relu", "relu6", "gelu", "gelu", "", "tanh"]
    kinds = {"float16": "float", "complex64": "complex", "bool": "bool", "uint8": "int"}
    assert {name: number_kind(name) for name in kinds} == kinds


def test_constants_that_mean_the_same_are_equal() -> None:
    given = ["_stacklevel=3.0", "dim=-1.0", "dtype=torch.float32", "keepdim=True", "2.0", "2.0", "p=0.0", "None"]
    assert normalized_constants(given) == {"-1.0": 1, "2.0": 2}
    equal = {"1e-05": "1e-05", "0.00001": "1e-05", "nan": "nan", "mean": "mean"}
    assert {text: normalized_constant(text) for text in equal} == equal


@pytest.mark.parametrize(
    ("constants", "arguments"),
    [
        (["1", "0", "1", "1"], ()),
        (["2", "(1, 1)", "[1, 1]", "4"], ("stride=2", "padding=1", "groups=4")),
        (["(1, 2)"], ("stride=(1, 2)",)),
        (["None", "groups=4.0", "2"], ("stride=2", "groups=4")),
        (["1", "1", "1", "1", "9"], ("padding=1",)),
        (["other=3"], ()),
    ],
)
def test_a_convolution_says_what_is_not_its_default(constants: list[str], arguments: tuple[str, ...]) -> None:
    assert convolution_arguments(constants) == arguments


def test_operations_are_told_by_what_they_do() -> None:
    assert [uses_only_shape(op) for op in ("ones_like", "new_zeros", "relu")] == [True, True, False]
    places = ("torch.distributed.scatter", "torch.ops.c10d.scatter", "torch.scatter")
    assert [is_from_ranks("scatter", place) for place in places] == [True, True, False]
    assert not is_from_ranks("add", "torch.distributed.add")


def test_views_of_probabilities_are_probabilities() -> None:
    known, other = Value(4, (2,), "float32", "cpu"), Value(5, (2,), "float32", "cpu")
    assert is_probability("sigmoid", (), set()) and not is_probability("log_softmax", (), {4})
    assert is_probability("view", [other, known], {4}) and is_probability("rsub", [known], {4})
    assert not is_probability("view", [other], {4}) and not is_probability("mul", [known], {4})
    assert not is_probability("view", [known], set())


@pytest.mark.parametrize(
    ("type", "weights", "shape", "given", "before", "expected"),
    [
        ("Linear", [2, 1], (2, 5), (2, 3), None, Origin("m", -1)),
        ("Conv1d", [3, 1], (2, 5, 9), (2, 3, 9), None, Origin("m", 1)),
        ("Conv1d", [3, 1], (5, 9), (3, 9), None, Origin("m", 0)),
        ("Experts", [3], (2, 5, 9), (2, 5, 9), None, Origin("m", -1)),
        ("Conv2d", [4, 1], (2, 5, 9, 9), (2, 3, 9, 9), None, Origin("m", 1)),
        ("Mine", [4], (5, 9, 9), (3, 9, 9), None, Origin("m", 0)),
        ("BatchNorm1d", [1, 1], (2, 5), (2, 5), None, Origin("m", 1)),
        ("LayerNorm", [1, 1], (2, 5), (2, 5), None, Origin("m", -1)),
        ("ReLU", [], (2, 5, 9), (2, 5, 9), Origin("c", 1), Origin("c", 1)),
        ("Pool", [], (2, 5, 3), (2, 5, 9), Origin("c", 1), Origin("c", 1)),
        ("Pool", [], (2, 4, 9), (2, 5, 9), Origin("c", 1), Origin("", -1)),
        ("Sum", [], (4,), (9,), Origin("c", 1), Origin("c", 1)),
        ("Flatten", [], (2, 45), (2, 5, 9), Origin("c", 1), Origin("", -1)),
        ("Pool", [], (2, 5, 3, 3), (2, 5), None, Origin("", 1)),
    ],
)
def test_units_lie_where_the_weights_put_them(
    type: str,
    weights: list[int],
    shape: tuple[int, ...],
    given: tuple[int, ...],
    before: Origin | None,
    expected: Origin,
) -> None:
    assert origin_of(type, "m", weights, shape, given, before) == expected
