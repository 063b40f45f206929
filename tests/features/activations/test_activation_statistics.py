"""``fxdebug.activations`` and ``heatmap``: rows A1, A2, A4 and A5 of the analyses, and the faults found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.errors import UsageError
from fxdebug.features.activations.run import reduced
from fxdebug.features.shared.units.findings import outlier_channels

transformers = pytest.importorskip("transformers", reason="the rows' fixtures are models of transformers")

IDS = torch.arange(64).reshape(2, 32) * 37 % 1000


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=128, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(16 * 16, 10),
    )  # fmt: skip


class Functional(nn.Module):
    """A rectifier and a sigmoid that the forward calls itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.down(torch.relu(self.up(x))))


def rules(report: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.call) for finding in report.findings]


# A2, A5 -------------------------------------------------------------------------------------------


def test_a5_every_module_has_the_distribution_of_what_it_returned() -> None:
    model, returned = gpt2(), {}
    for path, module in model.named_modules():
        if path in ("transformer.h.0.mlp", "transformer.ln_f", "lm_head"):
            module.register_forward_hook(
                lambda m, i, o, path=path: returned.update({path: o.detach().double().numpy()})
            )
    report = fxdebug.activations(model, IDS)
    for path, exact in returned.items():
        found = report.distributions[path]
        assert (found.mean, found.count) == (exact.reshape(-1).mean(), exact.size)
        assert found.counts == tuple(np.histogram(exact, 64)[0])


def test_a_run_that_kept_its_tensors_has_the_same_distributions(tmp_path: Path) -> None:
    fxdebug.fx_debug(gpt2(), IDS, values="tensors", save=tmp_path / "run")
    saved, live = fxdebug.activations(tmp_path / "run"), fxdebug.activations(gpt2(), IDS)
    assert dict(saved.distributions) == dict(live.distributions)
    with pytest.raises(UsageError, match="values='tensors'"):
        fxdebug.activations(fxdebug.fx_debug(gpt2(), IDS))


def test_activation_functions_in_a_forward_are_rows() -> None:
    report = fxdebug.activations(Functional(), torch.randn(5, 8))
    assert [row.call for row in report.rows] == [
        "up#0", "Functional#0/relu", "down#0", "Functional#0/sigmoid", "Functional#0",
    ]  # fmt: skip


def test_batches_are_measured_together() -> None:
    model = Functional()
    parts = [torch.randn(50, 8) for _ in range(3)]
    several, one = fxdebug.activations(model, batches=parts), fxdebug.activations(model, torch.cat(parts))
    assert several.totals["batches"][0] == 3 and not several.distributions["up"].exact
    for a, b in zip(several.rows, one.rows):
        assert (a.tokens, a.absmax, a.zeros, a.inactive) == (b.tokens, b.absmax, b.zeros, b.inactive)
        assert a.mean == pytest.approx(b.mean) and a.std == pytest.approx(b.std)


