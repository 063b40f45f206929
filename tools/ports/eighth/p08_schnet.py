"""After choderalab/modelforge#68.

A framework for neural network potentials wrote its own SchNet and then validated it against
schnetpack with the same weights; energies were off until the difference was found in review.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def shifted_softplus(x):
    return F.softplus(x) - math.log(2.0)


class GaussianRBF(nn.Module):
    def __init__(self, n_rbf, cutoff):
        super().__init__()
        off = torch.linspace(0, cutoff, n_rbf)
        self.register_buffer("offsets", off)
        self.register_buffer("widths", (off[1] - off[0]).expand(n_rbf).clone())

    def forward(self, d):
        return torch.exp(-0.5 / self.widths**2 * (d[..., None] - self.offsets) ** 2)


class SchNetInteraction(nn.Module):
    def __init__(self, n_atom_basis, n_rbf, n_filters):
        super().__init__()
        self.in2f = nn.Linear(n_atom_basis, n_filters, bias=False)
        self.f2out = nn.ModuleList([nn.Linear(n_filters, n_atom_basis), nn.Linear(n_atom_basis, n_atom_basis)])
        self.filter_network = nn.ModuleList([nn.Linear(n_rbf, n_filters), nn.Linear(n_filters, n_filters)])

    def forward(self, x, f_ij, idx_i, idx_j, rcut_ij):
        Wij = self.filter_network[1](shifted_softplus(self.filter_network[0](f_ij))) * rcut_ij[:, None]
        y = self.in2f(x)
        y = torch.zeros_like(y).index_add(0, idx_i, y[idx_j] * Wij)
        return self.f2out[1](shifted_softplus(self.f2out[0](y)))


class SchNetPack(nn.Module):
    def __init__(self, n_atom_basis=24, n_interactions=3, n_rbf=16, cutoff=5.0):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = nn.Embedding(20, n_atom_basis)
        self.radial_basis = GaussianRBF(n_rbf, cutoff)
        self.interactions = nn.ModuleList(
            [SchNetInteraction(n_atom_basis, n_rbf, n_atom_basis) for _ in range(n_interactions)]
        )
        self.outnet = nn.ModuleList([nn.Linear(n_atom_basis, n_atom_basis // 2), nn.Linear(n_atom_basis // 2, 1)])

    def forward(self, z, r, idx_m):
        pair = (idx_m[:, None] == idx_m[None]) & ~torch.eye(len(z), dtype=torch.bool)
        d = torch.cdist(r, r)
        idx_i, idx_j = torch.nonzero(pair & (d < self.cutoff), as_tuple=True)
        d_ij = (r[idx_j] - r[idx_i]).norm(dim=-1)
        rcut = 0.5 * (torch.cos(d_ij * math.pi / self.cutoff) + 1)
        f = self.radial_basis(d_ij)
        x = self.embedding(z)
        for interaction in self.interactions:
            x = x + interaction(x, f, idx_i, idx_j, rcut)
        e = self.outnet[1](shifted_softplus(self.outnet[0](x))).squeeze(-1)
        return torch.zeros(int(idx_m.max()) + 1).index_add(0, idx_m, e)


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(0.2)


class ShiftedSoftplusMended(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(2.0)


def sequential(act, *sizes, bias=True):
    return nn.Sequential(nn.Linear(sizes[0], sizes[1]), act(), nn.Linear(sizes[1], sizes[2]))


class RadialSymmetryFunction(nn.Module):
    def __init__(self, number, max_distance):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0, max_distance, number))
        self.gamma = 0.5 / float(self.centers[1]) ** 2

    def forward(self, d):
        return torch.exp(-self.gamma * (d.unsqueeze(-1) - self.centers).square())


class SchNETInteractionModule(nn.Module):
    def __init__(self, act, features, n_rsf):
        super().__init__()
        self.intput_to_feature = nn.Linear(features, features, bias=False)
        self.feature_to_output = sequential(act, features, features, features)
        self.filter_network = sequential(act, n_rsf, features, features)

    def forward(self, x, pairlist, f_ij, f_cutoff):
        idx_i, idx_j = pairlist
        w = self.filter_network(f_ij) * f_cutoff.unsqueeze(-1)
        msg = self.intput_to_feature(x)[idx_j] * w
        agg = torch.zeros_like(x).scatter_add(0, idx_i.unsqueeze(-1).expand_as(msg), msg)
        return self.feature_to_output(agg)


class SchNET(nn.Module):
    def __init__(self, act, features=24, n_modules=3, n_rsf=16, cutoff=5.0):
        super().__init__()
        self.cutoff = cutoff
        self.atomic_embedding = nn.Embedding(20, features)
        self.rsf = RadialSymmetryFunction(n_rsf, cutoff)
        self.interaction_modules = nn.ModuleList(
            [SchNETInteractionModule(act, features, n_rsf) for _ in range(n_modules)]
        )
        self.readout = sequential(act, features, features // 2, 1)

    def pairs(self, positions, systems):
        i, j = torch.meshgrid(torch.arange(len(systems)), torch.arange(len(systems)), indexing="ij")
        keep = (systems[i] == systems[j]) & (i != j)
        i, j = i[keep], j[keep]
        d = (positions[i] - positions[j]).pow(2).sum(-1).sqrt()
        inside = d < self.cutoff
        return torch.stack([i[inside], j[inside]]), d[inside]

    def forward(self, atomic_numbers, positions, system_idx):
        pairlist, d_ij = self.pairs(positions, system_idx)
        f_cut = (1 + torch.cos(math.pi * d_ij / self.cutoff)) / 2
        f_ij = self.rsf(d_ij)
        x = self.atomic_embedding(atomic_numbers)
        for module in self.interaction_modules:
            x = x + module(x, pairlist, f_ij, f_cut)
        per_atom = self.readout(x)[:, 0]
        return torch.stack([per_atom[system_idx == s].sum() for s in range(int(system_idx.max()) + 1)])


def convert(sd):
    out = {"rsf.centers": sd["radial_basis.offsets"]}
    for k, v in sd.items():
        if k.startswith("radial_basis"):
            continue
        k = (
            k.replace("embedding", "atomic_embedding")
            .replace("interactions", "interaction_modules")
            .replace("in2f", "intput_to_feature")
        )
        k = k.replace("f2out", "feature_to_output").replace("outnet", "readout")
        for name in ("feature_to_output", "filter_network", "readout"):
            k = k.replace(name + ".1.", name + ".2.")
        out[k] = v
    return out


def build(fixed):
    torch.manual_seed(2)
    original = SchNetPack().eval()
    port = SchNET(ShiftedSoftplusMended if fixed else ShiftedSoftplus).eval()
    port.load_state_dict(convert(original.state_dict()))
    z, idx = torch.randint(1, 10, (15,)), torch.tensor([0] * 6 + [1] * 9)
    return original, port, (z, torch.randn(15, 3) * 1.6, idx)
