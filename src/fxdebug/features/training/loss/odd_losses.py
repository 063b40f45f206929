"""Signs of mistakes that a loss's graph shows by itself: where it is normalised, what it leaves out, what learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import CANCELS
from fxdebug.features.training.loss.loss_graph import (
    NARROW,
    PASSED,
    SCALED,
    Edge,
    behind_views,
    bounds_of,
    elements_of,
    ends_of,
    name_of,
    origin_of,
    read_function,
    scalar_of,
    signed,
    way_behind,
)
from fxdebug.features.training.loss.loss_parts import Part, code_in, known_terms, parts_of
from fxdebug.features.training.loss.loss_terms import Term, first_of, inputs_of, reached_by, terms_of

MOST_TERMS = 8
OUTWEIGHED, STAYS = 0.01, 0.93  # of the largest term, and of what a term was at first
Shown = dict[str, tuple[float, ...]]
MOST_LOSS, MOST_MODEL = 400, 3000  # nodes that are walked
FEWEST = 8
RARE, LIGHT = 0.3, 0.5  # of the targets, and the weight of what is rare
SHORT_OF = 0.1  # of the examples, whose outputs are too short for their labels
TOO_FAR = 0.25  # of the targets that the end of a head cannot return
FEW, MOST_OF = 0.1, 0.9  # of the rows of a contrast
FEW_CLASSES = 32
HIDDEN, LEAST_MASKED = -1e3, 0.05  # a logarithm that only a mask makes, and the share of targets that have it
DISCOUNT = (0.5, 1.0)
_DISTANCES = frozenset("MseLoss SmoothL1Loss HuberLoss".split())
_RESIZED = frozenset("Expand View Alias".split())  # all elements stay


class OddLosses:
    """Odd things that the losses of a training show, look by look."""

    def __init__(self) -> None:
        self._looks = 0
        self._seen: dict[str, int] = {}
        self._last: Shown = {}
        self._fitted: dict[int, list[float]] = {}  # heads whose answers are fitted to numbers: the means of these
        self._lowered: dict[int, int] = {}  # heads whose answers themselves are a loss, and how often
        self._raised: set[int] = set()
        self._terms: list[tuple[tuple[str, ...], tuple[float, ...]]] = []  # of each look: what they are, and how much

    def look(self, root: Tensor, outputs: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Look at one loss."""
        self._looks += 1
        shown = odd_in(root, outputs, given)
        for name in shown:
            self._seen[name] = self._seen.get(name, 0) + 1
        self._last |= shown
        self._note_heads(root)
        terms = shares_of(root)
        if len(terms) > 1:
            self._terms.append((tuple([kind for kind, _ in terms]), tuple([share for _, share in terms])))

    def shown(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Return what showed at half of the looks and more, and at several; what does not move, and is outweighed."""
        often = [(name, self._last[name]) for name, looks in self._seen.items() if looks >= max(3, self._looks / 2)]
        sunk = self._sunk()
        return (*often, *self._outweighed(), *([] if sunk is None else [("sunk", sunk)]))

    def _note_heads(self, root: Tensor) -> None:
        """Note by which heads answers are fitted to numbers, and whose are made small or large as they are."""
        for term in terms_of(root):
            fitted = first_of(term.node) if name_of(term.node) in (*_DISTANCES, "Pow") else None
            fitted = first_of(fitted) if name_of(fitted) == "Sub" else fitted
            if (head := _head(fitted)) is not None:
                target = _target(term.node)
                self._fitted.setdefault(head, []).extend([] if target is None else [target])
            elif (head := _head(behind_views(term.node))) is not None:
                if term.factor > 0:
                    self._lowered[head] = self._lowered.get(head, 0) + 1
                else:
                    self._raised.add(head)

    def _sunk(self) -> tuple[float, float] | None:
        """Return targets at first and at last to which a head is fitted whose answers are made small elsewhere."""
        for head, looks in self._lowered.items():
            targets = self._fitted.get(head, [])
            if looks >= 3 and head not in self._raised and len(targets) >= 2 * 3:
                return fmean(targets[:3]), fmean(targets[-3:])
        return None

    def _outweighed(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        kinds = {kinds for kinds, _ in self._terms}
        if len(kinds) != 1 or len(self._terms) < FEWEST:
            return
        first, last = (
            [fmean(column) for column in zip(*[shares for _, shares in some], strict=True)]
            for some in (self._terms[:3], self._terms[-3:])
        )
        whole = max(map(abs, last))
        for kind, begin, end in zip(next(iter(kinds)), first, last, strict=True):
            if kind and 0 < abs(end) < OUTWEIGHED * whole and end > STAYS * begin > 0:
                yield f"outweighed {kind}", (begin, end, whole)
                return


def _head(node: Any) -> int | None:
    """Return the id of the weight of the layer that made something, if a linear layer did."""
    node = behind_views(node)
    if name_of(node) not in ("Addmm", "Mm", "Linear"):
        return None
    inner = [behind_views(one) for one in inputs_of(node)]
    return next((id(one.variable) for one in reversed(inner) if hasattr(one, "variable")), None)


def _target(node: Any) -> float | None:
    """Return the mean of what a distance is from, of numbers that do not learn."""
    target = getattr(node, "_saved_target", None)
    with untracked():
        return float(target.detach().double().mean()) if isinstance(target, Tensor) else None


def shares_of(root: Tensor) -> list[tuple[str, float]]:
    """Return the terms of a loss, with what they add to it; of one that is not known the kind is empty.

    >>> import torch
    >>> x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
    >>> shares_of(2 * torch.nn.functional.mse_loss(x, y) + x.exp().sum())
    [('mse_loss', 2.0), ('', 8.154845)]
    """
    known, others = known_terms(root)
    if len(known) + others > MOST_TERMS or not known or others > 1:
        return []
    with untracked():
        rest = float(root.detach()) - sum(share for _, share in known)
    return [*known, *([("", round(rest, 6))] if others else [])]


def odd_in(root: Tensor, outputs: Sequence[Tensor], given: Sequence[Tensor]) -> Shown:
    """Return what is odd about a loss, by name, with numbers that tell how.

    >>> import torch
    >>> z = torch.nn.functional.normalize(torch.randn(8, 4, requires_grad=True))
    >>> loss = torch.nn.functional.cross_entropy(z @ z.T / 0.1, torch.arange(8).roll(4))
    >>> odd_in(loss, (), ())
    {'own pair': (8.0, 0.0)}
    """
    found, ends, parts = Shown(), ends_of(outputs), parts_of(root.grad_fn)
    with untracked():
        for node in _walk([root.grad_fn], MOST_LOSS, ends.__contains__):
            look = _LOOKS.get(name_of(node))
            found |= {} if look is None else look(node)
            found |= _squashed_twice(node) | _sigmoid_twice(node) | _rows_mixed(node)
            found |= _pairs_elsewhere(node)
            found |= _left_out(node, given) | _beyond(node) | _charged(node, given) | _masked(node)
        for part in parts:
            found |= _mixture(part)
        found |= _exponential_twice(parts)
        found |= _deviation(parts)
    return found


def _walk(begin: Sequence[Any], most: int, is_end: Callable[[Any], bool] = lambda node: False) -> Iterator[Any]:
    """Yield the nodes of a graph, the nearest first, as far as some that are ends."""
    pending, known = list(begin), set[Any]()
    while pending and len(known) < most:
        node = pending.pop(0)
        if node is None or node in known or is_end(node):
            continue
        known.add(node)
        yield node
        pending += inputs_of(node)


def _of_ctc(node: Any) -> Shown:
    """Tell labels that are the blank, outputs that are too short for their labels, and what is no logarithm."""
    blank, found = int(node._saved_blank), Shown()
    targets, logs = node._saved_targets, node._saved_log_probs.detach()
    made, wanted = (torch.as_tensor(each).cpu() for each in (node._saved_input_lengths, node._saved_target_lengths))
    if targets.dim() == 1:
        rows = list(targets.cpu().split([int(one) for one in wanted]))
    else:
        rows = [row[: int(one)] for row, one in zip(targets.cpu(), wanted, strict=True)]
    labels = torch.cat(rows) if rows else targets.cpu()
    if labels.numel() and bool((labels == blank).any()):
        found["blank label"] = (float(blank), float((labels == blank).double().mean()))
    needed = [len(row) + int((row[1:] == row[:-1]).sum()) for row in rows]
    short = [int(one) < need for one, need in zip(made, needed, strict=True)]
    if rows and sum(short) > SHORT_OF * len(rows):
        found["outputs too short"] = (sum(short) / len(rows), float(made.double().mean()), float(max(needed)))
    if float((logs[:1].double().exp().sum(-1) - 1).abs().max()) > NARROW:
        found["no logarithms"] = (float(logs[:1].double().exp().sum(-1).mean()),)
    return found


def _of_bits(node: Any) -> Shown:
    """Tell weights of positives that make rare ones still rarer."""
    weight, target = node._saved_pos_weight, node._saved_target.detach()
    if weight is None or target.numel() < FEWEST or not bool(((target == 0) | (target == 1)).all()):
        return {}
    columns = target.reshape(-1, weight.numel()) if target.shape[-1:] == weight.shape else target.reshape(-1, 1)
    if weight.numel() != columns.shape[1]:
        return {}
    shares, weights = columns.double().mean(0), weight.detach().double().reshape(-1)
    is_upturned = ((shares < RARE) & (weights < LIGHT)) | ((shares > 1 - RARE) & (weights > 1 / LIGHT))
    return {"pos_weight": (float(shares.mean()), float(weights.mean()))} if bool(is_upturned.all()) else {}


def _of_shares(node: Any) -> Shown:
    """Tell shares of classes that come to 1 along another dimension than the one that the softmax went over."""
    inputs = inputs_of(node)
    if len(inputs) != 1 or name_of(inputs[0]) != "LogSoftmax" or elements_of(node) < FEWEST:
        return {}
    other = node._saved_other if node._saved_other is not None else node._saved_self
    sizes = tuple(inputs[0]._input_metadata[0].shape)
    if not isinstance(other, Tensor) or tuple(other.shape) != sizes or not bool((other >= 0).all()):
        return {}
    dimension = signed(inputs[0]._saved_dim) % len(sizes)
    whole = [bool(((other.detach().double().sum(d) - 1).abs() < NARROW).all()) for d in range(len(sizes))]
    if whole[dimension] or True not in whole[1:]:
        return {}
    return {"classes along": (float(dimension), float(whole.index(True, 1)), float(sizes[dimension]))}


def _of_pairs(node: Any) -> Shown:
    """Tell labels of 0 and 1 of cosine_embedding_loss, which takes -1 and 1: those of 0 count for nothing."""
    sides = [one for one in inputs_of(node) if name_of(one) == "Where"]
    inner = {name_of(first_of(one)) for one in sides}
    if len(sides) != 2 or inner != {"Sub", "ClampMin"} or elements_of(node) < FEWEST:
        return {}
    conditions = [one._saved_condition for one in sides]
    counts = [int(one.sum()) for one in conditions]
    if conditions[0].shape != conditions[1].shape or 0 not in counts or not max(counts):
        return {}
    share = 1 - max(counts) / conditions[0].numel()
    return {"labels of pairs": (share,)} if share > 0 else {}


def _of_picks(node: Any) -> Shown:
    """Tell logarithms that are picked along another dimension than the one that their softmax went over."""
    inner = first_of(node)
    if name_of(inner) != "LogSoftmax" or name_of(inputs_of(node)[0]) != "LogSoftmax":
        return {}
    sizes = tuple(inner._input_metadata[0].shape)
    over, along = signed(inner._saved_dim) % len(sizes), signed(node._saved_dim) % len(sizes)
    return {"classes elsewhere": (float(over), float(along), float(sizes[over]))} if over != along else {}


def _of_classes(node: Any) -> Shown:
    """Tell similarities among which those of each with itself are left, and a softmax over no classes."""
    inputs = inputs_of(node)
    softmax: Any = inputs_of(node)[0] if inputs_of(node) else None  # not behind views: these may put classes elsewhere
    sizes = tuple(softmax._input_metadata[0].shape) if name_of(softmax) == "LogSoftmax" else ()
    if len(sizes) > 1 and (over := signed(softmax._saved_dim) % len(sizes)) > 1:
        return {"classes elsewhere": (float(over), 1.0, float(sizes[over]))}
    if name_of(inputs[0] if inputs else None) != "LogSoftmax":
        return {}
    product = behind_views(inputs_of(inputs[0])[0])
    while name_of(product) in ("Mul", "Div") and len(inputs_of(product)) == 1:
        product = behind_views(inputs_of(product)[0])
    sides = [_source(edge) for edge in product.next_functions] if name_of(product) == "Mm" else []
    sizes = tuple(product._input_metadata[0].shape) if sides else ()
    if len(sizes) != 2 or sizes[0] != sizes[1] or len(sides) != 2 or sides[0] != sides[1]:
        return {}
    target = node._saved_target
    own = float((target == torch.arange(len(target), device=target.device)).double().mean())
    return {"own pair": (float(sizes[0]), own)}


def _pairs_elsewhere(node: Any) -> Shown:
    """Tell vectors of a batch of which each is most like one at a regular place, and another one is asked for.

    >>> import torch
    >>> x = torch.eye(16).repeat_interleave(2, 0).requires_grad_()
    >>> near = (x @ x.T / 0.1).masked_fill(torch.eye(32, dtype=torch.bool), -1e9)
    >>> _pairs_elsewhere(torch.nn.functional.cross_entropy(near, torch.arange(32).roll(16)).grad_fn)
    {'pairs elsewhere': (32.0, 1.0, 16.0)}
    """
    softmax: Any = inputs_of(node)[0] if name_of(node) == "NllLoss" and inputs_of(node) else None
    logs = softmax._saved_result if name_of(softmax) == "LogSoftmax" else None
    if not isinstance(logs, Tensor) or logs.dim() != 2 or logs.shape[0] != logs.shape[1] or len(logs) < FEWEST:
        return {}
    count, target = len(logs), node._saved_target
    places = torch.arange(count, device=logs.device)
    best = logs.detach().masked_fill((places[:, None] == places) & (target != places)[:, None], -math.inf).argmax(1)
    if float((best == target).double().mean()) > FEW or float(((target - places) % count).double().std()) > 0:
        return {}
    asked = float((target[0] - places[0]) % count)
    if float((best == (places ^ 1)).double().mean()) > MOST_OF:
        return {"pairs elsewhere": (float(count), 1.0, asked)}
    away = ((best - places) % count).mode().values
    is_regular = float(((best - places) % count == away).double().mean()) > MOST_OF
    return {"pairs elsewhere": (float(count), float(away), asked)} if is_regular and away != asked else {}


def _of_distance(node: Any) -> Shown:
    """Tell a target of the form reward + discount × value that learns, too."""
    sides = inputs_of(node)
    if name_of(node) in ("Pow", "Abs"):
        sides = inputs_of(sides[0]) if sides and name_of(sides[0]) == "Sub" else []
    if len(sides) != 2:
        return {}
    for side, other in (sides, sides[::-1]):
        discount = _discount(side)
        if discount is not None:
            both = reached_by(Term(side, 1.0)), reached_by(Term(other, 1.0))
            return {"target learns": (discount,)} if both[0] and both[1] and both[0] & both[1] else {}
    return {}


def _discount(node: Any) -> float | None:
    """Return by what a value is multiplied that is added to numbers which do not learn."""
    node = behind_views(node)
    if name_of(node) != "Add" or len(inputs_of(node)) != 1 or elements_of(node) < FEWEST:
        return None
    factor, node = 1.0, first_of(node)
    while name_of(node) == "Mul" and len(inputs_of(node)) == 1:
        number = scalar_of(_beside(node))
        factor *= 1.0 if number is None else number
        other = _beside(node)
        if number is None and isinstance(other, Tensor) and other.numel():
            factor *= float(other.detach().double().max())
        node = first_of(node)
    return factor if DISCOUNT[0] < factor < DISCOUNT[1] else None


def _beside(node: Any) -> Any:
    other = getattr(node, "_saved_other", None)
    return getattr(node, "_saved_self", None) if other is None else other


def _of_difference(node: Any) -> Shown:
    """Tell what is taken from a sum of which it is a part: a value that was drawn with a mean, less that mean."""
    if len(node.next_functions) < 2:
        return {}
    whole, part = (origin_of(edge, _RESIZED) for edge in node.next_functions[:2])
    parts = [origin_of(edge, _RESIZED) for edge in whole[0].next_functions] if name_of(whole[0]) == "Add" else []
    return {CANCELS: (float(len(parts)),)} if part[0] is not None and part in parts else {}


_LOOKS: dict[str, Callable[[Any], Shown]] = {
    "CtcLoss": _of_ctc,
    "Sub": _of_difference,
    "Add": _of_pairs,
    "Gather": _of_picks,
    "BinaryCrossEntropyWithLogits": _of_bits,
    "Mul": _of_shares,
    "NllLoss": _of_classes,
    "NllLoss2D": _of_classes,
    "Pow": _of_distance,
    "Abs": _of_distance,
    **dict.fromkeys(_DISTANCES, _of_distance),
}


def _left_out(node: Any, given: Sequence[Tensor]) -> Shown:
    """Tell a class of its own that is left out by its index, and not to fill up rows."""
    if name_of(node) not in ("NllLoss", "NllLoss2D") or not given or name_of(first_of(node)) != "LogSoftmax":
        return {}
    target, ignore = node._saved_target.detach(), signed(node._saved_ignore_index)
    classes, x = int(first_of(node)._input_metadata[0].shape[1]), given[0].detach()
    if not 0 <= ignore < classes or not x.dim() or not target.dim():
        return {}
    out, is_of_tokens = target == ignore, not x.is_floating_point()
    share = float(out.double().mean())
    if not 0 < share < 1 or (is_of_tokens and not classes <= min(FEW_CLASSES, int(x.max()))):
        return {}
    is_of_places = x.dim() > 1 and target.numel() == math.prod(x.shape[:2]) != len(x)
    if target.dim() > 2 or not (is_of_places or target.numel() == len(x)):
        return {}
    if is_of_places:
        rows = out.reshape(x.shape[:2]).long()
        fills = bool((rows.diff(dim=1) >= 0).all()) or bool((rows.diff(dim=1) <= 0).all())  # ends, or beginnings
        blank = (x == 0).flatten(2).all(2) if x.dim() > 2 else x == 0
        if fills or bool(blank[out.reshape(x.shape[:2])].all()):
            return {}
    return {"class left out": (float(ignore), share, float(classes))}


def _squashed_twice(node: Any) -> Shown:
    """Tell logarithms of a softmax of what a softmax returned, but for those of a cross entropy, told elsewhere."""
    if name_of(node) in ("NllLoss", "NllLoss2D"):
        return {}
    for inner in map(behind_views, inputs_of(node)):
        before = first_of(inner) if name_of(inner) == "LogSoftmax" and elements_of(inner) >= FEWEST else None
        if name_of(before) == "Softmax" and _length(before) == _length(inner):
            return {"softmax twice": (float(_length(inner)),)}
    return {}


def _sigmoid_twice(node: Any) -> Shown:
    """Tell a sigmoid in front of one that the loss takes itself, also where it is joined with others in between."""
    if name_of(node) != "BinaryCrossEntropyWithLogits" or elements_of(first_of(node)) < FEWEST:
        return {}
    is_squashed = name_of(_piece_behind(next(iter(inputs_of(node)), None))) == "Sigmoid"
    return {"sigmoid twice": (1.0,)} if is_squashed and name_of(first_of(node)) == "Cat" else {}


def _rows_mixed(node: Any) -> Shown:
    """Tell answers of (examples, classes, places) that a view makes rows of classes of: it moves no number."""
    logs: Any = first_of(node) if name_of(node) == "NllLoss" else None
    sizes = tuple(logs._input_metadata[0].shape) if name_of(logs) == "LogSoftmax" else ()
    inner: Any = next(iter(inputs_of(logs)), None) if len(sizes) == 2 else None
    for _ in range(MOST_TERMS):
        if name_of(inner) in ("View", "UnsafeView"):
            before = tuple(inner._saved_self_sym_sizes)
            if len(before) > 2 and before[1] == sizes[1] != before[-1] and math.prod(before[2:]) > 1:
                return {"rows mixed": tuple(map(float, before))}
        if name_of(inner) not in PASSED:
            break
        inner = next(iter(inputs_of(inner)), None)
    return {}


def _piece_behind(node: Any) -> Any:
    """Return the node that made what is passed on; of numbers that were joined, the one that a slice takes out.

    >>> import torch
    >>> x = torch.zeros(4, 5, requires_grad=True)
    >>> joined = torch.cat([x[:, :2].sigmoid(), x[:, 2:].exp()], 1)
    >>> [name_of(_piece_behind(joined[:, a:b].grad_fn)) for a, b in ((0, 2), (3, 5), (1, 3))]
    ['Sigmoid', 'Exp', 'Cat']
    """
    cuts = dict[int, tuple[int, int]]()
    for _ in range(MOST_TERMS):
        name, inputs = name_of(node), inputs_of(node)
        if name == "Slice":
            sizes = tuple(node._saved_self_sym_sizes)
            along = signed(node._saved_dim) % len(sizes)
            cuts[along] = int(node._saved_start), min(int(node._saved_end), sizes[along])
        elif name == "Cat":
            pieces = [one for one, _ in node.next_functions]
            sizes = tuple(node._input_metadata[0].shape)
            along, begin = signed(node._saved_dim) % len(sizes), 0
            first, last = cuts.pop(along, (0, sizes[along]))
            for piece in pieces:
                if piece is None:
                    break
                end = begin + int(piece._input_metadata[0].shape[along])
                if begin <= first and last <= end:
                    return _piece_behind(piece)
                begin = end
            return node
        elif name not in PASSED or not inputs:
            return node
        if name in ("Permute", "Transpose", "T", "View", "UnsafeView", "ReshapeAlias", "Select", "Index"):
            cuts = {}  # dimensions are others behind it
        node = inputs[0]
    return node


def _length(softmax: Any) -> int:
    """Return how many numbers a softmax goes over."""
    sizes = tuple(softmax._input_metadata[0].shape)
    return int(sizes[signed(softmax._saved_dim) % len(sizes)]) if sizes else 0


def _masked(node: Any) -> Shown:
    """Tell classes that are asked for and that a mask takes out."""
    if name_of(node) not in ("NllLoss", "NllLoss2D") or name_of(first_of(node)) != "LogSoftmax":
        return {}
    inner = behind_views(inputs_of(first_of(node))[0])
    while name_of(inner) in ("Mul", "Div") and len(inputs_of(inner)) == 1:
        inner = behind_views(inputs_of(inner)[0])
    if name_of(inner) not in ("MaskedFill", "Where", "Add", "Sub"):
        return {}
    given = inputs_of(node)[0]
    logs = first_of(node)._saved_result.detach().reshape(given._input_metadata[0].shape)
    target = node._saved_target.detach()
    if logs.dim() != target.dim() + 1:
        return {}
    keep = target != signed(node._saved_ignore_index)
    picked = logs.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)[keep]
    share = float((picked < HIDDEN).double().mean()) if picked.numel() else 0.0
    return {"answer masked": (share, float(picked.numel()))} if share > LEAST_MASKED else {}


def _beyond(node: Any) -> Shown:
    """Tell that the end of a head cannot return many of its targets."""
    read = read_function(node)
    bounds = None if read is None or read.target is None else bounds_of(read)
    if read is None or bounds is None or read.target is None or read.kind == "cross_entropy":
        return {}
    name, low, high = bounds
    if read.kind == "binary_cross_entropy_with_logits":
        low, high = (1 / (1 + math.exp(min(-one, 700.0))) + move for one, move in ((low, -0.1), (high, 0.1)))
    target = read.target.detach()
    far = float(((target < low) | (target > high)).double().mean()) if target.numel() >= FEWEST else 0.0
    return {f"out of reach {name}": (far, bounds[1], bounds[2])} if far > TOO_FAR else {}


def _charged(node: Any, given: Sequence[Tensor]) -> Shown:
    """Tell a sum over a whole batch that is charged to each of its examples."""
    rows, count = len(given[0]) if given and given[0].dim() else 0, elements_of(node)
    if name_of(node) not in ("Mul", "Add") or rows < 2 or _rows_of(node) != rows:
        return {}
    for inner in inputs_of(node):
        for _ in range(FEWEST):
            is_scaled = name_of(inner) in ("Mul", "Div", "Add", "Neg") and len(inputs_of(inner)) == 1
            if elements_of(inner) != 1 or not is_scaled:
                break
            inner = inputs_of(inner)[0]
        summed = first_of(inner) if name_of(inner) == "Sum" and elements_of(inner) == 1 else None
        if _rows_of(summed) == rows:
            return {"charged to each": (float(elements_of(summed)), float(count))}
    return {}


def _rows_of(node: Any) -> int:
    metadata = getattr(node, "_input_metadata", None)
    return int(metadata[0].shape[0]) if metadata and len(metadata[0].shape) else 0


def _mixture(part: Part) -> Shown:
    """Tell a mixture whose shares come to 1 along another dimension than the one that it adds up."""
    node = part.node
    if name_of(node) == "Logsumexp":
        added = {signed(one) for one in node._saved_dim}
        sizes, node = tuple(node._saved_self.shape), first_of(node)
    elif name_of(node) == "Log" and name_of(first_of(node)) == "Sum" and name_of(first_of(first_of(node))) == "Exp":
        node = first_of(node)
        added = {signed(one) for one in getattr(node, "_saved_dim", None) or ()}
        node = first_of(node)
        sizes, node = tuple(node._input_metadata[0].shape), first_of(node)
    else:
        return {}
    for inner in _walk([node], FEWEST * 2, lambda one: name_of(one) not in (*SCALED, "LogSoftmax", *PASSED, "Expand")):
        if name_of(inner) == "LogSoftmax" and tuple(inner._input_metadata[0].shape) == sizes and len(added) == 1:
            along, over = next(iter(added)) % len(sizes), signed(inner._saved_dim) % len(sizes)
            return {"mixture along": (float(over), float(along), float(sizes[over]))} if along != over else {}
    return {}


def _exponential_twice(parts: Sequence[Part]) -> Shown:
    """Tell an exponential, less counts times its exponent, of an exponent that is a rate already (poisson_nll_loss)."""
    less = {behind_views(one.node) for one in parts if one.sign < 0}
    for part in parts if code_in(parts) is None else ():
        rate = first_of(part.node) if name_of(part.node) == "Exp" and part.sign > 0 else None
        if name_of(rate) in ("Exp", "Softplus", "Relu") and rate in less:
            return {"exponential twice": (1.0,)}
    return {}


def _deviation(parts: Sequence[Part]) -> Shown:
    """Tell noise that is multiplied with a log-variance, or with a variance, in place of a deviation."""
    code = code_in(parts)
    raised = next((one.node for one in parts if code and one.node in code.nodes and name_of(one.node) == "Exp"), None)
    if code is None or raised is None:
        return {}
    wanted = _edge(raised)
    for node in _walk([one.node for one in parts if one.node not in code.nodes], MOST_MODEL):
        other = _beside(node) if name_of(node) == "Mul" and len(inputs_of(node)) == 1 else None
        if not isinstance(other, Tensor) or other.numel() < FEWEST or not _are_of_both_signs(other):
            continue
        inner, number = _edge(node)
        if (inner, number) == wanted:
            return {"deviation": (0.0,)}
        if name_of(inner) == "Exp" and _edge(inner) == wanted:
            return {"deviation": (1.0,)}
    return {}


def _source(edge: Edge) -> tuple[object, ...]:
    """Return which numbers are passed on: the node behind views, which of its results, and what is cut out of it."""
    *passed, origin = way_behind(edge)
    cuts = list[object]()
    for node, _ in passed:
        if name_of(node) == "Slice":
            cuts += [node._saved_dim, node._saved_start, node._saved_end]
        elif name_of(node) in ("Select", "Index"):
            cuts.append(node)
    return (*origin, *cuts)


def _edge(node: Any) -> Edge:
    """Return the node behind views that made the first thing that an operation takes and that learns, and which one."""
    return origin_of(next((one for one in node.next_functions if one[0] is not None), (None, 0)))


def _are_of_both_signs(numbers: Tensor) -> bool:
    return bool((numbers > 0).any()) and bool((numbers < 0).any())
