"""After chainer/chainer-chemistry#394: a continuous-filter network for molecules and its version
in another chemistry toolkit. Geometry, radial basis and weights agree, the energies do not."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

ATOMS, HID, BASIS, CUT = 9, 20, 12, 5.0


def ssp(x):
    return F.softplus(x) - math.log(2.0)


class InteractionRef(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter1, self.filter2 = nn.Linear(BASIS, HID), nn.Linear(HID, HID)
        self.in2f = nn.Linear(HID, HID, bias=False)
        self.f2out, self.dense = nn.Linear(HID, HID), nn.Linear(HID, HID)

    def forward(self, x, rbf, cutoff):
        w = ssp(self.filter2(ssp(self.filter1(rbf)))) * cutoff[..., None]
        y = (self.in2f(x)[:, None] * w).sum(2)
        return x + self.dense(ssp(self.f2out(y)))


class SchNetRef(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, HID)
        self.interactions = nn.ModuleList(InteractionRef() for _ in range(3))
        self.atom1, self.atom2 = nn.Linear(HID, HID // 2), nn.Linear(HID // 2, 1)
        self.register_buffer("offsets", torch.linspace(0, CUT, BASIS))

    def forward(self, z, pos):
        d = (pos[:, :, None] - pos[:, None]).pow(2).sum(-1).add(1e-10).sqrt()
        cutoff = 0.5 * (torch.cos(d * math.pi / CUT) + 1) * (d < CUT) * (1 - torch.eye(z.shape[1]))
        rbf = torch.exp(-4.0 * (d[..., None] - self.offsets) ** 2)
        x = self.embedding(z)
        for block in self.interactions:
            x = block(x, rbf, cutoff)
        return self.atom2(ssp(self.atom1(x))).sum(1)


class Softplus(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.shift = math.log(2.0) if fixed else 0.0

    def forward(self, x):
        return torch.logaddexp(x, torch.zeros(())) - self.shift


class CFConv(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.act = Softplus(fixed)
        self.dense1, self.dense2 = nn.Linear(BASIS, HID), nn.Linear(HID, HID)

    def forward(self, h, edge_basis, envelope, src, dst):
        w = self.act(self.dense2(self.act(self.dense1(edge_basis)))) * envelope.unsqueeze(1)
        return torch.zeros_like(h).index_add(0, dst, h[src] * w)


class SchNetUpdate(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.linear0 = nn.Linear(HID, HID, bias=False)
        self.cfconv = CFConv(fixed)
        self.linear1, self.linear2 = nn.Linear(HID, HID), nn.Linear(HID, HID)
        self.act = Softplus(True)

    def forward(self, h, *edges):
        v = self.cfconv(self.linear0(h), *edges)
        return h + self.linear2(self.act(self.linear1(v)))


class SchNetReadout(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(HID, HID // 2), Softplus(True), nn.Linear(HID // 2, 1))

    def forward(self, h, mol, n_mol):
        return torch.zeros(n_mol, 1).index_add(0, mol, self.mlp(h))


class ToolkitSchNet(nn.Module):
    """Works on a flat list of atoms with an explicit neighbour list."""

    def __init__(self, fixed):
        super().__init__()
        self.embed = nn.Embedding(10, HID)
        self.update_layers = nn.ModuleList(SchNetUpdate(fixed) for _ in range(3))
        self.readout_layer = SchNetReadout()

    def forward(self, z, pos):
        n_mol, n = z.shape
        mol = torch.arange(n_mol).repeat_interleave(n)
        flat = pos.reshape(-1, 3)
        diff = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
        near = (diff < CUT) & (mol[:, None] == mol[None]) & ~torch.eye(len(flat), dtype=torch.bool)
        dst, src = near.nonzero(as_tuple=True)
        d = diff[dst, src]
        centres = torch.arange(BASIS) * (CUT / (BASIS - 1))
        basis = torch.exp(-4.0 * (d[:, None] - centres) ** 2)
        envelope = torch.cos(d * math.pi / (2 * CUT)) ** 2
        h = self.embed(z.reshape(-1))
        for layer in self.update_layers:
            h = layer(h, basis, envelope, src, dst)
        return self.readout_layer(h, mol, n_mol)


def convert(sd):
    names = {
        "filter1": "cfconv.dense1",
        "filter2": "cfconv.dense2",
        "in2f": "linear0",
        "f2out": "linear1",
        "dense": "linear2",
    }
    out = {"embed.weight": sd["embedding.weight"]}
    for k, w in sd.items():
        part = k.split(".")
        if part[0] == "interactions":
            out[f"update_layers.{part[1]}.{names[part[2]]}.{part[3]}"] = w
        elif part[0] in ("atom1", "atom2"):
            out[f"readout_layer.mlp.{0 if part[0] == 'atom1' else 2}.{part[1]}"] = w
    return out


def build(fixed):
    torch.manual_seed(394)
    original = SchNetRef().eval()
    port = ToolkitSchNet(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(1, 10, (3, ATOMS)), torch.randn(3, ATOMS, 3) * 1.8)
