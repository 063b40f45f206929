"""The one primitive that patches and restores, and the table of everything that is ever patched."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import api
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.hooks import patch
from fxdebug.capture.hooks.compiled_modules import compiled_code_of, compiled_in
from fxdebug.capture.hooks.patch import Attribute, OwnAttribute, Patch, Setting, SharedPatch
from fxdebug.repair.decompositions.decomposed import decomposed

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "fxdebug"
FILES = sorted(PACKAGE.rglob("*.py"))
PRIMITIVE = "capture/hooks/patch.py"


# The primitive -----------------------------------------------------------------------------------


class Library:
    """Stands for a class of somebody else's."""

    def own(self) -> str:
        return "own"


class Heir(Library):
    """Has ``own`` from its base."""


def louder(found: Callable[..., str]) -> Callable[..., str]:
    return lambda self: found(self).upper()


def on_library(owner: type = Library) -> SharedPatch:
    return SharedPatch(Attribute("x", owner, "own", louder))


@pytest.mark.parametrize("order", ["first in, first out", "first in, last out"])
def test_the_last_to_end_restores_in_whatever_order(order: str) -> None:
    before, shared = vars(Library)["own"], on_library()
    shared.begin("a")
    shared.begin("b")
    assert Library().own() == "OWN" and shared.users == ("a", "b")
    first, last = ("a", "b") if order == "first in, first out" else ("b", "a")
    shared.end(first)
    assert Library().own() == "OWN" and shared.users == (last,)
    shared.end(last)
    assert vars(Library)["own"] is before and shared.users == ()
    shared.end(last)
    shared.end("never began")
    assert vars(Library)["own"] is before


def test_what_was_inherited_is_inherited_again() -> None:
    with on_library(Heir).block():
        assert Heir().own() == "OWN" and "own" in vars(Heir)
    assert "own" not in vars(Heir)


def test_what_the_program_puts_there_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "own", Library.own)
    theirs = lambda self: "theirs"  # noqa: E731
    with on_library().block():
        Library.own = theirs  # type: ignore[method-assign]
    assert vars(Library)["own"] is theirs
    own: dict[str, Any] = {}
    with SharedPatch(OwnAttribute("x", own, "forward", 1)).block():
        own["forward"] = 2
    assert own == {"forward": 2}


@pytest.mark.parametrize("found", [{}, {"forward": None}, {"forward": "theirs", "other": 1}])
def test_an_entry_of_an_object_is_as_it_was(found: dict[str, Any]) -> None:
    own = dict(found)
    with SharedPatch(OwnAttribute("x", own, "forward", "ours")).block():
        assert own["forward"] == "ours"
    assert own == found


def test_a_setting_that_reads_otherwise_than_it_was_set_is_put_back() -> None:
    """As the interval at which threads change does: it is kept in whole microseconds."""
    setting = [5.0]

    def rounded(to: float) -> None:
        setting[0] = round(to, 2)

    shared = SharedPatch(Setting("x", lambda: setting[0], rounded, lambda found: found / 3))
    with shared.block():
        assert setting == [1.67]
    assert setting == [5.0]


def test_a_function_that_this_version_does_not_have_is_left_alone() -> None:
    with SharedPatch(Attribute("x", Library, "of_another_version", louder)).block():
        assert not hasattr(Library, "of_another_version")
    assert not hasattr(Library, "of_another_version")


def test_where_a_place_cannot_be_patched_the_others_are_restored() -> None:
    before = vars(Library)["own"]
    shared = SharedPatch(Attribute("x", Library, "own", louder), Attribute("y", int, "bit_count", louder))
    for _ in range(2):
        with pytest.raises(TypeError, match="immutable"):
            shared.begin("a")
        shared.end("a")
        assert vars(Library)["own"] is before and shared.users == ()


def test_where_one_place_cannot_be_restored_the_others_are_and_it_is_tried_again() -> None:
    setting, refuses = [1], [True]

    def put(to: int) -> None:
        if to == 1 and refuses:
            raise RecursionError("not so deep in the stack")
        setting[0] = to

    shared = SharedPatch(
        Attribute("x", Library, "own", louder), Setting("y", lambda: setting[0], put, lambda found: found + 1)
    )
    before = vars(Library)["own"]
    shared.begin("a")
    with pytest.raises(RecursionError):
        shared.end("a")
    assert vars(Library)["own"] is before and setting == [2]
    refuses.clear()
    with shared.block():
        assert setting == [2] and Library().own() == "OWN"
    assert vars(Library)["own"] is before and setting == [1]


