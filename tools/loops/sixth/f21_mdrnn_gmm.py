"""ctallec/world-models#10: MDN-RNN of a world model, gaussian mixture loss on latents."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

STEPS = 200
OTHERS: list = []
LOG: list = []


def gmm_loss(batch, mus, sigmas, logpi):
    g = Normal(mus, sigmas).log_prob(batch.unsqueeze(-2)).sum(-1) + logpi
    m = g.max(-1, keepdim=True)[0]
    return -(m.squeeze(-1) + torch.log(torch.exp(g - m).sum(-1))).mean()


class MDRNN(nn.Module):
    def __init__(self, latents, actions, hiddens, gaussians, pi_dim):
        super().__init__()
        self.latents, self.gaussians, self.pi_dim = latents, gaussians, pi_dim
        self.rnn = nn.LSTM(latents + actions, hiddens)
        self.gmm_linear = nn.Linear(hiddens, (2 * latents + 1) * gaussians + 1)

    def forward(self, actions, latents):
        seq_len, bs = actions.size(0), actions.size(1)
        outs, _ = self.rnn(torch.cat([actions, latents], -1))
        gmm_outs = self.gmm_linear(outs)
        stride = self.gaussians * self.latents
        mus = gmm_outs[..., :stride].view(seq_len, bs, self.gaussians, self.latents)
        sigmas = gmm_outs[..., stride : 2 * stride].view(seq_len, bs, self.gaussians, self.latents).clamp(-4, 4).exp()
        pi = gmm_outs[..., 2 * stride : 2 * stride + self.gaussians].view(seq_len, bs, self.gaussians)
        logpi = F.log_softmax(pi, dim=self.pi_dim)
        return mus, sigmas, logpi, gmm_outs[..., -1]


def build(bad: bool):
    torch.manual_seed(20)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(20)
    mdrnn = MDRNN(2, 1, 32, 3, pi_dim=-2 if bad else -1)
    optimizer = torch.optim.RMSprop(mdrnn.parameters(), lr=3e-3, alpha=0.9)

    def step(i):
        bs, seq = 64, 8
        latent = torch.randn(1, bs, 2, generator=gen)
        seqs, acts = [latent], []
        for _ in range(seq):
            a = torch.randint(0, 2, (1, bs, 1), generator=gen).float()
            jump = torch.where(torch.rand(1, bs, 1, generator=gen) < 0.7, 1.0, -1.0)
            latent = 0.5 * latent + jump * (0.5 + a) + 0.1 * torch.randn(1, bs, 2, generator=gen)
            seqs.append(latent), acts.append(a)
        obs = torch.cat(seqs)
        mus, sigmas, logpi, _ = mdrnn(torch.cat(acts), obs[:-1])
        loss = gmm_loss(obs[1:], mus, sigmas, logpi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return mdrnn, optimizer, step
