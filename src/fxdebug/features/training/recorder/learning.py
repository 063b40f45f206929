"""Record signs of whether a training learns, and why not: in each step a few hundred elements of each tensor."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.weak import TensorWeakRef

from fxdebug.capture.probe import Sites, members, named_tensors, untracked
from fxdebug.features.shared.records.learning import (
    GOES_ON,
    InputFacts,
    LearningFacts,
    LossFacts,
    MixedBatch,
    Names,
    OptimizerFacts,
    RowFacts,
    Sign,
    StepSigns,
)
from fxdebug.features.training.beside.all_beside import Beside
from fxdebug.features.training.beside.waits import Waits
from fxdebug.features.training.loss.amounts import Amounts
from fxdebug.features.training.loss.arrivals import Arrivals
from fxdebug.features.training.loss.loss_graph import (
    CLOSE,
    NARROW,
    LossRead,
    answer_of,
    behind_views,
    bounds_of,
    computed_again,
    cosine_factor,
    gaussians,
    is_divided,
    is_first_of_many,
    logarithms_and_roots,
    out_of_domain,
    read_loss,
    start_of,
    takes_output,
)
from fxdebug.features.training.loss.loss_parts import LossParts
from fxdebug.features.training.loss.loss_terms import reached_by, terms_of
from fxdebug.features.training.loss.odd_losses import OddLosses
from fxdebug.features.training.loss.one_target import OneTarget
from fxdebug.features.training.loss.whole_graph import WHOLE, WholeGraph, dead_in, sizes_told, viewed_before
from fxdebug.features.training.pairs.alike_answers import SURE_LOOKS, AlikeAnswers
from fxdebug.features.training.pairs.asked_again import asked_again
from fxdebug.features.training.pairs.interleaved_pixels import interleaved
from fxdebug.features.training.pairs.neighbours import multiplied
from fxdebug.features.training.pairs.same_inputs import Repeated
from fxdebug.features.training.pairs.turned_targets import Turned
from fxdebug.features.training.recorder.gradient_norm import number_of
from fxdebug.features.training.recorder.held_forward import HeldForward
from fxdebug.features.training.recorder.leaf_calls import (
    BOUNDED,
    MOST_TOLD,
    NORMALISATIONS,
    SILENT,
    LeafCalls,
    keeps_padding_alone,
    place_of_cut,
    storages_of,
    viewed_for_moved,
)
from fxdebug.features.training.recorder.loop_facts import LoopFacts
from fxdebug.features.training.recorder.model_facts import ModelFacts, names_of
from fxdebug.features.training.recorder.optimizer_steps import steps_made
from fxdebug.features.training.recorder.samples import Rows, counts_of, digest_of, joined, rows_of, sample, short
from fxdebug.features.training.recorder.targets import Features, Targets

OFTEN = 10  # steps between two looks at the innermost calls, in the first steps
EARLY = 200
ENDS = 8  # parameters of each end whose gradients are looked at before a backward
FEW = 64  # elements of each of them
LEAK = 0.995
AT_THE_END = "the relu at the end"
MOST_NAMED = 8  # layers
MOST_SETTINGS = 16  # of an optimizer
_TOLD_ELSEWHERE = frozenset(
    "lr weight_decay params foreach fused capturable differentiable decoupled_weight_decay".split()
)
MOSTLY = 0.9  # of the steps
STEADY = 0.96  # of the largest magnitude of logits, in the last looks
ROUNDED, NEAR = 1e-3, 0.95  # of logits that are cosines: how far above 1, and from where on they are near it
NEAR_SHARE = 0.1
SAME = 0.999  # cosine of gradients that are only clipped
ROUNDING = 1e-6  # of the largest gradient of a step
FEWEST_AGAIN = 2  # calls of a module that ran before
ROUND = 1e-4  # of the first deviation
BACK, ODD_ONES = 1.2, 0.05  # times, and the share of looks that may go the other way
MANY_UPHILL = 30  # steps one after the other: by chance a noisy one goes uphill, and so many never do
NEARLY_BACK = 0.1  # of what a step changed
NO_CODE = 0.1  # nats of an example, of all dimensions of a code together
FEW_GRADIENTS = 4  # that are looked at again after a step
KNOWN = 1e-2  # of the largest target: how far one may be off that is known by its distance from an answer
MOST_EXAMPLES = 50_000  # that are told apart
MOST_GIVEN = 8  # tensors
FIRST_LOSSES = 6  # whose terms are looked at
DISTANCES = frozenset("mse_loss l1_loss smooth_l1_loss huber_loss".split())
_ADAPTIVE = ("adam", "rms", "adag", "adad", "lion", "rprop", "muon", "sign", "lamb")


@dataclass
class _Step:
    """The step that is under way."""

    batch: int = 0
    digests: list[str] = field(default_factory=list)
    largest: float | None = None
    training: bool = True
    backwards: int = 0
    scale: float = 1.0
    began: list[frozenset[int]] = field(default_factory=list)  # parameters that had gradients at each backward
    weights: Tensor | None = None  # some, at a later backward that began without gradients
    last: dict[int, Tensor] = field(default_factory=dict)  # what gradients that backward brought
    is_used_up: bool = False  # what the backwards brought was used: weights were moved, or gradients put together
    arrived: Tensor | None = None  # a number that is still on its device: reading each would wait for it
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("before", "forward", "backward"), 0.0))


@dataclass
class _Samples:
    """Samples of the parameters that have a gradient, and of these, from before an optimizer's step."""

    parameters: list[Tensor]
    names: list[str]
    rows: Rows
    before: Tensor
    gradients: Tensor
    gradient_rows: Rows
    is_all: bool  # of the optimizer's


@dataclass
class _Mark:
    """Facts known before an optimizer's step; numbers that are still on their device are read after it."""

    was_empty: bool
    scale: float = 1.0
    used: Tensor | None = None
    cosine: Tensor | None = None
    samples: _Samples | None = None


