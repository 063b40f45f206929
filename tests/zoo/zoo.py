"""A zoo of small models for testing tools that trace PyTorch modules.

``zoo()`` yields ``(name, build)``; ``build()`` returns ``(model, inputs)`` where ``model(**inputs)``
runs on CPU in well under a second.  Everything is seeded: two builds give equal weights and inputs.
Models are in eval mode unless the name contains ``train-mode``.  ``raising()`` yields models, in the
same form, whose forward ends in an exception.

Names are ``group/what``; the groups are the sections of this file, then ``extra`` (diffusers, peft,
accelerate: whatever is installed) and ``hf`` (transformers, see zoo_hf.py).
"""

import contextlib
import dataclasses
import enum
import threading
import warnings
from collections import OrderedDict, namedtuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, rnn
from torch.utils.checkpoint import checkpoint

D = 8  # width of nearly every model below

_ENTRIES = {}
_RAISING = {}


def model_entry(name, registry=_ENTRIES):
    """Register a function that returns ``(model, inputs)``; it runs with a fixed seed."""

    def decorate(function):
        def build():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model, inputs = function()
            if "train-mode" not in name:
                model.eval()
            return model, inputs

        assert name not in _ENTRIES and name not in _RAISING, name
        registry[name] = build
        return function

    return decorate


def simple(name, registry=_ENTRIES):
    """Register a module class without arguments; its input is ``x`` of shape (2, D)."""

    def decorate(module_class):
        model_entry(name, registry)(lambda: (module_class(), {"x": torch.randn(2, D)}))
        return module_class

    return decorate


def zoo(groups=None):
    """Yield ``(name, build)`` for every model; ``groups`` restricts the names' first parts."""
    sources = [_ENTRIES.items()]
    if groups is None or "extra" in groups:
        sources.append(_extra_entries())
    if groups is None or "hf" in groups:
        sources.append(_transformers_entries())
    for source in sources:
        for name, build in source:
            if groups is None or name.split("/")[0] in groups:
                yield name, build


def raising():
    """Yield ``(name, build)`` for models whose forward raises."""
    yield from _RAISING.items()


def _linears(count):
    return nn.ModuleList(nn.Linear(D, D) for _ in range(count))


# ------------------------------------------------------------------------------------------------
# flow: what runs depends on the data
# ------------------------------------------------------------------------------------------------


@simple("flow/branch-on-data")
class BranchOnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.positive, self.negative = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x):
        return self.positive(x) if x.sum() > 0 else self.negative(x)


@simple("flow/early-exit")
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.gates = _linears(6), nn.ModuleList(nn.Linear(D, 1) for _ in range(6))

    def forward(self, x):
        for layer, gate in zip(self.layers, self.gates):
            x = layer(x)
            if gate(x).sigmoid().mean() > 0.5:
                break
        return x


@simple("flow/loop-until-converged")
class FixedPoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(D, D)
        nn.init.orthogonal_(self.step.weight, gain=0.5)

    def forward(self, x):
        state, steps = torch.zeros_like(x), 0
        while steps < 50:
            new = torch.tanh(self.step(state) + x)
            steps += 1
            if (new - state).abs().max() < 1e-3:
                break
            state = new
        return new, steps


