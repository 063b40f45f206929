"""``fxdebug.compare_gradients``: planted differences between two steps, and twins that are equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fxdebug

torch.manual_seed(7)
X, Y = torch.randn(12, 8), torch.randint(0, 3, (12,))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def step(model: nn.Module, rows: slice = slice(None), scale: float = 1.0) -> nn.Module:
    (nn.functional.cross_entropy(model(X[rows]), Y[rows]) * scale).backward()
    return model


def changed(change: Callable[[nn.Module], object]) -> nn.Module:
    model = step(net())
    with torch.no_grad():
        change(model)
    return model


def grad_of(model: nn.Module, name: str) -> Tensor:
    grad = model.get_parameter(name).grad
    assert grad is not None
    return grad


def decayed(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        grad_of(model, name).add_(parameter, alpha=0.01)


def answer(b: nn.Module) -> str:
    return fxdebug.compare_gradients(step(net()), b).answer


def accumulated(*cuts: int) -> nn.Module:
    model = net()
    for start, end in zip((0, *cuts), (*cuts, 12)):
        step(model, slice(start, end))
    return model


def test_equal_steps_are_equal_and_have_no_finding() -> None:
    report = fxdebug.compare_gradients(step(net()), step(net()))
    assert report.answer == "all gradients of b are those of a (6 parameters)" and not report.findings


@pytest.mark.parametrize(
    ("b", "said"),
    [
        (lambda: accumulated(3, 6, 9), "a × 4 (6 parameters), as a sum over 4"),
        (lambda: accumulated(2, 9), "not one factor: between"),
        (lambda: step(net(), scale=0.5), "a × 0.5 (6 parameters), as averaging over 2"),
        (lambda: step(net(), scale=65536.0), "a × 65536 (6 parameters), as the loss scale 65536 leaves it"),
        (lambda: changed(lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.1)), "as clipping to 0.1 leaves it"),
        (lambda: changed(lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.02)), "limited to ±0.02"),
        (lambda: changed(decayed), "a + 0.01 times the weight"),
        (lambda: changed(lambda m: grad_of(m, "3.weight").fill_(torch.nan)), "3.weight is not finite in b alone"),
        (lambda: changed(lambda m: grad_of(m, "0.weight").mul_(1.1)), "0.weight (× 1.1); the other 5 are equal"),
        (lambda: step(net()[:]), "all gradients of b are those of a (6"),
    ],
)  # fmt: skip
def test_what_holds_between_two_steps_is_said(b: Callable[[], nn.Module], said: str) -> None:
    assert said in answer(b())


def test_a_frozen_layer_is_named_on_its_side() -> None:
    model = net()
    model[0].requires_grad_(False)
    assert "0.bias, 0.weight have no gradient in b, and one in a (frozen)" in answer(step(model))


class Deep(nn.Module):
    def __init__(self, checkpointed: bool, keep: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)) for _ in range(3)])
        self.head, self.checkpointed, self.keep = nn.Linear(8, 3), checkpointed, keep

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            again = self.checkpointed and number == 1
            x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=self.keep) if again else layer(x)
        out: Tensor = self.head(x)
        return out


def seeded(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return step(model)


def test_recomputation_that_draws_other_numbers_is_placed_and_its_twin_is_quiet() -> None:
    plain = seeded(Deep(False))
    assert not fxdebug.compare_gradients(plain, seeded(Deep(True))).findings
    said = fxdebug.compare_gradients(plain, seeded(Deep(True, keep=False))).answer
    assert "differ: the first in the order of the backward is layers." in said and "are equal" in said


class Cut(nn.Module):
    def __init__(self, cut: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.cut = nn.Linear(8, 8), nn.Linear(8, 3), cut

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x)
        if self.cut == "detach":
            hidden = hidden.detach() * 2
        if self.cut == "logged":
            hidden.detach().mean()
        out: Tensor = self.b(hidden)
        return out


def loss(output: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, Y)


def test_the_line_at_which_a_gradient_stops_is_named() -> None:
    report = fxdebug.gradients(Cut("detach"), X, loss)
    (finding,) = [one for one in report.findings if one.rule == "not reached"]
    assert finding.path == "a" and finding.what.endswith("it stops at detach")
    assert finding.source is not None and "test_compare_gradients.py" in finding.source
    assert any(one.rule == "not reached" for one in fxdebug.check(Cut("detach"), X, loss=loss))
    said = fxdebug.compare_gradients(Cut(""), Cut("detach"), X, loss).answer
    assert "a.bias, a.weight have no gradient in b" in said and "it stops at detach" in said


def test_a_reentrant_checkpoint_that_cuts_gradients_is_named_beside_a_plain_model() -> None:
    class Lean(nn.Module):
        def __init__(self, lean: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.last, self.lean = nn.Linear(4, 4), nn.Linear(4, 3), lean

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(self.first, x, use_reentrant=True) if self.lean else self.first(x))

    said = fxdebug.compare_gradients(Lean(False), Lean(True), torch.ones(3, 4), lambda out: out.square().sum()).answer
    stops = "it stops in a reentrant checkpoint none of whose inputs asks for gradients, at linear in first"
    assert "first.bias, first.weight have no gradient in b" in said and stops in said


def test_a_detached_copy_that_is_only_logged_stops_nothing() -> None:
    assert not fxdebug.gradients(Cut("logged"), X, loss).findings


def test_runs_with_gradients_are_compared_by_norms() -> None:
    a, b = (fxdebug.gradients(net(), X, lambda out, k=k: k * loss(out)) for k in (1, 2))
    runs = [fxdebug.fx_debug(net(), X).with_measures(report) for report in (a, b)]
    assert fxdebug.compare_gradients(*runs).answer.startswith("all gradients of b are those of a × 2 (6 parameters)")


def test_gradients_of_two_dtypes_are_never_told_to_differ() -> None:
    narrow = net().bfloat16()
    nn.functional.cross_entropy(narrow(X.bfloat16()).float(), Y).backward()
    said = fxdebug.compare_gradients(step(net()), narrow).answer
    assert said.startswith(("cannot tell whether the gradients differ", "all gradients of b are those of a"))


def test_clipping_before_the_loss_scale_is_taken_off_is_read_as_such() -> None:
    def clipped(scale: float, unscaled_first: bool) -> nn.Module:
        model = step(net(), scale=scale)
        weights = list(model.parameters())
        for divided in (unscaled_first, not unscaled_first):
            if divided:
                for weight in weights:
                    assert weight.grad is not None
                    weight.grad /= scale
            else:
                nn.utils.clip_grad_norm_(weights, 0.1)
        return model

    told = fxdebug.compare_gradients(clipped(1.0, True), clipped(4096.0, False)).answer
    assert told.startswith(
        "all gradients of b are those of a × 0.0002441 (6 parameters), a power of two, as clipping to 0.1"
    )
    assert "before the loss scale is taken off" in told
    assert not fxdebug.compare_gradients(clipped(1.0, True), clipped(4096.0, True)).findings


def test_a_norm_that_was_clipped_before_the_scale_is_taken_off_is_read_where_the_other_was_not_clipped() -> None:
    plain, scaled = step(net(), scale=1.0), step(net(), scale=65536.0)
    nn.utils.clip_grad_norm_(scaled.parameters(), 1.0)
    for weight in scaled.parameters():
        assert weight.grad is not None
        weight.grad /= 65536
    told = fxdebug.compare_gradients(plain, scaled).answer
    assert told.endswith(
        ": b has a total norm of 1 / 65536, as clipping to 1 leaves it before the loss scale 65536 is taken off "
        "(unscale_ first)"
    )
