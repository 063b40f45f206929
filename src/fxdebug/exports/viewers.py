"""The programs that ``fxdebug open`` starts: the package of each, what it opens, and its command."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fxdebug.errors import UsageError, needs


@dataclass(frozen=True, slots=True)
class Viewer:
    """A program that shows a run in a browser.

    ``form`` is what a run is exported to for it, ``suffix`` the end of that file's name (empty for a folder). ``code``
    is what Python runs; its arguments are the path and the port, 0 for any that is free.
    """

    name: str
    package: str
    extra: str
    form: str
    suffix: str
    code: str
    accepts: Callable[[Path], bool]


_NETRON = """
import netron, sys
host, port = netron.serve(sys.argv[1], None, address=("localhost", int(sys.argv[2]) or None), browse="-b" in sys.argv)
print(f"Netron: http://{host}:{port}", flush=True)
netron.wait()
"""
_TENSORBOARD = """
import sys, time, webbrowser
from tensorboard import program
board = program.TensorBoard()
board.configure(argv=[None, "--logdir", sys.argv[1], "--port", sys.argv[2], "--load_fast", "false"])
address = board.launch()
print(f"TensorBoard: {address}", flush=True)
if "-b" in sys.argv: webbrowser.open(address)
while True: time.sleep(3600)
"""

VIEWERS: dict[str, Viewer] = {
    viewer.name: viewer
    for viewer in (
        Viewer("netron", "netron", "netron", "netron", ".onnx", _NETRON, lambda path: path.is_file()),
        Viewer(
            "tensorboard", "tensorboard", "tensorboard", "tensorboard", "", _TENSORBOARD,
            lambda path: any(path.glob("**/*tfevents*")),
        ),
    )
}  # fmt: skip


def viewer_command(viewer: Viewer, path: Path, port: int = 0, *, browse: bool = True) -> list[str]:
    """Return the command that shows ``path`` in a program; it runs until it is interrupted.

    Raises ``MissingExtra`` where the program is not installed, ``UsageError`` for a path that is not there.
    """
    if importlib.util.find_spec(viewer.package) is None:
        raise needs(f"opening {path.name or path}", viewer.package, viewer.extra)
    if not path.exists():
        raise UsageError(f"there is no {path}")
    return [sys.executable, "-c", viewer.code, str(path), str(port), *(["-b"] if browse else [])]
