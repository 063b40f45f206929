"""After microsoft/MMdnn#595.

A small VGG-like classifier was converted between TensorFlow (channels last) and PyTorch
(channels first).  The convolution features agreed, the class scores did not.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TFConv2D(nn.Module):
    """tf.keras.layers.Conv2D: input NHWC, kernel HWIO, padding SAME, stride 1."""

    def __init__(self, cin, cout, k=3):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(k, k, cin, cout) * (2 / (k * k * cin)) ** 0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        y = F.conv2d(x.permute(0, 3, 1, 2), self.kernel.permute(3, 2, 0, 1), self.bias, padding="same")
        return y.permute(0, 2, 3, 1)


class TFDense(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(cin, cout) / cin**0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        return x @ self.kernel + self.bias


class TFBatchNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.rand(c) + 0.5), nn.Parameter(torch.randn(c) * 0.2)
        self.register_buffer("moving_mean", torch.randn(c) * 0.2)
        self.register_buffer("moving_variance", torch.rand(c) + 0.5)

    def forward(self, x):
        return (x - self.moving_mean) * torch.rsqrt(self.moving_variance + 1e-3) * self.gamma + self.beta


class TFClassifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.bn1 = TFConv2D(3, 8), TFBatchNorm(8)
        self.conv2, self.bn2 = TFConv2D(8, 12), TFBatchNorm(12)
        self.conv3 = TFConv2D(12, 12)
        self.fc1, self.fc2, self.logits = TFDense(4 * 4 * 12, 32), TFDense(32, 24), TFDense(24, classes)

    @staticmethod
    def pool(x):
        b, h, w, c = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, c).amax(dim=(2, 4))

    def forward(self, images):
        x = images.permute(0, 2, 3, 1)
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        x = torch.relu(self.conv3(x))
        x = x.reshape(x.shape[0], -1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.logits(x)


class KitModel(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8, eps=1e-3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.BatchNorm2d(12, eps=1e-3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(12 * 4 * 4, 32),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(32, 24),
            nn.ReLU(),
            nn.Linear(24, num_classes),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


CONVS = {"conv1": "features.0", "conv2": "features.4", "conv3": "features.8"}
NORMS = {"bn1": "features.1", "bn2": "features.5"}
DENSE = {"fc1": "classifier.1", "fc2": "classifier.4", "logits": "classifier.6"}


class Converter:
    def dense(self, name, kernel):
        return kernel.t()

    def __call__(self, sd):
        out = {}
        for src, dst in CONVS.items():
            out[dst + ".weight"] = sd[src + ".kernel"].permute(3, 2, 0, 1)
            out[dst + ".bias"] = sd[src + ".bias"]
        for src, dst in NORMS.items():
            for a, b in (
                ("gamma", "weight"),
                ("beta", "bias"),
                ("moving_mean", "running_mean"),
                ("moving_variance", "running_var"),
            ):
                out[f"{dst}.{b}"] = sd[f"{src}.{a}"]
        for src, dst in DENSE.items():
            out[dst + ".weight"] = self.dense(src, sd[src + ".kernel"])
            out[dst + ".bias"] = sd[src + ".bias"]
        return {k: v.contiguous().clone() for k, v in out.items()}


class ConverterMended(Converter):
    def dense(self, name, kernel):
        if name == "fc1":
            kernel = kernel.view(4, 4, 12, -1).permute(2, 0, 1, 3).reshape(kernel.shape)
        return kernel.t()


def build(fixed):
    torch.manual_seed(40)
    original = TFClassifier().eval()
    port = KitModel().eval()
    state = (ConverterMended if fixed else Converter)()(original.state_dict())
    missing, unexpected = port.load_state_dict(state, strict=False)
    assert not unexpected and all(k.endswith("num_batches_tracked") for k in missing)
    return original, port, (torch.randn(4, 3, 16, 16),)
