"""A quantised model against its original: what each call adds, and what the result gains with an original put back."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import compare, compare_models, fx_debug
from fxdebug.api import Report
from fxdebug.errors import UsageError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([Block() for _ in range(5)]), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class WeightOnly(nn.Module):
    """A layer as torchao and bitsandbytes have it: whole numbers and a scale for each row."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 7
        self.register_buffer("qweight", (layer.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.qweight.to(x.dtype) * self.scale.to(x.dtype), self.bias)


def model() -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(64, 16)


def dynamic(original: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(copy.deepcopy(original), {nn.Linear}, dtype=torch.qint8)


def rounded(original: nn.Module, steps: int = 127, top: float = 1.0) -> nn.Module:
    """A copy whose weights are multiples of one step for each tensor, as fake quantisation makes them."""
    twin = copy.deepcopy(original)
    with torch.no_grad():
        for module in twin.modules():
            if isinstance(module, nn.Linear):
                step = top * module.weight.abs().max() / steps
                module.weight.copy_((module.weight / step).round().clamp(-steps, steps) * step)
    return twin


def with_outlier() -> tuple[Net, Tensor]:
    net, x = model()
    with torch.no_grad():
        net.layers[3].down.weight[5, 7] = 30.0
    return net, x


def error(a: Tensor, b: Tensor) -> float:
    return float((a - b).double().norm() / a.double().norm())


@pytest.mark.parametrize("quantise", [dynamic, rounded])
def test_the_layer_with_an_outlier_is_to_be_left_alone_and_what_that_brings_is_measured(quantise: object) -> None:
    net, x = with_outlier()
    port = quantise(net)  # type: ignore[operator]
    report = compare_models(net, port, x, quantised=True)
    assert isinstance(report, Report)
    with torch.no_grad():
        whole = error(net(x), port(x))
        repaired = copy.deepcopy(port)
        repaired.layers[3].down = copy.deepcopy(net.layers[3].down)
        left = error(net(x), repaired(x))
    row = report.rows[0]
    assert (row.call, row.shape) == ("layers.3.down", "16×32")
    assert row.without == pytest.approx(left) and report.totals["error of the result"][0] == pytest.approx(whole)
    assert row.share == pytest.approx(100 * (1 - left / whole))
    assert report.answer.startswith("leave `layers.3.down` ") and "→" in report.answer
    assert row.reason.startswith("the largest |w| of row 5 is ")
    assert report.findings == ()


def test_every_call_has_the_error_that_it_adds_with_what_a_was_given() -> None:
    net, x = with_outlier()
    port = rounded(net)
    rows = {row.call: row for row in compare_models(net, port, x, quantised=True).rows}
    given: dict[str, Tensor] = {}
    for path, module in net.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda m, args, out, path=path: given.__setitem__(path, args[0]))
    with torch.no_grad():
        net(x)
        for path, put in given.items():
            own = error(net.get_submodule(path)(put), port.get_submodule(path)(put))
            assert rows[path].error == pytest.approx(own, rel=1e-3)
    assert rows.keys() == given.keys()


def test_weights_in_whole_numbers_with_scales_are_ranked() -> None:
    net, x = model()
    port = copy.deepcopy(net)
    for layer in port.layers:
        layer.up, layer.down = WeightOnly(layer.up), WeightOnly(layer.down)  # type: ignore[assignment]
    report = compare_models(net, port, x, quantised=True)
    assert len(report.rows) == 10 and all(row.share is not None for row in report.rows)
    assert [row.share for row in report.rows] == sorted([row.share for row in report.rows], reverse=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_casts_have_no_reason_in_a_step_that_weights_share(dtype: torch.dtype) -> None:
    net, x = with_outlier()
    port = copy.deepcopy(net)
    with torch.no_grad():
        for module in port.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(module.weight.to(dtype).float())
    report = compare_models(net, port, x, quantised=True)
    assert report.rows and not any("steps" in row.reason for row in report.rows)


def test_a_model_in_bfloat16_is_given_its_inputs_in_bfloat16() -> None:
    net, x = model()
    report = compare_models(net, copy.deepcopy(net).bfloat16(), x, quantised=True)
    assert len(report.rows) >= 15 and 1e-4 < (report.totals["error of the result"][0] or 0) < 0.05  # type: ignore[operator]
    assert report.answer.startswith("no call stands out")


def test_equal_layers_do_not_stand_out() -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        net, x = nn.Sequential(*[nn.Linear(32, 32, bias=False) for _ in range(8)]), torch.randn(64, 32)
        for layer in net:
            nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]
        assert compare_models(net, dynamic(net), x, quantised=True).answer.startswith("no call stands out")


def test_two_layers_that_stand_out_are_put_back_together() -> None:
    net, x = with_outlier()
    with torch.no_grad():
        net.layers[1].down.weight[2, 2] = 30.0
    port = rounded(net)
    report = compare_models(net, port, x, quantised=True)
    together = copy.deepcopy(port)
    with torch.no_grad():
        for number in (1, 3):
            together.layers[number].down = copy.deepcopy(net.layers[number].down)  # type: ignore[union-attr]
        left = error(net(x), together(x))
    assert {row.call for row in report.rows[:2]} == {"layers.1.down", "layers.3.down"}
    assert " alone: " in report.answer and f"→ {left:.2g}" in report.answer
    assert report.totals["with these left alone"][0] == pytest.approx(left)


def test_weights_that_are_cut_off_and_rows_that_are_gone_are_told() -> None:
    net, x = model()
    cut = copy.deepcopy(net)
    with torch.no_grad():
        step = net.head.weight.abs().max() / 2 / 127
        cut.head.weight.copy_((net.head.weight / step).round().clamp(-127, 127) * step)
    (row,) = compare_models(net, cut, x, quantised=True).rows
    assert row.call == "head" and "they are cut off" in row.reason
    with torch.no_grad():
        cut.head.weight[2] = 0.0
    (row,) = compare_models(net, cut, x, quantised=True).rows
    assert row.reason == "1 of 8 rows of its weight are 0 in b"


def test_a_layer_alone_that_returns_the_result_says_so() -> None:
    net, x = model()
    port = copy.deepcopy(net)
    port.head = WeightOnly(net.head)  # type: ignore[assignment]
    (row,) = compare_models(net, port, x, quantised=True).rows
    assert row.reason == "what it returns is the result: nothing evens out its error"
    assert row.share == pytest.approx(100.0)


def test_a_model_that_is_the_same_adds_nothing() -> None:
    net, x = model()
    report = compare_models(net, copy.deepcopy(net), x, quantised=True)
    assert (report.answer, report.rows) == ("no call adds an error: b returns what a returns", ())


def test_models_are_left_as_they_were() -> None:
    net, x = with_outlier()
    port = dynamic(net)
    with torch.no_grad():
        before = net(x), port(x)
    state = torch.random.get_rng_state()
    compare_models(net, port, x, quantised=True)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not any(module._forward_hooks for one in (net, port) for module in one.modules())
    with torch.no_grad():
        assert torch.equal(before[0], net(x)) and torch.equal(before[1], port(x))


def test_what_was_not_tried_is_no_zero() -> None:
    net, x = with_outlier()
    report = compare_models(net, dynamic(net), x, quantised=True, budget=0)
    assert all(row.share is None and row.without is None for row in report.rows)
    assert report.answer.startswith("likely the one to leave alone is `layers.3.down`")
    assert any("the time is over" in note.what for note in report.notes)


def test_an_input_that_b_does_not_take_is_told() -> None:
    net, x = model()
    port = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(UsageError, match="inputs_b"):
        compare_models(net, port, x, quantised=True)


def test_two_runs_are_ranked_by_the_error_that_calls_add_and_the_effect_is_not_told() -> None:
    net, x = with_outlier()
    with torch.no_grad():
        a, b = (fx_debug(one, x, values="tensors") for one in (net, dynamic(net)))
        bare = [fx_debug(one, x) for one in (net, dynamic(net))]
    report = compare(a, b, quantised=True)
    assert report.rows[0].call == "layers.3.down" and report.rows[0].share is None
    assert report.answer.startswith("likely the one to leave alone is `layers.3.down`")
    assert compare(*bare, quantised=True).answer.startswith("cannot tell which call to leave alone")


def test_the_report_is_text_of_eighty_columns_json_and_a_table(tmp_path: Path) -> None:
    net, x = with_outlier()
    report = compare_models(net, dynamic(net), x, quantised=True)
    lines = report.text(width=80, color=False).splitlines()
    assert max(map(len, lines)) <= 80 and lines[0].startswith("leave `layers.3.down`")
    assert json.loads(report.json_text())["rows"][0]["call"] == "layers.3.down"
    assert report.csv_text().splitlines()[0] == "call,type,shape,error,share [%],without,calls,reason"
    assert fxdebug.Report.load(report.json(tmp_path / "q.json")).answer == report.answer


def test_a_module_that_is_called_twice_is_one_row() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(self.one(x).relu())

    torch.manual_seed(0)
    net, x = Twice().eval(), torch.randn(64, 16)
    (row,) = compare_models(net, dynamic(net), x, quantised=True).rows
    assert (row.call, row.calls) == ("one", 2) and row.share == pytest.approx(100.0)


def test_modules_that_are_ignored_are_left_out() -> None:
    net, x = with_outlier()
    report = compare_models(net, dynamic(net), x, quantised=True, ignore="layers.3.*")
    assert report.rows and not any(row.call.startswith("layers.3.") for row in report.rows)


class Steps(nn.Module):
    """A fake quantisation to ``levels`` steps; of a fixed tensor where it has one."""

    def __init__(self, levels: int, fixed: Tensor | None = None) -> None:
        super().__init__()
        self.levels, self.fixed = levels, fixed

    def forward(self, *given: Tensor) -> Tensor:
        x = given[0] if self.fixed is None else self.fixed
        size = x.abs().amax()
        return (x / size * self.levels).round() / self.levels * size


class Scaled(nn.Module):
    """A layer that computes itself, with modules that quantise inside of it, if any."""

    def __init__(self, levels: tuple[int, int] | None) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(16, 16) / 4), nn.Parameter(torch.randn(16))
        self.levels = levels
        self.before = self.of_bias = None

    def forward(self, x: Tensor) -> Tensor:
        if self.levels and self.before is None:
            self.before, self.of_bias = Steps(self.levels[0]), Steps(self.levels[1], self.bias.detach())
        if self.before is None or self.of_bias is None:
            return nn.functional.linear(x, self.weight, self.bias).relu()
        return nn.functional.linear(self.before(x), self.weight, self.of_bias()).relu()


