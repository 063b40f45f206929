"""Features of PyTorch besides calling layers: for each, the resulting statuses, reasons and graph.

``watched`` holds every run against an untraced one and executes every verified graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations, parametrize, weight_norm
from torch.utils.checkpoint import checkpoint

import fxdebug
from fxdebug.capture.torch_state import internals
from support.reasons import guards_of, reason_of
from support.watched import Layer, Watched, watched

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's deprecations


def see(kind: type[nn.Module], *inputs: Any, train: bool = False, **options: Any) -> Watched:
    return watched(lambda: (kind().train(train), inputs or torch.randn(3, 8)), **options)


def ops(call: fxdebug.Call) -> list[str]:
    assert call.graph is not None
    return [op.op for op in call.graph.ops if op.kind not in ("placeholder", "output")]


def told(call: fxdebug.Call) -> tuple[str | None, str, str]:
    return (call.status, *reason_of(call))


def backward(model: nn.Module, output: Any) -> dict[str, Any]:
    output.sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


GRADIENT = "a tensor's requires_grad changed outside the recorded operations, as in a custom autograd function"

# Blocks -------------------------------------------------------------------------------------------------------------


def test_operations_in_a_no_grad_block_have_its_gradient_mode() -> None:
    class Block(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                scale = self.l(x).sum()
            return self.l(x) * scale

    seen = see(Block, grad=True, after=backward)
    assert told(seen.root) == ("verified", "", "")
    assert seen.root.graph is not None
    assert [(op.op, op.grad) for op in seen.root.graph.ops if op.op != "set_grad_enabled"][1:-1] == [
        ("Linear", False), ("sum", False), ("Linear", True), ("mul", True),
    ]  # fmt: skip


def test_operations_in_an_autocast_block_have_its_state() -> None:
    class Block(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.l(x) @ self.l.weight
            with torch.autocast("cpu", enabled=False):
                return y.float() + 1

    seen = see(Block)
    assert told(seen.root) == ("verified", "", "")
    assert seen.root.graph is not None
    shown = ("Linear", "matmul", "float", "add")
    assert [(op.op, op.autocast) for op in seen.root.graph.ops if op.op in shown] == [
        ("Linear", "cpu bfloat16"), ("matmul", "cpu bfloat16"), ("float", None), ("add", None),
    ]  # fmt: skip


@pytest.mark.parametrize("around", [lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode])
def test_a_whole_run_under_autocast_or_inference_mode_is_verified(around: Any) -> None:
    class Plain(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.l(x)) + 1

    assert set(see(Plain, around=around).statuses().values()) == {"verified"}


def test_an_inference_mode_block_in_forward() -> None:
    class Block(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                y = self.l(x) * 2
            return y.clone()

    assert told(see(Block).root) == ("verified", "", "")


SETTINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "set_default_dtype": lambda: float64_by_default(),
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    "set_mkldnn_enabled": lambda: torch.backends.mkldnn.flags(enabled=False),
}


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_block_with_another_setting_of_torch_is_recorded_as_no_graph_has_it(name: str) -> None:
    class Sets(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with SETTINGS[name]():
                return self.l(x) + torch.ones(8)

    seen = see(Sets)
    assert (seen.root.status, reason_of(seen.root)[0]) == ("recorded", f"it changes a setting of torch's ({name})")


KERNELS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "one": lambda: sdpa_kernel(SDPBackend.MATH),
    "several": lambda: sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]),
    "the older function": lambda: torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_block_that_chooses_the_kernel_of_attention_is_in_the_graph(name: str) -> None:
    class Chooses(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = self.l(x).view(1, 1, 3, 8)
            with KERNELS[name]():
                y = F.scaled_dot_product_attention(q, q * 2, q)
            return F.scaled_dot_product_attention(y, q, q)

    seen = see(Chooses)
    assert told(seen.root) == ("verified", "", "")
    assert seen.root.graph is not None
    shown = [
        op.op for op in seen.root.graph.ops if op.op in ("enter_attention_kernels", "leave_block") or "dot" in op.op
    ]
    attention = "scaled_dot_product_attention"
    assert shown == ["enter_attention_kernels", attention, "leave_block", attention]
    other = torch.randn(3, 8)
    before = internals.attention_kernels()
    with torch.no_grad():
        assert torch.equal(seen.root.fx(other), seen.model(other))
    assert internals.attention_kernels() == before


def test_a_body_that_leaves_another_kernel_chosen_does_more_than_its_graph() -> None:
    class Leaves(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.backends.cuda.enable_flash_sdp(False)
            return x * 2

    before = internals.attention_kernels()
    try:
        root = fxdebug.fx_debug(Leaves(), torch.ones(3, 8)).root
        torch.backends.cuda.enable_flash_sdp(True)
        with pytest.raises(fxdebug.UsageError, match="does not hold here"):
            root.fx(torch.ones(3, 8))
        assert internals.attention_kernels() == before
    finally:
        internals.set_attention_kernels(before)


def test_a_kernel_that_the_caller_of_the_run_chose_is_no_part_of_the_graph() -> None:
    class Attends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.view(1, 1, 3, 8)
            return F.scaled_dot_product_attention(q, q, q)

    seen = see(Attends, around=lambda: sdpa_kernel(SDPBackend.MATH))
    assert told(seen.root) == ("verified", "", "")
    assert ops(seen.root) == ["view", "scaled_dot_product_attention"]


def test_a_block_with_another_device_is_in_the_arguments_of_its_operations() -> None:
    class Elsewhere(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.device("meta"):
                shaped = torch.empty(3, 8)
            return self.l(x) + torch.zeros_like(shaped, device="cpu")

    assert told(see(Elsewhere).root) == ("verified", "", "")


# Training -----------------------------------------------------------------------------------------------------------


def test_dropout_and_batch_norm_in_training() -> None:
    class Trains(Layer):
        def setup(self) -> None:
            self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(self.drop(self.norm(self.l(x))), 0.3, self.training)

    seen = see(Trains, train=True, grad=True, after=backward)
    assert seen.not_verified() == {}
    assert ops(seen.root) == ["Linear", "BatchNorm1d", "Dropout", "dropout"]


def test_a_custom_autograd_function_is_inlined_and_recorded_with_gradients() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 5

    class Custom(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = Doubled.apply(self.l(x))
            return y + 1

    seen = see(Custom, grad=True, after=backward)
    assert told(seen.root) == ("recorded", f"{GRADIENT}, before this line", "return y + 1")
    assert ops(seen.root) == ["Linear", "set_grad_enabled", "mul", "set_grad_enabled", "add"]
    assert told(see(Custom).root) == ("verified", "", "")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    class Checkpoints(Layer):
        def setup(self) -> None:
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.block, self.l(x), use_reentrant=reentrant)

    seen = see(Checkpoints, train=True, grad=True, after=backward)
    saves_inputs = not reentrant and hasattr(torch.utils.checkpoint, "_NoopSaveInputs")  # torch 2.8
    if saves_inputs:  # its frame keeps a tensor that an autograd function made
        assert told(seen.root) == ("recorded", "the program keeps a tensor of it in a place of its own", "")
    elif reentrant:  # an autograd function of torch's own
        assert told(seen.root) == ("recorded", GRADIENT, "")
    else:
        assert told(seen.root) == ("verified", "", "")
    made = ["empty", "empty"] if saves_inputs else []
    assert [op for op in ops(seen.root) if op != "set_grad_enabled"] == ["Linear", *made, "Sequential"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_is_recomputed_for_a_gradient_that_a_forward_takes(reentrant: bool) -> None:
    class Recomputes(Layer):
        def setup(self) -> None:
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            v = x.detach().requires_grad_()
            energy = checkpoint(self.block, v, use_reentrant=reentrant).square().sum()
            if not reentrant:
                return x - torch.autograd.grad(energy, v)[0]
            energy.backward()
            return x - v.grad

    seen = see(Recomputes, grad=True)
    anew = [call for call in seen.trace.calls if call.status == "opaque"]
    assert [call.id for call in anew] == ["block#1", "block.0#1", "block.1#1", "block.2#1"]
    inside = "inside backward()" if reentrant else "inside grad()"
    assert {call.reason for call in anew} == {f"{inside}, which is one operation"}
    assert [call.status for call in seen.trace.calls if call.id.startswith("block") and call.number == 0] == [
        "verified"
    ] * 4


def test_requires_grad_that_changes_between_two_children_makes_their_caller_recorded() -> None:
    class Checkpoints(Layer):
        def setup(self) -> None:
            self.block, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.block, self.l(x), use_reentrant=True))

    seen = see(Checkpoints, grad=True, after=backward)
    assert seen.not_verified() == {"#0": f"recorded: {GRADIENT}"}


def test_forward_mode_gradients_are_recorded_as_their_level_is_open_only_then() -> None:
    class Dual(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with forward_ad.dual_level():
                tangent = forward_ad.unpack_dual(self.l(forward_ad.make_dual(x, x))).tangent
                return tangent + 1

    seen = see(Dual)
    assert told(seen.root)[:2] == ("recorded", "it computes inside a level of torch.autograd.forward_ad")


def test_gradients_that_a_forward_takes() -> None:
    class Grads(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                v = x.detach().requires_grad_()
                energy = self.l(v).square().sum()
                (g,) = torch.autograd.grad(energy, v)
            return x - g

    seen = see(Grads, not_alone=("#0",))
    assert told(seen.root) == ("verified", "", "")


def test_a_backward_in_forward() -> None:
    class Grads(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.l(x).sum().backward()
            return x + self.l.weight.grad

    assert told(see(Grads, torch.ones(8, 8), grad=True).root) == (
        "recorded",
        "a tensor can be changed unseen through backward()",
        "self.l(x).sum().backward()",
    )


# Memory -------------------------------------------------------------------------------------------------------------


def test_in_place_operations_and_views() -> None:
    class InPlace(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            view = y[:, :4]
            view.mul_(2)
            y[0] = 1.0
            y += 1
            y.t().clamp_(max=3)
            out = torch.empty(3, 8)
            torch.add(y, view.sum(), out=out)
            return out + view.mean()

    seen = see(InPlace)
    assert told(seen.root) == ("verified", "", "")
    written = [seen.root.graph.ops[place].op for place, _ in seen.root.body.writes]  # type: ignore[union-attr]
    assert list(dict.fromkeys(written)) == ["mul", "setitem", "add", "clamp"]


def test_an_argument_that_is_written_to() -> None:
    class Writes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return self.l(x)

    assert told(see(Writes).root) == ("verified", "", "")


@pytest.mark.parametrize("change", [lambda y: y.unsqueeze_(0), lambda y: y.t_(), lambda y: y.detach().resize_(2, 12)])
def test_an_in_place_change_of_shape_is_part_of_the_graph(change: Callable[[torch.Tensor], Any]) -> None:
    class Changes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            change(y)
            return y + 1

    assert told(see(Changes).root) == ("verified", "", "")


ESCAPES: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy()": lambda y: y.numpy().__imul__(2),
    "untyped_storage()": lambda y: y.untyped_storage().fill_(0),
    "data_ptr()": lambda y: y.data_ptr(),
    "__dlpack__()": lambda y: torch.from_dlpack(y).zero_(),
    "data = …": lambda y: setattr(y, "data", torch.ones(3, 8)),
    "apply_()": lambda y: y.apply_(lambda v: v * 2),
    "__array__()": lambda y: __import__("numpy").asarray(y).__imul__(2),
    "set_()": lambda y: y.set_(torch.ones(3, 8)),
    "__deepcopy__()": lambda y: __import__("copy").deepcopy(y),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_of_memory_is_recorded(name: str) -> None:
    class Escapes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x).detach()
            ESCAPES[name](y)
            return y + 1

    status, words, line = told(see(Escapes).root)
    assert (status, words) == ("recorded", f"a tensor can be changed unseen through {name}")
    assert f'"{name}"' in line


def test_writing_through_data_is_part_of_the_graph() -> None:
    class Writes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            y.data.mul_(2)
            return y + 1

    assert told(see(Writes).root) == ("verified", "", "")


def test_a_tensor_made_from_numpy_comes_from_outside() -> None:
    import numpy as np

    class Makes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) + torch.from_numpy(np.ones(8, dtype=np.float32))

    status, words, _ = told(see(Makes).root)
    assert (status, words) == (
        "recorded",
        "a tensor is passed that was not there when it ran: from outside, or made by no operation (from_numpy), in add",
    )


# Transforms and subclasses ------------------------------------------------------------------------------------------

TRANSFORM = "it computes inside torch.vmap or another transform of torch.func, in"


def test_a_call_with_vmap_is_recorded_and_its_caller_is_not() -> None:
    class Rows(Layer):
        def setup(self) -> None:
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.l(x))

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda row: row * row.sum())(x)

    seen = see(Rows)
    assert told(seen.call("inner"))[:2] == ("recorded", f"{TRANSFORM} sum")
    assert set(seen.not_verified()) == {"inner#0"}


@pytest.mark.parametrize("transform", ["grad", "jacrev", "jvp"])
def test_a_transform_of_torch_func(transform: str) -> None:
    class Differentiates(Layer):
        def forward(self, x: torch.Tensor) -> Any:
            def f(v: torch.Tensor) -> torch.Tensor:
                return self.l(v).square().sum()

            if transform == "jvp":
                return torch.func.jvp(f, (x,), (x,))
            return getattr(torch.func, transform)(f)(x)

    assert told(see(Differentiates).root)[0] == "recorded"


def test_a_tensor_subclass_that_is_returned_is_recorded_or_verified_with_the_same_class() -> None:
    seen = see(Layered)
    assert type(seen.trace.output) is Tagged
    assert seen.root.status in ("verified", "recorded")


class Tagged(torch.Tensor):
    pass


class Layered(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.l(x).as_subclass(Tagged) * 2) + 1


def test_functional_call_with_other_weights() -> None:
    class Swaps(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(self.l, {"weight": self.l.weight * 2}, (x,))

    seen = see(Swaps)
    assert told(seen.root) == ("verified", "", "")
    assert seen.call("l").status == "recorded"


@pytest.mark.parametrize("make", [weight_norm, parametrizations.weight_norm, parametrizations.spectral_norm])
@pytest.mark.parametrize("train", [False, True])
def test_normalised_weights(make: Any, train: bool) -> None:
    class Normed(Layer):
        def setup(self) -> None:
            self.l = make(self.l)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x)

    seen = see(Normed, train=train, grad=train)
    assert seen.not_verified() == {}


def test_a_parametrization_is_a_call_of_its_own() -> None:
    class Symmetric(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w.triu() + w.triu(1).t()

    class Parametrized(Layer):
        def setup(self) -> None:
            parametrize.register_parametrization(self.l, "weight", Symmetric())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x)

    seen = see(Parametrized)
    assert seen.not_verified() == {}
    assert [call.type for call in seen.trace.calls] == [
        "Parametrized",
        "ParametrizedLinear",
        "ParametrizationList",
        "Symmetric",
    ]


# Control flow -------------------------------------------------------------------------------------------------------


def test_questions_about_values_and_sizes_are_guards_with_their_line() -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            if x.shape[0] > 2:
                y = y + 1
            if (y > -1e9).all():
                y = y * 2
            return y[: int(x.abs().sum() > 0)]

    seen = see(Asks)
    assert seen.root.status == "verified"
    assert guards_of(seen.root) == [
        ("3 > 2", "True", "if x.shape[0] > 2:"),
        ("bool() of a tensor", "True", "if (y > -1e9).all():"),
        ("int() of a tensor", "1", "return y[: int(x.abs().sum() > 0)]"),
    ]
    assert "3 > 2 is True" in seen.root.reason


def test_a_loop_over_modules_and_a_loop_over_sizes() -> None:
    class Loops(Layer):
        def setup(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            for i in range(x.size(0)):
                x = x + i
            return x

    seen = see(Loops)
    assert seen.not_verified() == {}
    assert ops(seen.root) == ["Linear", "relu"] * 3 + ["add"] * 3


def test_recursion() -> None:
    class Recursive(Layer):
        def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
            return self.l(x) if depth == 0 else self(x, depth - 1) + depth

    seen = see(Recursive)
    assert [call.status for call in seen.trace.calls] == ["verified"] * 5
    assert ops(seen.root) == ["Recursive", "add"]


def test_a_value_that_decides_how_often_a_loop_runs() -> None:
    class Until(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while x.norm() > 1:
                x = x / 2
            return self.l(x)

    seen = see(Until)
    assert seen.root.status == "verified"
    assert {what for what, _, _ in guards_of(seen.root)} == {"bool() of a tensor"}
    assert {line for _, _, line in guards_of(seen.root)} == {"while x.norm() > 1:"}


def test_nonzero_and_boolean_masks_have_sizes_that_depend_on_values() -> None:
    class Selects(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = x[x > 0]
            rows = (x.sum(1) > 0).nonzero().squeeze(1)
            return self.l(x)[rows].sum() + chosen.view(chosen.shape[0], 1).sum()

    assert told(see(Selects).root) == ("verified", "", "")


def test_threads_in_forward() -> None:
    class Threads(Layer):
        def setup(self) -> None:
            self.parts = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            results: list[Any] = [None, None]
            grad = torch.is_grad_enabled()

            def work(i: int) -> None:
                with torch.set_grad_enabled(grad):
                    results[i] = self.parts[i](x)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
            for thread in threads:
                thread.start()
                thread.join()
            return results[0] + results[1]

    seen = see(Threads)
    assert told(seen.root) == ("recorded", "it starts threads", "")
    assert [(call.path, call.status) for call in seen.trace.calls[1:]] == [
        ("parts.0", "recorded"),
        ("parts.1", "recorded"),
    ]
    assert seen.trace.calls[1].reason == "it ran in a thread of its own"


# Hooks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [list, dict])
def test_a_hook_that_stores_activations_stores_only_those_of_the_run(keeps: Any) -> None:
    stored: Any = keeps()

    def store(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(stored, list):
            stored.append(output)
        else:
            stored[len(stored)] = output

    class Hooked(Layer):
        def setup(self) -> None:
            self.norm = nn.LayerNorm(8)
            for module in (self.l, self.norm):
                module.register_forward_hook(store)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.l(x)) * 2

    seen = see(Hooked, before=stored.clear, outside=lambda model: list(stored.values() if keeps is dict else stored))
    assert seen.not_verified() == {}
    assert len(stored) == 2
    assert all(type(kept) is torch.Tensor for kept in (stored.values() if keeps is dict else stored))


def test_a_hook_that_replaces_an_activation_is_an_operation_of_the_caller() -> None:
    class Hooked(Layer):
        def setup(self) -> None:
            self.l.register_forward_hook(lambda module, args, output: output * 3)
            self.l.register_forward_pre_hook(lambda module, args: (args[0] + 1,))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) - 1

    seen = see(Hooked)
    assert seen.not_verified() == {}
    assert ops(seen.root) == ["add", "Linear", "mul", "sub"]


def test_a_hook_on_a_tensor_makes_its_body_recorded() -> None:
    class Hooked(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            y.register_hook(lambda g: g * 2)
            return y + 1

    seen = see(Hooked, grad=True, after=backward)
    assert told(seen.root) == (
        "recorded",
        "a tensor can be changed unseen through register_hook()",
        "y.register_hook(lambda g: g * 2)",
    )


def test_backward_hooks_of_modules_run_as_often_as_without_tracing() -> None:
    heard: list[str] = []

    class Hooked(Layer):
        def setup(self) -> None:
            self.l.register_full_backward_hook(lambda m, gi, go: heard.append("backward"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) + 1

    seen = see(Hooked, grad=True, after=backward, before=heard.clear, outside=lambda model: list(heard))
    assert told(seen.root) == (
        "recorded",
        "it asks a tensor for grad_fn, which a symbol does not have",
        "return self.l(x) + 1",
    )


# Objects of the program's classes ------------------------------------------------------------------------------------


class Pair:
    """An object that consists of its attributes, as a distribution or a lazy matrix does."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right, self.parts = left, right, [left, {"right": right}]

    def product(self) -> torch.Tensor:
        if not hasattr(self, "known"):
            self.known = self.left @ self.right.mT
        return self.known


