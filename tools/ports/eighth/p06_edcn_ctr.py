"""After reczoo/FuxiCTR#29.

A CTR library re-implements EDCN (parallel cross network and deep network with bridge modules
between the layers).  Compared with the authors' formulas, its predictions differed; after the
repair the benchmark tables for Movielens and Frappe changed markedly.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS = [13, 7, 29, 5, 11]


class CrossNetLayer(nn.Module):
    """x_{l+1} = x_0 * (w_l . x_l) + b_l + x_l"""

    def __init__(self, dim):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(dim, 1) / dim**0.5)
        self.bias = nn.Parameter(torch.randn(dim) * 0.1)

    def forward(self, x0, xl):
        return x0 * (xl @ self.kernel) + self.bias + xl


class RegulationModule(nn.Module):
    def __init__(self, fields, dim, tau=1.0):
        super().__init__()
        self.g1 = nn.Parameter(torch.randn(fields))
        self.g2 = nn.Parameter(torch.randn(fields))
        self.dim, self.tau = dim, tau

    def forward(self, x):
        s1 = F.softmax(self.g1 / self.tau, 0).repeat_interleave(self.dim)
        s2 = F.softmax(self.g2 / self.tau, 0).repeat_interleave(self.dim)
        return x * s1, x * s2


class EDCN(nn.Module):
    def __init__(self, emb=6, layers=3):
        super().__init__()
        width = emb * len(FIELDS)
        self.embed = nn.ModuleList([nn.Embedding(n, emb) for n in FIELDS])
        self.cross = nn.ModuleList([CrossNetLayer(width) for _ in range(layers)])
        self.deep = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.regulation = nn.ModuleList([RegulationModule(len(FIELDS), emb) for _ in range(layers)])
        self.out = nn.Linear(3 * width, 1)

    def forward(self, ids):
        e = torch.cat([emb(ids[:, i]) for i, emb in enumerate(self.embed)], dim=-1)
        c_in, d_in = self.regulation[0](e)
        c0 = c_in
        for i in range(len(self.cross)):
            c = self.cross[i](c0, c_in)
            d = F.relu(self.deep[i](d_in))
            bridge = c * d
            if i + 1 < len(self.cross):
                c_in, d_in = self.regulation[i + 1](bridge)
        return torch.sigmoid(self.out(torch.cat([c, d, bridge], dim=-1))).squeeze(-1)


class FeatureEmbedding(nn.Module):
    def __init__(self, sizes, dim):
        super().__init__()
        self.register_buffer("offset", torch.tensor([0] + sizes[:-1]).cumsum(0))
        self.table = nn.Embedding(sum(sizes), dim)

    def forward(self, X):
        return self.table(X + self.offset)


class CrossInteraction(nn.Module):
    def __init__(self, input_dim):
        super().__init__()
        self.weight = nn.Linear(input_dim, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(input_dim))

    def forward(self, X_0, X_i):
        return self.weight(X_i) * X_0 + self.bias


class CrossInteractionMended(CrossInteraction):
    def forward(self, X_0, X_i):
        return super().forward(X_0, X_i) + X_i


class BridgeModule(nn.Module):
    def __init__(self, bridge_type="hadamard_product"):
        super().__init__()
        self.bridge_type = bridge_type

    def forward(self, X1, X2):
        return X1 * X2 if self.bridge_type == "hadamard_product" else X1 + X2


class Regulation(nn.Module):
    def __init__(self, num_fields, embedding_dim, tau=1.0):
        super().__init__()
        self.gates = nn.Parameter(torch.zeros(2, num_fields))
        self.tau, self.embedding_dim = tau, embedding_dim

    def forward(self, X):
        gate = (self.gates / self.tau).softmax(dim=-1)
        fields = X.unflatten(-1, (-1, self.embedding_dim))
        return tuple((fields * g[:, None]).flatten(1) for g in gate)


class EDCNModel(nn.Module):
    def __init__(self, cross_cls, embedding_dim=6, num_cross_layers=3):
        super().__init__()
        n = len(FIELDS)
        self.embedding_layer = FeatureEmbedding(FIELDS, embedding_dim)
        hidden = n * embedding_dim
        self.dense_layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(num_cross_layers)]
        )
        self.cross_layers = nn.ModuleList([cross_cls(hidden) for _ in range(num_cross_layers)])
        self.bridge_modules = nn.ModuleList([BridgeModule() for _ in range(num_cross_layers)])
        self.regulation_modules = nn.ModuleList([Regulation(n, embedding_dim) for _ in range(num_cross_layers)])
        self.fc = nn.Linear(hidden * 3, 1)

    def forward(self, X):
        feature_emb = self.embedding_layer(X).flatten(start_dim=1)
        cross_i, deep_i = self.regulation_modules[0](feature_emb)
        cross_0 = cross_i
        for i in range(len(self.cross_layers)):
            cross_i = self.cross_layers[i](cross_0, cross_i)
            deep_i = self.dense_layers[i](deep_i)
            bridge_i = self.bridge_modules[i](cross_i, deep_i)
            if i + 1 == len(self.cross_layers):
                break
            cross_i, deep_i = self.regulation_modules[i + 1](bridge_i)
        return self.fc(torch.cat([cross_i, deep_i, bridge_i], dim=-1)).sigmoid().flatten()


def convert(sd, layers=3):
    out = {
        "embedding_layer.table.weight": torch.cat([sd[f"embed.{i}.weight"] for i in range(len(FIELDS))]),
        "embedding_layer.offset": torch.tensor([0] + FIELDS[:-1]).cumsum(0),
        "fc.weight": sd["out.weight"],
        "fc.bias": sd["out.bias"],
    }
    for i in range(layers):
        out[f"cross_layers.{i}.weight.weight"] = sd[f"cross.{i}.kernel"].t()
        out[f"cross_layers.{i}.bias"] = sd[f"cross.{i}.bias"]
        out[f"regulation_modules.{i}.gates"] = torch.stack([sd[f"regulation.{i}.g1"], sd[f"regulation.{i}.g2"]])
        for p in ("weight", "bias"):
            out[f"dense_layers.{i}.0.{p}"] = sd[f"deep.{i}.{p}"]
    return out


def build(fixed):
    torch.manual_seed(14)
    original = EDCN().eval()
    with torch.no_grad():
        original.out.weight.mul_(6)
        for e in original.embed:
            e.weight.mul_(3)
    port = EDCNModel(CrossInteractionMended if fixed else CrossInteraction).eval()
    port.load_state_dict(convert(original.state_dict()))
    ids = torch.stack([torch.randint(0, n, (16,)) for n in FIELDS], dim=1)
    return original, port, (ids,)
