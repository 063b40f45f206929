"""``fxdebug.summary`` has the numbers of torchinfo, and the differences by name (row P6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchinfo
from torch import nn

import fxdebug
from fxdebug.exports.report.text import folded
from support.numerics_cases import bert, gpt2

Built = tuple[nn.Module, Any]


def convolutions() -> Built:
    layers = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=4, bias=False)]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(5, bias=False)), torch.randn(2, 3, 10, 10)


def frozen() -> Built:
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2))
    model[1].requires_grad_(False)
    return model, torch.randn(3, 4)


def mlp() -> Built:
    return nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(6)]), torch.randn(3, 16)


MODELS: dict[str, Callable[[], Built]] = {
    "convolutions": convolutions, "frozen": frozen, "mlp": mlp, "gpt2": gpt2, "bert": bert,
}  # fmt: skip


def both(build: Callable[[], Built]) -> tuple[dict[str, Any], Any]:
    model, inputs = build()
    model.eval()
    with torch.no_grad():
        fxdebug.fx_debug(model, inputs)  # lazy parameters are made
        theirs = torchinfo.summary(model, input_data=inputs, verbose=0)
        ours = fxdebug.summary(model, inputs)
    return {name: number for name, (number, _) in ours.totals.items()}, theirs


@pytest.mark.parametrize("name", MODELS)
def test_p6_parameters_and_sizes_are_those_of_torchinfo(name: str) -> None:
    ours, theirs = both(MODELS[name])
    tied = 0
    if name == "gpt2":  # torchinfo counts the weight of the head again, which is that of the embedding
        model, _ = gpt2()
        tied = model.lm_head.weight.numel()
    assert ours["parameters"] == theirs.total_params - tied
    assert ours["trainable"] == theirs.trainable_params - tied
    tensors = 2 if name == "bert" else 1
    assert ours["size of inputs"] == theirs.total_input - 64 * tensors  # it adds those of Python's storage objects
    assert ours["forward and backward pass"] == theirs.total_output_bytes
    assert ours["size of parameters"] == theirs.total_param_bytes - 4 * tied


def test_p6_multiply_adds_are_those_of_torchinfo_without_biases_and_norms() -> None:
    """Torchinfo also counts the parameters of biases and norms, for each of their results or once."""
    for name in ("convolutions", "mlp"):
        ours, theirs = both(MODELS[name])
        norms = 2 * 8 * 2 if name == "convolutions" else 0  # 16 parameters, a batch of 2
        assert ours["mult-adds"] == theirs.total_mult_adds - norms


def test_a_module_that_is_called_twice_counts_once_where_torchinfo_is_wrong() -> None:
    layer = nn.Linear(4, 4, bias=False)
    report = fxdebug.summary(nn.Sequential(layer, nn.ReLU(), layer), torch.ones(2, 4))
    assert report.totals["parameters"] == (16, "")
    assert report.totals["mult-adds"] == (2 * 2 * 16, "MAC")


def test_the_rows_have_shapes_kernels_shares_and_what_is_trained() -> None:
    rows = {row.call: row for row in fxdebug.summary(*frozen()).rows}
    assert rows["1#0"].params == 72 and rows["1#0"].trainable == 0
    assert round(sum(rows[call].share or 0 for call in ("0#0", "1#0", "2#0")), 9) == 100
    model, inputs = convolutions()
    first = fxdebug.summary(model, inputs).rows[1]
    assert (first.input, first.kernel, first.output) == ("2×3×10×10", "3×3", "2×8×8×8")


def test_repeated_layers_are_one_line_of_80_columns_with_their_sums() -> None:
    text = fxdebug.summary(*mlp()).text(width=80, color=False)
    assert [line.split() for line in text.splitlines() if "×6" in line] == [
        ["0…5", "×6", "Linear", "3×16", "1536", "100", "%", "4.61", "kMAC"]
    ]
    assert max(map(len, text.splitlines())) <= 80


def test_a_model_without_parameters_has_no_share() -> None:
    (row,) = fxdebug.summary(nn.ReLU(), torch.ones(2)).rows
    assert (row.params, row.share, row.macs) == (0, None, 0)


# What several modules share, and what is not known ------------------------------------------------


class Tied(nn.Module):
    """An embedding and a head with one weight, one activation in all blocks, and a module under two names."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.PReLU()
        self.embed, self.head = nn.Embedding(10, 4), nn.Sequential(nn.Linear(4, 10, bias=False))
        self.head[0].weight = self.embed.weight
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), act) for _ in range(3))
        self.norm = nn.LayerNorm(4)
        self.again = self.norm

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.again(self.norm(x)))


