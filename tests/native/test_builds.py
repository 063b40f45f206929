"""Builds of the native core: where they lie, who may have written them, when one is used and when it is left aside."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fxdebug import fx_debug
from fxdebug.apps.cli.main import main
from fxdebug.errors import NativeError
from fxdebug.native import build, builds, core, dispatch
from fxdebug.stats.measure import measure


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder without a build, and a process that has not looked for one yet."""
    before, module = core.loaded(), dispatch.core()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(core.SWITCH, raising=False)
    monkeypatch.setattr(core, "_loaded", None)
    monkeypatch.setattr(dispatch, "_is_chosen", False)
    yield tmp_path
    core._loaded = before
    dispatch.use(module)


def put(text: bytes = b"no library") -> Path:
    """A file where the build of this torch and this Python would be."""
    file = builds.build_file()
    builds.make_private(file.parent)
    file.write_bytes(text)
    file.chmod(0o700)
    return file


def test_without_a_build_python_does_all_of_it_and_no_trace_says_so(own_cache: Path, capsys) -> None:
    assert core.loaded().why == "there is no build for this torch and this Python"
    assert core.notes() == [] and dispatch.core() is None
    assert measure(torch.ones(3)).mean == 1.0
    assert fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2)).notes == ()
    assert not any(own_cache.iterdir())  # nothing is made behind anyone's back
    assert main(["native"]) == 0
    assert "in use      no: there is no build for this torch and this Python\n" in capsys.readouterr().out


def test_a_build_is_of_one_torch_one_python_and_one_state_of_the_sources(own_cache: Path, monkeypatch) -> None:
    file = builds.build_file()
    assert file.parent.parent == own_cache / "fxdebug" / "native"
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    assert file.name == f"fxdebug_core{suffix}"
    assert file.parent.name.rpartition("-")[0] == f"torch-{torch.__version__}-{suffix.split('.')[1]}"
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
    assert core.loaded().is_left_aside and dispatch.core() is None


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
    monkeypatch.setattr(build, "_takes", lambda compiler, standard: True)
    assert "Python.h is missing" in str(build.cannot_build())


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Make a script the compiler of this machine; it is asked for its version first, and for the standards it takes."""
    file = folder / "g++-old"
    file.write_text(f"#!/bin/sh\ncase \"$*\" in --version) echo 'g++-old 8.3'; exit 0;; esac\n{script}\n")
    file.chmod(0o700)
    monkeypatch.setenv("CXX", str(file))
    return file


def needs_a_compiler() -> None:
    if build.cannot_build() is not None:
        pytest.skip(str(build.cannot_build()))


def asked_for(headers: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have torch's headers ask for a standard of C++."""
    (headers / "include" / "ATen").mkdir(parents=True)
    (headers / "include" / "ATen" / "ATen.h").write_text(text)
    monkeypatch.setattr(torch, "__file__", str(headers / "__init__.py"))


STANDARDS = {
    "torch 2.13": ("#if !defined(_MSC_VER) && __cplusplus < 201703L\n#error C++17 or later\n#endif\n", 17),
    "torch 2.14": ("#if !defined(_MSC_VER) && __cplusplus < 202002L\n#error C++20 or later\n#endif\n", 20),
    "torch 2.15": ("(defined(_MSC_LANG) && _MSC_LANG < 202002L) || (!defined(_MSC_LANG) && __cplusplus < 202002L)", 20),
    "one that does not ask": ("#pragma once\n", 17),
}


@pytest.mark.parametrize("version", STANDARDS)
def test_the_standard_of_cpp_is_the_one_that_torchs_headers_ask_for(version: str, tmp_path: Path, monkeypatch) -> None:
    header, standard = STANDARDS[version]
    asked_for(tmp_path, monkeypatch, header)
    assert build._standard(["c++"]) == [f"-std=c++{standard}"]
    assert build._standard(["c++", "-std=c++23"]) == []  # CXX decides


def test_the_standard_is_what_this_torch_asks_for() -> None:
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    assert build._needed_standard() == (20 if version >= (2, 14) else 17)


def test_a_compiler_that_is_too_old_for_torchs_headers_is_not_called(own_cache: Path, tmp_path, monkeypatch) -> None:
    file = compiler(tmp_path, monkeypatch, 'case "$*" in *c++20*) exit 1;; esac')
    asked_for(tmp_path, monkeypatch, STANDARDS["torch 2.14"][0])
    why = f"torch {torch.__version__} needs C++20, and {file}: g++-old 8.3 does not have it"
    assert build.cannot_build() == f"{why}: install a newer compiler (g++ 11, clang++ 14), or name another one in CXX"
    with pytest.raises(NativeError, match=r"needs C\+\+20"):
        build.build(print)


def test_an_older_compiler_will_do_for_an_older_torch(own_cache: Path, tmp_path: Path, monkeypatch) -> None:
    compiler(tmp_path, monkeypatch, 'case "$*" in *c++20*) exit 1;; esac')
    asked_for(tmp_path, monkeypatch, STANDARDS["torch 2.13"][0])
    monkeypatch.setattr(build, "_headers", lambda: tmp_path)
    (tmp_path / "Python.h").touch()
    assert build.cannot_build() is None


def test_of_several_compilers_one_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.shutil, "which", lambda name: name)
    monkeypatch.setattr(build, "_takes", lambda compiler, standard: compiler == ["clang++"])
    assert build.compiler_of_this_machine() == ["clang++"]
    monkeypatch.setattr(build, "_takes", lambda compiler, standard: False)
    assert build.compiler_of_this_machine() == ["c++"]


