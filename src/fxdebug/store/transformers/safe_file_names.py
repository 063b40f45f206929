"""Safe file names for module paths: forbidden characters, length, upper and lower case, one name per value.

The names are those of transformers' debugger where the file system allows them.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

MAX_NAME_BYTES = 255  # bytes of a file name on ext4, APFS and NTFS
_FORBIDDEN = re.compile(r"[/\0]" if os.name != "nt" else r'[<>:"/\\|?*\0-\x1f]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def safe_name(stem: str, suffix: str = "") -> str:
    """Return a file name as near to ``stem + suffix`` as the file system allows.

    Slashes and NUL become ``_`` (on Windows more characters do); a name over 255 bytes is cut and ends in a digest of
    the whole.

    >>> safe_name("Model.a/b_inputs", ".safetensors")
    'Model.a_b_inputs.safetensors'
    """
    name = _FORBIDDEN.sub("_", stem).encode("utf-8", "replace").decode()
    if os.name == "nt" and _RESERVED.match(name):
        name = "_" + name
    if name in ("", ".", ".."):
        name += "_"
    room = MAX_NAME_BYTES - len(suffix.encode())
    if len(name.encode()) > room:
        digest = hashlib.blake2b(stem.encode("utf-8", "replace"), digest_size=6).hexdigest()
        name = name.encode()[: room - 13].decode("utf-8", "ignore") + "-" + digest
    return name + suffix


class UniqueNames:
    """The names taken so far in one folder, each once. ``ignore_case``: ``a`` and ``A`` are one name."""

    def __init__(self, ignore_case: bool = False) -> None:
        self._taken: set[str] = set()
        self._ignore_case = ignore_case

    def take(self, stem: str, suffix: str) -> str:
        """Return ``stem + suffix``, made safe, with a number appended if the name is taken.

        >>> names = UniqueNames()
        >>> names.take("a", ".txt"), names.take("a", ".txt")
        ('a.txt', 'a-2.txt')
        """
        number = 1
        while True:
            name = safe_name(stem if number == 1 else f"{stem}-{number}", suffix)
            key = name.casefold() if self._ignore_case else name
            if key not in self._taken:
                self._taken.add(key)
                return name
            number += 1


def ignores_case(folder: Path) -> bool:
    """Are ``a`` and ``A`` one name in the file system of this folder?"""
    for file in folder.iterdir():
        other = file.with_name(file.name.swapcase())
        if other.name != file.name:
            if not other.exists():
                return False
            break
    probe = folder / "case-probe-a"
    try:
        probe.touch()
        return (folder / "case-probe-A").exists()
    finally:
        probe.unlink(missing_ok=True)
