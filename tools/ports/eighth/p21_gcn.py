"""After dsgiitr/graph_nets#13.

A notebook re-implements the graph convolutional network of Kipf and Welling in plain PyTorch.
A reader who knew the original code asked about the normalisation.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def preprocess_adj(edge_index, n):
    """D^-1/2 (A + I) D^-1/2 as a sparse tensor, as in the authors' utils."""
    loops = torch.arange(n)
    row, col = torch.cat([edge_index[0], loops]), torch.cat([edge_index[1], loops])
    deg = torch.zeros(n).index_add(0, row, torch.ones(row.shape[0]))
    val = deg[row].rsqrt() * deg[col].rsqrt()
    return torch.sparse_coo_tensor(torch.stack([row, col]), val, (n, n))


class GraphConvolution(nn.Module):
    def __init__(self, cin, cout, act):
        super().__init__()
        self.weights_0 = nn.Parameter(torch.empty(cin, cout))
        nn.init.xavier_uniform_(self.weights_0)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)
        self.act = act

    def forward(self, x, support):
        return self.act(torch.sparse.mm(support, x @ self.weights_0) + self.bias)


class KipfGCN(nn.Module):
    def __init__(self, features=12, hidden=16, classes=5):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                GraphConvolution(features, hidden, torch.relu),
                GraphConvolution(hidden, hidden, torch.relu),
                GraphConvolution(hidden, classes, nn.Identity()),
            ]
        )

    def forward(self, x, edge_index):
        support = preprocess_adj(edge_index, x.shape[0])
        x = x / x.sum(1, keepdim=True)
        for layer in self.layers:
            x = layer(x, support)
        return x.log_softmax(-1)


class NormAdj(nn.Module):
    def forward(self, A):
        A_hat = A + torch.eye(A.size(0))
        D = torch.diag(torch.sum(A, 1))
        D = D.inverse().sqrt()
        return torch.mm(torch.mm(D, A_hat), D)


class NormAdjMended(nn.Module):
    def forward(self, A):
        A_hat = A + torch.eye(A.size(0))
        D = torch.diag(A_hat.sum(1).pow(-0.5))
        return D @ A_hat @ D


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.W = nn.Linear(in_channels, out_channels, bias=False)
        self.b = nn.Parameter(torch.zeros(out_channels))

    def forward(self, X, A_norm):
        return torch.mm(A_norm, self.W(X)) + self.b


class RowNormalize(nn.Module):
    def forward(self, X):
        return F.normalize(X, p=1, dim=1)


class Net(nn.Module):
    def __init__(self, norm, nfeat=12, nhid=16, nout=5):
        super().__init__()
        self.row_norm, self.adj = RowNormalize(), norm
        self.conv1, self.conv2, self.conv3 = GCNConv(nfeat, nhid), GCNConv(nhid, nhid), GCNConv(nhid, nout)
        self.dropout = nn.Dropout(0.5)

    def dense(self, edge_index, n):
        A = torch.zeros(n, n)
        A[edge_index[0], edge_index[1]] = 1.0
        return A

    def forward(self, X, edge_index):
        A = self.adj(self.dense(edge_index, X.shape[0]))
        H = self.row_norm(X)
        H = self.dropout(F.relu(self.conv1(H, A)))
        H = self.dropout(F.relu(self.conv2(H, A)))
        return F.log_softmax(self.conv3(H, A), dim=1)


def convert(sd):
    out = {}
    for i in range(3):
        out[f"conv{i + 1}.W.weight"] = sd[f"layers.{i}.weights_0"].t()
        out[f"conv{i + 1}.b"] = sd[f"layers.{i}.bias"]
    return out


def build(fixed):
    torch.manual_seed(34)
    original = KipfGCN().eval()
    port = Net(NormAdjMended() if fixed else NormAdj()).eval()
    port.load_state_dict(convert(original.state_dict()))
    n = 34
    upper = torch.rand(n, n).triu(1) > 0.88
    ring = torch.arange(n)
    upper[ring[:-1], ring[1:]] = True
    edges = (upper | upper.t()).nonzero().t()
    return original, port, (torch.rand(n, 12), edges)
