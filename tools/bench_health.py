"""Is healthy training left alone, and is each planted fault named: ``make bench-health``.

``python tools/bench_health.py [NAME ...]`` runs the cases with one of the names in their own, everything without any.
Healthy: three small real models learn for 200 steps, and ``watch``, ``gradients`` and ``weights`` have nothing to say
above advice. Faults: each is named by its rule, its place and, where it has one, its step. ``--write`` puts the table
into docs/training.md; ``--steps`` shortens the healthy trainings. Exits with 1 if a case fails.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import fxdebug
from fxdebug.data.findings import Finding

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from running import put_between  # noqa: E402

PAGE = HERE.parent / "docs" / "training.md"
STEPS = 200

Batch = tuple[Tensor, Tensor]
Losses = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class Case:
    """One line of the table: the name, what was expected, what was found, and whether it is right."""

    name: str
    expected: str
    found: str
    right: bool


# Models and their data ---------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_first, self.norm_second = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm_first(self.first(x)))
        return torch.relu(x + self.norm_second(self.second(inner)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(20, 32), nn.LSTM(32, 64, 2, batch_first=True), nn.Linear(64, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(self.embed(tokens))[0])
        return scores


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=60, n_positions=32))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    blocks = [Residual(16) for _ in range(4)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def texts() -> Iterator[Batch]:
    """Sentences of a small grammar: each token follows from the one before, up to some noise."""
    while True:
        tokens = torch.randint(0, 60, (8, 1))
        for _ in range(31):
            noise = (torch.rand(8, 1) < 0.1) * torch.randint(0, 60, (8, 1))
            tokens = torch.cat([tokens, (7 * tokens[:, -1:] + 3 + noise) % 60], 1)
        yield tokens, tokens


def images() -> Iterator[Batch]:
    """Bars in four directions, with noise."""
    line = torch.zeros(4, 12, 12)
    line[0, 6], line[1, :, 6] = 1, 1
    line[2], line[3] = torch.eye(12), torch.eye(12).flip(0)
    while True:
        kinds = torch.randint(0, 4, (16,))
        yield line[kinds][:, None] + 0.3 * torch.randn(16, 1, 12, 12), kinds


def counts() -> Iterator[Batch]:
    """Numbers that rise by the same amount."""
    while True:
        first, by = torch.randint(0, 20, (16, 1)), torch.randint(1, 4, (16, 1))
        tokens = (first + by * torch.arange(17)) % 20
        yield tokens[:, :-1], tokens[:, 1:]


def language_loss(model: nn.Module, batch: Batch) -> Tensor:
    loss: Tensor = model(input_ids=batch[0], labels=batch[1]).loss
    return loss


def class_loss(model: nn.Module, batch: Batch) -> Tensor:
    scores = model(batch[0])
    return nn.functional.cross_entropy(scores.flatten(0, -2), batch[1].flatten())


def square_loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch[0]) - batch[1]).pow(2).mean()


HEALTHY: dict[str, tuple[Callable[[], nn.Module], Callable[[], Iterator[Batch]], Losses]] = {
    "GPT-2, 4 layers, text": (gpt2, texts, language_loss),
    "ResNet, 4 blocks, images": (resnet, images, class_loss),
    "LSTM, 2 layers, sequences": (Recurrent, counts, class_loss),
}


# Healthy training --------------------------------------------------------------------------------


def healthy_training(name: str, steps: int) -> tuple[list[tuple[str, Sequence[Finding]]], list[float]]:
    """Train a model; return what each analysis finds before, meanwhile and afterwards, and the losses."""
    make, data, loss_of = HEALTHY[name]
    torch.manual_seed(0)
    model, batches = make(), data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    found = [("weights", fxdebug.weights(model).findings), ("gradients", _gradients(model, next(batches), loss_of))]
    with tempfile.TemporaryDirectory() as folder, fxdebug.watch(model, optimizer, every=20, save=folder) as watched:
        for _ in range(steps):
            loss_of(model, next(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(("training", watched.report().findings))
    found += [("weights", fxdebug.weights(model).findings), ("gradients", _gradients(model, next(batches), loss_of))]
    return found, [step.loss or 0.0 for step in watched.steps]


def healthy(name: str, steps: int) -> Case:
    """Train a model; the loss must fall and nothing above advice be found, before, meanwhile and afterwards."""
    seen, losses = healthy_training(name, steps)
    found = [finding for _, findings in seen for finding in above_advice(findings)]
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    text = f"loss {first:.2f} → {last:.2f}; " + ("; ".join(map(str, found)) or "no finding")
    return Case(name, f"{steps} steps, no finding", text, not found and last < 0.8 * first)


def above_advice(findings: Sequence[Finding]) -> list[Finding]:
    """Return errors and warnings."""
    return [finding for finding in findings if finding.severity != "advice"]


def _gradients(model: nn.Module, batch: Batch, loss_of: Losses) -> Sequence[Finding]:
    if loss_of is language_loss:
        report = fxdebug.gradients(model, {"input_ids": batch[0], "labels": batch[1]})
    else:
        report = fxdebug.gradients(
            model, batch[0], lambda out: nn.functional.cross_entropy(out.flatten(0, -2), batch[1].flatten())
        )
    return report.findings


# Planted faults ----------------------------------------------------------------------------------


def trained(
    model: nn.Module, steps: int = 12, lr: float = 1e-3, spoil: Callable[[int, Tensor], Tensor] = lambda _, x: x,
    loss_of: Losses = square_loss, parameters: Any = None,
) -> Sequence[Finding]:  # fmt: skip
    """Train on random numbers with ``spoil`` in the way of each batch; return the findings of watching."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters() if parameters is None else parameters, lr=lr)
    width = next(model.parameters()).shape[-1]
    with (
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory() as folder,
        fxdebug.watch(model, every=4, save=folder) as watched,
    ):
        warnings.simplefilter("ignore")
        for step in range(steps):
            batch = spoil(step, torch.randn(16, width))
            loss_of(model, (batch, torch.randn(16, 1))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return watched.report().findings


def perceptron(layers: int = 4, width: int = 32, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    torch.manual_seed(0)
    inner = [module for _ in range(layers) for module in (nn.Linear(width, width), activation())]
    return nn.Sequential(*inner, nn.Linear(width, 1))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head, self.unused_head = perceptron(2), nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.encoder(x))
        return scores


def sigmoid_stack() -> Sequence[Finding]:
    return trained(perceptron(10, activation=nn.Sigmoid))


def three_times() -> Sequence[Finding]:
    torch.manual_seed(0)
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[2].mlp.c_fc.weight.mul_(3)
    return fxdebug.weights(model).findings


def frozen_encoder() -> Sequence[Finding]:
    model = TwoHeads()
    model.encoder.requires_grad_(False)
    return trained(model)


def unused_head() -> Sequence[Finding]:
    return trained(TwoHeads())


def high_rate() -> Sequence[Finding]:
    return trained(perceptron(), lr=1e-1, steps=2)


def overflow() -> Sequence[Finding]:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch[0]).half() * 6e4).pow(2).mean() if batch[0][0, 0] == 9 else square_loss(model, batch)

    def mark(step: int, batch: Tensor) -> Tensor:
        return batch.index_fill(1, torch.tensor([0]), 9.0) if step == 7 else batch

    return trained(perceptron(), spoil=mark, loss_of=loss)


