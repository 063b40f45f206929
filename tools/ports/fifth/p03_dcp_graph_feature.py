"""WangYueFt/dcp#9: the graph feature concatenates the neighbour itself, not the neighbour minus the centre point.

The point embedding of the registration network runs without any error, as both edge features have 2C channels.
"""

import torch
from torch import Tensor, nn


class EdgeConv(nn.Module):
    """max_j LeakyReLU(BN(W [x_j - x_i, x_i]))"""

    def __init__(self, cin: int, cout: int, k: int) -> None:
        super().__init__()
        self.k = k
        self.theta = nn.Conv2d(2 * cin, cout, 1, bias=False)
        self.norm = nn.BatchNorm2d(cout)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, points = x.shape
        dist = torch.cdist(x.transpose(1, 2), x.transpose(1, 2), compute_mode="donot_use_mm_for_euclid_dist")
        idx = dist.topk(self.k, dim=-1, largest=False).indices
        expanded = x.unsqueeze(2).expand(batch, channels, points, points)
        neighbours = torch.gather(expanded, 3, idx.unsqueeze(1).expand(-1, channels, -1, -1))
        centre = x.unsqueeze(-1).expand_as(neighbours)
        edge = torch.cat((neighbours - centre, centre), dim=1)
        return self.act(self.norm(self.theta(edge))).amax(dim=-1)


class DgcnnEmbedding(nn.Module):
    def __init__(self, k: int = 5, emb: int = 24) -> None:
        super().__init__()
        self.edge1 = EdgeConv(3, 8, k)
        self.edge2 = EdgeConv(8, 8, k)
        self.edge3 = EdgeConv(8, 16, k)
        self.out = nn.Conv1d(32, emb, 1, bias=False)
        self.out_bn = nn.BatchNorm1d(emb)

    def forward(self, cloud: Tensor) -> Tensor:
        x1 = self.edge1(cloud)
        x2 = self.edge2(x1)
        x3 = self.edge3(x2)
        return nn.functional.leaky_relu(self.out_bn(self.out(torch.cat((x1, x2, x3), 1))), 0.2)


def knn(x: Tensor, k: int) -> Tensor:
    inner = -2.0 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    return (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]


def get_graph_feature(x: Tensor, k: int, relative: bool) -> Tensor:
    batch_size, num_dims, num_points = x.shape
    base = torch.arange(batch_size).view(-1, 1, 1) * num_points
    flat_idx = (knn(x, k) + base).reshape(-1)
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size * num_points, -1)[flat_idx].view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    if relative:
        feature = feature - x
    return torch.cat((feature, x), dim=3).permute(0, 3, 1, 2)


class DGCNN(nn.Module):
    def __init__(self, emb_dims: int = 24, k: int = 5, relative: bool = True) -> None:
        super().__init__()
        self.k = k
        self.relative = relative
        self.conv1 = nn.Conv2d(6, 8, kernel_size=1, bias=False)
        self.conv2 = nn.Conv2d(16, 8, kernel_size=1, bias=False)
        self.conv3 = nn.Conv2d(16, 16, kernel_size=1, bias=False)
        self.conv4 = nn.Conv2d(32, emb_dims, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.bn2 = nn.BatchNorm2d(8)
        self.bn3 = nn.BatchNorm2d(16)
        self.bn4 = nn.BatchNorm2d(emb_dims)

    def stage(self, x: Tensor, conv: nn.Module, bn: nn.Module) -> Tensor:
        edges = get_graph_feature(x, self.k, self.relative)
        return torch.max(nn.functional.leaky_relu(bn(conv(edges)), negative_slope=0.2), dim=-1)[0]

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.stage(x, self.conv1, self.bn1)
        x2 = self.stage(x1, self.conv2, self.bn2)
        x3 = self.stage(x2, self.conv3, self.bn3)
        x = torch.cat((x1, x2, x3), dim=1).unsqueeze(-1)
        x = nn.functional.leaky_relu(self.bn4(self.conv4(x)), negative_slope=0.2)
        return x.squeeze(-1)


def remap(src: DgcnnEmbedding) -> dict[str, Tensor]:
    state = {}
    for i in (1, 2, 3):
        layer = getattr(src, f"edge{i}")
        state[f"conv{i}.weight"] = layer.theta.weight
        state.update({f"bn{i}.{k}": v for k, v in layer.norm.state_dict().items()})
    state["conv4.weight"] = src.out.weight.unsqueeze(-1)
    state.update({f"bn4.{k}": v for k, v in src.out_bn.state_dict().items()})
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(3)
    original = DgcnnEmbedding()
    for m in original.modules():
        if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.3, 0.8)
    port = DGCNN(relative=fixed)
    port.load_state_dict(remap(original))
    cloud = torch.randn(2, 3, 32)
    return original.eval(), port.eval(), (cloud,)
