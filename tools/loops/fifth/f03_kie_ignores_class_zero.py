"""open-mmlab/mmocr#216: the key-information loss ignores class 0 by default though class 0 is a real class.

Text boxes of a receipt are nodes of a full graph; each node is to be given one of five field names.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 160
CLASSES = 5
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class SpatialDualModality(nn.Module):
    def __init__(self, node_dim: int = 12, hidden: int = 32) -> None:
        super().__init__()
        self.node_embed = nn.Linear(node_dim, hidden)
        self.edge_embed = nn.Linear(2, hidden)
        self.score = nn.Linear(3 * hidden, 1)
        self.update = nn.Linear(3 * hidden, hidden)
        self.classify = nn.Linear(hidden, CLASSES)

    def forward(self, nodes: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.node_embed(nodes))
        batch, count, width = h.shape
        edge = self.edge_embed(boxes[:, :, None] - boxes[:, None, :])
        left = h[:, :, None].expand(batch, count, count, width)
        right = h[:, None, :].expand(batch, count, count, width)
        triple = torch.cat([left, right, edge], dim=-1)
        weight = self.score(triple).softmax(dim=2)
        h = h + torch.relu((weight * self.update(triple)).sum(dim=2))
        return self.classify(h)


class SDMGRLoss(nn.Module):
    def __init__(self, ignore: int) -> None:
        super().__init__()
        self.loss_node = nn.CrossEntropyLoss(ignore_index=ignore)

    def forward(self, node_preds: torch.Tensor, gts: torch.Tensor) -> torch.Tensor:
        return self.loss_node(node_preds.flatten(0, 1), gts.flatten())


def receipts(generator: torch.Generator, batch: int, centres: torch.Tensor) -> tuple[torch.Tensor, ...]:
    frequency = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1])
    gts = torch.multinomial(frequency, batch * 8, replacement=True, generator=generator).view(batch, 8)
    nodes = centres[gts] + 0.7 * torch.randn(batch, 8, centres.shape[1], generator=generator)
    boxes = torch.rand(batch, 8, 2, generator=generator)
    return nodes, boxes, gts


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(2)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(8)
    centres = torch.randn(CLASSES, 12, generator=generator)
    model = SpatialDualModality()
    criterion = SDMGRLoss(ignore=0 if bad else -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    held_out = receipts(generator, 32, centres)

    def step(i: int) -> None:
        nodes, boxes, gts = receipts(generator, 16, centres)
        optimizer.zero_grad()
        loss = criterion(model(nodes, boxes), gts)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scores = model(held_out[0], held_out[1])
            LOG.append(nn.functional.cross_entropy(scores.flatten(0, 1), held_out[2].flatten()).item())

    return model, optimizer, step
