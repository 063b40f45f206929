"""Small models that look strange to hooks and modes: one for each form that torch offers.

Each returns a loss, and leaves a copy of it in ``RETURNED``, which tells what a probe made of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

RETURNED: list[Tensor] = []
Forward = Callable[[Any, Tensor], Tensor]
KINDS: dict[str, Forward] = {}
COMPILING = ("cond", "while_loop", "scan", "mapped", "flex", "compiled_function")  # these take seconds


def x() -> Tensor:
    return torch.linspace(-1, 2, 12).reshape(3, 4)


class Awkward(nn.Module):
    """A linear layer and an activation, which a forward of ``KINDS`` puts to use."""

    def __init__(self, run: Forward) -> None:
        super().__init__()
        self.k, self.act = nn.Linear(4, 4), nn.Tanh()
        self.own = run

    def forward(self, x: Tensor) -> Tensor:
        out = self.own(self, x)
        RETURNED.append(out.detach().clone())
        return out


def awkward(name: str) -> Awkward:
    """A model of a kind, with the same weights each time."""
    torch.manual_seed(0)
    return Awkward(KINDS[name])


def kind(run: Forward) -> Forward:
    """Register the forward of a model."""
    KINDS[run.__name__] = run
    return run


def _jagged(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(x.repeat(3, 1)[:7], torch.tensor([0, 3, 7]))


@kind
def plain(self: Any, x: Tensor) -> Tensor:
    return self.act(self.k(x)).sum()


@kind
def jagged(self: Any, x: Tensor) -> Tensor:
    return self.k(_jagged(x)).values().sum()


@kind
def jagged_activation(self: Any, x: Tensor) -> Tensor:
    return self.act(self.k(_jagged(x))).values().sum()


@kind
def nested_strided(self: Any, x: Tensor) -> Tensor:
    return self.k(torch.nested.nested_tensor([x[:1], x])).to_padded_tensor(0.0).sum()


@kind
def sparse_coo(self: Any, x: Tensor) -> Tensor:
    return torch.sparse.mm(x.relu().to_sparse(), self.k.weight).sum() + self.k(x).sum()


@kind
def sparse_csr(self: Any, x: Tensor) -> Tensor:
    return self.act(self.k(x.relu().to_sparse_csr().to_dense())).sum()


@kind
def sparse_gradient(self: Any, x: Tensor) -> Tensor:
    return self.act(nn.functional.embedding(torch.tensor([0, 2]), self.k.weight, sparse=True)).sum()


@kind
def quantised(self: Any, x: Tensor) -> Tensor:
    return self.k(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()).sum()


@kind
def hessian(self: Any, x: Tensor) -> Tensor:
    return torch.func.hessian(lambda v: self.k(v).pow(2).sum())(x[0]).sum() + self.k(x).sum()


@kind
def vmapped_gradient(self: Any, x: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(lambda v: self.act(self.k(v)).pow(2).sum()))(x).sum() + self.k(x).sum()


@kind
def vmapped(self: Any, x: Tensor) -> Tensor:
    return torch.func.vmap(lambda v: self.act(self.k(v)))(x).sum()


@kind
def vmap_randomness(self: Any, x: Tensor) -> Tensor:
    return torch.func.vmap(lambda v: nn.functional.dropout(self.k(v), 0.5), randomness="different")(x).sum()


@kind
def vmap_same_randomness(self: Any, x: Tensor) -> Tensor:
    return torch.func.vmap(lambda v: self.k(v) + torch.rand(4), randomness="same")(x).sum()


@kind
def jacobian(self: Any, x: Tensor) -> Tensor:
    return torch.func.jacrev(self.k)(x[0]).sum() + torch.func.jacfwd(self.k)(x[0]).sum() + self.k(x).sum()


@kind
def forward_mode(self: Any, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        y = self.act(self.k(forward_ad.make_dual(x, torch.ones_like(x))))
        return (y + forward_ad.unpack_dual(y).tangent).sum()


@kind
def functional_call(self: Any, x: Tensor) -> Tensor:
    return torch.func.functional_call(self.k, {"weight": self.k.weight * 2, "bias": self.k.bias}, (x,)).sum()


@kind
def cond(self: Any, x: Tensor) -> Tensor:
    return (torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)) + self.k(x)).sum()


@kind
def while_loop(self: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops import while_loop as loop

    with torch.no_grad():
        _, y = loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x))
    return self.k(y).sum()


@kind
def scan(self: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops.scan import scan as over

    last, every = over(lambda carry, v: (carry + v, carry * v), x[0] * 0, x)
    return self.k(every).sum() + last.sum()


@kind
def mapped(self: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops.map import map as each

    return self.k(each(lambda v: v.sin(), x)).sum()


@kind
def flex(self: Any, x: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    q = self.k(x)[None, None]
    return flex_attention(q.detach(), q.detach(), q.detach()).sum() + q.sum()


@kind
def compiled_function(self: Any, x: Tensor) -> Tensor:
    return torch.compile(lambda v: self.act(v) * 2, backend="eager")(self.k(x)).sum()


@kind
def checkpointed(self: Any, x: Tensor) -> Tensor:
    return checkpoint(lambda v: self.act(self.k(v)), x, use_reentrant=False).sum()


@kind
def checkpointed_reentrant(self: Any, x: Tensor) -> Tensor:
    return checkpoint(lambda v: self.act(self.k(v)), self.k(x), use_reentrant=True).sum()


@kind
def saved_tensors(self: Any, x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return self.act(self.k(x)).sum()


@kind
def saved_on_cpu(self: Any, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return self.act(self.k(x)).sum()


@kind
def inner_gradient(self: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        v = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(self.act(self.k(v)).sum(), v, create_graph=True)
    return g.pow(2).sum() + self.k(x).sum()


@kind
def inner_backward(self: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        v = x.clone().requires_grad_()
        self.k(v).sum().backward(inputs=[v])
    return self.k(x + v.grad).sum()


class Tagged(torch.Tensor):
    pass


@kind
def subclass(self: Any, x: Tensor) -> Tensor:
    return self.act(self.k(x.as_subclass(Tagged))).sum().as_subclass(torch.Tensor)


class Refusing(torch.Tensor):
    """A subclass that refuses what it does not know."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in (
            "detach",
            "isfinite",
            "isnan",
            "abs",
            "register_hook",
            "clone",
            "nelement",
            "numel",
            "split",
            "reshape",
            "to",
        ):
            raise TypeError(f"{name} is not for this tensor")
        return super().__torch_function__(func, types, args, kwargs)


