"""Builds of the native core: where they lie, who may have written them, when one is used and when it is left aside."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fxdebug import fx_debug
from fxdebug.apps.cli.main import main
from fxdebug.errors import NativeError
from fxdebug.native import build, builds, core, ways
from fxdebug.stats.measure import measure


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder without a build, and a process that has not looked for one yet."""
    before, module = core.loaded(), ways.core()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(core.SWITCH, raising=False)
    monkeypatch.setattr(core, "_loaded", None)
    monkeypatch.setattr(ways, "_is_chosen", False)
    yield tmp_path
    core._loaded = before
    ways.use(module)


def put(text: bytes = b"no library") -> Path:
    """A file where the build of this torch and this Python would be."""
    file = builds.build_file()
    builds.make_private(file.parent)
    file.write_bytes(text)
    file.chmod(0o700)
    return file


def test_without_a_build_python_does_all_of_it_and_no_trace_says_so(own_cache: Path, capsys) -> None:
    assert core.loaded().why == "there is no build for this torch and this Python"
    assert core.notes() == [] and ways.core() is None
    assert measure(torch.ones(3)).mean == 1.0
    assert fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2)).notes == ()
    assert not any(own_cache.iterdir())  # nothing is made behind anyone's back
    assert main(["native"]) == 0
    assert "in use      no: there is no build for this torch and this Python\n" in capsys.readouterr().out


def test_a_build_is_of_one_torch_one_python_and_one_state_of_the_sources(own_cache: Path, monkeypatch) -> None:
    file = builds.build_file()
    assert file.parent.parent == own_cache / "fxdebug" / "native"
    assert f"torch-{torch.__version__}-" in file.parent.name and f"{sys.version_info.minor}" in file.parent.name
    monkeypatch.setattr(builds, "source_files", lambda: builds.SOURCES.glob("core.h"))
    assert builds.build_file() != file
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert "torch-9.9.9-" in builds.build_file().parent.name


def test_a_build_that_does_not_load_is_left_aside_with_one_note(own_cache: Path, capsys) -> None:
    file = put()
    trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    (note,) = trace.notes
    assert note.what.startswith("the native core was left aside: ImportError: ") and file.name in note.what
    assert trace.calls[0].outputs.item.stats is not None
    assert main(["native"]) == 0 and "in use      no, a build was left aside" in capsys.readouterr().out


def test_a_build_whose_answers_are_not_pythons_is_left_aside(native_core, own_cache: Path, monkeypatch) -> None:
    shutil.copy(native_core.__file__, put())
    monkeypatch.setattr("fxdebug.native.self_test._expected", lambda tensor: (1, 2))
    assert "its self-test fails: the statistics of" in core.loaded().why
    assert core.loaded().is_left_aside and ways.core() is None


def test_modes_of_the_program_do_not_disturb_the_self_test(native_core, own_cache: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    shutil.copy(native_core.__file__, put())
    with FakeTensorMode(), torch.device("meta"), torch.inference_mode():
        assert core.loaded().module is not None, core.loaded().why


@pytest.mark.parametrize("which", ["the file", "its folder", "native", "fxdebug"])
def test_a_build_that_others_may_have_written_is_not_loaded(which: str, own_cache: Path) -> None:
    file = put()
    path = {"the file": file, "its folder": file.parent, "native": file.parents[1], "fxdebug": file.parents[2]}[which]
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWOTH)
    assert core.loaded().why == f"others may write to {path} (chmod go-w)"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_build_of_another_user_is_not_loaded(own_cache: Path) -> None:
    file = put()
    os.chown(file, 12345, -1)
    assert core.loaded().why == f"{file} belongs to another user (number 12345)"


def test_a_link_to_a_build_is_not_loaded(own_cache: Path, tmp_path: Path) -> None:
    file = put()
    file.rename(tmp_path / "elsewhere.so")
    file.symlink_to(tmp_path / "elsewhere.so")
    assert core.loaded().why == f"{file} is not a file"


def test_folders_for_builds_are_the_users_own_whatever_the_umask(own_cache: Path) -> None:
    before = os.umask(0)
    try:
        file = put()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in list(file.parents)[:3]} == {0o700}


def test_the_switch_forces_either_way(own_cache: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv(core.SWITCH, "1")
    with pytest.raises(NativeError, match="FXDEBUG_NATIVE=1, but the native core cannot be used: there is no build"):
        fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    monkeypatch.setenv(core.SWITCH, "yes")
    assert main(["native"]) == 2
    assert "FXDEBUG_NATIVE is 'yes': give 0 for Python alone, or 1" in capsys.readouterr().err
    put()
    monkeypatch.setenv(core.SWITCH, "0")
    assert core.loaded() == core.Loaded(None, None, "FXDEBUG_NATIVE=0") and core.notes() == []


def test_without_a_compiler_nothing_is_built_and_the_reason_is_said(own_cache: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["native", "build"]) == 2
    assert "no C++ compiler: none of c++, g++, clang++ is there" in capsys.readouterr().err
    assert main(["native", "build", "--if-possible"]) == 0
    assert capsys.readouterr().out.startswith("no native core: no C++ compiler")
    assert main(["native"]) == 0 and "a C++ compiler is needed" in capsys.readouterr().out


def test_without_pythons_headers_nothing_is_built(own_cache: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "_headers", lambda: tmp_path)
    monkeypatch.setattr(build, "compiler_of_this_machine", lambda: ["c++"])
    assert "Python.h is missing" in str(build.cannot_build())


def test_what_the_compiler_says_against_the_sources_is_said(own_cache: Path, monkeypatch, tmp_path: Path) -> None:
    if build.cannot_build() is not None:
        pytest.skip(str(build.cannot_build()))
    broken = tmp_path / "broken.cpp"
    broken.write_text("int x = nothing;\n")
    monkeypatch.setattr(build, "source_files", lambda: [broken])
    said: list[str] = []
    with pytest.raises(NativeError, match=r"(?s)ends with status 1:.*broken.cpp:1"):
        build.build(said.append)
    assert said[0].startswith("compiler  ") and said[-1] == "compile   broken.cpp"
    assert not builds.build_file().exists() and list(builds.build_file().parent.iterdir()) == []


def test_on_other_systems_the_core_is_not_built(own_cache: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert core.loaded().why == "the core is built for Linux and macOS, not for win32"


def test_the_sources_are_part_of_the_package() -> None:
    listed = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"native/cpp/*.h", "native/cpp/*.cpp"' in listed
    assert {path.suffix for path in builds.source_files()} == {".h", ".cpp"}


def test_importing_loads_no_core() -> None:
    source = "import sys, fxdebug, fxdebug.stats.measure, fxdebug.capture.tensors.value_table\n"
    source += "from fxdebug.native import core\nprint(core._loaded, 'fxdebug_core' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert ran.stdout == "None False\n"
