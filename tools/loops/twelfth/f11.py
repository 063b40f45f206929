"""After LaurentMazare/ocaml-torch#36: a network whose layers live in a variable store.

The program kept printing the same, initial loss; it took its author several
days to see why, since the rest of the project was much larger.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VarStore(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.store_name = name
        self.layers = nn.ModuleDict()

    def linear(self, key, input_dim, output_dim):
        layer = nn.Linear(input_dim, output_dim)
        self.layers[key] = layer
        return layer

    def trainable_variables(self):
        return [p for p in self.parameters() if p.requires_grad]


class NeuralAnalysis(nn.Module):
    def __init__(self, name="neural-analysis"):
        super().__init__()
        self.vs = VarStore(name)
        self.vs.linear("scale", 8, 8)

    def build(self, hidden=32):
        self.vs.linear("hidden", 8, hidden)
        self.vs.linear("hidden2", hidden, hidden)
        self.vs.linear("output", hidden, 1)
        return self

    def forward(self, xs):
        L = self.vs.layers
        h = torch.tanh(L["scale"](xs))
        h = F.relu(L["hidden"](h))
        h = F.relu(L["hidden2"](h))
        return L["output"](h)


def program_features(n):
    xs = torch.randn(n, 8)
    ys = 10.0 + 3 * xs[:, :1] * xs[:, 1:2] + 2 * xs[:, 2:3]
    return xs, ys


def train(tick, mended=False):
    torch.manual_seed(10)
    model = NeuralAnalysis()
    if mended:
        model.build()
    optimizer = torch.optim.SGD(model.vs.trainable_variables(), lr=1e-2)
    if not mended:
        model.build()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        xs, ys = program_features(64)
        optimizer.zero_grad()
        loss = ((model(xs) - ys) ** 2).mean()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
