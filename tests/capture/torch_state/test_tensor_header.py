"""What is read from the memory of tensors and threads is what torch says, and a run is the same without it."""

from __future__ import annotations

import dataclasses
import functools
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
from fxdebug.capture import glance, sight, thread_state
from fxdebug.capture.aside import aside, nothing_listens
from fxdebug.capture.context import context_now
from fxdebug.capture.explain import forget_patterns
from fxdebug.capture.traced import may_be_traced
from fxdebug.stats import machine
from zoo import zoo_sample

# The dev requirements have llvmlite and constraints.txt the version of torch that is known: elsewhere there is nothing
# to compare, and `test_a_run_is_the_same_without_it` says that nothing is missed.
needs_code = pytest.mark.skipif(
    glance.glance() is None or thread_state._places() is None,
    reason="no machine code for this torch, Python or processor: torch is asked everything",
)


def facts(tensor: torch.Tensor) -> tuple:
    """What torch says."""
    with aside():
        memory = tensor.untyped_storage()
        shape, stride, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
        address, version, requires = tensor.data_ptr(), tensor._version, tensor.requires_grad
        device, view = str(tensor.device), tensor._is_view()
        return shape, stride, offset, tensor.dtype, device, memory._cdata, address, version, requires, view


def glimpsed(tensor: torch.Tensor) -> tuple | None:
    """What is read, once torch was asked about the likes of it."""
    with aside():
        sight.sight_of(tensor)
    seen = sight.at_a_glance(tensor)
    if seen is None:
        return None
    form, *rest = seen
    return form.shape, form.stride, form.offset, form.kind, form.device, *rest


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn]
SHAPES = [(), (1,), (7,), (2, 3), (3, 1, 4), (1, 2, 3, 4), (2, 1, 2, 1, 2)]


@needs_code
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_glance_sees_what_torch_says(dtype, shape):
    whole = torch.zeros(shape, dtype=dtype)
    views = [whole, whole.view(-1), whole.reshape(-1)[-1:], whole.expand(2, *shape)[:1] if len(shape) < 5 else whole]
    if len(shape) > 1:
        views += [whole.transpose(0, 1), whole[..., -1:], whole[:, ::2]]
    for view in views:
        assert glimpsed(view) == facts(view)
        assert glimpsed(nn.Parameter(view, requires_grad=False)) is not None


@needs_code
def test_a_glance_knows_who_requires_gradients():
    leaf, plain = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with torch.no_grad():
        unrecorded = [leaf[0], leaf.T, leaf * 2, leaf.view(-1)[1:], plain[0], plain.T[1:]]
    view = plain.clone()[0]
    tensors = [leaf, leaf * 2, leaf[0], leaf.T[1:], leaf.detach(), leaf.detach()[0], plain[0], view, *unrecorded]
    for tensor in [*tensors, nn.Parameter(plain), nn.Parameter(plain, requires_grad=False)]:
        assert glimpsed(tensor) == facts(tensor)
    base = torch.ones(2, 3)
    part = base[0]
    base.mul_(leaf)  # what is written into the whole, the part depends on
    assert facts(part)[-2] and glimpsed(part) == facts(part)


def _set(x):
    x.set_(torch.arange(8.0).untyped_storage(), 1, (2, 2), (2, 1))


def _data(x):
    x.data = torch.zeros(5, dtype=torch.float64)


CHANGES = {
    "written to": lambda x: x.add_(1),
    "resized": lambda x: x.resize_(3, 2, 2),
    "set to other memory": _set,
    "given other data": _data,
    "transposed in place": lambda x: x.t_(),
    "squeezed in place": lambda x: x.unsqueeze_(0),
    "made to require gradients": lambda x: x.requires_grad_(),
    "strided anew": lambda x: x.as_strided_((2,), (3,), 1),
    "swapped": lambda x: torch.utils.swap_tensors(x, torch.zeros(4, 4)[1:]),
}


@needs_code
@pytest.mark.parametrize("change", CHANGES)
def test_a_glance_follows_what_becomes_of_a_tensor(change):
    tensor = torch.ones(2, 3)
    assert glimpsed(tensor) == facts(tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CHANGES[change](tensor)
    assert glimpsed(tensor) == facts(tensor)


@needs_code
@pytest.mark.parametrize("left", [0, 8], ids=["all of it", "a part"])
def test_memory_that_was_given_back_is_not_plain_any_more(left):
    tensor = torch.ones(4)
    assert glimpsed(tensor) is not None
    tensor.untyped_storage().resize_(left)
    assert sight.at_a_glance(tensor) is None
    with aside():
        assert sight.sight_of(tensor) is None


class Own(torch.Tensor):
    pass


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


OTHERS = {
    "six dimensions": lambda: torch.ones(1, 1, 1, 1, 1, 1),
    "inference": _inference,
    "sparse": lambda: torch.eye(2).to_sparse(),
    "meta": lambda: torch.ones(2, device="meta"),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "fake": _fake,
    "of a class of its own": lambda: torch.ones(2).as_subclass(Own),
    "without elements": lambda: torch.ones(0, 3),
}


@needs_code
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_torch_is_asked_about_what_is_not_plain(kind):
    tensor = OTHERS[kind]()
    assert sight.at_a_glance(tensor) is None
    glimpsed(tensor)
    assert sight.at_a_glance(tensor) is None


@needs_code
def test_a_tensor_inside_a_transform_is_not_plain_and_a_conjugate_lies_nowhere():
    found = []

    def looked_at(x: torch.Tensor) -> torch.Tensor:
        found.append(sight.at_a_glance(x))
        return x * 2

    torch.vmap(looked_at)(torch.ones(2, 3))
    torch.func.grad(lambda x: looked_at(x).sum())(torch.ones(3))
    assert found == [None, None]
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    for tensor in (conjugate, conjugate.imag):
        glimpsed(tensor)
        seen = sight.at_a_glance(tensor)
        assert seen is not None and seen.form.dims is None
    assert sight.at_a_glance(conjugate.resolve_conj()) != sight.at_a_glance(conjugate)


# Threads -----------------------------------------------------------------------------------------


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
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
    "aside": aside,
    "subclasses unheard": torch._C.DisableTorchFunctionSubclass,
}


