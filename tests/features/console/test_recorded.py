"""The recorded machine: every call in order, there and back; searches backwards land on the cause."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.errors import NotFound, UsageError
from fxdebug.features.console.recorded import RecordedMachine
from fxdebug.query.network import network_of
from support import stored, sweep
from support.counted import calls_of
from support.stepped import Screen, counter, tiny


def walk(machine: RecordedMachine) -> list[tuple[str, str]]:
    """The kind and the id of every stop, from the present one on."""
    passed = [(machine.stop.kind, machine.stop.id)]
    machine.forward(lambda stop: bool(passed.append((stop.kind, stop.id))))
    return passed


BUILDS = dict(stored.PLAIN)


@pytest.mark.parametrize("name", sweep.sampled(list(BUILDS), 24))
def test_c1_a_walk_visits_exactly_the_calls_in_their_order_and_every_operation_with_tensors(name: str) -> None:
    trace = traced(name)
    passed, net = walk(RecordedMachine(trace)), network_of(trace)
    ids = {net.call_id(call): call for call in trace.calls}
    begun = [ids[id] for kind, id in passed if kind == "call"]
    assert sorted(call.index for call in begun) == [call.index for call in trace.calls]
    if all(call.thread is None and call.invoked_in is None for call in trace.calls):
        assert begun == list(trace.calls)
    assert sorted(id for kind, id in passed if kind == "return") == sorted(ids)
    operations = [node.id for node in trace.ops() if node.values] if trace.graph_source is not None else []
    assert sorted(id for kind, id in passed if kind == "op") == sorted(operations)
    places = {stop: place for place, stop in enumerate(passed)}
    for call in begun:  # a call is inside the one that made it
        own = net.call_id(call)
        assert places["call", own] < places["return", own]
        if call.parent is not None:
            around = net.call_id(call.parent)
            assert places["call", around] < places["call", own] < places["return", own] < places["return", around]


def traced(name: str) -> fxdebug.Trace:
    model, inputs = BUILDS[name]()
    try:
        return fxdebug.fx_debug(model, inputs)
    except Exception:
        failed = fxdebug.last_failed()
        assert failed is not None
        return failed


def test_c1_going_back_passes_the_same_stops_the_other_way_round() -> None:
    machine = RecordedMachine(tiny())
    there = walk(machine)
    back = [(machine.stop.kind, machine.stop.id)]
    machine.backward(lambda stop: bool(back.append((stop.kind, stop.id))))
    assert back == there[::-1]


def test_c1_reverse_continue_to_nan_lands_on_the_operation_that_made_it() -> None:
    trace = tiny(masked=True)
    screen = Screen(trace)
    screen.type("goto end", "reverse-continue nan > 0")
    assert screen.place == "op h.1.attn#0/softmax"
    assert [finding.node for finding in trace.check() if finding.rule == "nan"] == ["h.1.attn#0/softmax"]
    screen.type("goto start", "continue nan > 0")
    assert screen.place == "op h.1.attn#0/softmax"


def test_reverse_continue_finds_the_call_where_a_run_has_no_operations() -> None:
    screen = Screen(tiny(masked=True, graph=False))
    screen.type("goto end", "reverse-continue nan > 0")
    assert screen.place == "return h.1#0"
    screen.type("reverse-continue nan > 0")
    assert screen.place == "return h.1.attn#0"
    assert (
        screen.type("reverse-continue nan > 0").splitlines()[-1]
        == "where nan > 0: not found on the way to the beginning"
    )
    screen.type("goto start", "continue nan > 0")
    assert screen.place == "return h.1.attn.proj#0"  # the first result with NaN: nothing is known of what is between


def test_c3_step_goes_through_calls_and_operations_as_they_ran() -> None:
    screen = Screen(tiny())
    passed = [screen.place]
    while not screen.machine.ended:
        screen.type("step")
        passed.append(screen.place)
    assert passed == [f"{kind} {id}" for kind, id in walk(RecordedMachine(tiny()))]
    assert [place.removeprefix("call ") for place in passed if place.startswith("call h.0")] == [
        "h.0#0", "h.0.norm#0", "h.0.attn#0", "h.0.attn.qkv#0", "h.0.attn.proj#0",
        "h.0.mlp#0", "h.0.mlp.0#0", "h.0.mlp.1#0", "h.0.mlp.2#0",
    ]  # fmt: skip


def test_next_goes_over_calls_finish_to_the_end_and_reverse_next_back() -> None:
    screen = Screen(tiny())
    passed = []
    screen.type("goto h.0")
    for line in ["next"] * 5 + ["reverse-next"] * 2 + ["finish", "finish"]:
        screen.type(line)
        passed.append(screen.place)
    assert passed == [
        "return h.0.norm#0", "return h.0.attn#0", "op h.0#0/add", "return h.0.mlp#0", "op h.0#0/add_1",
        "call h.0.mlp#0", "op h.0#0/add", "return h.0#0", "return Tiny#0",
    ]  # fmt: skip


def test_until_leaves_a_loop_and_until_with_a_place_goes_there() -> None:
    screen = Screen(tiny())
    passed = []
    screen.type("goto embed", "finish")
    for _ in range(3):
        screen.type("until")
        passed.append(screen.place)
    assert passed == ["return h.0#0", "return head#0", "return Tiny#0"]
    screen.type("goto start", "until softmax")
    assert screen.place == "op h.0.attn#0/softmax"
    screen.type("until softmax")
    assert screen.place == "op h.1.attn#0/softmax"
    assert screen.type("until softmax").splitlines()[-1] == "operation softmax: not found on the way to the end"
    assert screen.machine.ended


def test_goto_takes_calls_operations_numbers_names_of_results_and_says_what_is_near() -> None:
    screen = Screen(tiny())
    for line, place in {
        "goto 2": "call embed#0",
        "goto h.1.attn": "call h.1.attn#0",
        "goto h.1.attn#0/softmax": "op h.1.attn#0/softmax",
        "goto logits": "op head#0/linear",
        "goto end": "return Tiny#0",
        "goto start": "call Tiny#0",
    }.items():
        screen.type(line)
        assert screen.place == place
    assert screen.type("goto h.1.atn").startswith("*** nothing in this trace is called 'h.1.atn'. Did you mean 'h.1.")
    assert screen.type("goto 0").startswith("*** there is no stop 0")
    assert screen.place == "call Tiny#0"


def test_names_are_those_of_the_call_at_the_present_stop() -> None:
    machine = RecordedMachine(tiny())
    machine.goto(machine.find_stop("h.0.attn#0/softmax"))
    names = set(machine.values(machine.frames[-1]))
    assert {"x", "softmax", "qkv", "div"} <= names and "proj" not in names
    machine.goto(machine.find_stop("h.0.attn"))
    assert "softmax" not in machine.values(machine.frames[-1])


def test_a_buffer_has_the_version_of_the_present_stop() -> None:
    machine = RecordedMachine(counter())
    total = machine.weight("total")
    assert total is not None
    seen = []
    while not machine.ended:
        value = machine.now(total)
        if not seen or seen[-1] is not value:
            seen.append(value)
        machine.forward(lambda stop: True)
    assert [value.stats.max for value in seen] == [0.0, 3.0, 6.0]


def test_a_run_that_raised_has_a_stop_where_it_did() -> None:
    from support.stepped import Counter

    with pytest.raises(RuntimeError):
        fxdebug.fx_debug(nn.Sequential(Counter(raises=True), nn.ReLU()), torch.ones(3))
    trace = fxdebug.last_failed()
    assert trace is not None
    machine = RecordedMachine(trace)
    number = machine.raised()
    assert number is not None
    machine.goto(number)
    assert (machine.stop.kind, machine.stop.id) == ("return", "0#0")
    assert machine.stop.source is not None and machine.stop.source.endswith("stepped.py:79")
    assert machine.source_text(machine.stop.source) == "y = y.view(7, 7)"
    assert RecordedMachine(tiny()).raised() is None


def test_a_breakpoint_against_another_run_stops_at_the_first_difference(tmp_path) -> None:
    torch.manual_seed(0)
    good, bad = tiny(), tiny(masked=True)
    good.save(tmp_path / "good")
    screen = Screen(bad)
    said = screen.type(f"break against {tmp_path / 'good'}", "continue")
    comparison = fxdebug.compare(tmp_path / "good", bad)
    assert comparison.first is not None and comparison.first.b is not None
    assert screen.place == f"op {comparison.first.b.node}", said
    same = Screen(good).type(f"break against {tmp_path / 'good'}")
    assert " ".join(same.split()) == (
        "*** there is no difference to stop at: the runs are equal; compare RUN shows more"
    )


def test_a_place_that_is_not_there_is_an_error_with_the_nearest() -> None:
    machine = RecordedMachine(tiny())
    with pytest.raises(NotFound, match="Did you mean"):
        machine.find_stop("h.0.atn")
    with pytest.raises(UsageError, match="there is no stop"):
        machine.goto(10_000)


def test_a_movement_on_a_run_of_a_thousand_stops_is_little_work() -> None:
    """GPT-2 with 124 million parameters has 151 calls and 882 stops. Ten milliseconds are 100,000 calls."""
    layers = [layer for _ in range(75) for layer in (nn.Linear(4, 4), nn.ReLU())]

    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = (layer(x) * 1.0 + x).clamp(-9.0, 9.0) * 0.5
            return x

    screen = Screen(fxdebug.fx_debug(Long(), torch.ones(1, 4)))
    assert 1000 < screen.machine.count < 2000
    lines = ["step", "next", "where", "list", "ops", "inspect", "back", "until relu", "reverse-continue nan > 0"]
    lines += [
        "continue",
        "goto layers.149",
        "print args[0].absmax",
        "finish",
        "upstream",
        "goto start",
        "continue nan > 0",
    ]
    work = {}
    for line in lines:
        for _ in range(2):  # what is done once a session is done by the first
            screen.type("goto 700")
            work[line] = calls_of(lambda line=line: screen.type(line))
    assert {line: count for line, count in work.items() if count > 100_000} == {}


# Names ----------------------------------------------------------------------------------------------------------


class Twice(nn.Module):
    """A module that is called twice, writes in place, a tuple for a result, a module that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.lstm, self.unused = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.shared(torch.relu(self.shared(x))) * 2
        x[:, 0] = 7
        y, (h, _) = self.lstm(x)
        return torch.relu(y), h


