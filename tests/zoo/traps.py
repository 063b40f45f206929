"""Small modules that try to make a symbolic trace lie; every one is a named test.

Each has a linear layer ``l`` and takes ``x`` of shape (3, 8). ``TRAPS`` maps names to (class, training).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

TRAPS: dict[str, tuple[type[nn.Module], bool]] = {}


def trap(train=False):
    """Register a class."""

    def register(kind):
        TRAPS[kind.__name__] = (kind, train)
        return kind

    return register


class Trap(nn.Module):
    """The parent of all traps."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.setup()

    def setup(self):
        """What a trap adds."""


@trap()
class shape_branch(Trap):
    def forward(self, x):
        return self.l(x) if x.shape[0] > 1 else -self.l(x)


@trap()
class dim_branch(Trap):
    def forward(self, x):
        return self.l(x) if x.dim() == 2 else -self.l(x)


@trap()
class value_branch(Trap):
    def forward(self, x):
        return self.l(x) if x.sum() > 0 else -self.l(x)


@trap()
class len_x(Trap):
    def forward(self, x):
        return self.l(x) * len(x)


@trap()
class isinst(Trap):
    def forward(self, x):
        return self.l(x) if isinstance(x, torch.Tensor) else -self.l(x)


@trap()
class is_tensor_fn(Trap):
    def forward(self, x):
        return self.l(x) if torch.is_tensor(x) else -self.l(x)


@trap()
class isinst_tuple(Trap):
    def setup(self):

        class In(nn.Module):
            def __init__(inner):
                super().__init__()
                inner.l = nn.Linear(8, 8)

            def forward(inner, x):
                return (inner.l(x),)

        self.inn = In()

    def forward(self, x):
        o = self.inn(x)
        return o[0] if isinstance(o, tuple) else o * 2


@trap()
class hasattr_(Trap):
    def forward(self, x):
        return -self.l(x) if hasattr(x, "last_hidden_state") else self.l(x)


@trap()
class getattr_default(Trap):
    def forward(self, x):
        return self.l(x) * getattr(x, "_no_such", 2.0)


@trap()
class arange_size(Trap):
    def forward(self, x):
        return self.l(x) + torch.arange(x.size(1))


@trap()
class arange_shape_unpack(Trap):
    def forward(self, x):
        b, h = x.shape
        return self.l(x) + torch.arange(h)


@trap()
class zeros_shape(Trap):
    def forward(self, x):
        return self.l(x) + torch.zeros(x.shape)


@trap()
class new_const_tensor(Trap):
    def forward(self, x):
        return self.l(x) + torch.ones(8) * torch.rand(8)


@trap(train=True)
class rand_module(Trap):
    def forward(self, x):
        return self.l(x) + torch.rand_like(x)


@trap(train=True)
class rand_notrack(Trap):
    def forward(self, x):
        return self.l(x) * torch.rand(())


@trap(train=True)
class functional_dropout(Trap):
    def forward(self, x):
        return F.dropout(self.l(x), 0.5, self.training)


@trap()
class train_branch_traced_train(Trap):
    def forward(self, x):
        return self.l(x) if self.training else -self.l(x)


@trap()
class grad_enabled(Trap):
    def forward(self, x):
        return self.l(x) if torch.is_grad_enabled() else -self.l(x)


@trap()
class no_grad_ctx(Trap):
    def forward(self, x):
        with torch.no_grad():
            y = self.l(x)
        return y


@trap()
class autocast_ctx(Trap):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.l(x)
        return y


@trap()
class dtype_branch(Trap):
    def forward(self, x):
        return self.l(x) if x.dtype == torch.float32 else -self.l(x)


@trap()
class dtype_in(Trap):
    def forward(self, x):
        return -self.l(x) if x.dtype in (torch.float16, torch.bfloat16) else self.l(x)


@trap()
class device_branch(Trap):
    def forward(self, x):
        return -self.l(x) if x.device.type == "cuda" else self.l(x)


@trap()
class is_cuda(Trap):
    def forward(self, x):
        return -self.l(x) if x.is_cuda else self.l(x)


@trap()
class eq_none(Trap):
    def forward(self, x, m=None):
        return self.l(x) if m is None else self.l(x) * m


@trap()
class args_kwargs(Trap):
    def forward(self, *a, **k):
        return self.l(a[0]) * k.get("scale", 2.0)


@trap()
class side_list(Trap):
    def setup(self):
        self.log = []

    def forward(self, x):
        y = self.l(x)
        self.log.append(y)
        return y * len(self.log)


