"""The console on a model that runs: it stops where it is told to, changes what goes on, and survives every error."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import api
from fxdebug.apps.cli import main
from fxdebug.features.console import all_commands
from fxdebug.features.console.input.prompt import run_lines
from fxdebug.features.console.live import LiveMachine
from fxdebug.features.console.session import Session
from support.stepped import Tiny

assert all_commands.__all__

X = torch.linspace(-1, 1, 12).view(1, 4, 3)


def model() -> Tiny:
    torch.manual_seed(0)
    return Tiny().eval()


class Live:
    """A live session whose screen is kept."""

    def __init__(self, module: nn.Module, inputs: Any, **options: Any) -> None:
        self.run = api.paused_run(module, inputs, **options)
        self.machine = LiveMachine(self.run)
        self._written: list[str] = []
        self.session = Session(self.machine, self._written.append)

    def type(self, *lines: str) -> str:
        """The screen of some lines, without the prompts."""
        self._written.clear()
        for line in lines:
            self.session.run_line(line)
        return "".join(self._written)

    def script(self, lines: list[str]) -> str:
        """The screen with the prompts and the lines that were typed."""
        self._written.clear()
        run_lines(self.session, lines)
        return "".join(self._written)

    @property
    def place(self) -> str:
        return f"{self.machine.stop.kind} {self.machine.stop.id}"

    @property
    def output(self) -> Any:
        """What the model returned, when the session has ended."""
        self.session.close()
        return self.run.trace().output  # type: ignore[attr-defined]


@pytest.fixture
def live() -> Iterator[Live]:
    session = Live(model(), X)
    yield session
    session.session.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "fxdebug run"]


# Stopping ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "stop"),
    [
        ("break h.1.attn", "call h.1.attn#0"),
        ("break h.?.mlp", "call h.0.mlp#0"),
        ("break class GELU", "call h.0.mlp.1#0"),
        ("break softmax", "op h.0.attn#0/softmax"),
        ("break operation soft*", "op h.0.attn#0/softmax"),
        ("break absmax > 2.2", "return Tiny#0"),  # nothing is as large: the end
        ("break softmax if path == 'h.1.attn'", "op h.1.attn#0/softmax"),
        ("break h.1 if out.shape[-1] == 8", "return h.1#0"),
        ("break softmax if out.std().item() > 0 and 'h.1' in path", "op h.1.attn#0/softmax"),
    ],
)
def test_c2_it_stops_at_a_glob_a_class_an_operation_and_a_condition(live: Live, place: str, stop: str) -> None:
    live.type(place, "continue")
    assert live.place == stop


def test_c2_it_stops_at_a_line_of_the_code(live: Live) -> None:
    import inspect

    import support.stepped as stepped

    lines, first = inspect.getsourcelines(stepped.Attention.forward)
    number = first + next(i for i, line in enumerate(lines) if "softmax" in line)
    live.type(f"break stepped.py:{number}", "continue")
    assert live.place == "op h.0.attn#0/softmax"


def test_c2_hits_are_counted_ignored_and_run_commands(live: Live) -> None:
    lines = iter(["print path", "end"])
    live.session.read_more = lambda prompt: next(lines)
    live.type("break softmax", "commands", "ignore 1 1")
    assert "h.1.attn" in live.type("continue")
    assert "hit 2 times" in live.type("break")
    live.type("tbreak head", "continue")
    assert live.place == "call head#0" and "temporary" not in live.type("break")


def test_c2_it_stops_at_the_first_difference_from_a_saved_run(tmp_path: Any) -> None:
    module = model()
    fxdebug.fx_debug(module, X, save=tmp_path / "good")
    with torch.no_grad():
        module.h[1].attn.proj.bias += 0.5
    live = Live(module, X)
    live.type(f"break against {tmp_path / 'good'}", "continue")
    assert live.place == "op h.1.attn.proj#0/linear"
    live.session.close()


def test_c3_a_watched_expression_stops_with_the_old_and_the_new_value() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            self.total.add_(y)
            return y + self.total

    live = Live(Counts(), torch.ones(2))
    live.type("watch total.max")
    assert "watch 1: total.max: 0 → 2" in live.type("continue")
    assert live.place == "op Counts#0/add"
    live.session.close()


def test_it_steps_through_exactly_the_calls_and_operations_of_the_trace(live: Live) -> None:
    trace = fxdebug.fx_debug(model(), X)
    passed = []
    while not live.machine.ended:
        passed.append((live.machine.stop.kind, live.machine.stop.id))
        live.type("step")
    own = [id for kind, id in passed if kind == "call"]
    assert own == [f"{call.path or call.type}#{call.number}" for call in trace.calls]
    parts = {node.id for node in trace.ops("getitem")}  # taking a tuple apart is Python's
    assert {id for kind, id in passed if kind == "op"} == {node.id for node in trace.ops()} - parts


def test_going_back_shows_what_was_recorded_and_going_on_continues_the_forward(live: Live) -> None:
    live.type("break head", "continue")
    before = live.type("reverse-continue softmax")
    assert live.place == "op h.1.attn#0/softmax" and "float32[1, 4, 4]" in before
    assert "past stop" in live.type("set out *= 0")
    live.type("continue")
    assert live.place == "call head#0"
    live.type("delete", "continue")
    assert torch.equal(live.output["logits"], model()(X)["logits"])


# Changing ------------------------------------------------------------------------------------------


def hooked(path: str, change: Any) -> torch.Tensor:
    """The logits with a hook of torch's that changes the output of a module."""
    module = model()
    handle = module.get_submodule(path).register_forward_hook(lambda each, args, out: change(out))
    logits: torch.Tensor = module(X)["logits"]
    handle.remove()
    return logits


