"""ACEsuit/mace#1529: get_params_options() collects the optimizer's parameters by sub-module name; PolarMACE
models have further sub-modules.

Rebuilt: a small interatomic potential with a short-range part and a long-range part from predicted atomic charges.
"""

import torch
import torch.nn as nn


class InteractionBlock(nn.Module):
    def __init__(self, dim, num_radial):
        super().__init__()
        self.linear_up = nn.Linear(dim, dim, bias=False)
        self.conv_weights = nn.Sequential(nn.Linear(num_radial, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, radial, mask):
        w = self.conv_weights(radial) * mask[..., None]
        return torch.einsum("bijd,bjd->bid", w, self.linear_up(h))


class ProductBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, m, h):
        return h + self.linear(torch.nn.functional.silu(m))


class PolarMACE(nn.Module):
    def __init__(self, num_elements=4, dim=16, num_radial=6, r_max=2.0):
        super().__init__()
        self.r_max = r_max
        self.register_buffer("centers", torch.linspace(0.3, r_max, num_radial))
        self.node_embedding = nn.Embedding(num_elements, dim)
        self.interactions = nn.ModuleList([InteractionBlock(dim, num_radial) for _ in range(2)])
        self.products = nn.ModuleList([ProductBlock(dim) for _ in range(2)])
        self.readouts = nn.ModuleList([nn.Linear(dim, 1) for _ in range(2)])
        self.lr_source_maps = nn.ModuleList([nn.Linear(dim, 1) for _ in range(2)])
        self.local_electron_energy = nn.Sequential(nn.Linear(1, 8), nn.SiLU(), nn.Linear(8, 1))

    def forward(self, z, pos):
        d = torch.cdist(pos, pos) + 10 * torch.eye(pos.size(1))
        mask = (d < self.r_max).float()
        radial = torch.exp(-4 * (d[..., None] - self.centers) ** 2)
        h = self.node_embedding(z)
        energy = 0.0
        charges = 0.0
        for inter, prod, readout, source in zip(self.interactions, self.products, self.readouts, self.lr_source_maps):
            h = prod(inter(h, radial, mask), h)
            energy = energy + readout(h).sum((1, 2))
            charges = charges + source(h)
        q = charges.squeeze(-1)
        q = q - q.mean(1, keepdim=True)
        coulomb = 0.5 * torch.einsum("bi,bj,bij->b", q, q, 1 / d * (d < 9))
        onsite = self.local_electron_energy(q[..., None]).sum((1, 2))
        return energy + coulomb + onsite


def get_params_options(model, lr, weight_decay, mended):
    groups = [
        {"name": "embedding", "params": list(model.node_embedding.parameters()), "weight_decay": 0.0},
        {"name": "interactions", "params": list(model.interactions.parameters()), "weight_decay": weight_decay},
        {"name": "products", "params": list(model.products.parameters()), "weight_decay": weight_decay},
        {"name": "readouts", "params": list(model.readouts.parameters()), "weight_decay": 0.0},
    ]
    if mended:
        for name in ("lr_source_maps", "local_electron_energy"):
            groups.append({"name": name, "params": list(getattr(model, name).parameters()), "weight_decay": 0.0})
    return {"params": groups, "lr": lr, "amsgrad": True}


def ionic_clusters(n, atoms=6):
    z = torch.randint(0, 4, (n, atoms))
    grid = torch.tensor([[0.0, 0, 0], [3, 0, 0], [0, 3, 0], [0, 0, 3], [3, 3, 0], [3, 0, 3]])
    pos = grid + 0.35 * torch.randn(n, atoms, 3)
    q = torch.tensor([-2.0, -1.0, 1.0, 2.0])[z]
    q = q - q.mean(1, keepdim=True)
    d = torch.cdist(pos, pos) + 10 * torch.eye(atoms)
    e = 0.5 * torch.einsum("bi,bj,bij->b", q, q, 1 / d * (d < 9))
    return z, pos, e


def train(tick, mended=False):
    torch.manual_seed(31)
    model = PolarMACE()
    optimizer = torch.optim.Adam(**get_params_options(model, lr=5e-3, weight_decay=5e-7, mended=mended))
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        z, pos, e = ionic_clusters(32)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.mean(torch.square(model(z, pos) - e))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, pos, e)
    with torch.no_grad():
        z, pos, e = ionic_clusters(300)
        r2 = 1 - ((model(z, pos) - e) ** 2).mean().item() / e.var().item()
    return history, r2


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"r2 {metric:.3f}")
