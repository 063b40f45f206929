"""A planted fault for each rule: what `fxdebug.check` is given, by the rule's id; and trainings for those over time."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fxdebug
from fxdebug.analyses.rules.table import ANALYSES, TRAINING
from support import wasted_models
from support.bodies import Body
from support.numerics_cases import unwritten_memory
from support.sick_state import STATE
from support.sick_trainings import TRAININGS
from support.slow_models import SLOW

Given = tuple[Any, dict[str, Any]]  # the model or run, and further arguments of check


def of_sum(output: Any) -> Tensor:
    """The sum of a tensor, or of the logits of a model of transformers."""
    total: Tensor = getattr(output, "logits", output).sum()
    return total


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def changed(model: nn.Module, name: str, change: Callable[[Tensor], Any]) -> Any:
    with torch.no_grad():
        change(model.get_parameter(name))
    return model


def body(function: Callable[[Tensor], Any], x: Tensor, **options: Any) -> Given:
    return Body(function), {"inputs": x, **options}


def chain(activation: type[nn.Module], std: float | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), activation())]
    for layer in layers[::2]:
        if std is not None:
            nn.init.normal_(layer.weight, std=std)
    return nn.Sequential(*layers)


# Transformers -------------------------------------------------------------------------------------

IDS = torch.arange(64).reshape(2, 32) * 37 % 1000
PADDED = {"input_ids": IDS[:, :16], "attention_mask": (torch.arange(16) < torch.tensor([[16], [10]])).long()}


def gpt2() -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=128, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def bert() -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    return transformers.BertForSequenceClassification(config).eval()


def llama(layers: int = 3) -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def a_mask_that_lets_padding_through() -> Given:
    model = bert()
    layer = model.bert.encoder.layer[2].attention.self
    forward = type(layer).forward
    layer.forward = lambda hidden, attention_mask=None, *args, **kwargs: forward(layer, hidden, None, *args, **kwargs)
    return model, {"inputs": PADDED}


def a_layer_that_sees_later_tokens() -> Given:
    model = llama()
    model.model.layers[1].self_attn.is_causal = False
    return model, {"inputs": IDS}


class AddsItsMask(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class Attends(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def an_attention_sink() -> Given:
    q, k, v = (normal(1, 4, 32, 8, seed=seed) for seed in range(3))
    k[:, 2, 0] = 0
    q[:, 2, :, 0], k[:, 2, 0, 0] = 4.0, 5.0
    return Attends(), {"inputs": (q, k, v)}


# Gradients ----------------------------------------------------------------------------------------


class TwoParts(nn.Module):
    """An encoder and two heads, of which one may go unused or unreached."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.head, self.other = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.how = how
        if how == "frozen":
            self.encoder.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        if self.how == "not called":
            return self.head(hidden)
        other = self.other(hidden)
        return self.head(hidden) + (other.detach() if self.how == "not reached" else other)


class Forgetful(nn.Module):
    """A checkpoint whose recomputation draws other numbers than the forward."""

    def __init__(self, keeps: bool = False) -> None:
        super().__init__()
        self.keeps = keeps
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=self.keeps)
        return result


class Root(nn.Module):
    """A root at 0, where its derivative is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return torch.sqrt(y - y.detach()) * 2


def with_loss(model: nn.Module, x: Any, loss: Callable[[Any], Tensor] = of_sum, **options: Any) -> Given:
    return model, {"inputs": x, "loss": loss, **options}


def stepped(model: Any, make: Callable[[Any], torch.optim.Optimizer]) -> Given:
    return with_loss(model, normal(16, 8), lambda output: output.pow(2).mean(), optimizer=make(model))


def with_rate(rate: float) -> Given:
    model = bert()
    batch = {**PADDED, "labels": torch.tensor([0, 1])}
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    return model, {"inputs": batch, "loss": lambda output: output.loss, "optimizer": optimizer}


# Time ---------------------------------------------------------------------------------------------


class Slow(nn.Module):
    """Four equal layers, of which one waits."""

    def __init__(self, waits: int = -1) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(i == waits) for i in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, waits: bool) -> None:
        super().__init__()
        self.linear, self.waits = nn.Linear(32, 32), waits

    def forward(self, x: Tensor) -> Tensor:
        if self.waits:
            time.sleep(0.03)
        return self.linear(x) + 1


class WithWeight(nn.Module):
    """A function of the result of a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(32, 32), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def timed(model: nn.Module) -> Given:
    return model, {"inputs": normal(2, 24, 32), "analyses": ["profile"]}


