"""IntelLabs/matsciml#347: labels leave the data pipeline with an extra dimension ([N, 1]) compared to the graph
read-out.

Rebuilt: random "crystals" (atoms, edges within a cutoff), a message passing encoder, a scalar property per graph.
"""

import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="Using a target size")


class EdgeConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim + 1, dim), nn.SiLU())
        self.update = nn.Linear(2 * dim, dim)

    def forward(self, h, edge_index, dist):
        src, dst = edge_index
        m = self.message(torch.cat([h[src], h[dst], dist[:, None]], dim=-1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return h + self.update(torch.cat([h, agg], dim=-1))


class GraphEncoder(nn.Module):
    def __init__(self, num_atom_types=5, dim=24, num_convs=2):
        super().__init__()
        self.atom_embedding = nn.Embedding(num_atom_types, dim)
        self.convs = nn.ModuleList([EdgeConv(dim) for _ in range(num_convs)])
        self.output_head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, batch):
        h = self.atom_embedding(batch["atomic_numbers"])
        for conv in self.convs:
            h = conv(h, batch["edge_index"], batch["dist"])
        n = batch["num_graphs"]
        pooled = torch.zeros(n, h.size(1)).index_add_(0, batch["graph_id"], h)
        pooled = pooled / torch.bincount(batch["graph_id"], minlength=n)[:, None]
        return self.output_head(pooled).squeeze(-1)


ELECTRONEG = torch.tensor([0.9, 1.6, 2.2, 2.6, 3.4])


def collate(num_graphs, atoms=6):
    z = torch.randint(0, 5, (num_graphs, atoms))
    frac = torch.randint(1, 5, (num_graphs, 1))
    z = torch.minimum(z, frac)
    pos = torch.rand(num_graphs, atoms, 3) * 2
    d = torch.cdist(pos, pos)
    adj = (d < 1.3) & ~torch.eye(atoms, dtype=torch.bool)
    g, i, j = adj.nonzero(as_tuple=True)
    energy = ELECTRONEG[z].mean(1) * 1.5 - 0.1 * adj.float().sum((1, 2)) / atoms
    return {
        "atomic_numbers": z.reshape(-1),
        "edge_index": torch.stack([g * atoms + i, g * atoms + j]),
        "dist": d[g, i, j],
        "graph_id": torch.arange(num_graphs).repeat_interleave(atoms),
        "num_graphs": num_graphs,
        "targets": {"energy": energy[:, None]},
    }


def compute_losses(predictions, targets, mended):
    losses = {}
    for key, pred in predictions.items():
        target = targets[key]
        if mended and pred.shape != target.shape:
            pred = pred.reshape(target.shape)
        losses[key] = F.mse_loss(pred, target)
    return losses


def train(tick, mended=False):
    torch.manual_seed(11)
    model = GraphEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        batch = collate(32)
        optimizer.zero_grad()
        preds = {"energy": model(batch)}
        losses = compute_losses(preds, batch["targets"], mended)
        loss = sum(losses.values())
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, batch["atomic_numbers"], batch["targets"]["energy"])
    test = collate(256)
    with torch.no_grad():
        p, t = model(test), test["targets"]["energy"].squeeze(1)
    return history, 1 - ((p - t) ** 2).sum().item() / ((t - t.mean()) ** 2).sum().item()


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
        print("mended" if mended else "as is", f"first {h[0]:.4f} last {h[-1]:.4f}", f"r2 {metric:.3f}")
