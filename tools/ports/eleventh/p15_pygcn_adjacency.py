"""After tkipf/pygcn#69.

The TensorFlow GCN and its PyTorch sibling: class scores on a citation graph differ even
after the dropout in front of the first layer has been taken into account.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

N, FIN, HID, NC = 24, 12, 16, 4


class TFGraphConvolution(nn.Module):
    def __init__(self, cin, cout, act):
        super().__init__()
        self.weights_0 = nn.Parameter(torch.randn(cin, cout) * (2.0 / (cin + cout)) ** 0.5)
        self.act = act

    def forward(self, x, support):
        return self.act(torch.sparse.mm(support, x @ self.weights_0))


class TFGCN(nn.Module):
    """inputs: node features (N, F), symmetric 0/1 adjacency (N, N) without self links."""

    def __init__(self):
        super().__init__()
        self.layer_0 = TFGraphConvolution(FIN, HID, torch.relu)
        self.layer_1 = TFGraphConvolution(HID, HID, torch.relu)
        self.layer_2 = TFGraphConvolution(HID, NC, lambda z: z)

    @staticmethod
    def preprocess_adj(adj):
        a = adj + torch.eye(adj.shape[0])
        d = a.sum(1).pow(-0.5)
        return (d[:, None] * a * d[None, :]).to_sparse()

    def forward(self, features, adj):
        support = self.preprocess_adj(adj)
        x = self.layer_1(self.layer_0(features, support), support)
        return self.layer_2(x, support)


class EdgeNorm(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, src, dst, n):
        loop = torch.arange(n)
        src, dst = torch.cat([src, loop]), torch.cat([dst, loop])
        rowsum = torch.zeros(n).index_add_(0, dst, torch.ones(len(dst)))
        if self.mode == "sym":
            r_inv = rowsum.rsqrt()
            value = r_inv[dst] * r_inv[src]
        else:
            r_inv = rowsum.reciprocal()
            value = r_inv[dst]
        return src, dst, value


class GraphConvolution(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.linear = nn.Linear(cin, cout, bias=False)

    def forward(self, x, edges):
        src, dst, value = edges
        agg = torch.zeros_like(x).index_add(0, dst, x[src] * value[:, None])
        return self.linear(agg)


class PyGCN(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.normalize = EdgeNorm(mode)
        self.gc1 = GraphConvolution(FIN, HID)
        self.gc2 = GraphConvolution(HID, HID)
        self.gc3 = GraphConvolution(HID, NC)

    def forward(self, x, adj):
        dst, src = adj.nonzero(as_tuple=True)
        edges = self.normalize(src, dst, len(adj))
        x = F.relu(self.gc1(x, edges))
        x = F.dropout(x, 0.5, self.training)
        x = F.relu(self.gc2(x, edges))
        return self.gc3(x, edges)


def convert(sd):
    return {f"gc{i + 1}.linear.weight": sd[f"layer_{i}.weights_0"].T.contiguous() for i in range(3)}


def build(fixed):
    torch.manual_seed(69)
    original = TFGCN().eval()
    port = PyGCN("sym" if fixed else "row").eval()
    port.load_state_dict(convert(original.state_dict()))
    w = torch.rand(N) ** 2
    adj = (torch.rand(N, N) < 0.05 + 0.5 * w[:, None] * w[None]).float().triu(1)
    adj = adj + adj.T
    feats = (torch.rand(N, FIN) < 0.3).float()
    feats = feats / feats.sum(1, keepdim=True).clamp(min=1)
    return original, port, (feats, adj)
