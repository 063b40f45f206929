"""onnx/keras-onnx#523: a Keras LSTM with go_backwards=True returns the last step first, ONNX keeps the input order.

The converter leaves out the reversal after the backward LSTM.  What follows depends on the order of the steps: a
time-distributed layer whose result is multiplied with a forward branch, and a strided convolution.
"""

import torch
from torch import Tensor, nn


class KerasLSTM(nn.Module):
    """Kernel (in, 4 * units) and recurrent kernel (units, 4 * units) in the order i, f, c, o."""

    def __init__(self, in_size: int, units: int, go_backwards: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(in_size, 4 * units) * in_size**-0.5)
        self.recurrent_kernel = nn.Parameter(torch.randn(units, 4 * units) * units**-0.5)
        self.bias = nn.Parameter(torch.randn(4 * units) * 0.1)
        self.units = units
        self.go_backwards = go_backwards

    def forward(self, x: Tensor) -> Tensor:
        if self.go_backwards:
            x = x.flip(1)
        h = c = x.new_zeros(x.shape[0], self.units)
        outputs = []
        for t in range(x.shape[1]):
            z = x[:, t] @ self.kernel + h @ self.recurrent_kernel + self.bias
            i, f, g, o = z.chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class KerasTagger(nn.Module):
    def __init__(self, vocab: int = 25, embed: int = 9, units: int = 10, classes: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed)
        self.lstm = KerasLSTM(embed, units)
        self.lstm_back = KerasLSTM(embed, units, go_backwards=True)
        self.time_distributed = nn.Linear(units, units)
        self.conv1d = nn.Conv1d(units, 8, kernel_size=3, stride=2)
        self.dense = nn.Linear(8, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        ahead = self.lstm(x)
        back = torch.tanh(self.time_distributed(self.lstm_back(x)))
        mixed = (ahead * back).transpose(1, 2)
        return self.dense(torch.relu(self.conv1d(mixed)).transpose(1, 2))


class LSTM(nn.Module):
    """ONNX operator: X (seq, batch, in), W (1, 4h, in), R (1, 4h, h), gates i, o, f, c; Y keeps the order of X."""

    def __init__(self, w: Tensor, r: Tensor, b: Tensor, direction: str) -> None:
        super().__init__()
        self.W, self.R, self.B = (nn.Parameter(t.unsqueeze(0)) for t in (w, r, b))
        self.direction = direction

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.R.shape[-1]
        gates = torch.einsum("sbi,hi->sbh", x, self.W[0]) + self.B[0, : 4 * hidden] + self.B[0, 4 * hidden :]
        state, cell = x.new_zeros(x.shape[1], hidden), x.new_zeros(x.shape[1], hidden)
        order = range(x.shape[0]) if self.direction == "forward" else range(x.shape[0] - 1, -1, -1)
        outputs: dict[int, Tensor] = {}
        for t in order:
            i, o, f, c = (gates[t] + state @ self.R[0].T).split(hidden, dim=1)
            cell = f.sigmoid() * cell + i.sigmoid() * c.tanh()
            state = o.sigmoid() * cell.tanh()
            outputs[t] = state
        return torch.stack([outputs[t] for t in range(x.shape[0])])


class ReverseSequence(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        index = torch.arange(x.shape[0] - 1, -1, -1)
        return x.index_select(0, index)


def convert_lstm(layer: KerasLSTM) -> LSTM:
    def reorder(matrix: Tensor) -> Tensor:
        i, f, c, o = matrix.detach().chunk(4, dim=-1)
        return torch.cat([i, o, f, c], dim=-1)

    bias = torch.cat([reorder(layer.bias), torch.zeros_like(layer.bias.detach())])
    direction = "reverse" if layer.go_backwards else "forward"
    return LSTM(reorder(layer.kernel).T.contiguous(), reorder(layer.recurrent_kernel).T.contiguous(), bias, direction)


class OnnxTagger(nn.Module):
    def __init__(self, source: KerasTagger, reverse_output: bool) -> None:
        super().__init__()
        self.gather = nn.Embedding.from_pretrained(source.embedding.weight.detach().clone())
        self.lstm_0 = convert_lstm(source.lstm)
        backward: list[nn.Module] = [convert_lstm(source.lstm_back)]
        if reverse_output:
            backward.append(ReverseSequence())
        self.lstm_1 = nn.Sequential(*backward)
        self.matmul = nn.Parameter(source.time_distributed.weight.detach().T.contiguous())
        self.add = nn.Parameter(source.time_distributed.bias.detach().clone())
        self.conv = nn.Conv1d(10, 8, kernel_size=3, stride=2)
        self.gemm = nn.Conv1d(8, 4, kernel_size=1)
        self.conv.load_state_dict(source.conv1d.state_dict())
        self.gemm.load_state_dict(
            {"weight": source.dense.weight.detach().unsqueeze(-1), "bias": source.dense.bias.detach()}
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.gather(tokens.T)
        ahead = self.lstm_0(x)
        back = (self.lstm_1(x) @ self.matmul + self.add).tanh()
        y = self.conv((ahead * back).permute(1, 2, 0))
        return self.gemm(y.relu()).transpose(1, 2)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(121)
    original = KerasTagger().eval()
    port = OnnxTagger(original, reverse_output=fixed).eval()
    return original, port, (torch.randint(0, 25, (3, 11)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
