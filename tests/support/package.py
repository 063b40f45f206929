"""A package that is installed in a virtual environment of its own, on top of the one that runs the tests."""

from __future__ import annotations

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
