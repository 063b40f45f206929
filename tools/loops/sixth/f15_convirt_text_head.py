"""edreisMD/ConVIRT-pytorch#7: image/report contrastive learning; "loss may not get so low under this setting"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class NTXent(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, zis, zjs):
        logits = F.normalize(zis) @ F.normalize(zjs).t() / self.temperature
        target = torch.arange(len(zis))
        return 0.75 * F.cross_entropy(logits, target) + 0.25 * F.cross_entropy(logits.t(), target)


class ModelCLR(nn.Module):
    def __init__(self, vocab=64, out_dim=16, text_grad=True):
        super().__init__()
        self.text_grad = text_grad
        self.res_features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.res_l1, self.res_l2 = nn.Linear(64, 32), nn.Linear(32, out_dim)
        self.bert_model = nn.Embedding(vocab, 32)
        self.bert_l1, self.bert_l2 = nn.Linear(32, 32), nn.Linear(32, out_dim)

    def image_encoder(self, xis):
        h = self.res_features(xis).flatten(1)
        return self.res_l2(F.relu(self.res_l1(h)))

    def text_encoder(self, ids):
        with torch.set_grad_enabled(self.text_grad):
            h = self.bert_model(ids).mean(1)
            return self.bert_l2(F.relu(self.bert_l1(h)))

    def forward(self, xis, ids):
        return self.image_encoder(xis), self.text_encoder(ids)


def build(bad: bool):
    torch.manual_seed(14)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(14)
    model = ModelCLR(text_grad=not bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-6)
    criterion = NTXent()

    def step(i):
        finding = torch.randperm(32, generator=gen)[:24]
        xis = torch.zeros(24, 1, 8, 8)
        bits = (finding[:, None] >> torch.arange(5)) & 1
        xis[:, 0, 1:4, 1:4] = bits[:, 0, None, None].float()
        xis[:, 0, 1:4, 5:7] = bits[:, 1, None, None].float()
        xis[:, 0, 5:7, 1:4] = bits[:, 2, None, None].float()
        xis[:, 0, 5:7, 5:7] = bits[:, 3, None, None].float()
        xis = xis + bits[:, 4, None, None, None] * 0.5 + 0.1 * torch.randn(24, 1, 8, 8, generator=gen)
        words = torch.arange(5) * 2 + bits
        filler = torch.randint(12, 64, (24, 3), generator=gen)
        loss = criterion(*model(xis, torch.cat([words, filler], 1)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
