"""Runs of several kinds of models, small, for the tests of exporters."""

from __future__ import annotations

import functools

import torch
import transformers
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from support.trees import Does, linear, ones

HOSTILE = ("</script><!--", "a\u2028b\u202ec", "x" * 10_000, "a/b#c%25", "<&\"'\x00:ü\ud800>", "`|]\x1b[31m", "$(x);--")


def _hf(config: transformers.PretrainedConfig, model: type[nn.Module], **inputs: object) -> Trace:
    torch.manual_seed(0)
    with torch.no_grad():
        return fx_debug(model(config).eval(), inputs)


def _tokens(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)


def gpt2() -> Trace:
    config = transformers.GPT2Config(n_layer=3, n_embd=16, n_head=2, vocab_size=30, bos_token_id=0, eos_token_id=0)
    return _hf(config, transformers.GPT2Model, input_ids=_tokens(1, 4))


def minilm() -> Trace:
    config = transformers.BertConfig(
        hidden_size=12, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, vocab_size=30
    )
    return _hf(config, transformers.BertModel, input_ids=_tokens(2, 3), attention_mask=torch.ones(2, 3))


def resnet50() -> Trace:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[3, 4, 6, 3])
    return _hf(config, transformers.ResNetModel, pixel_values=torch.ones(1, 3, 32, 32))


def t5() -> Trace:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, vocab_size=30, decoder_start_token_id=0
    )
    inputs = {"input_ids": _tokens(1, 4), "decoder_input_ids": _tokens(1, 3)}
    return _hf(config, transformers.T5Model, **inputs)


def mixtral() -> Trace:
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=30, num_local_experts=2,
    )  # fmt: skip
    return _hf(config, transformers.MixtralModel, input_ids=_tokens(1, 4))


def lstm() -> Trace:
    return fx_debug(nn.LSTM(4, 5, num_layers=2), torch.ones(3, 1, 4))


def crashed() -> Trace:
    try:
        fx_debug(nn.Sequential(linear(), nn.Sequential(nn.ReLU(), nn.Linear(3, 3))), ones())
    except RuntimeError:
        found = fxdebug.last_failed()
        assert found is not None
        return found
    raise AssertionError("the shapes fit")


def hostile() -> Trace:
    """A run whose modules have names that break pages, terminals and files."""

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for name in HOSTILE:
            x = self._modules[name](x)
        return x

    return fx_debug(Does(forward, **{name: linear() for name in HOSTILE}), ones())


RUNS = {one.__name__: one for one in (gpt2, minilm, resnet50, t5, mixtral, lstm, crashed, hostile)}


@functools.cache
def run(name: str) -> Trace:
    """The run of a name, made once."""
    return RUNS[name]()
