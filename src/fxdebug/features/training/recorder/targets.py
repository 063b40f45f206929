"""The targets of a training, over all of its batches: how a constant answer would do, and what they repeat.

Products are numpy's: torch's (MKL) start OpenMP threads also for a few rows. In a script that had none, a process that
is forked later waits for them for ever.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import RowFacts, Sign
from fxdebug.features.training.loss.loss_graph import LossRead
from fxdebug.features.training.pairs.fitting_rows import fitting
from fxdebug.features.training.recorder.samples import digest_of

MOST_TARGETS = 300_000  # that are counted: a share of 1e-5 is known
MOST_NUMBERS = 20_000  # of a regression that are kept
MOST_BATCHES = 500  # whose entropy is kept
MOST_DIFFERENT = 64  # batches of targets that are told apart
MOST_COLUMNS = 4096  # that have a mean of their own
MOST_ROWS = 600  # of inputs that are held against the targets
FEWEST_ROWS = 100
ROUNDED = 1e-12  # of the squares: targets that are known by their distance from an answer alone differ by rounding
FEWEST_OF_STEP = 8  # targets
SHIFTS = range(-2, 4)
SHIFTED_STEPS = 40
FILLED, ELSEWHERE, MOSTLY = 0.3, 0.02, 0.7  # of the targets, of the filled ones, and of what goes in there
FEWEST_READ, READ, FEW_READ = 200, 0.98, 3  # places, their share, and classes
DRAWS = 99
OUTLYING = 100.0  # times the distance within which nine of ten lie
UNEQUAL = 2.0  # times, of counts and of weights of classes
FOLLOWS = 0.8  # correlation of both
ABOUT_HALF = 0.45  # of the steps up to the last look
FIRST_LOOKS, FEWEST_LOOKS = 5, 10  # at how far numbers reach
MOST_FEATURES = 256
MOST_GRIDS = 8
MOST_CLASSES = 32
ENOUGH_ROWS = 256  # of features: of the first batches, and as they are now


_Numbers = npt.NDArray[np.floating]


class Targets:
    """The targets of all batches so far, added by :meth:`add`."""

    def __init__(self) -> None:
        self.seen = self.ignored = self.batches = 0
        self.classes: Counter[int] = Counter()
        self._of_step: Counter[int] = Counter()
        self.entropies: deque[tuple[float, int]] = deque(maxlen=MOST_BATCHES)  # of steps, with their sizes
        self._shifts = {k: [0, 0] for k in SHIFTS}
        self._shifted = 0
        self._weights: Tensor | None = None
        self._mean: Tensor | None = None  # of columns, or of all
        self._square = 0.0
        self._rows = 0
        self._numbers: list[Tensor] = []
        self._kept = 0
        self._lowest, self._highest = math.inf, -math.inf
        self._inputs: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._held_rows = 0
        self._steps = 0  # numbers of each place, of inputs that are sequences
        self.others_tell: float | None = None  # of a target that an input has
        self.are_places = True  # is the class of each row its place in the batch?
        self.is_empty = False  # were all targets of the last loss ignored?
        self.digests: set[str] = set()
        self._padding = [0.0, 0.0]  # targets that only fill up the ends of rows, and all
        self._padding_is = 0.0
        self._replaced = [0, 0]  # looks at which no table looked up the tokens that the model was given, and all
        self._read = [0, 0]  # places in which the decoder's own input is the target, and all
        self._reaches: list[tuple[int, float]] = []  # the largest magnitude of numbers at each look

    def add(
        self, read: LossRead, target: Tensor, given: Sequence[Tensor], answer: Tensor | None, start: int | None = 0
    ) -> None:
        """Count the targets of one loss, of which the model was ``given`` inputs and returned an ``answer``.

        The loss takes the answer from the place ``start`` on.
        """
        first_input = given[0] if given else None
        places = answer.shape[1] if answer is not None and answer.dim() == 3 else math.inf
        tokens = next((one for one in given if one.dim() == 2 and not one.is_floating_point()), None)
        if tokens is not None and tokens.shape[1] > places:  # which of its places an answer is for is not known
            tokens = None
        if tokens is not None and tokens.shape[1] != places:  # the answer has others in front, or is none of places
            start = 0
        with untracked():
            self.batches += 1
            target = target.detach()
            if len(self.digests) < MOST_DIFFERENT:
                self.digests.add(digest_of([target]))
            if read.kind == "cross_entropy":
                self._add_classes(read, target)
                if tokens is not None and start is not None and start < tokens.shape[1]:
                    self._hold_against(target.reshape(-1), read.ignore, tokens, start)
                if first_input is not None:
                    self._keep_pairs(target.reshape(-1), first_input)
            else:
                self._add_numbers(target)
                if first_input is not None and target.dim() <= 2 and target.numel() == len(target):
                    self._keep_pairs(target.reshape(-1), first_input)

    def end_step(self) -> None:
        """Note how the classes of a step differ, of all its backwards together."""
        found, self._of_step = self._of_step, Counter()
        if found.total() >= FEWEST_OF_STEP:
            self.entropies.append((_entropy(found.values()), found.total()))

    def note_reach(self, number: int, target: Tensor) -> None:
        """Note how far numbers reach at a step."""
        if target.is_floating_point() and target.numel():
            with untracked():
                self._reaches.append((number, float(target.detach().abs().max())))

    def _add_classes(self, read: LossRead, target: Tensor) -> None:
        flat = target.reshape(-1)
        kept = flat[flat != read.ignore]
        self.seen += flat.numel()
        self.ignored += flat.numel() - kept.numel()
        self.is_empty = bool(flat.numel()) and not kept.numel()
        if read.weight is not None:
            self._weights = read.weight.detach().float().cpu()
        if not kept.numel() or sum(self.classes.values()) > MOST_TARGETS:
            return
        if self.are_places:
            self.are_places = torch.equal(kept, torch.arange(len(kept), device=kept.device, dtype=kept.dtype))
        values, counts = kept.unique(return_counts=True)
        found = dict(zip(values.tolist(), counts.tolist()))
        self.classes.update(found)
        self._of_step.update(found)

    def _add_numbers(self, target: Tensor) -> None:
        self.seen += target.numel()
        numbers = target.double().cpu() if target.device.type != "mps" else target.cpu().double()
        self._lowest = min(self._lowest, float(numbers.min())) if numbers.numel() else self._lowest
        self._highest = max(self._highest, float(numbers.max())) if numbers.numel() else self._highest
        if self._kept < MOST_NUMBERS and numbers.numel():
            some = numbers.reshape(-1)
            some = some[:: max(1, some.numel() // 512)][:512]
            self._numbers.append(some)
            self._kept += some.numel()
        rows = numbers.reshape(len(numbers), -1) if numbers.dim() == 2 and numbers.shape[1] <= MOST_COLUMNS else None
        rows = numbers.reshape(-1, 1) if rows is None else rows
        if self._mean is not None and self._mean.numel() != rows.shape[1]:
            rows = rows.reshape(-1, 1)
            if self._mean.numel() != 1:
                self._mean, self._square, self._rows = None, 0.0, 0
        count, mean = len(rows), rows.mean(0)
        square = float((rows - mean).square().sum())
        if self._mean is None:
            self._mean, self._square, self._rows = mean, square, count
            return
        whole, gap = self._rows + count, mean - self._mean
        self._square += square + float(gap.square().sum()) * self._rows * count / whole
        self._mean = self._mean + gap * (count / whole)
        self._rows = whole

    def _hold_against(self, flat: Tensor, ignore: int, given: Tensor, start: int) -> None:
        """Compare classes with the tokens that the model was given, place by place."""
        if self._shifted >= SHIFTED_STEPS or flat.numel() % len(given):
            return
        target = flat.reshape(len(given), -1)
        length, width = target.shape[1], given.shape[1]
        if not (length >= width - 1 - start and length <= width and length > 4):
            return
        self._shifted += 1
        if length == width:
            self._note_padding(target, given, ignore)
        for k in SHIFTS:
            at = start + k  # target[i] is for the place start + i
            first, last = max(0, -at), min(length, width - at)
            if last - first < 2:
                continue
            ours, theirs = target[:, first:last], given[:, first + at : last + at]
            counts = ours != ignore
            self._shifts[k][0] += int(((ours == theirs) & counts).sum())
            self._shifts[k][1] += int(counts.sum())

    @property
    def shifts(self) -> dict[int, list[int]]:
        """For each shift: places in which a target is the token so far behind it, and all that were compared.

        Empty where the model replaces tokens before it looks them up, as one that masks them itself does.
        """
        replaced, looks = self._replaced
        return {} if replaced > MOSTLY * looks else self._shifts

    def note_tables(self, read: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Note whether a table looks up the tokens that the model was given, or others in their place."""
        for tokens in (one for one in given if one.dim() == 2 and not one.is_floating_point()):
            alike = [ids for ids in read if ids.shape == tokens.shape]
            if alike:
                self._replaced[0] += not any(torch.equal(ids, tokens.detach()) for ids in alike)
                self._replaced[1] += 1
            return

    def hold_read(self, target: Tensor, ignore: int, ids: Tensor | None, given: Tensor | None) -> None:
        """Compare classes with the ids that the last table looked up, where these are not the model's first input."""
        if ids is None or target.numel() != ids.numel() or target.is_floating_point():
            return
        if given is not None and given.shape == ids.shape and torch.equal(given.detach(), ids):
            return
        keep = target.reshape(-1) != ignore
        self._read[0] += int(((target.reshape(-1) == ids.reshape(-1)) & keep).sum())
        self._read[1] += int(keep.sum())

    def _note_padding(self, target: Tensor, ids: Tensor, ignore: int) -> None:
        """Note targets that are all one value at the ends of rows, and nowhere else."""
        last = int(target[:, -1].mode().values)
        is_it = target == last
        run = is_it.flip(1).cumprod(1).flip(1).bool()
        count, elsewhere = int(run.sum()), int((is_it & ~run).sum())
        inside = ids[run]
        same = int((inside == inside.mode().values).sum()) if count else 0
        lengths = run.sum(1)
        varies = bool((lengths != lengths[0]).any())
        if last != ignore and varies and elsewhere < ELSEWHERE * count and same > MOSTLY * count:
            self._padding[0] += count
            self._padding_is = float(last)
        self._padding[1] += target.numel()

    def signs(self) -> list[Sign]:
        """Return whether padding counts as targets, and whether a decoder is given what it is to tell."""
        filled, whole = self._padding
        found = [Sign("padding counts", (), (filled / whole, self._padding_is))] if filled > FILLED * whole > 0 else []
        agree, places = self._read
        if places >= FEWEST_READ and agree > READ * places and len(self.classes) > FEW_READ:
            found.append(Sign("target read", (), (agree / places, float(places))))
        return found

    def _keep_pairs(self, flat: Tensor, given: Tensor) -> None:
        if self._held_rows >= MOST_ROWS or not given.is_floating_point() or given.dim() < 2:
            return
        if len(given) != flat.numel() or not len(given) or given[0].numel() > MOST_COLUMNS:
            return
        self._steps = given.shape[2] if given.dim() == 3 else 0
        self._inputs.append(given.detach().reshape(len(given), -1).float().cpu())
        self._labels.append(flat.float().cpu())
        self._held_rows += len(given)

    # What they tell ------------------------------------------------------------------------------

    @property
    def within(self) -> float | None:
        """The mean entropy of the classes inside of a batch."""
        return fmean([entropy for entropy, _ in self.entropies]) if self.entropies else None

    @property
    def shuffled(self) -> float | None:
        """The same of batches drawn at random: most small ones have nothing of a rare class."""
        if not self.entropies or not self.classes:
            return None
        size = int(median([size for _, size in self.entropies]))
        shares = np.array(list(self.classes.values()), float)
        drawn = np.random.default_rng(0).multinomial(size, shares / shares.sum(), DRAWS)
        return fmean([_entropy(counts.tolist()) for counts in drawn])

    @property
    def different(self) -> int:
        """The number of different classes; of numbers 2 where they are not all the same."""
        return len(self.classes) if self.classes else 1 if self._lowest == self._highest else 2

    @property
    def only(self) -> float | None:
        """The value of all targets, where there is one."""
        if self.classes:
            return float(next(iter(self.classes))) if len(self.classes) == 1 else None
        return self._lowest if self._lowest == self._highest else None

    @property
    def most(self) -> tuple[float, float] | None:
        """The class that most targets have, and their share; of numbers from 0 to 1 the nearer of both."""
        if self.classes:
            value, count = self.classes.most_common(1)[0]
            return float(value), count / sum(self.classes.values())
        if self._mean is None or self._mean.numel() != 1 or (self._lowest, self._highest) != (0.0, 1.0):
            return None
        ones = float(self._mean)
        return (1.0, ones) if ones > 0.5 else (0.0, 1 - ones)

    @property
    def outlying(self) -> tuple[float, float, float] | None:
        """The number that lies farthest out, and between which nine of ten lie, where it is a hundred times as far."""
        if not self._numbers or self.classes:
            return None
        low, middle, high = (
            torch.cat(self._numbers)[:MOST_NUMBERS].quantile(torch.tensor([0.05, 0.5, 0.95]).double()).tolist()
        )
        far = max(self._lowest, self._highest, key=lambda number: abs(number - middle))
        return (far, low, high) if abs(far - middle) > OUTLYING * (high - low) > 0 else None

    @property
    def upturned(self) -> tuple[int, float, float] | None:
        """The commonest class, its share, and its weight over that of the rarest, where weights grow with counts."""
        if self._weights is None or len(self.classes) < 2 or max(self.classes) >= len(self._weights):
            return None
        counts = np.array(list(self.classes.values()), float)
        weights = np.array([float(self._weights[k]) for k in self.classes])
        rarest, commonest = int(counts.argmin()), int(counts.argmax())
        times = weights[commonest] / weights[rarest] if weights[rarest] else math.inf
        if counts[commonest] < UNEQUAL * counts[rarest] or times < UNEQUAL:
            return None
        if np.corrcoef(counts, weights)[0, 1] < FOLLOWS:
            return None
        return list(self.classes)[commonest], counts[commonest] / counts.sum(), float(times)

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """The lowest and the highest of numbers."""
        return (self._lowest, self._highest) if self._lowest <= self._highest else (None, None)

    def beyond(self, low: float, high: float) -> float | None:
        """Return the share of numbers that lie outside of bounds."""
        if not self._numbers:
            return None
        numbers = torch.cat(self._numbers)
        return float(((numbers < low) | (numbers > high)).double().mean())

    @property
    def grown(self) -> tuple[float, float, float] | None:
        """The reach of numbers in the first steps, about halfway, and at the last look."""
        if len(self._reaches) < FEWEST_LOOKS:
            return None
        last, reach = self._reaches[-1]
        half = next(size for number, size in self._reaches if number >= ABOUT_HALF * last)
        return max(size for _, size in self._reaches[:FIRST_LOOKS]), half, reach

    @property
    def level_and_spread(self) -> tuple[float | None, float | None]:
        """The mean of numbers, and their deviation from the means of their columns."""
        if self._mean is None or self.classes or not self._rows:
            return None, None
        return float(self._mean.mean()), math.sqrt(self._square / (self._rows * self._mean.numel()))

    def constant(self, kind: str, bend: float = 1.0, smoothing: tuple[float, int] = (0.0, 0)) -> float | None:
        """Return the loss of the best answer that does not depend on the input.

        ``bend`` is beta of smooth distances, ``smoothing`` that of labels, and the number of classes.
        """
        if kind == "cross_entropy":
            return self._of_classes(*smoothing)
        if self._mean is None or not self._rows:
            return None
        if kind == "mse_loss":
            spread, size = self._square / self._rows, float(self._mean.square().sum())
            return spread / self._mean.numel() if spread > ROUNDED * size else None  # they are all the same
        if kind.startswith("binary_cross_entropy"):
            return float(_binary_entropy(self._mean).mean())
        if kind == "soft cross_entropy":
            share = self._mean[self._mean > 0]
            return float(-(share * share.log()).sum()) if self._mean.numel() > 1 else None
        return self._of_distances(kind, bend)

    def _of_classes(self, smoothing: float, classes: int) -> float | None:
        if not self.classes:
            return None
        counts = {k: float(n) for k, n in self.classes.items()}
        if self._weights is not None:
            counts = {k: n * float(self._weights[k]) for k, n in counts.items() if k < len(self._weights)}
        if smoothing and classes >= len(counts):
            whole = sum(counts.values())
            others = [smoothing / classes] * (classes - len(counts))
            return _entropy([(1 - smoothing) * n / whole + smoothing / classes for n in counts.values()] + others)
        return _entropy(counts.values())

    def _of_distances(self, kind: str, bend: float) -> float | None:
        if not self._numbers:
            return None
        numbers = torch.cat(self._numbers)
        functional, best = torch.nn.functional, None
        for answer in torch.quantile(numbers[:MOST_NUMBERS], torch.linspace(0.02, 0.98, 49, dtype=torch.float64)):
            same = answer.expand_as(numbers)
            if kind == "l1_loss":
                loss = functional.l1_loss(same, numbers)
            elif kind == "huber_loss":
                loss = functional.huber_loss(same, numbers, delta=bend)
            else:
                loss = functional.smooth_l1_loss(same, numbers, beta=bend)
            best = float(loss) if best is None else min(best, float(loss))
        return best

    @np.errstate(all="ignore")  # numbers that are not finite are told by others
    def leak(self, least: float) -> tuple[str, str, float, int] | None:
        """Return the input whose correlation with a target is at least ``least``, over a hundred examples and more."""
        if self._held_rows < FEWEST_ROWS or len({len(one[0]) for one in self._inputs}) > 1:
            return None
        given, labels = torch.cat(self._inputs).numpy(), torch.cat(self._labels).numpy()
        given = given - given.mean(0)
        sizes = np.linalg.norm(given, axis=0)
        columns = [("the target", labels)]
        if self.classes:
            columns += [(f"class {int(k)}", (labels == k).astype(np.float32)) for k in sorted(self.classes)[:64]]
        for name, column in columns:
            column = column - column.mean()
            size = float(np.linalg.norm(column))
            if np.count_nonzero(column) < 10 or not size:
                continue
            found = (given.T @ column) / (sizes * size + 1e-12)
            found[sizes < 1e-6 * sizes.max()] = 0
            at = int(np.abs(found).argmax())
            if float(abs(found[at])) >= least:
                self.others_tell = _explained(given, at, column)
                place = f"number {at % self._steps} of place {at // self._steps}" if self._steps else f"input {at}"
                return place, name, float(found[at]), len(labels)
        return None


