"""After timbmh/Sentence-VAE: the weight of the KL term grows along a logistic curve; the
total loss falls, then rises when the KL comes in; word dropout in the decoder."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def kl_anneal_function(step, k=0.08, x0=90):
    return float(1 / (1 + math.exp(-k * (step - x0))))


class SentenceVAE(nn.Module):
    def __init__(self, vocab_size=20, embedding_size=24, hidden_size=40, latent_size=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size + 1, embedding_size)
        self.unk_idx = vocab_size
        self.encoder_rnn = nn.GRU(embedding_size, hidden_size, batch_first=True)
        self.decoder_rnn = nn.GRU(embedding_size, hidden_size, batch_first=True)
        self.hidden2mean = nn.Linear(hidden_size, latent_size)
        self.hidden2logv = nn.Linear(hidden_size, latent_size)
        self.latent2hidden = nn.Linear(latent_size, hidden_size)
        self.outputs2vocab = nn.Linear(hidden_size, vocab_size)

    def forward(self, seq):
        _, hidden = self.encoder_rnn(self.embedding(seq))
        mean, logv = self.hidden2mean(hidden[0]), self.hidden2logv(hidden[0])
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logv)
        inp = torch.cat([torch.full_like(seq[:, :1], self.unk_idx), seq[:, :-1]], 1)
        drop = torch.rand(inp.shape) < 0.3
        inp = inp.masked_fill(drop, self.unk_idx)
        out, _ = self.decoder_rnn(self.embedding(inp), self.latent2hidden(z)[None])
        return F.log_softmax(self.outputs2vocab(out), dim=-1), mean, logv


def sentences(n):
    start = torch.randint(0, 20, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(8)) % 20


def train(tick, mended=False):
    torch.manual_seed(7)
    model = SentenceVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for step in range(160):
        seq = sentences(32)
        logp, mean, logv = model(seq)
        nll = F.nll_loss(logp.flatten(0, 1), seq.flatten(), reduction="sum")
        kl = -0.5 * torch.sum(1 + logv - mean.pow(2) - logv.exp())
        loss = (nll + kl_anneal_function(step) * kl) / 32
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
