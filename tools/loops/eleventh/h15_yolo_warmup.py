"""After ultralytics/yolov5 (train.py).

Warm-up in which the biases fall from a high rate while the weights rise from
zero, accumulation that grows during warm-up, EMA copy of the model.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class Conv(nn.Module):
    def __init__(self, c1, c2, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, 3, s, 1, bias=False)
        self.bn = nn.BatchNorm2d(c2)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class DetectionModel(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.model = nn.Sequential(Conv(1, ch), Conv(ch, ch, 2), Conv(ch, ch, 2))
        self.detect = nn.Conv2d(ch, 5, 1)
        with torch.no_grad():
            self.detect.bias[4] = -math.log(0.94 / 0.06)

    def forward(self, x):
        return self.detect(self.model(x))


class ModelEMA:
    def __init__(self, model, decay=0.99, tau=30):
        self.ema, self.updates = copy.deepcopy(model).eval(), 0
        self.decay = lambda x: decay * (1 - math.exp(-x / tau))

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = self.decay(self.updates)
        for v, m in zip(self.ema.state_dict().values(), model.state_dict().values()):
            if v.dtype.is_floating_point:
                v.mul_(d).add_(m, alpha=1 - d)


def make_batch(n, size=16):
    img, box, cell = 0.2 * torch.randn(n, 1, size, size), torch.zeros(n, 4), torch.zeros(n, 2, dtype=torch.long)
    for i in range(n):
        h, w = torch.randint(3, 7, (2,)).tolist()
        y, x = int(torch.randint(0, size - h, ())), int(torch.randint(0, size - w, ()))
        img[i, 0, y : y + h, x : x + w] += 1
        cy, cx = y + h / 2, x + w / 2
        cell[i] = torch.tensor([int(cy // 4), int(cx // 4)])
        box[i] = torch.tensor([cx / 4 % 1, cy / 4 % 1, w / 8, h / 8])
    return img, box, cell


def compute_loss(pred, box, cell):
    n = torch.arange(len(pred))
    obj = torch.zeros(len(pred), 4, 4)
    obj[n, cell[:, 0], cell[:, 1]] = 1
    p = pred[n, :4, cell[:, 0], cell[:, 1]].sigmoid()
    lbox = (p * torch.tensor([1, 1, 1.0, 1.0]) - box).abs().mean() * 2
    return (lbox + F.binary_cross_entropy_with_logits(pred[:, 4], obj) * 4) * len(pred)


def train(tick, mended=False):
    torch.manual_seed(0)
    batch_size, nbs, nw, total = 8, 32, 40, 200
    lr0, warmup_bias_lr, momentum = 0.01, 0.1, 0.937
    model = DetectionModel()
    g0, g1, g2 = [], [], []
    for m in model.modules():
        for name, p in m.named_parameters(recurse=False):
            (g2 if name == "bias" else g1 if isinstance(m, nn.BatchNorm2d) else g0).append(p)
    optimizer = torch.optim.SGD(g2, lr=lr0, momentum=momentum, nesterov=True)
    optimizer.add_param_group({"params": g0, "weight_decay": 5e-4})
    optimizer.add_param_group({"params": g1, "weight_decay": 0.0})
    ema = ModelEMA(model)
    lf = lambda x: (1 - x / total) * 0.9 + 0.1
    tick.model(model)
    tick.optimizer(optimizer)
    losses, last_opt_step, accumulate = [], -1, 1
    optimizer.zero_grad()
    for ni in range(total):
        if ni <= nw:
            accumulate = max(1, round(1 + (nbs / batch_size - 1) * ni / nw))
            for j, g in enumerate(optimizer.param_groups):
                start = warmup_bias_lr if j == 0 else 0.0
                g["lr"] = start + (lr0 * lf(ni) - start) * ni / nw
                g["momentum"] = 0.8 + (momentum - 0.8) * ni / nw
        imgs, box, cell = make_batch(batch_size)
        loss = compute_loss(model(imgs), box, cell)
        loss.backward()
        if ni - last_opt_step >= accumulate:
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
            last_opt_step = ni
            tick.step(loss)
            losses.append(loss.item())
    return losses
