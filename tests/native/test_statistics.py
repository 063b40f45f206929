"""The core's statistics against every code of 16 bits and exact arithmetic; what it leaves to Python; threads."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from fxdebug.data.values import Stats
from fxdebug.native import dispatch
from fxdebug.stats.measure import measure
from support.begun import ran
from support.measured import assert_close, exact

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.fixture
def native(native_core) -> Callable[[torch.Tensor], Any]:
    """The core's own function: ``NotImplemented`` where Python measures."""
    return native_core.statistics(Stats)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number_of_16_bits_is_read_as_what_it_is(dtype, native):
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    for one, number in zip(numbers, numbers.tolist()):
        found = native(one)
        if math.isfinite(number):
            same = Stats(1, number, 0.0, number, number, abs(number), zeros=int(number == 0))
            assert found == same and math.copysign(1, found.min) == math.copysign(1, number), number
        else:
            counts = (int(number != number), int(number == math.inf), int(number == -math.inf))
            assert found == Stats(1, None, None, None, None, None, *counts), number


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 65, 1000, 32767, 32769])
def test_floats_are_measured_to_the_last_element_and_no_further(dtype, count, native):
    r = torch.Generator().manual_seed(count)
    for kind in (torch.randn(count + 8, generator=r), torch.rand(count + 8, generator=r) + 1, -torch.rand(count + 8)):
        numbers = kind.to(dtype)
        numbers[count:] = math.nan
        numbers[count // 2] = 3.0
        assert_close(native(numbers[:count]), exact(numbers[:count].tolist()), 2.0**-40)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_not_finite_is_counted_and_the_rest_measured(dtype, native):
    for place in (0, 31, 32, 70):
        for number in (math.nan, math.inf, -math.inf):
            numbers = torch.arange(71).to(dtype) - 20.5
            numbers[place], numbers[5] = number, math.inf
            assert_close(native(numbers), exact(numbers.tolist()), 2.0**-40)
    assert native(torch.full((3,), math.inf, dtype=dtype)) == Stats(3, None, None, None, None, None, posinf=3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_mean_much_larger_than_the_spread_leaves_the_spread_its_digits(dtype, native):
    near = torch.full((40_000,), 1024.0)
    near[::3] += 8
    assert_close(native(near.to(dtype)), exact(near.tolist()), 2.0**-40)
    near[7] = math.nan
    assert_close(native(near.to(dtype)), exact(near.tolist()), 2.0**-40)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("count", [1, 5, 64, 65, 1000, 40_000])
def test_integers_are_added_up_exactly(dtype, count, native):
    numbers = torch.randint(-100, 100, (count,), generator=torch.Generator().manual_seed(count)).to(dtype)
    found, expected = native(numbers), exact([int(x) for x in numbers.tolist()])
    with dispatch.using(None):
        in_python = measure(numbers)
    assert_close(found, expected, 2.0**-52)
    assert_close(in_python, expected, 2.0**-52)
    assert replace(found, std=in_python.std) == in_python  # builds of torch round squares differently


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.transpose(0, 2),
    "a part of each row": lambda x: x[:, :, 1:4],
    "every other": lambda x: x[::2, :, ::3],
    "repeated": lambda x: x[:, :1].expand(-1, 5, -1),
    "repeated and cut": lambda x: x[:, :1, 2:].expand(-1, 5, -1).transpose(1, 2),
    "overlapping": lambda x: x.as_strided((5, 6), (2, 1)),
    "one element": lambda x: x[1, 2, 3],
    "a parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8], ids=str)
def test_every_layout_is_measured_as_the_elements_it_shows(layout, dtype, native):
    x = torch.arange(4 * 6 * 7).view(4, 6, 7).to(dtype)
    view = LAYOUTS[layout](x)
    elements = view.reshape(-1).tolist()
    assert_close(native(view), exact(elements), 2.0**-40)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_of_one_sign_keep_it(dtype, native):
    for numbers in ([0.0, 0.0], [-0.0, -0.0], [0.0, -1.0, 0.0], [-0.0, 1.0, -0.0], [0.0, -1.0, 0.0, math.inf]):
        tensor = torch.tensor(numbers, dtype=dtype)
        found = native(tensor)
        with dispatch.using(None):
            in_python = measure(tensor)
        for name in ("min", "max", "absmax", "zeros", "posinf"):
            assert repr(getattr(found, name)) == repr(getattr(in_python, name)), (numbers, name)
        assert found.mean == pytest.approx(in_python.mean, rel=1e-6)


def test_a_large_part_of_each_row_is_measured_whole(native):
    x = torch.randn(300, 401, generator=torch.Generator().manual_seed(1))
    assert native(x[:, :400]) == native(x[:, :400].clone())


class Own(torch.Tensor):
    """A subclass: its rules are its own."""


LEFT = {
    "a subclass": lambda: torch.ones(3).as_subclass(Own),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "without data": lambda: torch.ones(3, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 4, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "a negated view": lambda: torch.tensor([1 + 2j]).conj().imag,
    "empty": lambda: torch.ones(0),
    "zeros of both signs": lambda: torch.tensor([0.0, -0.0]),
    "squares beyond float64": lambda: torch.tensor([1e200, 1.0], dtype=torch.float64),
    "integers beyond float64": lambda: torch.tensor([2**60, 1]),
    "a copy not made yet": lambda: torch._lazy_clone(torch.ones(3)),
    "freed": lambda: freed(),
    "no tensor": lambda: 3,
}


def freed() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", LEFT)
def test_what_is_special_is_left_to_python(kind, native):
    assert native(LEFT[kind]()) is NotImplemented


def test_inside_vmap_nothing_is_read(native):
    seen = []
    torch.vmap(lambda x: (seen.append(native(x)), x)[1])(torch.ones(2, 3))
    assert seen == [NotImplemented]


def test_inference_tensors_and_those_with_gradients_are_measured(native):
    with torch.inference_mode():
        assert native(torch.arange(4.0)).mean == 1.5
    assert native(torch.arange(4.0, requires_grad=True) * 1).mean == 1.5


def test_the_result_does_not_depend_on_the_number_of_threads(native):
    x = torch.randn(1_000_003, generator=torch.Generator().manual_seed(2)) + 0.1
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append((native(x), native(x.bfloat16()), native(x[::2]), native((x * 100).int())))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_other_threads_of_python_run_while_a_large_tensor_is_read(native):
    tensors = [torch.full((500_000,), float(number)) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert [stats.mean for stats in pool.map(native, tensors * 3)] == [float(number) for number in range(8)] * 3
    assert native(torch.arange(100.0)) == measure(torch.arange(100.0))


FREES = """
import sys, threading, time, torch
from fxdebug.data.values import Stats
from fxdebug.native import core
module = core.loaded().module
statistics, checksum = module.statistics(Stats), module.checksum()
base = torch.ones(3, 1 << 21)
storage, reads = base.untyped_storage(), []
size = storage.nbytes()
sys.setswitchinterval(60)  # threads change where one gives up the lock

def free():
    while not reads:
        time.sleep(0)
    storage.resize_(0)

for native, given in [
    (statistics, lambda: (base,)),
    (statistics, lambda: (base[:, 1:],)),  # not in one piece
    (checksum, lambda: (base.data_ptr(), size)),
]:
    storage.resize_(size)
    base.fill_(1.0)
    reads.clear()
    thread = threading.Thread(target=free)
    thread.start()
    time.sleep(0.01)
    arguments = given()
    reads.append(True)
    found = native(*arguments)
    thread.join()
    assert found is NotImplemented or type(found) in (Stats, bytes), found
"""


def test_memory_that_another_thread_frees_is_read_no_further(native):
    """In a process of its own: reading on would end it."""
    done = ran([sys.executable, "-c", FREES])
    assert (done.returncode, done.stderr) == (0, "")


def test_modes_of_the_program_see_nothing_of_it(native):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Loud(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            raise AssertionError(f"{function} was called")

    x, before = torch.arange(200_000.0), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for mode in (Loud(), FakeTensorMode(), torch.device("meta"), torch.inference_mode()):
            with mode:
                assert native(x).mean == 99_999.5
    finally:
        torch.set_num_threads(before)
