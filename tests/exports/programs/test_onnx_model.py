"""A model that is exported runs in onnxruntime as it ran here, and its nodes say where they come from.

``make test`` exports the small models; ``make programs`` all of them, a minute each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fxdebug import SaveError, UsageError, export_onnx
from support import sweep
from support.exported_models import MODELS, as_it_was, built

onnx = pytest.importorskip("onnx", reason="onnx is not installed: fxdebug[onnx]")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: fxdebug[onnx]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: fxdebug[onnx]")


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
