"""compare_models: every call is judged by itself, so that faults planted at once are all found, and nothing else."""

from __future__ import annotations

import copy
import itertools
import random
import types
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import fxdebug
from fxdebug import compare_models
from fxdebug.api.comparison import Comparison
from fxdebug.repair.trials.measured_effects import ALIKE

D = 16


class Mixer(nn.Module):
    """Attention of one head, in as many modules as usual."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / D**0.5
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        return self.out(weights @ self.v(x)), weights


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(D), nn.LayerNorm(D)
        self.mixer = Mixer()
        self.up, self.act, self.down = nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(self.norm_a(x), mask=mask)[0]
        return x + self.down(self.act(self.up(self.norm_b(x))))


@dataclass
class Result:
    hidden: torch.Tensor
    logits: torch.Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, D)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(D, 5)

    def forward(self, tokens: torch.Tensor) -> Result:
        x, mask = self.embed(tokens), torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        for block in self.blocks:
            x = block(x, mask)
        return Result(x, self.head(x))


TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def pair() -> tuple[Any, Any]:
    torch.manual_seed(0)
    one = Net().eval()
    return one, copy.deepcopy(one)


def told(comparison: Comparison) -> list[tuple[str, str | None, str | None]]:
    return [(row.path, row.op, row.kind) for row in comparison.findings]


# Several at once -----------------------------------------------------------------------------------


def test_every_one_of_many_faults_is_found_and_nothing_else():
    one, other = pair()
    other.blocks[0].norm_b.eps = 0.3
    other.blocks[1].mixer.k.weight[2, 2] += 1
    other.blocks[2].act = nn.ReLU()
    other.blocks[3].norm_a.bias += 0.5
    found = compare_models(one, other, TOKENS)
    assert sorted(told(found)) == [
        ("blocks.0.norm_b", "layer_norm", "constant"),
        ("blocks.1.mixer.k", "linear", "weights"),
        ("blocks.2.act", "relu", "values"),
        ("blocks.3.norm_a", "layer_norm", "weights"),
    ]
    effects = [row.effect for row in found.findings]
    assert None not in effects and all(x * ALIKE >= y for x, y in itertools.pairwise(effects))
    assert told(compare_models(one, other, TOKENS, budget=0)) == sorted(told(found))  # in execution order
    assert not found.equal and found.first is found.findings[0]


def test_the_same_fault_in_every_layer_is_found_in_every_layer():
    one, other = pair()
    for block in other.blocks:
        block.norm_a.eps = 0.3
    assert told(compare_models(one, other, TOKENS)) == [
        (f"blocks.{i}.norm_a", "layer_norm", "constant") for i in range(4)
    ]


def test_what_code_between_calls_does_wrongly_is_found_beside_what_calls_do():
    def doubled(self: Block, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(self.norm_a(x), mask=mask)[0]
        return 2 * x + self.down(self.act(self.up(self.norm_b(x))))

    one, other = pair()
    other.blocks[1].forward = types.MethodType(doubled, other.blocks[1])
    other.blocks[2].up.bias += 1
    found = compare_models(one, other, TOKENS)
    assert [(row.path, row.kind) for row in found.findings][1:] == [("blocks.2.up", "weights")]
    assert found.first.path == "blocks.1" and found.first.source.startswith(__file__)


def test_a_caller_that_hands_on_the_wrong_value_is_named_with_its_line():
    def unnormed(self: Block, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        normed = self.norm_a(x)
        x = x + self.mixer(normed, mask=mask)[0]
        self.norm_b(x)
        return x + self.down(self.act(self.up(normed)))

    one, other = pair()
    other.blocks[1].forward = types.MethodType(unnormed, other.blocks[1])
    other.blocks[3].act = nn.Tanh()
    found = compare_models(one, other, TOKENS)
    assert told(found) == [("blocks.1", "Linear", "wiring"), ("blocks.3.act", "tanh", "values")]
    assert found.first.because == (
        "up is given what blocks.1.norm_a returned as args[0], what blocks.1.norm_b returned in a"
    )
    line = unnormed.__code__.co_firstlineno + 4
    assert found.first.source == f"{__file__}:{line}"


def test_a_wrong_mask_that_is_handed_to_every_layer_is_found_where_it_was_made():
    def see_all(self: Net, tokens: torch.Tensor) -> Result:
        x, mask = self.embed(tokens), torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu()
        for block in self.blocks:
            x = block(x, mask)
        return Result(x, self.head(x))

    one, other = pair()
    other.forward = types.MethodType(see_all, other)
    other.blocks[2].act = nn.ReLU()
    found = compare_models(one, other, TOKENS)
    assert {row.path for row in found.findings} == {"", "blocks.2.act"}


class Ported(nn.Module):
    """The same with other names and fused projections."""

    def __init__(self, net: Net, eps: float = 1e-5) -> None:
        super().__init__()
        self.words, self.classify = net.embed, net.head
        self.layers = nn.ModuleList([PortedLayer(block, eps) for block in net.blocks])

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, size = self.words(tokens), tokens.shape[1]
        for layer in self.layers:
            h = layer(h, torch.tril(torch.ones(size, size, dtype=torch.bool)))
        return h, self.classify(h)


class PortedLayer(nn.Module):
    def __init__(self, block: Block, eps: float) -> None:
        super().__init__()
        mixer = block.mixer
        self.pre, self.post = copy.deepcopy(block.norm_a), copy.deepcopy(block.norm_b)
        self.post.eps = eps
        self.qkv = nn.Linear(D, 3 * D)
        self.qkv.weight.copy_(torch.cat([mixer.q.weight, mixer.k.weight, mixer.v.weight]))
        self.qkv.bias.copy_(torch.cat([mixer.q.bias, mixer.k.bias, mixer.v.bias]))
        self.o, self.wide, self.narrow = mixer.out, block.up, block.down
        self.activation = F.gelu

    def forward(self, h: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.pre(h)).chunk(3, -1)
        h = h + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=keep))
        return h + self.narrow(self.activation(self.wide(self.post(h))))


def test_faults_in_a_port_with_other_names_are_all_found():
    one, _ = pair()
    assert told(compare_models(one, Ported(one).eval(), TOKENS)) == []
    other = Ported(one, eps=0.3).eval()
    found = compare_models(one, other, TOKENS)
    assert {row.path for row in found.findings} == {f"layers.{i}.post" for i in range(4)}


# Equal models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["twice", "bfloat16", "sdpa against eager", "with a cache"])
def test_equal_models_give_no_findings(how):
    torch.manual_seed(0)
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    if how == "with a cache":
        one: Any = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=48)).eval()
        other = copy.deepcopy(one)
    else:
        one = BertModel(BertConfig(**sizes, intermediate_size=48)).eval()
        other = copy.deepcopy(one)
        if how == "bfloat16":
            other = other.to(torch.bfloat16)
        if how == "sdpa against eager":
            other.set_attn_implementation("eager")
    found = compare_models(one, other, inputs)
    assert told(found) == []
    assert found.equal and found.notes[-1].startswith("isolated: ")


def test_a_call_that_is_told_the_same_in_another_way_is_left_as_it_is():
    class Places(nn.Module):
        def __init__(self, first: int) -> None:
            super().__init__()
            self.first, self.table, self.scale = first, nn.Embedding(10, D), nn.LayerNorm(D)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale(x + self.table(torch.arange(len(x)) + self.first))

    torch.manual_seed(0)
    one, other = Places(0), Places(2)
    other.table.weight[2:] = one.table.weight[:-2]
    other.table.weight[:2] = 9
    x = torch.randn(4, D)
    assert told(compare_models(one, other, x)) == []
    other.scale.eps = 0.5
    assert told(compare_models(one, other, x)) == [("scale", "layer_norm", "constant")]


def test_what_was_drawn_at_random_is_the_same_in_all_runs():
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.Linear(D, D), nn.Dropout(0.5)).train()
    assert told(compare_models(one, copy.deepcopy(one), torch.randn(4, D))) == []


def test_what_the_users_hooks_put_in_place_is_no_fault():
    one, _ = pair()
    one.blocks[1].register_forward_hook(lambda module, args, output: output * 2)
    one.blocks[2].up.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    other = copy.deepcopy(one)
    assert told(compare_models(one, other, TOKENS)) == []
    other.blocks[2].act = nn.ReLU()
    assert told(compare_models(one, other, TOKENS)) == [("blocks.2.act", "relu", "values")]


@pytest.mark.parametrize("layout", ["sparse", "nested"])
def test_layouts_without_positions_are_compared(layout):
    class Holds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    made = (
        torch.eye(3).to_sparse() if layout == "sparse" else torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    )
    assert told(compare_models(nn.Sequential(Holds()), nn.Sequential(Holds()), (made,))) == []


def test_inputs_of_its_own_are_given_to_b():
    one, other = pair()
    found = compare_models(one, other, TOKENS, inputs_b=TOKENS + 1)
    assert found.first.kind == "input"
    with pytest.raises(fxdebug.UsageError):
        compare_models(one, other, TOKENS, mapping={"nowhere.*": "blocks.*"})


# Nothing is left behind ----------------------------------------------------------------------------


def state(model: nn.Module) -> list[object]:
    """What a run could leave on a model."""
    found: list[object] = []
    for path, module in model.named_modules():
        hooks = [len(module._forward_hooks), len(module._forward_pre_hooks)]
        found.append((path, hooks, module.training, sorted(vars(module))))
    return found + [(name, tensor.tolist()) for name, tensor in model.state_dict().items()]


def test_models_inputs_and_random_numbers_are_as_before():
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Dropout(0.5)).train()
    other, x = copy.deepcopy(one), torch.randn(8, D)
    kept, before = x.clone(), (state(one), state(other))
    drawn = torch.get_rng_state(), random.getstate()
    assert told(compare_models(one, other, x)) == []
    assert (state(one), state(other)) == before
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), drawn[0]) and random.getstate() == drawn[1]


def test_what_modules_keep_from_call_to_call_is_as_before():
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.cache = nn.Linear(D, D), None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache = self.layer(x) if self.cache is None else torch.cat([self.cache, self.layer(x)])
            self.seen = len(self.cache)
            return self.cache.sum(0)

    torch.manual_seed(0)
    one = Grows()
    other = copy.deepcopy(one)
    assert told(compare_models(one, other, torch.ones(2, D))) == []
    assert [(model.cache, hasattr(model, "seen")) for model in (one, other)] == [(None, False)] * 2


class Fails(nn.Module):
    """Raises when it is called for the ``time``-th time."""

    def __init__(self, time: int) -> None:
        super().__init__()
        self.time, self.calls = time, [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0] += 1
        if self.calls[0] >= self.time:
            raise RuntimeError("enough")
        return x * 2


@pytest.mark.parametrize("time", [1, 2])
def test_a_model_b_that_raises_is_compared_as_far_as_it_came(time):
    torch.manual_seed(0)
    first = nn.Linear(D, D)
    one, other = nn.Sequential(first, Fails(9)), nn.Sequential(copy.deepcopy(first), Fails(time))
    other[0].bias += 1
    found = compare_models(one, other, torch.ones(1, D))
    assert found.first.path == "0"
    assert "not isolated: " in found.notes[-1] and "RuntimeError: enough" in found.notes[-1]
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in other.modules())


def test_what_model_a_raises_is_raised_as_it_is():
    with pytest.raises(RuntimeError, match=r"^enough$"):
        compare_models(nn.Sequential(Fails(1)), nn.Sequential(Fails(9)), torch.ones(1, D))


def test_memory_that_a_call_writes_into_stays_that_of_its_caller():
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x += 1
            return x * 3

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.adds = nn.Linear(D, D), Adds()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.adds(x) + x  # as Adds left it

    torch.manual_seed(0)
    one = Uses()
    other = copy.deepcopy(one)
    assert told(compare_models(one, other, torch.ones(2, D))) == []
    other.first.weight[0, 0] += 1
    assert told(compare_models(one, other, torch.ones(2, D))) == [("first", "linear", "weights")]


class Mlp(nn.Module):
    """Two layers, and what stands between them."""

    def __init__(self, between: Any, end: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.between, self.end = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), between, end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(self.between(self.up(x)))
        return x if self.end is None else self.end(x)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Mlp(F.silu), Mlp(F.gelu), ("", "gelu", "values")),
        (Mlp(F.silu), Mlp(lambda x: x.abs_()), ("", "abs", "values")),
        (Mlp(F.silu, lambda x: x[:, 0]), Mlp(F.silu, lambda x: x[:, -1]), ("", "getitem", "constant")),
        (Mlp(lambda x: x * 2), Mlp(lambda x: x * 3), ("", "mul", "constant")),
    ],
)
def test_an_operation_between_calls_is_named_and_not_the_call_that_is_given_its_result(one, other, expected):
    x = torch.randn(2, D)
    assert told(compare_models(one, other, x)) == [expected]
    assert told(compare_models(one, copy.deepcopy(one), x)) == []


def test_layers_that_torch_runs_fused_stay_fused_and_are_judged():
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(D, 2, 2 * D, batch_first=True)
            self.embed, self.encoder = nn.Linear(D, D), nn.TransformerEncoder(layer, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(self.embed(x)) * 2

    one, x = Encoder().eval(), torch.randn(2, 5, D)
    found = compare_models(one, copy.deepcopy(one), x)
    assert told(found) == []
    assert [call.path for call in found.a.calls] == [call.path for call in found.b.calls]  # none of what is fused
    other = copy.deepcopy(one)
    with torch.no_grad():
        other.encoder.layers[1].linear1.weight *= 1.5
        other.embed.bias += 1
    assert [finding.path for finding in compare_models(one, other, x).findings] == ["embed", "encoder.layers.1"]


# Implementations that do the same in another way -------------------------------------------------


@pytest.mark.parametrize("layout", ["coo", "csr", "nested", "jagged", "quantized", "meta", "expanded", "float8"])
def test_buffers_of_any_layout_are_left_as_they_are(layout):
    eye, rows = torch.eye(4), [torch.ones(2), torch.ones(3)]
    buffer = {
        "coo": eye.to_sparse, "csr": eye.to_sparse_csr, "nested": lambda: torch.nested.nested_tensor(rows),
        "jagged": lambda: torch.nested.nested_tensor(rows, layout=torch.jagged),
        "quantized": lambda: torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
        "meta": lambda: eye.to("meta"), "expanded": lambda: torch.ones(1).expand(4),
        "float8": lambda: eye.to(torch.float8_e4m3fn),
    }[layout]()  # fmt: skip
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model.register_buffer("table", buffer, persistent=False)
    assert compare_models(model, model, torch.ones(2, 4)).equal
    assert model.table is buffer


def test_a_buffer_that_a_run_wrote_into_is_restored_whatever_its_layout():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.eye(3).to_sparse())

        def forward(self, x):
            self.seen.mul_(2)
            return x + 1

    model = Counts()
    compare_models(model, copy.deepcopy(model), torch.ones(2))
    assert torch.equal(model.seen.to_dense(), torch.eye(3))


class Items(nn.Module):
    """Returns items of a tuple that an inner call returned; ``fused`` has them in one call."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fused, self.norm, self.out = fused, nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return (self.out(self.norm(x.relu())), x)[0]
        pair = (x.relu(), len(x))
        return self.out(self.norm(pair[0]))


