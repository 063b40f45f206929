"""Signs in the whole graph of a training's first losses: which weights it has, views, softmaxes, masks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import TOP_ONE, Sign
from fxdebug.features.training.loss.copied_input import GIVEN, copied_input
from fxdebug.features.training.loss.loss_graph import (
    PASSED,
    SCALED,
    behind_views,
    elements_of,
    name_of,
    scalar_of,
    signed,
)
from fxdebug.features.training.loss.loss_terms import Term, first_of, inputs_of, reached_by
from fxdebug.features.training.recorder.leaf_calls import FEWEST_ROWS, lets_see_ahead, sizes_exchanged
from fxdebug.features.training.recorder.model_facts import products_in, weights_of

WHOLE = 2  # steps whose whole graph is walked
AHEAD = 1e-3  # of what an attention looks at
FLAT = frozenset("Round Sign Floor Ceil Trunc".split())  # functions without a slope
SATURATED, NEARLY_ALL = 0.99, 0.9  # of a share, and of those that ask
FEWEST_LOOKED_AT = 4  # places
DEPTH = 8  # operations between a product and its softmax
_KEPT = PASSED | frozenset("Expand MulDropout NativeDropout MaskedFill Where".split())


_DEAD = {"Relu": "relu", "ClampMin": "clamp", "Clamp": "clamp", "Sigmoid": "sigmoid", "Exp": "exp"}
MOST_NODES = 3000
_PRODUCTS = {"Addmm": ("_saved_mat1", 1), "Mm": ("_saved_self", 0), "Convolution": ("_saved_input", 0)}
LOUD, FEWEST_LOUD = 20.0, 64  # root mean square, and rows that are looked at


def _variable_of(edge: tuple[Any, int]) -> Any:
    """Return the weight that an operation takes, behind views."""
    return getattr(behind_views(edge[0]), "variable", None)


def dead_in(root: Tensor) -> tuple[str, int] | None:
    """Return the function nearest to the loss that returned only zeros, and the id of a weight right behind it.

    >>> import torch
    >>> w = torch.ones(3, requires_grad=True)
    >>> found = dead_in((1 - (w * -torch.ones(3)).relu()).sum())
    >>> found == ("relu", id(w))
    True
    """
    pending, known = [root.grad_fn], set[Any]()
    while pending and len(known) < MOST_NODES:
        node = pending.pop(0)
        if node is None or node in known:
            continue
        known.add(node)
        name = name_of(node)
        if name in _DEAD and elements_of(node) > 1 and _returns_zeros(node, name):
            weight = _weight_behind(node)
            if weight is not None:
                return _DEAD[name], weight
        pending += inputs_of(node)
    return None


def _returns_zeros(node: Any, name: str) -> bool:
    if name in ("Relu", "Sigmoid", "Exp"):
        return not bool(node._saved_result.any())
    least = node._saved_min
    return least is not None and scalar_of(least) == 0 and bool((node._saved_self <= 0).all())


def _weight_behind(node: Any) -> int | None:
    """Return the id of the first weight that is met on the way back from a node."""
    pending, known = [node], set[Any]()
    while pending and len(known) < MOST_NODES:
        inner = pending.pop(0)
        if inner is None or inner in known:
            continue
        known.add(inner)
        if (variable := getattr(inner, "variable", None)) is not None:
            return id(variable)
        pending += reversed(inputs_of(inner))
    return None


class WholeGraph:
    """Signs that the graphs of the first losses show."""

    def __init__(self) -> None:
        self.weights, self._factors, self._others = set[int](), set[int](), set[int]()
        self.viewed: dict[tuple[str, str], None] = {}  # sizes before and after a view that exchanges them
        self.softmaxes: set[str] = set()  # that are odd
        self.linear = 0
        self._over_one: Counter[str] = Counter()  # softmaxes and layer norms of one element, of each graph once
        self._over_queries: list[bool] = []  # does a softmax of an attention go over those that ask?
        self._hidden: list[bool] = []  # did a mask hide all places?
        self._odd: Counter[str] = Counter()  # what else is odd, of each graph once
        self._numbers: dict[str, tuple[float, ...]] = {}
        self.flat: dict[str, set[int]] = {}  # the ids of weights behind a product with 0, a round(), a sign()
        self.loud: list[tuple[int, float]] = []  # weights that meet large numbers of the data, and how large these are
        self._given: Sequence[Tensor] = ()
        self._outputs: Sequence[Tensor] = ()
        self._target: Tensor | None = None
        self._keeps_all = False

    def walk(
        self,
        root: Tensor,
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        target: Tensor | None,
        *,
        keeps_all: bool,
        is_distance: bool,
    ) -> None:
        """Walk through the graph of one loss; ``keeps_all``: numbers for the backward are kept, not computed again.

        ``is_distance``: the loss is how far answers are from ``target``.
        """
        self._given, self._outputs, self._target, self._keeps_all = given, outputs, target, keeps_all
        pending: list[Any] = [root.grad_fn]
        known, one, hides, is_odd = set[Any](), set[str](), list[bool](), False
        first, odd = list[Any](), dict[str, tuple[float, ...]]()
        while pending:
            node = pending.pop()
            if node is None or node in known:
                continue
            known.add(node)
            if kind := _over_one(node):
                one.add(kind)
            self.viewed |= _viewed(node, given)
            is_odd = is_odd or goes_over_queries(node)
            self.softmaxes |= self._odd_softmax(node)
            hides += [] if (hidden := _hides_all(node)) is None else [hidden]
            if (variable := getattr(node, "variable", None)) is not None:
                self.weights.add(id(variable))
            odd |= self._odd_in(node)
            self._note_loud(node)
            first += [node] if name_of(node) in GIVEN and is_distance and keeps_all else []
            factors, others = weights_of(node)
            self._factors |= factors
            self._others |= others
            pending += [inner for inner, _ in node.next_functions]
        self._over_one.update(one)
        copied = copied_input(root.grad_fn, target, first, len(given) - 1) if first and target is not None else None
        odd |= {} if copied is None else {"copied": tuple(map(float, copied))}
        self._odd.update(odd.keys())
        self._numbers |= odd
        self._over_queries.append(is_odd)
        self._hidden.append(bool(hides) and all(hides) and keeps_all)
        behind = [t.grad_fn for t in outputs if t.grad_fn is not None]
        if behind:
            products, is_linear = products_in(max(behind, key=_number_of_node))
            self.linear = products if is_linear else 0
        self._given, self._outputs, self._target = (), (), None

    def _note_loud(self, node: Any) -> None:
        """Note a product of a weight with numbers that are far larger than 1, and in part come from the data."""
        saved, place = _PRODUCTS.get(name_of(node), ("", 0))
        if not saved or not self._keeps_all or len(node.next_functions) < 2:
            return
        inner = behind_views(node.next_functions[place][0])
        is_given = inner is None or (name_of(inner) == "Cat" and None in [one for one, _ in inner.next_functions])
        x = getattr(node, saved) if is_given else None
        variable = next((v for v in map(_variable_of, node.next_functions[place + 1 :]) if v is not None), None)
        if isinstance(x, Tensor) and x.numel() and variable is not None and x.is_floating_point():
            with untracked():
                size = float(x.detach()[:FEWEST_LOUD].float().square().mean().sqrt())
            self.loud += [(id(variable), size)] if size > LOUD else []

    @property
    def products(self) -> Set[int]:
        """The ids of weights that are only multiplied with or looked up."""
        return self._factors - self._others

    def signs(self) -> list[Sign]:
        """Return what each graph showed."""
        graphs = len(self._hidden)
        return [Sign(name, (), self._numbers[name]) for name, times in self._odd.items() if times == graphs >= WHOLE]

    def _odd_in(self, node: Any) -> dict[str, tuple[float, ...]]:
        """Return what is odd about one operation, by name."""
        name = name_of(node)
        if not self._keeps_all:  # a checkpoint would run again for what is saved
            return {}
        if name == "Pow" and scalar_of(node._saved_exponent) == 2:
            return _slope_of_each(node)
        if name in ("Mm", "Bmm"):
            along = normalised_along_others(node)
            return {} if along is None else {"norm misplaced": along}
        factors = (getattr(node, "_saved_other", None), getattr(node, "_saved_self", None)) if name == "Mul" else ()
        if elements_of(node) > 1 and (name in FLAT or 0.0 in map(scalar_of, factors)):
            self.flat.setdefault(name, set()).update(reached_by(Term(node, 1.0)) or ())
        if name == "Softmax":
            with untracked():
                share = _saturated(node)
            return {} if share is None or share < NEARLY_ALL else {"attention saturated": (share,)}
        return {}

    @property
    def over_one(self) -> tuple[str, ...]:
        """Softmaxes and layer norms over one element, that each graph has."""
        graphs = len(self._hidden)
        return tuple([one for one, times in self._over_one.items() if times == graphs >= WHOLE])

    @property
    def hidden(self) -> bool:
        """Did a mask of attention hide all places, each time?"""
        return len(self._hidden) >= WHOLE and all(self._hidden)

    @property
    def over_queries(self) -> bool:
        """Did an attention's softmax go over those that ask, each time?"""
        return len(self._over_queries) >= WHOLE and all(self._over_queries)

    def _odd_softmax(self, node: Any) -> set[str]:
        """Return whether a softmax inside of the model goes over the examples, or over all places of a sequence."""
        if name_of(node).startswith("ScaledDotProduct"):
            return self._odd_attention(node)
        if name_of(node) != "Softmax" or not self._given or not self._outputs:
            return set()
        shape, dimension = tuple(node._input_metadata[0].shape), signed(node._saved_dim)
        rows, target = len(self._given[0]) if self._given[0].dim() else 0, self._target
        is_row = self._outputs[0].dim() > 1 and len(self._outputs[0]) == rows and target is not None
        if dimension in (0, -len(shape)) and len(shape) > 1 and rows == shape[0] != shape[1] and rows >= FEWEST_ROWS:
            return {"over batch"} if is_row and target is not None and target.dim() and len(target) == rows else set()
        length = self._given[0].shape[1] if self._given[0].dim() == 2 else 0
        is_of_places = len(shape) > 2 and shape[-2:] == (length, length) and dimension in (-1, len(shape) - 1)
        if not is_of_places or length < 2:
            return set()
        if not self._keeps_all:
            return {"attention"} if _has_no_mask(node) else set()
        with untracked():
            shares = node._saved_result.detach().float()
            ahead, whole = float(shares.triu(1).sum()), float(shares.sum())
        return {"attention"} if ahead > AHEAD * whole else set()

    def _odd_attention(self, node: Any) -> set[str]:
        """Return whether an attention of torch, over all places of a sequence, lets a place see those that follow."""
        length = self._given[0].shape[1] if self._given and self._given[0].dim() == 2 else 0
        shape, keeps = tuple(node._input_metadata[0].shape), self._keeps_all
        if length < 2 or not keeps or len(shape) != 4 or shape[2] != length or getattr(node, "_saved_is_causal", True):
            return set()
        mask = getattr(node, "_saved_attn_mask", None)
        if mask is None:
            return {"attention"} if node._saved_key.shape[2] == length else set()
        return {"attention"} if tuple(mask.shape[-2:]) == (length, length) and lets_see_ahead(mask) else set()


