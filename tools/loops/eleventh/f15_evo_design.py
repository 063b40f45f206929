"""After offbit/evo-design#3.

Story: language model over protein sequences (torch_models); whatever learning
rate one passes, the training hardly moves.
"""

import torch
from torch import nn

AMINO = "ACDEFGHIKLMNPQRSTVWY"


class ResidualConv(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(dim, 2 * dim, 3, dilation=dilation)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.norm(x).transpose(1, 2)
        h = self.conv(nn.functional.pad(h, (self.pad, 0)))
        return x + nn.functional.glu(h, dim=1).transpose(1, 2)


class ProteinLM(nn.Module):
    def __init__(self, vocab=len(AMINO) + 1, dim=32, n_layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([ResidualConv(dim, 2**i) for i in range(n_layers)])
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class TorchModel:
    def __init__(self, lr=1e-3, weight_decay=1e-6, mended=False):
        self.net = ProteinLM()
        step_size = lr if mended else weight_decay
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=step_size, weight_decay=weight_decay)
        self.loss_fn = nn.CrossEntropyLoss()

    def fit_batch(self, tokens):
        self.net.train()
        self.optimizer.zero_grad()
        logits = self.net(tokens[:, :-1])
        loss = self.loss_fn(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss


def sample_family(n=200, length=30):
    motif = torch.randint(1, len(AMINO) + 1, (3, length))
    seqs = motif[torch.randint(0, 3, (n,))]
    mutate = torch.rand(n, length) < 0.08
    return torch.where(mutate, torch.randint(1, len(AMINO) + 1, (n, length)), seqs)


def train(tick, mended=False):
    torch.manual_seed(0)
    sequences = sample_family()
    start = torch.zeros(len(sequences), 1, dtype=torch.long)
    sequences = torch.cat([start, sequences], 1)
    model = TorchModel(lr=4e-3, weight_decay=1e-6, mended=mended)
    tick.model(model.net)
    tick.optimizer(model.optimizer)
    losses = []
    for epoch in range(20):
        for batch in sequences[torch.randperm(len(sequences))].split(25):
            loss = model.fit_batch(batch)
            tick.step(loss)
            losses.append(loss.item())
    return losses