class Wrapped(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.inner, self.last = Items(fused), nn.Identity() if fused else nn.Linear(D, D).requires_grad_(False)
        if not fused:
            with torch.no_grad():
                self.last.weight.copy_(torch.eye(D))
                self.last.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x))


def test_an_identity_in_place_of_a_module_that_changes_nothing_is_no_fault():
    x = torch.randn(2, D)
    assert compare_models(Wrapped(False), Wrapped(True), x).findings == ()
    assert compare_models(Wrapped(True), Wrapped(False), x).findings == ()


class Scan(nn.Module):
    """A cumulative sum of a projection, step by step or in one operation."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.at_once, self.into, self.out = at_once, nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        if self.at_once:
            return self.out(x.cumsum(1))
        state, states = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            state = state * 1.0 + x[:, step]
            states.append(state)
        return self.out(torch.stack(states, 1))


def test_another_algorithm_within_a_call_is_no_fault_and_a_wrong_one_is():
    x = torch.randn(2, 6, D)
    one, other = nn.Sequential(Scan(False), Scan(False)), nn.Sequential(Scan(True), Scan(True))
    assert compare_models(one, other, x).findings == ()
    assert compare_models(other, one, x).findings == ()
    wrong = types.MethodType(lambda self, x: self.out(self.into(x).flip(1).cumsum(1)), other[1])
    object.__setattr__(other[1], "forward", wrong)
    assert {row.path.split(".")[0] for row in compare_models(one, other, x).findings} == {"1"}
