"""After meta-pytorch/opacus#432.

Story: the model is made private-ready with the validator's fix (BatchNorm is
replaced by GroupNorm); the training script runs but accuracy stays at chance.
"""

import copy

import torch
from torch import nn


def _batchnorm_to_groupnorm(module):
    return nn.GroupNorm(min(4, module.num_features), module.num_features, affine=module.affine)


class ModuleValidator:
    FIXERS = {nn.BatchNorm1d: _batchnorm_to_groupnorm, nn.BatchNorm2d: _batchnorm_to_groupnorm}

    @classmethod
    def fix(cls, module):
        module = copy.deepcopy(module)
        for name, sub in list(module.named_modules()):
            fixer = cls.FIXERS.get(type(sub))
            if fixer is not None:
                parent, _, leaf = name.rpartition(".")
                setattr(module.get_submodule(parent), leaf, fixer(sub))
        return module

    @classmethod
    def is_valid(cls, module):
        return not any(type(m) in cls.FIXERS for m in module.modules())


class BasicBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Conv2d(cin, cout, 1, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class SmallResNet(nn.Module):
    def __init__(self, n_classes=10, width=12):
        super().__init__()
        self.layer1 = BasicBlock(1, width)
        self.layer2 = BasicBlock(width, width)
        self.fc = nn.Linear(width * 9, n_classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.layer1(x), 2)
        x = nn.functional.max_pool2d(self.layer2(x), 2)
        return self.fc(x.flatten(1))


def make_digits(n=320, n_classes=10):
    y = torch.arange(n) % n_classes
    glyph = (torch.rand(n_classes, 1, 4, 4) > 0.5).float()
    big = glyph.repeat_interleave(3, 2).repeat_interleave(3, 3)
    return big[y] + 0.4 * torch.randn(n, 1, 12, 12), y


def train(tick, mended=False):
    torch.manual_seed(4)
    x, y = make_digits()
    model = SmallResNet()
    if mended:
        model = ModuleValidator.fix(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if not ModuleValidator.is_valid(model):
        model = ModuleValidator.fix(model)
    criterion = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    model.train()
    for step in range(120):
        rows = torch.randint(0, len(x), (32,))
        optimizer.zero_grad()
        loss = criterion(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