def slow(model: nn.Module, inputs: tuple[Tensor, ...], loss: Any = None, optimizer: Any = None) -> Given:
    return model, {"inputs": inputs, "loss": loss, "analyses": ["profile"]}


IN_SLOW = {
    "copies": "contiguous copies", "padding": "padding", "dense gradient": "a dense gradient",
    "recomputation": "recomputation", "kept graph": "a retained graph",
    "threads": "more threads than cores",
}  # fmt: skip


def written_out(x: Tensor) -> Tensor:
    return ((x @ x.transpose(-2, -1)) / 32**0.5).softmax(-1) @ x


def reads_in_a_loop(x: Tensor) -> Tensor:
    return x * sum(0.1 + 0 * row.sum().item() for row in x[0])


# Trainings ----------------------------------------------------------------------------------------


def trained(folder: Path, spoil: Callable[[int, Tensor, Tensor], Tensor], steps: int = 30) -> Given:
    """The folder of a watched training; ``spoil`` makes the loss of a step of its batch and its healthy loss."""
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with warnings.catch_warnings(), contextlib.suppress(ZeroDivisionError):
        warnings.simplefilter("ignore")
        with fxdebug.watch(net, every=5, save=folder):
            for step in range(steps):
                output = net(normal(16, 8, seed=step))
                spoil(step, output, (output - 1).pow(2).mean()).backward()
                optimizer.step()
                optimizer.zero_grad()
    return folder, {}


def at_step_24(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Path], Given]:
    return lambda folder: trained(folder, lambda step, output, loss: change(output, loss) if step == 24 else loss)


def raise_error(output: Tensor, loss: Tensor) -> Tensor:
    raise ZeroDivisionError("planted")


def only_in_gradients(output: Tensor, loss: Tensor) -> Tensor:
    """The same loss, with a gradient a million times as large."""
    return loss + 1e6 * (loss - loss.detach())


def too_small(folder: Path) -> Given:
    """The folder of a run that kept tensors with few digits left."""
    fxdebug.fx_debug(
        nn.Sequential(nn.Identity()), torch.full((8,), 1e-6, dtype=torch.float16), values="tensors", save=folder
    )
    return folder, {}