@trap()
class counter(Trap):
    def setup(self):
        self.n = 0

    def forward(self, x):
        self.n += 1
        return self.l(x) * self.n


@trap()
class buffer_assign(Trap):
    def setup(self):
        self.register_buffer("c", torch.zeros(()))

    def forward(self, x):
        self.c = self.c + 1
        return self.l(x) * self.c


@trap()
class buffer_inplace(Trap):
    def setup(self):
        self.register_buffer("c", torch.zeros(()))

    def forward(self, x):
        self.c += 1
        return self.l(x) * self.c


@trap()
class buffer_add_(Trap):
    def setup(self):
        self.register_buffer("c", torch.zeros(()))

    def forward(self, x):
        self.c.add_(1)
        return self.l(x) * self.c


@trap()
class setitem_proxy(Trap):
    def forward(self, x):
        y = self.l(x)
        y[:, 0] = 0
        return y


@trap()
class setitem_real(Trap):
    def forward(self, x):
        y = torch.zeros(3, 8)
        y[:] = self.l(x)
        return y


@trap()
class setitem_chain(Trap):
    def forward(self, x):
        y = self.l(x)
        y[:, :2] += 1
        return y


@trap()
class inplace_dead(Trap):
    def forward(self, x):
        y = self.l(x)
        y.add_(1)
        z = y.view(-1)
        z.mul_(2)
        return y


@trap()
class inplace_aug(Trap):
    def forward(self, x):
        y = self.l(x)
        z = y
        y += 1
        return z


@trap()
class inplace_mul_aug(Trap):
    def forward(self, x):
        y = self.l(x)
        z = y.view(-1)
        y *= 2
        return z


@trap()
class iter_tensor(Trap):
    def forward(self, x):
        return sum((r for r in self.l(x)))


@trap()
class unpack_chunk(Trap):
    def forward(self, x):
        a, b = self.l(x).chunk(2, -1)
        return a * b


@trap()
class star_shape(Trap):
    def forward(self, x):
        return self.l(x).view(*x.shape[:-1], 2, 4)


@trap()
class item_(Trap):
    def forward(self, x):
        return self.l(x) * x.sum().item()


@trap()
class int_(Trap):
    def forward(self, x):
        return self.l(x) * int(x.sum())


@trap()
class float_str(Trap):
    def forward(self, x):
        return self.l(x) * float(x.shape[0])


@trap()
class math_sqrt(Trap):
    def forward(self, x):
        import math

        return self.l(x) / math.sqrt(x.size(-1))


@trap()
class pow_half(Trap):
    def forward(self, x):
        return self.l(x) / x.size(-1) ** 0.5


@trap()
class numpy_(Trap):
    def forward(self, x):
        return self.l(x) + torch.from_numpy(x.detach().numpy())


@trap()
class py_global(Trap):
    def forward(self, x):
        global G
        G = globals().get("G", 0) + 1
        return self.l(x) * 1.0


@trap()
class try_except(Trap):
    def forward(self, x):
        try:
            if x.sum() > 0:
                return self.l(x)
            return self.l(x)
        except Exception:
            return -self.l(x)


@trap()
class assert_shape(Trap):
    def forward(self, x):
        assert x.shape == (3, 8)
        return self.l(x)


@trap()
class shape_eq(Trap):
    def forward(self, x):
        return self.l(x) if x.shape == torch.Size([3, 8]) else -self.l(x)


@trap()
class shape_in(Trap):
    def forward(self, x):
        return self.l(x) if 8 in x.shape else -self.l(x)


@trap()
class dict_key(Trap):
    def forward(self, x):
        d = {x.shape[0]: 1}
        return self.l(x) * d.get(3, 2)


@trap()
class checkpoint_(Trap):
    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.l, x, use_reentrant=False)


@trap()
class autograd_fn(Trap):
    def forward(self, x):

        class Fn(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a):
                return a * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        return Fn.apply(self.l(x))


@trap()
class vmap_(Trap):
    def forward(self, x):
        return torch.vmap(lambda r: r * 2)(self.l(x))


@trap()
class parameter_data(Trap):
    def forward(self, x):
        return F.linear(x, self.l.weight.data)


@trap()
class param_shape_branch(Trap):
    def forward(self, x):
        return F.linear(x, self.l.weight) if self.l.weight.shape[0] == 8 else -x


@trap()
class lru(Trap):
    def setup(self):
        self.cache = {}

    def forward(self, x):
        n = x.shape[0]
        if n not in self.cache:
            self.cache[n] = torch.ones(8) * 2
        return self.l(x) * self.cache[n]


@trap()
class tensor_of_proxy(Trap):
    def forward(self, x):
        return self.l(x) * torch.tensor(x.shape[0])


