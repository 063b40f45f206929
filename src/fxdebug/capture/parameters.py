"""The model's parameters and buffers before a run, and what the run did to them.

A tensor has changed when another object stands in its place, when its version moved or when its
data is not what it was: writes through ``.data`` and batch norm's running statistics move no version.
Statistics of weights are remembered across runs by tensor and data.
"""

from __future__ import annotations

import weakref
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fxdebug.capture.aside import aside
from fxdebug.capture.describe import looks
from fxdebug.capture.values import Values, version_of
from fxdebug.stats import Unmeasurable, measure
from fxdebug.trace import Parameter
from fxdebug.values import Stats

AFFORDABLE = 4_000_000  # elements measured without being asked: a few milliseconds

Mark = int | tuple[int, str]
_measured: dict[int, tuple[weakref.ref[Tensor], Mark, Stats | None]] = {}


@dataclass(slots=True)
class _Held:
    names: list[str]
    kind: str
    persistent: bool
    tensor: Tensor
    version: int | None
    before: Stats | None
    mark: Mark | None = None


class Parameters:
    """A snapshot of a model's parameters and buffers: metadata always, statistics where affordable.

    ``measuring``: ``True`` for statistics of everything, ``False`` for none, ``None`` to take them
    when the model is small, and always of what changed. Whether data changed is looked at where
    parameters, or buffers, are few enough; of the others versions tell.
    """

    def __init__(self, model: nn.Module, measuring: bool | None = None) -> None:
        self._model = model
        self._held: dict[int, _Held] = {}
        with aside():
            for kind, name, tensor, persistent in _named(model):
                held = self._held.get(id(tensor))
                if held is None:
                    version = version_of(tensor)
                    held = self._held[id(tensor)] = _Held([], kind, persistent, tensor, version, None)
                held.names.append(name)
            self._measuring = measuring
            few, few_buffers = (self._total(kind) <= AFFORDABLE for kind in (None, "buffer"))
            for held in self._held.values():
                if few or (few_buffers and held.kind == "buffer"):
                    held.mark = _mark(held.tensor)
                if few if measuring is None else measuring:
                    held.before = _statistics(held.tensor, held.mark)

    def _total(self, kind: str | None = None) -> int:
        found = [held.tensor for held in self._held.values() if kind in (None, held.kind)]
        return sum(tensor.numel() for tensor in found if not _is_uninitialised(tensor))

    def names(self) -> dict[int, str]:
        """First names by ``id`` of the tensor; the tensors stay alive as long as this object."""
        return {key: held.names[0] for key, held in self._held.items()}

    def after(self, values: Values) -> tuple[Parameter, ...]:
        """What there was and what became of it; parameters made during the run come last."""
        with aside():
            now = {name: (kind, tensor, persistent) for kind, name, tensor, persistent in _named(self._model)}
            found = []
            for held in self._held.values():
                _, current, _ = now.get(held.names[0], (None, held.tensor, None))
                found.append(self._record(held, current, values))
            known = {name for held in self._held.values() for name in held.names}
            for name, (kind, tensor, persistent) in now.items():
                if name not in known:
                    found.append(self._record(_Held([name], kind, persistent, tensor, -1, None), tensor, values))
        return tuple(found)

    def _record(self, held: _Held, tensor: Tensor, values: Values) -> Parameter:
        mark = None if held.mark is None else _mark(tensor)
        changed = tensor is not held.tensor or version_of(tensor) != held.version or mark != held.mark
        stats = held.before
        if changed and self._measuring is not False:
            stats = _statistics(tensor, mark)
        if _is_uninitialised(tensor):
            device = str(tensor.device)
            return Parameter(tuple(held.names), held.kind, (), str(tensor.dtype)[6:], device, tensor.requires_grad)
        seen = looks(tensor)
        return Parameter(
            names=tuple(held.names),
            kind=held.kind,
            shape=seen.shape,
            dtype=seen.dtype,
            device=seen.device,
            requires_grad=seen.requires_grad,
            storage=None if seen.body is None else values.storage(seen.body),
            persistent=held.persistent,
            changed=changed,
            before=held.before,
            stats=stats,
            sharding=seen.sharding,
        )


def _named(model: nn.Module) -> list[tuple[str, str, Tensor, bool]]:
    """(kind, name, tensor, persistent) of all parameters and buffers, under every name."""
    found = []
    for path, module in model.named_modules(remove_duplicate=True):
        prefix = path + "." if path else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found.append(("parameter", prefix + name, parameter, True))
        for name, buffer in module._buffers.items():
            if isinstance(buffer, Tensor):
                found.append(("buffer", prefix + name, buffer, name not in module._non_persistent_buffers_set))
    return found


def _is_uninitialised(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def _mark(tensor: Tensor) -> Mark | None:
    """Something that differs when the data does; ``None`` where it cannot be had."""
    if _is_uninitialised(tensor):
        return None
    try:
        body = looks(tensor).body
        if body is None or body.layout is not torch.strided or body.is_meta:
            return None
        if body.device.type == "cpu":
            return zlib.crc32(body.detach().contiguous().view(-1).view(torch.uint8).numpy())
        return int(torch.hash_tensor(body)), str(float(body.sum(dtype=torch.float64)))  # NaN is equal to NaN
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # quantised, nested, …: the version must do


def _statistics(tensor: Tensor, mark: Mark | None = None) -> Stats | None:
    """Statistics of a weight, remembered while it is alive and its data as marked; ``None`` if there are none."""
    if _is_uninitialised(tensor):
        return None
    entry = _measured.get(id(tensor))
    if mark is not None and entry is not None and entry[0]() is tensor and entry[1] == mark:
        return entry[2]
    body = looks(tensor).body
    try:
        stats = None if body is None else measure(body)
    except (Unmeasurable, RuntimeError, NotImplementedError):
        stats = None  # a weight of an exotic kind: its metadata still says what it is
    if mark is not None:
        key = id(tensor)
        _measured[key] = (weakref.ref(tensor, lambda _: _measured.pop(key, None)), mark, stats)
    return stats