class InSlots:
    __slots__ = ("left", "right")

    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.left, self.right = left, right

    def product(self) -> torch.Tensor:
        return self.left @ self.right.mT


class Nested(Pair):
    def __init__(self, left: torch.Tensor, right: torch.Tensor) -> None:
        super().__init__(Pair(left, right), right)
        self.also = self.left

    def product(self) -> torch.Tensor:
        return self.left.product() + self.also.product()


class Makes(Layer):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(self.l(x), x + 1)


class Uses(nn.Module):
    def forward(self, pair: Any) -> torch.Tensor:
        return pair.left.relu() if isinstance(pair.left, torch.Tensor) else pair.right * 2


@pytest.mark.parametrize("kind", [Pair, InSlots, Nested])
def test_an_object_that_a_call_returns_is_made_by_its_graph_and_known_to_the_caller_as_it_was_then(kind: Any) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.makes, self.uses = Makes(kind), Uses()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pair = self.makes(x)
            return self.uses(pair).sum() + pair.product()  # which the object keeps, once it has been asked for

    seen = see(Outer)
    assert seen.not_verified() == {}
    x = torch.randn(5, 8)
    made = seen.call("makes").fx(x)
    assert type(made) is kind and torch.equal(made.right, x + 1)
    assert torch.equal(seen.root.fx(x), seen.model(x))
    assert torch.equal(seen.call("uses").fx(made), seen.model.uses(made))


