"""``fxdebug.tune``: three lists, a control, and everything put back. The clock is one that the models move."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import CheckpointFunction, checkpoint

import fxdebug
from fxdebug.errors import UsageError
from fxdebug.features.shared.tried_settings import free_cores, pairs, process_knobs
from fxdebug.features.shared.tried_settings.free_cores import FreeCores
from fxdebug.features.shared.tried_settings.knobs import Knob, Try
from fxdebug.features.shared.tried_settings.subject import Subject
from fxdebug.features.shared.tried_settings.trial import KNOBS, as_before
from support import sweep

COUNT = FreeCores.count
BUSY: list[random.Random] = []
NOW = [0]
WAITED = [0]


def work(amount: float) -> None:
    """Let the time go on; on a machine with other work, not evenly."""
    if BUSY:
        amount *= BUSY[0].lognormvariate(0, 0.1) * (3 if BUSY[0].random() < 0.03 else 1)
    NOW[0] += int(amount)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    NOW[0] = WAITED[0] = 0
    BUSY.clear()
    monkeypatch.setitem(pairs.CLOCKS, "wall", lambda: NOW[0])
    monkeypatch.setitem(pairs.CLOCKS, "processor", lambda: NOW[0] - WAITED[0])
    monkeypatch.setattr(process_knobs, "cores", lambda: 2)
    monkeypatch.setattr(FreeCores, "count", lambda _: 2.0)
    yield
    BUSY.clear()


class Works(nn.Module):
    """A model whose step takes 10 ms, and more with float64 weights, with one thread, or in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        size = {torch.float64: 2.0, torch.float32: 1.0, torch.bfloat16: 0.4}[self.last.weight.dtype]
        work(10_000_000 * size * x.shape[0] / 4 / (1.8 if torch.get_num_threads() == 2 else 1))
        self.calls += 1  # type: ignore[operator]
        return self.last(torch.relu(self.first(x)))  # type: ignore[no-any-return]


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


X = torch.arange(32.0).reshape(4, 8) / 32


