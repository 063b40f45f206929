"""Read a value's data back from safetensors, and compare it with its digest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import LoadError, first_line
from fxdebug.files.read_file import require_inside, require_readable
from fxdebug.files.system_errors import system_errors_told, system_reason
from fxdebug.store.tensors.encode import decode_tensor, digest_of

_LESS = "drop tensors that were read before, and read fewer at once"
CHECKED_BYTES = 64 * 1024 * 1024  # larger data is read without comparing its digest, which takes as long as reading


def read_tensor(folder: Path, value: Value) -> Tensor:
    """Return the data of a saved value. Raises :class:`LoadError` when it was not saved or the file is damaged.

    Data of up to 64 MiB is compared with its digest. A lack of memory is told as that.
    """
    if value.saved is None:
        raise LoadError(f"the data of value {value.number} ({value.label}) was not saved: run with values='tensors'")
    name, _, key = value.saved.partition("#")
    with system_errors_told(folder / name, _LESS):
        return _read(folder, name, key, value)


def _read(folder: Path, name: str, key: str, value: Value) -> Tensor:
    with _opened(folder / name) as file:
        parts = {name[len(key) :]: file.get_tensor(name) for name in list(file.keys()) if _is_part(name, key)}
    if not parts:
        raise LoadError(f"{folder / name} holds no {key}: it belongs to another run")
    is_checked = value.digest is not None and list(parts) == [""] and parts[""].nbytes <= CHECKED_BYTES
    if is_checked and digest_of(value, parts) != value.digest:
        raise LoadError(f"{folder / name} is damaged: {key} is not what was saved")
    try:
        return decode_tensor(value, parts)
    except Exception as error:
        if system_reason(error) is not None:
            raise
        raise LoadError(f"{folder / name} is damaged: {key} does not fit its record: {first_line(error)}") from error


def _is_part(name: str, key: str) -> bool:
    return name == key or name.startswith(key + ".")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists() and not path.is_symlink():
        raise LoadError(f"{path} is missing: the run was moved without its tensors, or replaced by another")
    require_inside(path, path.parent)
    require_readable(path)
    try:
        with system_errors_told(path, _LESS), safe_open(path, framework="pt") as file:
            yield file
    except LoadError:
        raise
    except Exception as error:
        raise LoadError(f"{path} is damaged: {error}") from error