@model_entry("flow/loop-over-lengths")
def _loop_over_lengths():
    class PerItemSteps(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(D, D)

        def forward(self, x, lengths):
            rows = []
            for row, length in zip(x, lengths.tolist()):
                for _ in range(length):
                    row = self.cell(row).relu()
                rows.append(row)
            return torch.stack(rows)

    return PerItemSteps(), {"x": torch.randn(3, D), "lengths": torch.tensor([1, 0, 3])}


@simple("flow/recursive-module")
class Countdown(nn.Module):
    """Calls itself through ``__call__``."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x, depth=4):
        return x if depth == 0 else self(self.layer(x), depth - 1)


@model_entry("flow/recursive-tree")
def _recursive_tree():
    class TreeNode(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.mix = nn.Linear(D, D)
            if depth:
                self.left, self.right = TreeNode(depth - 1), TreeNode(depth - 1)

        def forward(self, x):
            if hasattr(self, "left"):
                x = self.left(x) + self.right(x)
            return self.mix(x)

    return TreeNode(3), {"x": torch.randn(2, D)}


@simple("flow/caught-exception")
class Fallback(nn.Module):
    """A submodule fails and the parent recovers."""

    def __init__(self):
        super().__init__()
        self.wrong, self.right = nn.Linear(D + 1, D), nn.Linear(D, D)

    def forward(self, x):
        try:
            return self.wrong(x)
        except RuntimeError:
            return self.right(x)


@model_entry("flow/moe")
def _moe():
    class MixtureOfExperts(nn.Module):
        """Top-2 routing; the last expert never gets a token and is called with an empty batch."""

        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(D, 4), _linears(4)
            self.router.bias.data[3] = -100.0

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for index, expert in enumerate(self.experts):
                token, slot = (chosen == index).nonzero(as_tuple=True)
                out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
            return out

    return MixtureOfExperts(), {"x": torch.randn(6, D)}


@simple("flow/unused-submodule")
class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x):
        return self.used(x)


@simple("flow/random-depth-train-mode")
class StochasticDepth(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = _linears(4)

    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()) > 0.5:
                x = x + layer(x)
        return x


# ------------------------------------------------------------------------------------------------
# call: how modules are called
# ------------------------------------------------------------------------------------------------


@simple("call/several-times")
class SeveralTimes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


@simple("call/shared-module")
class SharedModule(nn.Module):
    """One module registered under two names and in two places."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(D, D)
        self.second = self.first
        self.block = nn.Sequential(self.first, nn.ReLU(), self.first)

    def forward(self, x):
        return self.second(self.block(self.first(x)))


@simple("call/cyclic-registration")
class Cyclic(nn.Module):
    """The child registers its parent as a submodule; ``train`` must not walk the children."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(D, D)
        self.child.parent = self

    def train(self, mode=True):
        self.training = self.child.training = mode
        return self

    def forward(self, x):
        return self.child(x)


@simple("call/other-method")
class OtherMethod(nn.Module):
    """Submodules used through ``encode``/``decode``, ``forward`` itself and F.linear."""

    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Linear(D, 4), nn.Linear(4, D)

        def encode(self, x):
            return self.down(x)

        def decode(self, x):
            return self.up(x)

    def __init__(self):
        super().__init__()
        self.codec, self.last = self.Codec(), nn.Linear(D, D)

    def forward(self, x):
        x = self.codec.decode(self.codec.encode(x))
        return self.last.forward(x) + F.linear(x, self.last.weight)


@model_entry("call/kwargs-only")
def _kwargs_only():
    class KeywordsOnly(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, *, x, scale=None, **rest):
            return self.layer(x) * (1 if scale is None else scale) + rest["shift"]

    return KeywordsOnly(), {"x": torch.randn(2, D), "scale": torch.tensor(2.0), "shift": torch.ones(D)}


@simple("call/created-in-forward")
class CreatedInForward(nn.Module):
    def forward(self, x):
        fresh = nn.Linear(D, D, bias=False)
        nn.init.constant_(fresh.weight, 0.1)
        return fresh(x)


@simple("call/registered-in-forward")
class RegisteredInForward(nn.Module):
    def forward(self, x):
        if not hasattr(self, "late"):
            self.late = nn.Linear(D, D, bias=False)
            nn.init.eye_(self.late.weight)
        return self.late(x)


@simple("call/unregistered-submodule")
class Unregistered(nn.Module):
    """A module kept in a plain list, so ``named_modules`` does not see it."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(D, D)]

    def forward(self, x):
        return self.hidden[0](x)


@simple("call/overridden-call")
class OverriddenCall(nn.Module):
    class Loud(nn.Linear):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs) * 2

    def __init__(self):
        super().__init__()
        self.layer = self.Loud(D, D)

    def forward(self, x):
        return self.layer(x)


@simple("call/forward-set-on-instance")
class ForwardOnInstance(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)
        original = self.layer.forward
        self.layer.forward = lambda x: original(x) + 1

    def forward(self, x):
        return self.layer(x)


@simple("call/static-forward")
class StaticForward(nn.Module):
    class Double(nn.Module):
        @staticmethod
        def forward(x):
            return x * 2

    def __init__(self):
        super().__init__()
        self.twice = self.Double()

    def forward(self, x):
        return self.twice(x)


@simple("call/generator-forward")
class GeneratorForward(nn.Module):
    """The submodule's forward is a generator consumed by the parent."""

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, x):
            for _ in range(3):
                x = self.layer(x)
                yield x

    def __init__(self):
        super().__init__()
        self.steps = self.Steps()

    def forward(self, x):
        return sum(self.steps(x))


@simple("call/threads")
class Threads(nn.Module):
    """Two submodules run in their own threads."""

    def __init__(self):
        super().__init__()
        self.branches = _linears(2)

    def forward(self, x):
        results = [None, None]

        def run(index):
            with torch.no_grad():
                results[index] = self.branches[index](x)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results[0] + results[1]


@simple("call/prints")
class Prints(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        print("a line on standard output")
        return self.layer(x)


@simple("call/class-level-attributes")
class AwkwardAttributes(nn.Module):
    """Attributes a tracer may want for itself, and a repr that raises."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.name, self.hooks, self._call_tree = "mine", [], {"mine": True}

    def __repr__(self):
        raise RuntimeError("no repr")

    def forward(self, x):
        assert self._call_tree == {"mine": True}
        return self.layer(x)


@simple("call/functional-call")
class FunctionalCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        swapped = {k: v * 2 for k, v in self.layer.named_parameters()}
        return torch.func.functional_call(self.layer, swapped, (x,))


@simple("call/vmap")
class Vmapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        return torch.vmap(self.layer)(x)


@simple("call/grad-in-forward")
class Forces(nn.Module):
    """The output is the gradient of a submodule's output."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 1))

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(x).sum(), x)
        return -force


# ------------------------------------------------------------------------------------------------
# layers: torch's own modules
# ------------------------------------------------------------------------------------------------


@model_entry("layers/lstm")
def _lstm():
    return nn.LSTM(D, 6, num_layers=2, bidirectional=True), {"input": torch.randn(5, 2, D)}


@model_entry("layers/gru")
def _gru():
    return nn.GRU(D, 6, batch_first=True), {"input": torch.randn(2, 5, D), "hx": torch.zeros(1, 2, 6)}


