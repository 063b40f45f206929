"""shenwzh3/RGAT-ABSA#3: graph attention over dependency tags, re-implemented for sentiment analysis.

A reader comparing the re-implemented attention with the GAT layer it follows found that it scores
the words otherwise; sentences get other class logits with the same parameters.
"""

import torch
import torch.nn.functional as F
from torch import nn


class GATAttention(nn.Module):
    """Scores every word against the aspect: LeakyReLU(a^T [W h || W q])."""

    def __init__(self, in_dim, mem_dim):
        super().__init__()
        self.W = nn.Linear(in_dim, mem_dim)
        self.a = nn.Linear(2 * mem_dim, 1)
        self.leakyrelu = nn.LeakyReLU(1e-2)

    def forward(self, h, q, mask):
        wh = self.W(h)
        wq = self.W(q).unsqueeze(1).expand_as(wh)
        e = self.leakyrelu(self.a(torch.cat([wh, wq], dim=2))).squeeze(2)
        alpha = torch.softmax(e.masked_fill(mask == 0, -1e9), dim=1)
        return (alpha.unsqueeze(2) * wh).sum(1)


class AspectGAT(nn.Module):
    def __init__(self, vocab=60, dim=16, mem=12, heads=3, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.heads = nn.ModuleList([GATAttention(dim, mem) for _ in range(heads)])
        self.fc = nn.Linear(mem * heads, 24)
        self.cls = nn.Linear(24, classes)

    def forward(self, tokens, aspect, mask):
        h, _ = self.encoder(self.embed(tokens))
        q = self.embed(aspect)
        out = torch.cat([head(h, q, mask) for head in self.heads], dim=1)
        return self.cls(F.relu(self.fc(out)))


class LinearAttention(nn.Module):
    """All heads at once; the scoring vector is kept in two parts."""

    def __init__(self, in_dim, mem_dim, n_head, activate):
        super().__init__()
        self.n_head, self.mem_dim, self.activate = n_head, mem_dim, activate
        self.linear = nn.Linear(in_dim, n_head * mem_dim)
        self.score_word = nn.Parameter(torch.empty(n_head, mem_dim))
        self.score_aspect = nn.Parameter(torch.empty(n_head, mem_dim))
        self.score_bias = nn.Parameter(torch.empty(n_head))
        self.leakyrelu = nn.LeakyReLU(1e-2)

    def forward(self, feature, aspect_v, dmask):
        N, L, _ = feature.shape
        feature = self.linear(feature).view(N, L, self.n_head, self.mem_dim)
        Q = self.linear(aspect_v).view(N, self.n_head, self.mem_dim)
        att_weight = torch.einsum("nlhm,hm->nhl", feature, self.score_word)
        att_weight = att_weight + (Q * self.score_aspect).sum(-1, keepdim=True) + self.score_bias[:, None]
        if self.activate:
            att_weight = self.leakyrelu(att_weight)
        att_weight = att_weight + (1.0 - dmask[:, None, :]) * -1e9
        attention = F.softmax(att_weight, dim=-1)
        return torch.einsum("nhl,nlhm->nhm", attention, feature).flatten(1)


class RGATClassifier(nn.Module):
    def __init__(self, vocab_size=60, word_dim=16, mem_dim=12, n_head=3, n_class=3, activate=False):
        super().__init__()
        self.word_table = nn.Embedding(vocab_size, word_dim)
        self.bi_rnn = nn.GRU(word_dim, word_dim // 2, bidirectional=True)
        self.dep_attention = LinearAttention(word_dim, mem_dim, n_head, activate)
        self.mlp = nn.Sequential(nn.Linear(mem_dim * n_head, 24), nn.ReLU(), nn.Linear(24, n_class))

    def forward(self, tokens, aspect, mask):
        states, _ = self.bi_rnn(self.word_table(tokens.t()))
        pooled = self.dep_attention(states.transpose(0, 1), self.word_table(aspect), mask)
        return self.mlp(pooled)


def convert(sd):
    out = {"word_table.weight": sd["embed.weight"]}
    for k, v in sd.items():
        if k.startswith("encoder."):
            out["bi_rnn." + k[len("encoder.") :]] = v
    n = 1 + max(int(k.split(".")[1]) for k in sd if k.startswith("heads."))
    out["dep_attention.linear.weight"] = torch.cat([sd[f"heads.{i}.W.weight"] for i in range(n)])
    out["dep_attention.linear.bias"] = torch.cat([sd[f"heads.{i}.W.bias"] for i in range(n)])
    a = torch.cat([sd[f"heads.{i}.a.weight"] for i in range(n)])
    out["dep_attention.score_word"], out["dep_attention.score_aspect"] = a.chunk(2, dim=1)
    out["dep_attention.score_bias"] = torch.cat([sd[f"heads.{i}.a.bias"] for i in range(n)])
    for src, dst in (("fc", "mlp.0"), ("cls", "mlp.2")):
        out[dst + ".weight"], out[dst + ".bias"] = sd[src + ".weight"], sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(21)
    original = AspectGAT().eval()
    with torch.no_grad():
        for head in original.heads:
            head.a.weight.mul_(6.0)
            head.W.weight.mul_(2.0)
    port = RGATClassifier(activate=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    tokens = torch.randint(1, 60, (4, 9))
    mask = torch.ones(4, 9)
    mask[1, 6:] = 0
    mask[3, 4:] = 0
    return original, port, (tokens, torch.randint(1, 60, (4,)), mask)