def test_an_object_that_a_body_makes_for_a_call_is_in_its_graph() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.uses = Uses()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.uses(Pair(x * 2, x)) + 1

    seen = see(Outer)
    assert seen.not_verified() == {}
    assert ops(seen.root) == ["mul", "make_Pair", "Uses", "add"]
    assert torch.equal(seen.root.fx(torch.full((2, 3), 3.0)), torch.full((2, 3), 7.0))


def test_an_object_that_a_call_is_given_is_passed_on_by_its_graph() -> None:
    class Passes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.uses = Uses()

        def forward(self, pair: Pair) -> torch.Tensor:
            return self.uses(pair) + pair.right

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.passes = Passes()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.passes(Pair(x * 2, x))

    seen = see(Outer)
    assert seen.not_verified() == {}
    other = Pair(torch.randn(2, 3), torch.randn(2, 3))
    assert torch.equal(seen.call("passes").fx(other), other.left.relu() + other.right)
    x = torch.randn(5, 8)
    assert torch.equal(seen.root.fx(x), seen.model(x))


def test_a_graph_does_not_pass_on_an_object_that_its_body_has_changed_since() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.makes, self.uses = Makes(Pair), Uses()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pair = self.makes(x)
            pair.left = pair.left * 0
            return self.uses(pair)

    seen = see(Outer)
    x = torch.randn(5, 8)
    if seen.root.status == "verified":
        assert torch.equal(seen.root.fx(x), torch.zeros(5, 8))