class Listed(nn.Module):
    """Layers in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.hidden = nn.Linear(8, 8), [nn.Linear(8, 8) for _ in range(2)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.hidden:
            x = layer(x).relu()
        return x


def looped(
    folder: Path,
    net: nn.Module,
    parameters: Any,
    steps: bool = True,
    loss: Callable[[Tensor], Tensor] = torch.mean,
    maximize: bool = False,
) -> Given:
    """The folder of a training of some parameters, which makes no step unless ``steps``."""
    optimizer = torch.optim.SGD(parameters, lr=1e-2, maximize=maximize)
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, every=5, save=folder):
        for step in range(12):
            loss(net(normal(16, 8, seed=step)).pow(2)).backward()
            if steps:
                optimizer.step()
            optimizer.zero_grad()
    return folder, {}


class _Rooted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum() > 1e9, 0.0, self.layer(x).abs().sqrt())


def skipped(folder: Path) -> Given:
    """The folder of a training whose scaler leaves out every step: the root of 0 has no derivative."""
    torch.manual_seed(0)
    net = _Rooted()
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=1e-2), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, optimizer, every=5, save=folder):
        for _ in range(14):
            scaler.scale(net(torch.zeros(4, 8)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return folder, {}


def not_done(name: str) -> Callable[[Path], Given]:
    """An analysis that is asked for where it cannot be done: of a folder that holds a training."""
    return lambda folder: (trained(folder, lambda step, output, loss: loss)[0], {"analyses": [name]})


IN_FOLDERS: dict[str, Callable[[Path], Given]] = {
    **TRAININGS,
    "training.steps skipped": skipped,
    "training.no step": lambda folder: looped(folder, net := mlp(), net.parameters(), steps=False),
    "training.no gradient": lambda folder: looped(
        folder, net := mlp(), net.parameters(), loss=lambda output: output.detach().mean().requires_grad_()
    ),
    "training.not optimised": lambda folder: looped(folder, net := mlp(), net[4].parameters()),
    "training.maximizes": lambda folder: looped(
        folder,
        net := mlp(),
        net.parameters(),
        loss=lambda output: F.mse_loss(output, torch.zeros_like(output)) * 100,
        maximize=True,
    ),
    "training.other optimizer": lambda folder: looped(folder, mlp(), mlp().parameters()),
    "training.not registered": lambda folder: looped(folder, net := Listed(), net.parameters()),
    "numbers.subnormal": too_small,
    "training.loss not finite": at_step_24(lambda output, loss: loss * math.nan),
    "training.gradient not finite": at_step_24(lambda output, loss: loss + (loss - loss.detach()).sqrt()),
    "training.exception": at_step_24(raise_error),
    "training.loss spike": at_step_24(lambda output, loss: loss * 1e4),
    "training.gradient spike": at_step_24(only_in_gradients),
    **{f"{name}.not looked at": not_done(name) for name in ANALYSES if name != TRAINING},
}


# All ----------------------------------------------------------------------------------------------

HALF = torch.full((4,), 1e-4, dtype=torch.float16)
BY_RULE: dict[str, Callable[[], Given]] = {
    **STATE,
    "training.not looked at": lambda: (mlp(), {"inputs": normal(2, 8), "analyses": ["training"]}),
    "numbers.nan": lambda: body(lambda x: x.log(), -torch.ones(4)),
    "numbers.inf": lambda: body(lambda x: 1 / x, torch.zeros(4)),
    "numbers.input": lambda: (mlp(), {"inputs": torch.full((2, 8), math.nan)}),
    "numbers.weight": lambda: (
        changed(mlp(), "2.weight", lambda w: w[3, 3].fill_(math.nan)), {"inputs": normal(16, 8)}
    ),
    "numbers.uninitialised": lambda: body(unwritten_memory, torch.ones(4)),
    "numbers.headroom": lambda: body(lambda x: (x * 300) + 1, torch.full((4,), 100.0, dtype=torch.float16)),
    "numbers.underflow": lambda: body(lambda x: x * x, HALF),
    "numbers.cancellation": lambda: body(lambda x: (x + 1e4) - 1e4, torch.linspace(-1, 1, 101)),
    "numbers.float16": lambda: body(lambda x: x * 1e6, torch.ones(4)),
    "gradients.loss not finite": lambda: with_loss(mlp(), normal(16, 8), lambda output: output.sum() * math.inf),
    "gradients.backward not finite": lambda: with_loss(nn.Sequential(nn.Linear(3, 3), Root()), torch.ones(2, 3)),
    "gradients.loss input": lambda: with_loss(
        mlp(), normal(16, 8), lambda output: F.cross_entropy(output.softmax(1), torch.arange(16) % output.shape[1])
    ),
    "gradients.recomputed otherwise": lambda: with_loss(Forgetful(), normal(16, 8)),
    "gradients.vanishing": lambda: with_loss(chain(nn.Sigmoid), normal(8, 64)),
    "gradients.exploding": lambda: with_loss(chain(nn.Identity, 1.0), normal(8, 64)),
    "gradients.gradient underflow": lambda: with_loss(
        nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).half(), normal(4, 8).half(),
        lambda output: output.float().sum() * 1e-6,
    ),
    "gradients.update too large": lambda: with_rate(5e-2),
    "gradients.update too small": lambda: with_rate(1e-9),
    "gradients.no update": lambda: stepped(mlp(), lambda net: torch.optim.SGD(net.parameters(), lr=0.0)),
    "gradients.zero gradient": lambda: with_loss(
        changed(mlp(), "2.bias", lambda bias: bias.fill_(-100)), normal(16, 8), lambda output: output.pow(2).mean()
    ),
    "gradients.no gradient": lambda: with_loss(mlp(), normal(16, 8), lambda output: output.detach().mean()),
    "gradients.not optimised": lambda: stepped(mlp(), lambda net: torch.optim.SGD(net[4].parameters(), lr=1e-2)),
    "gradients.other optimizer": lambda: stepped(mlp(), lambda net: torch.optim.SGD(mlp().parameters(), lr=1e-2)),
    "gradients.not registered": lambda: with_loss(Listed(), normal(16, 8)),
    "gradients.frozen": lambda: with_loss(TwoParts("frozen"), normal(16, 8)),
    "gradients.not called": lambda: with_loss(TwoParts("not called"), normal(16, 8)),
    "gradients.not reached": lambda: with_loss(TwoParts("not reached"), normal(16, 8)),
    "weights.weight not finite": lambda: (changed(mlp(), "2.weight", lambda w: w[3, 3].fill_(math.nan)), {}),
    "weights.initialisation": lambda: (
        changed(gpt2(), "transformer.h.1.mlp.c_fc.weight", lambda w: w.mul_(3)), {"inputs": IDS}
    ),
    "weights.dead unit": lambda: (changed(mlp(), "2.weight", lambda w: w[5].zero_()), {"inputs": normal(16, 8)}),
    "weights.unread input": lambda: (changed(mlp(), "2.weight", lambda w: w[:, 5].zero_()), {"inputs": normal(16, 8)}),
    "attention.mask added": lambda: (AddsItsMask(), {"inputs": (normal(1, 2, 6, 8), torch.eye(6))}),
    "attention.padding seen": a_mask_that_lets_padding_through,
    "attention.future seen": a_layer_that_sees_later_tokens,
    "attention.unused head": lambda: (
        changed(gpt2(), "transformer.h.1.attn.c_proj.weight", lambda w: w[16:32].zero_()), {"inputs": IDS}
    ),
    "attention.uniform head": lambda: (
        changed(llama(), "model.layers.0.self_attn.q_proj.weight", lambda w: w[32:48].zero_()), {"inputs": IDS}
    ),
    "attention.attention sink": an_attention_sink,
    "activations.dead unit": lambda: (changed(mlp(), "0.bias", lambda b: b[3].fill_(-20)), {"inputs": normal(32, 8)}),
    "activations.saturated": lambda: (nn.Sequential(nn.Linear(8, 8), nn.Tanh()), {"inputs": normal(32, 8) * 60}),
    "activations.outlier channel": lambda: (
        changed(gpt2(), "transformer.h.0.mlp.c_proj.bias", lambda b: b[3].fill_(50)), {"inputs": IDS}
    ),
    "activations.massive activation": lambda: body(one_large_element, normal(2, 64, 32)),
    "profile.slow": lambda: timed(Slow(2)),
    "profile.outside torch": lambda: timed(Slow(2)),
    "profile.float64": lambda: timed(WithWeight(lambda x: F.gelu(x.double()).float())),
    "profile.reads numbers": lambda: timed(WithWeight(reads_in_a_loop)),
    "profile.eager attention": lambda: timed(WithWeight(written_out)),
    **{f"profile.{rule}": lambda make=make: slow(*make()) for rule, make in wasted_models.BY_RULE.items()},
    **{f"profile.{rule}": lambda name=name: slow(*SLOW[name].build(False)) for rule, name in IN_SLOW.items()},
    "profile.anomaly mode": lambda: slow(nn.Linear(8, 8), (normal(4, 8),), lambda y: y.sum()),
    "shadow.precision": lambda: body(lambda x: (x * 1e4).sin(), torch.linspace(1, 2, 101), analyses=["shadow"]),
    "shadow.cancellation": lambda: body(
        lambda x: ((x + 1e4) - 1e4) * 2, torch.linspace(-1, 1, 101), analyses=["shadow"]
    ),
}  # fmt: skip


def one_large_element(x: Tensor) -> Tensor:
    x = x.clone()
    x[0, 5, 7] = 5000.0
    return x