@model_entry("layers/lstm-cell-loop")
def _lstm_cell():
    class CellLoop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(D, 6)

        def forward(self, x):
            state = None
            for step in x:
                state = self.cell(step, state)
            return state

    return CellLoop(), {"x": torch.randn(7, 2, D)}


@model_entry("layers/packed-sequence")
def _packed():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(D, 6)

        def forward(self, x, lengths):
            output, _ = self.rnn(rnn.pack_padded_sequence(x, lengths))
            return rnn.pad_packed_sequence(output)

    return Packed(), {"x": torch.randn(4, 3, D), "lengths": torch.tensor([4, 2, 1])}


@model_entry("layers/transformer")
def _transformer():
    model = nn.Transformer(D, 2, 4, 4, 16, batch_first=True)
    return model, {"src": torch.randn(2, 5, D), "tgt": torch.randn(2, 3, D)}


@model_entry("layers/transformer-encoder-padded")
def _encoder_padded():
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True)
    mask = torch.tensor([[False, False, True], [False, False, False]])
    return nn.TransformerEncoder(layer, 4), {"src": torch.randn(2, 3, D), "src_key_padding_mask": mask}


@model_entry("layers/multihead-attention")
def _attention():
    x = torch.randn(2, 4, D)
    return nn.MultiheadAttention(D, 2, batch_first=True), {"query": x, "key": x, "value": x}


@model_entry("layers/embedding-bag")
def _embedding_bag():
    return nn.EmbeddingBag(10, D), {"input": torch.tensor([1, 2, 4, 5, 4]), "offsets": torch.tensor([0, 3, 3])}


@model_entry("layers/conv-net")
def _conv_net():
    model = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 8, 3),
            norm=nn.BatchNorm2d(8),
            act=nn.ReLU(inplace=True),
            pool=nn.MaxPool2d(2, return_indices=False),
            flat=nn.Flatten(),
            head=nn.Linear(8 * 7 * 7, 5),
        )
    )
    return model, {"input": torch.randn(2, 3, 16, 16)}


@model_entry("layers/empty-sequential")
def _empty():
    return nn.Sequential(), {"input": torch.randn(2, D)}


@model_entry("layers/single-leaf")
def _leaf():
    return nn.Linear(D, D), {"input": torch.randn(2, D)}


@model_entry("layers/dropout-train-mode")
def _dropout():
    return nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.Linear(D, D)), {"input": torch.randn(2, D)}


@model_entry("layers/batchnorm-train-mode")
def _batchnorm():
    return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.BatchNorm1d(D, momentum=None)), {
        "input": torch.randn(4, D)
    }


@model_entry("layers/lazy-initialised")
def _lazy():
    model, x = nn.Sequential(nn.LazyLinear(D), nn.ReLU(), nn.LazyLinear(3)), torch.randn(2, 5)
    model(x)
    return model, {"input": x}


@model_entry("layers/lazy-uninitialised")
def _lazy_uninitialised():
    return nn.Sequential(nn.LazyLinear(D), nn.ReLU()), {"input": torch.randn(2, 5)}


# ------------------------------------------------------------------------------------------------
# values: odd containers and objects as inputs and outputs
# ------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: list
    note: str = "ok"
    missing: object = None


class Mode(enum.Enum):
    FAST = "fast"


class Opaque:
    def __init__(self, tensor):
        self.tensor = tensor


def _output_entry(name, make):
    """A model whose leaf submodule, and itself, return ``make(y)``."""

    class Leaf(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(D, D))

        def forward(self, x):
            return make(x @ self.weight)

    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = Leaf()

        def forward(self, x):
            return self.leaf(x)

    model_entry(f"values/{name}-output")(lambda: (Returns(), {"x": torch.randn(2, D)}))


_output_entry("dataclass", lambda y: Result(y, [y + 1]))
_output_entry("namedtuple", lambda y: Pair(y, Pair(y + 1, None)))
_output_entry("dict", lambda y: {"y": y, "inner": {"z": y + 1}, "none": None})
_output_entry("odd-keys-dict", lambda y: {0: y, (1, "a"): y + 1, None: y + 2, Mode.FAST: y + 3, "a/b.c": y + 4})
_output_entry("colliding-keys-dict", lambda y: {"a": [y], "a_0": y + 1, 1: y + 2, "1": y + 3})
_output_entry("ordered-dict", lambda y: OrderedDict(b=y, a=y + 1))
_output_entry("none", lambda y: None)
_output_entry("string", lambda y: "text")
_output_entry("number", lambda y: float(y.detach().sum()))
_output_entry("special-floats", lambda y: {"nan": float("nan"), "inf": float("inf"), "big": 10**30})
_output_entry("set", lambda y: {1, 2, 3})
_output_entry("opaque-object", Opaque)
_output_entry("torch-objects", lambda y: (y.shape, y.dtype, y.device, slice(0, 2), Mode.FAST))
_output_entry("numpy", lambda y: y.detach().numpy())
_output_entry("empty-containers", lambda y: ([], {}, (), y))
_output_entry("nested-deeply", lambda y: _nest(y, 60))
_output_entry("self-referencing-list", lambda y: _loop(y))
_output_entry("parameter", lambda y: nn.Parameter(y.detach()))
_output_entry("distribution", lambda y: torch.distributions.Normal(y.detach(), 1.0))


def _nest(value, depth):
    return value if depth == 0 else [_nest(value, depth - 1)]