def test_where_the_sources_do_not_compile_four_lines_say_what_and_a_file_has_the_rest(
    own_cache: Path, monkeypatch, tmp_path: Path
) -> None:
    needs_a_compiler()
    broken = [tmp_path / "broken.cpp", tmp_path / "more.cpp"]
    for path in broken:
        path.write_text("int x = nothing;\nint y = nothing;\n")
    monkeypatch.setattr(build, "source_files", lambda: broken)
    said: list[str] = []
    with pytest.raises(NativeError) as raised:
        build.build(said.append)
    what, first, where, advice = str(raised.value).splitlines()
    assert what.startswith("broken.cpp (and 1 more) does not compile with ")
    assert what.endswith(f", for torch {torch.__version__}")
    assert first.startswith(f"  {broken[0]}:1:9: error: ") and "nothing" in first
    log = builds.build_file().parent / "build.log"
    assert where == f"  all that was said: {log}"
    assert advice.startswith("  try another compiler (CXX=clang++ fxdebug native build), or go on without: ")
    assert f"{broken[1]}:2:9: error: " in log.read_text() and " -c " in log.read_text()
    assert said[0].startswith("compiler  ") and sorted(said[2:]) == ["compile   broken.cpp", "compile   more.cpp"]
    assert not builds.build_file().exists() and list(builds.build_file().parent.iterdir()) == [log]


def test_what_the_linker_says_is_told_in_the_same_way(own_cache: Path, monkeypatch, tmp_path: Path) -> None:
    needs_a_compiler()
    (tmp_path / "empty.cpp").write_text("")
    monkeypatch.setattr(build, "source_files", lambda: [tmp_path / "empty.cpp"])
    monkeypatch.setattr(build, "_libraries", lambda: ["-lno_such_library"])
    with pytest.raises(NativeError) as raised:
        build.build(lambda text: None)
    what, first, *_ = str(raised.value).splitlines()
    assert what.startswith("the core does not link with ") and "no_such_library" in first


def test_a_compiler_that_says_nothing_is_told_by_its_status(own_cache: Path, tmp_path: Path, monkeypatch) -> None:
    needs_a_compiler()
    compiler(tmp_path, monkeypatch, 'case "$*" in *fsyntax-only*) exit 0;; *) exit 3;; esac')
    with pytest.raises(NativeError, match="it ends with status 3 and says nothing"):
        build.build(lambda text: None)


def test_a_build_is_put_in_its_place_with_what_was_asked_of_the_compiler(
    own_cache: Path, tmp_path: Path, monkeypatch
) -> None:
    calls = tmp_path / "calls"
    script = f"""case "$*" in *fsyntax-only*) exit 0;; esac
echo "$*" >> {calls}
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""
    compiler(tmp_path, monkeypatch, script)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(build, "_headers", lambda: tmp_path)
    monkeypatch.setattr(build, "source_files", lambda: [tmp_path / "a.cpp", tmp_path / "a.h", tmp_path / "b.cpp"])
    said: list[str] = []
    file = build.build(said.append, options=["-g3"])
    assert file == builds.build_file() and file.read_text() == "made\n" and stat.S_IMODE(file.stat().st_mode) == 0o700
    assert said[:2] == [f"compiler  {tmp_path}/g++-old: g++-old 8.3", f"folder    {file.parent}"]
    assert (sorted(said[2:4]), said[4:]) == (["compile   a.cpp", "compile   b.cpp"], [f"link      {file.name}"])
    *compiled, linked = calls.read_text().splitlines()
    abi = f" -g3 -D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())} -isystem "
    assert len(compiled) == 2 and all(abi in each and f"-isystem {tmp_path} -c" in each for each in compiled)
    assert linked.startswith("-shared -g3 ") and " -lc10 -ltorch_cpu -ltorch -ltorch_python -o " in linked
    assert list(file.parent.iterdir()) == [file]


def test_what_killed_builds_left_goes_after_an_hour(tmp_path: Path) -> None:
    for name, age in [("making-old", 3700), ("making-new", 3500), ("kept", 3700)]:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    build._remove_abandoned(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept", "making-new"]


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("In file included from b.h\n  a.cpp:3:1: error: no x\na.cpp:4:1: error: no y\n", "a.cpp:3:1: error: no x"),
        ("collect2: error: ld returned 1\nld: error: no library\n", "ld: error: no library"),
        ("clang++: error: linker failed\n\n", "clang++: error: linker failed"),
        ("\n", "it ends with status 4 and says nothing"),
    ],
)
def test_the_line_that_names_what_failed_is_told(said: str, first: str) -> None:
    assert build._first_error(subprocess.CompletedProcess([], 4, said)) == first


def test_the_cache_folder_is_the_one_of_the_system(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert builds.cache_folder() == Path.home() / ".cache" / "fxdebug" / "native"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert builds.cache_folder() == Path.home() / "Library" / "Caches" / "fxdebug" / "native"


def test_the_core_in_use_is_the_module_that_was_chosen(monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "_dispatched", [])
    before, mine = dispatch.core(), ModuleType("mine")
    with dispatch.using(None):
        assert dispatch.core() is None
        with dispatch.using(mine):
            assert dispatch.core() is mine
        assert dispatch.core() is None
    assert dispatch.core() is before


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
