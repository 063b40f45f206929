"""The text of tensors is torch's own, to the letter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._tensor_str as tensor_str
from hypothesis import given, settings
from hypothesis import strategies as st

from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.stats.measure import measure
from fxdebug.store.transformers import print_tensor
from fxdebug.store.transformers.print_tensor import Printer
from support.sweep import examples

STANDARD = {"sci_mode": True, "linewidth": 120}


def torchs(thing: Any, **options: Any) -> str:
    """What torch prints under the reference's options."""
    with tensor_str.printoptions(**{**options, **STANDARD}):
        return str(thing)


def ours(tensor: torch.Tensor) -> str:
    printer = Printer(120)
    printer.begin()
    return printer.text(tensor)


def prints_floats_alike() -> bool:
    """Does this torch choose the width of a column of floats by ``sci_mode``? 2.8 does not."""
    with tensor_str.printoptions(**STANDARD):
        return str(torch.tensor([1.0, -2.0])) == "tensor([ 1.0000e+00, -2.0000e+00])"


# Ordinary tensors: printed by our own code -------------------------------------------------------

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16,
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.5, 3.14159, 1e-7, -2.5e-30, 6e4, 1e30, 1e-45, 9.99995, math.nan, math.inf, -math.inf]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 6, 7, 13]), max_size=4))
    count = math.prod(shape)
    if dtype.is_floating_point or dtype.is_complex:
        numbers = st.one_of(st.sampled_from(NUMBERS), st.floats(width=32))
    else:
        info = None if dtype is torch.bool else torch.iinfo(dtype)
        numbers = st.booleans() if info is None else st.one_of(st.integers(info.min, info.max), st.integers(0, 3))
    some = draw(st.lists(numbers, min_size=1, max_size=12))
    tensor = torch.tensor([some[i % len(some)] for i in range(count)], dtype=torch.float64).to(dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        tensor = torch.tensor([some[i % len(some)] for i in range(count)], dtype=dtype)
    tensor = tensor.reshape(shape)
    if draw(st.booleans()):
        tensor = tensor.transpose(0, -1) if tensor.dim() else tensor
    if (dtype.is_floating_point or dtype.is_complex) and draw(st.booleans()):
        tensor = torch.nn.Parameter(tensor) if draw(st.booleans()) else tensor.requires_grad_()
    return tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64] if prints_floats_alike() else [torch.int64])
