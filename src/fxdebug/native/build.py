"""Build the core: call the C++ compiler that is there, with torch's and Python's headers."""

from __future__ import annotations

import contextlib
import os
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
_COMPILE = ("-std=c++17", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-trapping-math", "-Wall", "-Wextra")
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
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=file.parent) as made:
        objects = _compiled(compiler, [*_COMPILE, *options, *_includes(headers)], Path(made), say)
        linked = Path(made) / file.name
        say(f"link      {file.name}")
        _run([*compiler, *_shared(), *options, *map(str, objects), *_libraries(), "-o", str(linked)])
        linked.chmod(0o700)
        linked.replace(file)  # at once: another process may be loading the old one
    return file


def cannot_build() -> str | None:
    """Return why no build can be made here: no compiler, no headers, another system; ``None`` where one can."""
    if unsupported() is not None:
        return unsupported()
    if compiler_of_this_machine() is None:
        return f"no C++ compiler: none of {', '.join(_COMPILERS)} is there, or the one that CXX names"
    if not (_headers() / "Python.h").exists():
        return f"Python's headers are not installed: {_headers() / 'Python.h'} is missing (python3-dev)"
    return None


def _headers() -> Path:
    return Path(sysconfig.get_paths()["include"])


def compiler_of_this_machine() -> list[str] | None:
    """Return the C++ compiler, with its options if ``CXX`` has any; ``None`` if there is none."""
    given = shlex.split(os.environ.get("CXX", ""))
    if given:
        return given if shutil.which(given[0]) else None
    return next(([name] for name in _COMPILERS if shutil.which(name)), None)


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


def _compiled(compiler: list[str], options: list[str], folder: Path, say: Say) -> list[Path]:
    """Compile each file, as many at a time as there are processors, and return the object files."""
    sources = [path for path in source_files() if path.suffix == ".cpp"]
    objects = [folder / f"{path.stem}.o" for path in sources]

    def compile_one(source: Path, made: Path) -> None:
        say(f"compile   {source.name}")
        _run([*compiler, *options, "-c", str(source), "-o", str(made)])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            for done in [pool.submit(compile_one, *pair) for pair in zip(sources, objects)]:
                done.result()
        except BaseException:  # one has failed, or the process is to end: the others would go on for a minute
            pool.shutdown(wait=False, cancel_futures=True)
            _end_compilers()
            raise
    return objects


_compilers: set[subprocess.Popen[str]] = set()  # that run now


def _run(command: list[str]) -> None:
    ran = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    _compilers.add(ran)
    try:
        out, err = ran.communicate()
    finally:
        _compilers.discard(ran)
    if ran.returncode:
        raise NativeError(f"{shlex.join(command)}\nends with status {ran.returncode}:\n{out}{err}".rstrip())


def _end_compilers() -> None:
    """End the compilers that run, with the programs that they started."""
    for compiler in tuple(_compilers):
        with contextlib.suppress(OSError):
            os.killpg(compiler.pid, signal.SIGTERM) if hasattr(os, "killpg") else compiler.kill()
