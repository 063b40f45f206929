"""deepset-ai/FARM#229: text regression (labels 0..16) with RegressionHead; the train loss stays at the
variance of the labels."""

import warnings

import torch
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.pooler = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())

    def forward(self, input_ids):
        return self.pooler(self.embeddings(input_ids).mean(1))


class RegressionHead(nn.Module):
    def __init__(self, dim, squeeze):
        super().__init__()
        self.feed_forward = nn.Linear(dim, 1)
        self.loss_fct = nn.MSELoss(reduction="none")
        self.squeeze = squeeze

    def forward(self, x):
        logits = self.feed_forward(x)
        return logits.squeeze(-1) if self.squeeze else logits

    def logits_to_loss(self, logits, label_ids):
        return self.loss_fct(logits, label_ids.float())


class AdaptiveModel(nn.Module):
    def __init__(self, squeeze):
        super().__init__()
        self.language_model = LanguageModel(80, 32)
        self.dropout = nn.Dropout(0.1)
        self.prediction_head = RegressionHead(32, squeeze)

    def forward(self, input_ids):
        return self.prediction_head(self.dropout(self.language_model(input_ids)))


def build(bad: bool):
    warnings.filterwarnings("ignore", message="Using a target size")
    torch.manual_seed(10)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(10)
    model = AdaptiveModel(squeeze=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    polarity = torch.randn(80, generator=gen)

    def step(i):
        input_ids = torch.randint(0, 80, (32, 10), generator=gen)
        label_ids = (8 + 8 * polarity[input_ids].mean(1)).clamp(0, 16).unsqueeze(1)
        logits = model(input_ids)
        loss = model.prediction_head.logits_to_loss(logits, label_ids).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
