"""Build wheels as setuptools does, also editable ones, with the file by which ``FXDEBUG_WATCH=DIR`` watches a script.

Python runs the lines of a ``.pth`` file in ``site-packages`` when it starts. setuptools has no place for one: it is
added to the wheel that was built.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401 the hooks that pip asks for
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

LINE = Path(__file__).with_name("fxdebug_watch.pth")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel; return its name."""
    return with_line(wheel_directory, build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build a wheel that leads to this folder; return its name."""
    return with_line(wheel_directory, build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def with_line(folder: str, name: str) -> str:
    """Add the file to a wheel, and to the list of its files; return the wheel's name."""
    built, made = Path(folder, name), Path(folder, f"{name}.part")
    content = LINE.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    listed = f"{LINE.name},sha256={digest},{len(content)}\n".encode()
    with ZipFile(built) as old, ZipFile(made, "w", ZIP_DEFLATED) as new:
        new.writestr(LINE.name, content)
        for entry in old.infolist():
            is_list = entry.filename.endswith(".dist-info/RECORD")
            new.writestr(entry, (listed if is_list else b"") + old.read(entry))
    made.replace(built)
    return name
