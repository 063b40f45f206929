"""After leongatys/PytorchNeuralStyleTransfer.

The picture itself is the only trained parameter, the feature network is frozen,
losses are in the thousands, L-BFGS with a closure.
"""

import torch
import torch.nn.functional as F
from torch import nn


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1_1 = nn.Conv2d(3, 12, 3, padding=1)
        self.conv2_1 = nn.Conv2d(12, 16, 3, padding=1)
        self.conv3_1 = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x, out_keys):
        out = {}
        out["r11"] = F.relu(self.conv1_1(x))
        out["r21"] = F.relu(self.conv2_1(F.avg_pool2d(out["r11"], 2)))
        out["r31"] = F.relu(self.conv3_1(F.avg_pool2d(out["r21"], 2)))
        return [out[k] for k in out_keys]


class GramMatrix(nn.Module):
    def forward(self, x):
        f = x.flatten(2)
        return f @ f.transpose(1, 2) / f.size(2)


class GramMSELoss(nn.Module):
    def forward(self, x, target):
        return F.mse_loss(GramMatrix()(x), target)


class StyleTransfer(nn.Module):
    def __init__(self, vgg, content_image):
        super().__init__()
        self.vgg = vgg
        self.opt_img = nn.Parameter(content_image.clone())

    def forward(self, keys):
        return self.vgg(self.opt_img, keys)


def train(tick, mended=False):
    torch.manual_seed(0)
    vgg = VGG()
    for p in vgg.parameters():
        p.requires_grad = False
    content = F.interpolate(torch.randn(1, 3, 5, 5), size=20, mode="bilinear") * 2
    style = torch.randn(1, 3, 20, 20).sign() * 6
    style_layers, content_layers = ["r11", "r21"], ["r31"]
    targets = [GramMatrix()(a) for a in vgg(style, style_layers)] + vgg(content, content_layers)
    weights = [1e3, 1e3, 1e0]
    loss_fns = [GramMSELoss(), GramMSELoss(), nn.MSELoss()]
    net = StyleTransfer(vgg, content)
    optimizer = torch.optim.LBFGS([net.opt_img], max_iter=8)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for n_iter in range(30):

        def closure():
            optimizer.zero_grad()
            out = net(style_layers + content_layers)
            loss = sum(w * fn(o, t) for w, fn, o, t in zip(weights, loss_fns, out, targets))
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        tick.step(loss)
        losses.append(loss.item())
    return losses
