"""Tensors as text, letter for letter as transformers' debugger prints them.

That debugger prints with ``sci_mode=True`` and 120 columns: it sets torch's global options and never restores them.
Here common tensors are printed by our own code, about ten times as fast and without touching the options. Other tensors
are printed by torch, under options that only this thread sees. So is every tensor of a kind that the installed torch
prints in another way than ours does: torch 2.8 chooses the width of a column of floats as if ``sci_mode`` were unset.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fxdebug.data.values import Stats
from fxdebug.stats.measure import fine_std, sums_are_wide
from fxdebug.store.transformers.print_options import current_options, thread_print_options

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool))
_NO_TORCH_FUNCTION = torch._C._disabled_torch_function_impl
_STD_ERROR = 2.0**-19  # the most a std can be off: 128 additions to each running sum, all rounded one way, and a root
_DTYPES_WITH_STATISTICS = frozenset((torch.float16, torch.float32, torch.bfloat16))  # as in transformers' debugger


class Printer:
    """The text of values and objects in one recording.

    ``linewidth`` is 120 where tensors are printed (``use_repr=True``); ``None`` keeps the user's own. As in
    transformers' debugger, the options change with the first tensor: objects before it are printed under the user's.
    """

    def __init__(self, linewidth: int | None) -> None:
        self._linewidth = linewidth
        self._changed: dict[str, Any] = {}

    def lines(self, tensor: Tensor) -> list[str]:
        """Return ``str(tensor)`` line by line; if the class's ``__repr__`` raises, the text of the plain tensor."""
        self.begin()
        try:
            return self.text(tensor).splitlines()
        except Exception:
            if type(tensor) in _PLAIN:
                raise
            return self.text(tensor.as_subclass(Tensor)).splitlines()

    def text(self, tensor: Tensor) -> str:
        """Return ``str(tensor)`` under the options of transformers' debugger."""
        options = {**current_options(), **self._changed}
        if _is_common(tensor, options):
            return _common_text(tensor, options)
        with thread_print_options(self._changed):
            return str(tensor)

    def statistics(self, tensor: Tensor, stats: Stats | None = None) -> tuple[str, str, str, str] | None:
        """Return the ``repr`` of mean, std, min and max in the arithmetic of transformers' debugger.

        ``None`` for dtypes without printed statistics. ``stats``: our statistics of the tensor, which save most of the
        work.
        """
        self.begin()
        if tensor.dtype not in _DTYPES_WITH_STATISTICS:
            return None
        kind = type(tensor)
        if tensor.numel() == 0:  # transformers' debugger raises here: the minimum of no elements
            empty = self._statistic(tensor.new_full((), math.nan), kind)
            return empty, empty, empty, empty
        if stats is not None and tensor.dtype is torch.float32 and stats.finite == tensor.numel() > 1:
            options = {**current_options(), **self._changed}
            if _is_common(tensor, options) and tensor.device.type == "cpu":
                return self._from_ours(tensor.detach(), stats, options)
        std = tensor.std() if tensor.numel() > 1 else tensor.new_full((), math.nan)  # torch would warn
        mean, low, high = tensor.mean(), tensor.min(), tensor.max()
        return (
            self._statistic(mean, kind),
            self._statistic(std, kind),
            self._statistic(low, kind),
            self._statistic(high, kind),
        )

    def _from_ours(self, tensor: Tensor, stats: Stats, options: dict[str, Any]) -> tuple[str, str, str, str]:
        """Return the same text for a float32 tensor without NaN or infinities, faster.

        Minimum and maximum are exact in any arithmetic. torch rounds its std once, from float64, but takes several
        times as long; it is asked where the last printed digit could depend on the rounding of ours. The mean is always
        torch's: near zero it is nothing but rounding.
        """
        form = f".{options['precision']}e"
        std = stats.std if _has_exact_std(stats) else fine_std(tensor, stats)
        if std is None or format(std * (1 - _STD_ERROR), form) != format(std * (1 + _STD_ERROR), form):
            std = float(tensor.std())
        if stats.min and stats.max:
            low, high = float(stats.min), float(stats.max)
        else:  # whether 0.0 or -0.0 is the minimum depends on the order of the elements
            low, high = float(tensor.min()), float(tensor.max())
        suffixes = _suffixes(tensor, requires_grad=False)
        numbers = [float(tensor.mean()), std, low, high]
        texts = [format(n, form) if n and math.isfinite(n) else _special_text(n) for n in numbers]
        mean, *others = [_with_suffixes("tensor(" + text, suffixes, options["linewidth"]) for text in texts]
        return mean, others[0], others[1], others[2]

    def _statistic(self, number: Tensor, kind: type[Tensor]) -> str:
        """Return the text of a statistic of a tensor of class ``kind``.

        The class's own ``__torch_function__`` would give the statistic that class. It is disabled here, so that a class
        of the user's does not notice what we compute.
        """
        if kind in _PLAIN or kind.__torch_function__ is _NO_TORCH_FUNCTION or type(number) is kind:
            return self.text(number)
        try:
            return self.text(number.as_subclass(kind))
        except Exception:  # the class's __repr__ needs attributes that only its __torch_function__ sets
            return self.text(number)

    def repr_of(self, obj: Any) -> str:
        """Return ``repr(obj)`` under the options in force now."""
        if not self._changed:
            return repr(obj)
        with thread_print_options(self._changed):
            return repr(obj)

    def begin(self) -> None:
        """Put the options of transformers' debugger in force: the first tensor was recorded."""
        if not self._changed:
            self._changed = {"sci_mode": True}
            if self._linewidth is not None:
                self._changed["linewidth"] = self._linewidth