def lists(report: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in report.rows:
        found.setdefault(row.verdict, []).append(row.change_of)
    return found


def test_the_three_lists_of_a_model(one_thread: None) -> None:
    torch.manual_seed(0)
    report = fxdebug.tune(Works(), X, knobs=["threads", "dtype of weights", "inference mode", "channels last"])
    assert lists(report) == {
        "take": ["2 threads"],
        "changes the result": ["bfloat16 weights"],
        "refused": ["inference mode"],
    }
    threads, narrow, mode = report.rows
    assert (threads.gain, threads.change, threads.code) == (pytest.approx(1.8), 0.0, "torch.set_num_threads(2)")
    assert narrow.gain == pytest.approx(2.5) and 1e-4 < narrow.change < 0.1 and narrow.begins == "first"
    assert mode.why == "no gain beyond the noise"
    assert report.totals["take"][0] == "2 threads" and str(report.totals["together"][0]).startswith("1.80 [")
    assert "torch.set_num_threads(2)" in report.text(width=100)


def test_a_tolerance_moves_a_change_of_the_result_to_the_first_list() -> None:
    report = fxdebug.tune(Works(), X, knobs=["dtype of weights"], tolerance=0.1)
    assert lists(report) == {"take": ["bfloat16 weights"]}
    assert lists(fxdebug.tune(Works(), X, knobs=["dtype of weights"], tolerance=1e-6)) == {
        "changes the result": ["bfloat16 weights"]
    }


def test_another_result_is_refused_however_fast_it_is() -> None:
    class Trains(Works):
        def forward(self, x: Tensor) -> Tensor:
            work(90_000_000 if self.training else 0)
            return super().forward(x) * (1 if self.training else 2)

    (row,) = fxdebug.tune(Trains(), X, knobs=["eval mode"]).rows
    assert row.verdict == "refused" and row.why.startswith("another result: output changes by ")


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A knob that does nothing: the model against itself."""
    tries = lambda _: iter([Try("nothing", "", lambda subject: subject.changeable())])  # noqa: E731
    monkeypatch.setitem(KNOBS, "nothing", Knob("nothing", "", tries))


@pytest.mark.parametrize("seed", range(20))
def test_the_model_against_itself_is_never_to_take(seed: int, nothing: None) -> None:
    BUSY.append(random.Random(seed))
    assert lists(fxdebug.tune(Works(), X, knobs=["nothing"])) == {"refused": ["nothing"]}


def test_a_machine_that_is_too_busy_to_tell_says_so(nothing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)

    def disturbed(amount: float) -> None:
        NOW[0] += int(amount * chance.choice((1, 2, 4, 8)))

    monkeypatch.setitem(globals(), "work", disturbed)
    report = fxdebug.tune(Works(), X, knobs=["nothing"])
    assert report.rows[0].why.startswith("cannot tell: the machine is too busy")
    assert report.notes[0].what.startswith("the machine is too busy to tell small gains")


def test_where_other_work_disturbs_the_clock_on_the_wall_processor_time_is_compared(one_thread: None) -> None:
    chance = random.Random(1)

    class Waits(Works):
        def forward(self, x: Tensor) -> Tensor:
            waited = chance.choice((0, 10_000_000, 30_000_000, 70_000_000))
            NOW[0], WAITED[0] = NOW[0] + waited, WAITED[0] + waited
            return super().forward(x)

    report = fxdebug.tune(Waits(), X, knobs=["dtype of weights", "threads"])
    assert lists(report) == {"changes the result": ["bfloat16 weights"], "refused": ["2 threads"]}
    assert report.rows[0].gain == pytest.approx(2.5) and report.settings["clock"] == "processor"
    assert report.notes[0].what.startswith("other work disturbs the clock on the wall")
    assert "by the time of processors" in report.rows[1].why
    asked = fxdebug.tune(Waits(), X, knobs=["threads"], clock="wall")
    assert asked.rows[0].why.startswith("cannot tell: the machine is too busy")


def test_threads_are_not_told_of_where_other_programs_have_the_cores(
    one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FreeCores, "count", lambda _: 1.2)
    (row,) = fxdebug.tune(Works(), X, knobs=["threads"]).rows
    assert (row.verdict, row.why) == ("refused", "cannot tell: other programs leave 1.2 of 2 cores")
    monkeypatch.setattr(FreeCores, "count", lambda _: None)  # where no system tells
    assert lists(fxdebug.tune(Works(), X, knobs=["threads"])) == {"take": ["2 threads"]}


def test_cores_are_free_that_are_idle_or_work_for_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, now = tmp_path / "stat", SimpleNamespace(process_time=lambda: 5.0, perf_counter=lambda: 100.0)
    monkeypatch.setattr(free_cores, "STAT", stat)
    monkeypatch.setattr(free_cores, "time", now)
    monkeypatch.setattr(free_cores.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(FreeCores, "count", COUNT)
    stat.write_text("cpu  10 0 5 1000 20 0 0 0 0 0\ncpu0 1 2 3 4\n")
    since = FreeCores()
    assert since.count() is None  # no time has passed
    now.process_time, now.perf_counter = lambda: 7.0, lambda: 102.0
    stat.write_text("cpu  50 0 5 1090 30 0 0 0 0 0\n")
    assert since.count() == (0.9 + 0.1 + 2.0) / 2.0
    stat.unlink()
    assert since.count() is None


def test_where_both_clocks_are_disturbed_more_pairs_are_timed(nothing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)

    def disturbed(amount: float) -> None:
        NOW[0] += int(amount * chance.uniform(1.0, 1.65))

    monkeypatch.setitem(globals(), "work", disturbed)
    report = fxdebug.tune(Works(), X, knobs=["nothing"])
    assert (report.settings["pairs"], report.rows[0].why) == (27, "no gain beyond the noise")


def test_knobs_of_cuda_are_told_as_not_possible_where_the_model_is_on_another_device(one_thread: None) -> None:
    convolution = nn.Conv2d(1, 2, 3).eval()
    report = fxdebug.tune(convolution, torch.ones(1, 1, 8, 8), knobs=["TF32", "cuDNN benchmark"])
    why = "not possible here: it is a setting of CUDA, and the model is on the device cpu"
    assert [(row.change_of, row.why) for row in report.rows] == [("TF32", why), ("cuDNN benchmark", why)]


def test_a_step_with_an_optimizer_leaves_the_weights_of_the_model() -> None:
    model = Works()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    report = fxdebug.tune(
        model, X, knobs=["optimizer", "autocast"], loss=lambda y: y.square().mean(), optimizer=optimizer
    )
    assert {row.change_of for row in report.rows} >= {"fused optimizer", "autocast bfloat16"}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not optimizer.state and all(p.grad is None for p in model.parameters())


def state(model: nn.Module) -> list[Any]:
    return [
        *[tensor.tolist() for tensor in model.state_dict().values()],
        *[None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        *[module.training for module in model.modules()],
        *[list(module._forward_hooks) for module in model.modules()],
        [p.requires_grad for p in model.parameters()],
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        vars(CheckpointFunction).keys(),
        getattr(getattr(model, "config", None), "_attn_implementation", None),
        torch.is_autocast_enabled("cpu"),
        process_knobs.flushes_subnormal(),
        torch.get_rng_state().tolist(),
        random.getstate(),
    ]


def test_all_knobs_are_known() -> None:
    assert {"threads", "hooks", "compile", "recomputation"} <= set(KNOBS)


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 3))


class HasAll(Works):
    """A model that every knob for the CPU has something to try on."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.table = nn.Conv2d(1, 1, 1), nn.Embedding(5000, 2)
        self.blocks, self.use_checkpoint = nn.ModuleList([wide(), wide()]), True
        self.config = SimpleNamespace(_attn_implementation="eager")
        parametrize.register_parametrization(self.picture, "weight", nn.Softplus())

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        work(10_000_000)
        self.calls += 1  # type: ignore[operator]
        return self.blocks[1](self.blocks[0](self.last(torch.relu(self.first(x)))))  # type: ignore[no-any-return]


def squares(y: Tensor) -> Tensor:
    return y.square().mean()


MASK = torch.tensor([[1, 1, 0, 0, 0, 0]] * 4)
OF_STEPS = (
    "optimizer", "checkpointing", "recomputation", "sparse gradients", "set_to_none", "untrained parameters",
)  # fmt: skip
OF_GPU = ("TF32", "cuDNN benchmark")
SETTINGS = [name for name in KNOBS if not name.startswith("compile")]


@pytest.mark.parametrize(("name", "ends"), sweep.spread(SETTINGS, [None, ValueError, KeyboardInterrupt]))
def test_everything_is_put_back_also_after_an_exception_and_an_interrupt(
    name: str, ends: type[BaseException] | None, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HasAll()
    model.first.register_forward_hook(lambda *_: None)
    torch.autograd.set_detect_anomaly(True)  # type: ignore[no-untyped-call]
    model(X, MASK).sum().backward()
    step, begun = Subject.step, [0]

    def raising(self: Subject, inputs: Any) -> Any:
        begun[0] += self.model is not model or bool(self.around) or self.args[1].shape != MASK.shape or self.rows > 1
        if ends is not None and begun[0] == 3:
            raise ends("in a knob")
        return step(self, inputs)

    monkeypatch.setattr(Subject, "step", raising)
    before = state(model)
    trains = name in OF_STEPS
    trained = {"optimizer": model, "untrained parameters": model.last}.get(name)
    optimizer = None if trained is None else torch.optim.SGD(trained.parameters(), lr=0.1)
    try:
        fxdebug.tune(
            model, (X, MASK), knobs=[name], loss=(lambda y: y.square().mean()) if trains else None, optimizer=optimizer
        )
    except (KeyboardInterrupt, ValueError):
        assert ends is not None
    after = state(model)
    torch.autograd.set_detect_anomaly(False)  # type: ignore[no-untyped-call]
    assert after == before
    assert begun[0] >= 3 or name in OF_GPU


def test_an_exception_of_a_knob_refuses_it_and_one_of_the_model_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Subject) -> Subject:
        raise RuntimeError("no compiler")

    monkeypatch.setitem(KNOBS, "fails", Knob("fails", "", lambda _: iter([Try("fails", "", fails)])))
    (row,) = fxdebug.tune(Works(), X, knobs=["fails"]).rows
    assert (row.verdict, row.why) == ("refused", "not possible here: RuntimeError: no compiler")

    class Raises(Works):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fxdebug.tune(Raises(), X, knobs=["threads"])


def test_what_cannot_be_asked_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match=r"no knob 'thread'.*threads"):
        fxdebug.tune(Works(), X, knobs=["thread"])
    with pytest.raises(UsageError, match="pairs=3: at least 7"):
        fxdebug.tune(Works(), X, pairs=3)
    with pytest.raises(UsageError, match="optimizer without loss"):
        fxdebug.tune(Works(), X, optimizer=torch.optim.SGD)
    with pytest.raises(UsageError, match="meta device"):
        fxdebug.tune(Works().to("meta"), X.to("meta"))


