"""Processes of a Python that has begun already: each is forked off one that has imported torch and fxdebug, no more.

A Python that begins anew takes two to four seconds for these imports, a fork some hundredths. All that a program can
change is a fork's own: modules, patches, random numbers, files, what it leaves behind. What it cannot show is what a
program imports first, and what is read when a Python begins: hash seeds, files of ``site``, variables. A test of
those starts a Python itself. What a fork has registered to be done at its end is done; that its modules are taken
apart then, for a third of a second, is spared.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TORCH = "import torch, torch._dynamo"  # the first optimizer of a program imports _dynamo, for longer than torch itself
FXDEBUG = f"{TORCH}, fxdebug, fxdebug.apps.cli.main; fxdebug.fx_debug, fxdebug.watch, fxdebug.check, fxdebug.compare"
_READ_AT_THE_BEGINNING = ("PYTHON", "OMP_", "MKL_", "LD_")

_begun: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}


def ran(
    words: Sequence[str | Path],
    *,
    imports: str = FXDEBUG,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = False,
    given: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``PYTHON [-I] -c CODE``, ``-m MODULE`` or ``SCRIPT`` with arguments, as ``subprocess.run`` does; ``given`` is
    what it reads."""
    python, *rest = map(str, words)
    with tempfile.TemporaryDirectory() as folder:
        streams = [os.path.join(folder, name) for name in ("in", "out", "err")]
        for stream, text in zip(streams, (given, "", ""), strict=True):
            Path(stream).write_text(text, encoding="utf-8")
        if hasattr(os, "fork"):
            begins = [python, "-I"] if rest[0] == "-I" else [python]
            asked = {"words": rest[len(begins) - 1 :], "env": dict(os.environ if env is None else env)}
            status = _asked((*begins, imports), asked | {"cwd": os.path.abspath(cwd or "."), "streams": streams})
        else:  # it begins anew
            with open(streams[0]) as read, open(streams[1], "w") as out, open(streams[2], "w") as err:
                status = subprocess.run(words, stdin=read, stdout=out, stderr=err, cwd=cwd, env=env).returncode
        told, said = (Path(stream).read_text(encoding="utf-8") for stream in streams[1:])
    assert not (check and status), f"status {status}\n{told}\n{said}"
    return subprocess.CompletedProcess([python, *rest], status, told, said)


def _asked(key: tuple[str, ...], asked: Mapping[str, Any]) -> int:
    """Return the status of a fork of the Python that began with these flags and imports; the first begins it."""
    if key not in _begun:
        *python, imports = key
        code = f"space = {{'__name__': 'begun'}}; exec(compile(open({__file__!r}).read(), {__file__!r}, 'exec'), space)"
        command = [*python, "-c", f"{code}; space['serve']({imports!r})"]
        _begun[key] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    one = _begun[key]
    assert one.stdin is not None and one.stdout is not None
    try:
        one.stdin.write(json.dumps(asked).encode() + b"\n")
        one.stdin.flush()
        status: int = json.loads(one.stdout.readline())
    except BaseException:  # of a test that is interrupted: its answer is not read by the next one
        _begun.pop(key).kill()
        raise
    return status


def _end(process: int) -> None:
    for one in _begun.values() if os.getpid() == process else ():  # not at the end of a process that a test forks
        assert one.stdin is not None and one.stdout is not None
        one.stdin.close()  # nobody can ask any more: it ends
        one.wait()
        one.stdout.close()


atexit.register(_end, os.getpid())


# In the Python that forks ------------------------------------------------------------------------


def serve(imports: str) -> None:
    """Fork for each line that is read, and answer with the status; a fork runs its program and returns."""
    first, ended = dict(os.environ), []
    atexit.register(_leave, ended)  # before all others: it is done last
    exec(imports, {})
    by_imports = {name: text for name, text in os.environ.items() if name not in first}
    gc.collect()
    gc.freeze()
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _become(asked, first, by_imports)
            return _run(asked["words"], ended)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, json.dumps(status).encode() + b"\n")
    ended.append(0)


def _become(asked: Mapping[str, Any], first: Mapping[str, str], by_imports: Mapping[str, str]) -> None:
    """Take the streams, the folder, the variables and the path that were asked for."""
    for place, stream in enumerate(asked["streams"]):
        opened = os.open(stream, os.O_WRONLY | os.O_APPEND if place else os.O_RDONLY)
        os.dup2(opened, place)
        os.close(opened)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(by_imports | asked["env"])
    differ = {name for name, _ in first.items() ^ asked["env"].items() if name.startswith(_READ_AT_THE_BEGINNING)}
    assert differ <= {"PYTHONPATH"}, f"{sorted(differ)} are read when a Python begins: start one"
    if not sys.flags.ignore_environment:
        sys.path[1 : 1 + len(_places(first))] = _places(asked["env"])


def _places(variables: Mapping[str, str]) -> list[str]:
    return [os.path.abspath(one) for one in variables.get("PYTHONPATH", "").split(os.pathsep) if one]


def _leave(ended: Sequence[int]) -> None:
    """End the process without taking its modules apart, if its program has come to an end."""
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


def _run(words: Sequence[str], ended: list[int]) -> None:
    """Run what stands behind ``python``, in the place of ``__main__``; the status it ends with is added to a list."""
    names = vars(sys.modules["__main__"])
    names.clear()
    names.update(__name__="__main__", __doc__=None, __package__=None, __spec__=None, __builtins__=__builtins__)
    begins, text, file = "", words[1] if len(words) > 1 else "", "<string>"
    sys.argv = [words[0], *words[2:]] if words[0] in ("-c", "-m") else list(words)
    if words[0] == "-m":
        begins = os.getcwd()
    elif words[0] != "-c":
        file = names["__file__"] = os.path.abspath(words[0])
        begins, text = os.path.dirname(os.path.realpath(file)), Path(file).read_text(encoding="utf-8")
    if not sys.flags.safe_path:
        sys.path[0] = begins
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        else:
            exec(compile(text, file, "exec", dont_inherit=True), names)
        ended.append(0)
    except SystemExit as end:
        ended.append(end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None))
        raise
    except Exception as error:  # told as Python does it, from the program's own lines on
        own = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(own), own)
        ended.append(1)
