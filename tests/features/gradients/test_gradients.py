"""``fxdebug.gradients``: rows D1 to D4 of the analyses, and planted faults by name."""

from __future__ import annotations

import copy
import itertools
import linecache
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fxdebug
from fxdebug.features.shared.gradients.clipping import clipping_advice
from zoo.zoo_sample import entries

transformers = pytest.importorskip("transformers", reason="the rows' fixture is a model of transformers")

IDS = torch.arange(64).reshape(2, 32)


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    model: nn.Module = transformers.BertForSequenceClassification(config).train()
    return model


BATCH = {"input_ids": IDS, "labels": torch.tensor([0, 1])}


def chain(activation: Callable[[], nn.Module], start: Callable[[Tensor], Any] | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(10)]
    if start is not None:
        for layer in layers:
            start(layer.weight)
    return nn.Sequential(*itertools.chain.from_iterable((layer, activation()) for layer in layers))


def of_sum(output: Tensor) -> Tensor:
    return output.sum()


def rules(report: fxdebug.Report[Any]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in report.findings]


def test_d1_norms_are_those_of_the_gradients_and_of_torch() -> None:
    model = bert()
    rng = torch.get_rng_state()
    report = fxdebug.gradients(model, BATCH)
    assert torch.equal(torch.get_rng_state(), rng) and all(p.grad is None for p in model.parameters())
    twin = bert()
    torch.set_rng_state(rng)
    loss = twin(**BATCH).loss
    loss.backward()
    own = {name: p.grad for name, p in twin.named_parameters()}
    assert report.totals["loss"][0] == loss.item()
    for row in report.parts[0].rows:
        assert row.norm == pytest.approx(float(own[row.name].norm()), rel=1e-5, abs=1e-12), row.name
    total = torch.nn.utils.get_total_norm([g for g in own.values() if g is not None])
    assert report.totals["total norm"][0] == pytest.approx(float(total), rel=1e-5)


def test_d1_gradients_of_activations_are_those_of_hooks() -> None:
    model = bert().eval()
    seen: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_full_backward_hook(lambda m, i, o, name=name: seen.__setitem__(f"{name}#0", o[0].clone()))
    report = fxdebug.gradients(model, BATCH)
    rows = {row.call: row for row in report.rows}
    assert len(seen) == 26
    for call, gradient in seen.items():
        assert rows[call].norm == pytest.approx(float(gradient.norm()), rel=1e-5, abs=1e-12), call


def test_d1_loss_and_gradients_are_bit_equal_with_the_probe_on() -> None:
    from fxdebug.capture.recorder.module_names import Sites
    from fxdebug.capture.runs.attach import Attached
    from fxdebug.features.shared.gradients.value_gradients import ValueGradients

    def step(watched: bool) -> list[Tensor]:
        model = bert()
        torch.manual_seed(1)
        if not watched:
            model(**BATCH).loss.backward()
        else:
            probe = ValueGradients(Sites(model))
            with Attached(probe, Sites(model)), probe:
                loss = model(**BATCH).loss
            loss.backward()
            probe.forget()
        return [*(p.grad for p in model.parameters() if p.grad is not None), torch.get_rng_state()]

    assert all(map(torch.equal, step(False), step(True)))


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_d2_a_stack_of_sigmoids_vanishes_at_any_scale_of_the_loss(scale: float) -> None:
    report = fxdebug.gradients(chain(nn.Sigmoid), torch.randn(8, 64), lambda output: output.sum() * scale)
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.path) == ("vanishing", "error", "0")
    assert finding.measured == pytest.approx(0.86, abs=0.1)


def test_d2_too_large_weights_explode() -> None:
    report = fxdebug.gradients(
        chain(nn.Identity, lambda weight: nn.init.normal_(weight, std=1.0)), torch.randn(8, 64), of_sum
    )
    (finding,) = report.findings
    assert (finding.rule, finding.path) == ("exploding", "0")