def _loop(y):
    items = [y]
    items.append(items)
    return items


@model_entry("values/nested-list-input")
def _nested_list_input():
    class SumOfAll(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, items, options):
            flat = [items[0], *items[1], *items[2].values()]
            return self.layer(sum(flat)) * options["scale"][0]

    x = torch.randn(2, D)
    return SumOfAll(), {"items": [x, [x + 1, x + 2], {"k": x + 3}], "options": {"scale": (2.0, None)}}


@model_entry("values/scalar-and-string-inputs")
def _scalar_inputs():
    class Configurable(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, x, times, mode, flag, dtype, window):
            return self.layer(x[window]).to(dtype) * times

    return Configurable(), {
        "x": torch.randn(4, D),
        "times": 3,
        "mode": Mode.FAST,
        "flag": True,
        "dtype": torch.float64,
        "window": slice(0, 2),
    }


@model_entry("values/no-inputs")
def _no_inputs():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.randn(D))
            self.layer = nn.Linear(D, D)

        def forward(self):
            return self.layer(self.value)

    return Constant(), {}


@simple("values/output-is-the-input")
class OutputIsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.same = nn.Identity()

    def forward(self, x):
        return self.same(x)


@simple("values/returns-own-weight")
class ReturnsWeight(nn.Module):
    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(D, D))

        def forward(self):
            return self.weight

    def __init__(self):
        super().__init__()
        self.source = self.Weight()

    def forward(self, x):
        return x @ self.source()


# ------------------------------------------------------------------------------------------------
# tensors: dtypes, layouts, shapes, storages
# ------------------------------------------------------------------------------------------------


class Emit(nn.Module):
    """A leaf that returns what a function makes of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class EmitModel(nn.Module):
    """The odd values are output of one leaf and input of the next."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.emit, self.receive = nn.Linear(D, D), Emit(function), Emit(lambda x: x)

    def forward(self, x):
        return self.receive(self.emit(self.layer(x)))


def _tensor_entry(name, function):
    model_entry(f"tensors/{name}")(lambda: (EmitModel(function), {"x": torch.randn(4, D)}))


for _dtype in (
    "float16 bfloat16 float64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128"
).split():
    if hasattr(torch, _dtype):
        _tensor_entry(_dtype, lambda x, dtype=getattr(torch, _dtype): x.to(dtype))
if hasattr(torch, "float4_e2m1fn_x2"):
    _tensor_entry("float4", lambda x: (x * 10).to(torch.uint8).view(torch.float4_e2m1fn_x2))

_tensor_entry("zero-dim", lambda x: x.sum())
_tensor_entry("zero-dim-int", lambda x: (x > 0).sum())
_tensor_entry("empty", lambda x: x[:0])
_tensor_entry("empty-middle", lambda x: x[:, None, :0])
_tensor_entry("one-element", lambda x: x[:1, :1])
_tensor_entry("nan", lambda x: (x - 100).log())
_tensor_entry("some-nan-and-inf", lambda x: torch.cat([x, x / 0, x * float("nan")]))
_tensor_entry("overflow-float16", lambda x: x.half() * 60000 * 2)
_tensor_entry("huge-and-tiny", lambda x: torch.stack([x * 1e38, x * 1e-38, x * 1e-42]))
_tensor_entry("sparse-coo", lambda x: x.relu().to_sparse())
_tensor_entry("sparse-csr", lambda x: x.relu().to_sparse_csr())
_tensor_entry("nested", lambda x: torch.nested.nested_tensor([x[:1], x], layout=torch.strided))
_tensor_entry("jagged", lambda x: torch.nested.nested_tensor([x[:1], x], layout=torch.jagged))
_tensor_entry("quantized", lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8))
_tensor_entry("meta", lambda x: x.to("meta"))
_tensor_entry("transposed", lambda x: x.t())
_tensor_entry("strided-slice", lambda x: x[::2, 1::3])
_tensor_entry("expanded", lambda x: x[:1].expand(1000, D))
_tensor_entry("channels-last", lambda x: x.reshape(1, 2, 2, -1).contiguous(memory_format=torch.channels_last))
_tensor_entry("conjugate-view", lambda x: torch.complex(x, x).conj())
_tensor_entry("negative-view", lambda x: torch.complex(x, x).conj().imag)
_tensor_entry("small-view-of-large-storage", lambda x: torch.zeros(1_000_000)[:D])
_tensor_entry("shared-storage", lambda x: (x, x.view(-1), x[1:], x.t()))
_tensor_entry("chunks-of-one", lambda x: x.chunk(2, dim=-1))
_tensor_entry("same-tensor-twice", lambda x: [x, x, {"again": x}])
_tensor_entry("large", lambda x: x.repeat(512, 64))
_tensor_entry("many-dimensions", lambda x: x.reshape(2, 2, 2, 1, 2, 1, 2, 1))
_tensor_entry("long-vector-of-ints", lambda x: torch.arange(5000))


class TaggedTensor(torch.Tensor):
    """A plain subclass of Tensor."""


_tensor_entry("subclass", lambda x: x.as_subclass(TaggedTensor))


@model_entry("tensors/expanded-input")
def _expanded_input():
    return nn.Sequential(nn.Linear(D, D), nn.ReLU()), {"input": torch.randn(1, D).expand(5, D)}


