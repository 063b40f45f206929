"""Statuses of whole models and of layers of torch: caches, decoding, collected outputs, fused and sharded layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from support.reasons import reason_of
from support.watched import watched

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's and transformers' deprecations

SIZES: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 32}


def gpt2(**options: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(**SIZES, **options)).eval()


def bert(**options: Any) -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50, **options
    )
    return BertModel(config).eval()


def tokens(length: int = 6) -> torch.Tensor:
    return torch.randint(0, 50, (2, length))


# Key–value caches ----------------------------------------------------------------------------------------------------


def test_a_forward_that_makes_its_cache_is_verified() -> None:
    seen = watched(lambda: (gpt2(), {"input_ids": tokens()}))
    assert seen.not_verified() == {}
    assert len(seen.trace.output.past_key_values) == 2


def test_a_step_with_a_cache_that_is_not_empty_is_verified_and_the_cache_grows_once() -> None:
    def make() -> Any:
        from transformers import DynamicCache

        model = gpt2()
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(tokens(), past_key_values=cache)
        return model, {"input_ids": tokens(1), "past_key_values": cache}

    kept: list[Any] = []
    seen = watched(make, after=lambda model, output: kept.append(output.past_key_values))
    assert seen.not_verified() == {}
    assert [cache.get_seq_length() for cache in kept] == [7, 7]


def test_a_static_cache_is_written_to_once() -> None:
    def make() -> Any:
        from transformers import StaticCache

        model = gpt2()
        return model, {"input_ids": tokens(3), "past_key_values": StaticCache(config=model.config, max_cache_len=8)}

    # the audit, later, finds the cache and its counter further on: it cannot execute what attends to it
    attention = tuple(f"transformer.h.{layer}.attn#0" for layer in range(2))
    assert watched(make, not_alone=attention).not_verified() == {}


@pytest.mark.parametrize("strategy", [{}, {"num_beams": 2}, {"do_sample": True}, {"use_cache": False}])
def test_each_forward_of_generate_has_its_graph(strategy: dict[str, Any]) -> None:
    """Each forward of the decoding is in the trace, with its graph; the tokens equal those of an untraced run."""
    inputs = {"input_ids": tokens(), "max_new_tokens": 3, "pad_token_id": 0, **strategy}
    seen = watched(lambda: (gpt2(), inputs), method="generate")
    assert seen.not_verified() == {
        "#0": "opaque: a method other than forward: what it does besides calling modules is not noted"
    }
    forwards = [call for call in seen.trace.calls if call.type == "GPT2LMHeadModel"]
    assert len(forwards) == 4


# Outputs that transformers collects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["output_hidden_states", "output_attentions"])
def test_outputs_that_transformers_collects_with_hooks(what: str) -> None:
    def make() -> Any:
        return bert(attn_implementation="eager"), {"input_ids": tokens(), what: True}

    seen = watched(make)
    collected = seen.trace.output["hidden_states" if "hidden" in what else "attentions"]
    assert len(collected) == (3 if "hidden" in what else 2)
    assert all(type(tensor) is torch.Tensor for tensor in collected)
    assert set(seen.not_verified()) == {"#0"}
    assert reason_of(seen.root)[0] == (
        "it returns tensors that were made inside its children and gathered past them, as by hooks there"
    )


def test_a_model_that_sets_an_attribute_of_an_output_of_its_child_is_verified() -> None:
    """CLIP sets an attribute of an output of its child: neither may get lost."""

    def make() -> Any:
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

        config = CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=16,
            patch_size=8,
        )
        return CLIPVisionModelWithProjection(config).eval(), {"pixel_values": torch.randn(1, 3, 16, 16)}

    assert watched(make).not_verified() == {}


# torch's own layers --------------------------------------------------------------------------------------------------


def layers(name: str, train: bool) -> Callable[[], Any]:
    def make() -> Any:
        if name == "MultiheadAttention":
            x = torch.randn(2, 5, 8)
            return nn.MultiheadAttention(8, 2, batch_first=True).train(train), (x, x, x)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        if name == "TransformerEncoderLayer":
            return layer.train(train), torch.randn(2, 5, 8)
        return nn.TransformerEncoder(layer, 2).train(train), torch.randn(2, 5, 8)

    return make


FUSED = "opaque: {} runs fused or compiled code that watching would switch off"


@pytest.mark.parametrize("name", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"])
def test_the_fast_path_is_taken_and_opaque(name: str) -> None:
    seen = watched(layers(name, train=False))
    assert seen.not_verified()["#0"] == FUSED.format(name)


@pytest.mark.parametrize("name", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"])
@pytest.mark.parametrize("train", [False, True])
def test_without_the_fast_path_every_call_is_verified(name: str, train: bool) -> None:
    """With gradients, torch does not use the fast path."""
    assert watched(layers(name, train), grad=True).not_verified() == {}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_one_operation(kind: Any) -> None:
    seen = watched(lambda: (kind(8, 4, 2, batch_first=True), torch.randn(2, 5, 8)))
    assert seen.not_verified() == {}


def test_dynamically_quantised_layers() -> None:
    def make() -> Any:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8), torch.randn(3, 8)

    seen = watched(make)
    assert seen.not_verified() == {}
    assert seen.root.graph is not None
    assert [op.op for op in seen.root.graph.ops][1:-1] == ["Linear", "ReLU", "Linear"]


def test_sparse_and_nested_tensors_inside_a_body() -> None:
    class Sparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            s = x.relu().to_sparse()
            return torch.sparse.mm(s, x.t()) + 1

    class Nested(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = torch.nested.nested_tensor([x[:1], x[1:]])
            return n.to_padded_tensor(0.0)

    assert watched(lambda: (Sparse(), torch.randn(3, 3))).root.status == "verified"
    assert watched(lambda: (Nested(), torch.randn(3, 3))).root.status == "recorded"


# Sharded weights -----------------------------------------------------------------------------------------------------


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_weights_that_are_dtensors(one_rank: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    x = distribute_tensor(torch.randn(3, 8), one_rank, [Replicate()])

    def shard(name: str, module: nn.Module, mesh: Any) -> None:
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

    distribute_module(model, one_rank, shard)
    with torch.no_grad():
        expected = model(x)
        trace = fxdebug.fx_debug(model, x)
    assert type(trace.output) is type(expected)
    assert torch.equal(trace.output.to_local(), expected.to_local())
    assert {call.id: call.status for call in trace.calls} == {
        "#0": "verified", "0#0": "verified", "1#0": "verified", "2#0": "verified",
    }  # fmt: skip


def test_an_fsdp_model(one_rank: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    x = torch.randn(3, 8)
    expected = model(x)
    fully_shard(model, mesh=one_rank)
    trace = fxdebug.fx_debug(model, x)
    assert torch.equal(trace.output, expected)
    assert [call.status for call in trace.calls] == ["verified"] * 4
    trace.output.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
