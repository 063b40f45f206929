"""The command ``native``: which build of the native core is in use, and a new build."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

from fxdebug.api.commands.parts import OK
from fxdebug.native.build import build, cannot_build, compiler_of_this_machine
from fxdebug.native.builds import build_file, make_private
from fxdebug.native.core import SWITCH, load_build, loaded
from fxdebug.printable import printable_lines

STRICT = ("-Werror",)  # a newer compiler may warn of something: that must not keep a user from building


def native(options: argparse.Namespace) -> int:
    """Show which build of the native core is in use, or why there is none; ``native build`` makes one."""
    if options.action == "build":
        why = cannot_build() if options.if_possible else None
        if why is not None:
            print(f"no native core: {why}")
            return OK
        _build(again=options.again, strict=options.strict)
        return OK
    found = loaded()
    if found.module is not None:
        _say("in use", "yes")
    elif found.is_left_aside:
        _say("in use", f"no, a build was left aside: {found.why}")
    else:
        _say("in use", f"no: {found.why}")
    if found.file is not None:
        _say("build" if found.file.exists() else "it would be", _short(found.file))
        _say("made for", f"torch {_torch_version()}, Python {platform.python_version()}")
    compiler = compiler_of_this_machine()
    if found.module is None and os.environ.get(SWITCH) != "0":
        _say("to build", "fxdebug native build" if compiler else "a C++ compiler is needed: none is here")
    return OK


def _build(*, again: bool, strict: bool) -> None:
    file = build_file()
    if file.exists() and not again:
        make_private(file.parent)
        print(f"this build is there already: {_short(file)}")
    else:
        build(_say_step, options=STRICT if strict else ())
    load_build(file)
    print("it loads, and its answers are Python's: runs use it from now on (fxdebug native)")


def _say(what: str, text: str) -> None:
    print(f"{what:12}{printable_lines(text)}")


def _say_step(text: str) -> None:
    print(printable_lines(text), flush=True)


def _short(path: Path) -> str:
    home = str(Path.home())
    text = str(path)
    return "~" + text[len(home) :] if text.startswith(home + "/") else text


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