@model_entry("tensors/transposed-input")
def _transposed_input():
    return nn.Sequential(nn.Linear(D, D), nn.ReLU()), {"input": torch.randn(D, 5).t()}


@model_entry("tensors/inputs-share-storage")
def _inputs_share():
    class Add(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, a, b):
            return self.layer(a) + b

    base = torch.randn(3, D)
    return Add(), {"a": base[:2], "b": base[1:]}


@model_entry("tensors/requires-grad-input")
def _requires_grad():
    return nn.Sequential(nn.Linear(D, D), nn.ReLU()), {"input": torch.randn(2, D, requires_grad=True)}


@model_entry("tensors/bfloat16-model")
def _bfloat16_model():
    return nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D)).bfloat16(), {"input": torch.randn(2, D).bfloat16()}


@model_entry("tensors/complex-model")
def _complex_model():
    return nn.Linear(D, D, dtype=torch.complex64), {"input": torch.randn(2, D, dtype=torch.complex64)}


# ------------------------------------------------------------------------------------------------
# state: things changed in place
# ------------------------------------------------------------------------------------------------


@simple("state/inplace-on-input")
class InplaceOnInput(nn.Module):
    """The submodule overwrites what it was given: a tracer that reads inputs late sees the new value."""

    class AddOne(nn.Module):
        def forward(self, x):
            x.add_(1)
            return None

    def __init__(self):
        super().__init__()
        self.layer, self.add_one = nn.Linear(D, D), self.AddOne()

    def forward(self, x):
        y = self.layer(x).clone()
        self.add_one(y)
        return y


@simple("state/parameter-of-a-buffer")
class ParameterOfABuffer(nn.Module):
    """No operation makes a Parameter of a tensor: each run has another object, in the same memory."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(D, D))

    def forward(self, x):
        return F.linear(x, nn.Parameter(self.table)) + x @ nn.Parameter(self.table, requires_grad=False)


@simple("state/parameter-written-through-its-buffer")
class ParameterWrittenThroughItsBuffer(nn.Module):
    """The buffer is written to once the Parameter is there."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(D, D))

    def forward(self, x):
        weight = nn.Parameter(self.table, requires_grad=False)
        self.table.add_(1)
        return x @ weight


@simple("state/weights-of-a-store")
class WeightsOfAStore(nn.Module):
    """A weight is brought in for one call of a child, and goes to the device ``meta`` afterwards."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D, device="meta")
        self.store = {"weight": torch.randn(D, D), "bias": torch.randn(D)}

    def forward(self, x):
        for name, tensor in self.store.items():
            setattr(self.layer, name, nn.Parameter(tensor, requires_grad=False))
        y = self.layer(x)
        for name in self.store:
            setattr(self.layer, name, nn.Parameter(getattr(self.layer, name).to("meta")))
        return y


@simple("state/parameter-of-a-result")
class ParameterOfAResult(nn.Module):
    """The Parameter is made of what the body computes."""

    def forward(self, x):
        return x @ nn.Parameter(x.t() @ x, requires_grad=False)


@simple("state/inplace-after-output")
class InplaceAfterOutput(nn.Module):
    """The parent overwrites a submodule's output after the call."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(D, D), nn.ReLU(inplace=True), nn.Linear(D, D)

    def forward(self, x):
        y = self.act(self.first(x))
        z = y.mul_(0).add_(1)
        return self.second(z)


@simple("state/mutated-buffers")
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(D))
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.1)
        return self.layer(x - self.mean) * self.calls


@simple("state/cache-grows")
class Cache(nn.Module):
    """Appends to a list it was given, like a key-value cache."""

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, x, cache):
            cache.append(self.layer(x))
            return torch.cat(cache).mean(0, keepdim=True)

    def __init__(self):
        super().__init__()
        self.step = self.Step()

    def forward(self, x):
        cache = []
        for _ in range(3):
            x = self.step(x, cache)
        return x, cache


@simple("state/weights-changed-in-forward")
class ChangesWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            self.layer.weight.mul_(0.5)
        return y + self.layer(x)


@model_entry("state/tied-head")
def _tied_head():
    class TiedLM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(20, D), nn.Linear(D, D), nn.Linear(D, 20, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.mix(self.embed(ids)))

    return TiedLM(), {"ids": torch.randint(0, 20, (2, 5))}


@simple("state/random-train-mode")
class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x)) * torch.rand(())


# ------------------------------------------------------------------------------------------------
# modes: blocks and wrappers around modules
# ------------------------------------------------------------------------------------------------


@simple("modes/autocast")
class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        return self.norm(y.float())


def _grad_mode(name, context):
    class GradMode(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x):
            with context():
                y = self.first(x)
            return self.second(y.clone())

    model_entry(f"modes/{name}")(lambda: (GradMode(), {"x": torch.randn(2, D)}))


