"""Statistics against exact arithmetic: fractions for small tensors, float64 numpy for large ones."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fxdebug import fx_debug
from fxdebug.data.values import Stats, pooled
from fxdebug.native import dispatch
from fxdebug.stats import cpu_sums
from fxdebug.stats.cpu_sums import BLOCK, FEW, is_one_piece
from fxdebug.stats.measure import Unmeasurable, fine_std, measure, measure_piece
from support.measured import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    SHAPES_OF_DATA,
    as_float,
    assert_close,
    every_other,
    exact,
    expanded,
    listed,
    precision,
    tensors,
)
from support.sweep import examples, whole

FLOAT4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture(autouse=True)
def as_the_recorder_does():
    """Measure without gradients."""
    with torch.no_grad():
        yield


@given(tensors(FLOATS))
@settings(max_examples=examples(150, 400), deadline=None)
def test_floats_of_every_dtype_in_every_layout_are_measured_as_exactly_as_their_sums_can_be(tensor) -> None:
    assert_close(measure(tensor), exact(listed(tensor)), precision(tensor.dtype))


@given(tensors(INTEGERS))
@settings(max_examples=examples(100, 250), deadline=None)
def test_integers_and_booleans_keep_exact_extremes_and_full_precision(tensor) -> None:
    true = exact([int(x) for x in listed(tensor)])
    ours = measure(tensor)
    assert_close(ours, true, precision(tensor.dtype))
    assert ours.mean == true.mean  # integers are added up exactly


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has it from 2.8 on")
@given(st.lists(st.integers(0, 255), max_size=40), st.sampled_from([lambda t: t, expanded, every_other]))
@settings(max_examples=80, deadline=None)
def test_two_floats_of_four_bits_in_a_byte_are_both_measured(codes, layout) -> None:
    tensor = layout(torch.tensor(codes, dtype=torch.uint8)).view(torch.float4_e2m1fn_x2)
    packed = tensor.view(torch.uint8).tolist()
    flat = [code for row in packed for code in row] if tensor.dim() == 2 else packed
    assert_close(measure(tensor), exact([FLOAT4[half] for code in flat for half in (code & 15, code >> 4)]), 2.0**-23)


@given(st.data(), st.sampled_from(COMPLEX), st.sampled_from(LAYOUTS), st.booleans())
@settings(max_examples=examples(60, 120), deadline=None)
def test_complex_tensors_have_a_complex_mean_and_count_what_is_not_finite_in_either_part(
    data, dtype, layout, conjugated
) -> None:
    parts = [0.0, 1.0, -2.5, 3.0, 0.125, math.nan, math.inf, -math.inf]
    if dtype is torch.complex128:
        parts += [1e200, -1e200, 1e-200]
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(parts), st.sampled_from(parts)), max_size=12))
    tensor = layout(torch.tensor([complex(*pair) for pair in pairs], dtype=torch.complex128).to(dtype))
    if conjugated:
        tensor = tensor.conj()
    ours, numbers = measure(tensor), tensor.to(torch.complex128).flatten().tolist()
    nan = [z for z in numbers if z != z]
    infinite = [z for z in numbers if z == z and not (math.isfinite(z.real) and math.isfinite(z.imag))]
    finite = [z for z in numbers if math.isfinite(z.real) and math.isfinite(z.imag)]
    assert (ours.count, ours.nan, ours.posinf, ours.neginf) == (len(numbers), len(nan), len(infinite), 0)
    assert ours.zeros == finite.count(0)
    assert ours.min is None and ours.max is None
    if not finite:
        assert ours.mean is ours.std is ours.absmax is None
        return
    real, imag = exact([z.real for z in finite]), exact([z.imag for z in finite])
    largest = max(map(abs, finite))
    assert ours.absmax == pytest.approx(largest, rel=1e-15)
    assert abs(ours.mean - complex(real.mean, imag.mean)) <= 1e-15 * largest * 16
    assert ours.std == pytest.approx(math.hypot(real.std, imag.std), rel=1e-13, abs=1e-15 * largest)


def test_the_imaginary_part_of_a_conjugate_is_measured_with_its_sign() -> None:
    view = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert view.is_neg()
    assert measure(view) == Stats(2, -3.0, math.sqrt(2), -4.0, -2.0, 4.0)


# Many elements -----------------------------------------------------------------------------------

SIZES = [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]


@pytest.mark.parametrize("kind", SHAPES_OF_DATA)
def test_many_elements_are_measured_as_float64_numpy_measures_them(kind) -> None:
    rng = np.random.default_rng(0)
    turn = list(SHAPES_OF_DATA).index(kind)
    sizes = SIZES if whole() else (SIZES[turn % 4], SIZES[(turn + 2) % 4])
    for size in sizes:
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            tensor = torch.from_numpy(SHAPES_OF_DATA[kind](rng, size)).to(dtype)
            array = tensor.double().numpy()
            if not np.isfinite(array).all():  # float16 holds no 1e30
                continue
            low, high, zeros = float(array.min()), float(array.max()), int((array == 0).sum())
            mean = math.fsum(array) / size  # numpy's own sums are a little off where all are alike
            std = math.sqrt(math.fsum((array - mean) ** 2) / (size - 1))
            true = Stats(size, mean, std, low, high, max(-low, high), zeros=zeros)
            assert_close(measure(tensor), true, precision(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_tensors_of_any_length_are_measured_to_the_last_element(dtype) -> None:
    r = torch.Generator().manual_seed(4)
    for size in (1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 1000):
        for numbers in (torch.randn(size, generator=r), torch.rand(size, generator=r), -torch.rand(size, generator=r)):
            tensor = numbers.to(dtype)
            tensor[-1] = 0.0 if size % 2 else -3.0
            assert_close(measure(tensor), exact(tensor.tolist()), precision(dtype))


def test_the_spread_around_a_large_mean_keeps_three_digits_and_more() -> None:
    """A sum of squares in float32 gives 0 here, and so did the first version."""
    tensor = 5 + 1e-3 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    assert measure(tensor).std == pytest.approx(float(tensor.double().std()), rel=1e-5)


@pytest.mark.parametrize("position", [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_is_found_in_any_block_and_hides_nothing(position, number) -> None:
    tensor = torch.ones(2 * BLOCK)
    tensor[position] = number
    found = measure(tensor)
    counts = (int(number != number), int(number == math.inf), int(number == -math.inf))
    assert found == Stats(2 * BLOCK, 1.0, 0.0, 1.0, 1.0, 1.0, *counts)


HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sign", [1, -1])
def test_extremes_of_many_16_bit_floats_are_right_whatever_their_signs(dtype, sign) -> None:
    r = torch.Generator().manual_seed(2)
    for size in (BLOCK // 4, BLOCK + 3):
        numbers = torch.rand(size, generator=r) + 0.25
        mixed, zero = numbers.clone(), numbers.clone()
        mixed[::2] *= -1
        zero[7:9] = torch.tensor([0.0, -0.0])
        for kind in (numbers, mixed, zero):
            tensor = (sign * kind).to(dtype)
            ours, wide = measure(tensor), tensor.double()
            assert (ours.min, ours.max) == (float(wide.min()), float(wide.max()))
            assert ours.absmax == float(wide.abs().max())
            assert ours.zeros == int((tensor == 0).sum())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("number", [math.nan, -math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_found_among_many_16_bit_floats(dtype, number) -> None:
    tensor = torch.full((BLOCK + 9,), -2.0, dtype=dtype)
    tensor[BLOCK + 1] = number
    if math.copysign(1.0, number) < 0:  # a NaN's sign is not kept on every way from Python
        tensor.view(torch.int16)[BLOCK + 1] |= -(2**15)
    counts = (int(number != number), int(number == math.inf), int(number == -math.inf))
    assert measure(tensor) == Stats(BLOCK + 9, -2.0, 0.0, -2.0, -2.0, 2.0, *counts)


def test_zeros_of_both_signs_are_counted_in_any_block() -> None:
    tensor = torch.randn(2 * BLOCK + 11, generator=torch.Generator().manual_seed(3)) + 20
    tensor[torch.tensor([0, BLOCK - 1, BLOCK, 2 * BLOCK + 10])] = torch.tensor([0.0, -0.0, -0.0, 0.0])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert measure(tensor.to(dtype)).zeros == 4


def test_what_was_measured_in_inference_mode_first_does_not_hinder_later_ones() -> None:
    """Memory that is used again must not be an inference tensor: nothing else may write to it."""
    cpu_sums.scratch.__init__()
    with torch.inference_mode():
        measure(torch.ones(BLOCK, dtype=torch.bfloat16))
    assert measure(torch.ones(BLOCK, dtype=torch.bfloat16)).mean == 1.0


@pytest.mark.parametrize("dtype", FLOATS[:5])
def test_nan_and_both_infinities_together_leave_the_rest_measured(dtype) -> None:
    inf = math.inf if dtype is not torch.float8_e4m3fn else 448.0  # that dtype has no infinity
    found = measure(torch.tensor([math.nan, inf, -inf, 1.0, 2.0, 3.0, 0.0, math.nan]).to(dtype))
    assert (found.count, found.nan, found.zeros) == (8, 2, 1)
    if dtype is not torch.float8_e4m3fn:
        assert (found.posinf, found.neginf, found.finite, found.mean, found.min, found.max) == (1, 1, 4, 1.5, 0.0, 3.0)


def test_large_integers_close_together_keep_their_spread() -> None:
    """Timestamps in nanoseconds, hashes: float64 holds the numbers only to a few hundred."""
    for base, dtype in ((2**62, torch.int64), (-(2**63), torch.int64), (2**64 - 10, torch.uint64)):
        found = measure(torch.tensor([base + i for i in range(10)], dtype=dtype))
        assert (found.min, found.max) == (base, base + 9)
        assert found.std == pytest.approx(math.sqrt(55 / 6), rel=1e-15)


def test_the_sum_of_many_large_integers_does_not_overflow() -> None:
    rows = torch.randint(-(2**63), 2**63 - 1, (20_000,), generator=torch.Generator().manual_seed(1))
    for tensor in (rows, rows.view(torch.uint64), torch.full((3000,), 2**63 - 1)):
        assert measure(tensor).mean == as_float(Fraction(sum(tensor.tolist()), len(tensor)))


def test_numbers_whose_squares_no_float_holds_have_a_deviation_all_the_same() -> None:
    for scale, dtype in (
        (1e200, torch.float64),
        (1e-200, torch.float64),
        (1e30, torch.float32),
        (1e-30, torch.float32),
    ):
        tensor = scale * torch.tensor([-1.0, 1.0, 3.0, 5.0], dtype=dtype)
        assert measure(tensor).std == pytest.approx(scale * math.sqrt(20 / 3), rel=1e-6)
        matrix = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=dtype) * scale
        assert measure(matrix.to_sparse()).std == pytest.approx(scale * math.sqrt(2 / 3), rel=1e-6)


# Layouts with a path of their own ----------------------------------------------------------------


@pytest.mark.parametrize("to", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64])
def test_a_sparse_tensor_is_measured_as_the_dense_one_it_stands_for(to, dtype) -> None:
    dense = torch.tensor([[0, 2, 0, -3], [0, 0, 0, 0], [5, 0, 1, 0]]).to(dtype)
    ours, true = measure(getattr(dense, to)()), measure(dense)
    for name in ("count", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"):
        assert getattr(ours, name) == getattr(true, name), name
        assert type(getattr(ours, name)) is type(getattr(true, name)), name
    assert ours.mean == pytest.approx(true.mean) and ours.std == pytest.approx(true.std)


def test_stored_zeros_duplicates_and_nothing_stored_at_all_count_as_they_should_in_sparse_tensors() -> None:
    twice = torch.sparse_coo_tensor([[0, 0, 1]], [1.0, 2.0, 0.0], (4,), check_invariants=False)  # 3, 0, 0, 0
    assert measure(twice) == Stats(4, 0.75, pytest.approx(1.5), 0.0, 3.0, 3.0, zeros=3)
    assert measure(torch.zeros(3, 3).to_sparse()) == Stats(9, 0.0, 0.0, 0.0, 0.0, 0.0, zeros=9)
    holes = torch.sparse_coo_tensor([[0, 1]], [math.nan, math.inf], (3,), check_invariants=False)
    assert measure(holes) == Stats(3, 0.0, 0.0, 0.0, 0.0, 0.0, nan=1, posinf=1, zeros=1)


def test_a_block_sparse_and_a_hybrid_tensor_are_measured_whole() -> None:
    dense = torch.zeros(4, 4)
    dense[:2, :2] = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    for tensor in (dense.to_sparse_bsr((2, 2)), dense.to_sparse_bsc((2, 2)), dense.to_sparse(1)):
        ours, true = measure(tensor), measure(dense)
        assert (ours.count, ours.zeros, ours.min, ours.max) == (true.count, true.zeros, true.min, true.max)
        assert ours.mean == pytest.approx(true.mean) and ours.std == pytest.approx(true.std)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_measured_over_the_elements_there_are(layout) -> None:
    parts = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    assert measure(nested) == measure(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))


def test_a_quantised_tensor_is_measured_by_the_numbers_it_stands_for() -> None:
    numbers = torch.tensor([[0.0, 0.5], [1.0, -1.0]])
    whole = torch.quantize_per_tensor(numbers, 0.5, 4, torch.qint8)
    rows = torch.quantize_per_channel(numbers, torch.tensor([0.5, 1.0]), torch.tensor([0, 0]), 0, torch.qint8)
    assert measure(whole) == measure(rows) == measure(numbers)


def test_tensors_without_data_or_of_no_number_say_why_they_cannot_be_measured() -> None:
    with pytest.raises(Unmeasurable, match="a meta tensor has no data"):
        measure(torch.ones(2, device="meta"))
    with pytest.raises(Unmeasurable, match="bits8 has no arithmetic"):
        measure(torch.zeros(2, dtype=torch.uint8).view(torch.bits8))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX])
def test_empty_tensors_have_no_numbers_and_one_element_has_no_spread(dtype) -> None:
    for shape in ((0,), (3, 0, 2)):
        assert measure(torch.empty(shape, dtype=dtype)) == Stats(0, None, None, None, None, None)
    for one in (torch.ones((), dtype=torch.float32).to(dtype), torch.ones(1, 1).to(dtype)):
        found = measure(one)
        assert (found.count, found.mean, found.std, found.absmax) == (1, 1, 0.0, 1)


def test_measuring_leaves_the_tensor_and_the_random_numbers_alone() -> None:
    tensor = torch.nn.Parameter(torch.randn(300, 300))
    before, version, state = tensor.detach().clone(), tensor._version, torch.get_rng_state()
    measure(tensor)
    assert torch.equal(tensor, before) and tensor._version == version
    assert torch.equal(torch.get_rng_state(), state)


# Pooled ------------------------------------------------------------------------------------------


@given(st.lists(tensors([torch.float32, torch.float64, torch.int64, torch.bool]), max_size=5))
@settings(max_examples=examples(75, 150), deadline=None)
def test_pooled_statistics_are_those_of_all_elements_together(parts) -> None:
    true = exact([float(x) if part.dtype in FLOATS else int(x) for part in parts for x in listed(part)])
    ours = pooled([measure(part) for part in parts])
    for name in ("count", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"):
        assert getattr(ours, name) == getattr(true, name), name
    if true.mean is None:
        assert ours.mean is ours.std is None
    elif true.absmax < 1e307:  # beyond, sums of two leave float64
        step = 5e-324  # from one float64 to the next near zero, where a part of the largest is less than any number
        assert abs(ours.mean - true.mean) <= 32 * 2.0**-23 * true.absmax + step
        assert abs(ours.std - true.std) <= 2.0**-20 * true.absmax + step


def test_pooled_complex_statistics_have_no_extremes_and_the_spread_of_all() -> None:
    z = torch.tensor([1 + 1j, 2 - 1j, 0j, -3 + 2j], dtype=torch.complex128)
    ours, true = pooled([measure(z[:1]), measure(z[1:])]), measure(z)
    assert (ours.min, ours.max, ours.count, ours.zeros) == (None, None, 4, 1)
    assert ours.mean == pytest.approx(true.mean) and ours.std == pytest.approx(true.std)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_of_both_signs_in_several_rows_have_the_extremes_that_torch_gives(dtype):
    for numbers in itertools.product([0.0, -0.0, 1.0], repeat=4):
        whole = torch.full((2, 3), 9.0, dtype=dtype)
        whole[:, 1:] = torch.tensor(numbers).view(2, 2)
        rows = whole[:, 1:]
        assert repr(measure(rows)) == repr(measure(rows.clone())), numbers


def test_rows_are_measured_like_their_elements_one_after_the_other():
    torch.manual_seed(0)
    for rows, count in ((2, 384), (16, 5), (3, 1000)):
        whole = torch.randn(rows, count + 7) * 3 + 1
        part = whole[:, 2 : count + 2]
        assert measure(part) == measure(part.clone())


class Shows(torch.nn.Module):
    """Has a module that is given what is to be seen in the trace."""

    def __init__(self):
        super().__init__()
        self.same = torch.nn.Identity()


def test_the_same_memory_with_versions_of_its_own_is_measured_anew():
    class Model(Shows):
        def forward(self, x):
            y = torch.arange(4.0)
            self.same(y)
            y.add_(5)
            self.same(y.data)
            copy = torch._lazy_clone(x)
            self.same(copy)
            copy.add_(1)
            self.same(copy.data)
            for _ in range(3):
                self.same(y.data)
                y.add_(1)
            return y

    for graph in (False, True):
        trace = fx_debug(Model(), torch.arange(4.0), graph=graph)
        means = [call.outputs.item.stats.mean for call in trace.calls if call.path == "same"]
        assert means == [1.5, 6.5, 1.5, 2.5, 6.5, 7.5, 8.5]


def test_a_wrapper_of_torchs_that_lies_nowhere_is_not_read():
    class Model(Shows):
        def forward(self, x):
            self.same(torch._to_functional_tensor(x))
            return x

    trace = fx_debug(Model(), torch.ones(3))
    assert trace.calls[1].outputs.item.stats is None and trace.calls[1].outputs.item.shape == (3,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(FEW + 1,), (3, 4099), (2, 3, 64, 65), (BLOCK,), (8, BLOCK // 8)])
def test_a_tensor_in_one_piece_has_the_statistics_of_its_flat_elements_to_the_last_bit(shape, dtype):
    usual = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    is_first = torch.arange(usual.numel()).view(shape) == 0
    kinds = [
        usual, usual * 1e-3 + 5, usual * 1e30, usual * 1e-30, torch.relu(usual), -torch.zeros(shape, dtype=dtype),
        usual.where(~is_first, torch.nan), usual.where(~is_first, -torch.inf), torch.full(shape, 0.1, dtype=dtype),
    ]  # fmt: skip
    with torch.no_grad(), dispatch.using(None), np.errstate(all="raise"):
        for tensor in kinds:
            assert is_one_piece(dtype, tensor.numel())
            assert repr(measure_piece(tensor, tensor.data_ptr())) == repr(measure(tensor))


@pytest.mark.parametrize(
    "elements",
    [[100.0, 101.0], [1e-18, -1e-18], [1e18, -1e18], [1.0]],
    ids=["a mean beyond the spread", "squares too small", "squares too large", "one element"],
)
def test_a_fine_std_is_not_given_where_its_last_digits_depend_on_the_method(elements: list[float]) -> None:
    tensor = torch.tensor(elements)
    assert fine_std(tensor, measure(tensor)) is None


@pytest.mark.parametrize("count", [1, 64, 65])
def test_integers_are_exact_at_any_number_of_them(count: int) -> None:
    tensor = torch.arange(count) * 3 - 7
    stats = measure(tensor)
    assert (stats.count, stats.min, stats.max) == (count, -7, count * 3 - 10)
    assert stats.mean == sum(tensor.tolist()) / count
