"""Imports flow one way, as docs/how-it-works.md says, and importing costs nothing."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
import torch

import fxdebug
from fxdebug import api
from fxdebug.capture import probe
from fxdebug.plugins.features import BUILT_IN

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fxdebug"
FILES = sorted(PACKAGE.rglob("*.py"))
OUTSIDE = {"__init__", "__main__", "version"}
# Our imports inside functions: how many each file has, and why they cannot stand at its top.
LATE = {
    "features/mcp/command.py": (1, "mcp is an extra: what needs it may not be there"),
    "features/console/command.py": (
        2,
        "a saved run is stepped through without torch, other commands without the console",
    ),
    "features/serve/command.py": (1, "other commands start without the server"),
    "api/names.py": (1, "the names of the core are there without the records of features"),
    "api/page/display.py": (1, "a page is written without torch unless the run kept tensors"),
    "capture/hooks/module_call.py": (1, "the code runs with torch's globals, in place of nn.Module._call_impl"),
    "features/debug_trees/tree_data.py": (2, "a tree is read without torch until a tensor is asked for"),
    "store/tensors/saved_data.py": (1, "a trace is read without torch until a tensor is asked for"),
}
MOST_LATE = 12
LOADED_BY = {  # nobody but that library's users import the file
    "mcp_server.py": "mcp",
    "pytest_plugin.py": "pytest", "lightning_callback.py": "lightning", "trainer_callback.py": "transformers",
}  # fmt: skip
CORE = {"torch", "safetensors", "networkx", "graphviz", "numpy", "rich"}


def import_lines() -> dict[str, list[set[str]]]:
    """The import lines of docs/how-it-works.md by the folder they are for, from the lowest floor to the highest."""
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\nprintable < .*?^```$", text, re.MULTILINE | re.DOTALL)
    lines: dict[str, list[set[str]]] = {}
    for line in block.splitlines()[1:-1]:
        folder, _, floors = line.rpartition(":")
        lines[folder] = [set(re.findall(r"\w+", floor)) for floor in floors.split(" < ")]
    return lines


LINES = import_lines()


def floor_of(path: Path, folder: str = "") -> str:
    """The file or folder of ``folder`` in which a file lies."""
    return path.relative_to(PACKAGE / folder).parts[0].removesuffix(".py")


def files_in(folder: str) -> list[Path]:
    return [path for path in FILES if path.is_relative_to(PACKAGE / folder) and floor_of(path, folder) not in OUTSIDE]


@functools.cache
def imports(path: Path) -> tuple[tuple[str, int, bool], ...]:
    """Every import of a file: the full name, the line, and whether it happens inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)}
    return tuple((name, node.lineno, id(node) in inside) for node in ast.walk(tree) for name in _named(node, path))