def test_d2_healthy_models_have_no_finding() -> None:
    he = chain(nn.ReLU, lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"))
    assert rules(fxdebug.gradients(he, torch.randn(8, 64), of_sum)) == []
    assert rules(fxdebug.gradients(bert(), BATCH)) == []


def test_d2_the_bias_of_keys_is_structurally_zero_and_not_vanishing() -> None:
    report = fxdebug.gradients(bert(), BATCH)
    zero = [row.name for row in report.parts[0].rows if row.state == "structurally zero"]
    assert zero == [f"bert.encoder.layer.{i}.attention.self.key.bias" for i in range(4)]


def test_d3_frozen_and_unused_parameters_are_told_apart() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            self.cut, self.head, self.spare = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.encoder(x)
            output: Tensor = self.head(x) + self.cut(x).detach()
            return output

    model = Model()
    model.encoder.requires_grad_(False)
    report = fxdebug.gradients(model, torch.ones(2, 4), of_sum)
    assert rules(report) == [("not reached", "cut"), ("frozen", "encoder"), ("not called", "spare")]
    assert report.findings[0].what.endswith("it stops at detach")
    assert [row.state for row in report.parts[0].rows] == (
        ["frozen"] * 4 + ["not reached"] * 2 + ["trained"] * 2 + ["not called"] * 2
    )
    assert report.findings[1].measured == pytest.approx(40)


def test_d3_layers_and_experts_that_do_not_learn_are_one_finding_each() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])
            self.head = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.frozen:
                x = layer(x)
            output: Tensor = self.head(self.experts[1](x) + self.experts[5](x))
            return output

    model = Experts()
    model.frozen.requires_grad_(False)
    model.frozen[2].requires_grad_(True)
    frozen, unused = fxdebug.gradients(model, torch.ones(2, 4), of_sum).findings
    assert (frozen.rule, frozen.path) == ("frozen", "frozen.0")
    assert frozen.what.startswith("4 parameters of frozen.0, frozen.1 (")
    assert (unused.rule, unused.path) == ("not called", "experts.0") and "router" in unused.advice
    assert unused.what.startswith("12 parameters of experts.0, experts.2, experts.3, … 6 in all (")


def test_d3_updates_are_those_of_the_optimizer_which_takes_no_step() -> None:
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    model(**BATCH).loss.backward()
    optimizer.step()
    schedule.step()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), schedule.state_dict()))
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    rng = torch.get_rng_state()
    report = fxdebug.gradients(model, BATCH, optimizer=optimizer)
    after = model.state_dict(), optimizer.state_dict(), schedule.state_dict()
    assert repr(after) == repr(before)
    assert all(
        torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients) if g is not None and p.grad is not None
    )

    torch.set_rng_state(rng)
    optimizer.zero_grad()
    model(**BATCH).loss.backward()
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    for row in report.parts[0].rows:
        parameter = model.get_parameter(row.name).detach()
        if float(old[row.name].norm()):
            ratio = float((parameter - old[row.name]).norm() / old[row.name].norm())
            assert row.update == pytest.approx(ratio, rel=1e-3, abs=1e-9), row.name


def test_d3_a_learning_rate_a_hundred_times_too_high_is_found() -> None:
    for factor, expected in ((1, set()), (100, {"update too large"})):
        model = bert()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4 * factor)
        assert {rule for rule, _ in rules(fxdebug.gradients(model, BATCH, optimizer=optimizer))} == expected


def test_d4_clipping_cuts_spikes_and_leaves_the_rest() -> None:
    advice = clipping_advice([1.0] * 100 + [50.0] * 5)
    assert advice.max_norm is not None and 1 <= advice.max_norm <= 1.5 and 0 < advice.clipped <= 10
    assert "clip_grad_norm_(model.parameters(), max_norm=1)" in advice.advice
    assert clipping_advice([1.0, 1.1, 0.9] * 20).advice.startswith("not needed")
    assert clipping_advice([1.0] * 19 + [math.nan]).advice == "insufficient data: 19 steps, at least 20 are needed"
    report = fxdebug.gradients(nn.Linear(2, 2), torch.ones(1, 2), of_sum, history=[1.0] * 100 + [50.0] * 5)
    assert report.totals["clipping"][0] == advice.advice


def test_the_operation_whose_backward_makes_nan_is_named_with_its_line() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return torch.sqrt(y - y.detach()) * 2  # the derivative of a root is infinite at 0

    report = fxdebug.gradients(nn.Sequential(nn.Linear(3, 3), Root()), torch.ones(2, 3), of_sum)
    finding = report.findings[0]
    assert (finding.rule, finding.path, finding.op) == ("backward not finite", "1", "sqrt")
    assert finding.source is not None and "test_gradients.py" in finding.source
    assert finding.measured == 6


def test_a_gradient_too_small_for_its_dtype_is_found() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).half()
    report = fxdebug.gradients(model, torch.randn(4, 8).half(), lambda output: output.float().sum() * 1e-6)
    assert ("gradient underflow", "0") in rules(report) or ("gradient underflow", "1") in rules(report)


@pytest.mark.parametrize(
    "loss, said",
    [
        (lambda output: output, r"a tensor of shape \(2, 3\)"),
        (lambda output: 3.0, "a float"),
        (None, "returned a Tensor without a loss"),
    ],
)
def test_a_loss_that_is_no_scalar_is_a_clear_error(loss: Any, said: str) -> None:
    with pytest.raises(fxdebug.UsageError, match=said):
        fxdebug.gradients(nn.Linear(4, 3), torch.ones(2, 4), loss)


