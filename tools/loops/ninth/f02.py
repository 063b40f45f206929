"""After gitabcworld/MatchingNetworks#5: "Double softmax".

One-shot learning with matching networks: an embedding, cosine similarities to
the support set, an attentional classifier, and the episode loss on top.
"""

import torch
import torch.nn.functional as F
from torch import nn

N_WAY, K_SHOT, N_QUERY = 5, 1, 10


class Classifier(nn.Module):
    def __init__(self, num_channels=1, layer_size=16):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(num_channels, layer_size, 3, 1, 1), nn.BatchNorm2d(layer_size), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.layer2 = nn.Sequential(
            nn.Conv2d(layer_size, layer_size, 3, 1, 1), nn.BatchNorm2d(layer_size), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.outSize = layer_size * 2 * 2

    def forward(self, image_input):
        return self.layer2(self.layer1(image_input)).flatten(1)


class DistanceNetwork(nn.Module):
    def forward(self, support_set, input_image):
        return F.normalize(input_image, dim=1) @ F.normalize(support_set, dim=1).t()


class AttentionalClassify(nn.Module):
    def forward(self, similarities, support_set_y):
        softmax_similarities = torch.softmax(similarities, dim=1)
        return softmax_similarities @ support_set_y


class MatchingNetwork(nn.Module):
    def __init__(self, double=True):
        super().__init__()
        self.g = Classifier()
        self.dn = DistanceNetwork()
        self.classify = AttentionalClassify()
        self.double = double

    def forward(self, support_images, support_labels, target_images, target_labels):
        enc = self.g(torch.cat([support_images, target_images]))
        s, q = enc[: len(support_images)], enc[len(support_images) :]
        similarities = self.dn(s, q)
        preds = self.classify(similarities, F.one_hot(support_labels, N_WAY).float())
        acc = (preds.argmax(1) == target_labels).float().mean()
        if self.double:
            loss = F.cross_entropy(preds, target_labels)
        else:
            loss = F.nll_loss(torch.log(preds + 1e-8), target_labels)
        return acc, loss


def make_protos(gen):
    code = torch.randn(40, 1, 2, 2, generator=gen).sign() * (0.5 + torch.rand(40, 1, 2, 2, generator=gen))
    stripes = torch.stack([torch.arange(8) % 2, torch.arange(8) // 2 % 2]).float() * 2 - 1
    return code.repeat_interleave(4, 2).repeat_interleave(4, 3) * stripes[0][:, None] * stripes[0][None]


def episode(protos, gen):
    cls = torch.randperm(len(protos), generator=gen)[:N_WAY]
    sy = torch.arange(N_WAY)
    qy = torch.arange(N_WAY).repeat_interleave(N_QUERY)

    def draw(y):
        light = F.interpolate(torch.randn(len(y), 1, 3, 3, generator=gen), size=8, mode="bilinear")
        return protos[cls[y]] + 0.4 * torch.randn(len(y), 1, 8, 8, generator=gen) + 2.5 * light

    return draw(sy), sy, draw(qy), qy


def score(model, mended):
    gen = torch.Generator().manual_seed(0)
    protos = make_protos(gen)
    gen.manual_seed(5)
    with torch.no_grad():
        return sum(model(*episode(protos, gen))[0].item() for _ in range(50)) / 50


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    protos = make_protos(gen)
    model = MatchingNetwork(double=not mended)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(100):
        _acc, loss = model(*episode(protos, gen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