# What an earlier call, or a caller, left in attributes ---------------------------------------------------------------


class ByText(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if str(x.device) not in self.known:
            self.known[str(x.device)] = self.l.weight[:, :8] * 2
        return self.l(x) @ self.known[str(x.device)]


class InAList(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.known: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.known:
            self.known.append(self.l.weight * 2)
        return self.l(x) @ self.known[0]


class Predicts(Layer):
    prepared: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.prepared = None

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        if self.prepared is None:
            self.prepared = self.l.weight * 2
        return x @ self.prepared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x)


class AsksAnother(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Predicts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.prepare(x) + self.inner(x)


@pytest.mark.parametrize("kind", [ByText, InAList, AsksAnother])
def test_what_the_first_call_computes_and_keeps_is_in_its_graph(kind: type[nn.Module]) -> None:
    seen = see(kind)
    assert seen.not_verified() == {}
    assert "mul" in ops(seen.root)
    with pytest.raises(fxdebug.UsageError, match=r"changes attributes or other objects that last"):
        seen.root.fx(torch.randn(3, 8))


def test_a_switch_that_a_caller_sets_around_a_call_is_set_in_the_trace_of_that_call() -> None:
    class Inner(Layer):
        doubled = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * 2 if self.doubled else self.l(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.inner.doubled = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner.doubled = True
            y = self.inner(x)
            self.inner.doubled = False
            return y

    seen = see(Outer)
    assert seen.not_verified() == {}
    assert ops(seen.call("inner")) == ["Linear", "mul"]
    other, inner = torch.randn(5, 8), seen.call("inner").fx
    doubled = F.linear(other, inner.l.weight, inner.l.bias) * 2
    assert torch.equal(inner(other), doubled)
    assert torch.equal(seen.root.fx(other), doubled)


# What a tensor is asked for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask", [lambda x: x._version == 0, lambda x: x.grad_fn is None, lambda x: x.is_leaf, lambda x: x.output_nr == 0]
)
def test_a_body_may_ask_a_tensor_for_its_version_or_history(ask: Callable[[torch.Tensor], bool]) -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            before = y._version
            y += 1
            return y * 2 if ask(x) and y._version != before else y

    seen = see(Asks)
    assert told(seen.root)[0] == "verified"
    assert "mul" in ops(seen.root)
