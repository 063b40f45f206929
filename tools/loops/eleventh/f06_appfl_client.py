"""After APPFL/APPFL#198.

Story: federated client trainer with clip_grad set in its configuration; local
training of the recurrent model still blows up.
"""

import torch
from torch import nn


class SensorRNN(nn.Module):
    def __init__(self, n_in=3, hidden=24):
        super().__init__()
        self.input = nn.Linear(n_in, hidden)
        self.cell = nn.Linear(hidden, hidden)
        self.readout = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.cell.weight, gain=1.4)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.cell.out_features)
        for t in range(x.size(1)):
            h = torch.relu(self.input(x[:, t]) + self.cell(h))
        return self.readout(h).squeeze(-1)


class VanillaTrainer:
    def __init__(self, model, data, config, tick):
        self.model, self.data, self.cfg, self.tick = model, data, config, tick
        self.optim = torch.optim.SGD(model.parameters(), lr=config["lr"])
        self.loss_fn = nn.MSELoss()

    def _clip(self):
        if self.cfg["clip_grad"]:
            torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), self.cfg["clip_value"], norm_type=self.cfg["clip_norm"]
            )

    def _train_batch(self, x, y):
        self.optim.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        if self.cfg["clip_first"]:
            self._clip()
        self.optim.step()
        if not self.cfg["clip_first"]:
            self._clip()
        self.tick.step(loss)
        return loss.item()

    def train(self, num_local_steps):
        x, y = self.data
        out = []
        for _ in range(num_local_steps):
            rows = torch.randint(0, len(x), (32,))
            out.append(self._train_batch(x[rows], y[rows]))
        return out


def train(tick, mended=False):
    torch.manual_seed(2)
    x = torch.randn(256, 20, 3)
    y = x[:, -4:, 0].sum(1) + 0.5 * x[:, -3:, 1].sum(1)
    model = SensorRNN()
    config = dict(lr=0.05, clip_grad=True, clip_value=1.0, clip_norm=2.0, clip_first=mended)
    trainer = VanillaTrainer(model, (x, y), config, tick)
    tick.model(model)
    tick.optimizer(trainer.optim)
    losses = []
    for server_round in range(15):
        losses += trainer.train(20)
    return losses
