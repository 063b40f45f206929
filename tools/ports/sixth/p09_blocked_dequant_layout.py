"""openvinotoolkit/openvino#32918: blocked DequantizeLinear on axis 1 spreads the scales in interleaved order.

With axis=1 and block_size=b, columns 0..b-1 share the first scale.  The importer reshapes to (rows, block, blocks), so
column j gets scale j % blocks.  The model is a small encoder for tabular sensors with int8 block-quantised projections.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn


class BlockQuantLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int, block_size: int = 4) -> None:
        super().__init__()
        blocks = in_features // block_size
        self.block_size = block_size
        self.register_buffer("data", torch.randint(-100, 101, (out_features, in_features), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(out_features, blocks) * 0.006 + 0.0005)
        self.register_buffer("zero_point", torch.randint(-6, 7, (out_features, blocks), dtype=torch.int8))
        self.bias = nn.Parameter(torch.randn(out_features) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale.repeat_interleave(self.block_size, dim=1)
        zero = self.zero_point.repeat_interleave(self.block_size, dim=1)
        weight = (self.data.float() - zero.float()) * scale
        return nn.functional.linear(x, weight, self.bias)


class SensorEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, padding=2)
        self.bn = nn.BatchNorm1d(8)
        self.fc1 = BlockQuantLinear(48, 32)
        self.fc2 = BlockQuantLinear(32, 32)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.conv(x)))
        x = nn.functional.avg_pool1d(x, 4)
        x = x.flatten(1)
        x = torch.relu(self.fc1(x))
        x = x + torch.tanh(self.fc2(x))
        return self.head(x).log_softmax(-1)


def dequantize_linear(
    data: Tensor, scale: Tensor, zero_point: Tensor, axis: int, block_size: int, blocks_first: bool
) -> Tensor:
    shape = list(data.shape)
    num_blocks = shape[axis] // block_size
    inner = [num_blocks, block_size] if blocks_first else [block_size, num_blocks]
    broadcast_at = axis + 1 if blocks_first else axis
    split = data.reshape(shape[:axis] + inner + shape[axis + 1 :]).to(scale.dtype)
    restored = (split - zero_point.to(scale.dtype).unsqueeze(broadcast_at)) * scale.unsqueeze(broadcast_at)
    return restored.reshape(shape)


class Constant(nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self) -> Tensor:
        return self.value


class DequantizeNode(nn.Module):
    def __init__(self, source: BlockQuantLinear, blocks_first: bool) -> None:
        super().__init__()
        self.x = Constant(source.data)
        self.x_scale = Constant(source.scale)
        self.x_zero_point = Constant(source.zero_point)
        self.block_size = source.block_size
        self.blocks_first = blocks_first

    def forward(self) -> Tensor:
        return dequantize_linear(
            self.x(),
            self.x_scale(),
            self.x_zero_point(),
            axis=1,
            block_size=self.block_size,
            blocks_first=self.blocks_first,
        )


class GemmNode(nn.Module):
    def __init__(self, source: BlockQuantLinear, blocks_first: bool) -> None:
        super().__init__()
        self.dequantize = DequantizeNode(source, blocks_first)
        self.c = nn.Parameter(source.bias.detach().clone())

    def forward(self, a: Tensor) -> Tensor:
        return torch.addmm(self.c, a, self.dequantize().t())


def fold_batch_norm(conv: nn.Conv1d, bn: nn.BatchNorm1d) -> nn.Conv1d:
    folded = nn.Conv1d(conv.in_channels, conv.out_channels, conv.kernel_size, padding=conv.padding)
    factor = bn.weight / torch.sqrt(bn.running_var + bn.eps)
    with torch.no_grad():
        folded.weight.copy_(conv.weight * factor[:, None, None])
        folded.bias.copy_((conv.bias - bn.running_mean) * factor + bn.bias)
    return folded


class ImportedGraph(nn.Module):
    def __init__(self, source: SensorEncoder, blocks_first: bool) -> None:
        super().__init__()
        head = nn.Linear(32, 5)
        head.load_state_dict(source.head.state_dict())
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("Convolution_7", fold_batch_norm(source.conv, source.bn)),
                    ("Relu_8", nn.ReLU()),
                    ("AvgPool_9", nn.AvgPool1d(4)),
                    ("Reshape_10", nn.Flatten()),
                ]
            )
        )
        self.MatMul_14 = GemmNode(source.fc1, blocks_first)
        self.MatMul_19 = GemmNode(source.fc2, blocks_first)
        self.MatMul_24 = head
        self.LogSoftmax_25 = nn.LogSoftmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.MatMul_14(x).clamp_min(0.0)
        x = torch.add(x, self.MatMul_19(x).tanh())
        return self.LogSoftmax_25(self.MatMul_24(x))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(109)
    original = SensorEncoder()
    with torch.no_grad():
        original.bn.running_mean.normal_(0, 0.3)
        original.bn.running_var.uniform_(0.4, 1.6)
        original.bn.weight.uniform_(0.6, 1.4)
        original.bn.bias.normal_(0, 0.2)
    original.eval()
    port = ImportedGraph(original, blocks_first=fixed).eval()
    return original, port, (torch.randn(4, 3, 24),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
