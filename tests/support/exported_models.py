"""Small models of the architectures that exports are tested on, and runs that are not as runs are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug

WORDS = 50
TOKENS = torch.arange(12).reshape(2, 6)
Case = tuple[nn.Module, dict[str, Any]]

HOSTILE = "</script><!--a/b:1^%\u2028\u202e\x07 ü\ud800" + "n" * 10_000


def gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_embd=32, n_head=2, vocab_size=WORDS, bos_token_id=1, eos_token_id=1)
    return GPT2LMHeadModel(config), {"input_ids": TOKENS}


def minilm() -> Case:
    """The trained model where its package is installed, else one of its architecture."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=WORDS
    )
    model = BertModel(config)
    return model, {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}


def resnet() -> Case:
    """ResNet-50 with its depths, and an eighth of its channels."""
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[32, 64, 128, 256])), {
        "pixel_values": torch.randn(2, 3, 32, 32)
    }


def t5() -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return T5ForConditionalGeneration(config), {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :4]}


def mixtral() -> Case:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4,
    )  # fmt: skip
    return MixtralForCausalLM(config), {"input_ids": TOKENS}


class Recurrent(nn.Module):
    """An LSTM, and a cell that is called again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, 2, batch_first=True)
        self.cell = nn.LSTMCell(4, 4)
        self.same = nn.Identity()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y, _ = self.lstm(x)
        state = torch.zeros(x.shape[0], 4), torch.zeros(x.shape[0], 4)
        for step in y.unbind(1):
            state = self.cell(step, state)
        return {"h": self.same(state[0]), "c": state[1]}


def lstm() -> Case:
    return Recurrent(), {"x": torch.randn(2, 3, 4)}


MODELS: Mapping[str, Callable[[], Case]] = {
    "gpt2": gpt2, "minilm": minilm, "resnet": resnet, "t5": t5, "mixtral": mixtral, "lstm": lstm,
}  # fmt: skip


def built(name: str) -> Case:
    """A model in eval mode and its inputs, the same each time."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def crashed() -> Trace:
    """A run whose second layer raised."""
    with pytest.raises(RuntimeError):
        fx_debug(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(3, 3))), torch.ones(1, 4))
    found = fxdebug.last_failed()
    assert found is not None
    return found


def hostile() -> Trace:
    """A run of a module with a name that no format likes."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model.add_module(HOSTILE, nn.Linear(4, 4))
    return fx_debug(model, torch.ones(1, 4))


def run_of(name: str) -> Trace:
    """The run of a model, the crashed one, or the one with a hostile name."""
    if name in ("crashed", "hostile"):
        return {"crashed": crashed, "hostile": hostile}[name]()
    model, inputs = built(name)
    with torch.no_grad():
        return fx_debug(model, inputs)


RUNS = (*MODELS, "crashed", "hostile")


def as_it_was(model: nn.Module) -> list[object]:
    """What an exporter must leave alone: flags, hooks, attributes, weights."""
    return [
        (name, module.training, [len(getattr(module, hooks)) for hooks in vars(module) if hooks.endswith("_hooks")],
         sorted(vars(module)), [(key, p._version, p.requires_grad, p.double().sum().item())
                                for key, p in module.named_parameters(recurse=False)])
        for name, module in model.named_modules()
    ]  # fmt: skip