def test_parameters_are_those_of_each_module_whatever_it_shares() -> None:
    model = Tied()
    trace = fxdebug.fx_debug(model, torch.arange(6).view(2, 3))
    report = fxdebug.summary(trace)
    assert report.totals["parameters"] == (sum(p.numel() for p in model.parameters()), "")
    for row, call in zip(report.rows, trace.calls, strict=True):
        of_module = sum(p.numel() for p in model.get_submodule(call.path).parameters())
        assert (row.params, trace.number("params", call)) == (of_module, of_module), row.call


def test_a_line_for_several_calls_counts_what_they_share_once() -> None:
    model = Tied()
    report = fxdebug.summary(model, torch.arange(6).view(2, 3))
    lines = {line["call"]: line for line in folded(report)}
    assert lines["blocks.0…2 ×3"]["params"] == 3 * 20 + 1  # one PReLU in all of them
    assert lines["blocks.0.1 ×3"]["params"] == 1 and lines["norm ×2"]["params"] == 8
    shares = {name: line["share"] for name, line in lines.items()}
    assert shares["Tied"] == 100.0 and shares["blocks.0.1 ×3"] == pytest.approx(100 / report.rows[0].params)


def test_a_line_of_a_report_from_a_file_is_the_same(tmp_path: Path) -> None:
    for report in (fxdebug.summary(Tied(), torch.arange(6).view(2, 3)), fxdebug.flops(Inverts(), torch.eye(4))):
        loaded = fxdebug.Report.load(report.json(tmp_path / "report.json"))
        assert loaded.text(width=100) == report.text(width=100)


class Inverts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.linalg.inv(x))


def test_multiply_adds_of_which_a_part_is_not_known_are_a_lower_bound() -> None:
    report = fxdebug.summary(nn.Sequential(Inverts(), nn.Linear(4, 2)), torch.eye(4))
    assert [(row.call, row.macs, row.unknown) for row in report.rows] == [
        ("Sequential#0", 96, "linalg_inv"), ("0#0", 64, "linalg_inv"), ("0.linear#0", 64, ""), ("1#0", 32, ""),
    ]  # fmt: skip
    text = report.text(width=100)
    assert "mult-adds                  at least 96 MAC" in text and "≥ 64 MAC" in text and " 32 MAC" in text
    assert "not counted, because their number is not known: linalg_inv" in text


@pytest.mark.parametrize(
    "of", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2, 4))], ids=["script", "trace"]
)
@pytest.mark.parametrize("part", [False, True])
def test_scripted_and_traced_modules_have_parameters_and_no_count(of: Any, part: bool) -> None:
    plain = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    model = nn.Sequential(of(plain)) if part else of(plain)
    report = fxdebug.summary(model, torch.ones(2, 4))
    assert report.totals["parameters"] == (21, "") and report.totals["trainable"] == (21, "")
    assert report.totals["size of buffers"] == (3 * 4 + 3 * 4 + 8, "B")
    assert report.totals["mult-adds"] == (None, "MAC") and report.rows[0].macs is None


def test_sizes_of_ragged_and_sparse_tensors_are_counted_or_not_known() -> None:
    class Sparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_sparse()

    ragged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(5, 4)], layout=torch.jagged)
    report = fxdebug.summary(nn.Linear(4, 3).eval(), ragged)
    assert report.totals["size of inputs"] == (7 * 4 * 4, "B") and report.rows[0].bytes == 7 * 3 * 4
    report = fxdebug.summary(Sparse(), torch.eye(4))
    assert report.rows[0].bytes is None and "sizes: n/a of 1 tensor" in report.notes[0].what


def test_parameters_of_modules_that_are_registered_nowhere_are_not_known() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 4)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x)  # type: ignore[no-any-return]

    report = fxdebug.summary(Hidden(), torch.ones(2, 4))
    assert [row.params for row in report.rows] == [0, None] and "registered nowhere" in report.notes[0].what


def test_parameters_of_a_lazy_module_that_never_ran_are_not_known() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.z = nn.Linear(2, 2), nn.LazyLinear(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x)  # type: ignore[no-any-return]

    trace = fxdebug.fx_debug(Lazy(), torch.ones(1, 2))
    report = fxdebug.summary(trace)
    assert report.totals["parameters"] == (6, "") and {"parameters", "size of parameters"} <= set(report.at_least)
    assert [row.params for row in report.rows] == [None, 6] and "z.weight, z.bias" in report.notes[0].what
    assert trace.number("params", trace.root) is None
    assert "params: n/a where a lazy module never ran: z.weight, …" in trace.text(width=80, columns="params")
