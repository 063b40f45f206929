"""snap-stanford/pretrain-gnns#49: GAT attention is normalised over edge_index[0] (sources), not over edge_index[1].

The graph is directed, so the two do not agree.  The reference works on a dense adjacency with a masked softmax; the
port is a message-passing layer with bond embeddings and a scatter softmax.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DenseGAT(nn.Module):
    def __init__(self, dim: int, heads: int, bonds: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.weight_linear = nn.Linear(dim, heads * dim)
        self.att = nn.Parameter(torch.randn(heads, 2 * dim) * 0.4)
        self.bias = nn.Parameter(torch.randn(dim) * 0.1)
        self.edge_embedding = nn.Embedding(bonds + 1, heads * dim)

    def forward(self, x: Tensor, bond: Tensor) -> Tensor:
        """bond[i, j] is the bond type of the edge j -> i, -1 for none and `bonds` for the self loop."""
        n = x.shape[0]
        h = self.weight_linear(x).view(n, self.heads, self.dim)
        edge = self.edge_embedding(bond.clamp(min=0)).view(n, n, self.heads, self.dim)
        incoming = h.unsqueeze(0) + edge
        receiver = h.unsqueeze(1).expand(-1, n, -1, -1)
        logits = (torch.cat([receiver, incoming], dim=-1) * self.att).sum(-1)
        logits = F.leaky_relu(logits, 0.2).masked_fill((bond < 0).unsqueeze(-1), float("-inf"))
        alpha = logits.softmax(dim=1)
        out = torch.einsum("ijh,ijhd->ihd", alpha, incoming)
        return out.mean(dim=1) + self.bias


class MoleculeEncoder(nn.Module):
    def __init__(self, atoms: int = 8, dim: int = 9, heads: int = 2, bonds: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.bonds = bonds
        self.atom = nn.Embedding(atoms, dim)
        self.layers = nn.ModuleList(DenseGAT(dim, heads, bonds) for _ in range(depth))
        self.jump = nn.Linear(dim * (depth + 1), dim)

    def forward(self, atom: Tensor, edge_index: Tensor, bond_type: Tensor) -> Tensor:
        n = atom.shape[0]
        bond = torch.full((n, n), -1)
        bond[edge_index[1], edge_index[0]] = bond_type
        bond.fill_diagonal_(self.bonds)
        states = [self.atom(atom)]
        for layer in self.layers:
            states.append(F.relu(layer(states[-1], bond)))
        return self.jump(torch.cat(states, dim=-1)).mean(dim=0)


def scatter_softmax(values: Tensor, index: Tensor, size: int) -> Tensor:
    spread = index.unsqueeze(-1).expand_as(values)
    peak = torch.full((size, values.shape[1]), float("-inf")).scatter_reduce(0, spread, values, "amax")
    exp = (values - peak[index]).exp()
    total = torch.zeros(size, values.shape[1]).scatter_add(0, spread, exp)
    return exp / (total[index] + 1e-16)


class GATConv(nn.Module):
    def __init__(self, emb_dim: int, heads: int, bonds: int, normalise_by: int) -> None:
        super().__init__()
        self.emb_dim, self.heads, self.bonds = emb_dim, heads, bonds
        self.normalise_by = normalise_by
        self.weight_linear = nn.Linear(emb_dim, heads * emb_dim)
        self.att = nn.Parameter(torch.empty(1, heads, 2 * emb_dim))
        self.bias = nn.Parameter(torch.empty(emb_dim))
        self.edge_embedding = nn.Embedding(bonds + 1, heads * emb_dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        loops = torch.arange(x.shape[0])
        edge_index = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
        edge_attr = torch.cat([edge_attr, torch.full_like(loops, self.bonds)])
        edge = self.edge_embedding(edge_attr)
        h = self.weight_linear(x)
        return self.update(self.message(h, edge_index, edge), edge_index[1], x.shape[0])

    def message(self, h: Tensor, edge_index: Tensor, edge: Tensor) -> Tensor:
        x_i = h[edge_index[1]].view(-1, self.heads, self.emb_dim)
        x_j = (h[edge_index[0]] + edge).view(-1, self.heads, self.emb_dim)
        alpha = F.leaky_relu((torch.cat([x_i, x_j], dim=-1) * self.att).sum(dim=-1), negative_slope=0.2)
        alpha = scatter_softmax(alpha, edge_index[self.normalise_by], h.shape[0])
        return x_j * alpha.unsqueeze(-1)

    def update(self, messages: Tensor, index: Tensor, size: int) -> Tensor:
        aggr = messages.new_zeros(size, self.heads, self.emb_dim).index_add(0, index, messages)
        return aggr.mean(dim=1) + self.bias


class GNN(nn.Module):
    def __init__(self, source: MoleculeEncoder, normalise_by: int) -> None:
        super().__init__()
        first = source.layers[0]
        self.x_embedding1 = nn.Embedding(*source.atom.weight.shape)
        self.gnns = nn.ModuleList(
            GATConv(first.dim, first.heads, source.bonds, normalise_by) for _ in range(len(source.layers))
        )
        self.jk = nn.Linear(source.jump.in_features, source.jump.out_features)
        self.x_embedding1.load_state_dict(source.atom.state_dict())
        self.jk.load_state_dict(source.jump.state_dict())
        for src, dst in zip(source.layers, self.gnns, strict=True):
            state = src.state_dict()
            state["att"] = state["att"].unsqueeze(0)
            dst.load_state_dict(state)

    def forward(self, atom: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h_list = [self.x_embedding1(atom)]
        for gnn in self.gnns:
            h_list.append(gnn(h_list[-1], edge_index, edge_attr).relu())
        return self.jk(torch.cat(h_list, dim=1)).sum(0) / atom.shape[0]


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(118)
    original = MoleculeEncoder().eval()
    port = GNN(original, normalise_by=1 if fixed else 0).eval()
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 0, 6, 6, 2], [1, 2, 3, 4, 5, 6, 3, 4, 1, 3, 6]])
    return original, port, (torch.randint(0, 8, (7,)), edges, torch.randint(0, 3, (edges.shape[1],)))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
