"""After PaddlePaddle/PaddleRec#702: the Deep & Cross ranking model of the library is not that of the
paper; ported click models score differently."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossNet(nn.Module):
    """x_{l+1} = x_0 x_l^T w_l + b_l + x_l"""

    def __init__(self, dim, num_layers):
        super().__init__()
        self.kernels = nn.ParameterList(torch.randn(dim, 1) * 0.3 for _ in range(num_layers))
        self.bias = nn.ParameterList(torch.randn(dim, 1) * 0.1 for _ in range(num_layers))

    def forward(self, x):
        x_0 = x.unsqueeze(2)
        x_l = x_0
        for w, b in zip(self.kernels, self.bias):
            xl_w = torch.matmul(x_l.transpose(1, 2), w)
            x_l = torch.matmul(x_0, xl_w) + b + x_l
        return x_l.squeeze(2)


class DeepCross(nn.Module):
    def __init__(self, field_sizes=(11, 7, 23, 5), n_dense=4, emb=4, cross_layers=3, hidden=(24, 16)):
        super().__init__()
        self.embedding_dict = nn.ModuleList(nn.Embedding(n, emb) for n in field_sizes)
        dim = len(field_sizes) * emb + n_dense
        self.crossnet = CrossNet(dim, cross_layers)
        dims = (dim,) + hidden
        self.dnn = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(dims))
        self.bn = nn.ModuleList(nn.BatchNorm1d(b) for b in hidden)
        self.dnn_linear = nn.Linear(dim + hidden[-1], 1, bias=False)
        self.out_bias = nn.Parameter(torch.zeros(1))
        for m in self.bn:
            nn.init.uniform_(m.running_var, 0.5, 1.5)
            nn.init.normal_(m.running_mean, std=0.2)

    def forward(self, sparse_ids, dense):
        e = [emb(sparse_ids[:, i]) for i, emb in enumerate(self.embedding_dict)]
        x = torch.cat(e + [dense], dim=1)
        deep = x
        for lin, bn in zip(self.dnn, self.bn):
            deep = F.relu(bn(lin(deep)))
        logit = self.dnn_linear(torch.cat([self.crossnet(x), deep], dim=-1)) + self.out_bias
        return torch.sigmoid(logit)


class DeepCroLayer(nn.Module):
    def __init__(self, dim, cross_num, shared):
        super().__init__()
        self.cross_num, self.shared = cross_num, shared
        self.layer_w = nn.Parameter(torch.zeros(cross_num, dim))
        self.layer_b = nn.Parameter(torch.zeros(cross_num, dim))

    def _cross_layer(self, input_0, input_x, level):
        w = self.layer_w[0] if self.shared else self.layer_w[level]
        input_w = torch.mul(input_x, w)
        input_w1 = torch.sum(input_w, dim=1, keepdim=True)
        input_ww = torch.mul(input_0, input_w1)
        return input_ww + self.layer_b[level] + input_x

    def forward(self, features):
        x = features
        for i in range(self.cross_num):
            x = self._cross_layer(features, x, i)
        return x


class DNNLayer(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.fc = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(dims))

    def forward(self, x):
        for fc in self.fc:
            x = fc(x).clamp(min=0)
        return x


class DCNRanker(nn.Module):
    def __init__(self, shared, total_ids=46, n_fields=4, n_dense=4, emb=4, cross_num=3, hidden=(24, 16)):
        super().__init__()
        self.embedding = nn.Embedding(total_ids, emb)
        self.register_buffer("offsets", torch.zeros(n_fields, dtype=torch.long))
        dim = n_fields * emb + n_dense
        self.cross = DeepCroLayer(dim, cross_num, shared)
        self.deep = DNNLayer((dim,) + hidden)
        self.fc = nn.Linear(dim + hidden[-1], 1)

    def forward(self, sparse, dense):
        feat = torch.cat([self.embedding(sparse + self.offsets).flatten(1), dense], 1)
        both = torch.cat([self.cross(feat), self.deep(feat)], 1)
        return self.fc(both).sigmoid()


def fold_bn(lin, bn):
    g = bn.weight / (bn.running_var + bn.eps).sqrt()
    return lin.weight * g[:, None], (lin.bias - bn.running_mean) * g + bn.bias


@torch.no_grad()
def transfer(src, dst):
    sizes = [e.num_embeddings for e in src.embedding_dict]
    dst.offsets.copy_(torch.tensor([0] + sizes[:-1]).cumsum(0))
    dst.embedding.weight.copy_(torch.cat([e.weight for e in src.embedding_dict]))
    dst.cross.layer_w.copy_(torch.stack([k[:, 0] for k in src.crossnet.kernels]))
    dst.cross.layer_b.copy_(torch.stack([b[:, 0] for b in src.crossnet.bias]))
    for fc, lin, bn in zip(dst.deep.fc, src.dnn, src.bn):
        w, b = fold_bn(lin, bn)
        fc.weight.copy_(w)
        fc.bias.copy_(b)
    dst.fc.weight.copy_(src.dnn_linear.weight)
    dst.fc.bias.copy_(src.out_bias)


def build(fixed):
    torch.manual_seed(702)
    original = DeepCross().eval()
    port = DCNRanker(shared=not fixed).eval()
    transfer(original, port)
    sparse = torch.stack([torch.randint(0, n, (6,)) for n in (11, 7, 23, 5)], 1)
    return original, port, (sparse, torch.randn(6, 4))
