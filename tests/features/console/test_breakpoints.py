"""What stops a run: every kind of breakpoint, conditions, counts, commands, and watched expressions."""

from __future__ import annotations

import pytest
import torch

import fxdebug
from support.stepped import Screen, counter, tiny


def stops(screen: Screen, line: str = "continue") -> list[str]:
    """Where the run stops until its end."""
    places = []
    while True:
        before = screen.machine.stop.number
        screen.type(line)
        if screen.machine.stop.number == before or screen.machine.ended or screen.machine.stop.number == 0:
            return places
        places.append(screen.place)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("break h.1.attn", ["call h.1.attn#0"]),
        ("break h.*.attn", ["call h.0.attn#0", "call h.1.attn#0"]),
        ("break GELU", ["call h.0.mlp.1#0", "call h.1.mlp.1#0"]),
        ("break softmax", ["op h.0.attn#0/softmax", "op h.1.attn#0/softmax"]),
        ("break soft*", ["op h.0.attn#0/softmax", "op h.1.attn#0/softmax"]),
        ("break operation add", ["op h.0#0/add", "op h.0#0/add_1", "op h.1#0/add", "op h.1#0/add_1"]),
        ("break stepped.py:32", ["op h.0.attn#0/softmax", "op h.1.attn#0/softmax"]),
        ("break source stepped.py:32", ["op h.0.attn#0/softmax", "op h.1.attn#0/softmax"]),
        ("break h.*.attn if max > 0.3", ["return h.1.attn#0"]),
        ("break h.*.attn if input.max < 1.6", []),
        ("break h.*.attn if out.absmax > 3 * 0.15", ["return h.0.attn#0", "return h.1.attn#0"]),
        ("tbreak softmax", ["op h.0.attn#0/softmax"]),
    ],
)
def test_c4_a_breakpoint_stops_where_it_says_and_nowhere_else(line: str, expected: list[str]) -> None:
    screen = Screen(tiny())
    screen.type(line)
    assert stops(screen) == expected


def test_c4_a_line_about_numbers_finds_what_find_finds() -> None:
    trace = tiny(masked=True)
    for line in ("nan > 0", "max > 1.3 and numel == 32", "input.absmax > 1.5 and ndim == 3", "bytes > 100B"):
        screen = Screen(trace)
        screen.type(f"break {line}")
        found = trace.ops(where=line)
        assert found and stops(screen) == [f"op {node.id}" for node in found]


def test_c4_breakpoints_stop_a_run_that_goes_back_as_well() -> None:
    screen = Screen(tiny())
    screen.type("break softmax", "goto end")
    assert stops(screen, "reverse-continue") == ["op h.1.attn#0/softmax", "op h.0.attn#0/softmax"]


@pytest.mark.parametrize(
    "line", ["nan > 0", "posinf > 0", "neginf > 0", "max > 1.3 and numel == 32", "softmax", "Linear", "h.*.attn"]
)
def test_a_run_that_goes_back_halts_where_it_halts_going_on(line: str) -> None:
    screen = Screen(tiny(masked=True))
    screen.type(f"break {line}")
    forwards = stops(screen)
    assert forwards or line == "posinf > 0"
    screen.type("goto end")
    assert stops(screen, "reverse-continue") == [stop for stop in forwards[::-1] if stop != "return Tiny#0"]


def test_c4_a_condition_on_data_is_python_where_the_run_kept_tensors() -> None:
    screen = Screen(tiny(values="tensors"))
    screen.type("break Block if out.abs().max() > 1.6")
    assert stops(screen) == ["return h.0#0"]


def test_a_call_whose_graph_is_not_verified_can_be_stopped_at() -> None:
    class Escapes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.numpy() * 2)

    screen = Screen(fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), Escapes()), torch.ones(2)))
    screen.type("break unverified")
    assert stops(screen) == ["call 1#0"]


def test_a_hit_count_is_ignored_and_shown() -> None:
    screen = Screen(tiny())
    screen.type("break softmax", "ignore 1 1")
    assert stops(screen) == ["op h.1.attn#0/softmax"]
    assert screen.type("break") == "breakpoint 1: operation softmax  hit 2 times\n"


def test_commands_run_where_a_breakpoint_stops_and_may_go_on() -> None:
    screen = Screen(tiny())
    text = screen.script(["break softmax", "commands", "print out.absmax", "continue", "end", "continue", "break"])
    assert [line for line in text.splitlines() if line.startswith("0.")] == ["0.280831", "0.28319"]
    assert screen.machine.ended
    endless = Screen(tiny())
    endless.script(["break Linear", "commands 1", "goto start", "continue", "end"])
    assert "moved on 20 times within one another" in " ".join(endless.type("continue").split())
    assert endless.session.open


def test_next_stops_at_a_breakpoint_inside_a_call_that_it_goes_over() -> None:
    screen = Screen(tiny())
    screen.type("break softmax", "goto h.0", "next", "next")
    assert screen.place == "op h.0.attn#0/softmax"


def test_c5_a_watch_stops_exactly_where_the_value_changes_with_old_and_new() -> None:
    trace = counter()
    writes = [f"op {node.id}" for node in trace.ops("add_*", path="") if node.step.target == "add_"] or [
        "op Counter#0/add", "op Counter#0/add_1"
    ]  # fmt: skip
    screen = Screen(trace)
    screen.type("watch total.max")
    assert stops(screen) == writes == ["op Counter#0/add", "op Counter#0/add_1"]
    assert stops(screen, "reverse-continue") == writes[::-1]
    screen.type("goto start")
    assert screen.type("continue").splitlines()[0] == "watch 1: total.max: 0 → 3"


def test_c5_a_watched_fact_of_results_stops_where_it_becomes_another() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.double()
            y = y * 2
            return y.half() + 1

    screen = Screen(fxdebug.fx_debug(Mixed(), torch.ones(2)))
    screen.type("watch dtype")
    told = screen.type("continue").splitlines()[0], screen.place
    assert told == ("watch 1: dtype: float32 → float64", "op Mixed#0/double")
    told = screen.type("continue").splitlines()[0], screen.place
    assert told == ("watch 1: dtype: float64 → float16", "op Mixed#0/half")


def test_a_watch_and_a_breakpoint_may_both_stop_a_run_that_goes_back() -> None:
    screen = Screen(counter())
    screen.type("watch total", "break relu", "goto end")
    assert stops(screen, "reverse-continue") == ["op Counter#0/add_1", "op act#0/relu", "op Counter#0/add"]


def test_a_condition_that_raises_is_told_and_the_machine_stays_where_it_was() -> None:
    screen = Screen(tiny(values="tensors"))
    screen.type("break softmax if out.no_such_thing > 3")
    assert screen.type("continue").startswith("*** AttributeError")
    assert screen.place == "call Tiny#0"
