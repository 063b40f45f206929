"""learningmatter-mit/NeuralForceField#6

A SchNet-like force field with graph attention was ported from a dense all-pairs form
to an undirected neighbour list that holds every pair once.  The energies of the port
are not those of the original, even for three atoms.
"""

import torch
import torch.nn.functional as F
from torch import nn


class DenseInteraction(nn.Module):
    def __init__(self, n_atom_basis, n_gaussians):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(n_gaussians, n_atom_basis), nn.Softplus(), nn.Linear(n_atom_basis, n_atom_basis)
        )
        self.node = nn.Linear(n_atom_basis, n_atom_basis, bias=False)
        self.att = nn.Linear(2 * n_atom_basis, 1, bias=False)
        self.update = nn.Sequential(
            nn.Linear(n_atom_basis, n_atom_basis), nn.Softplus(), nn.Linear(n_atom_basis, n_atom_basis)
        )

    def forward(self, r, gauss, adj):
        n = r.shape[0]
        h = self.node(r)
        pair = torch.cat([h[:, None].expand(n, n, -1), h[None].expand(n, n, -1)], -1)
        e = F.leaky_relu(self.att(pair).squeeze(-1), 0.2)
        alpha = e.masked_fill(~adj, float("-inf")).softmax(-1)
        msg = torch.einsum("ij,ijf,jf->if", alpha, self.filter(gauss), h)
        return r + self.update(msg)


class DenseSchNet(nn.Module):
    def __init__(self, n_atom_basis=12, n_gaussians=8, cutoff=3.0, n_conv=3):
        super().__init__()
        self.atom_embed = nn.Embedding(10, n_atom_basis)
        self.convolutions = nn.ModuleList(DenseInteraction(n_atom_basis, n_gaussians) for _ in range(n_conv))
        self.readout = nn.Sequential(nn.Linear(n_atom_basis, 8), nn.Softplus(), nn.Linear(8, 1))
        self.register_buffer("centers", torch.linspace(0, cutoff, n_gaussians), persistent=False)

    def forward(self, z, xyz, nbr_list):
        n = len(z)
        adj = torch.zeros(n, n, dtype=torch.bool)
        adj[nbr_list[:, 0], nbr_list[:, 1]] = True
        adj = adj | adj.t()
        dist = (xyz[:, None] - xyz[None]).pow(2).sum(-1).add(1e-12).sqrt()
        gauss = torch.exp(-4.0 * (dist[..., None] - self.centers) ** 2)
        r = self.atom_embed(z)
        for conv in self.convolutions:
            r = conv(r, gauss, adj)
        return torch.cat([self.readout(r), r], dim=-1)


class GaussianSmearing(nn.Module):
    def __init__(self, n_gaussians, cutoff):
        super().__init__()
        self.register_buffer("offsets", torch.linspace(0, cutoff, n_gaussians), persistent=False)

    def forward(self, d):
        return torch.exp(-4.0 * (d - self.offsets).square())


class Dense(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.l1, self.l2 = nn.Linear(n_in, n_hidden), nn.Linear(n_hidden, n_out)

    def forward(self, x):
        x = self.l1(x)
        return self.l2(torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0))


class GraphAttention(nn.Module):
    def __init__(self, n_atom_basis, both_ways):
        super().__init__()
        self.w_self, self.w_other = nn.Parameter(torch.empty(n_atom_basis)), nn.Parameter(torch.empty(n_atom_basis))
        self.both_ways = both_ways

    def scores(self, h, a):
        own, other = h @ self.w_self, h @ self.w_other
        s_ij = F.leaky_relu(own[a[:, 0]] + other[a[:, 1]], 0.2)
        s_ji = F.leaky_relu(own[a[:, 1]] + other[a[:, 0]], 0.2)
        return s_ij, s_ji

    def message(self, h, edge_filter, a):
        s_ij, s_ji = self.scores(h, a)
        w_ij, w_ji = s_ij.exp(), s_ji.exp()
        total = h.new_zeros(len(h)).index_add(0, a[:, 0], w_ij).index_add(0, a[:, 1], w_ji)
        a_ij = (w_ij / total[a[:, 0]]).unsqueeze(1)
        a_ji = (w_ji / total[a[:, 1]]).unsqueeze(1)
        to_i = a_ij * edge_filter * h[a[:, 1]]
        to_j = (a_ji if self.both_ways else a_ij) * edge_filter * h[a[:, 0]]
        return to_i, to_j

    def forward(self, h, edge_filter, a):
        to_i, to_j = self.message(h, edge_filter, a)
        return torch.zeros_like(h).index_add(0, a[:, 0], to_i).index_add(0, a[:, 1], to_j)


class SchNetConv(nn.Module):
    def __init__(self, n_atom_basis, n_gaussians, both_ways):
        super().__init__()
        self.edge_filter = Dense(n_gaussians, n_atom_basis, n_atom_basis)
        self.node_filter = nn.Parameter(torch.empty(n_atom_basis, n_atom_basis))
        self.attention = GraphAttention(n_atom_basis, both_ways)
        self.update_function = Dense(n_atom_basis, n_atom_basis, n_atom_basis)

    def forward(self, r, e, a):
        return self.update_function(self.attention(r @ self.node_filter, self.edge_filter(e), a))


class NffSchNet(nn.Module):
    def __init__(self, n_atom_basis=12, n_gaussians=8, cutoff=3.0, n_conv=3, both_ways=False):
        super().__init__()
        self.embed = nn.Parameter(torch.empty(10, n_atom_basis))
        self.smear = GaussianSmearing(n_gaussians, cutoff)
        self.convs = nn.ModuleList(SchNetConv(n_atom_basis, n_gaussians, both_ways) for _ in range(n_conv))
        self.energy = Dense(n_atom_basis, 8, 1)

    def forward(self, nxyz_z, xyz, nbr_list):
        d = (xyz[nbr_list[:, 0]] - xyz[nbr_list[:, 1]]).norm(dim=1, keepdim=True)
        e, r = self.smear(d), self.embed[nxyz_z]
        for conv in self.convs:
            r = r + conv(r, e, nbr_list)
        return torch.cat([self.energy(r), r], 1)


def convert(sd):
    out = {"embed": sd["atom_embed.weight"]}
    for w in ("weight", "bias"):
        out["energy.l1." + w], out["energy.l2." + w] = sd["readout.0." + w], sd["readout.2." + w]
        for i in range(3):
            s, t = f"convolutions.{i}.", f"convs.{i}."
            for new, old in (("edge_filter", "filter"), ("update_function", "update")):
                out[f"{t}{new}.l1.{w}"], out[f"{t}{new}.l2.{w}"] = sd[f"{s}{old}.0.{w}"], sd[f"{s}{old}.2.{w}"]
    for i in range(3):
        s, t = f"convolutions.{i}.", f"convs.{i}."
        out[t + "node_filter"] = sd[s + "node.weight"].t()
        out[t + "attention.w_self"], out[t + "attention.w_other"] = sd[s + "att.weight"][0].chunk(2)
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(14)
    original = DenseSchNet().eval()
    for p in original.parameters():
        nn.init.normal_(p, 0.0, 0.4)
    port = NffSchNet(both_ways=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    xyz = torch.rand(9, 3) * 2.5
    i, j = torch.triu_indices(9, 9, 1)
    near = (xyz[i] - xyz[j]).norm(dim=1) < 1.8
    return original, port, (torch.randint(1, 10, (9,)), xyz, torch.stack([i, j], 1)[near])