@pytest.mark.parametrize(
    ("levels", "told"),
    [((2, 500), "its before changes the numbers that it is given by"), ((500, 1), "its of_bias makes bias of a with")],
)
def test_a_module_that_quantises_inside_of_a_layer_is_told_where_it_stands_out(
    levels: tuple[int, int], told: str
) -> None:
    def net(*layers: tuple[int, int] | None) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(*map(Scaled, layers))

    x, fine = torch.randn(32, 16), (500, 500)
    with torch.no_grad():
        b = net(fine, levels, fine)
        b(x)
        report = compare_models(net(None, None, None), b, x, quantised=True)
        even = net(fine, fine, fine)
        even(x)
        alike = compare_models(net(None, None, None), even, x, quantised=True)
    assert report.answer.startswith("leave `1` alone: ") and f"; {told}" in report.answer
    assert "its " not in alike.answer


def test_weights_that_are_no_roundings_are_told_together_and_what_their_originals_bring() -> None:
    net, x = model()
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.Linear):
                layer.weight *= torch.logspace(-1, 1, len(layer.weight))[:, None] / 3
    port = rounded(net)
    repaired = copy.deepcopy(port)
    for at, block in enumerate(port.layers):
        scale = net.layers[at].up.weight.detach().abs().amax(1, keepdim=True)
        block.up = WeightOnly(net.layers[at].up)
        block.up.scale = (scale / 7).flip(0)
        repaired.layers[at].up = net.layers[at].up
    report = compare_models(net, port, x, quantised=True)
    with torch.no_grad():
        whole, left = error(net(x), port(x)), error(net(x), repaired(x))
    assert report.answer.startswith(
        "not rounding: the weight of `layers.0.up`, `layers.1.up`, `layers.2.up`, `layers.3.up` and 1 more is "
    )
    assert report.answer.endswith(f"with the originals of these {whole:.2g} → {left:.2g}")
    assert ": each row of its weight is a's with a factor, 0.01 to 98 (so in `layers.0.up`); the" in report.answer


