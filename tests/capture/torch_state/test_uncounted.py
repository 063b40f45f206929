"""Where a forward's warnings and log records come from is the same with and without a recording."""

from __future__ import annotations

import contextlib
import functools
import linecache
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.torch_state.callers_frame import is_in_between
from fxdebug.native.core import loaded
from fxdebug.native.dispatch import using
from support.begun import ran

X = torch.ones(2, 2)
LEVELS = range(1, 8)


class Warns(nn.Module):
    """Warns at each level, and says at each who its caller is."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.getLogger("fxdebug.test")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for level in LEVELS:
            warnings.warn(f"attribute {level}", stacklevel=level)
            warn(f"name {level}", UserWarning, level)
        for level in LEVELS[:4]:
            self.logger.error("logged", stacklevel=level)
        return x * 2


class Holds(nn.Module):
    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x)


class HoldsUnregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.children_of_mine = [Warns()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.children_of_mine[0](x)


class CallsInAPool(Holds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.child, x).result()


class CallsInAThread(Holds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(self.child(x)))
        thread.start()
        thread.join()
        return results[0]


class Yields(nn.Module):
    def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for level in LEVELS[:3]:
            warnings.warn(f"yielding {level}", stacklevel=level)
        yield x


class Consumes(Holds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return next(iter(self.child(x)))


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: output + 1)
    module.register_forward_pre_hook(lambda module, args: None)
    return module


def with_forward_of_its_own() -> nn.Module:
    module = Warns()
    module.forward = lambda x, original=module.forward: original(x)  # type: ignore[method-assign, misc]
    return module


MODELS: dict[str, Callable[[], nn.Module]] = {
    "the model": Warns,
    "a child": lambda: Holds(Warns()),
    "a child in a container": lambda: nn.Sequential(nn.Identity(), Holds(nn.Sequential(Warns()))),
    "with hooks": lambda: hooked(Holds(hooked(Warns()))),
    "not registered": HoldsUnregistered,
    "a forward of its own": lambda: Holds(with_forward_of_its_own()),
    "in a pool": lambda: CallsInAPool(Warns()),
    "in a thread": lambda: CallsInAThread(Warns()),
    "a generator": lambda: Consumes(Yields()),
}


class Places(logging.Handler):
    """The places that warnings and log records name while a model is called by :func:`run`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.pathname, record.lineno, record.funcName))

    def of(self, run: Callable[[], Any]) -> list[Any]:
        logger = logging.getLogger("fxdebug.test")
        logger.addHandler(self)
        logger.propagate = False
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run()
        finally:
            logger.removeHandler(self)
        return [*self.found, *[(str(w.message), w.filename, w.lineno) for w in caught]]


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "graph": lambda folder: {},
    "tree": lambda folder: {"graph": False},
    "saved": lambda folder: {"save": folder},  # the bodies run again, and are silent
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_warnings_and_records_name_the_same_places(model: str, way: str, tmp_path: Path) -> None:
    built = MODELS[model]()
    forget_templates()
    runs = functools.partial(built, X), functools.partial(fx_debug, built, X, **WAYS[way](tmp_path))
    plain, traced = [Places().of(run) for run in runs]
    assert traced == plain


def test_the_drop_in_names_the_same_places(tmp_path: Path) -> None:
    model = Holds(Warns())

    def call() -> None:
        model(X)

    contexts = contextlib.nullcontext(), fxdebug.model_addition_debugger_context(model, tmp_path)
    found = []
    for context in contexts:
        with context:
            found.append(Places().of(call))
    assert found[0] == found[1]


def filtered(module: str) -> Any:
    context = warnings.catch_warnings()
    context.__enter__()
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", module=module)
    return context


class WarnsAt(nn.Module):
    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("look here", stacklevel=self.level)
        return x


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    ("level", "module"),
    [(1, __name__), (2, r"torch\.nn\.modules\.module"), (3, r"torch\.nn\.modules\.module"), (4, __name__)],
)
def test_a_filter_on_a_module_raises_as_without_a_recording(level: int, module: str, graph: bool) -> None:
    model = Holds(WarnsAt(level))
    for run in (lambda: model(X), lambda: fx_debug(model, X, graph=graph)):
        context = filtered(module)
        try:
            with pytest.raises(UserWarning, match="look here"):
                run()
        finally:
            context.__exit__(None, None, None)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_warning_that_was_shown_once_for_its_place_is_not_shown_again(level: int) -> None:
    model = Holds(WarnsAt(level))
    places = (sys.modules[__name__], torch.nn.modules.module)
    for place in places:
        vars(place).pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        model(X)
        fx_debug(model, X)
        fx_debug(model, X, graph=False)
        model(X)
    assert len(caught) == 1
    for place in places:
        vars(place).pop("__warningregistry__", None)


# Warnings of torch's own -------------------------------------------------------------------------------------------

READ_ONLY = np.ones(3, dtype=np.float32)
READ_ONLY.flags.writeable = False