def test_c3_set_out_changes_the_logits_exactly_as_a_hook_does(live: Live) -> None:
    live.type("continue h.1.attn", "finish", "set out *= 0", "continue")
    assert torch.equal(live.output["logits"], hooked("h.1.attn", lambda out: out * 0))


def test_c3_undo_takes_a_change_back(live: Live) -> None:
    live.type("continue h.1.attn", "finish", "set out *= 0", "set out += 1", "undo", "undo")
    assert "nothing was changed here" in live.type("undo")
    live.type("continue")
    assert torch.equal(live.output["logits"], model()(X)["logits"])


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("set out[:, 1] = 3", lambda out: torch.cat([out[:, :1], torch.full_like(out[:, 1:2], 3), out[:, 2:]], 1)),
        ("set out = torch.relu(out)", torch.relu),
        ("set out = 2", lambda out: torch.full_like(out, 2)),
        ("ablate", torch.zeros_like),
        ("ablate to mean", lambda out: out.mean((0, 1), keepdim=True).expand_as(out)),
    ],
)
def test_c3_each_way_to_change_a_result_does_what_a_hook_would(live: Live, line: str, change: Any) -> None:
    live.type("continue h.0.mlp", "finish", line, "continue")
    assert torch.equal(live.output["logits"], hooked("h.0.mlp", change))


def test_c3_arguments_are_set_by_position_and_by_name() -> None:
    for line in ("set args[0] = x + 1", "set x += 1", "set x = args[0] + 1"):
        live = Live(model(), X)
        live.type("continue h.1", line, "continue")
        module = model()
        module.h[1].register_forward_pre_hook(lambda each, args: (args[0] + 1,))
        assert torch.equal(live.output["logits"], module(X)["logits"]), line


def test_c3_the_result_of_one_operation_is_set_and_counts_as_its_result(live: Live) -> None:
    live.type("continue softmax", "set out = torch.eye(4).expand_as(out)", "continue")
    live.session.close()
    trace = fxdebug.Trace.of(live.run.trace())
    assert trace.node("h.0.attn#0/softmax").stats.mean == 0.25  # type: ignore[union-attr]
    assert (trace["h.0.attn"].status, trace["h.1.attn"].status) == ("recorded", "verified")


