"""Build the core: call the C++ compiler that is there, with torch's and Python's headers."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fxdebug.errors import NativeError
from fxdebug.native.builds import build_file, make_private, source_files, unsupported

Say = Callable[[str], None]
"""Tell a person about a step."""

_COMPILERS = ("c++", "g++", "clang++")
_COMPILE = ("-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-trapping-math", "-Wall", "-Wextra")
_USUAL_STANDARD = 17  # of C++, where torch's headers do not ask for another one
LOG = "build.log"  # beside the build: what the compiler said, where it failed
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")  # the process has loaded them with torch


_MAKING, _LONGEST = "making-", 3600.0  # names of the folders in which builds are made; seconds that one may take


def build(say: Say, *, options: Sequence[str] = ()) -> Path:
    """Build the core for this torch and this Python, and return the file of the build.

    ``options`` are further ones for the compiler. The build goes into the user's cache folder.
    Raises :class:`~fxdebug.errors.NativeError` if that is not possible; the message says why.
    """
    why = cannot_build()
    if why is not None:
        raise NativeError(why)
    compiler = compiler_of_this_machine()
    assert compiler is not None
    headers = _headers()
    file = _place()
    say(f"compiler  {_version_of(compiler)}")
    say(f"folder    {file.parent}")
    _remove_abandoned(file.parent)
    log = file.parent / LOG
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=file.parent) as made:
        compile_options = [*_standard(compiler), *_COMPILE, *options, *_includes(headers)]
        objects = _compiled(compiler, compile_options, Path(made), log, say)
        linked = Path(made) / file.name
        say(f"link      {file.name}")
        command = [*compiler, *_shared(), *options, *map(str, objects), *_libraries(), "-o", str(linked)]
        _require_success(compiler, {"the core": _ran(command)}, "link", log)
        linked.chmod(0o700)
        linked.replace(file)  # at once: another process may be loading the old one
    return file


def cannot_build() -> str | None:
    """Return why no build can be made here; ``None`` where one can.

    No compiler is there or none is new enough for torch's headers, Python's headers are missing, or it is another
    system.
    """
    if unsupported() is not None:
        return unsupported()
    compiler = compiler_of_this_machine()
    if compiler is None:
        return f"no C++ compiler: none of {', '.join(_COMPILERS)} is there, or the one that CXX names"
    standard = _needed_standard()
    if not _takes(compiler, standard):
        import torch

        return (
            f"torch {torch.__version__} needs C++{standard}, and {_version_of(compiler)} does not have it: "
            "install a newer compiler (g++ 11, clang++ 14), or name another one in CXX"
        )
    if not (_headers() / "Python.h").exists():
        return f"Python's headers are not installed: {_headers() / 'Python.h'} is missing (python3-dev)"
    return None


def _headers() -> Path:
    return Path(sysconfig.get_paths()["include"])


def compiler_of_this_machine() -> list[str] | None:
    """Return the C++ compiler, with its options if ``CXX`` has any; ``None`` if there is none.

    Of those that are there it is the first that is new enough for torch's headers, or the first of all.
    """
    given = shlex.split(os.environ.get("CXX", ""))
    if given:
        return given if shutil.which(given[0]) else None
    found = [[name] for name in _COMPILERS if shutil.which(name)]
    standard = _needed_standard() if found else 0
    return next((each for each in found if _takes(each, standard)), found[0] if found else None)


def _needed_standard() -> int:
    """Return the standard of C++ that torch's headers ask for, such as 17; torch 2.14 is the first that asks for 20."""
    import torch

    header = Path(torch.__file__).parent / "include" / "ATen" / "ATen.h"
    text = header.read_text(encoding="utf-8", errors="replace") if header.is_file() else ""
    return max(map(int, re.findall(r"__cplusplus\s*<\s*20(\d\d)\d\dL", text)), default=_USUAL_STANDARD)


def _standard(compiler: list[str]) -> list[str]:
    """Return the option for the standard of C++, unless ``CXX`` has one."""
    return [] if any(word.startswith("-std=") for word in compiler) else [f"-std=c++{_needed_standard()}"]