class Computes(nn.Module):
    """Calls one function of torch, on a line of this file."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def softmax_of(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x[0])


IN_CPP: dict[str, Callable[[torch.Tensor], Any]] = {
    "an attribute": lambda x: x[None].T,
    "a read-only array": lambda x: torch.as_tensor(READ_ONLY) + x.sum(),
    "an index of bytes": lambda x: x[torch.ones(2, 2, dtype=torch.uint8)],
    "in an expression": lambda x: 3 - (x + 0j).to(torch.float32),
    "a result that is resized": lambda x: torch.add(x, x, out=torch.ones(1)),
    "a deprecated function": lambda x: x.sum() + torch.range(0, 1),
    "a copy of a tensor": lambda x: torch.tensor(x),
    "inside torch's Python": lambda x: torch.meshgrid(x[0], x[1]),
}
IN_PYTHON: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: F.softmax(x[0]),
    "softmax in a function": softmax_of,
    "a module of softmax": lambda x: nn.Softmax()(x[0]),
    "log_softmax": lambda x: F.log_softmax(x[0]),
    "mse_loss": lambda x: F.mse_loss(x, x[:1]),
    "dropout2d": lambda x: F.dropout2d(x, 0.0),
    "kl_div": lambda x: F.kl_div(x, x),
    "grid_sample": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
    "affine_grid": lambda x: F.affine_grid(torch.ones(1, 2, 3), [1, 1, 2, 2]),
    "upsample": lambda x: F.upsample(x[None, None], scale_factor=2),
}


@pytest.fixture
def warns_always() -> Iterator[None]:
    """Have torch repeat the warnings that it gives once in a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.fixture(params=["with the native core", "in Python"])
def ways_of_running(request: pytest.FixtureRequest) -> Iterator[None]:
    module = loaded().module if request.param == "with the native core" else None
    if module is None and request.param != "in Python":
        pytest.skip("the native core is not built here")
    with using(module):
        yield


OPTIONS: dict[str, dict[str, Any]] = {"graph": {}, "stopping": {"stop_on_nonfinite": True}}


@pytest.mark.usefixtures("warns_always", "ways_of_running")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("member", [*IN_CPP, *IN_PYTHON])
def test_warnings_of_torch_name_the_same_places(member: str, options: str) -> None:
    model = Holds(Computes((IN_CPP | IN_PYTHON)[member]))
    plain = Places().of(lambda: model(X))
    traced = Places().of(lambda: fx_debug(model, X, **OPTIONS[options]))
    assert traced == plain
    assert plain


@pytest.mark.usefixtures("warns_always", "ways_of_running")
@pytest.mark.parametrize("member", ["an attribute", "in an expression", "softmax", "mse_loss"])
@pytest.mark.parametrize("of", [__name__, r"fxdebug\\.", r"torch\\.overrides"])
def test_a_filter_on_a_module_sees_torchs_warnings_as_without_a_recording(of: str, member: str) -> None:
    model = Computes((IN_CPP | IN_PYTHON)[member])
    outcomes = []
    for run in (lambda: model(X), lambda: fx_debug(model, X)):
        context = filtered(of)
        try:
            run()
            outcomes.append(None)
        except UserWarning as warning:
            outcomes.append(str(warning))
        finally:
            context.__exit__(None, None, None)
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] is None) == (of != __name__)


@pytest.mark.usefixtures("ways_of_running")
def test_an_exception_of_an_operation_has_no_frame_that_stands_for_another() -> None:
    model = Computes(lambda x: F.softmax(x, dim=7))
    found = []
    for run in (lambda: model(X), lambda: fx_debug(model, X)):
        with pytest.raises(IndexError) as raised:
            run()
        found.append([entry.name for entry in raised.traceback][-3:])
    assert not any(is_in_between(entry.frame.code.raw) for entry in raised.traceback)
    assert found[0][-1] == found[1][-1] == "softmax"


# Tools of Python that read the files of frames ------------------------------------------------------

SCRIPT = """
import cProfile, pdb, pstats, trace
import torch
from torch import nn
from fxdebug import fx_debug

def run():
    fx_debug(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), graph=False)

tracer = trace.Trace(count=1, trace=0, countfuncs=0)  # `python -m trace --count`; imports under it take a minute
tracer.runfunc(run)
tracer.results().write_results(show_missing=True, summary=True, coverdir="counts")
profile = cProfile.Profile()
profile.runcall(run)
pstats.Stats(profile).strip_dirs().print_stats("run_model.py")
debugger = pdb.Pdb(nosigint=True, readrc=False)
file = fx_debug.__globals__["__file__"]
line = 1 + next(i for i, text in enumerate(open(file, encoding="utf-8")) if "return run_and_store(" in text)
debugger.rcLines = [f"break {file}:{line}", "continue", "where", "list", "continue"]
debugger.runcall(run)
"""


def test_every_file_of_ours_is_named_by_a_way_that_leads_to_it() -> None:
    code = getattr(fx_debug, "__wrapped__", fx_debug).__code__
    assert "importlib" in code.co_filename and "_bootstrap" in code.co_filename
    assert Path(code.co_filename).samefile(sys.modules[fx_debug.__module__].__file__ or "")
    lines = [linecache.getline(code.co_filename, code.co_firstlineno + each) for each in range(3)]
    assert any(line.startswith("def fx_debug(") for line in lines)


def test_tools_of_python_work_on_a_program_that_traces(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "script.py"]
    done = ran(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert [path for path in (tmp_path / "counts").iterdir() if "run_model" in path.name]
    assert "(run_and_store)" in done.stdout  # of the profile
    assert "-> return run_and_store(" in done.stdout  # of the debugger