# Our own printing of the common tensors ----------------------------------------------------------


def _is_common(tensor: Tensor, options: dict[str, Any]) -> bool:
    return (
        type(tensor) in _PLAIN
        and (tensor.dtype in _FLOATS or tensor.dtype in _INTEGERS)
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and options["edgeitems"] > 0
        and options["sci_mode"] is True
        and not tensor.is_meta
        and not tensor.is_nested
        and tensor.grad_fn is None
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and torch.autograd.forward_ad._current_level < 0
        and tensor.device.type in ("cpu", "cuda")
        and _prints_as_torch(tensor.dtype in _FLOATS)
    )


@functools.lru_cache(maxsize=2)
def _prints_as_torch(floats: bool) -> bool:
    """Does our code print floats, or integers, as the installed torch does? Tried once per process, in about 2 ms."""
    options = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 120, "sci_mode": True}
    try:
        with torch.inference_mode(False), thread_print_options(options):
            return all(_common_text(tensor, options) == str(tensor) for tensor in _tried_tensors(floats))
    except Exception:  # a torch whose printing cannot be tried prints by itself
        return False


def _tried_tensors(floats: bool) -> Iterator[Tensor]:
    """Yield tensors that show every known difference in printing between versions of torch."""
    if not floats:
        yield torch.tensor([[-7, 100], [0, 5]], dtype=torch.int8, device="cpu")
        yield torch.tensor([True, False], device="cpu")
        yield torch.tensor(range(1001), device="cpu")  # abridged
        return
    special = [math.nan, 1.0, -math.inf, 0.0]
    for numbers in (0.5, 12345678.5, [0.5, -0.25], [1.0, -2.0], [1e-7, 3.0], special, [0.0, -0.0]):
        yield torch.tensor(numbers, dtype=torch.float32, device="cpu")
    yield torch.tensor([0.5] * 1001, dtype=torch.bfloat16, device="cpu")  # abridged, with a suffix
    yield torch.tensor([[0.5, -0.5] * 13], dtype=torch.float64, device="cpu")  # several lines, with a suffix


def _common_text(tensor: Tensor, options: dict[str, Any]) -> str:
    prefix = "Parameter containing:\n" if isinstance(tensor, torch.nn.Parameter) else ""
    tensor, requires_grad = tensor.detach(), tensor.requires_grad
    edge = options["edgeitems"] if tensor.numel() > options["threshold"] else None
    texts, width = _element_texts(tensor if edge is None else _edge_elements(tensor, edge), options["precision"])
    if tensor.dim() == 0:
        body = texts[0]
    else:
        body = _brackets(texts, width, tuple(tensor.shape), edge, options["linewidth"])
    return prefix + _with_suffixes("tensor(" + body, _suffixes(tensor, requires_grad), options["linewidth"])


