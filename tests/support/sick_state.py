"""Models in a state, of a structure, or changed in a way that a rule finds: one for each rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Given = tuple[Any, dict[str, Any]]


class Layers(nn.Module):
    """A small trained model: embedding, layers, norm, head; a table that is in no checkpoint."""

    def __init__(self, layers: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(layers)])
        self.norm, self.bn, self.drop = nn.LayerNorm(32), nn.BatchNorm1d(32), nn.Dropout(0.1)
        self.head = nn.Linear(32, 40, bias=False)
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(8) / 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(self.bn(self.norm(x))))


def trained(change: Callable[[Layers], Any] = lambda model: None) -> Layers:
    torch.manual_seed(0)
    model = Layers()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
        model.bn.running_mean.normal_()
        model.bn.running_var.uniform_(0.5, 2)
        model.eval()
        change(model)
    return model


def state(change: Callable[[Layers], Any]) -> Callable[[], Given]:
    return lambda: (trained(change), {})


class Run(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.function(x)


class Counter(nn.Module):
    """A module that goes on from its last call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def run_of_counter() -> Given:
    return Counter().eval(), {"inputs": X}


X = torch.linspace(-1, 1, 2 * 6 * 8).view(2, 6, 8)
WIDE = torch.linspace(-1, 1, 2 * 6 * 16).view(2, 6, 16)


def run(function: Callable[..., Tensor], inputs: Any = X) -> Callable[[], Given]:
    return lambda: (Run(function).eval(), {"inputs": inputs})


def repeated() -> Given:
    return nn.Sequential(*[nn.Linear(8, 8)] * 3), {"inputs": X}