def test_few_bits_beside_many_are_no_wrong_weights() -> None:
    net, x = model()
    port = rounded(net)
    for at, block in enumerate(port.layers):
        block.up = WeightOnly(net.layers[at].up)
    assert "not rounding" not in compare_models(net, port, x, quantised=True).answer


class Codes(nn.Module):
    """A layer whose product is taken with whole numbers, and multiplied by their scales; ``axis`` is that of these."""

    def __init__(self, layer: nn.Conv2d | nn.ConvTranspose2d, axis: int) -> None:
        super().__init__()
        weight = layer.weight.detach()
        scale = weight.abs().amax([dim for dim in range(4) if dim != axis], keepdim=True) / 127
        self.register_buffer("codes", (weight / scale).round())
        self.register_buffer("scale", scale.view(1, -1, 1, 1))
        self.bias = layer.bias
        self.turned = isinstance(layer, nn.ConvTranspose2d)

    def forward(self, x: Tensor) -> Tensor:
        product = nn.functional.conv_transpose2d if self.turned else nn.functional.conv2d
        return product(x, self.codes) * self.scale + self.bias[:, None, None]


def test_scales_behind_a_product_are_no_fault_unless_they_stand_along_another_axis() -> None:
    torch.manual_seed(0)
    kinds = nn.Conv2d, nn.ConvTranspose2d, nn.Conv2d, nn.Conv2d, nn.Conv2d
    net = nn.Sequential(*[kind(16, 16, 2) for kind in kinds]).eval()
    with torch.no_grad():
        for layer in net:
            layer.weight *= torch.logspace(-1, 0, 16)[torch.randperm(16), None, None, None]
            layer.weight *= torch.logspace(-1, 0, 16)[torch.randperm(16), None, None]
    x = torch.randn(2, 16, 9, 9)
    for axis, told in ((1, False), (0, True)):
        port = nn.Sequential(*[Codes(layer, axis if number == 1 else 0) for number, layer in enumerate(net)])
        answer = compare_models(net, port, x, quantised=True).answer
        assert ("not rounding" in answer) is told
        if told:
            assert answer.startswith("not rounding: the weight of `1` is ")
            assert "a's with a factor for each row and one for each column: scales along another axis" in answer


