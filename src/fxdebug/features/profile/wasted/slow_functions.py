"""Functions that are called in a form that takes far longer than another one with the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fxdebug.data.findings import Finding
from fxdebug.data.values import Thing
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest
from fxdebug.features.profile.wasted.unused_results import count_used
from fxdebug.operators.categories import VIEWS
from fxdebug.operators.dtypes import bytes_of

# What a form gains was measured with torch 2.9 on one thread of a CPU, by the time of processors.
COLUMNS = 8  # numbers of a row that fit into one integer: unique of rows took 24 times as long as that of integers
POWERS = range(4, 17)  # x ** 4 took 7 times as long as x * x; squares and cubes have kernels of their own
APART = 512  # bytes from step to step, or a multiple: 1.2 to 3.7 times as long as turned; no longer at 2,000 bytes
STEPS_OF_SCAN, SCANNED = 1024, 1 << 18  # steps, and elements: of 300 x 300 elements the copy takes longer
_VALUES = frozenset("linalg_eigvalsh linalg_eigvals linalg_svdvals".split())  # took 3 times as long as slogdet
MANY = 256  # numbers of Python that become a tensor
_FROM_LISTS = frozenset("tensor as_tensor asarray FloatTensor LongTensor".split())
WIDE_MATRIX = 64  # columns: products of integers took 2 times as long as of floats at 64, 7.5 times at 768
WINDOW = 7  # places of a pooling window in each direction from which on two passes took 1.8 times less than one


def slow_functions(work: Work, least: float) -> Iterator[Finding]:
    """Functions that have a faster form for what they are given: of each form one finding, for all its calls."""
    for is_slow, what, advice in _FORMS:
        found = [op for op in work.ops if op.operands and op.seconds and is_slow(work, op)]
        share = work.share(sum(op.seconds for op in found))
        if found and share >= least:
            op = costliest(found)
            label = (op.operands[1] if op.name == "embedding" and len(op.operands) > 1 else op.operands[0]).label
            times = f", {len(found)} times" if len(found) > 1 else ""
            yield work.finding("slow function", op, share, least, f"{what}, of {label}{times}", advice)


def _unique_rows(_: Work, op: TimedOp) -> bool:
    """Are the distinct rows of integers searched, which are compared column by column?"""
    dim = op.step.kwargs.get("dim", op.step.args[4] if len(op.step.args) > 4 else None)
    given = op.operands[0]
    return (
        op.name in ("unique", "unique_dim")
        and type(dim) is int
        and len(given.shape) == 2
        and dim % 2 == 0
        and 1 < given.shape[1] <= COLUMNS
        and given.dtype.startswith(("int", "uint"))
    )


def _normed_rows(work: Work, op: TimedOp) -> bool:
    """Does a lookup in inference first norm the rows that it takes, in the table itself?"""
    return op.name in ("embedding", "embedding_bag") and not work.has_loss and _max_norm(op) is not None


def _max_norm(op: TimedOp) -> object:
    position = {"embedding": 3, "embedding_bag": 3}[op.name]
    given = op.step.kwargs.get("max_norm", op.step.args[position] if len(op.step.args) > position else None)
    return None if isinstance(given, Thing) else given


def is_whole_power(_: Work, op: TimedOp) -> bool:
    """Is a tensor raised to a whole number above three, by the function for any exponent?"""
    given = op.step.kwargs.get("exponent", op.step.args[1] if len(op.step.args) > 1 else None)
    return (
        op.name == "pow"
        and isinstance(given, (int, float))
        and given in POWERS
        and op.operands[0].device == "cpu"
        and op.operands[0].dtype.startswith("float")
    )


def _wide_window(_: Work, op: TimedOp) -> bool:
    """Does a pooling of maxima look at a large window for each place, which its neighbours look at, too?"""
    if op.name != "max_pool2d" or op.operands[0].device != "cpu" or len(op.results) != 1:
        return False
    names = ("kernel_size", "stride", "padding", "dilation")
    given = dict(zip(names, op.step.args[1:])) | dict(op.step.kwargs)
    kernel, stride = (_both(given.get(name)) for name in ("kernel_size", "stride"))
    dilation = _both(given.get("dilation", 1))
    return kernel is not None and min(kernel) >= WINDOW and stride == (1, 1) == dilation


def _both(item: object) -> tuple[int, int] | None:
    """Return the two sizes that one number or a pair of them says; ``None`` for anything else."""
    items: Sequence[object] = getattr(item, "items", (item, item)) if not isinstance(item, int) else (item, item)
    first, second = items if len(items) == 2 else (None, None)
    return (first, second) if type(first) is int and type(second) is int else None


def is_scan(op: TimedOp) -> bool:
    """Does an operation go along a dimension, step by step, with what it has so far?"""
    return op.name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def _scan_of_columns(_: Work, op: TimedOp) -> bool:
    """Does a scan go down columns whose steps are so far apart that they share few places of the cache?"""
    if not is_scan(op) or op.operands[0].device != "cpu" or not op.operands[0].stride:
        return False
    given = op.operands[0]
    dim = op.step.kwargs.get("dim", op.step.args[1] if len(op.step.args) > 1 else None)
    if type(dim) is not int or given.numel < SCANNED or given.shape[dim] < STEPS_OF_SCAN or given.stride is None:
        return False
    apart = given.stride[dim] * (bytes_of(given.dtype, ()) or 0)
    return apart > 0 and apart % APART == 0


def _whole_numbers_multiplied(_: Work, op: TimedOp) -> bool:
    """Are matrices of integers multiplied on a CPU, where no library of products takes them?"""
    sizes = [value.shape for value in op.operands]
    return (
        op.name in ("matmul", "einsum", "linear")
        and all(value.dtype.startswith(("int", "uint")) and value.device == "cpu" for value in op.operands)
        and all(len(shape) > 1 and shape[-1] >= WIDE_MATRIX for shape in sizes)
    )


def _places_unused(work: Work, op: TimedOp) -> bool:
    """Are the largest or the smallest numbers found together with their places, which nobody uses?"""
    is_found = op.name in ("max", "min") and len(op.results) == 2 and op.operands[0].device == "cpu"
    return is_found and not count_used(work, op.results[1]) and bool(count_used(work, op.results[0]))


def _equal_chances(work: Work, op: TimedOp) -> bool:
    """Is something drawn by weights that are all equal?"""
    if op.name != "multinomial":
        return False
    maker = work.maker.get(op.operands[0].number)
    while maker is not None and maker.name in VIEWS | {"expand", "repeat"} and maker.operands:
        maker = work.maker.get(maker.operands[0].number)
    return maker is not None and maker.name in ("ones", "full", "ones_like", "full_like", "new_ones", "new_full")


def _only_for_determinant(work: Work, op: TimedOp) -> bool:
    """Are eigenvalues or singular values computed, and only multiplied: by ``prod``, or as a sum of logarithms?"""
    if op.name not in _VALUES or len(op.results) != 1 or len(op.operands[0].shape) < 2:
        return False
    value, logs = op.results[0], False
    while value.number not in work.returned and len(users := work.users[value.number]) == 1 and users[0].results:
        user = users[0]
        if user.name == "prod" or (logs and user.name == "sum"):
            return True
        if user.name not in ("log", "abs", "clamp", "clip") or (logs and user.name != "log"):
            return False
        logs |= user.name == "log"
        value = user.results[0]
    return False


_FORMS: tuple[tuple[Callable[[Work, TimedOp], bool], str, str], ...] = (
    (
        _unique_rows,
        "unique compares rows of integers, column by column",
        "Could the columns be folded to one integer for each row (a * n + b), whose unique has no dim?",
    ),
    (
        _normed_rows,
        "max_norm makes each run norm the rows of the table that it looks up, in place and one by one",
        "Could the table be normed once, and max_norm be None in inference?",
    ),
    (
        is_whole_power,
        "a whole power above three is computed by the function for any exponent",
        "Could it be a few products: s = x * x, s * s * x? For a polynomial: x * (a + s * (b + …)).",
    ),
    (
        _wide_window,
        "max_pool2d with stride 1 looks at all places of a large window for each result",
        "Could it be pooled by rows, then by columns: (k, 1), then (1, k)? Of windows of 5, 9 and 13 each can be the "
        "one of 5 on the result before. In channels_last it took a fifth of the time; fxdebug.tune measures that.",
    ),
    (
        _whole_numbers_multiplied,
        "matrices of integers are multiplied without the library that multiplies floats",
        "Could they be floats: (a.float() @ b.float()).long()? float32 has all whole numbers up to 16,777,216.",
    ),
    (
        _places_unused,
        "max or min over a dimension finds places, too, and nobody uses them",
        "Could it be amax, or amin? Where several numbers are the largest, its gradient is spread over them.",
    ),
    (
        _equal_chances,
        "multinomial draws by weights that are all equal",
        "Could it be torch.randint, or torch.rand(rows, n).topk(k) where nothing may be drawn twice?",
    ),
    (
        _only_for_determinant,
        "all eigenvalues are computed, and only their product is used, which is the determinant",
        "Could it be torch.linalg.slogdet, or of a positive definite matrix twice the sum of the logarithms of the "
        "diagonal of torch.linalg.cholesky?",
    ),
    (
        _scan_of_columns,
        "a running sum or product goes down columns, whose elements share few places of the cache",
        "Could it go along the last dimension of a turned copy: x.mT.contiguous().cumsum(-1).mT?",
    ),
)


def python_numbers(work: Work, least: float) -> Iterator[Finding]:
    """Tell of tensors that are made of lists of numbers in each run, and of long lists that are made of tensors."""
    made = [op for op in work.ops if op.name in _FROM_LISTS and not op.operands and _of_a_list(op.step.args)]
    made = [op for op in made if op.results and op.results[0].numel >= MANY]
    lists = [op for op in work.ops if op.name == "tolist" and op.operands and op.operands[0].numel >= MANY]
    share = work.share(sum(op.seconds for op in (*made, *lists)))
    if share < least:
        return
    op = costliest([*made, *lists])
    count = (op.results or op.operands)[0].numel
    what = (
        f"{count:,} numbers of Python become a tensor one by one" if made else f"{count:,} numbers are read to Python"
    )
    if made and lists:
        what += f", after tolist read {costliest(lists).operands[0].numel:,} out of one"
    what += "; what Python does between comes on top"
    advice = "Could it be computed with operations on the tensor?"
    yield work.finding("numbers of Python", op, share, least, what, advice)


def _of_a_list(args: tuple[object, ...]) -> bool:
    is_array = bool(args) and isinstance(args[0], Thing) and args[0].text == "<ndarray>"  # copied as a whole
    return bool(args) and not is_array and not isinstance(args[0], (int, float, bool))
