"""What transformers' debugger does wrong, and neither ``fx_debug`` nor the drop-in does: one test per defect.

Each test is named after its defect and says what is right instead; where that is cheap it also shows
that the reference has it. Sections: files, the tree, what is left behind, odd values, failures.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._tensor_str import get_printoptions
from support.trees import Does, calls, files, linear, named, nodes, ones, returns, saved, tensors, theirs, tree

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in


def adds(number: float) -> Does:
    """A leaf whose result tells which one it was."""
    return Does(lambda self, x: x + number)


# Files -------------------------------------------------------------------------------------------


def test_repeated_call_overwrites_tensors(tmp_path: Path) -> None:
    """A module called several times: each call's tensors are in files of their own."""
    model = Does(lambda self, x: self.add(self.add(self.add(x))), add=adds(1))
    expected = [ones() + number for number in (1, 2, 3)]
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    children = tree(tmp_path / "ours")["children"]
    assert [named(child["outputs"])[0] for child in children] == [
        "Does.add_outputs.safetensors",
        "Does.add_outputs-2.safetensors",
        "Does.add_outputs-3.safetensors",
    ]
    assert all(map(torch.equal, tensors(tmp_path / "ours", [child["outputs"] for child in children]), expected))
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert all(map(torch.equal, [trace.tensor(call.outputs[0]) for call in trace.find("add")], expected))
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len({child["outputs"]["value"] for child in tree(tmp_path / "theirs")["children"]}) == 1


@pytest.mark.parametrize("use_repr", [True, False])
def test_second_forward_overwrites_the_trace(tmp_path: Path, use_repr: bool) -> None:
    """Every forward in the context is kept, the last under the standard names; ``fx_debug`` keeps them in one trace."""
    both = Does(lambda self, x: {"x": x * 2, "x.1": x * 3})  # the names of earlier files end in a number, too
    model = Does(lambda self, x: self.both(x), both=both)
    with drop_in(model, tmp_path, use_repr=use_repr):
        for number in range(3):
            model(ones() * number)
    numbers = sorted(int(path.name.split(".")[-2]) for path in tmp_path.glob("*SUMMARY.*.json"))
    kept = [tree(tmp_path, number=number) for number in (*numbers, None)]
    outputs = [node["children"][0]["outputs"] for node in kept]
    assert [output["x.1"]["max"] for output in outputs] == ["tensor(0.)", "tensor(3.0000e+00)", "tensor(6.0000e+00)"]
    if not use_repr:
        for number, output in enumerate(outputs):
            assert all(map(torch.equal, tensors(tmp_path, output), [ones() * number * 2, ones() * number * 3]))
        assert sorted(named(kept)) == files(tmp_path, "*.safetensors")
    model.twice = lambda x: model(model(x)["x"])  # type: ignore[assignment]
    trace = fx_debug(model, ones(), method="twice")
    assert calls(trace) == ["Does", "  Does", "    both", "  Does", "    both"]


@pytest.mark.parametrize("use_repr", [True, False])
def test_two_models_of_one_class_collide(tmp_path: Path, use_repr: bool) -> None:
    """Models of one class traced to one folder, in any order and by either tool: none loses its files."""
    first, second = (Does(lambda self, x: self.add(x), add=adds(number)) for number in (1, 2))
    for model in (first, second, second, first):
        with drop_in(model, tmp_path / "ours", use_repr=use_repr):
            model(ones())
    trees = [json.loads(path.read_text()) for path in sorted((tmp_path / "ours").glob("*FULL_TENSORS*"))]
    maxima = [node["children"][0]["outputs"]["max"] for node in trees]
    assert sorted(maxima) == ["tensor(2.0000e+00)", "tensor(3.0000e+00)"]
    if not use_repr:
        for node, largest in zip(trees, maxima):
            (tensor,) = tensors(tmp_path / "ours", node["children"][0]["outputs"])
            assert torch.equal(tensor, ones() * float(largest[7:17]))
    for model in (first, second):
        fx_debug(model, ones(), save=tmp_path / "traces", values="tensors")
    with drop_in(first, tmp_path / "traces", use_repr=use_repr):
        first(ones())
    traces = [fxdebug.load(path) for path in sorted((tmp_path / "traces").glob("trace*.json"))]
    assert [trace.tensor(trace.find("add")[0].outputs[0])[0, 0].item() for trace in traces] == [2.0, 3.0]
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "traces").glob("*SUMMARY*.json")]
    assert len(summaries) == 3
    with theirs(first, tmp_path / "theirs"), theirs(second, tmp_path / "theirs"):
        first(ones()), second(ones())
    assert len(files(tmp_path / "theirs")) == 2


def test_two_threads_may_trace_models_of_one_class_to_one_folder(tmp_path: Path) -> None:
    """The same, at once: every trace that is left finds its own tensors."""
    models = [Does(lambda self, x: self.add(x), add=adds(number)) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda model: fx_debug(model, ones(), save=tmp_path, values="tensors"), models))
    traces = [fxdebug.load(path) for path in tmp_path.glob("trace*.json")]
    found = sorted(trace.tensor(trace.root.outputs[0])[0, 0].item() for trace in traces)
    assert found == [1.0, 2.0, 3.0, 4.0]


def test_file_names_collide(tmp_path: Path) -> None:
    """Names that are one when joined with underscores, or by case, or cut short: a file for each tensor."""
    values = {"a": [torch.ones(1)], "a_0": torch.ones(2), "A": [torch.ones(3)], "a_0-2": torch.ones(4)}
    values |= {"n" * 400 + end: torch.ones(5 + i) for i, end in enumerate("ab")}
    model = Does(lambda self, x: self.emit(x), emit=returns(values), emit_outputs=returns(None))
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    output = tree(tmp_path / "ours")["children"][0]["outputs"]
    assert [len(tensor) for tensor in tensors(tmp_path / "ours", output)] == [1, 2, 3, 4, 5, 6]
    assert len(set(named(output))) == 6
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert [len(trace.tensor(value)) for value in trace.find("emit")[0].outputs] == [1, 2, 3, 4, 5, 6]


