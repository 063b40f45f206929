"""A size is open in an exported file only where model and file were seen to agree at another number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import export_onnx

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: fxdebug[onnx]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: fxdebug[onnx]")

from fxdebug.exports.programs.onnx_sizes import open_sizes, why_fixed  # noqa: E402


class Input(NamedTuple):
    name: str
    shape: Sequence[int | str]


class File:
    """A session of onnxruntime that computes what a function does."""

    def __init__(self, function: Callable[..., Any], *shapes: Sequence[int | str]) -> None:
        self._function = function
        self._inputs = [Input(f"x{number}", shape) for number, shape in enumerate(shapes)]

    def get_inputs(self) -> list[Input]:
        return self._inputs

    def run(self, _: None, feeds: dict[str, Any]) -> list[Any]:
        return [np.asarray(self._function(*map(torch.from_numpy, feeds.values())))]


def reasons(model: Callable[..., Tensor], file: File, *given: Tensor) -> dict[str, str]:
    """Return the reason why each open size is not free, empty where it is."""
    sizes = open_sizes(file.get_inputs(), given)
    return {one.name: why_fixed(one, given, lambda tensors: model(*tensors), file, 1e-4) for one in sizes}


def test_a_size_is_free_where_the_file_does_what_the_model_does() -> None:
    x, bias = torch.randn(2, 4), torch.randn(3)
    assert reasons(lambda a, b: a.sum() * b, File(lambda a, b: a.sum() * b, ["n", "t"], ["k"]), x, bias) == {
        "n": "", "t": "", "k": "",
    }  # fmt: skip


def test_inputs_that_share_a_size_are_resized_together() -> None:
    file = File(lambda a, b: a * b, ["n", 4], ["n", 1])
    assert reasons(lambda a, b: a * b, file, torch.randn(2, 4), torch.randn(2, 1)) == {"n": ""}


def test_a_size_that_the_model_itself_does_not_take_is_fixed() -> None:
    weight = torch.randn(4, 2)
    assert reasons(lambda a: a @ weight, File(lambda a: a @ weight, ["n", "t"]), torch.randn(2, 4)) == {
        "n": "", "t": "at 5 the model raises RuntimeError",
    }  # fmt: skip


WRONG = {
    "other numbers": (lambda a: a / 2, "at 3 the exported model returns other numbers than the model"),
    "another shape": (lambda a: (a / len(a))[:2], "at 3 the exported model returns 2×4, the model 3×4"),
    "an error": (lambda a: (a / len(a)).view(2, 4), "at 3 onnxruntime raises RuntimeError: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_size_at_which_the_file_is_wrong_is_fixed(name: str) -> None:
    function, reason = WRONG[name]
    assert reasons(lambda a: a / len(a), File(function, ["n", 4]), torch.randn(2, 4))["n"].startswith(reason)


def test_a_size_that_halves_in_the_model_is_tried_at_its_double() -> None:
    def halves(a: Tensor) -> Tensor:
        if len(a) % 2:
            raise ValueError("odd")
        return a.view(2, -1)

    assert reasons(halves, File(halves, ["n"]), torch.randn(4)) == {"n": ""}


class Fixes(nn.Module):
    """The code fixes the length by a table, and the height by a kernel that torch's exporter computes from it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        return x + self.table, F.adaptive_avg_pool2d(image, 4)


def test_an_exported_file_has_the_numbers_of_sizes_that_the_code_fixes(tmp_path: Path) -> None:
    model = Fixes().eval()
    report = export_onnx(model, tmp_path / "m.onnx", (torch.randn(2, 6, 4), torch.randn(3, 2, 8, 8)))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [[size for size in one.shape if isinstance(size, int)] for one in session.get_inputs()] == [[6, 4], [8, 8]]
    assert {note.what.partition(":")[0] for note in report.notes} == {
        "x.shape[1] is fixed at 6", "x.shape[2] is fixed at 4", "image.shape[2] is fixed at 8",
        "image.shape[3] is fixed at 8",
    }  # fmt: skip
    x, image = torch.randn(5, 6, 4), torch.randn(1, 3, 8, 8)
    for got, wanted in zip(session.run(None, {"x": x.numpy(), "image": image.numpy()}), model(x, image)):
        np.testing.assert_allclose(got, wanted.detach(), rtol=1e-5, atol=1e-6)
