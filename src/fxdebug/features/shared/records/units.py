"""Numbers of each unit of an activation, over batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fxdebug.brief import brief

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.float64]


@brief
@dataclass(frozen=True, eq=False)
class Units:
    """Numbers of each unit over ``tokens`` elements: of a linear layer units are the last dimension, of images
    the second.

    ``samples`` counts what can be taken as independent: tokens, or whole images. ``large`` is the share of elements of
    at least 6. ``zero`` tells whether a unit was exactly 0 throughout. ``below`` is how many standard deviations the
    mean of a unit's input lies below 0; ``None`` where the input is not known.
    """

    tokens: int
    samples: int
    mean_abs: Numbers
    rms: Numbers
    absmax: Numbers
    range: Numbers
    large: Numbers
    zero: npt.NDArray[np.bool_]
    below: Numbers | None
    saturated: float
