"""The commands, as scripted sessions: whole screens at 80 columns, and every kind of mistake."""

from __future__ import annotations

import builtins
import re

import pytest
import torch

import fxdebug
from fxdebug.exports import text
from fxdebug.plugins.console import COMMANDS, every_command
from support.stepped import Screen, counter, tiny

SESSIONS = {
    "walk": ["step", "", "next", "", "list", "ops", "step", "step", "where", "up", "list", "down", "back", "finish"],
    "look": [
        "continue softmax", "print out", "print out.absmax", "print absmax > 0.1 and x.nan == 0", "print args[0].shape",
        "p dtype", "inspect", "inspect h.0.attn.input[0]", "inspect head.weight", "code", "hist out 4", "p out.sum(-1)",
        "up", "print x", "inspect h.1.output[0]",
    ],
    "nan": ["goto end", "reverse-continue nan > 0", "list", "inspect", "upstream 2", "downstream 1", "findings"],
    "stop": [
        "break softmax", "break *.attn if input.absmax > 1.5", "tbreak GELU", "break stepped.py:44", "break nan > 0",
        "watch absmax > 10", "break", "continue", "continue", "ignore 1 1", "condition 2 absmax > 100", "continue",
        "disable 1 4", "continue", "enable 1", "break", "delete 1 2", "delete", "continue",
    ],
    "display": [
        "display op", "display out.std", "display out.logits", "c softmax", "s", "display", "undisplay 1",
        "goto end",
    ],
    "watch": ["watch total", "watch act.toal", "c", "c", "c", "c", "rc", "rc", "rc"],
    "search": [
        "tree", "tree 1", "find softmax", "find h.*.attn", "find Linear", "find absmax > 1.8",
        "find stepped.py:32",
    ],
    "help": ["help", "help break", "? rc"],
}  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
def test_a_scripted_session_shows_these_screens(name: str, golden) -> None:
    trace = (
        counter() if name == "watch" else tiny(masked=name == "nan", values="tensors" if name == "look" else "stats")
    )
    screen = Screen(trace).script(SESSIONS[name])
    assert max(map(len, screen.splitlines())) <= 80
    golden(f"console_{name}.txt", re.sub(r"\d+\.\d+ ms", "‹time›", screen))


def test_texts_about_the_whole_run_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, made = Screen(tiny(masked=True)), []
    original = text.tree
    monkeypatch.setattr(
        text, "tree", lambda *args, **options: made.append(options["depth"]) or original(*args, **options)
    )
    first = screen.type("tree", "tree 1", "findings")
    monkeypatch.setattr(fxdebug.Trace, "check", None)
    assert screen.type("tree", "tree 1", "findings") == first and made == [2, 1]


def test_in_a_kernel_of_a_notebook_lines_go_to_the_screen(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "1")  # one of the signs by which rich knows a kernel
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    assert "Tiny#0" in Screen(tiny(), color=True).type("where")
    assert capsys.readouterr() == ("", "")


