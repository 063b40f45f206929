"""shenweichen/DeepCTR#150: DeepFM for click logs rebuilt from feature columns.

All logits of the rebuilt model lie off those of the first implementation by one and the same
amount, so that its click probabilities are miscalibrated.
"""

import torch
import torch.nn.functional as F
from torch import nn


class DeepFM(nn.Module):
    """First implementation: index features with values, one global bias w0."""

    def __init__(self, field_sizes=(10, 6, 8), n_dense=3, k=5, hidden=(16, 8)):
        super().__init__()
        self.offsets = torch.tensor([0] + list(field_sizes)[:-1]).cumsum(0)
        n = sum(field_sizes) + n_dense
        self.n_sparse, self.n_dense, self.base = len(field_sizes), n_dense, sum(field_sizes)
        self.w0 = nn.Parameter(torch.tensor([-1.3]))
        self.w = nn.Parameter(torch.randn(n) * 0.3)
        self.V = nn.Parameter(torch.randn(n, k) * 0.3)
        dim = (self.n_sparse + n_dense) * k
        self.fc1, self.fc2, self.fc3 = (
            nn.Linear(dim, hidden[0]),
            nn.Linear(hidden[0], hidden[1]),
            nn.Linear(hidden[1], 1, bias=False),
        )

    def forward(self, sparse, dense):
        dense_idx = torch.arange(self.n_dense).expand(sparse.size(0), -1) + self.base
        index = torch.cat([sparse + self.offsets, dense_idx], 1)
        value = torch.cat([torch.ones_like(sparse, dtype=dense.dtype), dense], 1)
        linear = (self.w[index] * value).sum(1)
        e = self.V[index] * value[..., None]
        fm = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1)
        deep = self.fc3(F.relu(self.fc2(F.relu(self.fc1(e.flatten(1)))))).squeeze(1)
        return torch.sigmoid(self.w0 + linear + fm + deep)


class LinearLogit(nn.Module):
    def __init__(self, vocab, n_dense):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(v, 1) for v in vocab])
        self.dense_kernel = nn.Linear(n_dense, 1)

    def forward(self, cats, nums):
        return self.dense_kernel(nums) + sum(t(cats[:, i]) for i, t in enumerate(self.tables))


class FMLayer(nn.Module):
    def forward(self, emb):
        gram = emb @ emb.transpose(1, 2)
        upper = torch.ones(gram.shape[1:]).triu(1)
        return (gram * upper).sum((1, 2)).unsqueeze(1)


class PredictionLayer(nn.Module):
    def __init__(self, use_bias=True):
        super().__init__()
        self.use_bias = use_bias
        self.global_bias = nn.Parameter(torch.zeros(1))

    def forward(self, logit):
        if self.use_bias:
            logit = logit + self.global_bias
        return 1.0 / (1.0 + (-logit).exp())


class DeepFMColumns(nn.Module):
    def __init__(self, vocab=(10, 6, 8), n_dense=3, k=5, use_bias=True):
        super().__init__()
        self.sparse_emb = nn.ModuleList([nn.Embedding(v, k) for v in vocab])
        self.dense_emb = nn.Parameter(torch.empty(n_dense, k))
        self.linear_logit = LinearLogit(vocab, n_dense)
        self.fm = FMLayer()
        self.dnn = nn.Sequential(nn.Linear((len(vocab) + n_dense) * k, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.dnn_linear = nn.Linear(8, 1, bias=False)
        self.out = PredictionLayer(use_bias)

    def forward(self, cats, nums):
        emb = [t(cats[:, i]) for i, t in enumerate(self.sparse_emb)]
        emb = torch.cat([torch.stack(emb, 1), nums[:, :, None] * self.dense_emb], 1)
        logit = self.linear_logit(cats, nums) + self.fm(emb) + self.dnn_linear(self.dnn(emb.flatten(1)))
        return self.out(logit).flatten()


def convert(sd, vocab=(10, 6, 8)):
    out, start = {}, 0
    for i, v in enumerate(vocab):
        out[f"sparse_emb.{i}.weight"] = sd["V"][start : start + v]
        out[f"linear_logit.tables.{i}.weight"] = sd["w"][start : start + v, None]
        start += v
    out["dense_emb"] = sd["V"][start:]
    out["linear_logit.dense_kernel.weight"] = sd["w"][None, start:]
    out["linear_logit.dense_kernel.bias"] = sd["w0"]
    out["out.global_bias"] = sd["w0"]
    for src, dst in (("fc1", "dnn.0"), ("fc2", "dnn.2")):
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    out["dnn_linear.weight"] = sd["fc3.weight"]
    return out


def build(fixed):
    torch.manual_seed(77)
    original = DeepFM().eval()
    port = DeepFMColumns(use_bias=not fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    sparse = torch.stack([torch.randint(0, v, (8,)) for v in (10, 6, 8)], 1)
    return original, port, (sparse, torch.randn(8, 3))