def test_common_tensors_are_printed_without_torchs_options(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = torchs(torch.arange(30).to(dtype))
    assert ours(torch.ones(2, dtype=dtype)) == torchs(torch.ones(2, dtype=dtype))  # the first one is tried
    monkeypatch.setattr(print_tensor, "thread_print_options", None)
    assert ours(torch.arange(30).to(dtype)) == expected


@given(tensors())
@settings(max_examples=examples(150, 400), deadline=None)
def test_the_text_of_a_tensor_is_letter_for_letter_what_torch_prints(tensor) -> None:
    assert ours(tensor) == torchs(tensor)
    assert Printer(120).lines(tensor) == torchs(tensor).splitlines()


@given(
    tensors(),
    st.integers(0, 8),
    st.sampled_from([0, 5, 40, 1000]),
    st.integers(0, 4),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
@settings(max_examples=examples(75, 150), deadline=None)
def test_the_users_other_print_options_and_default_dtype_are_followed(
    tensor, precision, threshold, edgeitems, default
) -> None:
    users = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        with tensor_str.printoptions(**users):
            assert ours(tensor) == torchs(tensor, **users)
    finally:
        torch.set_default_dtype(usual)


@pytest.mark.parametrize("shape", [(1001,), (7, 200), (3, 400), (2, 7, 7, 13), (1001, 1), (1, 1, 1, 1100), (50, 50)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_long_tensors_are_abridged_where_torch_abridges_them(shape, dtype) -> None:
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    assert "..." in ours(tensor) and ours(tensor) == torchs(tensor)


@given(tensors())
@settings(max_examples=examples(75, 150), deadline=None)
def test_statistics_are_the_text_of_what_torch_computes(tensor) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the deviation of one element
        found = Printer(120).statistics(tensor)
        assert Printer(120).statistics(tensor, measure(tensor)) == found
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            assert found is None
        elif tensor.numel() == 0:
            assert found == (torchs(tensor.new_tensor(math.nan)),) * 4
        else:
            assert found == tuple(
                torchs(number) for number in (tensor.mean(), tensor.std(), tensor.min(), tensor.max())
            )


DATA = {
    "normal": lambda n, r: torch.randn(n, generator=r),
    "ReLU": lambda n, r: torch.relu(torch.randn(n, generator=r)),
    "uniform": lambda n, r: torch.rand(n, generator=r),
    "two numbers": lambda n, r: torch.where(torch.arange(n) < n * 0.9, 0.1, 0.7),
    "hardly a spread": lambda n, r: 0.3 + 1e-5 * torch.randn(n, generator=r),
    "a mean and a spread": lambda n, r: 1 + torch.randn(n, generator=r),
    "zeros of both signs": lambda n, r: torch.where(torch.rand(n, generator=r) < 0.5, 0.0, -0.0),
    "a mask": lambda n, r: torch.where(torch.rand(n, generator=r) < 0.5, 0.0, torch.finfo().min),
    "holes": lambda n, r: torch.where(torch.rand(n, generator=r) < 0.5, math.nan, 1.0),
    "expanded": lambda n, r: torch.randn(1, generator=r).expand(n),
    "turned": lambda n, r: torch.randn(n, 2, generator=r).t(),
}


@pytest.mark.parametrize("kind", DATA)
def test_statistics_that_are_known_are_printed_as_those_that_torch_computes(kind) -> None:
    r = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for size in (2, 3, 64, 1000, 8193, 65_537, 150_000):
            for _ in range(8):
                tensor = DATA[kind](size, r)
                true = tuple(torchs(x) for x in (tensor.mean(), tensor.std(), tensor.min(), tensor.max()))
                assert Printer(120).statistics(tensor, measure(tensor)) == true


def test_without_a_width_of_its_own_the_text_has_the_users() -> None:
    tensor = torch.randn(4, 20)
    printer = Printer(None)
    printer.begin()
    for width in (40, 80, 200):
        with tensor_str.printoptions(linewidth=width):
            with tensor_str.printoptions(sci_mode=True, linewidth=width):
                true = str(tensor)
            assert printer.text(tensor) == true


# Odd ones: printed by torch ----------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A plain subclass."""


class Described(torch.Tensor):
    def __repr__(self, **options: Any) -> str:
        return f"Described of {tuple(self.shape)}, {tensor_str.get_printoptions()['linewidth']} columns"


class Counting(torch.Tensor):
    heard = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(torch.ones(2, 3))


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.arange(6.0).reshape(2, 3) / 7


def base() -> torch.Tensor:
    return torch.tensor([[0.0, 1.5, -2e-5], [3e9, 0.0, math.nan]])


def nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(1, 3), torch.arange(6.0).reshape(2, 3)], layout=layout)


ODD: dict[str, Callable[[], torch.Tensor]] = {
    "0-dim": lambda: torch.tensor(1234.5),
    "0-dim integer": lambda: torch.tensor(3),
    "0-dim NaN": lambda: torch.tensor(math.nan),
    "empty": lambda: torch.empty(0),
    "empty in the middle": lambda: torch.empty(2, 0, 3, dtype=torch.int32),
    "sparse COO": lambda: base().to_sparse(),
    "sparse, nothing stored": lambda: torch.zeros(3, 3).to_sparse(),
    "sparse CSR": lambda: base().to_sparse_csr(),
    "sparse CSC": lambda: base().to_sparse_csc(),
    "sparse BSR": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "nested": lambda: nested(torch.strided),
    "jagged": lambda: nested(torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(2, 3), 0.1, 10, torch.quint8),
    "quantised by channel": lambda: torch.quantize_per_channel(
        torch.randn(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    ),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "fake": fake,
    "complex": lambda: torch.complex(base(), -base()),
    "complex, 16 bits": lambda: torch.tensor([1 + 2j, 3e-3j]).to(torch.complex32),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative view": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "float8": lambda: torch.tensor([0.5, 3.0, -448.0]).to(torch.float8_e4m3fn),
    "float8 without zero": lambda: torch.tensor([0.5, 4.0]).to(torch.float8_e8m0fnu),
    "uint64": lambda: torch.tensor([0, 2**64 - 1], dtype=torch.uint64),
    "plain subclass": lambda: base().as_subclass(Tagged),
    "subclass with a repr of its own": lambda: base().as_subclass(Described),
    "subclass with a torch function": lambda: base().as_subclass(Counting),
    "Parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "frozen Parameter": lambda: torch.nn.Parameter(torch.arange(3), requires_grad=False),
    "Buffer": lambda: torch.nn.Buffer(torch.randn(3)),
    "parameter without data": lambda: torch.nn.UninitializedParameter(),
    "requires grad": lambda: torch.randn(3).requires_grad_(),
    "with a history": lambda: (torch.randn(3).requires_grad_() * 2).relu(),
    "long line of suffixes": lambda: torch.randn(13, dtype=torch.float64).requires_grad_(),
    "inference": inference,
    "expanded": lambda: torch.randn(1).expand(1200),
    "overlapping": lambda: torch.arange(5.0).as_strided((3, 3), (1, 1)),
    "nine dimensions": lambda: torch.arange(4.0).reshape(1, 2, 1, 1, 2, 1, 1, 1, 1),
}
if not hasattr(torch, "float8_e8m0fnu"):  # torch has it from 2.7 on
    del ODD["float8 without zero"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_print_as_torch_prints_them(kind) -> None:
    torch.manual_seed(0)
    tensor = ODD[kind]()
    assert ours(tensor) == torchs(tensor)


def test_tensors_inside_vmap_and_forward_derivatives_print_as_torch_prints_them() -> None:
    seen: list[tuple[str, str]] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append((ours(x), torchs(x)))
        return x * 2

    torch.vmap(look)(torch.randn(3, 2))
    torch.func.grad(lambda x: look(x).sum())(torch.randn(2))
    torch.func.jvp(look, (torch.randn(2),), (torch.ones(2),))
    assert len(seen) == 3 and all(mine == true for mine, true in seen)


def test_a_tensor_printed_inside_our_own_work_does_not_tell_its_class() -> None:
    tensor = base().as_subclass(Counting)
    heard = Counting.heard
    with untracked():
        text = ours(tensor)
    assert Counting.heard == heard
    assert text == torchs(tensor)


# Options -----------------------------------------------------------------------------------------


def test_the_global_print_options_stay_the_same_object_with_the_same_content() -> None:
    options, content = tensor_str.PRINT_OPTS, tensor_str.get_printoptions()
    printer = Printer(120)
    for make in (ODD["sparse COO"], ODD["complex"], ODD["0-dim"], ODD["subclass with a repr of its own"]):
        printer.text(make())
        printer.statistics(make().to_dense().real.clone())
    assert tensor_str.PRINT_OPTS is options
    assert tensor_str.get_printoptions() == content
