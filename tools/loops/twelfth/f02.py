"""After FlyingGiraffe/vnn#8: part segmentation with a DGCNN on point clouds.

The PointNet variant of the part segmentation trains in the shared script, the
DGCNN variant put into the same script does not.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    return pairwise_distance.topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=6):
    batch_size, num_dims, num_points = x.size()
    idx = knn(x, k)
    idx = idx + torch.arange(batch_size).view(-1, 1, 1) * num_points
    flat = x.transpose(2, 1).reshape(batch_size * num_points, num_dims)
    feature = flat[idx.view(-1)].view(batch_size, num_points, k, num_dims)
    x = x.transpose(2, 1).unsqueeze(2).expand(-1, -1, k, -1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2)


class DGCNNPartSeg(nn.Module):
    def __init__(self, num_part=4):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.conv2 = nn.Sequential(nn.Conv1d(16, 32, 1, bias=False), nn.BatchNorm1d(32), nn.LeakyReLU(0.2))
        self.conv3 = nn.Sequential(nn.Conv1d(48, 32, 1, bias=False), nn.BatchNorm1d(32), nn.LeakyReLU(0.2))
        self.conv4 = nn.Conv1d(32, num_part, 1)

    def forward(self, x):
        num_points = x.size(2)
        x1 = self.conv1(get_graph_feature(x)).max(dim=-1)[0]
        x2 = self.conv2(x1)
        glob = x2.max(dim=-1, keepdim=True)[0].expand(-1, -1, num_points)
        x = self.conv3(torch.cat((x1, glob), dim=1))
        return self.conv4(x)


def sample_shapes(batch_size, num_points=64):
    points = torch.rand(batch_size, num_points, 3) * 2 - 1
    target = (points[..., 2] > 0).long() * 2 + (points[..., 0] > 0).long()
    return points, target


def train(tick, mended=False):
    torch.manual_seed(1)
    num_part = 4
    classifier = DGCNNPartSeg(num_part)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=5e-3, weight_decay=1e-4)
    criterion = F.cross_entropy
    tick.model(classifier)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        points, target = sample_shapes(16)
        optimizer.zero_grad()
        classifier.train()
        seg_pred = classifier(points.transpose(2, 1))
        if mended:
            seg_pred = seg_pred.permute(0, 2, 1)
        seg_pred = seg_pred.contiguous().view(-1, num_part)
        loss = criterion(seg_pred, target.view(-1))
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