def goes_over_queries(node: Any) -> bool:
    """Is it a product of an attention with values, along another dimension than the one that its softmax went over?

    >>> import torch
    >>> q, k, v = (torch.randn(2, 5, 4, requires_grad=True) for _ in range(3))
    >>> [goes_over_queries(((q @ k.mT).softmax(d) @ v).grad_fn.next_functions[0][0]) for d in (1, 2)]
    [True, False]
    """
    if name_of(node) not in ("Bmm", "Mm") or len(node.next_functions) != 2:
        return False
    for place, (inner, _) in enumerate(node.next_functions):
        along, turned = -1 - place, False  # the first is multiplied along its columns, the second along its rows
        while name_of(inner) in _KEPT and inner.next_functions:
            turned ^= name_of(inner) in ("Transpose", "T", "Permute") and _are_last(inner)
            inner = inner.next_functions[0][0]
        if name_of(inner) != "Softmax":
            continue
        sizes = tuple(inner._input_metadata[0].shape)
        dimension = signed(inner._saved_dim)
        dimension -= len(sizes) if dimension >= 0 else 0
        product = _behind_scale(inner)
        along = -3 - along if turned else along
        is_square = len(sizes) > 1 and sizes[-1] == sizes[-2] > 1
        if is_square and name_of(product) in ("Bmm", "Mm", "Baddbmm") and dimension == -3 - along:
            return True
    return False