def test_a_place_that_turns_up_later_is_restored_with_the_others() -> None:
    own: dict[str, Any] = {}
    shared = on_library()
    shared.add(OwnAttribute("y", own, "forward", 1))
    assert own == {}
    with shared.block():
        shared.add(OwnAttribute("y", own, "forward", 1))
        assert own == {"forward": 1}
    assert own == {}


def test_an_interrupt_at_any_moment_leaves_nothing_behind_and_others_patched() -> None:
    """At every line and every call of the primitive; another user has begun meanwhile, or not."""
    own: dict[str, Any] = {"a": 0}
    setting = [1]

    def put(to: int) -> None:
        setting[0] = to

    patches = (
        Attribute("x", Library, "own", louder), Attribute("x", Heir, "own", louder), OwnAttribute("y", own, "a", 1),
        OwnAttribute("y", own, "b", 2), Setting("z", lambda: setting[0], put, lambda found: found + 1),
    )  # fmt: skip

    def now() -> Any:
        return vars(Library)["own"], vars(Heir).get("own"), dict(own), list(setting)

    shared, before = SharedPatch(*patches), now()

    def run() -> None:
        try:
            shared.begin("us")
            shared.end("us")
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                shared.end("us")

    total = interrupted_at(run, None)
    assert total > 100
    for moment in range(1, total + 1):
        interrupted_at(run, moment)
        assert now() == before and shared.users == (), moment
    for moment in range(1, total + 1):
        shared.begin("other")
        during = now()
        interrupted_at(run, moment)
        assert now() == during and shared.users == ("other",), moment
        shared.end("other")
        assert now() == before, moment
    for moment in range(1, total + 1):  # what was left half done by one is completed for the next
        interrupted_at(lambda: shared.begin("us"), moment)
        shared.begin("other")
        assert Library().own() == Heir().own() == "OWN" and own == {"a": 1, "b": 2} and setting == [2], moment
        shared.end("us")
        shared.end("other")
        assert now() == before, moment


