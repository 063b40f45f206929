"""Gradients of one step: of the results of calls, of parameters, and the first that is not finite. Plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fxdebug.brief import brief
from fxdebug.data.values import Stats

Reach: TypeAlias = Literal["trained", "frozen", "not called", "not reached"]


@brief
@dataclass(frozen=True, slots=True)
class TensorGradient:
    """The numbers of one gradient.

    ``norm`` is its 2-norm. ``tiny`` counts elements that are not 0 but smaller than the smallest normal number of
    the dtype: they have lost digits.
    """

    norm: float
    stats: Stats
    tiny: int
    dtype: str

    @property
    def rms(self) -> float:
        """The root of the mean square of the elements: a norm that does not grow with their number."""
        return self.norm / self.stats.count**0.5 if self.stats.count else 0.0


def norm_of(stats: Stats) -> float:
    """Return the 2-norm of a tensor from its statistics: the root of (n − 1)·std² + n·mean².

    >>> norm_of(Stats(2, 3.5, 0.5**0.5, 3.0, 4.0, 4.0))
    5.0
    """
    if stats.nan:
        return math.nan
    if stats.finite < stats.count:
        return math.inf
    if stats.mean is None or stats.std is None:
        return 0.0
    return math.hypot(stats.std * math.sqrt(stats.count - 1), abs(stats.mean) * math.sqrt(stats.count))


@brief
@dataclass(frozen=True, slots=True)
class ResultGradient:
    """The gradient of one tensor that a call returned; ``None`` where the backward did not reach it.

    ``parent`` is the position of the call that this one was made in, ``position`` its own; ``place`` says where in
    the result the tensor is (``[0]``, ``.logits``). ``shape`` is the tensor's. ``silent`` tells whether all its
    elements are 0.
    """

    position: int
    path: str
    number: int
    type: str
    parent: int | None
    place: str
    shape: tuple[int, ...]
    gradient: TensorGradient | None
    silent: bool = False


@brief
@dataclass(frozen=True, slots=True)
class ParameterGradient:
    """The gradient of one parameter.

    ``reach`` is ``trained`` where it has a gradient, ``frozen`` where it asks for none, ``not called`` where its
    module did not run, ``not reached`` where it ran and no gradient arrived. ``weight_norm`` is the 2-norm of the
    parameter; ``update_norm`` that of the change an optimizer makes in one step, ``None`` without one.
    ``optimised`` tells whether an optimizer that is known has the parameter, ``None`` where none is known. ``rate`` is
    the learning rate that this one gives it, ``None`` where it has none.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: str
    reach: Reach
    weight_norm: float
    gradient: TensorGradient | None
    update_norm: float | None = None
    optimised: bool | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Something in a model that gets gradients but is none of its parameters.

    ``path`` is where the model holds it (``hidden[1]``), or the class in brackets where nothing does (``<Linear>``).
    ``type`` is the class of the module, empty for a plain tensor. ``new`` tells whether the forward made it.
    """

    path: str
    type: str
    elements: int
    new: bool = False


@dataclass(frozen=True, slots=True)
class LossInput:
    """An operand of a loss that this is not made for.

    ``kind``: ``probabilities`` where ``op`` takes logits, ``no logarithms`` where it takes logarithms of probabilities,
    both made by ``given``; ``one class`` where it normalises over a dimension of size 1; ``broadcast`` where each
    element of a batch meets those of the whole batch. ``shape`` is the operand's, ``result`` that of what ``op`` made.
    """

    kind: Literal["probabilities", "no logarithms", "one class", "broadcast"]
    op: str
    given: str
    shape: tuple[int, ...]
    result: tuple[int, ...]


@brief
@dataclass(frozen=True, slots=True)
class BadBackward:
    """The first operation of a backward whose gradients in are finite and whose gradients out are not.

    ``op`` is the operation of the forward and ``source`` the user's line that asked for it; ``node`` is the name of
    autograd's node. ``nan`` and ``inf`` count the elements that are not finite. ``held`` counts the NaN, ``held_inf``
    the infinities that the forward kept for this backward. ``of_zero`` tells whether the gradients are 0 wherever those
    made of them are not finite: what follows leaves these elements out, or is flat there.
    """

    path: str
    number: int
    type: str
    op: str
    node: str
    source: str | None
    nan: int
    inf: int
    held: int = 0
    held_inf: int = 0
    of_zero: bool = False


@brief
@dataclass(frozen=True, slots=True)
class GradientStop:
    """The operation of the forward at which the gradients of parameters stop, on their way to the loss.

    ``path`` is the module that it is in, ``source`` the user's line. ``off`` tells whether gradients were off there
    (``no_grad``). ``parameters`` are those that get no gradient by it, by name.
    """

    path: str
    number: int
    op: str
    source: str | None
    off: bool
    parameters: tuple[str, ...]

    @property
    def place(self) -> str:
        """The operation and its module in words, without the line."""
        where = f" in {self.path}" if self.path else ""
        return f"at {self.op}{where}{' with gradients off (no_grad)' if self.off else ''}"

    @property
    def text(self) -> str:
        """The place in words, with the line.

        >>> GradientStop("encoder", 0, "detach", "net.py:7", False, ("w",)).text
        'at detach in encoder (net.py:7)'
        """
        return f"{self.place} ({self.source})" if self.source else self.place


@brief
@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result of an operation at which gradients arrive, none of them 0, that sum to exactly 0.

    ``path`` is the module that the operation ``op`` is in; ``senders`` are the operations that use its result and send
    these gradients, ``source`` is the user's line of the last of them. ``parameters`` are those that have a gradient of
    0 and that the operation depends on, by name.
    """

    path: str
    number: int
    op: str
    source: str | None
    senders: tuple[str, ...]
    parameters: tuple[str, ...]


@brief
@dataclass(frozen=True, slots=True)
class Recomputed:
    """A module that the backward ran again and that did otherwise; ``within`` is the outermost one that it ran."""

    path: str
    type: str
    within: str


@dataclass(frozen=True, slots=True)
class GradientRecord:
    """Gradients of one step: the loss, the results in forward order, the parameters in the order of the model.

    ``loss`` is ``None`` where the step does not tell. ``unregistered`` learns and is no parameter of the model.
    ``foreign`` tells whether the optimizer has none of the model's parameters. ``checkpointed`` are the paths of
    modules that ran in a reentrant checkpoint. ``stops`` are where gradients of parameters stop, ``flat`` operations
    with the derivative 0 behind parameters whose gradient is 0. ``loss_inputs`` are operands of the loss that it is not
    made for. ``recomputed`` are modules that the backward ran again with other random numbers, ``moved_again`` batch
    norms whose running statistics it moved once more. ``cancelled`` are results whose gradients cancel, last first.
    """

    loss: float | None
    results: tuple[ResultGradient, ...]
    parameters: tuple[ParameterGradient, ...]
    bad: BadBackward | None = None
    optimizer: str | None = None
    notes: tuple[str, ...] = ()
    unregistered: tuple[Unregistered, ...] = ()
    foreign: bool = False
    checkpointed: tuple[str, ...] = ()
    loss_inputs: tuple[LossInput, ...] = ()
    stops: tuple[GradientStop, ...] = ()
    flat: tuple[GradientStop, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    moved_again: tuple[Recomputed, ...] = ()
    cancelled: tuple[Cancelled, ...] = ()