def normalised_along_others(node: Any) -> tuple[float, ...] | None:
    """Return along which dimension both sides of a product are divided by their norm, and along which it adds up.

    ``None`` where these are one, or a side is not divided by its norm: a mean of unit vectors is one.

    >>> import torch
    >>> one, other = (torch.randn(8, 4, requires_grad=True) for _ in range(2))
    >>> unit = torch.nn.functional.normalize
    >>> [normalised_along_others((unit(one, dim=d) @ unit(other, dim=d).T).grad_fn) for d in (0, 1)]
    [(0.0, 1.0, 8.0), None]
    """
    found = [_normalised(inner, place) for place, (inner, _) in enumerate(node.next_functions[:2])]
    if len(found) < 2 or None in found:
        return None
    return next((one for one in found if one is not None and one[0] != one[1] and one[2] > 1), None)


def _normalised(inner: Any, place: int) -> tuple[float, float, float] | None:
    """Return along which dimension a side of a product is divided by its norm, and along which it is added up."""
    turned = False
    while name_of(inner) in PASSED | {"Expand"} and inner.next_functions and inner.next_functions[0][0] is not None:
        turned ^= name_of(inner) in ("Transpose", "T", "Permute") and _are_last(inner)
        if name_of(inner) == "Permute" and not _are_last(inner):
            return None
        inner = inner.next_functions[0][0]
    inputs = inputs_of(inner)
    norm: Any = inputs[1] if name_of(inner) == "Div" and len(inputs) == 2 else None
    while name_of(norm) in ("Expand", "ClampMin", "Clamp", "Add", "View") and inputs_of(norm):
        norm = inputs_of(norm)[0]
    sizes = tuple(inner._input_metadata[0].shape) if norm is not None else ()
    if name_of(norm) != "LinalgVectorNorm" or scalar_of(norm._saved_ord) != 2 or len(sizes) not in (2, 3):
        return None
    dimensions = [signed(one) % len(sizes) for one in norm._saved_dim or ()]
    added = len(sizes) - (2 if (place == 1) != turned else 1)
    return (float(dimensions[0]), float(added), float(sizes[dimensions[0]])) if len(dimensions) == 1 else None