class Learning:
    """Signs of one training. Each method is called at the moment that it is named after."""

    def __init__(self, model: nn.Module, facts: LoopFacts) -> None:
        self._model, self._loop = model, facts
        self._names = {id(p): name for name, p in members.named_parameters_of(model)}
        self._lists = {
            path
            for path, module in members.named_modules_of(model)
            if isinstance(module, (nn.ParameterList, nn.ParameterDict))
        }
        self._whole = sum(p.numel() for p in members.parameters_of(model))
        self._about = ModelFacts(model)
        self.beside = Beside(model)
        self.waits = Waits()
        self.told = OneTarget()
        self._others_left: dict[int, tuple[str, tuple[str, ...], int, int]] = {}  # optimizers whose backwards began so
        self.saves_otherwise = False  # did hooks save numbers for a backward in their own way?
        self._step: _Step | None = None
        self._mark: _Mark | None = None
        self._since = time.perf_counter()
        self._at = 0.0  # when the part that is being timed began
        self._stepping = self._nested = False
        self._backwards = self._skipped = self._restored = 0
        self._first_scale = self._scale = 1.0
        self._last: Tensor | None = None  # gradients of the step before
        self._rows: Rows | None = None
        self._first: Tensor | None = None  # weights before the first step
        self._optimizers: dict[tuple[int, ...], OptimizerFacts] = {}
        self._players: set[frozenset[int]] = set()  # parameters of optimizers that step after a backward of their own
        self._has_others = False  # optimizers without parameters of the model
        self._stale = 0
        self._initial: float | None = None
        self._calls: LeafCalls | None = None
        self._outdated: Counter[str] = Counter()  # forwards in which a linear layer used earlier weights
        self._ran: set[str] = set()
        self._reached: set[int] = set()
        self._cut_at = ""
        self._given: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._inputs: InputFacts | None = None
        self._zeros: dict[str, dict[int, float]] = {}
        self._bounded: dict[str, bool] = {}  # at each look so far
        self._moved: Counter[int] = Counter()
        self._had: Counter[int] = Counter()
        self._rates: dict[int, float | None] = {}
        self._sizes: list[tuple[str, float]] = []
        self._targets, self._features = Targets(), Features()
        self._kinds: Counter[str] = Counter()
        self._believed: bool | None = None
        self._loss = LossFacts()
        self._read = LossRead()
        self._bend = 1.0  # where a loss that is square near zero becomes straight
        self._smoothing = (0.0, 0)  # of labels, and the classes
        self._is_rebuilt: bool | None = None
        self._of_zero: dict[str, tuple[int, int, int]] = {}  # Log and Sqrt: the step, zeros, and elements
        self._emptied: int | None = None
        self._inverted: Counter[str] = Counter()  # looks at attentions with a mask
        self._upright: set[str] = set()  # those of them that saw anything but the padding
        self._bounds: tuple[str, float, float] | None = None  # of what the loss is given
        self._logits: list[float] = []  # their largest magnitude at each look
        self._last_drop = ""  # a dropout that makes what the model returns
        self._cosine: float | None = None  # the sign of a loss that is a cosine
        self._mixed: dict[str, tuple[MixedBatch, int]] = {}  # with the looks that showed it
        self._idle: dict[int, tuple[str, list[Tensor], int]] = {}  # optimizers that never had a gradient: their steps
        self._fed: set[int] = set()  # those that had one
        self._terms = 0
        self._is_divided = False  # is a backward, or a term of it, multiplied with a number below 1?
        self._is_contrast: bool | None = None  # is the class of each row the first of many columns?
        self._looks: Counter[int] = Counter()  # at gradients of parameters
        self._rests: Counter[int] = Counter()  # of which all elements were 0
        self._left: Tensor | None = None  # weights, as the last step left them
        self._between: list[float] = []  # changes of weights from a step to the next one
        self._was: tuple[Tensor, Tensor] | None = None  # rows of weights before the last step, and as it left them
        self._undone: list[float] = []  # of what a step changed, the share that was as before at the next one
        self._empty: list[tuple[int, float]] = []  # the last looks at which a code said nothing
        self._examples: set[int] = set()  # that came so far
        self._pass = 0  # steps of the first pass through the data
        self._uphill: list[bool] = []  # of the first steps: do weights go where gradients point?
        self._up_since, self._up_for = 0, 0  # the step since which they do so in each, and how many have passed
        self._made: dict[int, int | None] = {}  # steps of each optimizer before it was first seen, where it counts them
        self._ahead: dict[str, None] = {}  # modules that see the places that follow
        self._spreads: list[float] = []  # of the inputs, at each look
        self._attracts: bool | None = None  # do all terms of the loss draw results to one another?
        self._both_learn: bool | None = None  # and are these what the model returns?
        self._upside_down: bool | None = None  # is a clipped surrogate minimised?
        self._reaches: list[frozenset[int]] = []  # weights that each term of the last loss depends on
        self._stepped: set[int] = set()  # weights that were changed after it
        self._idle_terms: dict[frozenset[int], list[frozenset[int]]] = {}  # what was changed, and what idle ones reach
        self._weighed: Counter[frozenset[int]] = Counter()  # losses of several terms, by what was changed
        self._parts, self._odd, self._graph = LossParts(), OddLosses(), WholeGraph()
        self._amounts, self._arrivals = Amounts(), Arrivals()
        self._interleaved: tuple[int, float, float] | None = None
        self._neighbours: tuple[str, float, float] | None = None  # a matrix of these that is multiplied by their number
        self._infinite: tuple[int, int, int] | None = None  # the step, targets that are not finite, and all of it
        self._are_of_places = False  # has each place of an example a target?
        self._answers = AlikeAnswers()
        self._asked: list[Sign] = []  # what answers to changed questions showed
        self._target_sizes: tuple[int, ...] | None = None
        self._is_still = False  # was the gradient of the last step exactly 0?
        self._dead: tuple[str, int] | None = None  # a function that returned only zeros then, and a weight behind it
        self._outside: tuple[str, float, float, float] | None = None  # an operation, the step, numbers, and all of them
        self._taken: float | None = None  # root mean square of what the first layer takes
        self._after_step = 0  # backwards that came after the step that they were for
        self._forwards = 0  # since the last backward
        self._handed: list[bool] = []  # was each given what the one before returned, without its gradient?
        self._detached: dict[str, bool] = {}  # modules, or the model itself, that always are
        self._repeated, self._turned = Repeated(), Turned()
        self._is_again = False  # did most examples of the batch come before?
        self._late: list[tuple[Tensor, Tensor]] = []  # small gradients that the last step used, with what they were
        self._clipped_late: list[float] = []  # by how much gradients were scaled after a step

    @staticmethod
    def looks_at(number: int) -> bool:
        """Are the innermost calls of this step looked at?"""
        is_early = number < EARLY and number % OFTEN == number // OFTEN % 2  # in turn: of optimizers that take turns
        power = max(number.bit_length() - 1, 0)
        return number < 3 or is_early or number == (1 << power) + power % 2

    def observer(self, sites: Sites) -> LeafCalls:
        """Return an observer of the innermost calls of the forward that begins."""
        self._calls = LeafCalls(sites)
        return self._calls

    @property
    def last_loss(self) -> tuple[LossRead, str, Sequence[Tensor]]:
        """The loss of the last backward: what its graph tells, how its terms were put together, the model's results."""
        return self._read, self._loss.reduction, self._outputs

    @property
    def products(self) -> Set[int]:
        """The ids of weights that are only multiplied with or looked up, as far as the first steps show."""
        return self._graph.products

    # The forward ---------------------------------------------------------------------------------

    def before_forward(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the inputs."""
        now = time.perf_counter()
        given = [tensor for _, tensor in named_tensors((args, kwargs)) if not tensor.is_meta]
        step = self._step
        if step is None:
            step = self._step = _Step(training=self._model.training)
            step.seconds["before"] = now - self._since
            with untracked():
                self._note_clipped_late()
        if self._forwards and given:
            made = set(storages_of(self._outputs))
            own = [t for t in given if type(t) is Tensor and storages_of([t])[0] in made]
            self._handed.append(bool(own) and not any(t.requires_grad for t in own))
        self._calls = None
        self._forwards += 1
        self._given = given
        if given:
            with untracked():
                if self.looks_at(number) and given[0].is_floating_point() and given[0].numel() > 1:
                    self._spreads.append(float(_wide(given[0].detach()).std()))
                step.batch = given[0].shape[0] if given[0].dim() else 1
                step.digests.append(digest_of(given))
                self.beside.stored.note(given[0], step.digests[-1])
                if (not self._pass or self.looks_at(number)) and len(self._examples) < MOST_EXAMPLES:
                    self._note_pass(number, rows_of(given[0]), step.batch)
                sizes = [float(t.detach().abs().max()) for t in given[:2] if t.is_floating_point() and t.numel()]
                step.largest = max([*sizes, *([] if step.largest is None else [step.largest])], default=None)
        if self.looks_at(number) or step.training != self._model.training or not self._about.modes:
            self._about.note_modes()
            step.training = self._model.training
        for one in given[:MOST_GIVEN] if number < WHOLE else ():
            if type(one) is Tensor and one._base is not None:
                self._graph.viewed |= viewed_before(one._base, one)
        if self._inputs is None and number == 0 and given and given[0].is_floating_point() and given[0].numel() > 1:
            with untracked():
                self._inputs = _inputs(given[0])
                self._interleaved = interleaved(given[0])
        if number == 0 and self._neighbours is None:
            with untracked():
                buffers = [one for _, one in members.named_buffers_of(self._model)]
                self._neighbours = multiplied([*given[:MOST_GIVEN], *buffers])
        self._at = time.perf_counter()

    def _note_pass(self, number: int, rows: Sequence[int], batch: int) -> None:
        """Note the step in which most examples come back, as far as they are known: a pass through the data is over."""
        known = sum(row in self._examples for row in rows)
        self._is_again = len(rows) > 1 and 2 * known > len(rows)
        if not self._pass and len(rows) > 1 and known > len(rows) ** 2 / batch / 2:
            self._pass = number
        self._examples.update(rows)

    def _note_clipped_late(self) -> None:
        """Note that gradients which a step has used are smaller now, all by one factor: they were clipped after it."""
        held, self._late = self._late, []
        factors = [float(now.abs().sum() / then.abs().sum()) for now, then in held if bool(then.any())]
        alike = [
            torch.allclose(now, factor * then, rtol=NARROW, atol=0.0)
            for factor, (now, then) in zip(factors, [one for one in held if bool(one[1].any())], strict=True)
        ]
        if alike and all(alike) and 0 < max(factors) < SAME and max(factors) - min(factors) < NARROW:
            self._clipped_late.append(max(factors))

    def begin_without_forward(self) -> None:
        """Begin a step whose forward is that of parts of the model, which are called by themselves."""
        if self._step is None:
            self._step = _Step(training=self._model.training)
            self._given, self._outputs = [], []

    def forget_step(self) -> None:
        """Forget the step that is under way."""
        self._step = self._calls = None
        self._given, self._outputs = [], []

    def after_forward(self, outputs: Iterable[Tensor]) -> None:
        """Note the tensors that the model returned."""
        if self._step is not None:
            self._step.seconds["forward"] += time.perf_counter() - self._at
        self._outputs = [t for t in outputs if t.requires_grad]
        if self._calls is not None and self._outputs:
            self.beside.copies.note_own(self._outputs[0])
        if self._step is not None and self._calls is not None and self._given and self._outputs:
            with untracked():
                self._answers.look(self._loop.steps, self._given[0], self._outputs[0], self._calls)
        if self._calls is not None:
            self._ran |= self._calls.ran
            self._ahead |= dict.fromkeys(self._calls.ahead)
            first = self._calls.first_given
            if first is not None and self._taken is None and first.numel():
                with untracked():
                    self._taken = float(_wide(first).square().mean().sqrt())
            if first is not None and self._given and viewed_for_moved(self._given[0], first):
                self._graph.viewed |= {sizes_told(tuple(self._given[0].shape), tuple(first.shape)): None}
            for path, count in self._calls.again.items():
                is_cut = count >= FEWEST_AGAIN and self._calls.detached[path] == count
                self._detached[path] = is_cut and self._detached.get(path, True)
            self._note_masks()
            self._note_last_dropout(self._calls)
            self._outdated.update([*dict.fromkeys(self._calls.outdated)])
            first = self._calls.calls[0].module if self._calls.calls else None
            if self._inputs is not None and isinstance(first, NORMALISATIONS) and not self._inputs.normed:
                old = self._inputs
                self._inputs = InputFacts(old.mean, old.deviation, old.largest, old.size, True, old.learned, old.alike)

    def _note_masks(self) -> None:
        """Note attentions that are told to ignore all tokens, and to look at the padding."""
        ids = next((t for t in self._given if not t.is_floating_point() and t.dim() == 2), None)
        for path, ignored in self._calls.ignored if self._calls is not None and ids is not None else ():
            with untracked():
                is_inverted = keeps_padding_alone(ignored, ids.detach())  # type: ignore[union-attr]
            if is_inverted is not None:
                self._upright |= set() if is_inverted else {path}
                self._inverted[path] += 1

    def _note_last_dropout(self, calls: LeafCalls) -> None:
        """Note a dropout that makes what the model returns."""
        last = calls.calls[-1] if calls.calls else None
        if last is not None and self._outputs and isinstance(last.module, nn.Dropout) and last.module.training:
            made = {ref.cdata for ref in last.written if not ref.expired()}
            self._last_drop = last.path if made & set(storages_of(self._outputs[:1])) and last.module.p > 0 else ""

    # The backward --------------------------------------------------------------------------------

    def before_backward(self, number: int, root: Tensor, scale: float) -> None:
        """Read in the graph what the loss is; note whether gradients are there already."""
        step = self._step
        if step is None:
            return
        step.backwards += 1
        self._backwards += 1
        self._nested = self._nested or self._stepping
        if scale < self._scale and self._backwards > 1:
            self._skipped += 1
        if self._backwards == 1:
            self._first_scale = scale
        self._scale = step.scale = scale
        with untracked():
            step.began.append(self._with_gradients())
            if step.backwards > 1 and not step.began[-1]:
                self._note_use(step)
        self._look_at_loss(number, root, scale)
        self._look_at_terms(root)
        if self._backwards <= FIRST_LOSSES * 2:
            with untracked():
                self.told.look(root)
        if number < WHOLE and step.backwards <= 2:
            self._look_at_graph(root)
        if self._is_still and not self._dead and number >= WHOLE and not self.saves_otherwise:
            with untracked():
                self._dead = dead_in(root)
        if len(self._handed) >= FEWEST_AGAIN:
            self._detached[""] = all(self._handed) and self._detached.get("", True)
        self._forwards, self._handed = 0, []
        self._at = time.perf_counter()

    def before_other_backward(self) -> None:
        """Take stock of the terms of the loss before: steps that follow are for another loss."""
        if self._stepped:
            self._note_idle_terms()
            self._reaches = []

    def let_go(self) -> None:
        """Let go of results and of the loss's graph that nobody else holds: the backward frees what is large there."""
        held = [TensorWeakRef(tensor) for tensor in self._outputs]
        self._outputs, self._read = [], LossRead()
        self._outputs = [tensor for one in held if (tensor := one()) is not None]

    def _ends(self) -> list[Tensor]:
        """Return the first and the last parameters of each optimizer."""
        own = self._loop.parameters
        players = [[p for p in own if id(p) in player] for player in self._players] or [own]
        return [p for mine in players for p in (mine if len(mine) <= 2 * ENDS else [*mine[:ENDS], *mine[-ENDS:]])]

    def _note_use(self, step: _Step) -> None:
        """Note whether weights have moved since an earlier backward of the step: its gradients were for that."""
        ends = self._ends()
        now = joined([sample(p, FEW) for p in ends]) if ends else None
        if now is not None and step.weights is not None and not torch.equal(now, step.weights):
            step.is_used_up = True
        step.weights = now

    def _with_gradients(self) -> frozenset[int]:
        """Return which of the first and the last parameters of each optimizer have gradients that are not 0."""
        some = {id(p): p.grad for p in self._ends() if p.grad is not None}
        if not some:
            return frozenset()
        counts = torch.stack(
            [sample(g, FEW).count_nonzero().to(next(iter(some.values())).device) for g in some.values()]
        )
        return frozenset([key for key, count in zip(some, counts.tolist()) if count])

    def _look_at_loss(self, number: int, root: Tensor, scale: float) -> None:
        read = read_loss(root, self._outputs)
        self._kinds[read.kind] += 1
        self._terms = max(self._terms, read.terms)
        value = number_of(root) / scale
        looks = self.looks_at(number) or self._backwards <= 3
        if looks:
            self._is_divided = self._is_divided or is_divided(root)
            self._note_code(number, root)
            self._parts.look(root, self._outputs, is_again=self._is_again)
            self._odd.look(root, self._outputs, self._given)
            self._amounts.look(root, self._outputs, self._given, read)
            self._arrivals.look(root, self._outputs)
            with untracked():
                self._cosine = None if read.kind else cosine_factor(root, self._outputs)
        if looks or not self._believed or value != value or abs(value) == float("inf"):
            self._look_for_zeros(number, root)
        if value != value or abs(value) == float("inf"):
            self._note_outside(number, root)
        target = read.target if read.difference is None else self._target_behind(read)
        if not read.kind:
            self._read = read
            return
        factor = read.factor / scale
        if looks:
            self._note_bounds(number, read)
            self._is_contrast = self._is_contrast is not False and is_first_of_many(read)
            self._parts.look_at_logits(read.prediction)
        if looks or self._believed is None:
            found = computed_again(read)
            reduction = "" if found is None else _reduction(found, value / factor if factor else 0.0, root)
            if value == value and abs(value) != float("inf"):
                rebuilt = bool(reduction) and target is not None
                believed = rebuilt and takes_output(read, self._outputs)
                self._is_rebuilt = rebuilt if self._is_rebuilt is None else self._is_rebuilt and rebuilt
                self._believed = believed if self._believed is None else self._believed and believed
            if found is not None and (reduction or not self._loss.kind):
                self._loss = LossFacts(
                    kind=read.kind, reduction=reduction, elements=int(found[1]), factor=short(factor) or 0.0,
                    divided=abs(factor) != 1.0, over_batch=read.over_batch,
                )  # fmt: skip
        self._read, self._bend = replace(read, target=target), read.bend
        if read.smoothing:
            self._smoothing = read.smoothing, read.classes
        if target is not None:
            answer = self._outputs[0] if self._outputs else None
            self.beside.copies.note_target(target)
            self._targets.add(read, target, self._given, answer, start_of(read, self._outputs))
            made = tuple(self._outputs[0].shape[:-1]) if self._outputs and self._outputs[0].dim() == 3 else ()
            self._are_of_places = bool(made) and target.numel() in (math.prod(made), self._outputs[0].numel())
            if self._infinite is None and not math.isfinite(value):
                self._note_infinite(number, target)
            if looks:
                self._targets.note_reach(number, target)
            if self._targets.is_empty and self._emptied is None:
                self._emptied = number
            self._note_mixed(tuple(target.shape))
            self._target_sizes = tuple(target.shape)
            if self._calls is not None and looks:
                with untracked():
                    first = self._given[0] if self._given else None
                    self._targets.note_tables(self._calls.read, self._given)
                    self._targets.hold_read(target, read.ignore, self._calls.last_read, first)
            if self._calls is not None and self._calls.last_linear is not None:
                examples = len(self._given[0]) if self._given and self._given[0].dim() else 0
                self._features.add(self._calls.last_linear, target, read.kind, read.ignore, examples)
            if self._forwards == 1 and self._given:
                if any(made.numel() > 1 for made in self._outputs):  # else the model made its loss, and may have drawn
                    self._repeated.add(self._given, target)
                if looks and not any(one.shape == self._given[0].shape for one in self._given[1:]):  # of one picture
                    self._turned.add(self._given[0], target)

    def _look_at_terms(self, root: Tensor) -> None:
        """Note what the terms of the first losses are, and which weights each of them depends on."""
        self._note_idle_terms()
        self._reaches = []
        if self._backwards > FIRST_LOSSES:
            return
        terms = terms_of(root, self._outputs)
        self._attracts = (self._attracts is not False) and bool(terms) and all(one.attracts for one in terms)
        made = {behind_views(one.grad_fn) for one in self._outputs}
        self._both_learn = (
            (self._both_learn is not False) and self._attracts and all(made.issuperset(one.sides) for one in terms)
        )
        self._upside_down = (self._upside_down is not False) and any(one.is_surrogate_upside_down for one in terms)
        self._stepped = set()
        if len(terms) > 1:
            self._reaches = [ids for one in terms if (ids := reached_by(one))]

    def _note_idle_terms(self) -> None:
        """Note terms of the loss before that depend on none of the weights that were changed after it."""
        if not self._reaches or not self._stepped:
            return
        changed = frozenset(self._stepped)
        self._weighed[changed] += 1
        idle = next((ids for ids in self._reaches if not ids & changed), None)
        if idle is not None:
            self._idle_terms.setdefault(changed, []).append(idle)

    def _note_infinite(self, number: int, target: Tensor) -> None:
        """Note targets that are not finite, where the loss is not and what the model returned is.

        Targets may be known by their distance from an answer alone.
        """
        with untracked():
            if not all(bool(made.detach().isfinite().all()) for made in self._outputs):
                return
            count = int((~target.detach().isfinite()).sum())
        self._infinite = (number, count, target.numel()) if count else None

    def _note_bounds(self, number: int, read: LossRead) -> None:
        """Note what keeps the answers within bounds, and whether the logits of classes stay within 1."""
        self._bounds = bounds_of(read)
        if self._bounds is not None and self._bounds[0] == "relu" and self._outputs:
            with untracked():
                self._note_zeros(AT_THE_END, number, float((self._outputs[0].detach() == 0).float().mean()))
        if read.kind == "cross_entropy" and self._outputs and self._outputs[0].is_floating_point():
            with untracked():
                self._logits.append(float(self._outputs[0].detach().abs().max()))

    def _note_code(self, number: int, root: Tensor) -> None:
        """Note whether the mean and the log-variance of a code are those of its prior, for all examples."""
        for mean, variance in gaussians(root, self._outputs):
            with untracked():
                m, v = _wide(mean.detach()), _wide(variance.detach())
                found = float(0.5 * (m.square() + v.exp() - 1 - v).sum()) / max(
                    len(m) * (m.shape[1] if m.dim() == 3 else 1) if m.dim() else 1, 1
                )
            if found < NO_CODE:
                self._empty.append((number, found))
            else:
                self._empty.clear()
            return

    def _target_behind(self, read: LossRead) -> Tensor | None:
        """Return what a prediction was compared with, from their difference; ``None`` where rounding hides it."""
        for output in self._outputs:
            difference = read.difference
            with untracked():
                answer = answer_of(output, read.prediction)
                if difference is not None and answer is not None and answer.numel() == difference.numel() > 0:
                    target = answer.reshape(difference.shape) - difference
                    slack = torch.finfo(target.dtype).eps * float(answer.abs().max())
                    return target if slack < KNOWN * float(target.abs().max()) or not slack else None
        return None

    def _note_mixed(self, target: tuple[int, ...]) -> None:
        """Note modules whose sequence is the batch."""
        for call in (self._calls.sequences if self._calls is not None else ()) if target else ():
            goes_over = call.goes_over(target[0], target)
            if goes_over:
                is_single = len(call.sizes) < 3 or call.sizes[1 - call.dimension] == 1
                mixed = MixedBatch(call.path, call.type, call.sizes, call.dimension, is_single)
                self._mixed[call.path] = mixed, self._mixed.get(call.path, (mixed, 0))[1] + 1
            elif goes_over is not None:
                self._mixed.pop(call.path, None)

    def _look_for_zeros(self, number: int, root: Tensor) -> None:
        """Look for logarithms and roots of 0."""
        for kind, numbers in logarithms_and_roots(root, self._outputs):
            if kind not in self._of_zero:
                with untracked():
                    zeros = int((numbers.detach() <= 0).sum())
                if zeros:
                    self._of_zero[kind] = (number, zeros, numbers.numel())

    def _note_outside(self, number: int, root: Tensor) -> None:
        """Note which operation of a loss that is not finite was the first to get what it has no result for."""
        if self._outside is None and all(bool(made.detach().isfinite().all()) for made in self._outputs):
            with untracked():
                found = out_of_domain(root, self._outputs)
            self._outside = None if found is None else (found[0], float(number), *found[1:])

    def _look_at_graph(self, root: Tensor) -> None:
        calls = self._calls
        keeps_all = not self.saves_otherwise and (calls is None or calls.keeps_all)
        self._graph.walk(
            root, self._given, self._outputs, self._read.target, keeps_all=keeps_all,
            is_distance=self._read.kind in DISTANCES,
        )  # fmt: skip
        if calls is not None and not self._cut_at:
            missing = {
                self._names[id(p)].rpartition(".")[0]
                for p in members.parameters_of(self._model)
                if p.requires_grad and id(p) not in self._graph.weights and p.grad is None
            }
            self._cut_at = place_of_cut(calls.calls, missing & self._ran, storages_of(self._given))

    def _note_zeros(self, path: str, number: int, share: float) -> None:
        self._zeros.setdefault(path, {})[number] = share

    def on_clip(self, parameters: Any, bound: float, norm: float, own: frozenset[int]) -> None:
        """Note that gradients are about to be clipped."""
        with untracked():
            self.beside.clipping.note(parameters, bound, norm, own, self._step.backwards if self._step else 0)

    def after_backward(self, number: int) -> None:
        """Note the size of the gradients, before anybody clips or clears them."""
        step = self._step
        if step is None:
            self._after_step += int(any(p.grad is not None for p in self._loop.parameters))
            return
        step.seconds["backward"] += time.perf_counter() - self._at
        with untracked():
            own = [p for p in self._loop.parameters if p.grad is not None]
            if self.looks_at(number) or number < 5:
                self._reached.update(map(id, own))
            mine = [p for p in own if id(p) in self._loop.optimised or not self._loop.optimised]
            found = [sample(p.grad) for p in mine if p.grad is not None]
            step.arrived = _norm(joined(found)) if found else torch.zeros(())
            if step.weights is not None:
                step.last = {id(p): one.clone() for p, one in zip(mine, found, strict=True)}  # before they change
        if self._calls is not None:
            for call in self._calls.calls:
                if call.zeros is not None:
                    self._note_zeros(call.path, number, call.zeros)
                elif call.bounded is not None:
                    self._bounded[call.path] = self._bounded.get(call.path, True) and call.bounded >= BOUNDED
                elif call.is_given_zeros is not None:
                    self._note_zeros(f"what is before {call.path}", number, float(call.is_given_zeros))
            self._calls = None

    # The optimizer -------------------------------------------------------------------------------

    def on_other_step(self, optimizer: Optimizer) -> None:
        """Note an optimizer whose steps do not count: it may have parameters of the model."""
        self._note_optimizer(optimizer)
        self.told.on_step({id(p) for group in optimizer.param_groups for p in group["params"]})
        self._stepped |= {id(p) for group in optimizer.param_groups for p in group["params"]}

    def before_step(self, optimizer: Optimizer) -> None:
        """Take samples of the gradients that a step uses, and of the weights that it is about to change."""
        self._at = time.perf_counter()
        self._stepping = True
        self._mark = None
        self._note_optimizer(optimizer)
        if id(optimizer) not in self._made:
            self._made[id(optimizer)] = steps_made(optimizer)
        self.beside.before_step(optimizer)
        if self._step is None:
            self._step = _Step(training=self._model.training)
        parameters = [p for group in optimizer.param_groups for p in group["params"] if id(p) in self._names]
        with_gradient = [p for p in parameters if p.grad is not None]
        self._note_idle(optimizer, parameters, is_fed=bool(with_gradient))
        with untracked():
            if self._step.weights is not None:
                self._note_use(self._step)
                self._step.is_used_up = self._step.is_used_up or _are_others(with_gradient, self._step.last)
            weights = joined([sample(p) for p in parameters]) if parameters else None
            left, self._left = self._left, None
            if left is not None and weights is not None:
                self._note_change(left, weights)
            if self._first is None:
                self._first = weights
            elif weights is not None and any(self._moved.values()) and weights.shape == self._first.shape:
                self._restored += int(bool(torch.equal(weights, self._first)))
            self._mark = _Mark(not optimizer.state, used=None if weights is None else torch.zeros(()))
            if with_gradient and weights is not None:
                everything = len(with_gradient) == len(parameters)
                self._take_samples(self._mark, with_gradient, weights if everything else None)
                scale = getattr(optimizer, "grad_scale", None)
                self._mark.scale = 1.0 if scale is None else number_of(scale)
        self._at = time.perf_counter()

    def _note_change(self, left: Tensor, weights: Tensor) -> None:
        """Note that weights are others than the step before left."""
        was, self._was = self._was, None
        if left.shape == weights.shape and not torch.equal(left, weights):
            self._between.append(float(_norm(weights - left)) / max(float(_norm(weights)), 1e-30))
            if was is not None and len(self._undone) < EARLY and self._rows is not None:
                self._undone.append(_undone(was[0], was[1], self._rows.of(weights)))

    def _note_idle(self, optimizer: Optimizer, parameters: list[Tensor], *, is_fed: bool) -> None:
        """Note an optimizer whose parameters ask for gradients, and never had one."""
        key = id(optimizer)
        if is_fed:
            self._fed.add(key)
            self._idle.pop(key, None)
        elif key not in self._fed and all(p.requires_grad for p in parameters):
            self._idle[key] = type(optimizer).__name__, parameters, self._idle.get(key, ("", [], 0))[2] + 1

    def _take_samples(self, mark: _Mark, parameters: list[Tensor], weights: Tensor | None) -> None:
        """Take samples of gradients, and of weights where they are not known yet."""
        before = [sample(p) for p in parameters]
        gradients = [sample(p.grad) for p in parameters if p.grad is not None]
        if self._rows is None or self._rows.counts != counts_of(before):
            self._rows = Rows(before)
        rows = self._rows
        now = joined(gradients)
        mark.used = _norm(now)
        if self._last is not None and self._last.shape == now.shape:
            mark.cosine = torch.nn.functional.cosine_similarity(_wide(now), _wide(self._last), 0)
        self._last = now
        mark.samples = _Samples(
            parameters, [self._names[id(p)] for p in parameters], rows, joined(before) if weights is None else weights,
            now, rows if counts_of(gradients) == rows.counts else Rows(gradients, rows.width),
            weights is not None,
        )  # fmt: skip

    def _note_optimizer(self, optimizer: Optimizer) -> None:
        given = [p for group in optimizer.param_groups for p in group["params"]]
        key = (id(optimizer), len(given))
        if key in self._optimizers:
            return
        own = {id(p) for p in given} & self._names.keys()
        shapes = Counter(tuple(p.shape) for p in members.parameters_of(self._model) if id(p) not in own)
        others = [p for p in given if id(p) not in own]
        alike = sum((Counter(tuple(p.shape) for p in others) & shapes).values())
        name = type(optimizer).__name__
        adapts = name.lower().startswith(_ADAPTIVE)
        if len(self._optimizers) < 32:
            settings = _settings_of(optimizer)
            self._optimizers[key] = OptimizerFacts(name, len(given), len(own), alike, adapts, settings)
        self._has_others = self._has_others or not own
        if own:
            self._stale = max(self._stale, len(others))
            for group in optimizer.param_groups:
                rate = group.get("lr")
                self._rates |= dict.fromkeys(map(id, group["params"]), rate if isinstance(rate, float) else None)
        first = optimizer.param_groups[0].get("initial_lr") if optimizer.param_groups else None
        if self._initial is None and isinstance(first, (int, float)):
            self._initial = float(first)

    def after_step(self, number: int, optimizer: Optimizer) -> StepSigns | None:
        """Return the signs of a step that has ended."""
        step, mark = self._step, self._mark
        seconds = time.perf_counter() - self._at
        self._stepping = False
        self._step = self._mark = None
        self.beside.after_step(number, self._loop.optimised)
        self._since = time.perf_counter()
        loading = short(self.waits.take())
        self._targets.end_step()
        self._given, self._outputs, self._read = [], [], LossRead()  # as large as the program's: none outlives a step
        if step is None:
            return None
        given = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._stepped |= given
        self.told.on_step(given)
        with untracked():
            own = [p.grad for p in self._loop.parameters if id(p) in given and _is_small(p.grad)][:FEW_GRADIENTS]
            self._late = [(one, one.clone()) for one in own if one is not None]
        if step.backwards:
            self._players.add(frozenset(given & self._names.keys()))
        began = [
            bool(one & given) for one in step.began
        ]  # gradients of another optimizer's are no business of this one
        self._note_left(optimizer, given, carried=bool(began) and all(began))
        update = unmoved = None
        used = cosine = arrived = None
        if mark is not None and mark.samples is not None:
            with untracked():
                update, unmoved = self._measured(number, mark.samples)
        if mark is not None:
            used = None if mark.used is None else number_of(mark.used) / mark.scale
            cosine = None if mark.cosine is None else number_of(mark.cosine)
        if step.arrived is not None:
            arrived = number_of(step.arrived) / step.scale
            self._is_still = arrived == 0
        fresh = mark is not None and mark.was_empty and bool(optimizer.state)
        decays = [group.get("weight_decay") for group in optimizer.param_groups]
        digest = f"{sum(int(one, 16) for one in step.digests) % (1 << 32):08x}" if step.digests else ""
        return StepSigns(
            number, step.batch, digest, short(step.largest), step.training, step.backwards, step.scale,
            carried=bool(began) and all(began), cleared=len(began) > 1 and not any(began[1:]) and not step.is_used_up,
            added=_added(began), arrived=short(arrived), used=short(used), update=short(update), unmoved=short(unmoved),
            cosine=short(cosine),
            decay=max([float(one) for one in decays if isinstance(one, (int, float))], default=0.0), fresh=fresh,
            before=short(step.seconds["before"]) or 0.0, forward=short(step.seconds["forward"]) or 0.0,
            backward=short(step.seconds["backward"]) or 0.0, optimizer=short(seconds) or 0.0, loading=loading,
        )  # fmt: skip

    def _note_left(self, optimizer: Optimizer, given: set[int], *, carried: bool) -> None:
        """Count the steps of an optimizer whose backwards all began with gradients."""
        key = id(optimizer)
        _, some, steps, times = self._others_left.get(key, ("", (), 0, 0))
        some = some or tuple([self._names[one] for one in given if one in self._names][:MOST_NAMED])
        self._others_left[key] = type(optimizer).__name__, some, steps + 1, times + int(carried)

    def _with_leftovers(self) -> list[Sign]:
        """Return optimizers that step with gradients of the losses of others."""
        if len(self._players) < 2 or self._nested:
            return []
        return [
            Sign("carried", (name, *some), (float(times), float(steps)))
            for name, some, steps, times in self._others_left.values()
            if steps >= OFTEN and times >= MOSTLY * (steps - 1)
        ][:1]

    def _measured(self, number: int, taken: _Samples) -> tuple[float | None, float | None]:
        """Return the median update of the matrices, and the share of live elements that did not move."""
        weights = joined([sample(p) for p in taken.parameters])
        self._left = weights if taken.is_all else None
        was, now = taken.rows.of(taken.before), taken.rows.of(weights)
        self._was = (was, now) if taken.is_all else None
        gradients = taken.gradient_rows.of(taken.gradients)
        live, moved = gradients != 0, now != was
        columns = [
            (live & ~moved).sum(1), live.sum(1), moved.sum(1), _norms(now - was), _norms(was), _norms(gradients),
            ((now - was) * gradients).sum(1) if gradients.shape == was.shape else torch.zeros(len(was)),
        ]  # fmt: skip
        found = torch.stack([one.to(was.device, was.dtype) for one in columns], 1).tolist()
        if taken.gradient_rows is not taken.rows:  # elements of a sparse gradient are others than those of its weight
            for row, count, other in zip(found, taken.rows.counts, taken.gradient_rows.counts):
                row[:3] = row[:3] if count == other else (0, 1, 1)
        if number < OFTEN or self.looks_at(number):
            self._note_moves(taken, found)
        if number < EARLY and len(self._uphill) < EARLY:
            along = float(((now - was) * gradients).sum())
            self._uphill += [along > 0] if along and math.isfinite(along) else []
        self._note_way(number, sum(row[6] for row in found))
        live_elements = sum(row[1] for row in found)
        sized = [(p, row[3] / row[4]) for p, row in zip(taken.parameters, found) if p.dim() > 1 and row[4]]
        from_zero = {id(p) for _, p in self._about.zero}  # what is added to nothing is large beside it
        ratios = [ratio for p, ratio in sized if id(p) not in from_zero] or [ratio for _, ratio in sized]
        share = sum(row[0] for row in found) / live_elements if live_elements else None
        return (median(ratios) if ratios else None), share

    def _note_way(self, number: int, along: float) -> None:
        """Note since when each step has gone where gradients point."""
        if along > 0:
            self._up_since, self._up_for = (self._up_since, self._up_for + 1) if self._up_for else (number, 1)
        elif along:  # of a rate of 0 it is 0
            self._up_for = 0

    def _note_moves(self, taken: _Samples, found: Sequence[Sequence[float]]) -> None:
        self._sizes = []
        counts, largest = taken.gradient_rows.counts, max([row[5] for row in found], default=0.0)
        for p, name, count, (_, live, moved, _, _, size, _) in zip(taken.parameters, taken.names, counts, found):
            if type(p.grad) is Tensor and p.grad.layout is torch.strided:
                self._looks[id(p)] += 1
                self._rests[id(p)] += int(not size and not bool(p.grad.any()))
            if live and size > ROUNDING * largest:  # else it cancels: of a bias that the loss does not depend on
                self._had[id(p)] += 1
                self._moved[id(p)] += int(moved > 0)
            if p.dim() > 1:
                self._sizes.append((name, size / max(count, 1) ** 0.5))

    def ask_again(self, held: HeldForward, method: str) -> None:
        """Ask the model again what it was asked in this step, with changes."""
        self._asked = asked_again(self._model, held, method, self._target_sizes)

    # What they tell together ---------------------------------------------------------------------

    def facts(self, number: int, *, draws: bool = True) -> LearningFacts:
        """Return the facts about the loop at a step; with ``draws`` also those that targets drawn at random tell."""
        own = list(members.named_parameters_of(self._model))
        trainable = [(name, p) for name, p in own if p.requires_grad]
        gone = [(n, p) for n, p in trainable if id(p) not in self._reached and p.grad is None and self._reached]
        ran = [(n, p) for n, p in gone if self._owner(n) in self._ran]
        missing, elements = self._loop.unoptimised
        norms, resting, unused = self._about.norms()
        drops, drops_resting, strong, strongest = self._about.drops()
        still = [(n, p) for n, p in trainable if self._had[id(p)] >= 5 and not self._moved[id(p)]]
        sizes = [one for one in self._sizes if one[1] == one[1]]
        silent, died, died_at = self._silent()
        modules = dict.fromkeys(name.rpartition(".")[0] for name, _ in own)
        idle_of, idle, idle_steps = max(self._idle.values(), key=lambda one: one[2], default=("", [], 0))
        large, largest_gain, gain = self._about.large()
        widths = Counter[str]()
        for _, p in own:
            widths[str(p.dtype)[6:]] += p.numel()
        return LearningFacts(
            number=number,
            loss=self._loss_facts(draws),
            optimizers=tuple(self._optimizers.values()),
            inputs=self._inputs,
            missing=Names(tuple(missing[:4]), len(missing), round(elements / max(self._whole, 1), 6)),
            stale=self._stale,
            cut=names_of(ran, self._whole),
            cut_at=self._cut_at if ran else "",
            unused=names_of([one for one in gone if one not in ran], self._whole),
            still=names_of(still, self._whole) if len(still) < len(self._had) else Names(),
            still_rate=next((self._rates.get(id(p)) for _, p in still), None),
            zero=names_of(self._about.zero, self._whole),
            matrices=self._about.matrices,
            untied=self._about.untied(),
            norms=norms,
            norms_in_eval=resting,
            norms_unused=unused,
            drops=drops,
            drops_in_eval=drops_resting,
            strong_drops=strong,
            strongest=strongest,
            frozen_fresh=self._about.frozen_fresh(),
            linear=self._graph.linear,
            silent=silent,
            died=died,
            died_at=died_at,
            first_gradient=(sizes[0][0], short(sizes[0][1]) or 0.0) if sizes else None,
            last_gradient=(sizes[-1][0], short(sizes[-1][1]) or 0.0) if sizes else None,
            depth=len(sizes),
            initial_rate=self._initial,
            restored=self._restored,
            skipped=self._skipped,
            first_scale=self._first_scale,
            last_scale=self._scale,
            backwards=self._backwards,
            alone=len(self._players) <= 1 and not self._has_others,
            nested=self._nested,
            dtype=widths.most_common(1)[0][0] if widths else "",
            maximizes=self._loop.maximizes,
            outdated=tuple([path for path in modules if self._outdated[path] > 1][:MOST_NAMED]),
            answers_alike=self._answers.since,
            idle=names_of([(self._names[id(p)], p) for p in idle], self._whole),
            idle_of=idle_of,
            idle_steps=idle_steps,
            anew=len([p for name, p in own if name in set(missing) and id(p) not in self._names]),
            called=self._loop.ran,
            resting=names_of(
                [(n, p) for n, p in trainable if SURE_LOOKS <= self._looks[id(p)] == self._rests[id(p)]], self._whole
            ),
            changed_between=len(self._between),
            change_between=short(median(self._between)) if self._between else None,
            empty_code=(self._empty[0][0], self._empty[-1][1]) if len(self._empty) >= SURE_LOOKS else None,
            large=large,
            largest_gain=short(largest_gain) or 0.0,
            gain=short(gain),
            small=self._about.small(),
            alike=self._about.alike(),
            bounded=tuple([path for path, always in self._bounded.items() if always][:MOST_NAMED]),
            schedule=self._loop.schedule,
            last_drop=self._last_drop,
            ahead=self._loop.ahead or 0,
            inverted=tuple(
                [one for one, looks in self._inverted.items() if looks > 1 and one not in self._upright][:4]
            ),
            detached=names_of([one for one in ran if id(one[1]) in self._loop.optimised], self._whole)
            if not self._cut_at
            else Names(),
            mixed=next((mixed for mixed, looks in self._mixed.values() if looks > 1), None),
            over_one=self._graph.over_one,
            spreads=(short(self._spreads[0]) or 0.0, short(median(self._spreads[-SURE_LOOKS:])) or 0.0)
            if len(self._spreads) > 2 * SURE_LOOKS and _goes_one_way(self._spreads)
            else None,
            clipped_late=(len(self._clipped_late), short(median(self._clipped_late)) or 0.0)
            if len(self._clipped_late) >= SURE_LOOKS
            else None,
            constants=self._about.constants(),
            viewed=next(iter(self._graph.viewed), None),
            interleaved=self._interleaved,
            lost=self._answers.lost,
            one_way=self._answers.one_way,
            idle_term=self._idle_term(own),
            sees_ahead=tuple([*self._ahead, *sorted(self._graph.softmaxes - {"over batch"})][:MOST_NAMED]),
            uphill=sum(self._uphill) / len(self._uphill) if len(self._uphill) >= OFTEN else 0.0,
            first_pass=self._pass,
            kept=self._kept(),
            asleep=names_of([one for one in gone if one not in ran and id(one[1]) in self._loop.optimised], self._whole)
            if self._ran
            else Names(),
            weighs_examples="over batch" in self._graph.softmaxes,
            parts=replace(self._parts.facts(), shown=self._shown()),
            after_step=self._after_step,
            places_alike=self._answers.places if self._are_of_places else None,
            taken=short(self._taken),
            infinite_targets=self._infinite,
            beside=(
                *self.beside.signs(self._loop.steps, {k for k in self._moved if self._moved[k]}),
                *self._graph.signs(),
                *self._without_slope(trainable),
                *self._with_leftovers(),
                *(self.told.signs(self._names) if len(self._players) > 1 else ()),
                *self._turned_uphill(),
                *self._asked,
                *self._steps_undone(),
                *([Sign("dead", (self._dead[0], self._names[self._dead[1]]))] if self._dead else []),
                *self._loud(),
                *([] if self._outside is None else [Sign("out of domain", self._outside[:1], self._outside[1:])]),
                *self._goes_on(),
                *self._amounts.signs(),
                *self._arrivals.signs(),
                *([] if self._neighbours is None else [Sign("degrees", self._neighbours[:1], self._neighbours[1:])]),
                *self._targets.signs(),
            ),
            detached_state=next((path for path, is_cut in self._detached.items() if is_cut), None),
            same_inputs=self._repeated.facts(),
            hidden=self._graph.hidden,
            rows=replace(self._features.rows(self._loss.kind) if draws else RowFacts(), turned=self._turned.most),
        )

    def _goes_on(self) -> list[Sign]:
        """Return that the optimizers had made steps before, and how many, where they count them."""
        made = list(self._made.values())
        if not any(one != 0 for one in made):
            return []
        return [Sign(GOES_ON, numbers=() if None in made else (float(sum(one or 0 for one in made)),))]

    def _without_slope(self, trainable: Sequence[tuple[str, Tensor]]) -> list[Sign]:
        """Return weights whose gradient is 0, where a product with 0 or a function without a slope is in front."""
        still = [(name, p) for name, p in trainable if SURE_LOOKS <= self._looks[id(p)] == self._rests[id(p)]]
        found = [(name, [n for n, p in still if id(p) in ids]) for name, ids in self._graph.flat.items()]
        return [Sign("no slope", (name, *some[:MOST_NAMED]), (float(len(some)),)) for name, some in found if some]

    def _turned_uphill(self) -> list[Sign]:
        """Return since when each step goes where gradients point, where the first ones went against them."""
        is_long = self._up_for >= MANY_UPHILL and self._up_since >= OFTEN
        return [Sign("turned uphill", (), (float(self._up_since), float(self._up_for)))] if is_long else []

    def _steps_undone(self) -> list[Sign]:
        """Return that what steps change is as it was before when the next one comes, as a rule."""
        share = median(self._undone) if len(self._undone) >= OFTEN else 0.0
        return [Sign("steps undone", (), (float(len(self._undone)), share))] if share > 0.5 else []

    def _loud(self) -> list[Sign]:
        """Return a layer that is given numbers of the data which are far larger than 1, at the beginning."""
        return [Sign("loud", (self._names[key],), (size,)) for key, size in self._graph.loud if key in self._names][:1]

    def _shown(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        over_queries = [("softmax over queries", (1.0,))] if self._graph.over_queries else []
        return (*self._odd.shown(), *over_queries)

    def _owner(self, name: str) -> str:
        """Return the module that uses a parameter: of a list of them, which is never called, the one around it."""
        path = name.rpartition(".")[0]
        is_list = path in self._lists
        return path.rpartition(".")[0] if is_list else path

    def _kept(self) -> float:
        """Return the norm of the weights now over that at the beginning, of their samples."""
        if self._first is None or self._left is None or self._first.shape != self._left.shape:
            return 1.0
        with untracked():
            first, now = float(_norm(self._first)), float(_norm(self._left))
        return short(now / first) or 0.0 if first else 1.0

    def _idle_term(self, own: Sequence[tuple[str, Tensor]]) -> tuple[Names, Names] | None:
        """Return the weights that a term of the loss depends on, and those that are changed for it, where others."""
        for changed, idle in self._idle_terms.items():
            if len(idle) >= 2 and len(idle) == self._weighed[changed]:
                reached = names_of([one for one in own if id(one[1]) in idle[-1]], self._whole)
                return reached, names_of([one for one in own if id(one[1]) in changed], self._whole)
        return None

    def _silent(self) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Return rectifiers that gave only zeros from the first step on, those that came to it, and since when."""
        silent, died = [], {}
        for path, seen in self._zeros.items():
            steps = sorted(seen)
            if seen[steps[-1]] < SILENT:
                continue
            if all(share >= SILENT for share in seen.values()):
                silent.append(path)
            elif len(steps) > 1:
                died[path] = next(step for step in reversed(steps) if seen[step] < SILENT) + 1
        return tuple(silent[:4]), tuple(list(died)[:4]), min(died.values(), default=0)

    def _loss_facts(self, draws: bool) -> LossFacts:
        loss, targets = self._loss, self._targets
        one_kind = len(self._kinds) == 1 and "" not in self._kinds
        is_one = one_kind and bool(loss.kind) and self._terms <= 1
        known = bool(self._believed) and is_one
        is_measured = known or (bool(self._is_rebuilt) and is_one and loss.kind == "cross_entropy")
        lowest, highest = targets.reach
        return LossFacts(
            kind=loss.kind, known=known, reduction=loss.reduction, elements=loss.elements, factor=loss.factor,
            divided=loss.divided or (not loss.kind and self._is_divided), terms=self._terms,
            constant=targets.constant(loss.kind, self._bend, self._smoothing)
            if is_measured and not self._is_contrast
            else None,
            log_of_zero=self._of_zero.get("Log"), root_of_zero=self._of_zero.get("Sqrt"), over_batch=loss.over_batch,
            level=short(targets.level_and_spread[0]), spread=short(targets.level_and_spread[1]),
            targets=targets.seen, ignored=targets.ignored,
            only=targets.only if targets.batches and not self._is_contrast else None, classes=targets.different,
            within=targets.within, shuffled=targets.shuffled,
            batches=targets.batches,
            shifts=tuple([(k, agree, places) for k, (agree, places) in targets.shifts.items() if places]),
            leak=targets.leak(LEAK), unrelated=self._features.unrelated(loss.kind) if known and draws else None,
            others_tell=short(targets.others_tell), lowest=lowest, highest=highest, emptied=self._emptied,
            different=len(targets.digests), most=targets.most,
            upturned=targets.upturned, outlying=targets.outlying, cosine=self._cosine,
            in_batch=targets.are_places and not known, bounds=self._bounds if known else None,
            beyond=None if self._bounds is None else short(targets.beyond(*_reach(loss.kind, *self._bounds[1:]))),
            bound=short(_bound_of(self._logits)),
            widest=short(max(self._logits)) if _are_at_one(self._logits) else None,
            smoothing=self._smoothing[0], lowest_loss=_floor(*self._smoothing),
            attracts=bool(self._attracts), both_learn=bool(self._both_learn), is_contrast=bool(self._is_contrast),
            upside_down=bool(self._upside_down), grown=targets.grown,
        )  # fmt: skip


def _reach(kind: str, low: float, high: float) -> tuple[float, float]:
    """Return between which targets answers within bounds come; of logits these are shares, give or take a tenth."""
    if not kind.endswith("with_logits"):
        return low, high
    return 1 / (1 + math.exp(min(-low, 700.0))) - NEAR_SHARE, 1 / (1 + math.exp(min(-high, 700.0))) + NEAR_SHARE


def _floor(smoothing: float, classes: int) -> float | None:
    """Return the loss of an answer that is right, where labels are smoothed."""
    if not smoothing or classes < 2:
        return None
    rest = smoothing / classes
    label = 1 - smoothing + rest
    return short(-label * math.log(label) - (classes - 1) * rest * math.log(rest))


def _bound_of(sizes: Sequence[float]) -> float | None:
    """Return the magnitude at which logits have stayed for long, and that they never passed, if any."""
    last, most = sizes[-SURE_LOOKS - 2 :], max(sizes, default=0.0)
    return most if len(sizes) > 3 * SURE_LOOKS and most > 0 and min(last) > STEADY * most else None


def _are_at_one(sizes: Sequence[float]) -> bool:
    """Do magnitudes never pass 1, and do the last of them come near to it?"""
    last = sizes[-SURE_LOOKS:]
    return len(sizes) >= 2 * SURE_LOOKS and max(sizes) <= 1 + ROUNDED and min(last) > NEAR


def _added(began: Sequence[bool]) -> int:
    """Return how many backwards add up at the end of a step: those since the last that began without gradients."""
    cleared = [number for number, those in enumerate(began) if not those]
    return len(began) - max(cleared, default=0)


def _are_others(parameters: Sequence[Tensor], last: dict[int, Tensor]) -> bool:
    """Do the gradients of parameters point elsewhere than those that the last backward brought?"""
    both = [(sample(p.grad), last[id(p)]) for p in parameters if p.grad is not None and id(p) in last]
    if not both:
        return bool(parameters)
    now, then = (_wide(joined(list(side))) for side in zip(*both, strict=True))
    return float(torch.nn.functional.cosine_similarity(now, then, 0)) < SAME


def _reduction(found: tuple[float, int, int], value: float, root: Tensor) -> str:
    """Return how a loss comes from its terms: their mean, their sum, or the mean of the sums of examples."""
    total, count, batch = found
    close = NARROW if root.dtype in (torch.bfloat16, torch.float16) else CLOSE
    for name, divisor in (("mean", count), ("sum", 1), ("batch mean", batch)):
        expected = total / divisor if divisor else float("nan")
        if (
            abs(expected - abs(value)) <= close * abs(value) + 1e-6
            or abs(expected - value) <= close * abs(value) + 1e-6
        ):
            return name
    return ""


def _undone(before: Tensor, left: Tensor, now: Tensor) -> float:
    """Return which share of the elements that a step changed are back, where that is so in several tensors.

    Elements that were 0 are left out: those are held at 0 on purpose, as in a network that is thinned out.
    """
    if before.shape != now.shape or len(before) < 2:
        return 0.0
    moved = (left != before) & (before != 0)
    back = moved & ((now - before).abs() < NEARLY_BACK * (left - before).abs())
    counts, backs = moved.sum(1), back.sum(1)
    return float(backs.sum() / counts.sum().clamp(min=1)) if int((2 * backs > counts).sum()) > 1 else 0.0


def _settings_of(optimizer: Optimizer) -> tuple[tuple[str, str], ...]:
    """Return the defaults of an optimizer that say how it computes a step, by name; none where it has none."""
    listed = [(key, told) for key, told in getattr(optimizer, "defaults", {}).items() if key not in _TOLD_ELSEWHERE]
    return tuple([
        (str(key), ", ".join(map(str, told)) if isinstance(told, (tuple, list)) else str(told))
        for key, told in listed
        if isinstance(told, (bool, int, float, str))
        or (isinstance(told, (tuple, list)) and len(told) < 4 and all(isinstance(one, (int, float)) for one in told))
    ][:MOST_SETTINGS])  # fmt: skip


def _inputs(given: Tensor) -> InputFacts:
    x = given.detach().float()
    rows = x.reshape(len(x), -1) if x.dim() > 1 else x[:, None] if x.dim() else x.reshape(1, 1)
    return InputFacts(
        short(float(x.mean())) or 0.0, short(float(x.std())) or 0.0, short(float(x.abs().max())) or 0.0,
        short(float(x.square().mean().sqrt())) or 0.0, False, given.requires_grad or given.grad_fn is not None,
        len(rows) > 1 and bool((rows == rows[:1]).all()),
    )  # fmt: skip


def _goes_one_way(numbers: Sequence[float]) -> bool:
    """Do numbers hardly ever go back, as those of data do to which the same is done over and over?"""
    first = numbers[0] or 1.0
    known = [one for one in numbers if ROUND < one / first < 1 / ROUND]  # further on they are what rounding leaves
    steps = [now / before for before, now in pairwise(known)]
    back = sum(one > BACK for one in steps), sum(one < 1 / BACK for one in steps)
    return min(back) <= ODD_ONES * len(numbers)


def _wide(vector: Tensor) -> Tensor:
    return vector if vector.dtype is torch.float64 else vector.float()


def _norm(vector: Tensor) -> Tensor:
    return torch.linalg.vector_norm(_wide(vector))


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1)


def _is_small(gradient: Tensor | None) -> bool:
    known = gradient is not None and type(gradient) is Tensor and gradient.layout is torch.strided
    return known and gradient is not None and gradient.numel() <= MOST_TOLD