def now() -> tuple:
    """What torch says."""
    context = context_now()
    functions, dispatches = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack() > 0
    return context, not context[0] and nothing_listens(), functions, dispatches, may_be_traced()


@pytest.mark.parametrize("outer", BLOCKS)
@pytest.mark.parametrize("inner", BLOCKS)
def test_the_state_of_a_thread_is_what_torch_says(outer, inner):
    for _ in range(2):  # asked, then remembered
        assert tuple(thread_state.thread_state()) == now()
        with BLOCKS[outer]():
            assert tuple(thread_state.thread_state()) == now()
            with BLOCKS[inner]():
                assert tuple(thread_state.thread_state()) == now()
            assert tuple(thread_state.thread_state()) == now()
    assert tuple(thread_state.thread_state()) == now()


def test_each_thread_has_a_state_of_its_own():
    found: dict[str, tuple] = {}

    def look(name: str) -> None:
        with BLOCKS[name]():
            barrier.wait()
            found[name] = tuple(thread_state.thread_state()), now()
            barrier.wait()

    names = ["no_grad", "inference", "autocast", "function mode", "enable_grad"]
    barrier = threading.Barrier(len(names))
    for _ in range(3):  # the memory of threads that have ended is used again
        threads = [threading.Thread(target=look, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(seen == said for seen, said in found.values())
    assert len({seen for seen, _ in found.values()}) == len(names)


@needs_code
@pytest.mark.parametrize("outer", BLOCKS)
def test_the_state_of_threads_is_read_wherever_the_first_run_is(outer):
    thread_state._places.cache_clear()
    with BLOCKS[outer]():
        assert thread_state._places() is not None


@needs_code
def test_a_thread_that_ends_leaves_nothing():
    def look() -> None:
        assert thread_state.thread_state().functions == 0

    def made() -> int:
        places = thread_state._places()
        return len(machine._kept) + len(places._engine._definitions)

    before = made()
    for _ in range(20):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert made() == before


def test_a_tensor_that_threads_meet_at_once_is_one_value():
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


# Without it --------------------------------------------------------------------------------------


def blind(monkeypatch):
    """As on a machine without llvmlite, or with another version of torch."""
    monkeypatch.setattr(sight, "_look", sight._blind)
    monkeypatch.setattr(thread_state, "_here", thread_state._Here())
    monkeypatch.setattr(thread_state, "_places", lambda: None)


def recorded(build) -> tuple:
    """All that a trace says of a run, but for the time it took."""
    forget_patterns()
    torch.manual_seed(0)
    model, inputs = build()
    try:
        trace = fx_debug(model, inputs)
    except Exception as error:
        return type(error).__name__, str(error)
    graphs = [(call.status, call.reason, call.code if call.status == "verified" else "") for call in trace.calls]
    return graphs, *map(whole, (trace.calls, trace.values, trace.parameters, trace.notes, trace.explanation))


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True], ids=["without gradients", "with gradients"])
def test_a_run_is_the_same_without_it(grad, monkeypatch):
    chosen = [(name, build) for name, build in zoo_sample.entries(whole=False) if not name.startswith(OWN_WILL)]
    steady = 0
    with torch.set_grad_enabled(grad):
        for name, build in chosen:
            seen, again = recorded(build), recorded(build)
            with monkeypatch.context() as patched:
                blind(patched)
                unseen = recorded(build)
            if seen == again:
                steady += 1
                assert unseen == seen, name
    assert steady > 0.9 * len(chosen) > 50


def test_the_memory_of_another_version_of_torch_is_not_read(monkeypatch):
    for cached in (glance.glance, thread_state._places):
        cached.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(glance, "VERSIONS", ("0.0.",))
        assert glance.glance() is None and thread_state._places() is None
    for cached in (glance.glance, thread_state._places):
        cached.cache_clear()
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "llvmlite", None)
        assert glance.glance() is None and thread_state._places() is None
    for cached in (glance.glance, thread_state._places):
        cached.cache_clear()


@needs_code
def test_code_that_finds_other_things_than_torch_says_is_not_used():
    true = glance.glance()
    assert true is not None

    def shifted(by: int, place: int, tensor: torch.Tensor):
        seen = true(tensor)
        return seen and (*seen[:place], seen[place] + by, *seen[place + 1 :])

    assert glance._tells_the_truth(true)
    for place in (1, 2, 3, 4):
        assert not glance._tells_the_truth(functools.partial(shifted, 8, place))
    assert not glance._tells_the_truth(lambda tensor: (seen := true(tensor)) and (b"x" * len(seen[0]), *seen[1:]))
    assert not glance._tells_the_truth(lambda tensor: None)
    assert not thread_state._tells_the_truth(lambda: b"always the same")
    assert not thread_state._tells_the_truth(functools.partial(next, map(str.encode, map(str, range(100)))))