@trap()
class warn_once(Trap):
    def forward(self, x):
        if not hasattr(self, "_warned"):
            self._warned = True
            return self.l(x)
        return -self.l(x)


@trap()
class npy_inplace(Trap):
    def forward(self, x):
        y = self.l(x).detach()
        y.numpy()[:] = 0
        return y + 1


@trap()
class dot_data_mut(Trap):
    def forward(self, x):
        y = self.l(x)
        y.data.mul_(0)
        return y


@trap()
class alias_write(Trap):
    def forward(self, x):
        y = self.l(x)
        z = y[:, :2]
        z.zero_()
        return y


@trap()
class set_data(Trap):
    def forward(self, x):
        y = self.l(x)
        y.data = torch.ones(3, 8)
        return y


@trap()
class c_op(Trap):
    def forward(self, x):
        return torch.ops.aten.relu(self.l(x))


@trap()
class c_op_default(Trap):
    def forward(self, x):
        return torch.ops.aten.relu.default(self.l(x))


@trap()
class rng_py(Trap):
    def forward(self, x):
        import random

        return self.l(x) * random.choice([1.0, 1.0])


@trap()
class rng_py2(Trap):
    def forward(self, x):
        import random

        return self.l(x) * random.random()


@trap()
class tolist_(Trap):
    def forward(self, x):
        return self.l(x) * sum(x[0].tolist())


@trap()
class attr_on_tensor(Trap):
    def forward(self, x):
        y = self.l(x)
        y.my = 3
        return y * y.my


@trap()
class no_grad_deco(Trap):
    @torch.no_grad()
    def forward(self, x):
        return self.l(x)


@trap()
class global_list(Trap):
    LOG = []

    def forward(self, x):
        y = self.l(x)
        Trap.log = getattr(Trap, "log", [])
        Trap.log.append(y)
        return y


@trap()
class closure_state(Trap):
    def setup(self):
        self.st = {"h": torch.zeros(8)}

    def forward(self, x):
        y = self.l(x) + self.st["h"]
        self.st["h"] = y.mean(0).detach()
        return y


@trap()
class obj_state(Trap):
    def setup(self):

        class H:
            pass

        self.h = H()
        self.h.v = torch.zeros(8)

    def forward(self, x):
        y = self.l(x) + self.h.v
        self.h.v = y.mean(0).detach()
        return y


@trap()
class topk_(Trap):
    def forward(self, x):
        v = self.l(x).topk(2)
        return v.values + v[1]


@trap()
class sdpa_(Trap):
    def forward(self, x):
        y = self.l(x)[None]
        return F.scaled_dot_product_attention(y, y, y, is_causal=True)[0]


@trap()
class compiled_fn(Trap):
    def forward(self, x):
        return torch.compile(lambda v: v * 2, backend="eager")(self.l(x))


@trap()
class deepcopy_(Trap):
    def forward(self, x):
        import copy

        return copy.deepcopy(self.l(x).detach()) + 1


@trap()
class numpy_scalar(Trap):
    def forward(self, x):
        import numpy as np

        return self.l(x) * np.sqrt(x.shape[-1])


@trap()
class list_mut_arg(Trap):
    def setup(self):

        class In(nn.Module):
            def forward(inner, x, acc):
                acc.append(x * 2)
                return x

        self.inn = In()

    def forward(self, x):
        acc = []
        y = self.inn(self.l(x), acc)
        return y + acc[0]


@trap()
class grad_inside(Trap):
    def forward(self, x):
        with torch.enable_grad():
            v = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(self.l(v).sum(), v)
        return g


@trap()
class manual_seed_(Trap):
    def forward(self, x):
        torch.manual_seed(3)
        return self.l(x) + torch.rand(8)


@trap()
class generator_(Trap):
    def forward(self, x):
        g = torch.Generator().manual_seed(3)
        return self.l(x) + torch.rand(8, generator=g)


@trap()
class out_kw(Trap):
    def forward(self, x):
        o = torch.empty(3, 8)
        torch.mul(self.l(x).detach(), 2, out=o)
        return o


@trap()
class stack_loop(Trap):
    def forward(self, x):
        return torch.stack([self.l(x[i]) for i in range(x.size(0))])


@trap()
class param_swap(Trap):
    def forward(self, x):
        w = self.l.weight * 2
        return torch.func.functional_call(self.l, {"weight": w}, (x,))


def fresh_globals() -> None:
    """Two of the traps count in globals: make both as they were before any trap ran."""
    globals().pop("G", None)
    if hasattr(Trap, "log"):
        del Trap.log