def test_a_model_without_data_is_a_clear_error() -> None:
    with pytest.raises(fxdebug.UsageError, match="meta device"):
        fxdebug.gradients(nn.Linear(4, 3, device="meta"), torch.ones(2, 4), of_sum)


HEALTHY = ("hf/bert/", "hf/gpt2/", "hf/llama/", "hf/t5/", "hf/vit/", "hf/convnext/", "layers/attention")


@pytest.mark.parametrize(
    "name, build",
    [entry for entry in entries(False) if entry[0].startswith(HEALTHY)],
    ids=lambda x: x if type(x) is str else "",
)
def test_zoo_models_have_no_warning(name: str, build: Callable[[], Any]) -> None:
    model, inputs = build()
    with torch.enable_grad():
        report = fxdebug.gradients(model, inputs, fxdebug.api.mean_of_output)
    assert [finding for finding in report.findings if finding.severity != "advice"] == []


class Adapted(nn.Module):
    """Layers with adapters behind a frozen embedding, each in a checkpoint, and a head."""

    def __init__(self, **checkpoints: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(10, 8).requires_grad_(False)
        self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 2)
        self.unused = nn.Linear(8, 8)
        self.checkpoints = checkpoints

    def forward(self, words: Tensor) -> Any:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, **self.checkpoints) if self.checkpoints else layer(x)
        self.unused(x)
        return self.head(x)


@pytest.mark.parametrize(
    "checkpoints, severity", [({"use_reentrant": True}, "warning"), ({"use_reentrant": False}, None), ({}, None)]
)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_that_cuts_the_gradient_is_named(checkpoints: Any, severity: str | None) -> None:
    report = fxdebug.gradients(Adapted(**checkpoints), torch.arange(6).view(2, 3), lambda output: output.mean())
    found = {
        f.path: (f.severity, "use_reentrant=False" in f.advice) for f in report.findings if f.rule == "not reached"
    }
    assert found == {"unused": ("advice", False)} | ({"layers": (severity, True)} if severity else {})


class Masked(nn.Module):
    """The entropy of a softmax some of whose elements are masked, and left out behind it."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.right, self.scores = right, nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.arange(5) < 3
        p = self.scores(x).masked_fill(~seen, -torch.inf).softmax(-1)
        log = torch.where(seen, p, 1.0).log() if self.right else p.log()
        return torch.where(seen, p * log, 0.0).sum(-1)


def test_gradients_of_zero_that_meet_an_infinite_element_are_told_as_such() -> None:
    x = torch.randn(6, 4)
    (finding,) = fxdebug.gradients(Masked(right=False), x, torch.mean).findings
    assert finding.what.endswith("the gradients of these elements are 0, and 0 × an Inf of the forward is NaN")
    assert fxdebug.gradients(Masked(right=True), x, torch.mean).findings == ()


def test_nan_of_the_forward_is_told_before_the_backward_that_meets_it() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mha, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 2)

        def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
            return self.out(self.mha(x, x, x, attn_mask=hidden)[0])[
                :, :3
            ]  # the last token, which sees none, is left out

    hidden = torch.tensor([[False] * 4] * 3 + [[True] * 4])
    found = fxdebug.check(Attention(), (torch.randn(2, 4, 8), hidden), torch.mean)
    assert [(one.rule, one.path) for one in found][:2] == [("nan", "mha"), ("backward not finite", "out")]
    assert found[1].what.endswith(": the forward gave it 16 NaN")


class HardlyRounded(nn.Module):
    def __init__(self, straight: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.straight, self.enc, self.dec = straight, nn.Linear(5, 4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        codes = self.enc(x)
        rounded = torch.round(codes * 4)
        return self.dec(codes + (rounded - codes).detach() if self.straight else rounded)


def test_an_operation_whose_derivative_is_0_is_named_where_gradients_are_0_behind_it() -> None:
    x = torch.randn(8, 5)
    (finding,) = fxdebug.gradients(HardlyRounded(straight=False), x, torch.mean).findings
    assert (finding.rule, finding.severity) == ("zero gradient", "warning")
    assert finding.what.endswith("as it comes back through round, whose derivative is 0 everywhere")
    assert finding.source is not None and "test_gradients.py:" in finding.source
    assert fxdebug.gradients(HardlyRounded(straight=True), x, torch.mean).findings == ()


def test_parts_whose_gradients_stop_at_different_places_are_told_apart() -> None:
    class Kept(nn.Module):
        """What a hook keeps of the inner layers is used alone, detached: the last layer is left out altogether."""

        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8))
            self.other, self.kept = nn.Linear(6, 8), [torch.zeros(())]
            self.net[1].register_forward_hook(lambda _, given, result: self.kept.__setitem__(0, result.detach()))

        def forward(self, x: Tensor) -> Tensor:
            self.net(x)
            return self.kept[0] + self.other(x)

    found = fxdebug.gradients(Kept(), torch.randn(4, 6), torch.mean).findings
    assert [(one.rule, one.path, "it stops at detach in net" in one.what) for one in found] == [
        ("not reached", "net.0", True),
        ("not reached", "net.2", False),
    ]


class _Residual(nn.Module):
    """Two quantisers in a row, with gradients that pass as if they were not there."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enc, self.detached = nn.Linear(5, 4), detached

    def forward(self, x: Tensor) -> Tensor:
        latent = self.enc(x)
        codes = latent + (latent.round() - latent).detach()
        rest = latent - (codes.detach() if self.detached else codes)
        return rest.square().mean()


