"""After xingyizhou/CenterNet.

Heat-map focal loss normalised by the number of objects, final bias -2.19, plus
offset and size heads that only learn at object centres.
"""

import torch
from torch import nn


class DLAish(nn.Module):
    def __init__(self, heads, ch=12):
        super().__init__()
        self.base = nn.Sequential(
            nn.Conv2d(1, ch, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(ch, ch, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(ch, ch, 3, 1, 1),
            nn.ReLU(),
        )
        self.heads = heads
        for head, classes in heads.items():
            fc = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, classes, 1))
            if "hm" in head:
                fc[-1].bias.data.fill_(-2.19)
            setattr(self, head, fc)

    def forward(self, x):
        x = self.base(x)
        return {head: getattr(self, head)(x) for head in self.heads}


def neg_loss(pred, gt):
    pos_inds, neg_inds = gt.eq(1).float(), gt.lt(1).float()
    neg_weights = torch.pow(1 - gt, 4)
    pos_loss = (torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds).sum()
    neg = (torch.log(1 - pred) * torch.pow(pred, 2) * neg_weights * neg_inds).sum()
    num_pos = pos_inds.sum()
    return -neg if num_pos == 0 else -(pos_loss + neg) / num_pos


class CtdetLoss(nn.Module):
    def __init__(self, wh_weight=0.1, off_weight=1.0):
        super().__init__()
        self.wh_weight, self.off_weight = wh_weight, off_weight

    def forward(self, out, batch):
        hm = torch.clamp(out["hm"].sigmoid(), min=1e-4, max=1 - 1e-4)
        n, (cy, cx) = torch.arange(len(hm)), batch["ind"].unbind(1)
        wh_loss = (out["wh"][n, :, cy, cx] - batch["wh"]).abs().mean()
        off_loss = (out["reg"][n, :, cy, cx] - batch["reg"]).abs().mean()
        return neg_loss(hm, batch["hm"]) + self.wh_weight * wh_loss + self.off_weight * off_loss


def gaussian2d(size, cy, cx, sigma):
    g = torch.arange(size).float()
    return torch.exp(-((g[:, None] - cy) ** 2 + (g[None] - cx) ** 2) / (2 * sigma**2))


def make_batch(n, size=16):
    out = size // 2
    img = 0.15 * torch.randn(n, 1, size, size)
    b = {
        "hm": torch.zeros(n, 2, out, out),
        "ind": torch.zeros(n, 2, dtype=torch.long),
        "wh": torch.zeros(n, 2),
        "reg": torch.zeros(n, 2),
    }
    for i in range(n):
        cls = int(torch.randint(0, 2, ()))
        h, w = torch.randint(4, 8, (2,)).tolist()
        y, x = int(torch.randint(0, size - h, ())), int(torch.randint(0, size - w, ()))
        img[i, 0, y : y + h, x : x + w] += 1.0 if cls else -1.0
        cy, cx = (y + h / 2) / 2, (x + w / 2) / 2
        b["hm"][i, cls] = gaussian2d(out, int(cy), int(cx), 0.8)
        b["ind"][i] = torch.tensor([int(cy), int(cx)])
        b["wh"][i] = torch.tensor([w / 2, h / 2])
        b["reg"][i] = torch.tensor([cx % 1, cy % 1])
    return img, b


def train(tick, mended=False):
    torch.manual_seed(317)
    model = DLAish({"hm": 2, "wh": 2, "reg": 2})
    criterion = CtdetLoss()
    optimizer = torch.optim.Adam(model.parameters(), 4e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(180):
        img, batch = make_batch(12)
        loss = criterion(model(img), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
