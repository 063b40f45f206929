"""The units of what a layer returns: the dimension that they lie in, and the module with weights that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NORMS = ("batchnorm", "instancenorm", "groupnorm")  # of channels, which are the second dimension of a batch


@dataclass(frozen=True, slots=True)
class Origin:
    """The units of a tensor: the dimension ``axis``, and ``maker``, the path of the module whose weights make them.

    ``maker`` is empty where no module with weights does.
    """

    maker: str
    axis: int


def origin_of(
    type: str, path: str, weights: Sequence[int], shape: Sequence[int], given: Sequence[int], before: Origin | None
) -> Origin:
    """Return the units of the result of a call of a class ``type``.

    ``weights`` are the numbers of dimensions of the parameters of a module without children, ``shape`` and ``given``
    the sizes of its result and of its first argument; ``before`` are the units of that argument. A module or function
    without weights passes on the units that it is given, where the result has the same dimensions.

    >>> conv = origin_of("Conv1d", "conv", [3, 1], (4, 16, 30), (4, 3, 32), None)
    >>> conv, origin_of("relu", "", [], (4, 16, 30), (4, 16, 30), conv)
    (Origin(maker='conv', axis=1), Origin(maker='conv', axis=1))
    >>> origin_of("Linear", "up", [2, 1], (4, 7, 7, 64), (4, 7, 7, 16), None)
    Origin(maker='up', axis=-1)
    """
    if weights:
        is_kernel = max(weights) > 3 or (max(weights) == 3 and "conv" in type.lower())
        if is_kernel or any(name in type.lower() for name in _NORMS):
            return Origin(path, 0 if is_kernel and len(shape) < max(weights) else 1)  # 0: an image without a batch
        return Origin(path, -1)
    if before is not None and len(shape) == len(given) and (len(shape) < 2 or shape[before.axis] == given[before.axis]):
        return before
    return Origin("", 1 if len(shape) == 4 else -1)
