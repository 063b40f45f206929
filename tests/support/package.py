"""A package that is installed in a virtual environment of its own, on top of the one that runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path


def python_with_package(root: Path, files: Mapping[str, str]) -> Path:
    """Return the Python of a new environment in ``root`` that has a package made of files."""
    package = root / "package"
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)
    builder = venv.EnvBuilder(system_site_packages=True, with_pip=False)
    builder.create(root / "venv")
    python = root / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = next((root / "venv").rglob("site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(package)], check=True, capture_output=True)
    # the environment of these tests is one itself: its packages are found after those of the new one
    (site / "tests.pth").write_text("\n".join(path for path in sys.path if path and "plugin" not in path))
    return python


ANSWERS = """
import contextlib, io, json, sys
from fxdebug.apps.cli.main import main
for line in sys.stdin:
    arguments, out, err, status = json.loads(line), io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if arguments[0] == "-c":
                exec(arguments[1], {"__name__": "__main__"})
            else:
                status = main(arguments[2:])
        except SystemExit as ended:
            status = ended.code
    print(json.dumps([status or 0, out.getvalue(), err.getvalue()]), flush=True)
"""


class OneProcess:
    """A process of a Python that runs commands one after the other: to begin anew for each takes seconds."""

    def __init__(self, python: Path) -> None:
        environment = {**os.environ, "COLUMNS": "80"}
        self._process = subprocess.Popen(
            [str(python), "-c", ANSWERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def told(self, *arguments: object) -> tuple[int, str, str]:
        """Run ``-m fxdebug ARGUMENTS`` or ``-c CODE``; return the status, and what it printed on both streams."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(one) for one in arguments]) + "\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        return status, out, err

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