def test_the_model_is_as_before_also_its_running_statistics() -> None:
    model = convolutions().train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    fxdebug.activations(model, torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert torch.equal(torch.random.get_rng_state(), state) and model.training
    assert all("forward" not in vars(module) for module in model.modules())


def test_an_exception_of_the_model_passes_through() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fxdebug.activations(Functional(), torch.randn(5, 7))


# A4: outliers -------------------------------------------------------------------------------------


def test_a4_a_planted_channel_is_named_and_a_clean_model_has_none() -> None:
    model = gpt2()
    clean = fxdebug.activations(model, IDS)
    assert clean.findings == () and {row.channels for row in clean.rows} <= {0, None}
    with torch.no_grad():
        model.transformer.h[0].mlp.c_proj.bias[3] = 50
    report = fxdebug.activations(model, IDS)
    assert rules(report) == [("outlier channel", "transformer.h.0.mlp.c_proj#0")]
    finding = report.findings[0]
    assert finding.what.startswith("channel [3] of 64") and finding.measured == 1.0
    assert {"transformer.h.0#0", "transformer.h.1#0"} <= set(finding.others)


def test_a4_three_deviations_would_flag_a_clean_model_and_ten_robust_ones_do_not() -> None:
    report = fxdebug.activations(gpt2(), IDS)
    by_call = {row.call: row for row in report.rows}
    assert by_call["transformer.h.0#0"].outliers == by_call["transformer.h.1#0"].outliers == 0


def test_a4_a_massive_activation_is_advice() -> None:
    class Massive(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            x[0, 5, 7] = 5000.0
            return x

    report = fxdebug.activations(nn.Sequential(Massive()), torch.randn(2, 64, 32))
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("massive activation", "advice")]
    assert "in channel 7" in report.findings[0].what


def test_wide_channels_that_are_all_large_are_no_outliers() -> None:
    assert fxdebug.activations(nn.Sequential(nn.Identity()), torch.randn(100, 32) * 50).findings == ()
    assert outlier_channels(None, fxdebug.features.shared.units.findings.ActivationLimits()) is None  # type: ignore[attr-defined]


# Dead units, saturation ---------------------------------------------------------------------------


def test_a_dead_unit_is_found_by_its_number_also_on_few_tokens() -> None:
    model = Functional()
    with torch.no_grad():
        model.up.bias[5] = -100
    report = fxdebug.activations(model, torch.randn(32, 8))
    assert ("dead unit", "Functional#0/relu") in rules(report)
    assert next(f for f in report.findings if f.rule == "dead unit").what.startswith("unit [5] of 16 is never active")


def test_a_dead_unit_of_gelu_is_found() -> None:
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.bias[7] = -1e4
    report = fxdebug.activations(model, IDS)
    dead = [finding for finding in report.findings if finding.rule == "dead unit"]
    assert [(finding.path, finding.what[:8]) for finding in dead] == [("transformer.h.1.mlp.act", "unit [7]")]


def test_a_unit_that_is_off_on_few_tokens_is_inactive_and_not_dead() -> None:
    x = torch.randn(40, 8)
    x[:, 2] = -x[:, 2].abs()
    report = fxdebug.activations(nn.Sequential(nn.ReLU()), x)
    assert report.findings == () and (report.rows[0].inactive, report.rows[0].dead) == (1, 0)
    assert any("never active on 40 samples" in note.what for note in report.notes)
    many = fxdebug.activations(nn.Sequential(nn.ReLU()), batches=[x.repeat(10, 1)] * 3)
    assert rules(many) == [("dead unit", "0#0")] and many.rows[0].dead == 1


def test_two_tokens_tell_nothing_of_how_far_below_0_a_unit_lies() -> None:
    x = torch.tensor([[-1.0, 1.0], [-1.01, 2.0]])  # 140 deviations below 0, of two numbers
    report = fxdebug.activations(nn.Sequential(nn.ReLU()), x)
    assert report.findings == () and (report.rows[0].inactive, report.rows[0].dead) == (1, 0)


def test_a_dead_channel_of_a_convolution_is_found() -> None:
    model = convolutions().eval()
    with torch.no_grad():
        model[1].bias[4] = -100  # type: ignore[union-attr, index, operator]
    assert rules(fxdebug.activations(model, torch.randn(4, 3, 8, 8)))[0] == ("dead unit", "2#0")


@pytest.mark.parametrize("function", [nn.Sigmoid(), nn.Tanh()])
def test_saturation_is_found_and_moderate_inputs_are_none(function: nn.Module) -> None:
    x = torch.randn(64, 16)
    assert rules(fxdebug.activations(nn.Sequential(function), x)) == []
    report = fxdebug.activations(nn.Sequential(function), 60 * x)
    assert rules(report) == [("saturated", "0#0")] and report.rows[0].saturated > 80


def healthy() -> list[tuple[nn.Module, Any]]:
    torch.manual_seed(0)
    bert = transformers.BertModel(
        transformers.BertConfig(
            num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=1000
        )
    )
    mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    return [
        (gpt2(), IDS), (bert.eval(), IDS), (convolutions(), torch.randn(4, 3, 8, 8)), (mlp, torch.randn(64, 8)),
        (Functional(), torch.randn(16, 8)),
    ]  # fmt: skip


def test_healthy_models_have_no_findings() -> None:
    assert [rules(fxdebug.activations(model, inputs)) for model, inputs in healthy()] == [[]] * 5


# A1: heatmaps, pictures ----------------------------------------------------------------------------


def test_a1_a_heatmap_has_the_largest_of_each_block() -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn by the extra plot")
    from fxdebug.features.activations.picture import draw_heatmap

    matrix = np.arange(2500 * 40, dtype=float).reshape(2500, 40)
    image = draw_heatmap(matrix, "large").axes[0].images[0].get_array()
    expected = np.stack([matrix[start : start + 3].max(0) for start in range(0, 2500, 3)])
    assert (np.asarray(image) == expected).all()
    small = torch.randn(6, 5).double().numpy()
    assert (np.asarray(draw_heatmap(small, "small").axes[0].images[0].get_array()) == small).all()


def test_a1_more_dimensions_need_a_word_on_how_to_reduce_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn by the extra plot")
    tensor = torch.randn(2, 3, 4, 5)
    with pytest.raises(UsageError, match=r"2×3×4×5 has 4 dimensions.*reduce='mean'"):
        fxdebug.heatmap(tensor, tmp_path / "t.png")
    assert torch.equal(reduced(tensor, "max"), tensor.amax((0, 1))) and torch.equal(
        reduced(tensor, "first"), tensor[0, 0]
    )
    assert fxdebug.heatmap(tensor, tmp_path / "t.png", reduce="absmax").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UsageError, match="empty"):
        fxdebug.heatmap(torch.empty(0, 3), tmp_path / "t.png")


