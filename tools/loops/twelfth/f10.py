"""After pyg-team/pytorch_geometric#1185: a graph autoencoder on a graph with many edges.

With few edges the GAE trains; with more of them the printed loss is fixed at
34.5388 from the first epoch on.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-15


class GraphConv(nn.Module):
    def __init__(self, in_channels, out_channels, aggr="add"):
        super().__init__()
        self.aggr = aggr
        self.lin_rel = nn.Linear(in_channels, out_channels)
        self.lin_root = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        out = torch.zeros_like(x).index_add(0, dst, x[src])
        if self.aggr == "mean":
            deg = torch.bincount(dst, minlength=x.size(0)).clamp(min=1)
            out = out / deg[:, None]
        return self.lin_rel(out) + self.lin_root(x)


class Encoder(nn.Module):
    def __init__(self, in_channels, out_channels, aggr):
        super().__init__()
        self.conv1 = GraphConv(in_channels, 2 * out_channels, aggr)
        self.conv2 = GraphConv(2 * out_channels, out_channels, aggr)

    def forward(self, x, edge_index):
        z = F.relu(self.conv1(x, edge_index))
        return self.conv2(z, edge_index)


class InnerProductDecoder(nn.Module):
    def forward(self, z, edge_index):
        return torch.sigmoid((z[edge_index[0]] * z[edge_index[1]]).sum(dim=1))


class GAE(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = InnerProductDecoder()

    def encode(self, x, edge_index):
        return self.encoder(x, edge_index)

    def recon_loss(self, z, pos_edge_index):
        pos_loss = -torch.log(self.decoder(z, pos_edge_index) + EPS).mean()
        neg_edge_index = torch.randint(0, z.size(0), pos_edge_index.shape)
        neg_loss = -torch.log(1 - self.decoder(z, neg_edge_index) + EPS).mean()
        return pos_loss + neg_loss


def community_graph(num_nodes=200, num_edges=14000, groups=4):
    group = torch.arange(num_nodes) % groups
    src = torch.randint(0, num_nodes, (num_edges,))
    dst = torch.randint(0, num_nodes // groups, (num_edges,)) * groups + group[src]
    x = F.one_hot(group, groups).float()
    x = torch.cat([x, torch.rand(num_nodes, 12)], dim=1) + 0.5
    return x, torch.stack([src, dst])


def train(tick, mended=False):
    torch.manual_seed(9)
    x, edge_index = community_graph()
    model = GAE(Encoder(x.size(1), 16, aggr="mean" if mended else "add"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(100):
        model.train()
        optimizer.zero_grad()
        z = model.encode(x, edge_index)
        loss = model.recon_loss(z, edge_index)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
