"""Guitaricet/relora#18: question on the wrapping of a model by ReLoRA layers, "the training process are stuck".

Rebuilt: a small text classifier is trained on one label set, its linear layers are wrapped, and only the low-rank
parts are trained on a new label set.
"""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ReLoRaLinear(nn.Module):
    def __init__(self, base, r=4, lora_alpha=8):
        super().__init__()
        self.weight = nn.Parameter(base.weight.detach().clone(), requires_grad=False)
        self.bias = nn.Parameter(base.bias.detach().clone(), requires_grad=False)
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        self.scaling = lora_alpha / r

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + self.scaling * self.lora_B(self.lora_A(x))


class ReLoRaModel(nn.Module):
    def __init__(self, model, r=4, keep_original_weights=True, mended=False):
        super().__init__()
        self.wrapped_model = model
        for name, module in list(model.named_modules()):
            if not isinstance(module, nn.Linear):
                continue
            new = ReLoRaLinear(module, r)
            if keep_original_weights:
                if not mended:
                    nn.init.zeros_(new.lora_A.weight)
                nn.init.zeros_(new.lora_B.weight)
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], new)
        for n, p in self.named_parameters():
            p.requires_grad = "lora_" in n

    def forward(self, x):
        return self.wrapped_model(x)


class BagClassifier(nn.Module):
    def __init__(self, vocab=200, dim=32, classes=6):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.fc1 = nn.Linear(dim, 48)
        self.fc2 = nn.Linear(48, 48)
        self.out = nn.Linear(48, classes)

    def forward(self, ids):
        h = F.gelu(self.fc1(self.embed(ids)))
        h = F.gelu(self.fc2(h))
        return self.out(h)


def documents(n, words_of_topic, topic_to_label):
    topic = torch.randint(0, len(words_of_topic), (n,))
    ids = torch.randint(0, 200, (n, 14))
    own = words_of_topic[topic][torch.arange(n)[:, None], torch.randint(0, 15, (n, 14))]
    ids = torch.where(torch.rand(n, 14) < 0.5, own, ids)
    return ids, topic_to_label[topic]


def train(tick, mended=False):
    torch.manual_seed(41)
    words = torch.randperm(200)[:180].view(12, 15)
    first_labels = torch.arange(12) % 6
    new_labels = torch.arange(12) // 2
    base = BagClassifier()
    pre = torch.optim.Adam(base.parameters(), lr=5e-3)
    for _ in range(150):
        ids, y = documents(64, words, first_labels)
        loss = F.cross_entropy(base(ids), y)
        pre.zero_grad()
        loss.backward()
        pre.step()

    model = ReLoRaModel(copy.deepcopy(base), r=4, keep_original_weights=True, mended=mended)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(200):
        ids, y = documents(64, words, new_labels)
        loss = F.cross_entropy(model(ids), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, ids, y)
    with torch.no_grad():
        ids, y = documents(500, words, new_labels)
        acc = (model(ids).argmax(1) == y).float().mean().item()
    return history, acc


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print("mended" if mended else "as is", f"first {h[0]:.4f} last20 {sum(h[-20:]) / 20:.4f}", f"acc {metric:.3f}")
