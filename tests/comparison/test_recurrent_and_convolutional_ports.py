"""Ports of recurrent and convolutional nets that write out what a does in one operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import sweep
from support.compared import WAYS, compared

# Convolutions written as products of patches --------------------------------------------------------


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(x).relu().mean((2, 3)))


class Patches(nn.Module):
    """The same with norms folded in, whose biases are added as columns."""

    def __init__(self, a: Any) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for conv, norm in ((a.body[0], a.body[1]), (a.body[3], a.body[4])):
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            bias = 0.0 if conv.bias is None else conv.bias
            self.weights.append(nn.Parameter((conv.weight * scale[:, None, None, None]).detach().flatten(1)))
            self.biases.append(nn.Parameter((norm.bias + (bias - norm.running_mean) * scale).detach()))
        self.head = nn.Linear(8, 4)
        self.head.load_state_dict(a.head.state_dict())

    def conv(self, x: torch.Tensor, i: int, size: int) -> torch.Tensor:
        patches = F.unfold(x, size, padding=size // 2)
        y = torch.einsum("oc,bcl->bol", self.weights[i], patches) + self.biases[i][:, None]
        return y.view(len(x), -1, *x.shape[2:])

    def forward(self, x: torch.Tensor) -> Any:
        x = self.conv(self.conv(x, 0, 1).relu(), 1, 3).relu()
        return self.head(x.flatten(2).mean(2))


@pytest.mark.parametrize("way", WAYS)
def test_batch_norms_folded_into_products_with_a_bias_added_as_a_column_are_equal(way):
    torch.manual_seed(0)
    a = Convolutional().eval()
    with torch.no_grad():
        for norm in (a.body[1], a.body[4]):
            for weight in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                weight.uniform_(0.5, 2.0)
    found = compared(a, Patches(a), torch.randn(2, 3, 6, 6), way)
    assert (found.findings, found.verdict) == ((), "equal")


class PatchesOfConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.places, self.head = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(16, 8)), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head((self.conv(x).flatten(2).transpose(1, 2) + self.places).relu())


class PatchesOfLinear(nn.Module):
    def __init__(self, a: PatchesOfConv, turned: bool) -> None:
        super().__init__()
        self.embed, self.table, self.out, self.turned = nn.Linear(48, 8), a.places, a.head, turned
        with torch.no_grad():
            self.embed.weight.copy_(a.conv.weight.flatten(1))
            self.embed.bias.copy_(a.conv.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> Any:
        x = x.unfold(2, 4, 4).unfold(3, 4, 4)
        x = x.permute((0, 3, 2, 1, 4, 5) if self.turned else (0, 2, 3, 1, 4, 5)).flatten(3).flatten(1, 2)
        return self.out(torch.relu(self.embed(x) + self.table))


@pytest.mark.parametrize("way", WAYS)
def test_rows_and_columns_of_patches_exchanged_are_not_told_as_views_that_another_layout_needs(way):
    torch.manual_seed(0)
    a, x = PatchesOfConv(), torch.randn(2, 3, 16, 16)
    assert compared(a, PatchesOfLinear(a, False), x, way).verdict == "equal"
    found = compared(a, PatchesOfLinear(a, True), x, way).first
    assert found is not None
    if way == "models":
        told = "elements are joined from 4 × 4 in b, where a's values need the two the other way round"
        assert (found.kind, found.op, found.because, found.proven) == ("wiring", "flatten", told, True)
    else:
        told = "inputs with the same statistics give other values: their elements are others, or in another order"
        assert (found.kind, found.op, found.because) == ("values", "add", told)


class Padded(nn.Module):
    def __init__(self, before: tuple[int, ...], itself: int) -> None:
        super().__init__()
        self.before, self.conv, self.head = before, nn.Conv2d(3, 8, 3, 2, padding=itself), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, self.before) if self.before else x
        return self.head(self.conv(x).relu().mean((2, 3)))


@pytest.mark.parametrize("way", WAYS)
def test_padding_of_another_framework_is_told_with_that_of_the_convolution_that_it_stands_for(way):
    torch.manual_seed(0)
    own, same, right = Padded((), 1).eval(), Padded((0, 1, 0, 1), 0).eval(), Padded((1, 1, 1, 1), 0).eval()
    for other in (same, right):
        other.load_state_dict(own.state_dict())
    x = torch.randn(2, 3, 16, 16)
    assert compared(own, right, x, way).equal
    told = "conv2d with padding=1 in a, pad((0, 1, 0, 1)) before conv2d in b"
    assert compared(own, same, x, way).first.because == told
    told = "pad((0, 1, 0, 1)) before conv2d in a, conv2d with padding=1 in b"
    assert compared(same, own, x, way).first.because == told


# Recurrent nets written as cells --------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.encoder, self.decoder, self.head = nn.GRU(6, 8, batch_first=True), nn.GRUCell(6, 8), nn.Linear(8, 20)

    def forward(self, ids: torch.Tensor) -> Any:
        memory, h = self.encoder(self.embed(ids))
        h, out = h[0], []
        for t in range(3):
            h = self.decoder(self.embed(ids[:, t]), h)
            out.append(self.head(h + memory.mean(1)[:, :]))
        return torch.stack(out, 1)


class Cells(nn.Module):
    def __init__(self, a: Any, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.embed, self.out = nn.Embedding(20, 6), nn.Linear(8, 20)
        self.embed.load_state_dict(a.embed.state_dict())
        self.out.load_state_dict(a.head.state_dict())
        sides = ("encoder", a.encoder, "_l0"), ("decoder", a.decoder, "")
        for name, cell, ending in sides:
            for kind in ("ih", "hh"):
                linear = nn.Linear(6 if kind == "ih" else 8, 24)
                linear.weight = nn.Parameter(getattr(cell, f"weight_{kind}{ending}").detach().clone())
                linear.bias = nn.Parameter(getattr(cell, f"bias_{kind}{ending}").detach().clone())
                setattr(self, f"{name}_{kind}", linear)

    def step(self, name: str, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        r1, z1, n1 = getattr(self, f"{name}_ih")(x).chunk(3, -1)
        r2, z2, n2 = getattr(self, f"{name}_hh")(h).chunk(3, -1)
        r, z = torch.sigmoid(r1 + r2), torch.sigmoid(z1 + z2)
        if self.fault == name:
            r, z = z, r
        return (1 - z) * torch.tanh(n1 + r * n2) + z * h

    def forward(self, ids: torch.Tensor) -> Any:
        x, h, memory, out = self.embed(ids), torch.zeros(len(ids), 8), [], []
        for t in range(ids.shape[1]):
            h = self.step("encoder", x[:, t], h)
            memory.append(h)
        mean = torch.stack(memory, 1).mean(1)
        for t in range(3):
            h = self.step("decoder", self.embed(ids[:, t]), h)
            out.append(self.out(h + mean))
        return torch.stack(out, 1)


def cells(fault: str = "") -> tuple[Any, Any, torch.Tensor]:
    torch.manual_seed(0)
    a = Recurrent()
    return a, Cells(a, fault), torch.randint(0, 20, (2, 5))


@pytest.mark.parametrize("way", WAYS)
def test_a_recurrent_net_written_as_cells_is_equal(way):
    a, b, ids = cells()
    assert compared(a, b, ids, way).verdict == "equal"


@pytest.mark.parametrize("way", WAYS)
def test_gates_in_another_order_in_code_are_told_by_what_the_cell_does_and_not_as_a_linear_that_a_lacks(way):
    a, b, ids = cells("decoder")
    found = compared(a, b, ids, way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("values", "", "add")
    assert found.because.startswith("gru_cell in a, ")


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_recurrent_weight_in_another_order_are_named_by_that_weight(way):
    a, b, ids = cells()
    with torch.no_grad():
        w = b.decoder_hh.weight
        w.copy_(torch.cat([w[8:16], w[:8], w[16:]]))
    found = compared(a, b, ids, way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("weights", "decoder_hh", "linear")


@pytest.mark.parametrize("way", WAYS)
def test_a_recurrent_bias_that_is_zero_is_named(way):
    a, b, ids = cells()
    with torch.no_grad():
        b.decoder_hh.bias.zero_()
    found = compared(a, b, ids, way).first
    assert found is not None
    assert (found.path, found.because) == ("decoder_hh", "decoder_hh.bias is zero, decoder.bias_hh of a is not")


# Cells of one class beside one another --------------------------------------------------------------


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 6, num_layers=3, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x)[0]


class Cell(nn.Module):
    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        self.W, self.b, self.plain = nn.Parameter(torch.zeros(12, 24)), nn.Parameter(torch.zeros(24)), plain

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        i, f, g, o = (torch.cat([x, h], -1) @ self.W + self.b).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * (c if self.plain else torch.tanh(c)), c


class Layers(nn.Module):
    def __init__(self, a: Any, plain: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell(i == plain) for i in range(3))
        with torch.no_grad():
            for i, cell in enumerate(self.cells):
                names = [f"{kind}_l{i}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                w, u, b, c = (getattr(a.rnn, name) for name in names)
                cell.W.copy_(torch.cat([w, u], 1).T)  # type: ignore[operator]
                cell.b.copy_(b + c)  # type: ignore[operator]

    def forward(self, x: torch.Tensor) -> Any:
        for cell in self.cells:
            h = c = torch.zeros(len(x), 6)
            out = []
            for t in range(x.shape[1]):
                h, c = cell(x[:, t], h, c)
                out.append(h)
            x = torch.stack(out, 1)
        return x


@pytest.mark.parametrize(("way", "place"), sweep.spread(WAYS, [1, 2]))
def test_the_cell_that_lacks_what_most_of_its_class_do_is_the_one_that_is_named(place, way):
    torch.manual_seed(0)
    a = Stacked()
    found = compared(a, Layers(a, place), torch.randn(2, 4, 6), way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("missing", f"cells.{place}", "tanh")
    assert found.because == f"tanh of cells.0 has no counterpart in cells.{place}"


class BothWays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 6, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x)[0]


class WrittenBothWays(nn.Module):
    """Cells in turn for each direction; the results of the first layer are joined the other way round."""

    def __init__(self, a: Any) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell() for _ in range(4))
        with torch.no_grad():
            for cell, ending in zip(self.cells, ("l0", "l0_reverse", "l1", "l1_reverse")):
                names = [f"{kind}_{ending}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                w, u, b, c = (getattr(a.rnn, name) for name in names)
                cell.W = nn.Parameter(torch.cat([w, u], 1).T.contiguous())
                cell.b = nn.Parameter(b + c)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in range(2):
            sides = []
            for way in range(2):
                h = c = torch.zeros(len(x), 6)
                out = []
                for t in range(x.shape[1]) if way == 0 else reversed(range(x.shape[1])):
                    h, c = self.cells[2 * layer + way](x[:, t], h, c)
                    out.append(h)
                sides.append(torch.stack(out if way == 0 else out[::-1], 1))
            x = torch.cat(sides[::-1] if layer == 0 else sides, -1)
        return x


@pytest.mark.parametrize("way", WAYS)
def test_weights_of_two_directions_are_not_told_as_exchanged_where_code_joins_results_the_other_way_round(way):
    torch.manual_seed(0)
    a = BothWays()
    found = compared(a, WrittenBothWays(a), torch.randn(2, 4, 6), way).first
    assert found is not None
    assert found.kind == "values"
    assert found.because.endswith(" operations of cells.0, cells.1, cells.2, cells.3 in b")