def _explained(given: _Numbers, but: int, column: _Numbers) -> float | None:
    """Return the share of a column's variance that a line through all inputs but one explains, less that of chance."""
    others = np.delete(given, but, axis=1).astype(np.float64)
    rows, width = others.shape
    if not width or rows < 3 * width:
        return None
    column = column.astype(np.float64)
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
    share = 1 - float(np.square(left).sum() / np.square(column).sum())
    return 1 - (1 - share) * (rows - 1) / (rows - width - 1)


class Features:
    """Inputs of the last linear layer with their targets: do they tell anything of one another?"""

    def __init__(self) -> None:
        self._first: list[tuple[Tensor, Tensor]] = []
        self._last: deque[tuple[Tensor, Tensor]] = deque()
        self._begin: tuple[str, int, float | None] | None = None  # what was found of the first batches, and of how many
        self._fits: tuple[int, RowFacts | None] = 0, None  # the same of the order of rows
        self._are_examples = True  # is each row an example of the batch?
        self._grids: list[tuple[Tensor, Tensor, Tensor]] = []  # of rows that are places: also with these exchanged
        self._exchanged: RowFacts | None = None

    def add(self, features: Tensor, target: Tensor, kind: str, ignore: int, examples: int) -> None:
        """Keep the features of one batch and its targets, row by row; ``examples`` are those of the batch."""
        with untracked():
            rows = features.detach().reshape(-1, features.shape[-1])
            rows = rows[:, :: max(1, rows.shape[1] // MOST_FEATURES)][:, :MOST_FEATURES]
            if kind in ("cross_entropy",):
                flat = target.detach().reshape(-1)
                if len(flat) != len(rows):
                    return
                if features.dim() == 3:
                    self._note_grid(rows, flat, features.shape[:2])
                rows, flat = rows[flat != ignore], flat[flat != ignore]
                flat = flat.float()[:, None]
            else:
                flat = (
                    target.detach().reshape(len(rows), -1).float() if target.numel() % max(len(rows), 1) == 0 else None
                )
                if flat is None or flat.shape[1] > 64:
                    return
            if len(rows) < 4:
                return
            self._are_examples = self._are_examples and len(rows) == examples == len(target)
            pair = rows[:256].float().cpu(), flat[:256].cpu()
        if sum(len(x) for x, _ in self._first) < ENOUGH_ROWS:
            self._first.append(pair)
        self._last.append(pair)
        while sum(len(x) for x, _ in self._last) - len(self._last[0][0]) >= ENOUGH_ROWS:
            self._last.popleft()

    def _note_grid(self, rows: Tensor, flat: Tensor, sizes: Sequence[int]) -> None:
        """Keep the rows of one batch of places with their targets, as they are and with places and examples exchanged.

        Nothing is kept where both sizes are one, or where rows are many.
        """
        one, other = sizes
        if len(self._grids) < MOST_GRIDS and one != other and min(sizes) > 1 and len(flat) <= MOST_ROWS:
            exchanged = flat.reshape(other, one).t().reshape(-1)
            self._grids.append((rows.float().cpu(), flat.float()[:, None].cpu(), exchanged.float()[:, None].cpu()))

    def _of_grids(self, kind: str) -> RowFacts | None:
        """Return whether targets fit places only where places and examples are exchanged."""
        if self._exchanged is None and sum(len(x) for x, _, _ in self._grids) >= FEWEST_ROWS:
            both = [_batches([(x, y) for x, *told in self._grids for y in told[k : k + 1]], kind) for k in (0, 1)]
            own, other = (None if one is None else fitting(one) for one in both)
            if own is not None and other is not None and other.own is not None:
                self._exchanged = RowFacts(("with places and examples exchanged", other.own), own.own)
        return self._exchanged

    def unrelated(self, kind: str) -> tuple[float, float, int] | None:
        """Return how often targets drawn at random fit as well, at the beginning and now, and the examples now."""
        now = list(self._last)
        rows = sum(len(x) for x, _ in now)
        if not now or rows < FEWEST_ROWS:
            return None
        with untracked():
            if self._begin is None or self._begin[:2] != (kind, len(self._first)):
                self._begin = kind, len(self._first), _chance(self._first, kind)
            first, last = self._begin[2], _chance(now, kind)
        return None if first is None or last is None else (first, last, rows)

    def rows(self, kind: str) -> RowFacts:
        """Return which order of the targets fits the features of the first batches, where each row is an example."""
        if not self._are_examples:
            return self._of_grids(kind) or RowFacts()
        if sum(len(x) for x, _ in self._first) < FEWEST_ROWS:
            return RowFacts()
        if self._fits[0] != len(self._first):
            batches = _batches(self._first, kind)
            self._fits = len(self._first), None if batches is None else fitting(batches)
        return self._fits[1] or RowFacts()


@np.errstate(all="ignore")
def _batches(pairs: list[tuple[Tensor, Tensor]], kind: str) -> list[tuple[_Numbers, _Numbers]] | None:
    """Return the features and the targets of each batch, centred; classes as a column each."""
    if len({x.shape[1] for x, _ in pairs}) != 1 or len({y.shape[1] for _, y in pairs}) != 1:
        return None
    classes = (
        sorted({int(c) for _, y in pairs for c in y[:, 0].tolist()})[:MOST_CLASSES] if kind == "cross_entropy" else []
    )
    batches = []
    for x, y in ((x.numpy(), y.numpy()) for x, y in pairs):
        told = np.stack([(y[:, 0] == c).astype(np.float32) for c in classes], 1) if classes else y
        x = np.concatenate([x - x.mean(0), np.square(x - x.mean(0))], 1)  # parity and the like show in the squares
        x = x - x.mean(0)
        x = x / (x.std(0, ddof=1) + 1e-9 * np.abs(x).max() + 1e-30)
        batches.append((x, told - told.mean(0)))
    return batches if all(np.isfinite(x).all() and np.isfinite(told).all() for x, told in batches) else None


@np.errstate(all="ignore")
def _chance(pairs: list[tuple[Tensor, Tensor]], kind: str) -> float | None:
    """Return the p-value of a permutation test: features against targets, permuted inside of each batch."""
    batches, generator = _batches(pairs, kind), np.random.default_rng(0)
    if batches is None:
        return None

    def size(permuted: bool) -> float:
        orders = (generator.permutation(len(told)) if permuted else slice(None) for _, told in batches)
        return float(np.linalg.norm(sum(x.T @ told[order] for (x, told), order in zip(batches, orders, strict=True))))

    true = size(False)
    return (1 + sum(size(True) >= true for _ in range(DRAWS))) / (1 + DRAWS)


def _entropy(counts: object) -> float:
    numbers = [n for n in counts if n > 0]  # type: ignore[attr-defined]
    whole = sum(numbers)
    return -sum(n / whole * math.log(n / whole) for n in numbers) + 0.0


def _binary_entropy(share: Tensor) -> Tensor:
    share = share.clamp(0, 1)
    return -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