def test_changes_that_help_together_are_taken_together_and_one_that_adds_nothing_is_not(
    one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks(module: nn.Module, args: Any, output: Tensor) -> None:
        work(30_000_000)

    model = Works()
    model.first.register_forward_hook(looks)
    model.last.register_forward_hook(looks)
    report = fxdebug.tune(model, X, knobs=["threads", "hooks"])
    assert report.totals["take"][0] == "without hooks + 2 threads"
    assert str(report.totals["together"][0]).startswith("12.60 [")
    assert [row.why for row in report.rows] == ["", ""]


def test_inputs_that_are_padded_beyond_their_longest_row_are_cut() -> None:
    class Pools(Works):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            work(1_000_000 * x.shape[1])
            return self.last(((x * mask[..., None]).sum(1)) / mask.sum(1, keepdim=True))  # type: ignore[no-any-return]

    mask = (torch.arange(40)[None] < torch.tensor([[4], [10]])).long()
    (row,) = fxdebug.tune(Pools(), (torch.randn(2, 40, 8), mask), knobs=["padding"]).rows
    assert (row.verdict, row.change_of, row.gain) == ("take", "inputs cut from 40 to 10 steps", pytest.approx(4.0))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_that_the_code_calls_are_kept_instead(reentrant: bool) -> None:
    class Recomputes(Works):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=reentrant)  # type: ignore[no-any-return]

    x, before = X.clone().requires_grad_(), dict(vars(CheckpointFunction))
    (row,) = fxdebug.tune(Recomputes(), x, knobs=["recomputation"], loss=lambda y: y.square().mean()).rows
    assert (row.verdict, row.change_of, row.gain) == ("take", "no recomputation", pytest.approx(2.0))
    assert dict(vars(CheckpointFunction)) == before
    assert fxdebug.tune(Works(), x, knobs=["recomputation"], loss=lambda y: y.square().mean()).rows == ()