class OnlyTheLast(nn.Module):
    """Layers that are all given the same; what the last returns is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return [layer(x) for layer in self.layers][-1]


def decayed() -> Given:
    model = trained()
    return model, {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)}


def narrow() -> Given:
    model = trained().half()
    return model, {"optimizer": torch.optim.Adam(model.parameters())}


def turned(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)).softmax(-2) @ x


def rounded(x: Tensor) -> Tensor:
    return x + torch.arange(300).bfloat16().sum()


def twice_masked(x: Tensor) -> Tensor:
    low = torch.full((6, 6), torch.finfo(x.dtype).min)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=low.triu(1) + low.triu(2))


def blind(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(6, 6).tril(-1).bool())


class Heads(nn.Module):
    """Attention whose heads are split and joined by views alone, or with transposes."""

    def __init__(self, split: str = "transpose", join: str = "transpose") -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.split, self.join = split, join

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        y = (q @ k.mT / 2).softmax(-1) @ v
        y = y.transpose(1, 2) if self.join == "transpose" else y
        out: Tensor = self.o(y.reshape(len(x), -1, 16))
        return out

    def heads(self, y: Tensor) -> Tensor:
        return y.view(len(y), 4, -1, 4) if self.split == "view" else y.view(len(y), -1, 4, 4).transpose(1, 2)


class NormsByName(nn.Module):
    """Norms and layers by name: one used in place of another, one that never runs, or each in its place."""

    def __init__(self, second: str = "norm2", spare: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2, self.inner = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.second = second
        if spare:
            self.auxiliary = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.norm1(x)).relu()
        out: Tensor = self.get_submodule(self.second)(x + y)
        return out


STATE: dict[str, Callable[[], Given]] = {
    "state.buffer": state(lambda model: model.inv_freq.zero_()),
    "state.not loaded": state(lambda model: model.layers[1].weight.zero_()),
    "state.statistics": state(lambda model: model.bn.reset_running_stats()),
    "state.mode": state(lambda model: model.drop.train()),
    "state.broken tie": state(lambda model: model.head.weight.copy_(model.embed.weight)),
    "state.repeated module": lambda: (repeated()[0], {}),
    "state.optimizer epsilon": lambda: (
        (model := trained().half()),
        {"optimizer": torch.optim.Adam(model.parameters())},
    ),
    "state.decay": decayed,
    "structure.dropout in evaluation": run(F.dropout),
    "structure.batch statistics": lambda: (
        nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval(),
        {"inputs": WIDE[:, 0]},
    ),
    "structure.random": run(lambda x: x + torch.randn_like(x)),
    "structure.state kept": run_of_counter,
    "structure.mask not read": run(lambda x: x * 2, {"x": X, "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0]] * 2)}),
    "structure.masks added": run(twice_masked),
    "structure.positions rounded": run(rounded),
    "structure.softmax axis": run(turned),
    "structure.repeated module": repeated,
    "structure.result dropped": lambda: (OnlyTheLast(), {"inputs": X}),
    "structure.dimensions mixed": lambda: (Heads(split="view").eval(), {"inputs": WIDE}),
    "structure.never called": lambda: (NormsByName("norm1").eval(), {"inputs": WIDE}),
    "structure.no activation": lambda: (
        nn.Sequential(nn.ReLU(), nn.Linear(16, 32), nn.Linear(32, 8)).eval(),
        {"inputs": WIDE},
    ),
    "structure.result normalised": lambda: (
        nn.Sequential(nn.Linear(16, 4), nn.LayerNorm(4, elementwise_affine=False)).eval(),
        {"inputs": WIDE},
    ),
    "attention.no key seen": run(blind),
}


class Adapted(nn.Linear):
    """A layer with an adapter beside its weight."""

    def __init__(self, inputs: int, outputs: int, rank: int = 4) -> None:
        super().__init__(inputs, outputs)
        self.lora_A, self.lora_B = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.5 * self.lora_B(self.lora_A(x))


def with_adapter(merged: bool, trained: bool = True, seed: int = 0) -> dict[str, Tensor]:
    """Return the weights of layers whose adapters are trained, or not; ``merged``: added to the weights, too."""
    torch.manual_seed(seed)
    net = nn.Sequential(Adapted(16, 24), nn.ReLU(), Adapted(24, 16))
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
    for _ in range(10 if trained else 0):
        x = torch.randn(32, 16)
        optimizer.zero_grad()
        (net(x) - x).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        for layer in (net[0], net[2]) if merged else ():
            layer.weight += 0.5 * layer.lora_B.weight @ layer.lora_A.weight
    return dict(net.state_dict())


def _without(model: Layers, name: str) -> dict[str, Tensor]:
    return {key: weight for key, weight in model.state_dict().items() if key != name}


def _moved(*names: str) -> Callable[[Layers], None]:
    def move(model: Layers) -> None:
        for name, weight in model.state_dict().items():
            if name.startswith(names) and weight.is_floating_point():
                weight.add_(torch.rand(weight.shape))

    return move


def _shrunk(model: Layers) -> None:
    _moved("embed")(model)
    model.norm.weight.mul_(0.9)


def _drawn_anew(model: Layers) -> None:
    for weight, drawn in zip(model.parameters(), Layers().parameters()):
        weight.copy_(drawn)


def _grown(model: Layers) -> None:
    for weight in model.parameters():
        weight.mul_(5.0)


def _tied() -> nn.Module:
    return trained(lambda model: setattr(model.head, "weight", model.embed.weight))


# Of two checkpoints: the weights of the first (a file, where they are a mapping), and the second.
def _stepped(scale: float) -> nn.Module:
    """Return a trained model with the gradients of one step, whose loss is multiplied."""
    model = trained()
    (model(torch.ones(4, 32)).square().mean() * scale).backward()
    return model


OF_TWO: dict[str, Callable[[], tuple[Any, Any]]] = {
    "weights.not in model": lambda: ({**trained().state_dict(), "more": torch.ones(2)}, trained()),
    "weights.not in file": lambda: (_without(trained(), "head.weight"), trained()),
    "weights.not in second": lambda: (trained().state_dict(), _without(trained(), "head.weight")),
    "weights.unlike file": lambda: (trained().state_dict(), trained(lambda model: model.head.weight.zero_())),
    "weights.broken tie": lambda: (_tied(), trained()),
    "weights.statistics moved": lambda: (trained(), trained(_moved("embed", "bn.running"))),
    "weights.statistics not copied": lambda: (
        trained(), trained(lambda model: (_moved("embed", "layers", "bn")(model), model.bn.reset_running_stats()))
    ),
    "weights.statistics late": lambda: (
        trained(lambda model: model.bn.num_batches_tracked.fill_(120)),
        trained(lambda model: (_moved("embed", "layers", "bn")(model), model.bn.num_batches_tracked.fill_(40))),
    ),
    "weights.table changed": lambda: (trained(), trained(lambda model: model.inv_freq.mul_(1.01))),
    "weights.only shrank": lambda: (trained(), trained(_shrunk)),
    "weights.adapter merged": lambda: (with_adapter(merged=False), with_adapter(merged=True)),
    "weights.no average": lambda: (trained(), trained(_grown)),
    "weights.as drawn": lambda: (trained(), trained(_drawn_anew)),
    "gradients.gradients differ": lambda: (_stepped(1.0), _stepped(4.0)),
}  # fmt: skip
