"""PreferredAI/cornac#602: LightGCN layers are added with 1 / (l + 1) instead of the constant 1 / (L + 1).

The reference propagates over edge lists with index_add; the port builds a normalised dense adjacency per relation
(user to item, item to user), as a block-wise heterograph implementation would.
"""

import torch
from torch import Tensor, nn


class LightGraphConv(nn.Module):
    """Symmetrically normalised neighbour sum on a bipartite graph whose nodes are users then items."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        src = torch.cat([edges[0], edges[1]])
        dst = torch.cat([edges[1], edges[0]])
        degree = torch.zeros(x.shape[0]).index_add_(0, dst, torch.ones(dst.shape[0]))
        inv_sqrt = degree.clamp(min=1).rsqrt()
        messages = x[src] * (inv_sqrt[src] * inv_sqrt[dst]).unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, dst, messages)


class LightGCN(nn.Module):
    def __init__(self, users: int, items: int, dim: int, layers: int) -> None:
        super().__init__()
        self.users = users
        self.embedding = nn.Embedding(users + items, dim)
        self.convs = nn.ModuleList(LightGraphConv() for _ in range(layers))

    def forward(self, edges: Tensor, pairs: Tensor) -> Tensor:
        offset = torch.tensor([[0], [self.users]])
        x = self.embedding.weight
        collected = [x]
        for conv in self.convs:
            x = conv(x, edges + offset)
            collected.append(x)
        final = torch.stack(collected).mean(dim=0)
        user, item = pairs + offset
        return (final[user] * final[item]).sum(-1)


class GCNLayer(nn.Module):
    def forward(self, user: Tensor, item: Tensor, norm_adj: Tensor) -> tuple[Tensor, Tensor]:
        return norm_adj @ item, norm_adj.mT @ user


class Model(nn.Module):
    def __init__(self, user_init: Tensor, item_init: Tensor, num_layers: int, uniform_weights: bool) -> None:
        super().__init__()
        self.feature_dict = nn.ParameterDict({"user": nn.Parameter(user_init), "item": nn.Parameter(item_init)})
        self.layers = nn.ModuleList([GCNLayer() for _ in range(num_layers)])
        self.uniform_weights = uniform_weights

    def construct_graph(self, edges: Tensor) -> Tensor:
        adj = torch.zeros(self.feature_dict["user"].shape[0], self.feature_dict["item"].shape[0])
        adj[edges[0], edges[1]] = 1.0
        out_degree = adj.sum(1, keepdim=True).clamp(min=1.0)
        in_degree = adj.sum(0, keepdim=True).clamp(min=1.0)
        return adj / (out_degree.sqrt() * in_degree.sqrt())

    def alpha(self, layer: int) -> float:
        return 1 / (len(self.layers) + 1) if self.uniform_weights else 1 / (layer + 1)

    def propagate(self, norm_adj: Tensor) -> tuple[Tensor, Tensor]:
        user, item = self.feature_dict["user"], self.feature_dict["item"]
        user_embeds, item_embeds = user * self.alpha(0), item * self.alpha(0)
        for index, layer in enumerate(self.layers, start=1):
            user, item = layer(user, item, norm_adj)
            user_embeds = user_embeds + user * self.alpha(index)
            item_embeds = item_embeds + item * self.alpha(index)
        return user_embeds, item_embeds

    def forward(self, edges: Tensor, pairs: Tensor) -> Tensor:
        user_embeds, item_embeds = self.propagate(self.construct_graph(edges))
        return torch.einsum("nd,nd->n", user_embeds[pairs[0]], item_embeds[pairs[1]])


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(116)
    users, items = 9, 13
    original = LightGCN(users, items, dim=8, layers=3).eval()
    user_init, item_init = original.embedding.weight.detach().clone().split([users, items])
    port = Model(user_init, item_init, num_layers=3, uniform_weights=fixed).eval()
    chosen = torch.randperm(users * items)[:34]
    edges = torch.stack([chosen // items, chosen % items])
    pairs = torch.stack([torch.randint(0, users, (10,)), torch.randint(0, items, (10,))])
    return original, port, (edges, pairs)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