def _slope_of_each(node: Any) -> dict[str, tuple[float, ...]]:
    """Tell a norm that is to be 1 and is taken of the channels of pictures alone: of each place, not of the slope."""
    norm: Any = first_of(first_of(node)) if name_of(first_of(node)) == "Sub" else None
    if name_of(norm) not in ("LinalgVectorNorm", "Norm") or not elements_of(norm):
        return {}
    made = inputs_of(norm)[0]  # not behind views: what is flattened is of examples
    sizes = tuple(made._input_metadata[0].shape)
    dimensions = [signed(one) % len(sizes) for one in norm._saved_dim or ()] if len(sizes) == 4 else []
    return {"slope of each": (float(math.prod(sizes[2:])),)} if dimensions == [1] and math.prod(sizes[2:]) > 1 else {}


def _saturated(node: Any) -> float | None:
    """Return the share of those that ask, in an attention without a mask, that look at one place alone."""
    product = inputs_of(node)[0] if inputs_of(node) else None
    for _ in range(DEPTH):
        is_scale = name_of(product) in ("Mul", "Div") or name_of(product) in PASSED
        if not is_scale or len(inputs_of(product)) != 1:
            break
        product = inputs_of(product)[0]
    sizes = tuple(node._input_metadata[0].shape)
    if name_of(product) not in ("Bmm", "Mm", "Baddbmm") or len(sizes) < 3 or sizes[-1] < FEWEST_LOOKED_AT:
        return None
    if signed(node._saved_dim) % len(sizes) != len(sizes) - 1:
        return None
    return float((node._saved_result.detach().amax(-1) > SATURATED).float().mean())


def _others(given: Sequence[Tensor], target: Tensor) -> int:
    """Return how many tensors of its examples a model is given besides one."""
    return len([one for one in given if one.dim() and target.dim() and len(one) == len(target)]) - 1


def _are_last(node: Any) -> bool:
    if name_of(node) == "T":
        return True
    if name_of(node) == "Permute":  # .T of a matrix
        order, count = [signed(one) for one in node._saved_dims], len(node._input_metadata[0].shape)
        return [one % count for one in order] == [*range(count - 2), count - 1, count - 2]
    count = len(node._input_metadata[0].shape)
    return {signed(node._saved_dim0) % count, signed(node._saved_dim1) % count} == {count - 1, count - 2}