_grad_mode("no-grad", torch.no_grad)
_grad_mode("enable-grad", torch.enable_grad)
_grad_mode("inference-mode", torch.inference_mode)
_grad_mode("sdpa-kernel", lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
_grad_mode("device-context", lambda: torch.device("cpu"))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return 2 * x * gradient


@simple("modes/custom-autograd-function")
class CustomFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        return Square.apply(self.layer(x))


def _checkpointed(name, reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(4))

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x

    model_entry(f"modes/{name}")(lambda: (Checkpointed(), {"x": torch.randn(2, D, requires_grad=True)}))


_checkpointed("checkpoint", False)
_checkpointed("checkpoint-reentrant", True)


@model_entry("modes/jit-script-submodule")
def _scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = torch.jit.script(nn.Sequential(nn.Linear(D, D), nn.ReLU()))
    return nn.Sequential(OrderedDict(before=nn.Linear(D, D), scripted=inner)), {"input": torch.randn(2, D)}


@model_entry("modes/jit-trace-submodule")
def _traced():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = torch.jit.trace(nn.Sequential(nn.Linear(D, D), nn.ReLU()), torch.randn(2, D))
    return nn.Sequential(OrderedDict(before=nn.Linear(D, D), traced=inner)), {"input": torch.randn(2, D)}


@model_entry("modes/compiled-submodule")
def _compiled():
    inner = torch.compile(nn.Sequential(nn.Linear(D, D), nn.ReLU()), backend="eager")
    return nn.Sequential(OrderedDict(before=nn.Linear(D, D), compiled=inner)), {"input": torch.randn(2, D)}


@model_entry("modes/compiled-in-place")
def _compiled_in_place():
    model = nn.Sequential(nn.Linear(D, D), nn.Sequential(nn.Linear(D, D), nn.ReLU()))
    model[1].compile(backend="eager")
    return model, {"input": torch.randn(2, D)}


@model_entry("modes/compiled-model")
def _compiled_model():
    return torch.compile(nn.Sequential(nn.Linear(D, D), nn.ReLU()), backend="eager"), {"input": torch.randn(2, D)}


@model_entry("modes/fx-graph-module")
def _graph_module():
    model = nn.Sequential(nn.Linear(D, D), nn.Sequential(nn.ReLU(), nn.Linear(D, D)))
    return torch.fx.symbolic_trace(model), {"input": torch.randn(2, D)}


@model_entry("modes/exported-submodule")
def _exported():
    inner = torch.export.export(nn.Sequential(nn.Linear(D, D), nn.ReLU()), (torch.randn(2, D),)).module()
    return _Plain(inner), {"x": torch.randn(2, D)}


class _Plain(nn.Module):
    """A linear layer and then a module that has no train or eval mode."""

    def __init__(self, inner):
        super().__init__()
        self.before, self.inner = nn.Linear(D, D), inner

    def forward(self, x):
        return self.inner(self.before(x))

    def train(self, mode=True):
        self.before.train(mode)
        self.training = mode
        return self


@model_entry("modes/data-parallel")
def _data_parallel():
    return nn.DataParallel(nn.Sequential(nn.Linear(D, D), nn.ReLU())), {"input": torch.randn(2, D)}


@model_entry("modes/quantize-dynamic")
def _quantize_dynamic():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(
            nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)).eval(), {nn.Linear}, dtype=torch.qint8
        )
    return model, {"input": torch.randn(2, D)}


@simple("modes/cond")
class HigherOrderCond(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        y = self.layer(x)
        return torch.where(y.sum() > 0, y.sin(), y.cos())


# ------------------------------------------------------------------------------------------------
# hooks: hooks, parametrizations, pruning
# ------------------------------------------------------------------------------------------------


def _hooked(name, attach):
    def build():
        model = nn.Sequential(OrderedDict(first=nn.Linear(D, D), second=nn.Linear(D, D)))
        attach(model)
        return model, {"input": torch.randn(2, D)}

    model_entry(f"hooks/{name}")(build)


_hooked("replaces-output", lambda m: m.first.register_forward_hook(lambda mod, args, out: out * 0))
_hooked("replaces-input", lambda m: m.second.register_forward_pre_hook(lambda mod, args: (args[0] + 1,)))
_hooked("on-the-root", lambda m: m.register_forward_hook(lambda mod, args, out: {"wrapped": out}))
_hooked("with-kwargs", lambda m: m.second.register_forward_hook(lambda mod, args, kw, out: out + 1, with_kwargs=True))
_hooked("always-call", lambda m: m.second.register_forward_hook(lambda mod, args, out: None, always_call=True))
_hooked("backward-hook", lambda m: m.first.register_full_backward_hook(lambda mod, grad_in, grad_out: None))
_hooked("weight-norm", lambda m: parametrizations.weight_norm(m.first))
_hooked("spectral-norm", lambda m: parametrizations.spectral_norm(m.first))
_hooked("orthogonal", lambda m: parametrizations.orthogonal(m.first))
_hooked("pruned", lambda m: prune.l1_unstructured(m.first, "weight", amount=0.5))


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).t()


_hooked("custom-parametrization", lambda m: parametrize.register_parametrization(m.first, "weight", Symmetric()))


@model_entry("hooks/old-weight-norm")
def _old_weight_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = torch.nn.utils.weight_norm(nn.Linear(D, D))
    return nn.Sequential(layer), {"input": torch.randn(2, D)}


# ------------------------------------------------------------------------------------------------
# names: submodule names that are awkward as keys, paths or file names
# ------------------------------------------------------------------------------------------------


def _named(label, names):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            for name in names:
                self._modules[name] = nn.Linear(D, D)  # add_module refuses dots

        def forward(self, x):
            for child in self._modules.values():
                x = child(x)
            return x

    model_entry(f"names/{label}")(lambda: (Named(), {"x": torch.randn(2, D)}))


