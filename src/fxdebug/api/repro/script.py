"""Write the script that shows a finding, and its tensors; both are tried before they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.api.repro.finding_row import FindingRow
from fxdebug.api.repro.plain_calls import line_text
from fxdebug.api.repro.region import Region, region_of
from fxdebug.api.repro.tensors_at_hand import TensorsAtHand
from fxdebug.comparison.result import KINDS, Row
from fxdebug.comparison.tolerance import error_between
from fxdebug.data.trace import TraceData, trace_of
from fxdebug.data.values import Value
from fxdebug.errors import SaveError, UsageError, first_line
from fxdebug.files.write_file import all_written_whole
from fxdebug.printable import printable
from fxdebug.query.network import network_of
from fxdebug.stats.measure import measure
from fxdebug.version import __version__

SCRIPT, TENSORS = "repro.py", "tensors.safetensors"
MARK = "# Written by fxdebug"
STEPS = 12  # times that both sides are followed further back, in search of tensors that both were given
SAME = 1e-3  # relative error up to which two tensors count as the same one, rounded
EXPLAINED = 0.3  # of the difference shown: the most by which a side may miss what was recorded
_ONE_SIDED = ("missing", "extra", "dtype")  # nothing but the operation of one side may tell them apart
_REWIRED = ("wiring", "missing", "extra", "overwritten")  # what goes in is what is wrong


def write_repro(finding: FindingRow, folder: Path) -> Path:
    """Write the script of a finding and its tensors into a folder; return the path of the script."""
    _require_free(folder)
    script, tensors = _made(finding)
    with all_written_whole(folder) as new:
        new.mkdir()
        new.joinpath(SCRIPT).write_text(script, encoding="utf-8")
        save_file(tensors, new / TENSORS)
    return folder / SCRIPT


def _made(finding: FindingRow) -> tuple[str, dict[str, Tensor]]:
    """Return the text of the script and its tensors, of the first pair of results at which the finding shows."""
    pairs = [pair for row in (finding, *finding.later) if (pair := _pair_of(row)) is not None]
    if not pairs:
        _refuse(f"{finding.where} ({finding.kind}) has no pair of results that differ", "take another finding")
    refused: UsageError | None = None
    for pair in pairs:
        try:
            return _Repro(finding, pair).made()
        except UsageError as error:
            refused = refused or error
    assert refused is not None
    raise refused


@dataclass(frozen=True)
class _Target:
    """A result of one side: the run, the value, and the operation that returned it, where it is that of the finding."""

    trace: TraceData
    value: Value
    node: str | None
    source: str | None


def _pair_of(row: Row) -> tuple[_Target, _Target] | None:
    """Return the results of both sides of a row; of operations that are given other values, what they return."""
    if row.a is None or row.b is None:
        return None
    targets = []
    for side in (row.a, row.b):
        trace = trace_of(side.call)
        node = network_of(trace).nodes.get(side.node or "")
        is_operation = node is not None and node.kind in ("call_function", "call_method")
        value = side.value
        if is_operation and node is not None and row.kind == "wiring":
            value = node.value or value
        if value is None:
            return None
        own = is_operation and node is not None and value in node.values
        targets.append(_Target(trace, value, side.node if own else None, side.source))
    return targets[0], targets[1]


def _require_free(folder: Path) -> None:
    """Raise ``SaveError`` for a folder that holds other files than a script of ours and its tensors."""
    if folder.exists() and not folder.is_dir():
        raise SaveError(f"{folder} is a file: name a folder for {SCRIPT} and {TENSORS}")
    others = sorted([file.name for file in folder.iterdir()]) if folder.is_dir() else []
    if others and not (set(others) <= {SCRIPT, TENSORS} and _is_ours(folder / SCRIPT)):
        raise SaveError(f"{folder} holds other files ({', '.join(others[:3])}): name a new folder for the script")


def _is_ours(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8").startswith(MARK)
    except (OSError, ValueError):
        return False


@dataclass
class _Input:
    """What one side is given in the script: the tensor of its own run, and the name of the one in the file."""

    name: str
    own: Tensor
    shared: str


class _Repro:
    def __init__(self, finding: FindingRow, pair: tuple[_Target, _Target]) -> None:
        self._finding, self._pair = finding, pair
        for target, name in zip(pair, "ab"):
            _require_data(target.trace, name)
        self._hands = [TensorsAtHand(target.trace, name) for target, name in zip(pair, "ab")]

    def made(self) -> tuple[str, dict[str, Tensor]]:
        """Return the text of the script and its tensors."""
        a, b = self._regions()
        file: dict[str, Tensor] = {}
        inputs = [self._named(a, 0, file), self._named(b, 1, file)]
        text = self._text([a, b], inputs)
        self._try(text, inputs, file)
        used = {each.shared for side in inputs for each in side}
        return text, {name: tensor.clone().contiguous() for name, tensor in file.items() if name in used}

    # What goes in --------------------------------------------------------------------------------

    def _regions(self) -> tuple[Region, Region]:
        """Return the operations of both sides, back to tensors that both were given."""
        inner: list[set[int]] = [set(), set()]
        for target, inside, other in zip(self._pair, inner, reversed(self._pair)):
            if target.node is not None or other.node is None:  # else what one side hands on as it is
                inside.add(target.value.number)
        for _ in range(STEPS):
            a, b = [
                region_of(target.trace, target.value, target.node, inside, hand.is_kept)
                for target, inside, hand in zip(self._pair, inner, self._hands)
            ]
            partners = self._partners(a, b)
            alone = [value for value in b.given.values() if value.number not in partners]
            used = set(partners.values())
            if not alone and (
                self._finding.kind not in _ONE_SIDED or used >= {each.number for each in a.given.values()}
            ):
                return a, b
            before = [set(each) for each in inner]
            inner[1].update([value.number for value in alone])
            inner[0].update([value.number for value in a.given.values() if value.number not in used])
            if inner == before:
                break
        _refuse(
            f"what goes into {self._finding.where} in b is not what goes in in a, and the operations before it do not "
            "lead back to the same tensors",
            "take the first finding, or compare_models, which gives b what a was given",
        )

    def _partners(self, a: Region, b: Region) -> dict[int, int]:
        """Return, by the number of each tensor that b is given, the number of the same tensor in a."""
        partners: dict[int, int] = {}
        kept = [value for value in self._pair[0].trace.values if self._hands[0].is_kept(value)]
        for value in b.given.values():
            same = [each for each in (*a.given.values(), *kept) if each.digest == value.digest is not None]
            if not same:
                here = self._hands[1].given(value)
                near = [each for each in a.given.values() if each.numel == value.numel and value.numel]
                same = [each for each in near if _is_same(self._hands[0].given(each), here, self._allowed)]
            if same:
                partners[value.number] = same[0].number
        return partners

    @property
    def _allowed(self) -> float:
        """The relative error up to which a tensor of b is one of a: that of rounding, or of earlier findings."""
        finding = self._finding
        rounded = min(SAME, finding.error / 10) if 0 < finding.error < math.inf else SAME
        handed_on = 2 * finding.error_in if math.isfinite(finding.error_in) and finding.kind not in _REWIRED else 0.0
        return max(rounded, handed_on)

    def _named(self, region: Region, side: int, file: dict[str, Tensor]) -> list[_Input]:
        """Return what a side is given; tensors of a are used for b too where they are the same."""
        inputs = []
        for is_weight, table in ((False, region.given), (True, region.weights)):
            for name, value in table.items():
                own = self._hands[side].weight(value) if is_weight else self._hands[side].given(value)
                shared = next(
                    (key for key, each in file.items() if _replaces(each, own, is_weight, self._allowed)), None
                )
                if shared is None:
                    shared = name if name not in file else f"{name}_{'ab'[side]}"
                    file[shared] = own
                inputs.append(_Input(name, own, shared))
        before = [*region.given, *region.weights]
        region.rename({each.name: each.shared for each in inputs if each.name != each.shared})
        after = dict(zip(before, [*region.given, *region.weights]))
        return [_Input(after[each.name], each.own, each.shared) for each in inputs]

    # The script ----------------------------------------------------------------------------------

    def _text(self, regions: Sequence[Region], inputs: Sequence[Sequence[_Input]]) -> str:
        finding = self._finding
        because = finding.because or ("" if finding.kind is None else KINDS[finding.kind])
        calls = [f"{name}({', '.join([_item(each.shared) for each in given])})" for name, given in zip("ab", inputs)]
        return "\n".join(
            [
                f"{MARK} {__version__} with torch {torch.__version__}; it needs torch and safetensors.",
                f"# {printable(finding.where)}: {printable(because)}",
                "from pathlib import Path",
                "",
                "import torch",
                "import torch.nn.functional as F",
                "from safetensors.torch import load_file",
                "",
                *_function("a", regions[0], inputs[0], self._pair[0]),
                *_function("b", regions[1], inputs[1], self._pair[1]),
                "",
                f't = load_file(Path(__file__).with_name("{TENSORS}"))',
                f"with torch.no_grad():\n    one, other = {calls[0]}, {calls[1]}",
                *_printed(*self._pair),
                "",
            ]
        )

    def _try(self, text: str, inputs: Sequence[Sequence[_Input]], file: Mapping[str, Tensor]) -> None:
        """Run what the script runs: each side must return what was recorded, and the results must differ."""
        functions: dict[str, Any] = {}
        exec(compile(text.partition("\nt = load_file")[0], SCRIPT, "exec"), functions)
        recorded, shown = [], []
        for name, given, hand, side in zip("ab", inputs, self._hands, self._pair):
            try:
                with torch.no_grad():
                    own = functions[name](*[each.own.clone() for each in given])
                    shown.append(functions[name](*[file[each.shared].clone() for each in given]))
            except Exception as error:
                _refuse(f"the operations of {name} cannot be run again: {first_line(error)}", "take another finding")
            recorded.append(_distance(own, side.value, hand))
        apart = _relative(*shown)
        allowed = EXPLAINED * apart if apart < math.inf else SAME
        for name, distance in zip("ab", recorded):
            if distance > allowed:
                _refuse(
                    f"run again, the operations of {name} return something else than the run recorded",
                    "do they draw random numbers, or was the model changed since?",
                )
        if apart <= self._finding.tolerance:
            _refuse("given the same tensors, the operations of a and of b return the same", "take another finding")


def _function(name: str, region: Region, inputs: Iterable[_Input], side: _Target) -> list[str]:
    """Return the lines of one side as a function."""
    head = f"def {name}({', '.join([each.name for each in inputs])}):"
    source = "" if side.source is None else printable(side.source.replace("\\", "/").rpartition("/")[2])
    lines = [line_text(line) for line in region.lines]
    autocast = {line.op.autocast for line in region.lines}
    if autocast not in ({None}, set()):
        _refuse(f"{name} ran under autocast ({', '.join(map(str, autocast))})", "run both without autocast")
    last = f"{region.result} = "
    end = (
        [f"return {lines.pop().removeprefix(last)}"]
        if lines and lines[-1].startswith(last)
        else [f"return {region.result}"]
    )
    return ["", f"{head}  # {source}" if source else head, *[f"    {line}" for line in (*lines, *end)], ""]


def _item(name: str) -> str:
    return f't["{name}"]'


def _printed(a: _Target, b: _Target) -> list[str]:
    """Return the lines that print how far the results are apart."""
    one, other = a.value, b.value
    if one.numel != other.numel:
        return ['print("shapes:", tuple(one.shape), tuple(other.shape))']
    lines = [] if one.shape == other.shape else [f"other = other.reshape({one.shape})"]
    if not one.dtype.startswith(("float", "bfloat", "complex")):
        return [*lines, 'print("elements that differ:", (one != other).sum().item(), "of", one.numel())']
    if _not_finite(one) or _not_finite(other):
        return [*lines, 'print("not finite:", (~one.isfinite()).sum().item(), (~other.isfinite()).sum().item())']
    wide = "" if one.dtype == other.dtype else ".to(one.dtype)"
    return [
        *lines,
        f'print("largest difference:", (one - other{wide}).abs().max().item())',
        'print("largest value:", one.abs().max().item())',
    ]


def _not_finite(value: Value) -> bool:
    return value.stats is not None and value.stats.finite < value.stats.count


# Tensors -----------------------------------------------------------------------------------------


def _replaces(one: Tensor, other: Tensor, is_weight: bool, allowed: float) -> bool:
    """May a tensor of the file stand for another one: same shape and dtype, and the same numbers up to rounding?"""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (not is_weight and _relative(one, other) <= allowed)


def _is_same(one: Tensor, other: Tensor, allowed: float) -> bool:
    """Do two tensors hold the same numbers, up to rounding, their layout and their order?"""
    if one.shape == other.shape and _relative(one, other) <= allowed:
        return True
    return _relative(one.flatten().sort().values, other.flatten().sort().values) <= min(allowed, SAME)


def _relative(one: Any, other: Any) -> float:
    """Return how far two results are apart, relative to the size of the first."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.numel() != other.numel():
        return math.inf
    x, y = one.detach().reshape(-1), other.detach().reshape(-1)
    if not (x.is_floating_point() or x.is_complex()) or not (y.is_floating_point() or y.is_complex()):
        return float((x != y).double().mean()) if x.numel() else 0.0
    kind = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
    x, y = x.to(kind), y.to(kind)
    if not torch.equal(x.isfinite(), y.isfinite()):
        return math.inf
    x, y = x[x.isfinite()], y[y.isfinite()]
    size, distance = float(x.abs().square().sum()), float((x - y).abs().square().sum())
    return math.sqrt(distance / size) if size else (0.0 if not distance else math.inf)


def _distance(result: Any, value: Value, hand: TensorsAtHand) -> float:
    """Return how far a result is from what the run recorded: its data, or else its statistics."""
    if not isinstance(result, Tensor) or tuple(result.shape) != value.shape or str(result.dtype)[6:] != value.dtype:
        return math.inf
    if hand.is_kept(value):
        return _relative(hand.given(value), result)
    again = measure(result)
    if value.stats is None:
        return math.inf
    return error_between(value.stats, again) or 0.0


def _require_data(trace: TraceData, name: str) -> None:
    if trace.settings.get("values") != "tensors" or trace.data is None:
        _refuse(f"run {name} ({trace.model}) kept no tensors", "run both with fx_debug(…, values='tensors')")
    if trace.call_graphs is None:
        _refuse(f"run {name} ({trace.model}) has no graphs, so its operations are not known", "run it with graph=True")


def _refuse(why: str, advice: str) -> NoReturn:
    raise UsageError(f"no script can be written: {why}: {advice}")
