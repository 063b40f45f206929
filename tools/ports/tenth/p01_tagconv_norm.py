"""pyg-team/pytorch_geometric#1104: TAGConv re-implemented for dense molecule batches.

The paper's layer (and its formula in the docs) normalises the plain adjacency matrix; users
found the library's layer to return other node features than the reference for the same weights.
"""

import torch
import torch.nn.functional as F
from torch import nn


class TAGConv(nn.Module):
    """Reference: edge lists, one linear map per hop."""

    def __init__(self, in_channels, out_channels, K):
        super().__init__()
        self.K = K
        self.lins = nn.ModuleList([nn.Linear(in_channels, out_channels, bias=False) for _ in range(K + 1)])
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x, edge_index):
        row, col = edge_index
        deg = torch.zeros(x.size(0), dtype=x.dtype).index_add_(0, col, torch.ones(col.numel()))
        inv = deg.clamp(min=1).pow(-0.5)
        weight = inv[row] * inv[col]
        out = self.lins[0](x)
        for lin in list(self.lins)[1:]:
            x = torch.zeros_like(x).index_add_(0, col, x[row] * weight[:, None])
            out = out + lin(x)
        return out + self.bias


class TAGNet(nn.Module):
    def __init__(self, in_channels=7, hidden=16, classes=4, K=3):
        super().__init__()
        self.conv1 = TAGConv(in_channels, hidden, K)
        self.norm = nn.LayerNorm(hidden)
        self.conv2 = TAGConv(hidden, hidden, K)
        self.readout = nn.Linear(hidden, classes)

    def forward(self, x, edge_index):
        h = F.relu(self.norm(self.conv1(x, edge_index)))
        h = h + F.relu(self.conv2(h, edge_index))
        return self.readout(h)


def gcn_norm(adj, add_self_loops):
    if add_self_loops:
        adj = adj + torch.eye(adj.size(0), dtype=adj.dtype)
    degree = adj.sum(0).clamp(min=1)
    d = degree.rsqrt()
    return d[:, None] * adj * d[None, :]


class PolynomialFilter(nn.Module):
    """Port: one wide projection over the stacked powers of the propagation matrix."""

    def __init__(self, dim_in, dim_out, order):
        super().__init__()
        self.order = order
        self.mix = nn.Linear(dim_in * (order + 1), dim_out)

    def forward(self, prop, feats):
        hops = [feats]
        for _ in range(self.order):
            hops.append(prop.t() @ hops[-1])
        return self.mix(torch.cat(hops, dim=1))


class DenseTAG(nn.Module):
    def __init__(self, dim_in=7, width=16, n_out=4, order=3, add_self_loops=True):
        super().__init__()
        self.add_self_loops = add_self_loops
        self.filter_in = PolynomialFilter(dim_in, width, order)
        self.ln = nn.LayerNorm(width)
        self.filter_mid = PolynomialFilter(width, width, order)
        self.head = nn.Linear(width, n_out)

    def forward(self, feats, edges):
        n = feats.size(0)
        adj = torch.zeros(n, n)
        adj[edges[0], edges[1]] = 1.0
        prop = gcn_norm(adj, self.add_self_loops)
        h = self.ln(self.filter_in(prop, feats)).relu()
        skip = h
        h = self.filter_mid(prop, h).relu()
        return self.head(skip + h)


def convert(sd):
    out = {}
    for src, dst in (("conv1", "filter_in"), ("conv2", "filter_mid")):
        hops = sorted(k for k in sd if k.startswith(src + ".lins."))
        out[dst + ".mix.weight"] = torch.cat([sd[k] for k in hops], dim=1)
        out[dst + ".mix.bias"] = sd[src + ".bias"]
    for name in ("weight", "bias"):
        out["ln." + name] = sd["norm." + name]
        out["head." + name] = sd["readout." + name]
    return out


def build(fixed):
    torch.manual_seed(3)
    original = TAGNet().eval()
    with torch.no_grad():
        for p in original.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    port = DenseTAG(add_self_loops=not fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    n = 14
    ring = torch.arange(n)
    src = torch.cat([ring, torch.tensor([0, 3, 5, 9])])
    dst = torch.cat([(ring + 1) % n, torch.tensor([7, 11, 12, 2])])
    edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    return original, port, (torch.randn(n, 7), edge_index)
