"""meta-pytorch/torchrec#56: the interaction arch receives the sparse features in another order than the model's own.

Embeddings are grouped by table size when they are pooled, and the keyed result is read back in that order, so the
pairwise products (and the first layer of the over arch) see permuted features.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass
class Table:
    feature: str
    rows: int


TABLES = (Table("cat_0", 12), Table("cat_1", 40), Table("cat_2", 7), Table("cat_3", 25), Table("cat_4", 40))
DENSE, EMB = 6, 8


def mlp(sizes: list[int], last: type[nn.Module] | None = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        kind = nn.ReLU if i < len(sizes) - 2 else last
        if kind is not None:
            layers.append(kind())
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bot_l = mlp([DENSE, 16, EMB])
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(table.rows, EMB, mode="sum") for table in TABLES)
        pairs = (len(TABLES) + 1) * len(TABLES) // 2
        self.top_l = mlp([EMB + pairs, 20, 10, 1], last=nn.Sigmoid)

    def interact_features(self, x: Tensor, ly: list[Tensor]) -> Tensor:
        stacked = torch.cat([x] + ly, dim=1).view(x.shape[0], -1, EMB)
        z = torch.bmm(stacked, stacked.transpose(1, 2))
        count = stacked.shape[1]
        li = torch.tensor([i for i in range(count) for j in range(i)])
        lj = torch.tensor([j for i in range(count) for j in range(i)])
        return torch.cat([x, z[:, li, lj]], dim=1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """sparse is (batch, features, bag)."""
        x = self.bot_l(dense)
        ly = [emb(sparse[:, i]) for i, emb in enumerate(self.emb_l)]
        return self.top_l(self.interact_features(x, ly)).squeeze(1)


class PooledCollection(nn.Module):
    """Sum-pooled lookups, batched over features whose tables have the same number of rows."""

    def __init__(self, tables: tuple[Table, ...]) -> None:
        super().__init__()
        groups: OrderedDict[int, list[str]] = OrderedDict()
        for table in sorted(tables, key=lambda t: t.rows):
            groups.setdefault(table.rows, []).append(table.feature)
        self.groups = groups
        self.weights = nn.ParameterDict(
            {f"rows_{rows}": nn.Parameter(torch.empty(len(names), rows, EMB)) for rows, names in groups.items()}
        )

    def forward(self, features: dict[str, Tensor]) -> OrderedDict[str, Tensor]:
        pooled: OrderedDict[str, Tensor] = OrderedDict()
        for rows, names in self.groups.items():
            ids = torch.stack([features[name] for name in names])
            table = torch.arange(len(names)).view(-1, 1, 1)
            sums = self.weights[f"rows_{rows}"][table, ids].sum(dim=2)
            pooled.update(zip(names, sums.unbind(0), strict=True))
        return pooled


class SparseArch(nn.Module):
    def __init__(self, tables: tuple[Table, ...], feature_names: list[str] | None) -> None:
        super().__init__()
        self.embedding_bag_collection = PooledCollection(tables)
        self.feature_names = feature_names

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        pooled = self.embedding_bag_collection(features)
        names = pooled.keys() if self.feature_names is None else self.feature_names
        return torch.stack([pooled[name] for name in names], dim=1)


class InteractionArch(nn.Module):
    def __init__(self, num_sparse: int) -> None:
        super().__init__()
        self.register_buffer("indices", torch.tril_indices(num_sparse + 1, num_sparse + 1, offset=-1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        combined = torch.cat([dense.unsqueeze(1), sparse], dim=1)
        products = torch.einsum("bne,bme->bnm", combined, combined)
        return torch.cat([dense, products[:, self.indices[0], self.indices[1]]], dim=1)


class TorchrecDLRM(nn.Module):
    def __init__(self, source: DLRM, keep_feature_order: bool) -> None:
        super().__init__()
        names = [table.feature for table in TABLES]
        self.names = names
        self.dense_arch = mlp([DENSE, 16, EMB])
        self.sparse_arch = SparseArch(TABLES, names if keep_feature_order else None)
        self.inter_arch = InteractionArch(len(TABLES))
        self.over_arch = mlp([EMB + len(self.inter_arch.indices[0]), 20, 10, 1], last=None)
        self.dense_arch.load_state_dict(source.bot_l.state_dict())
        self.over_arch.load_state_dict(source.top_l.state_dict())
        collection = self.sparse_arch.embedding_bag_collection
        with torch.no_grad():
            for rows, group in collection.groups.items():
                stacked = torch.stack([source.emb_l[names.index(name)].weight for name in group])
                collection.weights[f"rows_{rows}"].copy_(stacked)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        features = dict(zip(self.names, sparse.unbind(1), strict=True))
        embedded = self.dense_arch(dense)
        logits = self.over_arch(self.inter_arch(embedded, self.sparse_arch(features)))
        return torch.sigmoid(logits).flatten()


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(130)
    original = DLRM().eval()
    with torch.no_grad():
        for emb in original.emb_l:
            emb.weight.mul_(0.5)
    port = TorchrecDLRM(original, keep_feature_order=fixed).eval()
    batch, bag = 6, 3
    sparse = torch.stack([torch.randint(0, table.rows, (batch, bag)) for table in TABLES], dim=1)
    return original, port, (torch.randn(batch, DENSE), sparse)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