def interrupted_at(run: Callable[[], Any], moment: int | None) -> int:
    """Run with an interrupt at the line or call of that number in the primitive; return how many there were."""
    count = 0

    def look(frame: types.FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != patch.__file__:
            return None
        count += 1
        if count == moment:
            raise KeyboardInterrupt
        return look

    sys.settrace(look)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return count


def test_threads_that_begin_and_end_at_once_leave_nothing_behind() -> None:
    before, shared = vars(Library)["own"], on_library()
    interval = sys.getswitchinterval()
    wrong: list[str] = []

    def again() -> None:
        for _ in range(300):
            with shared.block():
                if Library().own() != "OWN":
                    wrong.append("not patched")

    threads = [threading.Thread(target=again) for _ in range(4)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and vars(Library)["own"] is before


# Compiled modules under several recordings at once ------------------------------------------------


@pytest.mark.parametrize("ends", ["first", "last"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_modules_are_as_they_were_after_recordings_in_any_order(
    ends: str, backend: str, in_place: bool
) -> None:
    """Each used to put back what it had found itself: the other's wrapper, for good."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    if in_place:
        model[0].compile(backend=backend)
    else:
        model[0] = torch.compile(model[0], backend=backend)
    inner = model[0]
    before, code = dict(vars(inner)), compiled_code_of(inner)
    told: list[str] = []
    observers = [Observer(told, "a"), Observer(told, "b")]
    found = []
    for observer in observers:
        found.append(compiled_in(model.modules()))
        found[-1].begin(observer)
    assert [len(each.open) for each in found] == ([1, 1] if backend == "eager" else [0, 0])
    assert compiled_code_of(inner) is code
    if in_place and backend != "eager":
        model(torch.ones(1, 2))
        assert sorted(told) == ["a", "b"]
    for each in found if ends == "first" else reversed(found):
        each.end()
        each.end()
    assert dict(vars(inner)) == before


class Observer:
    """A recording that only counts what it is told of."""

    def __init__(self, told: list[str], name: str) -> None:
        self.told, self.name = told, name

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.told.append(self.name)
        return run(*args, **kwargs)

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return run(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        return False


# The table ---------------------------------------------------------------------------------------


def rows(page: str) -> dict[str, str]:
    """Place → file of each row of the table in docs/how-it-works.md."""
    section = page.split("### Everything that is ever patched\n")[1].split("\n#")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert cells[0] == ["place", "when", "why", "file"]
    assert all(len(row) == 4 and all(row) for row in cells)
    places = [row[0].strip("`") for row in cells[2:]]
    assert len(places) == len(set(places))
    return dict(zip(places, [row[3].strip("`") for row in cells[2:]], strict=True))


@functools.cache
def table() -> dict[str, str]:
    return rows((ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8"))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _kinds() -> set[str]:
    """The names of the classes that are a patch of one place."""
    kinds, count = {"Patch"}, 0
    while len(kinds) > count:
        count = len(kinds)
        for path in FILES:
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ClassDef) and kinds & {ast.unparse(base) for base in node.bases}:
                    kinds.add(node.name)
    return kinds


NAMED_BY_THEIR_CLASS = {"WhenImported"}  # they give the name to Patch themselves
FOR_ITS_CALLERS = {"_group"}  # a function that makes patches under the name that it is given


def declared() -> dict[str, str]:
    """Name → file of each patch that the code makes: the text that stands first where it is made."""
    kinds, found = _kinds(), {}
    for path in FILES:
        home = path.relative_to(PACKAGE).as_posix()
        inside = {
            id(node)
            for function in ast.walk(tree(path))
            if isinstance(function, ast.FunctionDef) and function.name in FOR_ITS_CALLERS
            for node in ast.walk(function)
        }
        known = kinds & set(_names_of_patch(path)) | FOR_ITS_CALLERS
        if "patch" in _names_of_door(path):
            known |= {f"patch.{kind}" for kind in kinds}
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            in_class = called == "super().__init__" and home != PRIMITIVE and _is_in(node, kinds, path)
            if not (in_class or called in known - NAMED_BY_THEIR_CLASS) or id(node) in inside:
                continue
            assert isinstance(first, ast.Constant) and isinstance(first.value, str), f"{home}:{node.lineno}: no name"
            assert found.setdefault(first.value, home) == home, f"{first.value} is patched in two files"
    return found


def _names_of_patch(path: Path) -> Iterator[str]:
    """What a file imports from the primitive: other classes may bear such a name, too."""
    yield from _taken_from(path, "fxdebug.capture.hooks.patch")


def _names_of_door(path: Path) -> set[str]:
    """What a feature imports from the door of capture: the primitive is there as a module."""
    return set(_taken_from(path, "fxdebug.capture.probe"))


def _taken_from(path: Path, module: str) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            yield from (alias.name for alias in node.names)


def _is_in(wanted: ast.AST, classes: set[str], path: Path) -> bool:
    return any(
        node is wanted
        for made in ast.walk(tree(path))
        if isinstance(made, ast.ClassDef) and made.name in classes
        for node in ast.walk(made)
    )


# What is changed without the primitive, in a room that cannot know it: rows of the table nonetheless.
OUTSIDE = {
    "torch._tensor_str.PRINT_OPTS": "store/transformers/print_options.py",
    "torch.set_default_dtype": "features/shadow/twin_runs.py",
    "warnings.filters": "capture/runnable_graphs/check_inputs.py",
    "gc.disable while a trace is read": "store/trace_json/trace_file.py",
}


def test_the_table_has_a_row_for_each_patch_and_no_other() -> None:
    assert table() == declared() | OUTSIDE


def test_a_row_that_is_missing_or_too_many_is_noticed() -> None:
    page = (
        "### Everything that is ever patched\n\n| place | when | why | file |\n|-|-|-|-|\n| `a.b` | x | y | `c.py` |\n"
    )
    assert rows(page + "\n## Next\n| no | row | of | it |\n") == {"a.b": "c.py"}


def test_a_name_leads_to_what_it_names() -> None:
    names = [name for name in table() if re.fullmatch(r"[\w.]+", name)]
    assert len(names) > 10
    for name in names:
        pkgutil.resolve_name(name)


class Several(nn.Module):
    """Has compiled code that stays closed and another that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.wrapped, self.own = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(self.wrapped(self.open(x)))


def test_a_run_patches_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is put in place during a run and its explanation has a row, and nearly every row occurs."""
    model = Several()
    model.open.compile(backend="eager")
    model.wrapped = torch.compile(model.wrapped, backend="eager")  # type: ignore[assignment]
    put: set[str] = set()
    for kind in (Patch, OwnAttribute):
        original = kind.put

        def noting(self: Patch, original: Callable[[Patch], None] = original) -> None:
            put.add(self.name)
            original(self)

        monkeypatch.setattr(kind, "put", noting)
    forget_templates()
    assert fxdebug.fx_debug(model, torch.ones(1, 2)).calls[0].status
    with fxdebug.watch(model, save=None):
        pass
    api.paused_run(model, torch.ones(1, 2)).quit()
    with decomposed(model):
        pass
    rare = {  # a job of several processes, threads at work while a body is run again, dynamo imported meanwhile,
        # a graph that hands over a weight or sets a switch, a training that is watched, a trainer's epoch
        "functions of torch.distributed that communicate", "torch.ops.c10d", "sys.setswitchinterval", "sys.meta_path",
        "<loader>.exec_module", "<module>.<attribute>", "<owner>.<attribute>", "<module>.<method>",
        "torch.autograd.backward", "torch.optim.lr_scheduler.LRScheduler.step", "<trainer>._run_epoch",
        # knobs that are tried
        "torch.set_float32_matmul_precision", "torch.set_num_threads", "torch.set_flush_denormal",
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
        "torch.utils.checkpoint.CheckpointFunction.apply", "torch.set_anomaly_enabled",
    }  # fmt: skip
    assert put <= set(table()) and put >= set(table()) - set(OUTSIDE) - rare


# Nobody else assigns to what is not its own --------------------------------------------------------

# Calls that set something of the process or of torch, and those that give somebody else's object another attribute.
_SETTERS = re.compile(
    r"sys\.set(?!trace)\w+|sys\.meta_path\.\w+|gc\.(enable|disable|freeze|set_\w+)|threading\.(stack_size|set\w+)"
    r"|torch\.set_(?!grad_enabled)\w+|os\.(chdir|umask|putenv)|signal\.\w+|faulthandler\.\w+"
    r"|warnings\.(simplefilter|filterwarnings)"
)
_ASSIGNERS = {"setattr", "delattr", "object.__setattr__", "object.__delattr__", "type.__setattr__", "type.__delattr__"}
_OTHERS = {"nn.Module", "types.ModuleType", "ModuleType", "type", "type[Any]", "types.FunctionType"}
_NEW = {
    "self",
    "made",
    "twin",
    "changed_copy",
    "built",
    "substitute",
    "copy",
}  # names of objects that the code has made itself

# Where that is done all the same, and why. A file of the list that does none of it fails the test.
JUSTIFIED = {
    "capture/replay/containers.py": "takes back what a body wrote that was run again",
    "capture/replay/variables.py": "sets variables: for a VariablePatch, or to take back what a body wrote",
    "capture/replay/global_settings.py": "takes back what a body set that was run again",
    "capture/replay/rng.py": "takes back the random numbers that a body drew that was run again",
    "capture/hooks/forward_wrapper.py": "takes our wrapper out of copies that torch made of a module's attributes",
    "capture/replay/pause_gc_and_threads.py": "switches the collector for a Setting",
    "capture/hooks/collect_less_often.py": "sets the collector's thresholds for a Setting",
    "capture/tape/compiled_regions.py": "is a Patch: it enters itself among Python's finders",
    "capture/tape/changed_arguments.py": "gives the arguments of a call of a graph what the body leaves in them",
    "features/shadow/twin_runs.py": "torch.set_default_dtype; and casts what a copy of its own holds",
    "capture/runnable_graphs/check_inputs.py": "warnings.filters",
    "features/state/buffers.py": "warnings.filters, and puts them back (catch_warnings)",
    "features/shared/tried_settings/trial.py": "warnings.filters (catch_warnings); puts back the number of threads",
    "features/shared/tried_settings/model_knobs.py": "switches the attribute of a copy of its own",
    "features/resumes/parts.py": "gives the parts of a training the state that it read from them",
    "features/training/script/prepare.py": "prepares a process that is only for the script that it will run",
    "features/weights/fresh_twin.py": "warnings.filters, and puts them back (catch_warnings)",
    "features/memory/what_fits.py": "warnings.filters, and puts them back (catch_warnings)",
    "capture/torch_state/carried_state.py": "gives a thread of ours the state of the program's thread",
    "features/onnx/model.py": "warnings.filters (catch_warnings); and fills a module of its own making",
    "brief.py": "is a decorator of our own records: it gives them their repr",
    "plugins/making.py": "is a decorator: it marks the function that it is given",
    "exports/report/figures.py": "warnings.filters, and puts them back (catch_warnings)",
    "capture/tensors/stats_queue.py": "completes a value of ours that is frozen for everybody else",
    "capture/tensors/value_table.py": "completes a value of ours that is frozen for everybody else",
    "features/debug_trees/read_values.py": "completes a value of ours that is frozen for everybody else",
    "store/transformers/print_options.py": "torch._tensor_str.PRINT_OPTS",
    "store/trace_json/trace_file.py": "gc.disable while a trace is read",
}


def assigned(source: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each place that assigns to an attribute of something that is not of its own making."""
    foreign = {name for node in ast.walk(source) for name in _imported(node)}
    made = {n.name for n in ast.walk(source) if isinstance(n, ast.FunctionDef | ast.ClassDef)} | _NEW
    yield from _in_scope(source, foreign, made)


def _imported(node: ast.AST) -> Iterator[str]:
    """What an import of somebody else's modules, classes and functions is called here."""
    if isinstance(node, ast.Import):
        yield from ((a.asname or a.name).partition(".")[0] for a in node.names if not a.name.startswith("fxdebug"))
    elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("fxdebug"):
        yield from (alias.asname or alias.name for alias in node.names)


def _in_scope(scope: ast.AST, foreign: set[str], made: set[str]) -> Iterator[tuple[int, str]]:
    """``foreign`` are names of others' things, ``made`` those of our own; of the rest only some ways tell."""
    for node in ast.iter_child_nodes(scope):
        inner = foreign
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            inner = foreign | {a.arg for a in given if a.annotation and ast.unparse(a.annotation) in _OTHERS}
        elif isinstance(node, ast.Call):
            if _sets(node, made):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Assign | ast.Delete | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            if any(_is_another_s(each, foreign, made) for target in targets for each in ast.walk(target)):
                yield node.lineno, ast.unparse(node)
        yield from _in_scope(node, inner, made)


def _sets(call: ast.Call, made: set[str]) -> bool:
    called = ast.unparse(call.func)
    if called in _ASSIGNERS:
        return not _is_made(call.args[0], made)
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("update", "pop", "setdefault", "clear"):
        return _is_dict_of_an_object(call.func.value, made)
    return bool(_SETTERS.fullmatch(called))


def _is_another_s(target: ast.AST, foreign: set[str], made: set[str]) -> bool:
    if isinstance(target, ast.Attribute) and not isinstance(target.ctx, ast.Load):
        return _root(target) in foreign
    is_item = isinstance(target, ast.Subscript) and not isinstance(target.ctx, ast.Load)
    return is_item and _is_dict_of_an_object(target.value, made)


def _is_dict_of_an_object(node: ast.expr, made: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "vars" and not _is_made(node.args[0], made)
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and not _is_made(node.value, made)


def _is_made(node: ast.expr, made: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in made


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_only_the_primitive_assigns_to_what_is_somebody_else_s() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): list(assigned(tree(path)))
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] != "apps"  # a command has its process to itself
        if path.relative_to(PACKAGE).as_posix() != "api/commands/signals.py"  # the same
    }
    del found[PRIMITIVE]
    assert {home: places for home, places in found.items() if places and home not in JUSTIFIED} == {}
    assert [home for home in JUSTIFIED if not found.get(home)] == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.nn.Module.forward = f", "nn.Module._call_impl.__code__ = f", "del nn.Module.__reduce_ex__",
        "module.forward = f", "setattr(owner, 'name', f)", "module.__dict__['forward'] = f", "vars(owner)['x'] = f",
        "sys.setrecursionlimit(9)", "gc.disable()", "sys.meta_path.insert(0, f)", "sys.stdout, x = f",
        "setattr(self._owner, 'x', f)",
        "object.__setattr__(owner, 'x', 1)", "owner.__dict__.update(x=1)", "torch.set_default_dtype(f)",
    ],
)  # fmt: skip
def test_the_check_sees_an_assignment(line: str) -> None:
    source = f"import gc, sys, torch\nfrom torch import nn\ndef do(module: nn.Module, owner, f):\n    {line}\n"
    assert [number for number, _ in assigned(ast.parse(source))] == [4]


@pytest.mark.parametrize(
    "line", ["self.x = 1", "setattr(self, name, 1)", "made.x = sys.stdout", "sys.getswitchinterval()"]
)
def test_the_check_leaves_alone_what_is_its_own(line: str) -> None:
    source = f"import sys\ndef do(self, made):\n    {line}\n"
    assert list(assigned(ast.parse(source))) == []


# Hearing of an import ------------------------------------------------------------------------------


def test_the_loader_of_a_module_that_is_only_looked_for_is_as_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    from fxdebug.capture.tape.compiled_regions import WhenImported

    (tmp_path / "fxdebug_waited_for.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    heard: list[Any] = []
    waiting = WhenImported("fxdebug_waited_for", heard.append)
    waiting.put()
    spec = importlib.util.find_spec("fxdebug_waited_for")
    assert spec is not None and "exec_module" in vars(spec.loader)
    waiting.restore()
    waiting.restore()
    assert "exec_module" not in vars(spec.loader) and sys.meta_path == finders
    waiting.put()
    module = importlib.import_module("fxdebug_waited_for")
    assert heard == [module] and sys.meta_path == finders and "exec_module" not in vars(module.__spec__.loader)  # type: ignore[union-attr]
    waiting.restore()
    assert sys.meta_path == finders and builtins.print is print
    del sys.modules["fxdebug_waited_for"]
