"""Weights that are given to ``compare`` beside runs that did not keep them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fxdebug
from fxdebug.api.comparison import Comparison
from fxdebug.apps.cli import main


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).tanh())  # type: ignore[no-any-return]


def original() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


def transposed(model: Any) -> None:
    model.first.weight.copy_(model.first.weight.t().clone())


def permuted(model: Any) -> None:
    model.second.weight.copy_(model.second.weight.flip(0))


def of_another(model: Any) -> None:
    model.second.bias.copy_(model.first.bias[:6])


def missing_row(model: Any) -> None:
    model.first.weight[7] = 0.0


FAULTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "transposed": (transposed, "first.weight is that of a transposed"),
    "permuted": (permuted, "second.weight is that of a with rows in reverse order"),
    "a row": (missing_row, "row 7 of first.weight"),
}


@torch.no_grad()
def saved(plant: Callable[[Any], None], folder: Path) -> tuple[nn.Module, nn.Module]:
    """Save two runs without their weights, and return the models."""
    right = original()
    wrong = copy.deepcopy(right)
    plant(wrong)
    for name, model in (("a", right), ("b", wrong)):
        fxdebug.fx_debug(model, X, values="tensors", save=folder / name, weights=False)
    return right, wrong


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_weight_is_named_with_given_weights_alone(fault: str, tmp_path: Path) -> None:
    plant, words = FAULTS[fault]
    right, wrong = saved(plant, tmp_path)
    without = fxdebug.compare(tmp_path / "a", tmp_path / "b").first
    assert without is not None and without.kind == "values"
    found = fxdebug.compare(
        tmp_path / "a", tmp_path / "b", weights_a=right.state_dict(), weights_b=wrong.state_dict()
    ).first
    assert found is not None and found.kind == "weights" and found.because.startswith(words)


def forms(right: nn.Module, wrong: nn.Module, folder: Path) -> dict[str, tuple[Any, Any]]:
    for name, model in (("a", right), ("b", wrong)):
        content = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
        save_file(content, folder / f"{name}.safetensors")
        (folder / f"of-{name}").mkdir()
        save_file(content, folder / f"of-{name}" / "model.safetensors")
        torch.save({"state_dict": content}, folder / f"{name}.pt")
    prefixed = [{f"module.{key}": tensor for key, tensor in model.state_dict().items()} for model in (right, wrong)]
    return {
        "safetensors": (folder / "a.safetensors", str(folder / "b.safetensors")),
        "folders": (folder / "of-a", folder / "of-b"),
        "pickles": (folder / "a.pt", folder / "b.pt"),
        "prefixed": (prefixed[0], prefixed[1]),
    }


def test_weights_are_state_dicts_files_and_folders_and_may_have_a_prefix(tmp_path: Path) -> None:
    right, wrong = saved(transposed, tmp_path)
    for form, (a, b) in forms(right, wrong, tmp_path).items():
        found = fxdebug.compare(tmp_path / "a", tmp_path / "b", weights_a=a, weights_b=b)
        assert found.first is not None and found.first.because == "first.weight is that of a transposed", form


def test_given_weights_leave_traces_as_they_were_and_serve_a_script(tmp_path: Path) -> None:
    right, wrong = saved(transposed, tmp_path)
    a, b = fxdebug.load(tmp_path / "a"), fxdebug.load(tmp_path / "b")
    before = copy.deepcopy(a)
    found = fxdebug.compare(a, b, weights_a=right.state_dict(), weights_b=wrong.state_dict()).first
    assert a == before
    assert found is not None
    text = found.repro(tmp_path / "repro").read_text()
    assert "return F.linear(x, first_weight, first_bias)" in text and "F.linear(x, first_weight_b, first_bias)" in text


def test_a_call_is_compared_with_the_weights_of_the_whole_model(tmp_path: Path) -> None:
    right, wrong = saved(transposed, tmp_path)
    given = {"weights_a": right.state_dict(), "weights_b": wrong.state_dict()}
    for calls in (
        (f"{tmp_path / 'a'}::first", f"{tmp_path / 'b'}::first"),
        [fxdebug.load(tmp_path / name).find("first")[0] for name in "ab"],
    ):
        found: Comparison = fxdebug.compare(*calls, **given)  # type: ignore[arg-type]
        assert found.first is not None and found.first.because == "weight is that of a transposed"


def test_a_run_that_saved_its_weights_and_did_not_measure_them_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fxdebug.capture.tensors.parameters.AFFORDABLE", 10)  # as of a large model
    right = original()
    wrong = copy.deepcopy(right)
    with torch.no_grad():
        transposed(wrong)
        for name, model in (("a", right), ("b", wrong)):
            fxdebug.fx_debug(model, X, values="tensors", save=tmp_path / name)
    a = fxdebug.load(tmp_path / "a")
    assert a.parameters[0].before is None
    found = fxdebug.compare(a, tmp_path / "b").first
    assert found is not None and found.because == "first.weight is that of a transposed"
    assert a.parameters[0].before is None


def test_equal_runs_stay_equal_with_given_weights(tmp_path: Path) -> None:
    right, _ = saved(lambda model: None, tmp_path)
    given = right.state_dict()
    assert fxdebug.compare(tmp_path / "a", tmp_path / "b", weights_a=given, weights_b=given).equal


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    right, _ = saved(lambda model: None, tmp_path)
    with torch.no_grad():
        fxdebug.fx_debug(right, X, save=tmp_path / "known")
    other = {name: tensor + 1 for name, tensor in right.state_dict().items()}
    narrow = {"first.weight": torch.ones(2, 2)}
    for weights, told in (
        (other, "weights_a: first.weight is not what ran: its statistics differ by"),
        (narrow, "weights_a: first.weight has the shape [2, 2], and [8, 8] in the run"),
        ({"x": torch.ones(1)}, "weights_a has no weight of Net: it has x; the run has first.weight, first.bias"),
        (3, "weights_a is an int: give a state dict, or the path of a checkpoint"),
    ):
        with pytest.raises(fxdebug.UsageError) as error:
            fxdebug.compare(tmp_path / "known", tmp_path / "b", weights_a=weights)  # type: ignore[arg-type]
        assert str(error.value).startswith(told)
    with pytest.raises(fxdebug.LoadError, match=r"nowhere\.safetensors"):
        fxdebug.compare(tmp_path / "a", tmp_path / "b", weights_a=tmp_path / "nowhere.safetensors")


def test_weights_that_are_lacking_are_told(tmp_path: Path) -> None:
    right, wrong = saved(transposed, tmp_path)
    part = {name: tensor for name, tensor in right.state_dict().items() if name.startswith("first")}
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b", weights_a=part, weights_b=wrong.state_dict())
    assert found.first is not None and found.first.because == "first.weight is that of a transposed"
    assert "weights_a lacks norm.weight, norm.bias, norm.running_mean and 4 more" in " ".join(found.notes)


def test_the_command_takes_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = saved(transposed, tmp_path)
    a, b = forms(right, wrong, tmp_path)["safetensors"]
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main.main(["compare", *runs, "--weights-a", str(a), "--weights-b", str(b)]) == 1
    assert "first.weight is that of a transposed" in capsys.readouterr().out
