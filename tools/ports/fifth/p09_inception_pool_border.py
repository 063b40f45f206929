"""microsoft/MMdnn#628: converted average pooling counts the padding in its divisor (count_include_pad is not set).

TensorFlow's SAME average pooling divides by the real pixels only, so just the border of the pool branches is wrong.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicConv(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int | tuple[int, int]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, padding="same", bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class SamePool(nn.Module):
    """3x3 mean over the pixels that exist."""

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones_like(x[:1, :1])
        kernel = torch.ones(1, 1, 3, 3)
        total = F.conv2d(x.flatten(0, 1).unsqueeze(1), kernel, padding=1).view_as(x)
        return total / F.conv2d(ones, kernel, padding=1)


class InceptionA(nn.Module):
    def __init__(self, cin: int) -> None:
        super().__init__()
        self.b1 = BasicConv(cin, 6, 1)
        self.b5 = nn.Sequential(BasicConv(cin, 4, 1), BasicConv(4, 6, 5))
        self.b3 = nn.Sequential(BasicConv(cin, 4, 1), BasicConv(4, 6, 3), BasicConv(6, 6, 3))
        self.pool = SamePool()
        self.bp = BasicConv(cin, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.b1(x), self.b5(x), self.b3(x), self.bp(self.pool(x))), 1)


class InceptionTower(nn.Module):
    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.stem = BasicConv(3, 8, 3)
        self.mixed0 = InceptionA(8)
        self.mixed1 = InceptionA(24)
        self.classifier = nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2)
        x = self.mixed1(self.mixed0(x))
        return self.classifier(x.mean(dim=(2, 3)))


class KitModel(nn.Module):
    """Generated style: one numbered convolution after another, batch norm applied functionally."""

    ORDER = ("b1", "b5.0", "b5.1", "b3.0", "b3.1", "b3.2", "bp")

    def __init__(self, pool_args: dict[str, bool]) -> None:
        super().__init__()
        self.pool_args = pool_args
        plan = [("conv", 3, 8, 3)]
        for tower, cin in (("mixed", 8), ("mixed_1", 24)):
            plan += [(f"{tower}_conv", cin, 6, 1), (f"{tower}_tower_conv", cin, 4, 1)]
            plan += [(f"{tower}_tower_conv_1", 4, 6, 5), (f"{tower}_tower_1_conv", cin, 4, 1)]
            plan += [(f"{tower}_tower_1_conv_1", 4, 6, 3), (f"{tower}_tower_1_conv_2", 6, 6, 3)]
            plan += [(f"{tower}_tower_2_conv", cin, 6, 1)]
        for name, cin, cout, kernel in plan:
            setattr(self, name, nn.Conv2d(cin, cout, kernel, padding=kernel // 2, bias=False))
            setattr(self, f"{name}_batchnorm", nn.BatchNorm2d(cout, eps=0.001))
        self.softmax_logits = nn.Linear(24, 7)

    def cbr(self, name: str, x: Tensor) -> Tensor:
        return torch.relu(getattr(self, f"{name}_batchnorm")(getattr(self, name)(x)))

    def block(self, tower: str, x: Tensor) -> Tensor:
        conv = self.cbr(f"{tower}_conv", x)
        tower_conv = self.cbr(f"{tower}_tower_conv_1", self.cbr(f"{tower}_tower_conv", x))
        tower_1 = self.cbr(f"{tower}_tower_1_conv_1", self.cbr(f"{tower}_tower_1_conv", x))
        tower_1 = self.cbr(f"{tower}_tower_1_conv_2", tower_1)
        pool = F.avg_pool2d(x, kernel_size=(3, 3), stride=(1, 1), padding=(1,), ceil_mode=False, **self.pool_args)
        tower_2 = self.cbr(f"{tower}_tower_2_conv", pool)
        return torch.cat((conv, tower_conv, tower_1, tower_2), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        pool = F.max_pool2d(self.cbr("conv", x), kernel_size=(3, 3), stride=(2, 2))
        mixed = self.block("mixed_1", self.block("mixed", pool))
        return self.softmax_logits(F.adaptive_avg_pool2d(mixed, 1).flatten(1))


def convert(src: InceptionTower) -> dict[str, Tensor]:
    suffix = ("conv", "tower_conv", "tower_conv_1", "tower_1_conv", "tower_1_conv_1", "tower_1_conv_2", "tower_2_conv")
    table = {"stem": "conv"}
    for module, tower in (("mixed0", "mixed"), ("mixed1", "mixed_1")):
        table.update({f"{module}.{o}": f"{tower}_{s}" for o, s in zip(KitModel.ORDER, suffix)})
    state = {f"softmax_logits.{k}": v for k, v in src.classifier.state_dict().items()}
    for path, name in table.items():
        layer = src.get_submodule(path)
        state[f"{name}.weight"] = layer.conv.weight
        state.update({f"{name}_batchnorm.{k}": v for k, v in layer.bn.state_dict().items()})
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(628)
    original = InceptionTower()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.05, 0.3)
    port = KitModel({"count_include_pad": False} if fixed else {})
    port.load_state_dict(convert(original))
    return original.eval(), port.eval(), (torch.randn(2, 3, 21, 21),)
