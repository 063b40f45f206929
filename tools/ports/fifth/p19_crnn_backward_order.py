"""sbillburg/CRNN-with-STN#12: the go_backwards LSTM leaves its output reversed in time before it is merged.

Forward step t is then combined with the backward state of step T - 1 - t; only the middle step is right.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Crnn(nn.Module):
    """Text line recogniser: convolutions, two bidirectional LSTM (sum, concat), per-step classes."""

    def __init__(self, hidden: int = 12, classes: int = 9) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv_2 = nn.Conv2d(8, 12, 3, padding=1)
        self.bn_2 = nn.BatchNorm2d(12)
        self.dense_1 = nn.Linear(12 * 4, 16)
        self.rnn_1 = nn.LSTM(16, hidden, batch_first=True, bidirectional=True)
        self.rnn_2 = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.dense_2 = nn.Linear(2 * hidden, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv_1(image)), 2)
        x = F.max_pool2d(F.relu(self.bn_2(self.conv_2(x))), (2, 1))
        x = x.permute(0, 3, 1, 2).flatten(2)
        x = F.relu(self.dense_1(x))
        forward, backward = self.rnn_1(x)[0].chunk(2, dim=-1)
        x, _ = self.rnn_2(forward + backward)
        return self.dense_2(x).log_softmax(-1)


class KerasLSTM(nn.Module):
    """Kernels are (input, 4 units) with gates i, f, c, o; one bias."""

    def __init__(self, inputs: int, units: int, go_backwards: bool = False) -> None:
        super().__init__()
        self.units, self.go_backwards = units, go_backwards
        self.kernel = nn.Parameter(torch.empty(inputs, 4 * units))
        self.recurrent_kernel = nn.Parameter(torch.empty(units, 4 * units))
        self.bias = nn.Parameter(torch.empty(4 * units))

    def forward(self, x: Tensor) -> Tensor:
        if self.go_backwards:
            x = x.flip(1)
        state = x.new_zeros(2, x.shape[0], self.units)
        projected = x @ self.kernel + self.bias
        h, c = state.unbind(0)
        outputs = []
        for z in projected.unbind(1):
            i, f, g, o = torch.split(z + h @ self.recurrent_kernel, self.units, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class TextRecognizer(nn.Module):
    def __init__(self, units: int = 12, classes: int = 9, realign: bool = True) -> None:
        super().__init__()
        self.realign = realign
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d((2, 1), (2, 1)),
        )
        self.fc_9 = nn.Linear(48, 16)
        self.rnn_1 = KerasLSTM(16, units)
        self.rnn_1b = KerasLSTM(16, units, go_backwards=True)
        self.rnn_2 = KerasLSTM(units, units)
        self.rnn_2b = KerasLSTM(units, units, go_backwards=True)
        self.prediction = nn.Linear(2 * units, classes)

    def both(self, x: Tensor, ahead: KerasLSTM, behind: KerasLSTM) -> tuple[Tensor, Tensor]:
        backward = behind(x)
        return ahead(x), backward.flip(1) if self.realign else backward

    def forward(self, line: Tensor) -> Tensor:
        maps = self.features(line)
        steps = torch.einsum("bchw->bwch", maps).reshape(maps.shape[0], maps.shape[3], -1)
        steps = self.fc_9(steps).relu()
        steps = torch.add(*self.both(steps, self.rnn_1, self.rnn_1b))
        steps = torch.cat(self.both(steps, self.rnn_2, self.rnn_2b), dim=2)
        return F.log_softmax(self.prediction(steps), dim=2)


@torch.no_grad()
def convert(src: Crnn, dst: TextRecognizer) -> None:
    same = [(src.conv_1, dst.features[0]), (src.conv_2, dst.features[3]), (src.bn_2, dst.features[4])]
    for a, b in [*same, (src.dense_1, dst.fc_9), (src.dense_2, dst.prediction)]:
        b.load_state_dict(a.state_dict())
    targets = {"rnn_1": (dst.rnn_1, dst.rnn_1b), "rnn_2": (dst.rnn_2, dst.rnn_2b)}
    for name, pair in targets.items():
        lstm = getattr(src, name)
        for suffix, cell in zip(("", "_reverse"), pair):
            cell.kernel.copy_(getattr(lstm, f"weight_ih_l0{suffix}").T)
            cell.recurrent_kernel.copy_(getattr(lstm, f"weight_hh_l0{suffix}").T)
            cell.bias.copy_(getattr(lstm, f"bias_ih_l0{suffix}") + getattr(lstm, f"bias_hh_l0{suffix}"))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(12)
    original = Crnn()
    original.bn_2.running_var.uniform_(0.05, 0.2)
    with torch.no_grad():
        for name, weight in original.named_parameters():
            if name.startswith(("rnn", "dense_2.weight")):
                weight.mul_(2.5)
    port = TextRecognizer(realign=fixed)
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 1, 16, 26),)
