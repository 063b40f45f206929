"""Write the script that shows a finding, and its tensors; both are tried before they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.api.finding_row import FindingRow
from fxdebug.comparison.result import KINDS
from fxdebug.data.values import Value
from fxdebug.errors import SaveError, UsageError, first_line
from fxdebug.features.repro.common_part import Side, without_common_part
from fxdebug.features.repro.distance import error_of_rerun, relative_error
from fxdebug.features.repro.plain_calls import line_text
from fxdebug.features.repro.region import Region
from fxdebug.features.repro.same_inputs import SAME, same_inputs_of
from fxdebug.features.repro.targets import Target, pairs_of, squeezed
from fxdebug.files.write_file import all_written_whole
from fxdebug.printable import printable
from fxdebug.version import __version__

SCRIPT, TENSORS = "repro.py", "tensors.safetensors"
MARK = "# Written by fxdebug"
EXPLAINED = 0.3  # of the difference shown: the most by which a side may miss what was recorded
ALIKE = 1e-5  # relative error of a shorter script beside the whole one


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
    refused: UsageError | None = None
    for pair in pairs_of(finding):
        try:
            return _Repro(finding, pair).made()
        except UsageError as error:
            refused = refused or error
    if refused is None:
        _refuse(f"{finding.where} ({finding.kind}) has no pair of results that differ", "take another finding")
    raise refused


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


class _Repro:
    def __init__(self, finding: FindingRow, pair: tuple[Target, Target]) -> None:
        self._finding, self._pair = finding, pair
        self._file: dict[str, Tensor] = {}  # the tensors of the script
        found = same_inputs_of(finding, *pair)
        self._own: list[dict[str, Tensor]] = []  # what each side was given in its run
        a = self._side(found.a, 0, {})
        self.sides = (a, self._side(found.b, 1, found.partner))

    def _side(self, region: Region, which: int, partner: dict[str, str]) -> Side:
        """Return the lines of a side with its inputs; tensors of a are used for b where they are the same."""
        hand = self._pair[which].hand
        own = {name: hand.given(value) for name, value in region.given.items()}
        weights = {name: hand.weight(value) for name, value in region.weights.items()}
        inputs: dict[str, str] = {}
        for name, tensor in (own | weights).items():
            shared = partner.get(name) or next((key for key, x in self._file.items() if _is_equal(x, tensor)), None)
            if shared is None or self._file[shared].dtype != tensor.dtype:
                shared = name if name not in self._file else f"{name}_{'ab'[which]}"
                self._file[shared] = tensor
            inputs[name] = shared
        self._own.append(own | weights)
        return Side(region.lines, region.result, inputs, frozenset([inputs[name] for name in weights]))

    def made(self) -> tuple[str, dict[str, Tensor]]:
        """Return the text of the script and its tensors."""
        whole = [self._run(name, side, own) for name, side, own in zip("ab", self.sides, self._own)]
        shown = [self._run(name, side, self._shared(side)) for name, side in zip("ab", self.sides)]
        apart = relative_error(*shown)
        for name, result, target in zip("ab", whole, self._pair):
            if error_of_rerun(result, target) > (EXPLAINED * apart if apart < float("inf") else SAME):
                _refuse(
                    f"run again, the operations of {name} return something else than the run recorded",
                    "do they draw random numbers, or was the model changed since?",
                )
        if squeezed(self._pair[0].value) != squeezed(self._pair[1].value) and self._finding.kind != "shape":
            _refuse("the two sides return other shapes here", "take a finding that compares results of one shape")
        if relative_error(whole[1], shown[1]) > EXPLAINED * apart:
            _refuse("b was given other tensors, by earlier findings", "take the first one, or compare_models")
        if apart <= min(self._finding.tolerance, self._finding.error / 10):
            isolated = bool(
                self._pair[1].trace.settings.get("isolated")
            )  # then a caller's fault shows in plain runs alone
            advice = "take that of compare(a, b), of two traces" if isolated else "take another finding"
            _refuse("given the same tensors, the operations of a and of b return the same", advice)
        sides = self._shortened(shown)
        used = {shared for side in sides for shared in side.inputs.values()}
        return self._text(sides), {name: self._file[name].clone().contiguous() for name in self._file if name in used}

    def _shortened(self, shown: list[Any]) -> tuple[Side, Side]:
        """Return both sides without what they compute alike, where they return the same as before."""
        a, b, cut = without_common_part(*self.sides)
        names = {name: name if name not in self._file else f"{name}_" for name in cut}
        for name in cut:
            upto = Side(self.sides[0].lines, name, self.sides[0].inputs)
            result = self._run("a", upto, self._shared(upto))
            if not isinstance(result, Tensor):
                return self.sides
            self._file[names[name]] = result
        for side in (a, b):
            side.inputs = {name: names.get(shared, shared) for name, shared in side.inputs.items()}
        again = [self._run(name, side, self._shared(side)) for name, side in zip("ab", (a, b))]
        return (a, b) if all(relative_error(x, y) <= ALIKE for x, y in zip(shown, again)) else self.sides

    def _shared(self, side: Side) -> dict[str, Tensor]:
        return {name: self._file[shared] for name, shared in side.inputs.items()}

    def _run(self, name: str, side: Side, given: dict[str, Tensor]) -> Any:
        """Run the lines of a side."""
        functions: dict[str, Any] = {}
        source = "\n".join(["import torch", "import torch.nn.functional as F", *_function(name, side, None)])
        try:
            exec(compile(source, SCRIPT, "exec"), functions)
            with torch.no_grad():
                return functions[name](*[given[each].clone() for each in side.inputs])
        except UsageError:
            raise
        except Exception as error:
            _refuse(f"the operations of {name} cannot be run again: {first_line(error)}", "take another finding")

    def _text(self, sides: tuple[Side, Side]) -> str:
        a, b = sides
        b = b.renamed({name: shared for name, shared in b.inputs.items() if name != shared})
        finding = self._finding
        because = finding.because or ("" if finding.kind is None else KINDS[finding.kind])
        calls = [f"{name}({', '.join(map(_item, side.inputs.values()))})" for name, side in (("a", a), ("b", b))]
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
                *_function("a", a, self._pair[0].source),
                *_function("b", b, self._pair[1].source),
                "",
                f't = load_file(Path(__file__).with_name("{TENSORS}"))',
                "with torch.no_grad():",
                f"    one = {calls[0]}",
                f"    other = {calls[1]}",
                *_printed(*self._pair),
                "",
            ]
        )


def _function(name: str, side: Side, source: str | None) -> list[str]:
    """Return the lines of one side as a function."""
    place = "" if source is None else "  # " + printable(source.replace("\\", "/").rpartition("/")[2])
    autocast = {line.op.autocast for line in side.lines} - {None}
    if autocast:
        _refuse(f"{name} ran under autocast ({', '.join(map(str, autocast))})", "run both without autocast")
    lines = [text for line in side.lines for text in line_text(line).split("\n")]
    last = f"{side.result} = "
    end = lines.pop().removeprefix(last) if lines and lines[-1].startswith(last) else side.result
    return [
        "",
        f"def {name}({', '.join(side.inputs)}):{place}",
        *[f"    {line}" for line in (*lines, f"return {end}")],
        "",
    ]


def _item(name: str) -> str:
    return f't["{name}"]'


def _printed(a: Target, b: Target) -> list[str]:
    """Return the lines that print how far the results are apart."""
    one, other = a.value, b.value
    if squeezed(one) != squeezed(other):
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


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _refuse(why: str, advice: str) -> NoReturn:
    raise UsageError(f"no script can be written: {why}: {advice}")