class Packed(WeightOnly):
    """It computes without a product that takes its weight, and with other scales for one row alone, if ``wrong``."""

    def __init__(self, layer: nn.Linear, wrong: bool) -> None:
        super().__init__(layer)
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale.roll(1, 0) * 3 if len(x) == 1 and self.wrong else self.scale
        return (x[:, None] * (self.qweight.to(x.dtype) * scale)).sum(-1) + self.bias


def test_a_layer_that_is_wrong_one_row_alone_is_told() -> None:
    net, x = model()
    for wrong in (False, True):
        port = copy.deepcopy(net)
        for at, block in enumerate(port.layers):
            block.up, block.down = Packed(net.layers[at].up, wrong), Packed(net.layers[at].down, wrong)
        answer = compare_models(net, port, x[:1], quantised=True).answer
        assert ("its code for one row is wrong (so is that of 9 more); " in answer) is wrong
        assert answer.startswith("not rounding: `layers.0.up`: given this row twice, it is 0.") is wrong


def test_steps_that_are_too_coarse_in_most_weights_are_the_answer_with_what_finer_ones_leave() -> None:
    torch.manual_seed(0)
    blocks = [layer for _ in range(3) for layer in (nn.LayerNorm(64), nn.Linear(64, 64))]
    original = nn.Sequential(*blocks, nn.Linear(64, 8)).eval()
    with torch.no_grad():
        for norm, layer in zip(blocks[::2], blocks[1::2]):
            layer.weight[:, :16] *= 20  # type: ignore[index, operator]
            norm.weight[:16] /= 20  # type: ignore[index, operator]
    quantised = copy.deepcopy(original)
    for at in (1, 3, 5):
        quantised[at] = WeightOnly(original[at])  # type: ignore[arg-type]
    answer = compare_models(original, quantised, torch.randn(8, 64), quantised=True).answer
    assert answer.startswith("too coarse: one step for each row in 3 of 3 weights, where a column loses 0.7")
    before, after = (float(part) for part in answer.rpartition("block of 16 columns ")[2].split(" → "))
    assert before > 3 * after