def _behind_scale(node: Any) -> Any:
    """Return what made what a softmax takes, behind scales, masks and views."""
    node = inputs_of(node)[0] if inputs_of(node) else None
    for _ in range(DEPTH):
        inputs = inputs_of(node)
        if len(inputs) != 1 or not (name_of(node) in _KEPT or name_of(node) in SCALED):
            break
        node = inputs[0]
    return node


def _over_one(node: Any) -> str:
    """Return what normalises one element alone: a softmax of it is 1, a layer norm of it is its bias."""
    name = name_of(node)
    if name in ("Softmax", "LogSoftmax"):
        shape = node._input_metadata[0].shape  # what is saved is not read: a checkpoint would run again for it
        return name.lower() if len(shape) and shape[signed(node._saved_dim)] == 1 else ""
    if name == "NativeLayerNorm" and math.prod(node._saved_normalized_shape) == 1:
        return "layer norm"
    return TOP_ONE if name == "Div" and _is_top_one(node) else ""


def _is_top_one(node: Any) -> bool:
    """Is the one number that topk chose divided by the sum over itself, as routers normalise those of their choice?"""
    if len(node.next_functions) < 2:
        return False
    chosen, whole = (behind_views(inner) for inner, _ in node.next_functions[:2])
    whole = first_of(whole) if name_of(whole) in ("Add", "Clamp", "ClampMin") else whole
    if name_of(chosen) != "Topk" or name_of(whole) != "Sum" or first_of(whole) is not chosen:
        return False
    shape = chosen._input_metadata[0].shape
    return bool(shape) and shape[-1] == 1


def _has_no_mask(node: Any) -> bool:
    """Does a softmax take products as they are, but for their scale?"""
    for _ in range(DEPTH):
        inputs = [inner for inner, _ in node.next_functions if inner is not None]
        if len(inputs) != 1:
            return False
        node = inputs[0]
        name = name_of(node)
        if name in ("Bmm", "Baddbmm", "Mm"):
            return True
        if name not in ("Div", "Mul", "UnsafeView", "View", "ReshapeAlias", "ToCopy", "Clone"):
            return False
    return False


def _viewed(node: Any, given: Sequence[Tensor]) -> dict[tuple[str, str], None]:
    """Return the sizes before and after a view that exchanges sizes of the input, and moves no numbers.

    Also of others: a view of (examples, places, heads × width) as (examples, heads, places, width).
    """
    if name_of(node) not in ("View", "UnsafeView") or not given or given[0].dim() < 2:
        return {}
    before, after = tuple(node._saved_self_sym_sizes), tuple(node._input_metadata[0].shape)
    one, other = given[0].shape[:2]
    exchanges = len(before) == len(after) > 2 and before[2:] == after[2:] and before[:2] == after[1::-1]
    exchanges = exchanges and one != other and 1 not in (one, other) and {one, other} == set(before[:2])
    is_of_examples = before[:1] == (one,) and sizes_exchanged(before, after)
    if not (exchanges or is_of_examples):
        return {}
    return {sizes_told(before, after): None}


def viewed_before(whole: Tensor, given: Tensor) -> dict[tuple[str, str], None]:
    """Return the sizes of a tensor and of a view of all of it, which exchanges the first two and moves no number."""
    before, after = tuple(whole.shape), tuple(given.shape)
    is_whole = len(before) > 1 and whole.is_contiguous() and given.is_contiguous() and whole.numel() == given.numel()
    exchanges = after[:2] == before[1::-1] and (len(before) == 2 or after[2:] == before[2:])
    if not (is_whole and exchanges) or before[0] == before[1] or 1 in before[:2]:
        return {}
    return {sizes_told(before, after): None}


def _hides_all(node: Any) -> bool | None:
    """Does the mask in front of a softmax hide all places? ``None`` of anything else, and of one without a mask."""
    if name_of(node) != "Softmax" or not node.next_functions:
        return None
    inner = behind_views(node.next_functions[0][0])
    kind = name_of(inner)
    if kind not in ("MaskedFill", "Where"):
        return None
    with untracked():
        mask = inner._saved_mask if kind == "MaskedFill" else ~inner._saved_condition
        return bool(mask.all()) and mask.numel() > 1


def sizes_told(before: Sequence[int], after: Sequence[int]) -> tuple[str, str]:
    """Return sizes before and after as they are told."""
    return "×".join(map(str, before)), "×".join(map(str, after))


def _number_of_node(node: Any) -> int:
    return int(node._sequence_nr()) if hasattr(node, "_sequence_nr") else 0