@pytest.fixture(scope="module")
def twice() -> fxdebug.Trace:
    torch.manual_seed(0)
    with torch.no_grad():
        return fxdebug.fx_debug(Twice(), torch.ones(1, 2, 4))


@pytest.mark.parametrize(
    ("place", "stop"),
    [
        ("shared#1", "call shared#1"),
        ("shared#1/linear", "op shared#1/linear"),
        ("Twice#0/relu_1", "op Twice#0/relu_1"),
        ("Twice/relu_1", "op Twice#0/relu_1"),
        ("relu_1", "op Twice#0/relu_1"),
        ("setitem", "op Twice#0/setitem"),
        ("if out.absmax == 7", "op Twice#0/setitem"),
        ("shared#? if out.shape[0] == 1 and op == 'return'", "return shared#0"),
    ],
)
def test_places_are_ids_and_parts_of_them_as_the_screen_shows_them(twice: fxdebug.Trace, place: str, stop: str) -> None:
    screen = Screen(twice)
    screen.type(f"break {place}", "continue")
    assert screen.place == stop
    if " " not in place:
        assert f"{stop.split(' ')[1]} " in screen.type(f"find {place}")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("print shared.std", "'shared' was called 2 times: name one call, shared#0 … shared#1"),
        ("break unused", "the module 'unused' was never called in this run"),
        ("print x[0]", "the data of value 0 (float32[1, 2, 4]) was not kept"),
        ("goto sharde#1", "Did you mean 'shared#1'"),
        ("break shared#2", "nothing in this trace is called 'shared#2'. Did you mean 'shared#"),
        ("print shared#1.out.shape", "1×2×4"),
        ("print lstm[1][0].shape", "1×1×4"),
        ("print lstm.output[1][0].shape", "1×1×4"),
        ("inspect lstm.output[1]", "lstm.output[1][0] Tensor(shape=(1, 1, 4)"),
        ("inspect shared#0.args", "shared#0.args[0] Tensor(shape=(1, 2, 4)"),
        ("print shared#0.weight.std", "has no value here"),
        ("print lstm.nosuch", "'lstm.nosuch' has no value here"),
    ],
)
def test_names_of_results_are_told_from_those_that_are_none(twice: fxdebug.Trace, line: str, shown: str) -> None:
    assert shown in " ".join(Screen(twice).type(line).split())


def test_a_result_that_is_not_there_is_answered_with_those_that_are(twice: fxdebug.Trace) -> None:
    assert "the results are out[0], out[1]" in Screen(twice).type("goto end", "print out[2]")


def test_a_write_that_returns_nothing_is_a_stop_that_a_watch_sees(twice: fxdebug.Trace) -> None:
    screen = Screen(twice)
    screen.type("goto Twice#0/mul", "watch mul.max")
    assert " → 7\n> Twice#0/setitem  setitem" in screen.type("continue")
    assert screen.type("print out.max") == "7\n"
    screen.type("goto end", "reverse-continue")
    assert screen.place == "op Twice#0/setitem"


def test_a_weight_without_statistics_says_how_to_get_them() -> None:
    class Large(nn.Linear):
        """More weights than are measured unasked."""

    with torch.no_grad():
        trace = fxdebug.fx_debug(Large(2, 3), torch.ones(1, 2), weights=False)
    shown = " ".join(Screen(trace).type("print weight.max").split())
    assert "weight.max is not known, float32[3, 2]: the run took no statistics of weights: weights=True does" in shown
