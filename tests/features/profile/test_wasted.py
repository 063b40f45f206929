"""Work that a run does without need is named first, with its line; twins without it are quiet. Times are work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.by_work import findings_by_work
from support.slow_models import SLOW, TUNED
from support.wasted_models import (
    BY_RULE,
    CASES,
    SQUARES,
    Made,
    dropped,
    layers_in_a_line,
    many,
    right_einsum,
    wrong_einsum,
)

NAMED = [name for name, slow in SLOW.items() if slow.rules and name != "more threads than cores"]


@pytest.mark.parametrize("name", NAMED)
def test_the_cause_of_a_slow_model_is_named_first_and_its_twin_is_quiet(name: str) -> None:
    slow = SLOW[name]
    found = {}
    for fixed in (False, True):
        torch.manual_seed(0)
        model, args, loss, _ = slow.build(fixed)
        found[fixed] = findings_by_work(model, args, loss)
    first = found[False][0]
    assert first.rule in slow.rules
    assert first.source is not None and "slow_models.py" in first.source
    assert [finding.rule for finding in found[True]] == []


@pytest.mark.parametrize("name", TUNED)
def test_nothing_is_told_of_tuned_models(name: str) -> None:
    torch.manual_seed(0)
    model, args = TUNED[name]()
    assert findings_by_work(model.eval(), args) == ()


@pytest.mark.parametrize(("rule", "slow", "fixed", "layer", "args"), CASES, ids=[case[1].__name__ for case in CASES])
def test_work_without_need_is_found_and_not_where_it_is_not(
    rule: str, slow: Any, fixed: Any, layer: Any, args: tuple[Tensor, ...]
) -> None:
    first = findings_by_work(Made(slow, layer=layer()).eval(), args)[0]
    assert (first.rule, first.unit) == (rule, "%")
    assert first.source is not None and "wasted_models.py" in first.source
    assert "time is at stake" in first.what and "?" in first.advice
    assert findings_by_work(Made(fixed, layer=layer()).eval(), args) == ()


def test_the_order_of_an_einsum_is_a_finding_where_torch_does_not_choose_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", False)
    assert [f.rule for f in findings_by_work(Made(wrong_einsum), SQUARES)] == ["order of products"]
    assert findings_by_work(Made(right_einsum), SQUARES) == ()


def test_dropout_that_runs_without_a_loss_is_asked_about_and_not_with_one_or_in_eval_mode() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    assert [f.rule for f in findings_by_work(Made(dropped), (x,))] == ["training mode"]
    assert findings_by_work(Made(dropped).eval(), (x,)) == ()
    assert findings_by_work(Made(dropped), (x,), lambda out: out.sum()) == ()


def test_dropout_that_drops_in_eval_mode_is_asked_about() -> None:
    def drops_always(self: Any, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.1)

    (finding,) = findings_by_work(Made(drops_always).eval(), (torch.randn(64, 64),))
    assert finding.rule == "training mode" and "in eval mode" in finding.what


def test_parts_of_a_tensor_whose_backward_fills_all_of_it_are_asked_about_and_not_without_a_loss() -> None:
    def takes(self: Any, x: Tensor) -> Tensor:
        y = self.layer(x)
        return torch.stack([y[:, step] for step in range(y.shape[1])], 1)

    def unbinds(self: Any, x: Tensor) -> Tensor:
        return torch.stack(self.layer(x).unbind(1), 1)

    x, loss = torch.randn(4, 32, 64), lambda out: out.square().sum()
    finding = findings_by_work(Made(takes, layer=nn.Linear(64, 64)), (x,), loss)[0]
    assert finding.rule == "dense gradient" and finding.what.startswith("32 parts are taken of float32[4, 32, 64]")
    assert findings_by_work(Made(unbinds, layer=nn.Linear(64, 64)), (x,), loss) == ()


def test_a_thin_product_that_is_added_to_a_weight_in_each_step_is_asked_about_and_not_without_a_loss() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(256, 256), requires_grad=False)
            self.a, self.b = nn.Parameter(torch.randn(4, 256)), nn.Parameter(torch.zeros(256, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.linear(x, self.weight + 2.0 * (self.b @ self.a))

    x = torch.randn(8, 256)
    (finding,) = findings_by_work(Adapted(), (x,), lambda out: out.sum())
    assert finding.rule == "order of products" and "float32[256, 4] and float32[4, 256]" in finding.what
    assert [one.rule for one in findings_by_work(Adapted().eval(), (x,))] == ["same in each run"]


def test_attention_whose_mask_hides_nearly_all_pairs_is_asked_about_and_not_with_half_of_them() -> None:
    class Attends(nn.Module):
        def __init__(self, window: int) -> None:
            super().__init__()
            place = torch.arange(300)
            self.register_buffer("mask", (place[:, None] - place).abs() < window)

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)  # type: ignore[arg-type]

    x = torch.randn(1, 2, 300, 16)
    (finding,) = findings_by_work(Attends(8).eval(), (x,))
    assert finding.rule == "mostly zeros" and "its mask mask hides 95.1 %" in finding.what
    assert findings_by_work(Attends(150).eval(), (x,)) == ()


def test_a_cell_whose_word_is_chosen_by_the_step_before_is_no_loop_over_time() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.cell, self.last = nn.Embedding(50, 32), nn.GRUCell(32, 32), nn.Linear(32, 50)

        def forward(self, h: Tensor) -> Tensor:
            word = torch.zeros(len(h), dtype=torch.long)
            for _ in range(24):
                h = self.cell(self.words(word), h)
                word = self.last(h).argmax(-1)
            return h

    assert findings_by_work(Writes().eval(), (torch.randn(4, 32),)) == ()


def test_the_anomaly_mode_is_told_of_a_step_with_a_graph_and_not_of_one_without() -> None:
    model, args = nn.Linear(8, 8), (torch.randn(4, 8),)
    with torch.autograd.set_detect_anomaly(True):  # type: ignore[no-untyped-call]
        assert [f.rule for f in findings_by_work(model, args, lambda out: out.sum())] == ["anomaly mode"]
        with torch.no_grad():
            assert findings_by_work(model, args) == ()
    assert findings_by_work(model, args, lambda out: out.sum()) == ()


def test_steps_that_need_earlier_ones_in_a_small_part_of_their_work_are_not_told_that_none_needs_another() -> None:
    def sums_up(self: Any, x: Tensor) -> Tensor:
        h = torch.zeros(4, 64)
        for step in range(x.shape[1]):
            h = h * 0.9 + self.layer(x[:, step])
        return h

    (finding,) = findings_by_work(Made(sums_up, layer=nn.Linear(64, 64)).eval(), (torch.randn(4, 40, 64),))
    assert "of whose work needs no earlier step" in finding.what


def test_steps_that_read_what_earlier_ones_wrote_need_them() -> None:
    def writes(self: Any, x: Tensor) -> Tensor:
        out = torch.zeros(41, 64)
        for step in range(40):
            out[step + 1] = torch.tanh(out[step].sin() + out.sum(0))
        return out

    (finding,) = findings_by_work(Made(writes).eval(), (torch.randn(4, 64),))
    assert (finding.rule, "each of which needs the one before" in finding.what) == ("loop over time", True)


def test_dtypes_and_subnormal_numbers_that_are_slow_on_the_cpu_are_asked_about() -> None:
    of_lstm = findings_by_work(nn.LSTM(64, 64).bfloat16(), (torch.randn(64, 8, 64).bfloat16(),))
    assert of_lstm == ()
    for rule in ("float16 on the CPU", "bfloat16 on the CPU", "subnormal"):
        assert [f.rule for f in findings_by_work(*BY_RULE[rule]())] == [rule]


def test_a_random_operation_and_memory_that_is_written_are_no_repeated_work() -> None:
    def draws(self: Any, x: Tensor) -> Tensor:
        first, second = torch.zeros(64, 64), torch.zeros(64, 64)
        first[0], second[0] = x[0], x[1]
        return first @ second + torch.rand(64, 64) + torch.rand(64, 64)

    assert findings_by_work(Made(draws), (torch.randn(64, 64),)) == ()


def test_layers_with_weights_of_their_own_are_no_loop_over_rows_or_time() -> None:
    assert findings_by_work(Made(layers_in_a_line, layer=many()), (torch.randn(2, 64),)) == ()
    assert findings_by_work(nn.Sequential(*[nn.Linear(8, 8) for _ in range(40)]), (torch.randn(2, 8),)) == ()


def test_a_model_that_returns_no_tensor_is_not_told_that_its_results_are_unused() -> None:
    def returns_text(self: Any, x: Tensor) -> str:
        self.seen = self.layer(x)
        return "done"

    assert findings_by_work(Made(returns_text, layer=nn.Linear(64, 64)), (torch.randn(8, 64),)) == ()