_named("dots", ["a.b", "a", ".", "..", "a..b"])
_named("slashes", ["a/b", "/abs", "../up", "back\\slash"])
_named("unicode", ["слой", "層", "é", "e\u0301", "🙂", "\u202eright-to-left"])
_named("very-long", ["n" * 300, "m" * 3000])
_named("case-only", ["layer", "Layer", "LAYER"])
_named("whitespace", [" ", "a b", "tab\t", "line\nbreak", "nul\0byte"])
_named("markup", ["<b>", '"quoted"', "'", "{x}", "%s", "$HOME", "*", "a:b|c?"])
_named("reserved", ["forward", "self", "None", "CON", "nul.txt", "__class__", "0"])
_named("underscore-collision", ["layer_0", "layer"])
_named("empty-name", [""])


@model_entry("names/long-class-name")
def _long_class_name():
    return type("C" * 300, (nn.Linear,), {})(D, D), {"input": torch.randn(2, D)}


@model_entry("names/path-collision")
def _path_collision():
    """``a_inputs`` and ``a`` give the same file names to a tracer that joins with underscores."""
    model = nn.Sequential(OrderedDict(a=nn.Linear(D, D), a_inputs=nn.Linear(D, D), a_inputs_args=nn.Linear(D, D)))
    return model, {"input": torch.randn(2, D)}


# ------------------------------------------------------------------------------------------------
# scale
# ------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 16), nn.Linear(16, D)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Stack(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@model_entry("scale/layers-6")
def _layers_6():
    return Stack(6), {"x": torch.randn(2, D)}


@model_entry("scale/layers-500")
def _layers_500():
    return Stack(500), {"x": torch.randn(2, D)}


@model_entry("scale/two-stacks")
def _two_stacks():
    return nn.Sequential(OrderedDict(encoder=Stack(5), decoder=Stack(3))), {"input": torch.randn(2, D)}


@model_entry("scale/wide-2000")
def _wide():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList(nn.Linear(D, 1) for _ in range(2000))

        def forward(self, x):
            return torch.cat([branch(x) for branch in self.branches], -1)

    return Wide(), {"x": torch.randn(2, D)}


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@model_entry("scale/nested-150")
def _nested_150():
    model = nn.Linear(D, D)
    for _ in range(150):
        model = Wrapped(model)
    return model, {"x": torch.randn(2, D)}


@model_entry("scale/calls-3000")
def _calls_3000():
    class Repeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, D)

        def forward(self, x):
            for _ in range(3000):
                x = self.layer(x).tanh()
            return x

    return Repeats(), {"x": torch.randn(2, D)}


@model_entry("scale/large-activations")
def _large_activations():
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*layers), {"input": torch.randn(1, 4, 256, 256)}


# ------------------------------------------------------------------------------------------------
# raising: forward ends in an exception
# ------------------------------------------------------------------------------------------------


@simple("raising/in-a-leaf", _RAISING)
class RaisesInLeaf(nn.Module):
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("in a leaf")

    def __init__(self):
        super().__init__()
        self.first, self.fails, self.never = nn.Linear(D, D), self.Fails(), nn.Linear(D, D)

    def forward(self, x):
        return self.never(self.fails(self.first(x)))


@simple("raising/after-submodules", _RAISING)
class RaisesLate(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x):
        self.second(self.first(x))
        raise RuntimeError("after the submodules")


@model_entry("raising/wrong-shape", _RAISING)
def _wrong_shape():
    return nn.Sequential(nn.Linear(D, D), nn.Linear(D + 1, D)), {"input": torch.randn(2, D)}


@model_entry("raising/deep-in-a-stack", _RAISING)
def _deep_in_a_stack():
    model = Stack(6)
    model.layers[4].up = nn.Linear(D - 1, 16)
    return model, {"x": torch.randn(2, D)}