def test_the_histograms_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn by the extra plot")
    assert fxdebug.activations(gpt2(), IDS).plot(tmp_path / "a.png").stat().st_size > 10_000


# Trained models -----------------------------------------------------------------------------------


class Reads(nn.Module):
    """A function with bounds whose result is read in one of several ways."""

    def __init__(self, function: Any, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.conv = nn.Linear(8, 16), nn.Linear(16, 4), nn.Conv1d(1, 2, 3)
        self.function, self.how = function, how

    def forward(self, x: torch.Tensor) -> Any:
        y = self.function(self.first(x))
        ways = {
            "layer": lambda: self.second(y),
            "layer behind dropout and view": lambda: self.second(torch.dropout(y, 0.1, True).view(-1, 16)),
            "layer behind cat": lambda: self.second(torch.cat([y[:, :8], y[:, 8:]], 1)),
            "convolution": lambda: self.conv(y[:, None]),
            "product of matrices": lambda: y @ self.second.weight.T,
            "gate": lambda: self.second(y * self.first(x)),
            "gate of its complement": lambda: self.second((1 - y) * self.first(x)),
            "answer": lambda: y,
            "answer of a part": lambda: y[:, :3],
        }
        return ways[self.how]()


@pytest.mark.parametrize("function", [nn.Sigmoid(), torch.sigmoid, nn.Tanh(), torch.tanh], ids=lambda f: str(f)[:15])
@pytest.mark.parametrize(
    "how, severity",
    [
        ("layer", "warning"), ("layer behind dropout and view", "warning"), ("layer behind cat", "warning"),
        ("convolution", "warning"), ("product of matrices", "warning"), ("gate", "advice"),
        ("gate of its complement", "advice"), ("answer", "advice"), ("answer of a part", "advice"),
    ],
)  # fmt: skip
def test_a_function_at_its_bounds_is_a_warning_where_weights_read_it(function: Any, how: str, severity: str) -> None:
    model, x = Reads(function, how), 200 * torch.randn(32, 8)
    for is_trained in (False, True):  # of a model whose weights are as torch drew them, answers are sure of nothing
        if is_trained:
            with torch.no_grad():
                model.second.weight[0, 0] = 1.0
        findings = fxdebug.activations(model, x).findings
        found = [finding.severity for finding in findings if finding.rule == "saturated"]
        assert found == [severity if is_trained else "warning"]


def test_an_answer_that_is_always_no_is_no_dead_unit() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid())
    with torch.no_grad():
        model[0].bias[3] = -100
    assert "dead unit" not in [finding.rule for finding in fxdebug.activations(model, torch.randn(2000, 8)).findings]


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("samples, expected", [(32, []), (127, []), (128, ["dead unit"])])
def test_a_unit_is_dead_by_the_deviations_of_its_input_on_128_samples(
    samples: int, expected: list[str], images: bool
) -> None:
    """No bias tells: the unit is off because of its weights."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 8, 1, bias=False) if images else nn.Linear(2, 8, bias=False)
    x = 1 + 0.05 * torch.randn(samples, 2, *((4, 4) if images else ()))
    with torch.no_grad():
        layer.weight.copy_(layer.weight.abs())
        layer.weight[3] *= -1
    report = fxdebug.activations(nn.Sequential(layer, nn.ReLU()), x)
    assert [(f.rule, f.severity) for f in report.findings] == [(rule, "advice") for rule in expected]


def test_a_dead_unit_is_a_warning_by_its_bias_or_where_the_layer_is_dead() -> None:
    for biases, severity in (({3: -5.0}, "warning"), (dict.fromkeys(range(16), -5.0), "warning")):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        with torch.no_grad():
            for unit, bias in biases.items():
                model[0].bias[unit] = bias
        findings = fxdebug.activations(model, 0.3 * torch.randn(256, 8)).findings
        assert [finding.severity for finding in findings if finding.rule == "dead unit"] == [severity]


def test_large_channels_of_a_trained_model_are_one_piece_of_advice() -> None:
    model = gpt2()
    with torch.no_grad():
        for block in model.transformer.h:
            block.mlp.c_proj.bias[3] = 50
    (finding,) = [f for f in fxdebug.activations(model, IDS).findings if f.rule == "outlier channel"]
    assert finding.severity == "advice" and len(finding.others) > 3
