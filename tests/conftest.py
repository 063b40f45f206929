"""What all tests share: the zoo, one thread, a fixed width, and nothing left behind by any test."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support import sweep
from support.printed import same_but_rounding

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["COLUMNS"] = "80"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

torch.set_num_threads(1)
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in the background: Ctrl-C would end none of our programs
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what comes out now")
    parser.addoption("--sweep", action="store_true", help="run every case of the sweeps, not a sample (make sweep)")


def pytest_configure(config: pytest.Config) -> None:
    sweep.begin(config.getoption("--sweep"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that use ``both_ways`` twice; in a sweep, every test of capture."""
    in_capture = Path(__file__).parent / "capture" in metafunc.definition.path.parents
    if in_capture and sweep.whole() and "both_ways" not in metafunc.fixturenames:
        metafunc.fixturenames.insert(0, "both_ways")
    if "both_ways" in metafunc.fixturenames:
        metafunc.parametrize("both_ways", ["python", "native"], indirect=True)


@pytest.fixture
def native_core() -> ModuleType:
    """The native core; the test is skipped where there is no build."""
    from fxdebug.native.core import loaded

    found = loaded()
    assert not found.is_left_aside, found.why
    if found.module is None:
        pytest.skip(f"no native core: {found.why}")
    return found.module


@pytest.fixture
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test in Python, and again in the native core; that is skipped where there is no build."""
    from fxdebug.native import dispatch

    with dispatch.using(request.getfixturevalue("native_core") if request.param == "native" else None):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compare text with ``tests/golden/<name>``, last digits aside; ``--update-golden`` rewrites the file."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        if not same_but_rounding(text, expected):
            assert text == expected, f"differs from {path.name}; --update-golden accepts it"

    return check


@pytest.fixture
def no_remarks_on_python_3_13_0() -> None:
    """Keep dynamo from warning, once for each guard that it makes, that guards are slower in this one Python."""
    if sys.version_info[:3] == (3, 13, 0):
        import torch._dynamo

        torch._dynamo.config.issue_3_13_0_warning = False


@pytest.fixture(autouse=True, scope="module")
def libraries_are_no_garbage():
    """What lives as long as the process is looked through once, not at every collection: a third of a second each."""
    gc.collect()
    gc.freeze()


_of_libraries: set[str] = set()  # names of modules that do not lie in a test's folder


@pytest.fixture(autouse=True)
def modules_of_a_test_end_with_it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test imported from its own folder the next one, in a folder of its own, must not find imported."""
    path, folder = list(sys.path), tmp_path_factory.getbasetemp()
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - _of_libraries:
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and (not Path(file).is_absolute() or folder in Path(file).parents):
            del sys.modules[name]
        else:
            _of_libraries.add(name)


_leavings: set[str] = set()  # files that a test has left already: it is told once


@pytest.fixture(autouse=True)
def no_file_is_left_in_the_working_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test writes to a folder of its own, never to the one in which the tests were started."""
    folder = request.config.invocation_params.dir

    def listing() -> set[str]:
        return {name for name in os.listdir(folder) if not name.startswith((".", "__pycache__"))}

    before = listing()
    yield
    left = listing() - before - _leavings
    _leavings.update(left)
    assert not left, f"files left in {folder}"


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """After every test torch and the process are as before it: modes, print options, patches, grad mode."""
    from torch._tensor_str import get_printoptions

    def state() -> dict[str, object]:
        return {
            "print options": get_printoptions(),
            "call code": torch.nn.Module._call_impl.__code__,
            "function modes": torch._C._len_torch_function_stack(),
            "dispatch modes": torch._C._len_torch_dispatch_stack(),
            "grad": torch.is_grad_enabled(),
            "recursion limit": sys.getrecursionlimit(),
            "names": [name for name in vars(torch.nn.modules.module) if "fxdebug" in name],
        }

    before = state()
    yield
    assert state() == before