def test_where_gradients_cancel_is_told_of_parameters_whose_gradient_is_0() -> None:
    x = torch.randn(8, 5)
    (finding,) = fxdebug.gradients(_Residual(detached=False), x, lambda output: output).findings
    assert (finding.rule, finding.severity) == ("zero gradient", "warning")
    assert finding.what.endswith(
        "it is exactly 0, as the gradients of sub and add cancel where the result of linear in enc is used"
    )
    assert finding.source is not None and "rest = " in linecache.getline(*_place(finding.source))
    assert not fxdebug.gradients(_Residual(detached=True), x, lambda output: output).findings


def _place(source: str) -> tuple[str, int]:
    file, _, line = source.rpartition(":")
    return file, int(line)


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + torch.exp(200 * x)


def test_a_loss_that_is_not_finite_is_told_with_the_operation_of_the_forward_that_began() -> None:
    (finding, *_) = fxdebug.gradients(_Scaled(), torch.ones(2, 3), torch.mean).findings
    assert (finding.rule, finding.op) == ("loss not finite", "exp")
    assert finding.what == (
        "the loss is inf, and it begins in the forward: exp of up to 200 is beyond the largest float32, 3.4e+38: "
        "6 +Inf of 6 elements"
    )
    of_loss = fxdebug.gradients(_Scaled().net, torch.ones(2, 3), lambda output: output.sum() * torch.inf).findings[0]
    assert of_loss.what.endswith("every gradient behind it is without meaning")


class _TwoTowers(nn.Module):
    """Two parts on one side of a loss that run without gradients, as one encoder that is meant to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text, self.project = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            text = self.project(self.text(x).relu())
        return self.image(x) * text


def test_all_parameters_behind_one_stop_are_one_finding() -> None:
    (finding,) = fxdebug.gradients(_TwoTowers(), torch.ones(2, 3), of_sum).findings
    assert (finding.rule, finding.what) == (
        "not reached",
        "4 parameters of text, project (66.7 % of all elements) got no gradient although their modules ran: it stops "
        "at linear in text with gradients off (no_grad)",
    )


def test_a_loss_that_makes_its_own_nan_is_told_with_the_operation_that_made_it() -> None:
    def entropy(output: Tensor) -> Tensor:
        shares = (output * torch.tensor([0.0, 1.0, 300.0])).softmax(-1)
        return -(shares * shares.log()).sum()

    net = nn.Linear(3, 3)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.fill_(1)
    (finding, *_) = fxdebug.gradients(net, torch.ones(2, 3), entropy).findings
    assert (finding.rule, finding.path, finding.op) == ("loss not finite", "", "log")
    assert finding.what.startswith("the loss is nan, and it begins in the loss: the logarithm of 0")
    assert "test_gradients.py" in (finding.source or "")


class _Share(nn.Module):
    """A loss that is a module, with a layer of its own: it divides by the energy of a target that may be silent."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        target = self.layer(target)
        return ((output * target).sum(-1) / target.square().sum(-1)).log().mean()


def test_a_loss_that_is_a_module_is_told_with_the_operation_that_makes_its_nan() -> None:
    loss = _Share()
    report = fxdebug.gradients(nn.Linear(3, 3), torch.ones(2, 3), lambda out: loss(out, torch.zeros(2, 3)))
    finding = report.findings[0]
    assert (finding.rule, finding.path, finding.op) == ("loss not finite", "<_Share>", "div")
    assert finding.what == "the loss is nan, and it begins in the loss: 0 divided by 0: 2 NaN of 2 elements"