def test_gradients_go_through_what_was_set() -> None:
    module = model()
    live = Live(module, X)
    live.type("continue h.1.mlp", "finish", "set out = out * 3", "continue")
    live.output["logits"].sum().backward()
    expected = model()
    expected.h[1].mlp.register_forward_hook(lambda each, args, out: out * 3)
    expected(X)["logits"].sum().backward()
    for ours, theirs in zip(module.parameters(), expected.parameters()):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_an_edit_of_a_place_holds_from_then_on_and_can_be_taken_back(live: Live) -> None:
    live.type("ablate h.?.attn", "continue h.1", "undo", "continue")
    assert torch.equal(live.output["logits"], hooked("h.0.attn", torch.zeros_like))


def test_a_gradient_is_stopped_at_and_set() -> None:
    layer, x = nn.Linear(3, 1), torch.tensor([[1.0, 2.0, 3.0]])
    live = Live(layer, x, backward=lambda out: out.sum())
    assert "Linear#0/linear/gradient" in live.type("continue gradient")
    live.type("set out *= -2", "continue")
    live.session.close()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[-2.0, -4.0, -6.0]]


# Errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("set out =", "is no assignment"),
        ("set", "is no assignment"),
        ("set y = 3", "does not go on from here"),
        ("set out = nonsense(out)", "'nonsense' has no value here"),
        ("set out = out @ torch.ones(3)", "RuntimeError"),
        ("ablate nowhere", "no call of this model is named 'nowhere'"),
        ("ablate h.0.attn head 9 to loud", "use a number, or mean"),
        ("patch runs/none", "runs/none"),
        ("replay", "replay needs a call"),
        ("replay h.0.mlp with 3", "write NAME = EXPR"),
        ("goto h.9", "nothing in this run is called 'h.9'"),
        ("goto head", "was not called yet"),
        ("print out.nosuch()", "AttributeError"),
        ("frobnicate", "there is no command"),
    ],
)
def test_an_error_in_a_command_ends_neither_the_session_nor_the_run(live: Live, line: str, error: str) -> None:
    live.type("continue h.0.mlp", "finish")
    assert error in " ".join(live.type(line).split()), live.type(line)
    live.type("continue")
    assert torch.equal(live.output["logits"], model()(X)["logits"])


def test_a_condition_that_raises_stops_there_and_says_so(live: Live) -> None:
    assert "AttributeError" in live.type("break softmax if out.nosuch()", "continue")
    live.type("delete", "continue")
    assert torch.equal(live.output["logits"], model()(X)["logits"])


def test_an_edit_that_fails_later_stops_there_and_the_model_goes_on_without_it(live: Live) -> None:
    live.type("ablate h.1.attn head 9")
    assert "the third dimension from the end" in " ".join(live.type("continue").split())
    live.type("undo", "continue")
    assert torch.equal(live.output["logits"], model()(X)["logits"])


def test_a_model_that_raises_is_stopped_at_the_place_and_raises_when_the_session_ends() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).view(7)

    with pytest.raises(RuntimeError, match="shape"):
        fxdebug.debug(Fails(), torch.ones(1, 2), commands=["continue"])
    live = Live(Fails(), torch.ones(1, 2))
    assert "--Raised-- Fails#0" in live.type("continue") and "RuntimeError" in live.type("where", "goto 5")
    live.session.close()


# The thread ----------------------------------------------------------------------------------------

_setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


def test_the_forward_has_the_state_of_the_thread_that_started_it_and_hands_back_what_it_sets() -> None:
    seen: dict[str, Any] = {}

    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.update(
                variable=_setting.get(),
                grad=torch.is_grad_enabled(),
                autocast=(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
                device=torch.get_default_device().type,
                dtype=torch.get_default_dtype(),
                threads=torch.get_num_threads(),
                made=torch.zeros(1).device.type,
            )
            _setting.set("by the model")
            return x * 2

    packed = []
    _setting.set("by the caller")
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor, lambda tensor: tensor)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), hooks:
        fxdebug.debug(Looks(), torch.ones(2), commands=["step", "continue"])
    assert seen == {
        "variable": "by the caller", "grad": False, "autocast": (True, torch.bfloat16), "device": "meta",
        "dtype": torch.float32, "threads": torch.get_num_threads(), "made": "meta",
    }  # fmt: skip
    assert _setting.get() == "by the model"
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    with hooks:
        fxdebug.debug(nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True), commands=["continue"])
    assert packed


