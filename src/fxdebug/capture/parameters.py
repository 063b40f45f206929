"""The model's parameters and buffers before a run, and what the run did to them.

A tensor has changed when another object stands in its place or when its version moved. Statistics
of weights are remembered across runs by tensor and version: they are the same until someone writes.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from torch import Tensor, nn

from fxdebug.capture.aside import aside
from fxdebug.capture.describe import looks
from fxdebug.capture.values import Values, version_of
from fxdebug.stats import Unmeasurable, measure
from fxdebug.trace import Parameter
from fxdebug.values import Stats

AFFORDABLE = 4_000_000  # elements measured without being asked: a few milliseconds

_measured: dict[int, tuple[weakref.ref[Tensor], int, Stats | None]] = {}


@dataclass(slots=True)
class _Held:
    names: list[str]
    kind: str
    persistent: bool
    tensor: Tensor
    version: int | None
    before: Stats | None


class Parameters:
    """A snapshot of a model's parameters and buffers: metadata always, statistics where affordable.

    ``measuring``: ``True`` for statistics of everything, ``False`` for none, ``None`` to take them
    when the model is small, and always of what changed.
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
            total = sum(held.tensor.numel() for held in self._held.values() if not _is_uninitialised(held.tensor))
            self._measuring = total <= AFFORDABLE if measuring is None else measuring
            if self._measuring:
                for held in self._held.values():
                    held.before = _statistics(held.tensor)

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
        changed = tensor is not held.tensor or version_of(tensor) != held.version
        stats = held.before
        if changed and self._measuring is not False:
            stats = _statistics(tensor)
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


def _statistics(tensor: Tensor) -> Stats | None:
    """Statistics of a weight, remembered while it is alive and unwritten; ``None`` if there are none."""
    if _is_uninitialised(tensor):
        return None
    version = version_of(tensor)
    entry = _measured.get(id(tensor))
    if version is not None and entry is not None and entry[0]() is tensor and entry[1] == version:
        return entry[2]
    body = looks(tensor).body
    try:
        stats = None if body is None else measure(body)
    except (Unmeasurable, RuntimeError, NotImplementedError):
        stats = None  # a weight of an exotic kind: its metadata still says what it is
    if version is None:
        return stats
    key = id(tensor)
    _measured[key] = (weakref.ref(tensor, lambda _: _measured.pop(key, None)), version, stats)
    return stats
