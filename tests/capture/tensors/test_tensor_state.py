"""The state of a tensor is what torch says, whatever modes are on, and none of them notices the questions."""

from __future__ import annotations

import dataclasses
import sys
import threading
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.tape import tape_mode
from fxdebug.capture.tensors import value_table
from fxdebug.capture.tensors.tensor_state import is_unmoved, state_of
from fxdebug.capture.tensors.value_table import ValueTable, ignore_note
from fxdebug.capture.torch_state.untracked import is_unobserved, no_modes_active, untracked
from support import sweep
from zoo import zoo_sample


def facts(tensor: torch.Tensor) -> tuple:
    """What torch says."""
    with untracked():
        memory = tensor.untyped_storage()
        shape, stride, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        device, address, version = str(tensor.device), tensor.data_ptr(), tensor._version
        return shape, stride, offset, tensor.dtype, device, memory._cdata, address, version


def read_state(tensor: torch.Tensor) -> tuple | None:
    """What the state holds: the first tensor of its kind makes the layout, the others share it."""
    with untracked():
        state = state_of(tensor)
        assert state_of(tensor) == state
    if state is None:
        return None
    layout, *rest = state
    return layout.shape, layout.stride, layout.offset, layout.torch_dtype, layout.device, *rest


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn]
SHAPES = [(), (1,), (7,), (2, 3), (3, 1, 4), (1, 2, 3, 4), (2, 1, 2, 1, 2)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_state_of_a_tensor_is_what_torch_says(dtype, shape):
    whole = torch.zeros(shape, dtype=dtype)
    views = [whole, whole.view(-1), whole.reshape(-1)[-1:], whole.expand(2, *shape)[:1]]
    if len(shape) > 1:
        views += [whole.transpose(0, 1), whole[..., -1:], whole[:, ::2]]
    for view in views:
        assert read_state(view) == facts(view)
        parameter = nn.Parameter(view, requires_grad=False)
        assert read_state(parameter) == facts(parameter)


def test_a_value_knows_whether_it_requires_gradients():
    table = ValueTable({}, None, ignore_note)
    leaf, plain = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with torch.no_grad():
        unrecorded = [leaf[0], leaf.T, leaf * 2, leaf.view(-1)[1:], plain[0], plain.T[1:]]
    view = plain.clone()[0]
    tensors = [leaf, leaf * 2, leaf[0], leaf.T[1:], leaf.detach(), leaf.detach()[0], plain[0], view, *unrecorded]
    base = torch.ones(2, 3)
    part = base[0]
    base.mul_(leaf)  # what is written into the whole, the part depends on
    for tensor in [*tensors, nn.Parameter(plain), nn.Parameter(plain, requires_grad=False), base, part]:
        with untracked():
            value = table.value_of(tensor)
        assert value.requires_grad is tensor.requires_grad
    assert part.requires_grad


def _set(x):
    x.set_(torch.arange(8.0).untyped_storage(), 1, (2, 2), (2, 1))


def _data(x):
    x.data = torch.zeros(5, dtype=torch.float64)


def _transposed_data(x):
    x.data = x.data.t()


def _other_type(x):
    x.data = x.data.view(torch.int32)


CHANGES = {
    "written to": lambda x: x.add_(1),
    "resized": lambda x: x.resize_(3, 2, 2),
    "set to other memory": _set,
    "given other data": _data,
    "given its own data, transposed": _transposed_data,
    "given its own bytes as another type": _other_type,
    "transposed in place": lambda x: x.t_(),
    "squeezed in place": lambda x: x.unsqueeze_(0),
    "made to require gradients": lambda x: x.requires_grad_(),
    "strided anew": lambda x: x.as_strided_((2,), (3,), 1),
    "swapped": lambda x: torch.utils.swap_tensors(x, torch.zeros(4, 4)[1:]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_state_follows_changes_of_a_tensor(change):
    tensor = torch.arange(9.0).view(3, 3).clone()
    assert read_state(tensor) == facts(tensor)
    before = state_of(tensor)
    assert is_unmoved(before, tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CHANGES[change](tensor)
    assert read_state(tensor) == facts(tensor)
    is_the_same = is_unmoved(before, tensor) and tensor._version == before.version
    assert is_the_same is (change == "made to require gradients")


@pytest.mark.parametrize("left", [0, 8], ids=["all of it", "a part"])
def test_memory_that_was_given_back_is_not_plain_any_more_and_where_it_was(left):
    tensor = torch.ones(4)
    before = state_of(tensor)
    assert before is not None
    tensor.untyped_storage().resize_(left)
    with untracked():
        assert state_of(tensor) is None and is_unmoved(before, tensor)


class Own(torch.Tensor):
    pass


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


OTHERS = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "meta": lambda: torch.ones(2, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "fake": _fake,
    "of a class of its own": lambda: torch.ones(2).as_subclass(Own),
    "without elements": lambda: torch.ones(0, 3),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_that_is_not_plain_has_no_state(kind):
    tensor = OTHERS[kind]()
    for _ in range(2):
        with untracked():
            assert state_of(tensor) is None


def test_an_inference_tensor_has_no_version():
    with torch.inference_mode():
        tensor = torch.ones(2, 3)
    with untracked():
        seen = state_of(tensor)
    assert seen is not None and seen.version is None and seen.address == tensor.data_ptr()


def test_a_tensor_inside_a_transform_is_not_plain_and_a_conjugate_lies_nowhere():
    found = []

    def look(x: torch.Tensor) -> torch.Tensor:
        with untracked():
            found.append(state_of(x))
        return x * 2

    torch.vmap(look)(torch.ones(2, 3))
    torch.func.grad(lambda x: look(x).sum())(torch.ones(3))
    assert found == [None, None]
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    for tensor in (conjugate, conjugate.imag):
        seen = state_of(tensor)
        assert seen is not None and seen.layout.dims is None
    assert state_of(conjugate.resolve_conj()).layout is not state_of(conjugate).layout


# States of torch -----------------------------------------------------------------------------------


heard: list[object] = []


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        heard.append(func)
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        heard.append(func)
        return func(*args, **(kwargs or {}))


class Level:
    def __enter__(self) -> None:
        torch._C._functorch._grad_increment_nesting()

    def __exit__(self, *error: object) -> None:
        torch._C._functorch._grad_decrement_nesting()


BLOCKS = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "function mode": Functions,
    "dispatch mode": Dispatches,
    "transform": Level,
    "aside": untracked,
    "subclasses unheard": torch._C.DisableTorchFunctionSubclass,
}


@pytest.mark.parametrize("outer", BLOCKS)
@pytest.mark.parametrize("inner", BLOCKS)
def test_a_thread_is_unobserved_only_where_no_mode_notices_its_operations(outer, inner):
    leaf = torch.ones(2, 3, requires_grad=True)
    with BLOCKS[outer](), BLOCKS[inner]():
        quiet = is_unobserved()
        heard.clear()
        result = leaf * 2
        known = bool(heard) or result.requires_grad or "transform" in (outer, inner)
    assert not (quiet and known)
    if {outer, inner} <= {"no_grad", "inference", "autocast", "aside"}:
        assert quiet is not known


@pytest.mark.parametrize("outer", BLOCKS)
@pytest.mark.parametrize("inner", BLOCKS)
def test_the_state_is_the_same_under_every_mode_and_no_mode_notices(outer, inner):
    tensor = torch.ones(2, 3).T
    said = facts(tensor)
    with BLOCKS[outer](), BLOCKS[inner]():
        heard.clear()
        assert read_state(tensor) == said
        assert heard == []


def test_each_thread_is_unobserved_by_itself():
    found: dict[str, bool] = {}

    def look(name: str) -> None:
        with BLOCKS[name]():
            barrier.wait()
            found[name] = is_unobserved()
            barrier.wait()

    names = ["no_grad", "inference", "autocast", "function mode", "enable_grad"]
    barrier = threading.Barrier(len(names))
    threads = [threading.Thread(target=look, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name for name, quiet in found.items() if quiet} == {"no_grad", "inference"}
    assert no_modes_active()


def test_a_tensor_that_threads_add_at_the_same_time_is_one_value():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = torch.randn(200_000)
                barrier = threading.Barrier(6)
                grad = torch.is_grad_enabled()

                def call(x: torch.Tensor = x, barrier: threading.Barrier = barrier, grad: bool = grad) -> None:
                    with torch.set_grad_enabled(grad):
                        barrier.wait()
                        self.same(x)

                threads = [threading.Thread(target=call) for _ in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            return x

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with torch.no_grad():
            trace = fx_debug(Model(), torch.ones(1), graph=False)
    finally:
        sys.setswitchinterval(before)
    given = [call.inputs.args[0].number for call in trace.calls if call.path == "same"]
    assert len(given) == 60 and len(set(given)) == 10


# Whole runs --------------------------------------------------------------------------------------


def recorded(build) -> tuple:
    """All that a trace says of a run, but for the time it took."""
    forget_templates()
    torch.manual_seed(0)
    model, inputs = build()
    try:
        trace = fx_debug(model, inputs)
    except Exception as error:
        return type(error).__name__, str(error)
    graphs = [(call.status, call.reason, call.code if call.status == "verified" else "") for call in trace.calls]
    return graphs, *map(whole, (trace.calls, trace.values, trace.parameters, trace.notes, trace.call_graphs))


def whole(thing) -> str:
    """A record with all that is in it: its own ``repr`` rounds and leaves out."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        names = [field.name for field in dataclasses.fields(thing) if field.name not in ("duration", "_links")]
        return f"{type(thing).__name__}({', '.join([f'{name}={whole(getattr(thing, name))}' for name in names])})"
    if isinstance(thing, (list, tuple)):
        return f"({', '.join(map(whole, thing))})"
    if isinstance(thing, dict):
        return f"{{{', '.join([f'{key!r}: {whole(held)}' for key, held in thing.items()])}}}"
    return repr(thing)


# Their results differ from run to run with the order of threads, or with what the memory of `torch.empty` held before.
OWN_WILL = ("call/threads", "call/thread", "call/created-in-forward", "call/registered-in-forward")
SLOW = ("scale/calls-3000", "scale/layers-500", "scale/wide-2000")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True], ids=["without gradients", "with gradients"])
def test_a_run_is_the_same_whether_or_not_facts_are_read_untracked(grad, monkeypatch):
    left_out = OWN_WILL if sweep.whole() else (*OWN_WILL, *SLOW)
    chosen = [(name, build) for name, build in zoo_sample.entries(whole=False) if not name.startswith(left_out)]
    if not sweep.whole():
        chosen = chosen[grad::6]  # others with gradients than without
    steady = 0
    with torch.set_grad_enabled(grad):
        for name, build in chosen:
            alone, again = recorded(build), recorded(build)
            with monkeypatch.context() as patched:  # as if something listened everywhere
                patched.setattr(tape_mode, "no_modes_active", lambda: False)
                patched.setattr(value_table, "is_unobserved", lambda: False)
                put_aside = recorded(build)
            if alone == again:
                steady += 1
                assert put_aside == alone, name
    assert steady > 0.9 * len(chosen) > 20