def at_run_time(path: Path) -> set[str]:
    """What a file imports when it runs: all but the blocks for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    typed = {id(node) for block in blocks for statement in block.body for node in ast.walk(statement)}
    return {name for node in ast.walk(tree) if id(node) not in typed for name in _named(node, path)}


def _named(node: ast.AST, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, f"{path}:{node.lineno}: imports are written in full here"
        if str(node.module).split(".")[0] == "fxdebug":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield str(node.module)


def ours(path: Path, folder: str = "") -> Iterator[tuple[str, int, bool]]:
    """(floor of ``folder``, line, inside a function) of each import of a part of it."""
    prefix = f"fxdebug.{folder}." if folder else "fxdebug."
    for name, line, inside in imports(path):
        if name.startswith(prefix):
            yield name.removeprefix(prefix).split(".")[0], line, inside


def test_there_is_an_import_line_for_the_package_and_for_its_two_largest_parts() -> None:
    assert list(LINES) == ["", "capture", "comparison"]


@pytest.mark.parametrize("folder", LINES)
def test_every_file_and_folder_stands_in_its_import_line(folder: str) -> None:
    named = [name for floor in LINES[folder] for name in floor]
    assert len(named) == len(set(named))
    assert {floor_of(path, folder) for path in files_in(folder)} == set(named)


@pytest.mark.parametrize("folder", LINES)
def test_a_file_imports_only_what_stands_to_its_left(folder: str) -> None:
    position = {name: i for i, floor in enumerate(LINES[folder]) for name in floor}
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {target}"
        for path in files_in(folder)
        for target, line, _ in ours(path, folder)
        if target != floor_of(path, folder) and target not in OUTSIDE
        if position[target] >= position[floor_of(path, folder)]
    ]
    assert wrong == []


# What a feature takes from the core: these rooms, and of capture one file that was made for features.
DOOR = frozenset(
    "data query operators stats files store exports plugins errors api analyses comparison repair cells brief "
    "printable version".split()
)
SHARED = "shared"  # the folder of features that has what several of them need, and no other feature
MOST_NAMES = 24  # of the door of capture


def test_features_reach_the_core_by_its_door_and_do_not_know_one_another() -> None:
    wrong = []
    for path in PACKAGE.joinpath("features").rglob("*.py"):
        own = path.relative_to(PACKAGE / "features").parts[0]
        for name, line, _ in imports(path):
            room, _, rest = name.removeprefix("fxdebug.").partition(".")
            if name.startswith("fxdebug.capture.probe."):
                continue
            if name.startswith("fxdebug.") and room != "features" and room not in DOOR:
                wrong.append(f"{path.name}:{line} imports {name}")
            elif name.startswith("fxdebug.features.") and rest.partition(".")[0] not in (own, SHARED):
                wrong.append(f"{path.name}:{line} of {own} imports {name}")
    assert wrong == []


def test_the_door_of_capture_has_few_names_each_with_an_example() -> None:
    offered = {name: getattr(probe, name) for name in probe.__all__}
    assert len(offered) <= MOST_NAMES
    assert [name for name, thing in offered.items() if not thing.__doc__] == []
    functions = {name: thing for name, thing in offered.items() if not inspect.ismodule(thing)}
    functions |= {f"{module}.{name}": getattr(offered[module], name) for module, name in _used_of(offered)}
    assert [name for name, thing in functions.items() if callable(thing) and ">>>" not in (thing.__doc__ or "")] == []


def _used_of(offered: Mapping[str, object]) -> set[tuple[str, str]]:
    """The functions that features use of the modules of the door; names of torch's own, of ``internals``, aside."""
    modules = {name for name, thing in offered.items() if inspect.ismodule(thing)} - {"internals"}
    called = {
        (node.func.value.id, node.func.attr)
        for path in PACKAGE.joinpath("features").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    return {(module, name) for module, name in called if module in modules and hasattr(offered[module], name)}


def test_only_features_import_features() -> None:
    others = [path for path in FILES if floor_of(path) != "features"]
    assert [f"{path}:{line}" for path in others for room, line, _ in ours(path) if room == "features"] == []


def test_the_list_has_every_folder_of_features() -> None:
    folders = {path.name for path in PACKAGE.joinpath("features").iterdir() if path.joinpath("__init__.py").exists()}
    assert {*BUILT_IN, SHARED} == folders


def test_what_features_share_serves_two_of_them_at_least() -> None:
    files = {_module(path): path for path in PACKAGE.joinpath("features").rglob("*.py") if path.stem != "__init__"}
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in files.items():
        for name in at_run_time(path):
            importers[name if name in files else name.rpartition(".")[0]].add(module)

    def features_with(module: str, seen: frozenset[str] = frozenset()) -> set[str]:
        if (own := files[module].relative_to(PACKAGE / "features").parts[0]) != SHARED:
            return {own}
        seen |= {module}
        return set().union(*[features_with(other, seen) for other in importers[module] - seen])

    shared = [module for module in files if module.startswith(f"fxdebug.features.{SHARED}.")]
    assert {module: found for module in shared if len(found := features_with(module)) < 2} == {}


def _module(path: Path) -> str:
    return ".".join(("fxdebug", *path.relative_to(PACKAGE).with_suffix("").parts))


def test_a_room_has_a_charter_of_one_line_and_at_most_fourteen_files() -> None:
    rooms = {path.parent for path in FILES}
    assert [room.name for room in rooms if not (room / "__init__.py").exists()] == []
    assert {room.name: count for room in rooms if (count := len(list(room.glob("*.py")))) > 15} == {}  # and its charter


def test_imports_inside_functions_are_few_and_each_has_its_reason() -> None:
    lines = {(path.relative_to(PACKAGE).as_posix(), line) for path in FILES for _, line, late in ours(path) if late}
    late = Counter(path for path, _ in lines)
    assert late == {path: count for path, (count, _) in LATE.items()}
    assert sum(late.values()) <= MOST_LATE


def test_no_module_of_the_lazy_door_bears_the_name_of_what_it_offers() -> None:
    """Importing the module would put it in the place of the function."""
    assert {path.stem for path in (PACKAGE / "api").glob("*.py")} & set(api.__all__) == set()
    assert {path.stem for path in PACKAGE.iterdir()} & (set(fxdebug.__all__) - {"__version__"}) == set()


def test_every_name_of_the_door_is_there() -> None:
    for door in (fxdebug, api):
        assert set(door.__all__) <= set(dir(door))
        assert all(hasattr(door, name) for name in door.__all__)
        assert not hasattr(door, "no_such_name")


def test_the_check_sees_an_import_that_goes_up(tmp_path: Path) -> None:
    file = tmp_path / "values.py"
    file.write_text(
        "import os\n\ndef f():\n    from fxdebug import api\n    from fxdebug.capture.tape import tape_mode\n"
    )
    assert list(ours(file)) == [("api", 4, True), ("capture", 5, True)]
    assert list(ours(file, "capture")) == [("tape", 5, True)]


def test_only_what_a_floor_needs_is_loaded_with_it() -> None:
    """The data, the store's reading side and the door load nothing that is not Python's own."""
    source = "import sys, fxdebug.apps.cli, fxdebug.store.trace_json.trace_file, fxdebug.store.save_run\n"
    source += "import fxdebug.store.tensors.saved_data\n"
    source += f"print(sorted({CORE | {'transformers'}!r} & set(sys.modules)))"
    assert _output(source) == "[]\n"


def test_importing_loads_no_torch_and_little_else() -> None:
    """Sixty modules are thirty milliseconds, which a busy machine makes many."""
    source = "import sys\nbefore = set(sys.modules)\nimport fxdebug\n"
    source += f"print(len(sys.modules.keys() - before), sorted({CORE!r} & set(sys.modules)))"
    count, loaded = _output(source).split(maxsplit=1)
    assert loaded == "[]\n" and int(count) < 100


def test_loading_and_comparing_saved_runs_loads_no_torch(tmp_path: Path) -> None:
    fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2), save=tmp_path / "run")
    source = f"import sys, fxdebug\ntrace = fxdebug.load({str(tmp_path / 'run')!r})\n"
    source += "assert fxdebug.compare(trace, trace).equal and trace.check().healthy and trace.upstream('#0')\n"
    source += f"print(sorted({CORE!r} & set(sys.modules)), fxdebug.last_failed.__name__)"
    assert _output(source) == "['rich'] last_failed\n"


