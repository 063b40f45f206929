"""Inputs and results of the innermost modules of a forward: where a path of gradients is cut, which are silent."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from fxdebug.capture.probe import ForwardsOnly, Sites, internals, members, named_tensors, untracked
from fxdebug.features.shared.gradients import open_calls

RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Hardtanh, nn.Threshold)
NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
OUTDATED = 0.05  # of its size, from which a result is not that of the weights: rounding to bfloat16 is 0.004
HIDDEN = -100.0  # what is added to hide a place is far below
MOST_READ = 8  # tables of a forward
FEWEST_KEPT = 8  # places of a mask
SILENT = 0.999  # of the elements are 0
BOUNDS = {nn.Sigmoid: (0.0, 1.0), nn.Tanh: (-1.0, 1.0), nn.Hardsigmoid: (0.0, 1.0)}
AT_BOUND = 0.01  # of the distance between both: as `activations.saturated` has it
BOUNDED = 0.9  # of the elements are there
FEWEST_PLACES = 4
FEWEST_ROWS, MOST_ROWS = 8, 64  # examples of a batch that are compared
MOST_TOLD = 256  # numbers of each


@dataclass(frozen=True)
class LeafCall:
    """A call of a module without modules in it. ``takes`` and ``gives``: does a tensor of it ask for gradients?

    ``zeros`` is the share of zeros that an activation returned, ``is_given_zeros`` whether a layer is given nothing
    else, ``bounded`` the share at a bound of a sigmoid or tanh; ``None`` for other modules. ``rows`` is the first size
    of what it returned, ``given_apart`` and ``made_apart`` how far the rows of both are apart, ``places_given`` and
    ``places_made`` their places.
    """

    path: str
    module: nn.Module
    takes: bool
    gives: bool
    has_inputs: bool
    read: tuple[StorageWeakRef, ...]
    written: tuple[StorageWeakRef, ...]
    zeros: float | None
    is_given_zeros: bool | None
    bounded: float | None = None
    rows: int = 0
    given_apart: float | None = None
    made_apart: float | None = None
    places_given: float | None = None
    places_made: float | None = None


@dataclass(frozen=True)
class SequenceCall:
    """A call of a module that goes over a sequence: the sizes of its input, and the dimension that is the sequence."""

    path: str
    type: str
    sizes: tuple[int, ...]
    dimension: int

    def goes_over(self, rows: int, target: tuple[int, ...]) -> bool | None:
        """Is its sequence the batch of ``rows`` targets? ``None`` where sizes do not tell.

        >>> call = SequenceCall("cells", "LSTM", (32, 20, 8), 0)
        >>> call.goes_over(32, (32,)), call.goes_over(20, (20,)), call.goes_over(32, (32, 20))
        (True, False, None)
        """
        along = self.sizes[self.dimension]
        other = self.sizes[1 - self.dimension] if len(self.sizes) == 3 else 1
        if along == other or (len(target) > 1 and target[1] in (along, other)):
            return None
        return along == rows and (other == 1 or other % rows != 0)


class LeafCalls(ForwardsOnly):
    """An observer of one forward.

    ``last_linear`` is the input of the last linear layer that ran. ``outdated`` are linear layers under autocast that
    return something else than their weights make of their input: casts of earlier weights are in autocast's cache.
    ``ignored`` are the masks of keys that attentions were given.
    """

    def __init__(self, sites: Sites) -> None:
        self.calls: list[LeafCall] = []
        self.last_linear: Tensor | None = None
        self.outdated: list[str] = []
        self.ran: set[str] = set()
        self.sequences: list[SequenceCall] = []
        self.ignored: list[tuple[str, Tensor]] = []  # keys that an attention is told to ignore, as True
        self.detached: Counter[str] = Counter()  # calls given what the last one returned, without gradient
        self.again: Counter[str] = Counter()  # calls of a module that ran before in this forward
        self.keeps_all = True  # are numbers for the backward kept, and not computed again?
        self.first_given: Tensor | None = None  # what the first layer takes
        self.read: list[Tensor] = []  # the ids that tables looked up
        self.last_read: Tensor | None = None  # those of the last table of which rows of examples differ
        self.ahead: list[str] = []  # recurrent layers and attentions that see the places that follow
        self._open = open_calls.OpenCalls(sites)

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward, and note what a module without modules in it took and returned."""
        call, output = self._open.run(module, lambda: run(*args, **kwargs))
        if call is not None:
            self.note(call.path, module, args, kwargs, output)
        return output

    def note(self, path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Note a call; of tensors without memory, or without the operations that this takes, only that it was made."""
        self.ran.add(path)
        self.keeps_all = self.keeps_all and internals.top_saved_tensors_hooks() is None
        with contextlib.suppress(Exception):
            self._note(path, module, args, kwargs, output)

    def _note(self, path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if next(iter(members.children_of(module)), None) is not None and not isinstance(module, nn.MultiheadAttention):
            return
        if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and args and isinstance(args[0], Tensor):
            sizes = tuple(args[0].shape)
            over = 1 if module.batch_first and len(sizes) == 3 else 0
            self.sequences.append(SequenceCall(path, type(module).__name__, sizes, over))
            if _sees_ahead(module, args, kwargs):
                self.ahead.append(path)
        if isinstance(module, nn.MultiheadAttention) and isinstance(mask := kwargs.get("key_padding_mask"), Tensor):
            with untracked():
                self.ignored.append((path, mask.detach() if mask.dtype is torch.bool else mask.detach() == -math.inf))
        if isinstance(module, nn.Embedding) and args and isinstance(args[0], Tensor) and args[0].dim() == 2:
            with untracked():
                self.read = [*self.read, args[0].detach()][-MOST_READ:]
                self.last_read = args[0].detach() if bool((args[0] != args[0][:1]).any()) else self.last_read
        given = [t for _, t in named_tensors((args, kwargs)) if t.is_floating_point()]
        made = [t for _, t in named_tensors(output) if t.is_floating_point()]
        self._note_again(path, given)
        if not self.calls and given:
            self.first_given = given[0].detach()
        zeros = None
        if made and isinstance(module, RECTIFIERS) and made[0].numel():
            with untracked():
                zeros = float((made[0] == 0).float().mean())
        bounds, bounded = BOUNDS.get(type(module)), None
        if made and bounds is not None and made[0].numel() > 1:
            margin = AT_BOUND * (bounds[1] - bounds[0])
            with untracked():
                near = (made[0] < bounds[0] + margin) | (made[0] > bounds[1] - margin)
                bounded = float(near.float().mean())
        is_given_zeros: bool | None = None
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) and given and given[0].requires_grad:
            with untracked():
                is_given_zeros = not bool(given[0].any())
        if isinstance(module, nn.Linear) and given:
            self.last_linear = given[0].detach()
            if made and _is_outdated(module, given[0], made[0]):
                self.outdated.append(path)
        self.calls.append(
            LeafCall(
                path, module, any(t.requires_grad for t in given), any(t.requires_grad for t in made), bool(given),
                tuple([StorageWeakRef(t.untyped_storage()) for t in given]),
                tuple([StorageWeakRef(t.untyped_storage()) for t in made]), zeros,
                is_given_zeros, bounded, len(made[0]) if made and made[0].dim() > 1 else 0, _apart(given), _apart(made),
                _places_apart(given), _places_apart(made),
            )
        )  # fmt: skip

    def _note_again(self, path: str, given: Sequence[Tensor]) -> None:
        """Note whether a module that runs again is given what it returned before, without its gradient."""
        last = next((one for one in reversed(self.calls) if one.path == path), None)
        if last is None or not last.gives:
            return
        self.again[path] += 1
        made = {ref.cdata for ref in last.written if not ref.expired()}
        own = [t for t in given if StorageWeakRef(t.untyped_storage()).cdata in made]
        self.detached[path] += int(bool(own) and not any(t.requires_grad for t in own))


def _sees_ahead(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Does a place see those that follow: in both directions, or by an attention to itself without a mask?"""
    if isinstance(module, nn.RNNBase):
        return bool(module.bidirectional)
    if len(args) < 2 or args[0] is not args[1] or kwargs.get("is_causal"):
        return False
    mask = kwargs.get("attn_mask", args[5] if len(args) > 5 else None)
    if not isinstance(mask, Tensor):
        return mask is None
    with untracked():
        return lets_see_ahead(~mask.detach() if mask.dtype is torch.bool else mask)


def lets_see_ahead(mask: Tensor) -> bool:
    """Does a mask of places (``True`` is seen, or a number that is added) let one see those that follow?

    Places at the beginning that all others see are given (those of an image, a prompt), where the rest is causal.

    >>> mask = torch.ones(4, 4, dtype=torch.bool)
    >>> lets_see_ahead(mask), lets_see_ahead(mask.tril()), lets_see_ahead(-1.0 * mask.triu(1))
    (True, False, True)
    >>> given = torch.tensor([True, True, False, False])
    >>> lets_see_ahead(mask.tril() | given), lets_see_ahead(mask & given)
    (False, True)
    """
    with untracked():
        mask = mask.detach()
        seen = mask if mask.dtype is torch.bool else mask > HIDDEN
        if not bool(seen.triu(1).any()):
            return False
        of_all = seen.reshape(-1, seen.shape[-1]).all(0)
        given = int(of_all.long().cumprod(0).sum())
        rest = seen[..., given:, given:]
        is_causal = bool(rest.diagonal(dim1=-2, dim2=-1).any()) and not bool(rest.triu(1).any())
        return not is_causal


def spread(tensor: Tensor) -> tuple[float, float]:
    """Return how far the first rows of a tensor are from the very first at most, and their largest magnitude."""
    rows = tensor.detach()[:MOST_ROWS].reshape(min(len(tensor), MOST_ROWS), -1)[:, :MOST_TOLD]
    rows = rows if rows.dtype is torch.float64 else rows.float()
    return (float((rows - rows[:1]).abs().max()), float(rows.abs().max())) if rows.numel() else (0.0, 0.0)


def _apart(tensors: list[Tensor]) -> float | None:
    """Return how far the rows of the first tensor are apart, relative to their largest magnitude; of zeros ``None``."""
    if not tensors or tensors[0].dim() < 2 or len(tensors[0]) < FEWEST_ROWS:
        return None
    with untracked():
        distance, largest = spread(tensors[0])
    return distance / largest if largest else None  # a module that returns zeros is told by its gradients


def _places_apart(tensors: list[Tensor]) -> float | None:
    """Return how far the places of examples are apart, relative to the largest magnitude."""
    if not tensors or tensors[0].dim() != 3 or tensors[0].shape[1] < FEWEST_PLACES:
        return None
    with untracked():
        some = tensors[0].detach()[:FEWEST_ROWS, :MOST_ROWS, :MOST_TOLD].float()
        distance, largest = float((some - some[:, :1]).abs().max()), float(some.abs().max())
    return distance / largest if largest else 0.0


def keeps_padding_alone(ignored: Tensor, ids: Tensor) -> bool | None:
    """Does a mask ignore all tokens, and keep one value that none of them has? ``None`` where it hides nothing.

    >>> ids = torch.tensor([[5, 6, 7, 0, 0, 0, 0, 0], [8, 9, 5, 6, 0, 0, 0, 0]])
    >>> keeps_padding_alone(ids != 0, ids), keeps_padding_alone(ids == 0, ids)
    (True, False)
    """
    if ignored.shape != ids.shape or ids.is_floating_point() or not bool(ignored.any()):
        return None
    kept, hidden = ids[~ignored].unique(), ids[ignored].unique()
    is_one = len(kept) == 1 and int((~ignored).sum()) >= FEWEST_KEPT
    return is_one and len(hidden) > 1 and not bool((hidden == kept).any())


def _is_outdated(layer: nn.Linear, x: Tensor, result: Tensor) -> bool:
    """Did a linear layer under autocast use other weights than it has now? Its first row is computed again."""
    device, own = x.device.type, vars(layer).get("forward")
    is_plain = own is None or getattr(own, "__wrapped__", None) is nn.Linear.forward  # ours, around that of the class
    if type(layer) is not nn.Linear or not is_plain or layer.weight.dtype is not torch.float32:
        return False
    if not torch.is_autocast_enabled(device) or not torch.is_autocast_cache_enabled():
        return False
    dtype = torch.get_autocast_dtype(device)
    if result.dtype is not dtype or not x.numel():
        return False
    with untracked(), torch.no_grad(), torch.autocast(device, enabled=False):
        row = x.detach().reshape(-1, x.shape[-1])[:1].to(dtype)
        bias = None if layer.bias is None else layer.bias.to(dtype)
        expected = nn.functional.linear(row, layer.weight.to(dtype), bias).double()
        found = result.detach().reshape(-1, result.shape[-1])[:1].double()
        gap, size = float((found - expected).norm()), float(expected.norm())
    return math.isfinite(gap) and gap > OUTDATED * max(size, float(found.norm()))


def place_of_cut(calls: list[LeafCall], cut: Collection[str], inputs: Collection[int]) -> str:
    """Say where the way from modules without gradients to the loss is cut; empty where nothing shows it.

    ``cut`` are the paths of these modules, ``inputs`` the storages of what the model was given.
    """
    for position, later in enumerate(calls):
        if not later.has_inputs or later.takes:
            continue
        read = {ref.cdata for ref in later.read if not ref.expired()}
        for earlier in reversed(calls[:position]):
            shared = earlier.gives and read & {ref.cdata for ref in earlier.written if not ref.expired()}
            if shared and cut & {call.path for call in calls[:position]}:  # type: ignore[operator]
                return f"between {earlier.path} and {later.path}"
    for position, later in enumerate(calls):
        if not later.has_inputs or later.takes or {ref.cdata for ref in later.read} & set(inputs):
            continue
        before = calls[:position]
        if any(call.gives for call in before) and any(call.path in cut for call in before):
            return f"before {later.path}, which is given a tensor without a gradient"
    for call in calls:
        asks = any(parameter.requires_grad for parameter in call.module.parameters(recurse=False))
        if call.path in cut and asks and not call.gives:
            return (
                f"in {call.path}, which ran with gradients off (no_grad(), or a reentrant checkpoint whose inputs ask "
                "for none)"
            )
    return ""


def viewed_for_moved(before: Tensor, after: Tensor) -> bool:
    """Are numbers left where they are, and sizes exchanged as if they had been moved?

    >>> x = torch.zeros(4, 5, 5, 3)
    >>> viewed_for_moved(x, x.view(4, 3, 5, 5)), viewed_for_moved(x, x.permute(0, 3, 1, 2))
    (True, False)
    """
    is_same = StorageWeakRef(before.untyped_storage()).cdata == StorageWeakRef(after.untyped_storage()).cdata
    is_whole = before.numel() == after.numel() and before.is_contiguous() and after.is_contiguous()
    return is_same and is_whole and sizes_exchanged(tuple(before.shape), tuple(after.shape))


def sizes_exchanged(before: Sequence[int], after: Sequence[int]) -> bool:
    """Does a view keep the examples and another size, and give that one to other numbers, which had to be moved?

    >>> sizes_exchanged((4, 5, 5, 3), (4, 3, 5, 5)), sizes_exchanged((4, 6, 8), (4, 2, 6, 4))
    (True, True)
    >>> sizes_exchanged((4, 2, 5, 3), (4, 5, 6)), sizes_exchanged((4, 6, 8), (4, 6, 2, 4))
    (True, False)
    """
    if len(before) < 3 or len(after) < 3 or before[0] != after[0]:
        return False
    one, other = ({math.prod(sizes[i:]) for i in range(len(sizes))} for sizes in (before, after))
    if one <= other or other <= one:  # sizes are only split, or only put together
        return False
    return any(
        before[1:].count(size) == after[1:].count(size) == 1
        and math.prod(before[before.index(size, 1) + 1 :]) != math.prod(after[after.index(size, 1) + 1 :])
        for size in before[1:]
        if size != 1
    )


def storages_of(content: Any) -> list[int]:
    """Return the storages of tensors in what a model was given."""
    return [StorageWeakRef(t.untyped_storage()).cdata for _, t in named_tensors(content) if type(t) is torch.Tensor]