@simple("raising/keyboard-interrupt", _RAISING)
class Interrupts(nn.Module):
    class Stops(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    def __init__(self):
        super().__init__()
        self.first, self.stops = nn.Linear(D, D), self.Stops()

    def forward(self, x):
        return self.stops(self.first(x))


@model_entry("raising/wrong-arguments", _RAISING)
def _wrong_arguments():
    return nn.Sequential(nn.Linear(D, D)), {"no_such_argument": torch.randn(2, D)}


@model_entry("raising/hook-raises", _RAISING)
def _hook_raises():
    def hook(module, arguments, output):
        raise RuntimeError("in a hook")

    model = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    model[1].register_forward_hook(hook)
    return model, {"input": torch.randn(2, D)}


@simple("raising/recursion-error", _RAISING)
class Endless(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        return self(self.layer(x))


@simple("raising/unpicklable-exception", _RAISING)
class RaisesOdd(nn.Module):
    class Odd(Exception):
        def __init__(self, tensor, *, extra):
            self.tensor, self.extra = tensor, extra

        def __str__(self):
            raise RuntimeError("no str")

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x):
        raise self.Odd(self.layer(x), extra=lambda: None)


@simple("raising/then-caught-inside-and-raised-again", _RAISING)
class Reraises(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = RaisesInLeaf()

    def forward(self, x):
        try:
            return self.inner(x)
        except ValueError as error:
            raise RuntimeError("wrapped") from error


# ------------------------------------------------------------------------------------------------
# extra: libraries that may not be installed
# ------------------------------------------------------------------------------------------------


def _extra_entries():
    for source in (_diffusers_entries, _peft_entries, _accelerate_entries):
        with contextlib.suppress(ImportError):
            yield from source()


def _seeded(function):
    def build():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, inputs = function()
        return model.eval(), inputs

    return build


def _diffusers_entries():
    import diffusers

    def unet():
        model = diffusers.UNet2DModel(
            sample_size=16,
            block_out_channels=(16, 32),
            layers_per_block=1,
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
        )
        return model, {"sample": torch.randn(1, 3, 16, 16), "timestep": torch.tensor(3)}

    def unet_condition():
        model = diffusers.UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(16, 32),
            layers_per_block=1,
            norm_num_groups=4,
            cross_attention_dim=16,
            attention_head_dim=8,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        )
        return model, {
            "sample": torch.randn(1, 4, 8, 8),
            "timestep": torch.tensor(3),
            "encoder_hidden_states": torch.randn(1, 4, 16),
        }

    def vae():
        model = diffusers.AutoencoderKL(
            block_out_channels=(8, 16),
            norm_num_groups=4,
            latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        )
        return model, {"sample": torch.randn(1, 3, 16, 16)}

    def vq():
        model = diffusers.VQModel(
            block_out_channels=(8, 16),
            norm_num_groups=4,
            num_vq_embeddings=16,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        )
        return model, {"sample": torch.randn(1, 3, 16, 16)}

    def dit():
        model = diffusers.DiTTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=4,
            num_layers=4,
            sample_size=8,
            norm_num_groups=4,
            num_embeds_ada_norm=10,
        )
        return model, {
            "hidden_states": torch.randn(1, 4, 8, 8),
            "timestep": torch.tensor([3]),
            "class_labels": torch.tensor([1]),
        }

    def sd3():
        model = diffusers.SD3Transformer2DModel(
            sample_size=8,
            patch_size=2,
            in_channels=4,
            num_layers=4,
            attention_head_dim=8,
            num_attention_heads=2,
            joint_attention_dim=16,
            caption_projection_dim=16,
            pooled_projection_dim=16,
            out_channels=4,
        )
        return model, {
            "hidden_states": torch.randn(1, 4, 8, 8),
            "encoder_hidden_states": torch.randn(1, 5, 16),
            "pooled_projections": torch.randn(1, 16),
            "timestep": torch.tensor([3]),
        }

    def flux():
        model = diffusers.FluxTransformer2DModel(
            in_channels=4,
            num_layers=2,
            num_single_layers=4,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            axes_dims_rope=(4, 4, 8),
        )
        return model, {
            "hidden_states": torch.randn(1, 16, 4),
            "encoder_hidden_states": torch.randn(1, 5, 16),
            "pooled_projections": torch.randn(1, 16),
            "timestep": torch.tensor([0.3]),
            "img_ids": torch.zeros(16, 3),
            "txt_ids": torch.zeros(5, 3),
        }

    def pixart():
        model = diffusers.PixArtTransformer2DModel(
            num_attention_heads=2,
            attention_head_dim=8,
            in_channels=4,
            out_channels=8,
            num_layers=4,
            sample_size=8,
            cross_attention_dim=16,
            caption_channels=16,
        )
        return model, {
            "hidden_states": torch.randn(1, 4, 8, 8),
            "encoder_hidden_states": torch.randn(1, 5, 16),
            "timestep": torch.tensor([3]),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        }

    for function in (unet, unet_condition, vae, vq, dit, sd3, flux, pixart):
        yield f"extra/diffusers-{function.__name__}", _seeded(function)


def _small_llama():
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=4,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    )


def _peft_entries():
    import peft

    def wrap(config):
        return lambda: (peft.get_peft_model(_small_llama(), config()), {"input_ids": torch.randint(3, 60, (1, 6))})

    task, target = "CAUSAL_LM", ["q_proj", "v_proj"]
    configs = {
        "lora": lambda: peft.LoraConfig(r=2, target_modules=target, task_type=task),
        "dora": lambda: peft.LoraConfig(r=2, target_modules=target, task_type=task, use_dora=True),
        "ia3": lambda: peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type=task
        ),
        "prompt-tuning": lambda: peft.PromptTuningConfig(num_virtual_tokens=3, task_type=task),
        "prefix-tuning": lambda: peft.PrefixTuningConfig(num_virtual_tokens=3, task_type=task),
    }
    for name, config in configs.items():
        yield f"extra/peft-{name}", _seeded(wrap(config))


def _accelerate_entries():
    import accelerate

    def cpu_offload():
        model = accelerate.cpu_offload(_small_llama(), torch.device("cpu"))
        return model, {"input_ids": torch.randint(3, 60, (1, 6))}

    yield "extra/accelerate-cpu-offload", _seeded(cpu_offload)


def _transformers_entries():
    try:
        from zoo import zoo_hf

        yield from zoo_hf.transformers_entries()
    except ImportError:
        return


if __name__ == "__main__":
    torch.set_num_threads(1)
    for entry_name, entry_build in zoo():
        try:
            entry_model, entry_inputs = entry_build()
            entry_model(**entry_inputs)
            print("ok  ", entry_name)
        except Exception as failure:
            print("FAIL", entry_name, repr(failure)[:200])