def test_the_first_use_of_a_name_draws_no_random_number_of_the_program() -> None:
    uses = "import fxdebug; fxdebug.fx_debug; fxdebug.compare; fxdebug.load"  # rich draws one when it is imported
    assert _output(f"import random; random.seed(7); {uses}; print(random.random())") == f"{Random(7).random()}\n"


def test_help_on_the_command_line_loads_no_torch_either() -> None:
    source = "import atexit, sys; from fxdebug.apps.cli.main import main\n"
    source += f"atexit.register(lambda: print(sorted({CORE!r} & set(sys.modules))))\nmain(['--help'])"
    shown = _output(source)
    assert "usage: fxdebug" in shown and shown.endswith("\n[]\n")


def _output(source: str) -> str:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout


# Libraries ---------------------------------------------------------------------------------------


def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]  # type: ignore[no-any-return]


def _distributions(requirements: object) -> set[str]:
    assert isinstance(requirements, list)
    return {re.match(r"[\w-]+", line).group().replace("-", "_").lower() for line in requirements}  # type: ignore[union-attr]


def test_the_package_depends_on_what_it_imports_and_on_nothing_else() -> None:
    assert _distributions(project()["dependencies"]) == CORE
    used = {name.partition(".")[0] for path in FILES for name, _, _ in imports(path)}
    assert used >= CORE


def test_an_optional_library_is_imported_in_one_file_inside_a_function_and_has_an_extra() -> None:
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    places: dict[str, set[Path]] = defaultdict(set)
    for path in FILES:
        for name, line, inside in imports(path):
            library = name.partition(".")[0]
            if library not in sys.stdlib_module_names | CORE | {"fxdebug", "__future__"}:
                places[library].add(path)
                early = floor_of(path) in ("exports", "features") or LOADED_BY.get(path.name) == library
                assert inside or early, f"{path.name}:{line} imports {name} too early"
    own = {lib: [path for path in paths if LOADED_BY.get(path.name) != lib] for lib, paths in places.items()}
    assert {library: paths for library, paths in own.items() if len(paths) > 1} == {}
    offered = {library for name, lines in extras.items() if name != "dev" for library in _distributions(lines)}
    # distributions that are imported by another name
    modules = {"pyyaml": "yaml", "mini_racer": "py_mini_racer", "vl_convert_python": "vl_convert"}
    assert set(places) <= {modules.get(name, name) for name in offered}


def test_the_data_imports_no_library_at_all() -> None:
    """``errors``, ``data``, records of features: they are read wherever Python runs. Types may name a library."""
    records = files_in(f"features/{SHARED}/records")
    low = [*records, *[path for path in FILES if floor_of(path) in ("errors", "data")]]
    used = {name.partition(".")[0] for path in low for name in at_run_time(path)}
    assert used - sys.stdlib_module_names == {"fxdebug"}


def test_networkx_is_imported_by_one_file_for_queries_and_by_its_exporters() -> None:
    """Whoever asks for no graph of networkx does not wait for it."""
    users = {path.relative_to(PACKAGE).as_posix() for path in FILES if "networkx" in at_run_time(path)}
    assert users == {"query/as_networkx.py", "features/graphml/run.py"}