def test_a_forward_inside_a_transform_is_refused_and_runs_nothing() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(fxdebug.UsageError, match=r"torch\.vmap"):
        torch.vmap(lambda x: fxdebug.debug(layer, x, commands=["continue"]).output)(torch.ones(3, 2))


def test_ctrl_c_pauses_a_running_forward_and_it_goes_on_afterwards() -> None:
    class Long(nn.Module):
        steps = 0
        wanted = 1_000_000

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while self.steps < self.wanted:
                x = x + 1
                self.steps += 1
                if self.steps == 100:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return x

    module = Long()
    live = Live(module, torch.zeros(1))
    shown = live.type("continue")
    assert shown.startswith("\npaused by Ctrl-C\n> Long#0/add_") and live.place.startswith("op Long#0/add_")
    assert not live.run.over
    module.wanted = 0
    live.type("continue")
    assert live.place == "return Long#0"
    live.session.close()


# The command line ----------------------------------------------------------------------------------

SESSION = """\
Sequential  paused where it begins. help lists commands
--Call-- Sequential#0  Sequential  [1]
   args[0]  float32[2]  mean 0.5  std 2.12  min -1  max 2
(fxdebug) continue 1
--Call-- 1#0  ReLU  container.py:253  [4]
   args[0]  float32[2]  mean 0.5  std 2.12  min -1  max 2
(fxdebug) where
  Sequential#0  Sequential
> 1#0  ReLU  container.py:253
(fxdebug) set input = -input
--Call-- 1#0  ReLU  container.py:253  [4]
   args[0]  float32[2]  mean -0.5  std 2.12  min -2  max 1
(fxdebug) step
> 1#0/relu  relu  [5]
   args[0]  float32[2]  mean -0.5  std 2.12  min -2  max 1
   out      float32[2]  mean 0.5  std 0.707  min 0  max 1
(fxdebug) continue
--Return-- Sequential#0  Sequential  [7]
   out  float32[2]  mean 0.5  std 0.707  min 0  max 1
"""


def test_c2_a_whole_session_of_the_command_line(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Identity(), nn.ReLU()), torch.tensor([-1.0, 2.0])\n"
    )
    (tmp_path / "lines.txt").write_text("continue 1\nwhere\nset input = -input\nstep\ncontinue\n")
    assert main.main(["debug", "small.py:build", "-x", "lines.txt"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("->")] == SESSION.splitlines()


# Names ---------------------------------------------------------------------------------------------


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(2, 2, batch_first=True)

    def forward(self, start: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        x, (h, _) = self.layer(start)
        for _ in range(40):
            x = x + 1
        x[:, 0] = 100
        return x * h


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["print start.max"], "1"),
        (["continue layer", "print input.max"], "1"),
        (["continue add_7", "print add_6.max < add_7.max"], "True"),
        (["continue add", "print getitem.shape"], "1×2×2"),
        (["continue add", "print layer.weight_hh_l0.shape"], "8×2"),
        (["continue add", "print add_1"], "'add_1' has no value here"),
        (["break Loop#0/add_30", "continue", "print start"], "float32[1, 2, 2]"),
        (["continue setitem", "print out.max"], "100"),
        (["continue add_39", "watch add_39.max", "continue", "print op"], "setitem"),
        (["break layer#1"], "breakpoint 1: path layer#1"),
        (["break layr#1"], "Did you mean 'layer'"),
        (["goto end", "print out.shape"], "1×2×2"),
        (["continue add", "code"], "so far: this call has not ended"),
    ],
)
def test_names_are_those_of_arguments_operations_parts_and_weights(lines: list[str], shown: str) -> None:
    with torch.no_grad():
        live = Live(Loop(), torch.ones(1, 2, 2))
        *before, last = lines
        live.type(*before)
        assert shown in " ".join(live.type(last).split())
        live.session.close()
