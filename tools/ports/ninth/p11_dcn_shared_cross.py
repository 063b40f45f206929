"""PaddlePaddle/PaddleRec#702

A Deep & Cross click model was carried over to another recommender library.  The deep
tower gives the same values; the predicted click rates differ all the same.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn


class CrossLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, 1, bias=False)
        self.b = nn.Parameter(torch.zeros(dim))

    def forward(self, x0, xl):
        return x0 * self.w(xl) + self.b + xl


class DCN(nn.Module):
    def __init__(self, field_dims=(20, 12, 8, 30), n_dense=5, embed_dim=4, cross_layers=3, hidden=(24, 12)):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, embed_dim) for n in field_dims)
        dim = len(field_dims) * embed_dim + n_dense
        self.dense_bn = nn.BatchNorm1d(n_dense)
        self.cross = nn.ModuleList(CrossLayer(dim) for _ in range(cross_layers))
        layers, d = [], dim
        for h in hidden:
            layers += [nn.Linear(d, h), nn.BatchNorm1d(h), nn.ReLU()]
            d = h
        self.deep = nn.Sequential(*layers)
        self.combine = nn.Linear(dim + d, 1)

    def forward(self, sparse, dense):
        emb = [e(sparse[:, i]) for i, e in enumerate(self.embeddings)]
        x0 = torch.cat(emb + [self.dense_bn(dense)], dim=1)
        xl = x0
        for layer in self.cross:
            xl = layer(x0, xl)
        return torch.sigmoid(self.combine(torch.cat([xl, self.deep(x0)], dim=1))).squeeze(1)


class FeatureEmbedding(nn.Module):
    def __init__(self, field_dims, dim):
        super().__init__()
        self.table = nn.Parameter(torch.empty(sum(field_dims), dim))
        self.register_buffer("offsets", torch.tensor([0] + list(field_dims[:-1])).cumsum(0), persistent=False)

    def forward(self, ids):
        return self.table[ids + self.offsets].flatten(1)


class CrossNet(nn.Module):
    def __init__(self, dim, depth, per_layer):
        super().__init__()
        self.layer_w = nn.Parameter(torch.empty(depth, dim))
        self.layer_b = nn.Parameter(torch.empty(depth, dim))
        self.depth, self.per_layer = depth, per_layer

    def _cross_layer(self, input_0, input_x, w, b):
        input_w = torch.multiply(input_x, w)
        input_w1 = torch.sum(input_w, dim=1, keepdim=True)
        return torch.multiply(input_0, input_w1) + b + input_x

    def forward(self, x):
        out = x
        for i in range(self.depth):
            w = self.layer_w[i] if self.per_layer else self.layer_w[0]
            out = self._cross_layer(x, out, w, self.layer_b[i])
        return out


class FoldedDense(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return F.relu(torch.addmm(self.bias, x, self.kernel))


class DeepCroLayer(nn.Module):
    def __init__(self, field_dims=(20, 12, 8, 30), n_dense=5, embed_dim=4, depth=3, fc_sizes=(24, 12), per_layer=False):
        super().__init__()
        dim = len(field_dims) * embed_dim + n_dense
        self.embedding = FeatureEmbedding(field_dims, embed_dim)
        self.dense_scale, self.dense_shift = nn.Parameter(torch.empty(n_dense)), nn.Parameter(torch.empty(n_dense))
        self.cross_net = CrossNet(dim, depth, per_layer)
        sizes = (dim,) + tuple(fc_sizes)
        self.dnn = nn.Sequential(*[FoldedDense(a, b) for a, b in itertools.pairwise(sizes)])
        self.fc_cross, self.fc_deep = nn.Linear(dim, 1), nn.Linear(fc_sizes[-1], 1, bias=False)

    def forward(self, sparse_inputs, dense_inputs):
        feats = torch.cat([self.embedding(sparse_inputs), dense_inputs * self.dense_scale + self.dense_shift], 1)
        logit = self.fc_cross(self.cross_net(feats)) + self.fc_deep(self.dnn(feats))
        return torch.sigmoid(logit[:, 0])


def bn_affine(sd, name):
    scale = sd[name + ".weight"] / torch.sqrt(sd[name + ".running_var"] + 1e-5)
    return scale, sd[name + ".bias"] - sd[name + ".running_mean"] * scale


def convert(sd):
    out = {"embedding.table": torch.cat([sd[f"embeddings.{i}.weight"] for i in range(4)])}
    out["dense_scale"], out["dense_shift"] = bn_affine(sd, "dense_bn")
    out["cross_net.layer_w"] = torch.cat([sd[f"cross.{i}.w.weight"] for i in range(3)])
    out["cross_net.layer_b"] = torch.stack([sd[f"cross.{i}.b"] for i in range(3)])
    for i in range(2):
        scale, shift = bn_affine(sd, f"deep.{3 * i + 1}")
        out[f"dnn.{i}.kernel"] = (sd[f"deep.{3 * i}.weight"] * scale[:, None]).t()
        out[f"dnn.{i}.bias"] = sd[f"deep.{3 * i}.bias"] * scale + shift
    dim = sd["cross.0.b"].shape[0]
    w = sd["combine.weight"]
    out["fc_cross.weight"], out["fc_cross.bias"], out["fc_deep.weight"] = w[:, :dim], sd["combine.bias"], w[:, dim:]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(10)
    original = DCN()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "bn" in n and n.endswith("weight") else 0.0, 0.2)
    sparse = torch.stack([torch.randint(0, n, (64,)) for n in (20, 12, 8, 30)], 1)
    dense = torch.rand(64, 5) * 4
    for _ in range(10):
        original(sparse, dense)
    original.eval()
    port = DeepCroLayer(per_layer=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (sparse[:8], dense[:8])