@functools.cache
def _does_take(compiler: tuple[str, ...], option: str) -> bool:
    command = [*compiler, option, "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input="int x;\n", capture_output=True, text=True).returncode == 0


def _takes(compiler: list[str], standard: int) -> bool:
    return not _standard(compiler) or _does_take(tuple(compiler), f"-std=c++{standard}")


def _version_of(compiler: list[str]) -> str:
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True, errors="replace").stdout
    return f"{shlex.join(compiler)}: {said.partition(chr(10))[0]}" if said else shlex.join(compiler)


def _remove_abandoned(folder: Path) -> None:
    """Remove what builds left that were killed: no build takes so long."""
    for left in folder.glob(f"{_MAKING}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LONGEST:
                shutil.rmtree(left)


def _place() -> Path:
    file = build_file()
    try:
        make_private(file.parent)
    except OSError as error:
        raise NativeError(f"{file.parent} cannot be made: {error}") from None
    return file


def _includes(headers: Path) -> list[str]:
    """Return the options for the headers of others, in which nothing is warned of."""
    import torch
    from torch.utils.cpp_extension import include_paths

    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    return [abi, *[option for folder in (*include_paths(), str(headers)) for option in ("-isystem", folder)]]


def _shared() -> list[str]:
    return ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]


def _libraries() -> list[str]:
    from torch.utils.cpp_extension import library_paths

    return [*[f"-L{folder}" for folder in library_paths()], *[f"-l{name}" for name in _LIBRARIES]]


def _compiled(compiler: list[str], options: list[str], folder: Path, log: Path, say: Say) -> list[Path]:
    """Compile each file, as many at a time as there are processors, and return the object files."""
    sources = [path for path in source_files() if path.suffix == ".cpp"]
    objects = [folder / f"{path.stem}.o" for path in sources]

    def compile_one(source: Path, made: Path) -> _Ran:
        say(f"compile   {source.name}")
        return _ran([*compiler, *options, "-c", str(source), "-o", str(made)])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            ran = [done.result() for done in [pool.submit(compile_one, *pair) for pair in zip(sources, objects)]]
        except BaseException:  # the process is to end: the others would go on for a minute
            pool.shutdown(wait=False, cancel_futures=True)
            _end_compilers()
            raise
    _require_success(compiler, {source.name: each for source, each in zip(sources, ran)}, "compile", log)
    return objects


_Ran = subprocess.CompletedProcess[str]
_compilers: set[subprocess.Popen[str]] = set()  # that run now


def _ran(command: list[str]) -> _Ran:
    ran = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    _compilers.add(ran)
    try:
        out, _ = ran.communicate()
    finally:
        _compilers.discard(ran)
    return _Ran(command, ran.returncode, out)


def _require_success(compiler: list[str], ran: dict[str, _Ran], step: str, log: Path) -> None:
    """Raise :class:`~fxdebug.errors.NativeError`, in four lines, if a step failed; the log has all that was said."""
    import torch

    failed = {name: each for name, each in ran.items() if each.returncode}
    if not failed:
        return
    outputs = [
        f"{shlex.join(each.args)}\nends with status {each.returncode}:\n{each.stdout}" for each in failed.values()
    ]
    log.write_text("\n".join(outputs), encoding="utf-8")
    name, first = next(iter(failed.items()))
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    raise NativeError(
        f"{name}{more} does not {step} with {_version_of(compiler)}, for torch {torch.__version__}\n"
        f"  {_first_error(first)}\n"
        f"  all that was said: {log}\n"
        "  try another compiler (CXX=clang++ fxdebug native build), or go on without: Python does the same, slower"
    )


def _first_error(ran: _Ran) -> str:
    """Return the line that says what failed, of what a compiler or a linker said."""
    lines = [line.strip() for line in ran.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line and not line.startswith(("collect2:", "clang:", "clang++:"))]
    return (errors or lines or [f"it ends with status {ran.returncode} and says nothing"])[0]


def _end_compilers() -> None:
    """End the compilers that run, with the programs that they started."""
    for compiler in tuple(_compilers):
        with contextlib.suppress(OSError):
            os.killpg(compiler.pid, signal.SIGTERM) if hasattr(os, "killpg") else compiler.kill()
