"""pyg-team/pytorch_geometric#5514: PNA degree scalers are applied one after the other to the same variable.

Identity, amplification and attenuation should each start from the aggregated messages; chained, the third one cancels
the second.  The reference is written with a dense adjacency, the port with scatter operations on an edge list.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PNALayer(nn.Module):
    def __init__(self, dim: int, edge_dim: int, avg_log: float) -> None:
        super().__init__()
        self.avg_log = avg_log
        self.edge_encoder = nn.Linear(edge_dim, dim)
        self.pre_nn = nn.Linear(3 * dim, dim)
        self.post_nn = nn.Linear(dim + 9 * dim, dim)
        self.lin = nn.Linear(dim, dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        n = x.shape[0]
        src, dst = edge_index
        messages = self.pre_nn(torch.cat([x[dst], x[src], self.edge_encoder(edge_attr)], dim=-1))
        member = F.one_hot(dst, n).T.bool()
        degree = member.sum(1, keepdim=True).float()
        spread = messages.unsqueeze(0).expand(n, -1, -1)
        outside = ~member.unsqueeze(-1)
        mean = spread.masked_fill(outside, 0.0).sum(1) / degree.clamp(min=1)
        top = spread.masked_fill(outside, float("-inf")).amax(1)
        centred = (spread - mean.unsqueeze(1)).masked_fill(outside, 0.0)
        std = torch.sqrt(centred.pow(2).sum(1) / degree.clamp(min=1) + 1e-5)
        base = torch.cat([mean, top, std], dim=-1)
        log_degree = torch.log(degree + 1)
        scaled = torch.cat([base, base * (log_degree / self.avg_log), base * (self.avg_log / log_degree)], dim=-1)
        return self.lin(self.post_nn(torch.cat([x, scaled], dim=-1)))


class PNANet(nn.Module):
    def __init__(self, atoms: int = 7, dim: int = 10, edge_dim: int = 4, depth: int = 2, avg_log: float = 1.1) -> None:
        super().__init__()
        self.atom_encoder = nn.Embedding(atoms, dim)
        self.convs = nn.ModuleList(PNALayer(dim, edge_dim, avg_log) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(dim, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, atom: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.atom_encoder(atom)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x, edge_index, edge_attr)))
        return self.readout(x.mean(0))


class MultiAggregation(nn.Module):
    def forward(self, messages: Tensor, index: Tensor, size: int) -> Tensor:
        expanded = index.unsqueeze(-1).expand_as(messages)
        empty = messages.new_zeros(size, messages.shape[-1])
        mean = empty.scatter_reduce(0, expanded, messages, "mean", include_self=False)
        top = empty.scatter_reduce(0, expanded, messages, "amax", include_self=False)
        square = empty.scatter_reduce(0, expanded, messages * messages, "mean", include_self=False)
        std = (F.relu(square - mean * mean) + 1e-5).sqrt()
        return torch.cat([mean, top, std], dim=-1)


class DegreeScalerAggregation(nn.Module):
    scalers = ("identity", "amplification", "attenuation")

    def __init__(self, avg_deg_log: float, independent: bool) -> None:
        super().__init__()
        self.aggr = MultiAggregation()
        self.avg_deg_log = avg_deg_log
        self.independent = independent

    def forward(self, messages: Tensor, index: Tensor, size: int) -> Tensor:
        aggregated = self.aggr(messages, index, size)
        deg = torch.bincount(index, minlength=size).clamp(min=1).float().view(-1, 1)
        outs = []
        out = aggregated
        for scaler in self.scalers:
            if self.independent:
                out = aggregated
            if scaler == "amplification":
                out = out * (torch.log(deg + 1) / self.avg_deg_log)
            elif scaler == "attenuation":
                out = out * (self.avg_deg_log / torch.log(deg + 1))
            outs.append(out)
        return torch.cat(outs, dim=-1)


class PNAConv(nn.Module):
    def __init__(self, channels: int, edge_dim: int, avg_deg_log: float, independent: bool) -> None:
        super().__init__()
        self.edge_encoder = nn.Linear(edge_dim, channels)
        self.pre_nns = nn.ModuleList([nn.Sequential(nn.Linear(3 * channels, channels))])
        self.aggr_module = DegreeScalerAggregation(avg_deg_log, independent)
        self.post_nns = nn.ModuleList([nn.Sequential(nn.Linear(10 * channels, channels))])
        self.lin = nn.Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x_j, x_i = x.index_select(0, edge_index[0]), x.index_select(0, edge_index[1])
        h = torch.cat([x_i, x_j, self.edge_encoder(edge_attr)], dim=-1)
        out = self.aggr_module(self.pre_nns[0](h), edge_index[1], x.shape[0])
        return self.lin(self.post_nns[0](torch.cat([x, out], dim=-1)))


class GeometricPNA(nn.Module):
    def __init__(self, atoms: int, channels: int, edge_dim: int, depth: int, avg: float, independent: bool) -> None:
        super().__init__()
        self.node_emb = nn.Embedding(atoms, channels)
        self.convs = nn.ModuleList([PNAConv(channels, edge_dim, avg, independent) for _ in range(depth)])
        self.batch_norms = nn.ModuleList([nn.BatchNorm1d(channels) for _ in range(depth)])
        self.mlp = nn.Sequential(nn.Linear(channels, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, atom: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.node_emb(atom)
        for conv, batch_norm in zip(self.convs, self.batch_norms, strict=True):
            x = x + batch_norm(conv(x, edge_index, edge_attr)).relu()
        return self.mlp(x.sum(dim=0) / x.shape[0])


def rename(state: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {}
    for key, value in state.items():
        for old, new in (
            ("atom_encoder", "node_emb"),
            ("pre_nn.", "pre_nns.0.0."),
            ("post_nn.", "post_nns.0.0."),
            ("norms.", "batch_norms."),
            ("readout.", "mlp."),
        ):
            key = key.replace(old, new)
        renamed[key] = value
    return renamed


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(117)
    original = PNANet()
    with torch.no_grad():
        for norm in original.norms:
            norm.running_mean.normal_(0, 0.2)
            norm.running_var.uniform_(0.3, 1.5)
    original.eval()
    port = GeometricPNA(7, 10, 4, 2, 1.1, independent=fixed).eval()
    port.load_state_dict(rename(original.state_dict()))
    nodes = 9
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    extra = torch.tensor([[0, 2, 4, 6, 7, 5], [3, 3, 3, 3, 1, 1]])
    edge_index = torch.cat([ring, extra], dim=1)
    return original, port, (torch.randint(0, 7, (nodes,)), edge_index, torch.randn(edge_index.shape[1], 4))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
