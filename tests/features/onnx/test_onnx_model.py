"""A model that is exported runs in onnxruntime as it ran here, and its nodes say where they come from.

``make test`` exports the small models; ``make programs`` all of them, a minute each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import SaveError, UsageError, export_onnx
from support import sweep
from support.exported_models import MODELS, as_it_was, built

onnx = pytest.importorskip("onnx", reason="onnx is not installed: fxdebug[onnx]")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: fxdebug[onnx]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: fxdebug[onnx]")

from fxdebug.features.onnx.model import open_sizes, why_fixed  # noqa: E402


class Classifier(nn.Module):
    """A little of everything that an export must keep: an embedding, a repeated layer, a buffer, a cache object."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()) for _ in range(2)])
        self.head = nn.Linear(4, 3)

    def forward(self, tokens: torch.Tensor) -> dict[str, object]:
        hidden = self.layers(self.embed(tokens).mean(1))
        return {"logits": self.head(hidden), "kept": Kept(hidden)}


class Kept:
    """An object with a tensor, as transformers' caches are: torch exports none of these."""

    def __init__(self, state: torch.Tensor) -> None:
        self.state = state


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    model = Classifier().eval()
    before, rng = as_it_was(model), torch.get_rng_state()
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    report = export_onnx(model, path, TOKENS)
    assert as_it_was(model) == before and torch.equal(torch.get_rng_state(), rng)
    return model, path, report


def test_the_report_says_how_far_onnxruntime_is_from_the_model(exported):
    _, path, report = exported
    assert [(row.output, row.shape) for row in report.rows] == [("logits", "2×3"), ("kept.state", "2×4")]
    assert all(row.relative < 1e-5 for row in report.rows) and report.findings == ()
    assert report.totals["size"][0] == sum(file.stat().st_size for file in path.parent.iterdir())
    assert report.totals["nodes joined with a call"][0] >= report.totals["nodes"][0] // 2 > 0


def test_another_batch_and_another_length_run_too(exported):
    model, path, _ = exported
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6, 7]] * 5)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits, state) = session.run(None, {"tokens": tokens.numpy()})
    with torch.no_grad():
        wanted = model(tokens)
    np.testing.assert_allclose(logits, wanted["logits"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, wanted["kept"].state, rtol=1e-5, atol=1e-6)


def test_nodes_carry_path_call_and_statistics_of_the_run(exported):
    model, path, _ = exported
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded)
    facts = [{entry.key: entry.value for entry in node.metadata_props} for node in loaded.graph.node]
    (head,) = [one for one in facts if one.get("fxdebug.path") == "head"]
    with torch.no_grad():
        logits = model(TOKENS)["logits"]
    assert head["fxdebug.call"] == "head#0" and head["fxdebug.module"] == "Linear"
    assert float(head["fxdebug.mean"]) == pytest.approx(logits.mean().item())
    assert {"layers.0.2", "layers.1.2"} <= {one.get("fxdebug.path") for one in facts}


def test_weights_can_be_put_into_a_file_beside(tmp_path):
    torch.manual_seed(0)
    report = export_onnx(nn.Linear(64, 64).eval(), tmp_path / "m.onnx", torch.ones(2, 64), external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert report.findings == ()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, {session.get_inputs()[0].name: np.ones((3, 64), np.float32)})[0].shape == (3, 64)


def test_a_model_in_training_mode_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"training mode.*call model.eval\(\) first"):
        export_onnx(nn.Dropout(), tmp_path / "m.onnx", torch.ones(2))
    assert list(tmp_path.iterdir()) == []


class Undecidable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


def test_what_torch_cannot_export_is_an_error_that_names_the_other_way(tmp_path):
    model = Undecidable().eval()
    before = as_it_was(model)
    with pytest.raises(SaveError, match=r"torch cannot export Undecidable: .*trace\.export\('run\.onnx'\)"):
        export_onnx(model, tmp_path / "m.onnx", torch.ones(2))
    assert as_it_was(model) == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in MODELS if name == "lstm" or (sweep.whole() and name != "mixtral")])
def test_models_of_these_architectures_agree_with_themselves_in_onnxruntime(name, tmp_path: Path):
    model, inputs = built(name)
    report = export_onnx(model, tmp_path / "m.onnx", inputs)
    assert report.findings == () and report.totals["nodes joined with a call"][0] > 5


# Sizes that are free ----------------------------------------------------------------------------


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