def test_calls_that_save_most_for_their_time_are_checkpointed() -> None:
    class Blocks(Works):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)) for _ in "123"])

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.blocks(x))

    half, whole = sorted(
        fxdebug.tune(Blocks(), X, knobs=["checkpointing"], loss=squares).rows, key=lambda r: r.change_of
    )
    assert (half.change_of, whole.change_of) == (
        "checkpointing, 2 calls that save most for the time",
        "checkpointing, 3 calls",
    )
    assert half.change == whole.change == 0.0
    assert sorted(whole.code.partition(" for ")[2].split(", ")) == ["blocks.0", "blocks.1", "blocks.2"]


def test_parameters_that_the_optimizer_does_not_have_need_no_gradients() -> None:
    class Trains(Works):
        def forward(self, x: Tensor) -> Tensor:
            work(10_000_000 if self.first.weight.requires_grad else 0)
            return super().forward(x)

    model = Trains()
    options: dict[str, Any] = {"knobs": ["untrained parameters"], "loss": squares}
    report = fxdebug.tune(model, X, optimizer=torch.optim.SGD(model.last.parameters(), lr=0.1), **options)
    (row,) = report.rows
    assert (row.verdict, row.gain, row.change) == ("take", pytest.approx(2.0), 0.0)
    assert row.change_of == "no gradients for 2 untrained parameters"
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert fxdebug.tune(model, X, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **options).rows == ()