def _two_ways(value: torch.Tensor, folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the drop-in, ``fx_debug`` and the reference have on disk of a tensor that a module returned."""
    model = Does(lambda self, x: self.emit(x), emit=returns(value))
    with drop_in(model, folder / "ours", use_repr=False):
        model(ones())
    (ours,) = tensors(folder / "ours", tree(folder / "ours")["children"][0]["outputs"])
    trace = saved(model, ones(), folder / "trace", values="tensors")
    with theirs(model, folder / "theirs", use_repr=False):
        model(ones())
    (reference,) = tensors(folder / "theirs", tree(folder / "theirs")["children"][0]["outputs"])
    return ours, trace.tensor(trace.find("emit")[0].outputs[0]), reference


def test_conjugate_view_saved_wrong(tmp_path: Path) -> None:
    """A lazily conjugated tensor, also a transposed or sliced one, is saved as what it is."""
    value = torch.tensor([[1 + 2j, 3 - 4j], [5j, -6j]]).conj()
    ours, traced, reference = _two_ways(value, tmp_path)
    assert torch.equal(ours, value) and torch.equal(traced, value) and not torch.equal(reference, value)
    for number, view in enumerate((value.t(), value[:, 1:], value.expand(3, 2, 2))):
        ours, traced, _ = _two_ways(view, tmp_path / str(number))
        assert torch.equal(ours, view) and torch.equal(traced, view)


def test_negative_view_saved_wrong(tmp_path: Path) -> None:
    """A tensor with the negative bit is saved with its sign."""
    value = torch._neg_view(torch.tensor([1.0, -2.0]))
    assert value.is_neg()
    ours, traced, reference = _two_ways(value, tmp_path)
    assert torch.equal(ours, value) and torch.equal(traced, value) and not torch.equal(reference, value)
    value = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    ours, traced, _ = _two_ways(value, tmp_path / "imag")
    assert value.is_neg() and torch.equal(ours, value) and torch.equal(traced, value)


def test_pruned_tensors_still_written(tmp_path: Path) -> None:
    """The files are those that the tree names: layers that are pruned have none."""
    model = nn.Sequential(*[nn.Sequential(linear(), nn.ReLU()) for _ in range(5)])
    with drop_in(model, tmp_path / "ours", do_prune_layers=True, use_repr=False):
        model(ones())
    node = tree(tmp_path / "ours")
    assert nodes(node) == ["Sequential", "  0", "    0.0", "    0.1", "  4", "    4.0", "    4.1"]
    assert sorted(named(node)) == files(tmp_path / "ours", "*.safetensors")
    trace = saved(model, ones(), tmp_path / "trace", values="tensors", prune=True)
    assert nodes(tree(tmp_path / "trace")) == nodes(node)
    given = [value for call in trace.calls for value in (*call.inputs, *call.outputs)]
    assert all(trace.tensor(value).shape == value.shape for value in given)
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len(files(tmp_path / "theirs", "*.safetensors")) > len(named(tree(tmp_path / "theirs")))


def test_parent_output_files_orphaned(tmp_path: Path) -> None:
    """No file lies there that the tree does not name; the trace names the root's outputs, and has them."""
    model = Does(lambda self, x: (self.add(x) * 2, {"more": x * 3}), add=adds(1))
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(ones())
    assert sorted(named(tree(tmp_path / "ours"))) == files(tmp_path / "ours", "*.safetensors")
    trace = saved(model, ones(), tmp_path / "trace", values="tensors")
    assert [trace.tensor(value)[0, 0].item() for value in trace.root.outputs] == [4.0, 3.0]
    assert {value.saved.partition("#")[0] for value in trace.values if value.saved} == {
        *files(tmp_path / "trace", "*.safetensors")
    }
    with theirs(model, tmp_path / "theirs", use_repr=False):
        model(ones())
    assert len(files(tmp_path / "theirs", "*.safetensors")) > len(named(tree(tmp_path / "theirs")))


# The tree ----------------------------------------------------------------------------------------


def outlines(model: nn.Module, folder: Path, inputs: Any = None) -> tuple[list[str], list[str]]:
    """The calls of one run, as the loaded trace and as the drop-in's tree have them."""
    trace = saved(model, ones() if inputs is None else inputs, folder / "trace")
    with drop_in(model, folder / "drop_in", do_prune_layers=False):
        model(ones() if inputs is None else inputs)
    assert len(files(folder / "drop_in", "*SUMMARY*")) == 1
    return calls(trace), nodes(tree(folder / "drop_in", "SUMMARY"))


def test_top_level_recursion_lost(tmp_path: Path) -> None:
    """A root that calls itself: every inner call hangs where it was made, with all that it called."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        if len(x) > 1:
            x = torch.cat([self(half) for half in x.chunk(2)])
        return self.after(x)

    model = Does(forward, before=adds(1), after=adds(2))
    leaf = ["    Does", "      before", "      after"]
    expected = ["Does", "  before", *[line[2:] for line in leaf * 2], "  after"]
    for outline in outlines(model, tmp_path, ones(2)):
        assert outline == expected
    with theirs(model, tmp_path / "theirs"):
        model(ones(2))
    assert nodes(tree(tmp_path / "theirs")) != expected


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread of its own."""
    results: list[Any] = [None] * len(work)

    def run(index: int) -> None:
        results[index] = work[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_pool(*work: Callable[[], Any]) -> list[Any]:
    """The same in a pool with a single thread, which is used again and again."""
    with ThreadPoolExecutor(1) as pool:
        return [future.result() for future in [pool.submit(function) for function in work]]


def branching(run: Callable[..., list[Any]], count: int = 3) -> Does:
    """A model of branches that run in threads, each of which runs its own parts in threads."""
    barrier = threading.Barrier(count)

    def branch(self: Any, x: torch.Tensor) -> torch.Tensor:
        if run is in_threads:
            barrier.wait(10)  # all branches are open at once
        return sum(run(lambda: self.left(x), lambda: self.right(x)))

    def root(self: Any, x: torch.Tensor) -> torch.Tensor:
        return sum(run(*[functools.partial(part, x) for part in self._modules.values()]))

    pair = nn.Sequential(linear(), nn.ReLU())
    parts = {f"branch{i}": Does(branch, left=linear(), right=pair) for i in range(count)}
    return Does(root, **parts)


def _branch(lines: list[str], name: str) -> list[str]:
    """The lines of one branch of an outline, sorted: its threads begin in any order."""
    start = lines.index(f"  {name}")
    return [lines[start], *sorted(itertools.takewhile(lambda line: line.startswith("    "), lines[start + 1 :]))]


@pytest.mark.parametrize("run", [in_threads, in_pool])
def test_threads_scramble_the_tree(tmp_path: Path, run: Callable[..., list[Any]]) -> None:
    """What runs in threads, and in threads of threads, hangs below the call that started them, complete."""
    for outline in outlines(branching(run), tmp_path):
        assert len(outline) == 1 + 3 * 5
        for i in range(3):
            inside = [f"      branch0.right.{part}" for part in range(2)]  # the name of a shared part is its first
            inside = sorted([*inside, "    branch0.right", f"    branch{i}.left"])
            assert _branch(outline, f"branch{i}") == [f"  branch{i}", *inside]


def test_two_threads_in_one_context_have_a_tree_each(tmp_path: Path) -> None:
    """Forwards of one model at once, each with threads of its own: two whole trees."""
    model, barrier = branching(in_threads, 1), threading.Barrier(2)
    model.branch0.left = Does(lambda self, x: (barrier.wait(10), x)[1])
    with drop_in(model, tmp_path, do_prune_layers=False):
        in_threads(lambda: model(ones()), lambda: model(ones(2)))
    shapes = []
    for number in (1, None):
        node = tree(tmp_path, "SUMMARY", number)
        assert len(nodes(node)) == 6
        shapes.append({value["shape"] for value in _values(node)})
    assert sorted(map(sorted, shapes)) == [["torch.Size([1, 4])"], ["torch.Size([2, 4])"]]


def _values(node: Any) -> list[dict[str, Any]]:
    """Every tensor's entry below a node of a standard tree."""
    if isinstance(node, dict) and "dtype" in node:
        return [node]
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for part in inside for value in _values(part)]


def test_two_threads_tracing_one_model_do_not_see_each_other() -> None:
    """``fx_debug`` of one model in two threads at once: each trace has the calls of its own run."""
    barrier = threading.Barrier(2)
    model = nn.Sequential(linear(), Does(lambda self, x: (barrier.wait(10), x)[1]), nn.Sequential(linear()))
    traces = in_threads(lambda: fx_debug(model, ones()), lambda: fx_debug(model, ones(2)))
    for rows, trace in enumerate(traces, 1):
        assert calls(trace) == ["Sequential", "  0", "  1", "  2", "    2.0"]
        assert {value.shape[0] for value in trace.root.inputs} == {rows}
        assert [call.number for call in trace.calls] == [0] * 5


def test_no_grad_is_partial(tmp_path: Path) -> None:
    """The drop-in's block is without gradients, the root and threads included; ``fx_debug`` changes no mode."""
    seen: list[bool] = []

    def notes(self: Any, x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_grad_enabled())
        return x

    def root(self: Any, x: torch.Tensor) -> torch.Tensor:
        in_threads(lambda: self.leaf(x))
        return notes(self, self.leaf(x))

    model = Does(root, leaf=Does(notes))
    with drop_in(model, tmp_path):
        model(ones())
        notes(model, ones())
    assert seen == [False] * 4 and torch.is_grad_enabled()
    for enabled in (True, False):
        seen.clear()
        with torch.set_grad_enabled(enabled):
            fx_debug(model, ones())
        assert seen == [True, enabled, enabled]  # a new thread begins with gradients
    seen.clear()
    with theirs(model, tmp_path / "theirs"):
        model(ones())
    assert seen[-1]  # the reference's root


# What is left behind -----------------------------------------------------------------------------


def state(model: nn.Module) -> list[dict[str, Any]]:
    """Everything that stands in the modules themselves."""
    return [dict(vars(module)) for module in model.modules()]


def test_attributes_left_on_the_model(tmp_path: Path) -> None:
    """Every module's ``__dict__`` is as it was, and the very objects are in it."""
    model = Does(lambda self, x: self.a(x), a=nn.Sequential(linear(), nn.ReLU()))
    model.a[1].forward = lambda x: x * 2  # type: ignore[method-assign]  # a forward of the instance's own stays
    before = state(model)
    fx_debug(model, ones())
    with drop_in(model, tmp_path):
        model(ones())
    after = state(model)
    assert all(a.keys() == b.keys() and all(a[key] is b[key] for key in a) for a, b in zip(before, after))
    with theirs(model, tmp_path / "theirs"):
        model(ones())
    assert "_call_tree" in vars(model) and "forward" in vars(model.a[0])


def test_leftover_forward_breaks_class_patches(tmp_path: Path) -> None:
    """A class patched after a trace is patched, for the model and for copies made while it was traced."""

    class Patched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            copies.append(pickle.loads(pickle.dumps(self.inner)))
            return self.inner(x)

    copies: list[Any] = []
    model = Patched()
    model.inner = linear()
    fx_debug(model, ones())
    with drop_in(model, tmp_path):
        model(ones())
    assert all("forward" not in vars(module) for module in (model, model.inner, *copies))
    Patched.forward = lambda self, x: "patched"  # type: ignore[method-assign,assignment,return-value]
    assert model(ones()) == "patched"
    other = Does(lambda self, x: x)
    with theirs(other, tmp_path / "theirs"):
        other(ones())
    assert "forward" in vars(other)


class Activations(nn.Module):
    """Notes the tensors that its layers made, without keeping them."""

    made: list[weakref.ref[Any]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(linear(), nn.ReLU(), linear())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            self.made.append(weakref.ref(x))
        return x.sum()


@pytest.mark.parametrize("values", ["stats", "repr", "tensors"])
def test_call_tree_keeps_data_alive(tmp_path: Path, values: str) -> None:
    """No activation outlives the run because of us, and nothing of a trace is pickled with the model."""
    model, Activations.made[:] = Activations(), []
    size = len(pickle.dumps(model))
    with torch.no_grad():
        trace = fx_debug(model, ones(), values=values)
    assert [reference() for reference in Activations.made] == [None] * 3
    assert len(trace.values) > 3
    with drop_in(model, tmp_path, use_repr=values == "repr"):
        model(ones())
        assert [reference() for reference in Activations.made[3:]] == [None] * 3
    assert len(pickle.dumps(model)) == size
    if values == "stats":
        with theirs(model, tmp_path):
            model(ones())
        assert len(vars(model)["_call_tree"]["children"]) == 3


def test_print_options_leak(tmp_path: Path) -> None:
    """The user's print options hold before, during and after a trace, in every thread, and for an object's repr."""
    seen: list[Any] = []

    class Shown:
        def __repr__(self) -> str:
            with torch._tensor_str.printoptions(precision=2):
                return str(torch.tensor([1.2345]))

    def notes(self: Any, x: torch.Tensor, thing: Any) -> tuple[torch.Tensor, Any]:
        seen.append((get_printoptions(), str(torch.tensor([1.5, 2.0]))))
        return x, thing

    before = get_printoptions()
    torch.set_printoptions(precision=3, linewidth=50)
    try:
        mine = get_printoptions(), "tensor([1.500, 2.000])"
        model = Does(lambda self, x, thing: self.a(x, thing)[0], a=Does(notes))
        fx_debug(model, (ones(), Shown()), values="repr")
        with drop_in(model, tmp_path / "ours"):
            model(ones(), Shown())
            assert get_printoptions() == mine[0]
        stop = threading.Event()

        def watch() -> list[Any]:
            found = []
            while not stop.is_set():
                found.append((get_printoptions(), str(torch.tensor([1.5, 2.0]))))
            return found

        def trace() -> None:
            try:
                for _ in range(20):
                    fx_debug(model, (ones().to_sparse(), Shown()), values="repr")  # printed by torch itself
            finally:
                stop.set()

        seen += in_threads(watch, trace)[0]
        assert [found for found in seen if found != mine][:3] == []
        assert get_printoptions() == mine[0]
        from transformers.model_debugging_utils import model_addition_debugger_context

        with model_addition_debugger_context(model, str(tmp_path / "theirs")):
            model(ones(), Shown())
        assert get_printoptions()["linewidth"] == 120
    finally:
        torch.set_printoptions(**before)
    assert json.loads((tmp_path / "ours" / "Does_debug_tree_SUMMARY.json").read_text())["inputs"]["args"][1] == (
        "tensor([1.23])"
    )


def test_stdout_redirected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``sys.stdout`` is never touched: what others print meanwhile is printed, and is not in the trace."""
    stdout, seen = sys.stdout, []

    class Shown(torch.Tensor):
        def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
            seen.append(sys.stdout)
            if len(seen) == 1:
                in_threads(lambda: print("from another thread"))
            return "shown"

    shown = torch.ones(2).as_subclass(Shown)
    for run in ("fx_debug", "drop_in", "theirs"):
        seen.clear()
        model = Does(lambda self, x: self.emit(x) and x, emit=returns(shown))
        model.does = lambda self, x: (self.emit(x), x)[1]
        if run == "fx_debug":
            fx_debug(model, ones(), values="repr", save=tmp_path / run)
        else:
            with (drop_in if run == "drop_in" else theirs)(model, tmp_path / run):
                model(ones())
        text = json.dumps(tree(tmp_path / run)["children"])
        assert "shown" in text and seen
        assert ("from another thread" in text) == (run == "theirs")
        assert all(stream is stdout for stream in seen) == (run != "theirs")
        assert capsys.readouterr().out == ("" if run == "theirs" else "from another thread\n")


_THEIRS_IN_THREADS = """
import sys, tempfile, threading, torch
from torch import nn
from transformers.model_debugging_utils import model_addition_debugger_context

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(8))
    def forward(self, x):
        threads = [threading.Thread(target=part, args=(x,)) for part in self.parts]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return x

threading.excepthook = lambda error: None
broken = 0
stdout = sys.stdout
for attempt in range(300):
    model = Branches()
    try:
        with model_addition_debugger_context(model, tempfile.mkdtemp(), False):
            model(torch.ones(1, 4))
    except Exception:
        pass
    if sys.stdout is not stdout:
        broken = 1
        break
sys.stdout = stdout
print("left broken" if broken else "survived")
"""


def test_threads_break_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However many threads run submodules, ``print`` works as before."""
    stdout = sys.stdout
    model = branching(in_threads, 8)
    for number in range(3):
        fx_debug(model, ones(), values="repr")
        with drop_in(model, tmp_path / str(number)):
            model(ones())
    assert sys.stdout is stdout
    print("still here")
    assert capsys.readouterr().out == "still here\n"
    done = subprocess.run([sys.executable, "-c", _THEIRS_IN_THREADS], capture_output=True, text=True, check=False)
    assert done.stdout in ("left broken\n", "survived\n"), done.stderr  # a race: it need not show


def test_nested_contexts_leave_wrappers(tmp_path: Path) -> None:
    """Contexts that overlap may end in any order: nothing stays, and gradients are off until the last one ends."""
    model = nn.Sequential(linear(), nn.ReLU())
    before = state(model)
    for number, order in enumerate(itertools.permutations(range(3))):
        contexts = [drop_in(model, tmp_path / f"{number}-{i}") for i in range(3)]
        for context in contexts:
            context.__enter__()
        for left, index in enumerate(order):
            assert not torch.is_grad_enabled()
            model(ones(left + 1))
            contexts[index].__exit__(None, None, None)
        assert torch.is_grad_enabled()
        assert all(a == b for a, b in zip(before, state(model)))
        for left, index in enumerate(order):  # each saw the forwards that ran while it was open
            assert len(files(tmp_path / f"{number}-{index}", "*SUMMARY*")) == left + 1
    outer, inner = theirs(model, tmp_path / "a"), theirs(model, tmp_path / "b")
    outer.__enter__(), inner.__enter__()
    outer.__exit__(None, None, None), inner.__exit__(None, None, None)
    assert hasattr(vars(model)["forward"], "__wrapped__")


def test_user_attribute_overwritten(tmp_path: Path) -> None:
    """A model's own attributes are its own, whatever their names."""
    names = ("_call_tree", "_debugger_model_call_stack", "_debugger_module_dump_name", "_fxdebug", "trace", "calls")
    model = Does(lambda self, x: (self.a(x), [getattr(self, name) for name in names])[0], a=linear())
    for name in names:
        setattr(model, name, f"my {name}")
    fx_debug(model, ones())
    with drop_in(model, tmp_path / "ours"):
        model(ones())
    assert all(getattr(model, name) == f"my {name}" for name in names)
    with theirs(model, tmp_path / "theirs"):
        model(ones())
    assert getattr(model, names[0]) != f"my {names[0]}"


class Unwilling(nn.Module):
    """Refuses every attribute called ``forward``, also to be asked for it."""

    @property
    def forward(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no forward for you")


class Protected(nn.Linear):
    """Refuses to have its forward replaced."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward":
            raise RuntimeError("hands off")
        super().__setattr__(name, value)


def test_half_attached_when_attaching_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that refuse are left alone and the others traced; if attaching is interrupted, nothing stays."""
    model = Does(lambda self, x: self.b(self.a(x)), a=linear(), b=Protected(4, 4), c=Unwilling())
    before = state(model)
    for outline in outlines(model, tmp_path):
        assert outline == ["Does", "  a", "  b"]
    from fxdebug.capture import wrap

    made, original = [], wrap._Wrapped

    def interrupted(module: nn.Module, *rest: Any) -> Any:
        made.append(module)
        if len(made) == 2:
            raise KeyboardInterrupt
        return original(module, *rest)

    for run in (lambda: fx_debug(model, ones()), lambda: drop_in(model, tmp_path / "x").__enter__()):
        made.clear()
        monkeypatch.setattr(wrap, "_Wrapped", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run()
        monkeypatch.undo()
        assert all(a == b for a, b in zip(before, state(model))) and torch.is_grad_enabled()
    assert files(tmp_path / "x") == []
    del model._modules["c"]
    with pytest.raises(RuntimeError, match="hands off"), theirs(model, tmp_path / "theirs"):
        pass
    assert "forward" in vars(model.a)


# Odd values --------------------------------------------------------------------------------------


def odd(value: Any, folder: Path, reference_stops: tuple[bool, ...]) -> tuple[fxdebug.Trace, Any, Any]:
    """A run in which a module returns ``value``: the loaded trace, and what the drop-in's tree has of it.

    ``reference_stops``: with which ``use_repr`` the reference cannot run it.
    """
    model = Does(lambda self, x: self.emit(x), emit=returns(value))
    shown = []
    for use_repr in (True, False):
        for name, context in (("ours", drop_in), ("theirs", theirs)):
            stops = name == "theirs" and use_repr in reference_stops
            expected = pytest.raises(BaseException) if stops else contextlib.nullcontext()
            with expected, context(model, folder / f"{name}-{use_repr}", use_repr=use_repr):
                assert model(ones()) is value
        shown.append(tree(folder / f"ours-{use_repr}")["children"][0]["outputs"])
        assert sorted(named(tree(folder / f"ours-{use_repr}"))) == files(folder / f"ours-{use_repr}", "*.safetensors")
    trace = fx_debug(model, ones(), save=folder / "trace", values="tensors")
    assert trace.output is value
    loaded = fxdebug.load(folder / "trace")
    assert loaded == trace and calls(loaded) == ["Does", "  emit"]
    return loaded, shown[0], shown[1]


def _emitted(trace: fxdebug.Trace) -> fxdebug.Value:
    (value,) = trace.find("emit")[0].outputs
    return value


BOTH, FILES = (True, False), (False,)


def test_empty_tensor(tmp_path: Path) -> None:
    """A tensor without elements is recorded like any other: an expert that no token was sent to."""
    trace, printed, on_disk = odd(torch.empty(0, 4), tmp_path, BOTH)
    assert printed["value"] == ["tensor([], size=(0, 4))"] and printed["mean"] == "tensor(nan)"
    assert [tensor.shape for tensor in tensors(tmp_path / "ours-False", on_disk)] == [(0, 4)]
    value = _emitted(trace)
    assert value.shape == (0, 4) and value.stats == fxdebug.Stats(0, None, None, None, None, None)
    assert trace.tensor(value).shape == (0, 4)
    for number, empty in enumerate((torch.empty(0, dtype=torch.long), torch.empty(2, 0, 3), torch.empty(0).bfloat16())):
        trace, _, _ = odd(empty, tmp_path / str(number), BOTH if empty.is_floating_point() else ())
        assert trace.tensor(_emitted(trace)).shape == empty.shape

    def routed(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.low(x[x[:, 0] < 5]), self.high(x[x[:, 0] >= 5])])

    for outline in outlines(Does(routed, low=linear(), high=linear()), tmp_path / "experts"):
        assert outline == ["Does", "  low", "  high"]


def test_meta_tensor_files(tmp_path: Path) -> None:
    """A meta tensor has no data to save: its place in the tree is empty, and a note says why."""
    value = torch.empty(2, 3, device="meta")
    trace, printed, on_disk = odd(value, tmp_path, FILES)
    assert printed["value"] == ["tensor(..., device='meta', size=(2, 3))"]
    assert on_disk["value"] is None and on_disk["shape"] == "torch.Size([2, 3])"
    assert (_emitted(trace).device, _emitted(trace).shape, _emitted(trace).saved) == ("meta", (2, 3), None)
    assert any("a meta tensor has no data" in note.what for note in trace.notes)


def test_sparse_coo(tmp_path: Path) -> None:
    """A sparse COO tensor is measured, zeros included, printed and saved."""
    value = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    trace, printed, _ = odd(value, tmp_path, BOTH)
    assert printed["value"][-1] == "       size=(2, 2), nnz=1, layout=torch.sparse_coo)"
    assert printed["max"] == "tensor(2.0000e+00)"
    stats = _emitted(trace).stats
    assert (stats.count, stats.mean, stats.zeros, _emitted(trace).layout) == (4, 0.5, 3, "sparse_coo")
    assert torch.equal(trace.tensor(_emitted(trace)).to_dense(), value.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_csr(tmp_path: Path) -> None:
    """Compressed sparse tensors are measured, printed and saved, by row, by column and in blocks."""
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    for value in (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1))):
        layout = str(value.layout)[6:]
        trace, printed, _ = odd(value, tmp_path / layout, BOTH)
        assert layout in printed["value"][-1] and printed["min"] == "tensor(0.)"
        assert (_emitted(trace).layout, _emitted(trace).stats.mean) == (layout, 0.5)
        assert trace.tensor(_emitted(trace)).layout == value.layout
        assert torch.equal(trace.tensor(_emitted(trace)).to_dense(), dense)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def _nested(folder: Path, layout: torch.layout) -> None:
    parts = [torch.ones(1, 2), torch.full((3, 2), 3.0)]
    trace, printed, _ = odd(torch.nested.nested_tensor(parts, layout=layout), folder, BOTH)
    value = _emitted(trace)
    assert (value.shape, value.detail, value.stats.count) == ((2, -1, 2), "nested: (1, 2), (3, 2)", 8)
    assert printed["mean"] == "tensor(2.5000e+00)"
    assert all(map(torch.equal, trace.tensor(value).unbind(), parts))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensor(tmp_path: Path) -> None:
    """A nested tensor is measured over the elements there are, printed and saved part by part."""
    _nested(tmp_path, torch.strided)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensor(tmp_path: Path) -> None:
    """So is a jagged one."""
    _nested(tmp_path, torch.jagged)


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantized_files(tmp_path: Path) -> None:
    """A quantised tensor, per tensor and per channel, is saved, by the drop-in as plain numbers."""
    dense = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    for name, value in {
        "tensor": torch.quantize_per_tensor(dense, 0.5, 3, torch.qint8),
        "channel": torch.quantize_per_channel(dense, torch.tensor([0.5, 0.25]), torch.tensor([1, 2]), 0, torch.qint8),
    }.items():
        trace, _, on_disk = odd(value, tmp_path / name, FILES)
        assert torch.equal(tensors(tmp_path / name / "ours-False", on_disk)[0], dense)
        assert f"quantised per_{name}_affine" in _emitted(trace).detail
        again = trace.tensor(_emitted(trace))
        assert torch.equal(again.int_repr(), value.int_repr()) and torch.equal(again.dequantize(), dense)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex128_files(tmp_path: Path) -> None:
    """Complex numbers of every width are saved to the last bit."""
    value = torch.tensor([1 / 3 + 2j, -1j], dtype=torch.complex128)
    trace, _, on_disk = odd(value, tmp_path / "128", FILES)
    assert torch.equal(torch.view_as_complex(tensors(tmp_path / "128" / "ours-False", on_disk)[0]), value)
    assert torch.equal(trace.tensor(_emitted(trace)), value)
    half = torch.tensor([1 + 2j], dtype=torch.complex32)
    trace, _, _ = odd(half, tmp_path / "32", FILES)
    assert torch.equal(torch.view_as_real(trace.tensor(_emitted(trace))), torch.view_as_real(half))


class Key:
    """A key of a kind that JSON does not know; all of them look the same."""


def test_tuple_dict_keys(tmp_path: Path) -> None:
    """Dict keys of any kind: their text stands in the tree, and two keys with one text are told apart."""
    keys = [(1, 2), "(1, 2)", frozenset({3}), b"bytes", Key(), Key(), torch.float32]
    value = {key: torch.full((1,), float(number)) for number, key in enumerate(keys)}
    trace, printed, on_disk = odd(value, tmp_path, BOTH)
    assert list(printed)[:4] == ["(1, 2)", "(1, 2)-2", "frozenset({3})", "b'bytes'"]
    assert len(printed) == 7
    assert [tensor.item() for tensor in tensors(tmp_path / "ours-False", on_disk)] == list(map(float, range(7)))
    group = trace.find("emit")[0].outputs.item
    assert [trace.tensor(item).item() for item in group.items] == list(map(float, range(7)))
    assert group.keys[1] == "(1, 2)" and group.keys[0].text == "(1, 2)" and group.keys[3] == b"bytes"


def test_slash_in_dict_key_files(tmp_path: Path) -> None:
    """A slash, ``..`` or a NUL in a key is no directory: all files lie in the folder itself."""
    keys = ["a/b", "/etc/passwd", "../up", "..", "a_b", "nul\0byte", "back\\slash", ""]
    value = {key: torch.full((1,), float(number)) for number, key in enumerate(keys)}
    trace, _, on_disk = odd(value, tmp_path / "in", FILES)
    assert list(on_disk) == keys
    assert [tensor.item() for tensor in tensors(tmp_path / "in" / "ours-False", on_disk)] == list(map(float, range(8)))
    assert [trace.tensor(item).item() for item in trace.find("emit")[0].outputs] == list(map(float, range(8)))
    assert files(tmp_path) == ["in"]


def test_long_path_files(tmp_path: Path) -> None:
    """Paths too long for a file name, from names, keys or nesting, are cut and told apart."""
    deep: Any = torch.ones(1)
    for _ in range(150):
        deep = [deep]
    trace, _, on_disk = odd({"k" * 300: torch.zeros(1), "k" * 301: deep}, tmp_path / "keys", FILES)
    assert [tensor.item() for tensor in tensors(tmp_path / "keys" / "ours-False", on_disk)] == [0.0, 1.0]
    assert [trace.tensor(value).item() for value in trace.find("emit")[0].outputs] == [0.0, 1.0]
    model = adds(1)
    for number in range(40):
        model = Does(lambda self, x: next(iter(self._modules.values()))(x), **{f"a_rather_long_name_{number}": model})
    with drop_in(model, tmp_path / "names", use_repr=False):
        model(ones())
    assert sorted(named(tree(tmp_path / "names"))) == files(tmp_path / "names", "*.safetensors")
    assert len(saved(model, ones(), tmp_path / "trace", values="tensors").calls) == 41


def test_self_reference(tmp_path: Path) -> None:
    """A container that holds itself, directly or through others and objects, ends where it comes round."""
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    trace, printed, _ = odd(loop, tmp_path / "list", BOTH)
    assert printed[1] == "<cycle: the list 1 up>"
    assert trace.find("emit")[0].outputs.item[1].text == "<cycle: the list 1 up>"
    around: dict[str, Any] = {"tensor": torch.ones(1)}
    around["holder"] = ({"back": around},)
    _, printed, _ = odd(around, tmp_path / "dict", BOTH)
    assert printed["holder"][0]["back"] == "<cycle: the dict 3 up>"
    thing = Key()
    thing.me, thing.tensor = thing, torch.ones(2)  # type: ignore[attr-defined]
    trace, _, _ = odd(thing, tmp_path / "object", ())
    assert [value.shape for value in trace.find("emit")[0].outputs] == [(2,)]


def test_vmap_files(tmp_path: Path) -> None:
    """A module under ``torch.vmap`` is recorded, with the whole batch on disk."""
    model = Does(lambda self, x: torch.vmap(self.a)(x), a=linear())
    x = torch.arange(8.0).reshape(2, 4)
    with drop_in(model, tmp_path / "ours", use_repr=False):
        model(x)
    expected = model(x).detach()
    (on_disk,) = tensors(tmp_path / "ours", tree(tmp_path / "ours")["children"][0]["outputs"])
    assert torch.equal(on_disk, expected)
    trace = saved(model, x, tmp_path / "trace", values="tensors")
    value = trace.find("a")[0].outputs[0]
    assert value.detail.startswith("inside vmap over dimension 0 of (2, 4)") and value.stats.count == 8
    with pytest.raises(Exception), theirs(model, tmp_path / "theirs", use_repr=False):  # noqa: B017
        model(x)


class Mute:
    """Cannot be shown, compared, hashed, counted or asked for an attribute."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")

    __eq__ = __hash__ = __len__ = __bool__ = __str__ = __repr__  # type: ignore[assignment]


class NotText:
    def __repr__(self) -> str:
        return 5  # type: ignore[return-value]


def test_repr_raises(tmp_path: Path) -> None:
    """An object that cannot be shown is recorded as one that cannot be, with a note."""
    trace, printed, _ = odd(Mute(), tmp_path / "mute", BOTH)
    assert printed == "<Mute object whose repr raised ValueError: no repr>"
    assert trace.find("emit")[0].outputs.item.type == "Mute"
    assert any("the repr of a Mute raised ValueError" in note.what for note in trace.find("emit")[0].notes)
    _, printed, _ = odd([NotText(), torch.ones(1)], tmp_path / "not text", BOTH)
    assert printed[0].startswith("<NotText object whose repr raised TypeError")


def test_child_named_forward(tmp_path: Path) -> None:
    """A submodule may be called ``forward``, or like any other attribute."""
    names = ("forward", "training", "_modules", "__class__", "self")
    model = Does(lambda self, x: [part(x) for part in self._modules.values()], **{name: linear() for name in names})
    for outline in outlines(model, tmp_path):
        assert outline == ["Does", *[f"  {name}" for name in names]]
    with pytest.raises(Exception), theirs(model, tmp_path / "theirs"):  # noqa: B017
        model(ones())


def test_long_class_name(tmp_path: Path) -> None:
    """A class name too long for a file, or none at all for one, gives names that fit."""
    for number, name in enumerate(("C" * 300, "É" * 200, "a/b", "..")):
        model = type(name, (Does,), {})(lambda self, x: self.a(x), a=linear())
        with drop_in(model, tmp_path / f"{number}"):
            model(ones())
            model(ones(2))
        node = tree(tmp_path / f"{number}")
        assert node["module_path"] == name and len(files(tmp_path / f"{number}", "*SUMMARY*")) == 2
        assert saved(model, ones(), tmp_path / f"{number}").model == name
    with pytest.raises(OSError), theirs(type("C" * 300, (Does,), {})(lambda self, x: x), tmp_path) as model:
        model(ones())


# Failures ----------------------------------------------------------------------------------------


def _raises(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("here")


@pytest.mark.parametrize("error", [ValueError("here"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_exception_loses_the_trace(tmp_path: Path, error: BaseException) -> None:
    """What was recorded up to an exception is written, with the failing call marked."""

    def fails(self: Any, x: torch.Tensor) -> torch.Tensor:
        raise error

    model = Does(lambda self, x: self.after(self.block(self.before(x))), before=linear(), after=linear())
    model.block = nn.Sequential(nn.ReLU(), Does(fails))
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    expected = ["Does", "  before", "  block", "    block.0", "    block.1"]
    with pytest.raises(type(error)) as caught, drop_in(model, tmp_path / "ours"):
        model(ones())
    assert caught.value is error
    node = tree(tmp_path / "ours")
    assert nodes(node) == expected and node["error"] == message
    assert [child.get("error") for child in node["children"]] == [None, message]
    with pytest.raises(type(error)) as caught:
        fx_debug(model, ones(), save=tmp_path / "trace")
    assert caught.value is error
    for trace in (fxdebug.load(tmp_path / "trace"), fxdebug.last_failed()):
        assert calls(trace) == expected
        assert [call.path for call in trace.calls if call.error and call.error.here] == ["block.1"]
        assert str(trace.error) == message
    if isinstance(error, ValueError):
        with pytest.raises(ValueError), theirs(model, tmp_path / "theirs"):
            model(ones())
        assert files(tmp_path / "theirs") == []


def _refuses_once() -> Does:
    """A model whose second layer fails in the first forward, and not afterwards."""
    failed: list[bool] = []

    def once(self: Any, x: torch.Tensor) -> torch.Tensor:
        failed.append(True)
        return _raises(self, x) if len(failed) == 1 else x

    return Does(lambda self, x: self.b(self.a(x)), a=linear(), b=Does(once))


def test_exception_corrupts_the_next_forward(tmp_path: Path) -> None:
    """The forward after one that raised has a whole tree of its own; so has the failed one."""
    model = _refuses_once()
    with drop_in(model, tmp_path):
        with pytest.raises(ValueError):
            model(ones())
        model(ones())
    assert nodes(tree(tmp_path)) == ["Does", "  a", "  b"] and "error" not in tree(tmp_path)
    failed = tree(tmp_path, number=1)
    assert nodes(failed) == ["Does", "  a", "  b"] and failed["error"] == "ValueError: here"
    model = _refuses_once()
    with pytest.raises(ValueError):
        fx_debug(model, ones())
    trace = fx_debug(model, ones())
    assert calls(trace) == ["Does", "  a", "  b"] and trace.error is None


def test_caught_exception_corrupts_the_tree(tmp_path: Path) -> None:
    """After an exception that the model handles itself, calls hang where they belong."""

    def tries(self: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.first(x)
        except ValueError:
            return self.second(x)

    first = Does(lambda self, x: self.deep(x), deep=Does(_raises))
    model = Does(
        lambda self, x: self.after(self.tries(x)), tries=Does(tries, first=first, second=linear()), after=linear()
    )
    expected = ["Does", "  tries", "    tries.first", "      tries.first.deep", "    tries.second", "  after"]
    for outline in outlines(model, tmp_path):
        assert outline == expected
    trace = fxdebug.load(tmp_path / "trace")
    assert {call.path: call.error.here for call in trace.calls if call.error} == {
        "tries.first": False,
        "tries.first.deep": True,
    }
    assert trace.error is None
    with theirs(model, tmp_path / "theirs", do_prune_layers=False):
        model(ones())
    assert nodes(tree(tmp_path / "theirs")) != expected


_DIES = """
import os, sys, torch
from torch import nn
from fxdebug import fx_debug, model_addition_debugger_context

class Dies(nn.Module):
    def forward(self, x):
        os._exit(9)

model = nn.Sequential(nn.Linear(4, 4), Dies())
if os.fork() == 0:
    fx_debug(model, torch.ones(1, 4), save=sys.argv[1] + "/trace", values="tensors")
os.wait()
if os.fork() == 0:
    with model_addition_debugger_context(model, sys.argv[1] + "/drop_in"):
        model(torch.ones(1, 4))
os.wait()
"""


def test_nothing_until_the_end(tmp_path: Path) -> None:
    """What a run has seen is on disk while it runs: a process that dies leaves it, and memory does not grow with it."""
    subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], check=True)
    for name in ("trace", "drop_in"):
        trace = fxdebug.load(tmp_path / name)
        assert calls(trace) == ["Sequential", "  0", "  1"]
        assert trace.find("0")[0].outputs[0].stats.count == 4
        assert [call.error.here for call in trace.calls if call.error] == [False, True]
    assert len(list((tmp_path / "trace").glob("*"))) == 1  # the working folder: nothing is there under a final name


def test_other_methods_of_the_root(tmp_path: Path) -> None:
    """A method other than forward: one trace with the method as its root; the drop-in keeps every call that is made."""

    class Coder(Does):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

        def generate(self, x: torch.Tensor) -> torch.Tensor:
            return self(self(self.encode(x)))

    model = Coder(lambda self, x: self.a(x), a=linear(), b=linear())
    forward = ["  Coder", "    a"]
    for run in (lambda: fx_debug(model, ones(), method="generate"), lambda: fx_debug(model.generate, ones())):
        trace = run()
        assert calls(trace) == ["Coder", "  a", "  b", *forward, *forward]
        assert trace.root.method == "generate" and trace.root.outputs[0].shape == (1, 4)
    assert calls(fx_debug(model.encode, ones(), save=tmp_path / "trace")) == ["Coder", "  a", "  b"]
    assert fxdebug.load(tmp_path / "trace").root.method == "encode"
    with drop_in(model, tmp_path / "encode"):
        model.encode(ones())
    assert nodes(tree(tmp_path / "encode")) == ["Coder", "  a", "  b"]
    with drop_in(model, tmp_path / "both"):
        model(ones())
        model.encode(ones())
    assert nodes(tree(tmp_path / "both")) == ["Coder", "  a"]  # the forward keeps its name
    assert nodes(tree(tmp_path / "both", number=1)) == ["Coder", "  a", "  b"]
    with drop_in(model, tmp_path / "generate"):
        model.generate(ones())
    assert [nodes(tree(tmp_path / "generate", number=number)) for number in (1, 2, None)] == [
        ["Coder", "  a", "  b"],
        ["Coder", "  a"],
        ["Coder", "  a"],
    ]
    with theirs(model, tmp_path / "theirs"):
        model.encode(ones())
    assert files(tmp_path / "theirs") == []


def test_other_ranks_lose_everything(tmp_path: Path) -> None:
    """``fx_debug`` records on every rank; the drop-in on rank 0 only, as it promises, but without gradients on all."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    model = nn.Sequential(linear(), nn.ReLU())
    for rank in range(2):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        try:
            fx_debug(model, ones(), save=tmp_path / "traces")
            with drop_in(model, tmp_path / f"drop_in-{rank}"):
                assert not model(ones()).requires_grad
            with theirs(model, tmp_path / f"theirs-{rank}"):
                model(ones())
        finally:
            torch.distributed.destroy_process_group()
    for rank in range(2):
        trace = fxdebug.load(tmp_path / "traces", rank=rank)
        assert calls(trace) == ["Sequential", "  0", "  1"] and trace.settings["rank"] == rank
    assert [len(files(tmp_path / f"drop_in-{rank}")) for rank in range(2)] == [2, 0]
    assert [len(files(tmp_path / f"theirs-{rank}")) for rank in range(2)] == [2, 0]