def poisoned() -> Sequence[Finding]:
    def spoil(step: int, batch: Tensor) -> Tensor:
        if step == 7:
            batch[3, 5] = math.inf
        return batch

    return trained(perceptron(), spoil=spoil)


class Listed(nn.Module):
    """Layers in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.inner, self.head = [perceptron(1), perceptron(1)], nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        scores: Tensor = self.head(self.inner[0](x) + self.inner[1](x))
        return scores


def in_a_list() -> Sequence[Finding]:
    return trained(Listed())


def head_left_out() -> Sequence[Finding]:
    model = perceptron()
    return trained(model, parameters=model[:-1].parameters())  # type: ignore[index]


def of_another_model() -> Sequence[Finding]:
    return trained(perceptron(), parameters=perceptron().parameters())


def silent_layer() -> Sequence[Finding]:
    model = perceptron()
    with torch.no_grad():
        model[2].bias.fill_(-100)  # type: ignore[index, operator, union-attr]
    return trained(model)


def rate_of_zero() -> Sequence[Finding]:
    return trained(perceptron(), steps=30, lr=0.0)


def perceptron_on(spoil: Callable[[nn.Module], None]) -> Sequence[Finding]:
    model = perceptron()
    with torch.no_grad():
        spoil(model)
    return fxdebug.check(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(1))).findings


def dead_unit() -> Sequence[Finding]:
    return perceptron_on(lambda model: model[2].bias[5].fill_(-20))  # type: ignore[index, operator, union-attr]


def outlier_channel() -> Sequence[Finding]:
    torch.manual_seed(0)
    model = gpt2().eval()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_proj.bias[3] = 50  # type: ignore[index, union-attr]
    return fxdebug.check(model, {"input_ids": next(texts())[0]}).findings


def sink() -> Sequence[Finding]:
    """One head of GPT-2 gives its first token half of the weight, whatever the others are."""
    torch.manual_seed(0)
    model = gpt2().eval()
    attention = model.transformer.h[2].attn  # type: ignore[index, union-attr]
    with torch.no_grad():
        model.transformer.wpe.weight[0] = 0.5 * torch.randn(64)  # type: ignore[union-attr]
        first = model.transformer.h[2].ln_1(model.transformer.wpe.weight[0])  # type: ignore[index, union-attr]
        attention.c_attn.bias[16:32] = first[:16] / first[:16].norm() * 4
        attention.c_attn.weight[:, 80:96] = 0
        attention.c_attn.weight[:16, 80:96] = torch.eye(16) * 3
    return fxdebug.check(model, {"input_ids": next(texts())[0]}).findings


def padding_seen() -> Sequence[Finding]:
    """A layer of BERT that is not given the mask."""
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=4, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=60
    )
    model = BertForSequenceClassification(config).eval()
    layer = model.bert.encoder.layer[2].attention.self
    forward = type(layer).forward
    layer.forward = lambda hidden, attention_mask=None, *args, **given: forward(layer, hidden, None, *args, **given)
    mask = (torch.arange(32) < torch.tensor([[32]] * 4 + [[20]] * 4)).long()
    return fxdebug.check(model, {"input_ids": next(texts())[0], "attention_mask": mask}).findings


FAULTS: dict[str, tuple[Callable[[], Sequence[Finding]], str, str, str]] = {  # rule, place, a part of what is told
    "sigmoid stack of 10 layers": (sigmoid_stack, "vanishing", "", ""),
    "one weight drawn 3 times too wide": (three_times, "initialisation", "transformer.h.2.mlp.c_fc", "3.0"),
    "encoder frozen by mistake": (frozen_encoder, "frozen", "encoder", "do not ask for gradients"),
    "unused head": (unused_head, "not called", "unused_head", "not called"),
    "learning rate 100 times too high": (high_rate, "update too large", "", ""),
    "layers in a plain list": (in_a_list, "not registered", "inner[0]", "inner[1]"),
    "head in no optimizer": (head_left_out, "not optimised", "8", "8.weight, 8.bias"),
    "optimizer of another model": (of_another_model, "other optimizer", "", "none of the model's parameters"),
    "a layer that returns only zeros": (silent_layer, "zero gradient", "", "3 (ReLU) returned only zeros"),
    "learning rate of 0": (rate_of_zero, "no update", "", "the learning rate of"),
    "dead ReLU unit": (dead_unit, "dead unit", "3", "unit [5] of 32"),
    "outlier channel": (outlier_channel, "outlier channel", "transformer.h.1.mlp.c_proj", "channel [3] of 64"),
    "attention sink": (sink, "attention sink", "transformer.h.2.attn", "head 1"),
    "mask that lets padding through": (padding_seen, "padding seen", "bert.encoder.layer.2.attention.self", ""),
    "loss overflows float16 at step 7": (overflow, "loss not finite", "", "step 7: the loss is inf"),
    "poisoned batch at step 7": (poisoned, "loss not finite", "", "step 7: the input 'input' has 1 +Inf"),
}


def fault(name: str) -> Case:
    """Plant a fault; it must be among the findings, by its rule, place and step."""
    run, rule, path, part = FAULTS[name]
    findings = run()
    named = [f for f in findings if f.rule == rule and (not path or f.path == path) and part in f.what]
    text = f"{named[0].severity}: {named[0].what}" if named else "; ".join(map(str, findings)) or "nothing"
    return Case(name, rule + (f" at {path}" if path else ""), text, bool(named))


# The table ---------------------------------------------------------------------------------------


def table(cases: Sequence[Case]) -> str:
    """Return the cases as a table for the page."""
    lines = ["| case | expected | found | right |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {c.name} | {c.expected} | {c.found} | {'yes' if c.right else 'no'} |" for c in cases])


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for and print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of cases; all without any")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a healthy training (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    wanted = [name for name in (*HEALTHY, *FAULTS) if not options.names or any(n in name for n in options.names)]
    cases = []
    for name in wanted:
        cases.append(healthy(name, options.steps) if name in HEALTHY else fault(name))
        print(f"{'ok  ' if cases[-1].right else 'MISS'} {name}: {cases[-1].found}", flush=True)
    if options.write:
        put_between(PAGE, "bench", table(cases))
    return 0 if all(case.right for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