def test_attention_of_torch_returns_no_weights_that_nobody_uses() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
            self.mix.register_forward_pre_hook(self.count, with_kwargs=True)

        def count(self, module: nn.Module, args: Any, kwargs: Any) -> None:
            work(10_000_000)

        def forward(self, x: Tensor) -> Tensor:
            out, weights = self.mix(x, x + 1, x)
            work(0 if weights is None else 10_000_000)
            return out  # type: ignore[no-any-return]

    (row,) = fxdebug.tune(Attends().eval(), X[None], knobs=["attention"]).rows
    assert (row.verdict, row.gain) == ("take", pytest.approx(2.0))
    assert row.change_of == "attention without its weights"


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_an_anomaly_mode_that_a_forward_switches_on_itself_is_kept_off_for_a_trial() -> None:
    class Looks(Works):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autograd.detect_anomaly(check_nan=False):  # type: ignore[no-untyped-call]
                work(10_000_000 if torch.is_anomaly_enabled() else 0)
                return super().forward(x)

    (row,) = fxdebug.tune(Looks(), X, knobs=["anomaly mode"]).rows
    assert (row.verdict, row.gain, torch.is_anomaly_enabled()) == ("take", pytest.approx(2.0), False)


def test_gradients_may_be_filled_with_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    zero_grad = nn.Module.zero_grad

    def slow(self: nn.Module, set_to_none: bool = True) -> None:
        work(10_000_000 if set_to_none else 0)
        zero_grad(self, set_to_none)

    monkeypatch.setattr(nn.Module, "zero_grad", slow)
    (row,) = fxdebug.tune(Works(), X, knobs=["set_to_none"], loss=squares).rows
    assert (row.verdict, row.gain, row.code) == ("take", pytest.approx(2.0), "optimizer.zero_grad(set_to_none=False)")


def test_a_compiled_model_is_timed_with_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled(nn.Module):
        """What ``torch.compile`` returns: a module that has a length only where the model has."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.is_new = model, True

        def __len__(self) -> int:
            return len(self.model)  # type: ignore[arg-type]

        def forward(self, x: Tensor) -> Tensor:
            before, new = NOW[0], self.is_new
            out = self.model(x)
            NOW[0], self.is_new = (before + 900_000_000 if new else (before + NOW[0]) // 2), False
            return out  # type: ignore[no-any-return]

    monkeypatch.setattr(torch, "compile", lambda model, **_: Compiled(model))
    (row,) = fxdebug.tune(Works(), X, knobs=["compile"]).rows
    assert (row.verdict, row.gain, row.first, row.paid_back, row.peak) == ("take", pytest.approx(2.0), 0.9, 179, None)


def test_weights_that_are_normed_in_each_run_are_computed_once_on_the_copy_alone() -> None:
    class Norms(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            work(10_000_000)
            return weight / weight.norm()

    model = Works().eval()
    parametrize.register_parametrization(model.first, "weight", Norms())
    before = model(X)
    (row,) = fxdebug.tune(model, X, knobs=["parametrizations"]).rows
    assert (row.verdict, row.gain, row.change) == ("take", pytest.approx(2.0), 0.0)
    assert torch.equal(model(X), before) and parametrize.is_parametrized(model.first, "weight")


def test_the_anomaly_mode_is_switched_off_for_a_trial() -> None:
    class Looks(Works):
        def forward(self, x: Tensor) -> Tensor:
            work(10_000_000 if torch.is_anomaly_enabled() else 0)
            return super().forward(x)

    with torch.autograd.set_detect_anomaly(True):  # type: ignore[no-untyped-call]
        (row,) = fxdebug.tune(Looks(), X, knobs=["anomaly mode"]).rows
        assert (row.verdict, row.gain, torch.is_anomaly_enabled()) == ("take", pytest.approx(2.0), True)


def test_the_picture_and_the_files_of_a_report_are_written(tmp_path: Any, one_thread: None) -> None:
    pytest.importorskip("matplotlib", reason="draws the picture")
    report = fxdebug.tune(Works(), X, knobs=["threads", "dtype of weights"])
    assert report.plot(tmp_path / "tune.png").stat().st_size > 1000
    report.json(tmp_path / "tune.json")
    assert fxdebug.Report.load(tmp_path / "tune.json").text(width=80) == report.text(width=80)


def test_the_depth_of_recursion_that_a_compiler_raises_is_put_back() -> None:
    before = sys.getrecursionlimit()
    with as_before(Subject(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {})):
        sys.setrecursionlimit(before + 500)
    assert sys.getrecursionlimit() == before