MISTAKES = {
    "stpe": "*** there is no command 'stpe'. Did you mean 'step'",
    "step x": "*** 'x' is no number of steps",
    "break softmxa": "*** nothing in this run is called 'softmxa'. Did you mean 'softmax'?",
    "break absmx > 3": "*** where='absmx > 3': there is no 'absmx'",
    "break softmax if absmx > 3": "*** no tensor or measure of this run is called 'absmx'. Did you mean 'absmax'",
    "break path h.7": "*** no path of this run is called 'h.7'. Did you mean 'h.",
    "break class linear": "*** no class of this run is called 'linear'. Did you mean 'Linear'",
    "break against nowhere": "*** nowhere does not exist",
    "tbreak": "*** tbreak needs a place, such as h.0.attn or softmax",
    "condition 7 nan > 0": "*** there is no breakpoint '7'; none is set",
    "delete 3": "*** there is no breakpoint or watch '3'; none is set",
    "commands": "*** there is no breakpoint to give commands to: break PLACE sets one",
    "print": "*** an expression is missing: a tensor such as out or args[0], a measure such as absmax",
    "print foo": "*** 'foo' has no value here.",
    "print 1 +": "*** '1 +' is not an expression: invalid syntax",
    "print 1 / 0": "*** ZeroDivisionError: division by zero",
    "print h.1.attn.sum()": "*** 'h.1.attn.sum()' is not an expression",
    "inspect h.0.atn": "*** 'h.0.atn' has no value here. Did you mean",
    "hist x": "*** the data of value",
    "hist x 0": "*** hist takes a place and a number of bins up to 200, such as hist out 20",
    "watch x.absmx": "*** nothing in this run is called 'x.absmx'. Did you mean 'absmax'",
    "display": "",
    "undisplay 4": "*** there is no display '4'",
    "up 30": "*** this is the model's own call",
    "down": "*** this is the innermost call",
    "back": "*** this is the beginning of the run",
    "tree x": "*** tree x: give a number of levels, or all",
    "find": "*** find needs a path, a class, an operation, a line of code, or a condition: find nan > 0",
    "upstream a b": "*** upstream takes one place and a number of steps",
    "compare": "*** compare needs the folder of a saved run",
    "compare nowhere": "*** nowhere does not exist",
    "goto": "*** goto needs a call (h.0.attn), an operation (h.0.attn#0/softmax), a number, start or end",
    "help stpe": "*** there is no command 'stpe'. Did you mean 'step'",
    "# a remark": "",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_and_ends_nothing(line: str) -> None:
    screen = Screen(tiny())
    said = " ".join(screen.type(line).split())
    assert said.startswith(MISTAKES[line]) and bool(said) == bool(MISTAKES[line]), said
    assert screen.place == "call Tiny#0" and screen.session.open
    screen.type("step")
    assert screen.place == "call embed#0"


def test_no_exception_of_an_expression_ends_the_session() -> None:
    screen = Screen(tiny())
    for name in ("KeyboardInterrupt", "SystemExit", "RecursionError", "MemoryError", "GeneratorExit"):
        screen.session.stoppers.clear()
        screen.type(f"print (_ for _ in ()).throw({name}('no'))")
        assert screen.session.open
    screen.type("step")
    assert screen.place == "call embed#0"


def test_c2_both_lines_of_a_tensor_are_its_shape_and_the_statistics_of_the_run() -> None:
    trace = tiny()
    screen = Screen(trace, width=200)
    value = trace["h.0.attn"].outputs[0]
    stats = value.stats
    assert screen.type("inspect h.0.attn.output[0]").splitlines() == [
        "h.0.attn.output[0]",
        "    Tensor(shape=(1, 4, 8), dtype=float32, device=cpu)",
        f"    mean={stats.mean:.6g}, std={stats.std:.6g}, min={stats.min:.6g}, max={stats.max:.6g}, "
        f"absmax={stats.absmax:.6g}, count=32",
    ]


def test_c2_a_histogram_counts_the_elements_that_were_saved(tmp_path) -> None:
    trace = fxdebug.load(tiny(values="tensors").save(tmp_path / "run"))
    screen = Screen(trace)
    lines = screen.type("goto h.0.attn", "finish", "hist out 5").splitlines()[-5:]
    counts = [int(line.split("…")[1].split()[1]) for line in lines]
    expected = torch.histc(trace.tensor(trace["h.0.attn"].outputs[0]), bins=5)
    assert counts == expected.int().tolist()


def test_every_command_has_help_and_names_of_its_own() -> None:
    names = [name for command in every_command() for name in command.names]
    assert len(names) == len(set(names)) and set(names) == set(COMMANDS)
    for command in every_command():
        assert re.fullmatch(r"[A-Z][^\n]+\.", command.about), command.name
        said = Screen(tiny()).type(f"help {command.name}")
        assert said.startswith(command.name) and len(said.splitlines()) > 1


def test_names_of_a_hostile_run_cannot_write_to_the_terminal() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("</script>\x1b[31m\u202e", torch.nn.ReLU())
            self.add_module("x" * 10_000, torch.nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.children():
                x = layer(x)
            return x

    for color in (False, True):
        screen = Screen(fxdebug.fx_debug(Odd(), torch.ones(2)), color=color)
        lines = "s;where;list;ops;code;inspect;tree;find ReLU;b *;c;c;print </script>;break;break x;goto end".split(";")
        text = screen.script([*lines, "goto </script>\x1b[31m\u202e", "upstream"])
        assert "\x1b[31m\u202e" not in text and "\u202e" not in text
        assert ("\x1b[" in text) == color
        plain = re.sub(r"\x1b\[[\d;]*m", "", text)
        assert max(map(len, plain.splitlines())) <= 80


def test_colours_are_styles_alone() -> None:
    lines = ["s", "c softmax", "list", "ops", "where", "break nan > 0", "help", "nope"]
    plain, colored = (Screen(tiny(), color=color).script(lines) for color in (False, True))
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
