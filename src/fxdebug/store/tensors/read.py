"""Read a value's data back from safetensors, held against its digest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import LoadError
from fxdebug.store.tensors.encode import decoded, digest_of

CHECKED = 64 * 1024 * 1024  # bytes of a value at most that are held against its digest when it is read


def read_tensor(folder: Path, value: Value) -> Tensor:
    """The data of a saved value. Raises :class:`LoadError` when it was not saved or the file is damaged.

    Data of up to 64 MiB are held against their digest: that takes as long as to read them.
    """
    if value.saved is None:
        raise LoadError(f"the data of value {value.number} ({value.label}) was not saved: run with values='tensors'")
    name, _, key = value.saved.partition("#")
    with _opened(folder / name) as file:
        parts = {name[len(key) :]: file.get_tensor(name) for name in list(file.keys()) if _is_part(name, key)}
    if not parts:
        raise LoadError(f"{folder / name} holds no {key}: it belongs to another run")
    is_checked = value.digest is not None and list(parts) == [""] and parts[""].nbytes <= CHECKED
    if is_checked and digest_of(value, parts) != value.digest:
        raise LoadError(f"{folder / name} is damaged: {key} is not what was saved")
    return decoded(value, parts)


def _is_part(name: str, key: str) -> bool:
    return name == key or name.startswith(key + ".")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise LoadError(f"{path} is missing: the run was moved without its tensors, or replaced by another")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except LoadError:
        raise
    except Exception as error:
        raise LoadError(f"{path} is damaged: {error}") from error