@kind
def refusing_subclass(self: Any, x: Tensor) -> Tensor:
    return self.act(self.k(x.as_subclass(Refusing))).sum().as_subclass(torch.Tensor)


@kind
def masked(self: Any, x: Tensor) -> Tensor:
    from torch.masked import masked_tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return masked_tensor(x, x > 0).sum().get_data() + self.k(x).sum()


@kind
def fake(self: Any, x: Tensor) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        self.act(mode.from_tensor(x) * 2)
    return self.k(x).sum()


@kind
def meta(self: Any, x: Tensor) -> Tensor:
    size = self.act(torch.empty(3, 4, device="meta")).shape[0]
    return self.k(x).sum() * size


@kind
def inference(self: Any, x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = self.act(x * 2)
    return self.k(y.clone()).sum()


@kind
def complex_numbers(self: Any, x: Tensor) -> Tensor:
    return torch.view_as_real(torch.fft.fft(self.k(x).to(torch.complex64))).sum()


@kind
def float8(self: Any, x: Tensor) -> Tensor:
    return self.k(x.to(torch.float8_e4m3fn).float()).sum()


@kind
def in_a_mode(self: Any, x: Tensor) -> Tensor:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Counting():
        return self.act(self.k(x)).sum()


@kind
def on_a_device(self: Any, x: Tensor) -> Tensor:
    with torch.device("cpu"):
        return self.act(self.k(x) + torch.ones(4)).sum()


@kind
def traced_inside(self: Any, x: Tensor) -> Tensor:
    f = torch.fx.experimental.proxy_tensor.make_fx(lambda v: self.act(v) + 1)(x)
    return self.k(f(x)).sum()


@kind
def jit_traced(self: Any, x: Tensor) -> Tensor:
    return torch.jit.trace(lambda v: v.sin() + 1, x)(self.k(x)).sum()


@kind
def resized(self: Any, x: Tensor) -> Tensor:
    y = self.k(x)
    z = y.detach().clone()
    z.untyped_storage().resize_(0)
    return y.sum()


@kind
def encoder(self: Any, x: Tensor) -> Tensor:
    return self.act(
        nn.functional.scaled_dot_product_attention(self.k(x)[None, None], x[None, None], x[None, None])
    ).sum()
