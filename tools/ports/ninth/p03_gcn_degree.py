"""pyg-team/pytorch_geometric#48

A node classifier with the dense graph convolution of Kipf & Welling was ported to
message passing over edge lists.  The logits are near those of the dense network,
yet not the same, above all for nodes with few neighbours.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat=6, nhid=16, nclass=4):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nhid)
        self.gc3 = GraphConvolution(nhid, nclass)

    @staticmethod
    def normalize(edge_index, n):
        a = torch.zeros(n, n)
        a[edge_index[1], edge_index[0]] = 1.0
        a = a + torch.eye(n)
        d = a.sum(1).pow(-0.5)
        return d[:, None] * a * d[None, :]

    def forward(self, x, edge_index):
        adj = self.normalize(edge_index, x.shape[0])
        x = F.relu(self.gc1(x, adj))
        x = F.relu(self.gc2(x, adj))
        return self.gc3(x, adj)


def add_self_loops(edge_index, num_nodes):
    loop = torch.arange(num_nodes)
    return torch.cat([edge_index, torch.stack([loop, loop])], dim=1)


def degree(index, num_nodes):
    return torch.zeros(num_nodes).index_add_(0, index, torch.ones(index.shape[0]))


class GCNProp(nn.Module):
    def __init__(self, loops_first):
        super().__init__()
        self.loops_first = loops_first

    def norm(self, edge_index, num_nodes):
        if self.loops_first:
            edge_index = add_self_loops(edge_index, num_nodes)
            deg = degree(edge_index[1], num_nodes)
        else:
            deg = degree(edge_index[1], num_nodes)
            edge_index = add_self_loops(edge_index, num_nodes)
        deg_inv = deg.pow(-0.5)
        deg_inv[deg_inv == float("inf")] = 0
        row, col = edge_index
        return edge_index, deg_inv[row] * deg_inv[col]

    def forward(self, x, edge_index):
        edge_index, norm = self.norm(edge_index, x.shape[0])
        row, col = edge_index
        return torch.zeros_like(x).index_add_(0, col, norm[:, None] * x[row])


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels, loops_first):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.prop = GCNProp(loops_first)
        self.bias = nn.Parameter(torch.empty(out_channels))

    def forward(self, x, edge_index):
        return self.prop(self.lin(x), edge_index) + self.bias


class Net(nn.Module):
    def __init__(self, channels=(6, 16, 16, 4), loops_first=False):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(a, b, loops_first) for a, b in itertools.pairwise(channels))

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = x.clamp(min=0)
        return x


def convert(sd):
    out = {}
    for i in range(3):
        out[f"convs.{i}.lin.weight"] = sd[f"gc{i + 1}.weight"].t().clone()
        out[f"convs.{i}.bias"] = sd[f"gc{i + 1}.bias"].clone()
    return out


def build(fixed):
    torch.manual_seed(2)
    original = GCN().eval()
    for p in original.parameters():
        nn.init.normal_(p, 0.0, 0.4)
    port = Net(loops_first=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    n = 12
    src = torch.cat([torch.arange(n), torch.tensor([0, 0, 0, 2, 5, 7])])
    dst = torch.cat([(torch.arange(n) + 1) % n, torch.tensor([4, 6, 9, 8, 10, 3])])
    edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    return original, port, (torch.randn(n, 6), edge_index)
