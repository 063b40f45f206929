"""microsoft/onnxscript#2852: the exported GRU leaves out linear_before_reset=1, so the reset gate acts too early.

A keyword spotter (two strided convolutions, a GRU, a head over the last step) is translated to a graph-style runtime:
convolutions become unfold + einsum, the recurrent layer becomes a loop in the ONNX gate order (update, reset, hidden).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class KeywordSpotter(nn.Module):
    def __init__(self, n_mels: int = 12, channels: int = 16, hidden: int = 20, n_words: int = 7) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(n_mels, channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 3, stride=1, padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(channels, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, n_words)

    def forward(self, mel: Tensor) -> Tensor:
        frames = self.stem(mel).transpose(1, 2)
        states, _ = self.rnn(frames)
        return self.head(self.norm(states[:, -1]))


class GraphConv1d(nn.Module):
    """Convolution over (batch, time, channel), the kernel stored as (taps, in, out)."""

    def __init__(self, kernel: Tensor, bias: Tensor, stride: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(kernel)
        self.bias = nn.Parameter(bias)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        taps = self.kernel.shape[0]
        padded = F.pad(x, (0, 0, taps // 2, taps // 2))
        windows = padded.unfold(1, taps, self.stride)
        return torch.einsum("btck,kco->bto", windows, self.kernel) + self.bias


class OnnxGRU(nn.Module):
    """W, R of shape (3 * hidden, in) in the order update, reset, hidden; B is [Wb, Rb]."""

    def __init__(self, w: Tensor, r: Tensor, b: Tensor, linear_before_reset: int = 0) -> None:
        super().__init__()
        self.W = nn.Parameter(w)
        self.R = nn.Parameter(r)
        self.B = nn.Parameter(b)
        self.linear_before_reset = linear_before_reset

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.R.shape[1]
        wb, rb = self.B.chunk(2)
        rz, rr, rh = self.R.split(hidden)
        rbz, rbr, rbh = rb.split(hidden)
        state = x.new_zeros(x.shape[0], hidden)
        projected = F.linear(x, self.W, wb)
        outputs = []
        for step in projected.unbind(1):
            xz, xr, xh = step.split(hidden, dim=-1)
            update = torch.sigmoid(xz + F.linear(state, rz, rbz))
            reset = torch.sigmoid(xr + F.linear(state, rr, rbr))
            if self.linear_before_reset:
                candidate = torch.tanh(xh + reset * F.linear(state, rh, rbh))
            else:
                candidate = torch.tanh(xh + F.linear(reset * state, rh, rbh))
            state = (1 - update) * candidate + update * state
            outputs.append(state)
        return torch.stack(outputs, dim=1)


class GraphSpotter(nn.Module):
    def __init__(self, source: KeywordSpotter, linear_before_reset: int) -> None:
        super().__init__()
        conv_a, conv_b = source.stem[0], source.stem[2]
        self.node_conv_0 = GraphConv1d(conv_a.weight.detach().permute(2, 1, 0).clone(), conv_a.bias.detach().clone(), 2)
        self.node_conv_1 = GraphConv1d(conv_b.weight.detach().permute(2, 1, 0).clone(), conv_b.bias.detach().clone(), 1)
        bias = torch.cat([self.reorder(source.rnn.bias_ih_l0), self.reorder(source.rnn.bias_hh_l0)])
        self.node_gru = OnnxGRU(
            self.reorder(source.rnn.weight_ih_l0), self.reorder(source.rnn.weight_hh_l0), bias, linear_before_reset
        )
        self.node_ln = nn.LayerNorm(source.norm.normalized_shape)
        self.node_gemm = nn.Linear(source.head.in_features, source.head.out_features)
        self.node_ln.load_state_dict(source.norm.state_dict())
        self.node_gemm.load_state_dict(source.head.state_dict())

    @staticmethod
    def reorder(param: Tensor) -> Tensor:
        reset, update, new = param.detach().chunk(3)
        return torch.cat([update, reset, new])

    def forward(self, mel: Tensor) -> Tensor:
        x = mel.transpose(1, 2)
        x = self.node_conv_0(x).clamp(min=0)
        x = self.node_conv_1(x).clamp(min=0)
        y = self.node_gru(x)
        y_h = y.select(1, y.shape[1] - 1)
        return self.node_gemm(self.node_ln(y_h))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(101)
    original = KeywordSpotter().eval()
    with torch.no_grad():
        for name, param in original.rnn.named_parameters():
            param.normal_(0.0, 0.5 if "weight" in name else 0.3)
    port = GraphSpotter(original, linear_before_reset=1 if fixed else 0).eval()
    return original, port, (torch.randn(3, 12, 22),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