def _edge_elements(tensor: Tensor, edge: int) -> Tensor:
    """Return the elements that an abridged print shows: both ends of every dimension that is long enough."""
    return tensor.take(_edge_positions(tuple(tensor.shape), edge, tensor.device))


@functools.lru_cache(maxsize=256)
def _edge_positions(shape: tuple[int, ...], edge: int, device: torch.device) -> Tensor:
    """Return the positions of those elements in the flat tensor."""
    places, step = [0], 1
    for size in reversed(shape):
        shown = range(size) if size <= 2 * edge else [*range(edge), *range(size - edge, size)]
        places = [step * position + place for position in shown for place in places]
        step *= size
    with torch.inference_mode(False):  # cached, and used outside inference mode too
        return torch.tensor(places, device=device)


def _element_texts(tensor: Tensor, precision: int) -> tuple[list[str], int]:
    """Return each element as text, and the width of a column."""
    numbers = tensor.reshape(-1).tolist()
    if tensor.dtype not in _FLOATS:
        texts = [str(number) for number in numbers]
        width = max(map(len, texts))
        return [text.rjust(width) for text in texts], width
    texts = ((f"%.{precision}e\n" * len(numbers)) % tuple(numbers)).split("\n")[:-1]
    lengths = list(map(len, texts))
    if not all(numbers) or not math.isfinite(sum(numbers)):
        lengths = [len(text) for text, number in zip(texts, numbers) if number and math.isfinite(number)]
    if not lengths:  # only zeros, NaN and infinities: torch prints whole numbers in columns of width one
        return [_special_text(number) for number in numbers], 1
    width = max(lengths)
    return [text.rjust(width) for text in texts], width


def _has_exact_std(stats: Stats) -> bool:
    """Were the sums of a float32 tensor taken in float64, so that its std is the one torch gets in float32?

    Not if the mean is larger than the std (digits cancel), if squares leave float32, or if an extreme is zero (torch
    took the sums then).
    """
    std, mean = stats.std or 0.0, stats.mean
    if not (isinstance(mean, float) and abs(mean) < std and 1e-15 < std < 1e15 and stats.min and stats.max):
        return False
    return sums_are_wide()


def _special_text(number: float) -> str:
    return f"{number:.0f}." if math.isfinite(number) else str(number)


def _brackets(texts: list[str], width: int, shape: tuple[int, ...], edge: int | None, linewidth: int) -> str:
    """Return the texts in brackets, from the innermost dimension outwards, with dots for elements left out."""
    for depth in reversed(range(len(shape))):
        cut = edge is not None and shape[depth] > 2 * edge
        count = 2 * edge if edge is not None and cut else shape[depth]
        half, indent = count // 2, len("tensor(") + depth
        innermost = depth == len(shape) - 1
        dots = " ..." if innermost else "..."
        between = ", " if innermost else "," + "\n" * (len(shape) - depth - 1) + " " * (indent + 1)
        most = max(1, (linewidth - indent) // (width + 2)) if innermost else count + 1
        groups = []
        for start in range(0, len(texts), count):
            row = texts[start : start + count]
            if cut:
                row.insert(half, dots)
            if len(row) > most:
                row = [", ".join(row[at : at + most]) for at in range(0, len(row), most)]
                groups.append("[" + (",\n" + " " * (indent + 1)).join(row) + "]")
            else:
                groups.append("[" + between.join(row) + "]")
        texts = groups
    return texts[0]


def _suffixes(tensor: Tensor, requires_grad: bool) -> list[str]:
    suffixes = []
    device = tensor.device
    elsewhere = device.type != torch._C._get_default_device()
    if elsewhere or (device.type == "cuda" and torch.cuda.current_device() != device.index):
        suffixes.append(f"device='{device}'")
    if tensor.dtype not in (torch.get_default_dtype(), torch.int64, torch.bool):
        suffixes.append(f"dtype={tensor.dtype}")
    if requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def _with_suffixes(text: str, suffixes: list[str], linewidth: int) -> str:
    pieces = [text]
    length = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if length + len(suffix) + 2 > linewidth:
            pieces.append(",\n" + " " * len("tensor(") + suffix)
            length = len("tensor(") + len(suffix)
        else:
            pieces.append(", " + suffix)
            length += len(suffix) + 2
    return "".join(pieces) + ")"
