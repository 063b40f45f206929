"""prs-eth/OverlapPredator#14: neighbour features are repeated along the wrong axis before the gather.

Every gathered "neighbour" is the centre point itself, so the difference half of the edge feature is all zeros.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def neighbour_index(coords: Tensor, k: int) -> Tensor:
    """(B, 3, N) -> (B, N, k), without the point itself."""
    diff = coords.unsqueeze(-1) - coords.unsqueeze(-2)
    return diff.square().sum(1).topk(k + 1, dim=-1, largest=False).indices[..., 1:]


class GraphLayer(nn.Module):
    def __init__(self, dim: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.conv1 = nn.Conv2d(2 * dim, dim, 1, bias=False)
        self.in1 = nn.InstanceNorm2d(dim)
        self.conv2 = nn.Conv2d(2 * dim, 2 * dim, 1, bias=False)
        self.in2 = nn.InstanceNorm2d(2 * dim)
        self.conv3 = nn.Conv1d(4 * dim, dim, 1, bias=False)

    def edges(self, feats: Tensor, idx: Tensor) -> Tensor:
        batch = torch.arange(feats.shape[0]).view(-1, 1, 1)
        neigh = feats.transpose(1, 2)[batch, idx].permute(0, 3, 1, 2)
        centre = feats.unsqueeze(-1).expand_as(neigh)
        return torch.cat((centre, neigh - centre), dim=1)

    def forward(self, coords: Tensor, feats: Tensor) -> Tensor:
        idx = neighbour_index(coords, self.k)
        x1 = F.leaky_relu(self.in1(self.conv1(self.edges(feats, idx))), 0.2).amax(-1)
        x2 = F.leaky_relu(self.in2(self.conv2(self.edges(x1, idx))), 0.2).amax(-1)
        return F.leaky_relu(self.conv3(torch.cat((feats, x1, x2), dim=1)), 0.2)


class OverlapHead(nn.Module):
    """Bottleneck of the registration net: graph layer, cross attention, graph layer, score."""

    def __init__(self, dim: int = 12, k: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv1d(3, dim, 1)
        self.self1 = GraphLayer(dim, k)
        self.q = nn.Conv1d(dim, dim, 1)
        self.k = nn.Conv1d(dim, dim, 1)
        self.v = nn.Conv1d(dim, dim, 1)
        self.self2 = GraphLayer(dim, k)
        self.score = nn.Conv1d(dim, 1, 1)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        fs, ft = self.self1(source, self.embed(source)), self.self1(target, self.embed(target))
        attn = torch.softmax(self.q(fs).transpose(1, 2) @ self.k(ft) / fs.shape[1] ** 0.5, dim=-1)
        fs = fs + self.v(ft) @ attn.transpose(1, 2)
        fs = self.self2(source, fs)
        return fs, torch.sigmoid(self.score(fs)).squeeze(1)


def get_graph_feature(coords: Tensor, feats: Tensor, k: int, along: int) -> Tensor:
    """Repeat the features to (B, C, N, N) and gather k neighbours on the last axis."""
    c, n = feats.shape[1:]
    dist = torch.cdist(coords.mT, coords.mT, compute_mode="donot_use_mm_for_euclid_dist")
    idx = dist.argsort(dim=-1)[:, :, 1 : k + 1]
    idx = idx.unsqueeze(1).repeat(1, c, 1, 1)
    reps = [1, 1, 1, 1]
    reps[along] = n
    all_feats = feats.unsqueeze(along).repeat(*reps)
    neighbor_feats = torch.gather(all_feats, dim=-1, index=idx)
    feats = feats.unsqueeze(-1).repeat(1, 1, 1, k)
    return torch.cat((feats, neighbor_feats - feats), dim=1)


class SelfAttention(nn.Module):
    def __init__(self, feature_dim: int, k: int, along: int) -> None:
        super().__init__()
        self.k = k
        self.along = along
        self.conv1 = nn.Conv2d(feature_dim * 2, feature_dim, kernel_size=1, bias=False)
        self.conv2 = nn.Conv2d(feature_dim * 2, feature_dim * 2, kernel_size=1, bias=False)
        self.conv3 = nn.Conv2d(feature_dim * 4, feature_dim, kernel_size=1, bias=False)

    def forward(self, coords: Tensor, features: Tensor) -> Tensor:
        x1 = self.conv1(get_graph_feature(coords, features, self.k, self.along))
        x1 = F.leaky_relu(F.instance_norm(x1), 0.2).max(dim=-1).values
        x2 = self.conv2(get_graph_feature(coords, x1, self.k, self.along))
        x2 = F.leaky_relu(F.instance_norm(x2), 0.2).max(dim=-1).values
        x3 = torch.cat((features, x1, x2), dim=1).unsqueeze(-1)
        return F.leaky_relu(self.conv3(x3), 0.2).squeeze(-1)


class GCN(nn.Module):
    def __init__(self, feature_dim: int = 12, k: int = 4, along: int = 2) -> None:
        super().__init__()
        self.lift = nn.Linear(3, feature_dim)
        self.layers = nn.ModuleList([SelfAttention(feature_dim, k, along) for _ in range(2)])
        self.proj = nn.ModuleList([nn.Linear(feature_dim, feature_dim) for _ in range(3)])
        self.overlap = nn.Linear(feature_dim, 1)

    def forward(self, coords0: Tensor, coords1: Tensor) -> tuple[Tensor, Tensor]:
        desc0 = self.layers[0](coords0, self.lift(coords0.mT).mT)
        desc1 = self.layers[0](coords1, self.lift(coords1.mT).mT)
        query, key, value = (p(d.mT) for p, d in zip(self.proj, (desc0, desc1, desc1)))
        message = F.scaled_dot_product_attention(query, key, value)
        desc0 = self.layers[1](coords0, desc0 + message.mT)
        return desc0, self.overlap(desc0.mT).squeeze(-1).sigmoid()


@torch.no_grad()
def load(src: OverlapHead, dst: GCN) -> None:
    for conv, linear in zip((src.embed, src.q, src.k, src.v, src.score), (dst.lift, *dst.proj, dst.overlap)):
        linear.weight.copy_(conv.weight.squeeze(-1))
        linear.bias.copy_(conv.bias)
    for a, b in zip((src.self1, src.self2), dst.layers):
        b.conv1.weight.copy_(a.conv1.weight)
        b.conv2.weight.copy_(a.conv2.weight)
        b.conv3.weight.copy_(a.conv3.weight.unsqueeze(-1))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(14)
    original = OverlapHead()
    port = GCN(along=2 if fixed else 3)
    load(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 3, 20), torch.randn(2, 3, 24))
