"""Scripts that show a finding: what they compute, with torch and safetensors alone, and when none is written."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import fxdebug
from fxdebug.api.comparison import Comparison
from support import sweep
from support.begun import TORCH, ran

ALONE = "import sys, runpy; sys.modules['fxdebug'] = None; runpy.run_path({!r}, run_name='__main__')"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = [nn.Linear(16, 16) for _ in range(4)]
        self.scale, self.dim, self.causal, self.fused = 8**-0.5, -1, True, False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = [layer(x).view(2, 7, 2, 8).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        else:
            scores = (q @ k.transpose(-1, -2)) * self.scale
            if self.causal:
                scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf)
            y = F.softmax(scores, dim=self.dim) @ v
        return self.out(y.transpose(1, 2).reshape(2, 7, 16))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(16), nn.LayerNorm(16), Attention()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.approximate, self.act, self.factor, self.after, self.adds, self.narrow = (
            "none",
            F.gelu,
            1.0,
            False,
            0,
            False,
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        h = self.up(y)
        h = self.act(h, approximate=self.approximate) if self.act is F.gelu else self.act(h)
        h = self.down(h.bfloat16().float() if self.narrow else h)
        if self.factor != 1.0:
            h = h * self.factor
        if self.adds:
            h += self.adds
        return (y if self.after else x) + h


@torch.no_grad()
def original() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 16), *[Block() for _ in range(3)], nn.Linear(16, 5)).eval()
    for parameter in model.parameters():
        parameter.mul_(1.7)
        if parameter.dim() == 1:
            parameter.add_(torch.rand_like(parameter))
    return model


IDS = torch.randint(0, 30, (2, 7), generator=torch.Generator().manual_seed(0))


def sets(path: str, thing: object) -> Callable[[nn.Module], None]:
    owner, _, name = path.rpartition(".")
    return lambda model: setattr(model.get_submodule(f"2.{owner}".rstrip(".")), name, thing)


def transposed(model: nn.Module) -> None:
    model[2].attention.q.weight.data = model[2].attention.q.weight.data.t().contiguous()


FAULTS: dict[str, tuple[Callable[[nn.Module], None], str, str]] = {
    "gelu": (sets("approximate", "tanh"), "F.gelu(up, approximate='none')", "F.gelu(up, approximate='tanh')"),
    "eps": (
        sets("norm2.eps", 0.01),
        "F.layer_norm(x, normalized_shape=(16,), weight=norm2_weight, bias=norm2_bias, eps=1e-05)",
        "F.layer_norm(x, normalized_shape=(16,), weight=norm2_weight, bias=norm2_bias, eps=0.01)",
    ),
    "transposed": (transposed, "F.linear(x, q_weight, q_bias)", "F.linear(x, q_weight_b, q_bias)"),
    "scale": (sets("attention.scale", 0.25), "matmul * 0.3535533905932738", "matmul * 0.25"),
    "dim": (sets("attention.dim", -2), "F.softmax(masked_fill, dim=-1)", "F.softmax(masked_fill, dim=-2)"),
    "bias": (sets("up.bias", None), "F.linear(x, up_weight, up_bias)", "F.linear(x, up_weight)"),
    "residual": (sets("after", True), "add + down", "norm2 + down"),
    "factor": (sets("factor", 1.5), "x", "x * 1.5"),
    "relu": (sets("act", F.relu), "F.gelu(up, approximate='none')", "F.relu(up)"),
    "narrow": (
        sets("narrow", True),
        "F.linear(gelu, down_weight, down_bias)",
        "F.linear(float_1, down_weight, down_bias)",
    ),
    "in place": (sets("adds", 1), "x", "x.clone().add_(1)"),
}


@torch.no_grad()
def compared(plant: Callable[[nn.Module], None], **keeping: object) -> Comparison:
    right = original()
    wrong = copy.deepcopy(right)
    plant(wrong)
    a, b = [fxdebug.fx_debug(model, IDS, **({"values": "tensors"} | keeping)) for model in (right, wrong)]
    return fxdebug.compare(a, b)


def printed(script: Path) -> dict[str, float]:
    """Run a script where fxdebug cannot be imported; return the numbers that it prints."""
    command = [sys.executable, "-I", "-c", ALONE.format(str(script))]
    done = ran(command, imports=TORCH)
    assert done.returncode == 0, done.stderr
    return {line.partition(":")[0]: float(line.partition(":")[2].split()[0]) for line in done.stdout.splitlines()}


def returned(script: str) -> list[str]:
    return [line.removeprefix("    return ") for line in script.splitlines() if line.startswith("    return ")]


@pytest.mark.parametrize("fault", sweep.sampled(FAULTS, 3))
def test_a_script_shows_the_difference_without_the_model_and_without_fxdebug(fault: str, tmp_path: Path) -> None:
    plant, one, other = FAULTS[fault]
    comparison = compared(plant)
    assert comparison.first is not None
    script = comparison.first.repro(tmp_path / "repro")
    text = script.read_text()
    assert returned(text) == [one, other] and "fxdebug" not in text.partition("\n")[2]
    assert sorted(file.name for file in script.parent.iterdir()) == ["repro.py", "tensors.safetensors"]
    shown = printed(script)
    measured = comparison.first.measures.max_abs
    if measured is not None and comparison.first.kind != "wiring":
        assert shown["largest difference"] == pytest.approx(measured, rel=1e-3)
    assert shown["largest difference"] > 1e-4


def test_written_out_attention_and_a_fused_one_are_given_the_same_tensors(tmp_path: Path) -> None:
    def plant(model: nn.Module) -> None:
        model[2].attention.fused, model[2].attention.scale = True, 0.3

    found = compared(plant).first
    assert found is not None
    script = found.repro(tmp_path)
    assert sorted(load_file(tmp_path / "tensors.safetensors")) == ["transpose", "transpose_1", "transpose_2"]
    assert returned(script.read_text()) == [
        "softmax @ transpose_2",
        "F.scaled_dot_product_attention(transpose, transpose_1, transpose_2, is_causal=True, scale=0.3)",
    ]
    assert printed(script)["largest difference"] > 0.01


class Filled(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y[:, 0] = self.number
        return y.exp()


def test_what_is_written_to_in_place_before_the_finding_is_in_the_script(tmp_path: Path) -> None:
    a, b = [fxdebug.fx_debug(Filled(number), torch.ones(2, 3), values="tensors") for number in (0.0, 1.0)]
    found = fxdebug.compare(a, b).first
    assert found is not None
    text = found.repro(tmp_path).read_text()
    assert "[:, 0] = 0.0" in text and "[:, 0] = 1.0" in text
    assert printed(tmp_path / "repro.py")["largest difference"] >= 1.0


def test_a_mask_that_is_missing_shows_in_what_is_not_finite(tmp_path: Path) -> None:
    found = compared(sets("attention.causal", False)).first
    assert found is not None
    assert printed(found.repro(tmp_path)) == {"not finite": 84.0}


def test_findings_of_compare_models_write_scripts_too(tmp_path: Path) -> None:
    right = original()
    wrong = copy.deepcopy(right)
    FAULTS["gelu"][0](wrong)
    FAULTS["scale"][0](wrong)
    found = fxdebug.compare_models(right, wrong, IDS).findings
    texts = [row.repro(tmp_path / str(at)).read_text() for at, row in enumerate(found)]
    assert [returned(text) for text in texts] == [
        list(FAULTS["scale"][1:]),
        ["F.gelu(up, approximate='none')"] + ["F.gelu(up, approximate='tanh')"],
    ]
    assert printed(tmp_path / "1" / "repro.py")["largest difference"] < 0.001


def test_a_call_that_is_compared_alone_writes_a_script(tmp_path: Path) -> None:
    whole = compared(FAULTS["gelu"][0])
    found = fxdebug.compare(whole.a.find("2")[0], whole.b.find("2")[0]).first
    assert found is not None
    assert returned(found.repro(tmp_path).read_text()) == list(FAULTS["gelu"][1:])


@pytest.mark.parametrize("keeping", [{"values": "stats"}, {"values": "samples"}])
def test_a_run_without_tensors_is_refused_and_nothing_is_written(keeping: dict[str, object], tmp_path: Path) -> None:
    found = compared(FAULTS["gelu"][0], **keeping).first
    assert found is not None
    with pytest.raises(fxdebug.UsageError, match=r"run a \(Sequential\) kept no tensors: run both with fx_debug\(…, v"):
        found.repro(tmp_path / "repro")
    assert not (tmp_path / "repro").exists()


def test_a_run_without_graphs_is_refused(tmp_path: Path) -> None:
    found = compared(FAULTS["gelu"][0], graph=False).first
    assert found is not None
    with pytest.raises(fxdebug.UsageError, match="has no graphs, so its operations are not known"):
        found.repro(tmp_path / "repro")


def test_a_weight_that_is_not_at_hand_is_named(tmp_path: Path) -> None:
    right = original()
    wrong = copy.deepcopy(right)
    FAULTS["eps"][0](wrong)
    for name, model in (("a", right), ("b", wrong)):
        with torch.no_grad():
            fxdebug.fx_debug(model, IDS, values="tensors", save=tmp_path / name, weights=False)
    found = fxdebug.compare(tmp_path / "a", tmp_path / "b").first
    assert found is not None
    with pytest.raises(
        fxdebug.UsageError, match=r"2.norm2.weight of a is not at hand: .* weights_a='model.safetensors'"
    ):
        found.repro(tmp_path / "repro")


def test_a_weight_that_changed_since_the_run_is_noticed(tmp_path: Path) -> None:
    right = original()
    wrong = copy.deepcopy(right)
    FAULTS["eps"][0](wrong)
    with torch.no_grad():
        a, b = [fxdebug.fx_debug(model, IDS, values="tensors") for model in (right, wrong)]
        right[2].norm2.weight.mul_(1.01)
    found = fxdebug.compare(a, b).first
    assert found is not None
    with pytest.raises(fxdebug.UsageError, match="the operations of a return something else than the run recorded"):
        found.repro(tmp_path / "repro")


@torch.library.custom_op("fxdebug_repro::halved", mutates_args=())
def halved(x: Tensor, by: float) -> Tensor:
    return x / by


class Custom(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return halved(x, self.by)


def test_an_operation_that_is_not_of_torch_is_refused_by_its_name(tmp_path: Path) -> None:
    a, b = [fxdebug.fx_debug(Custom(by), torch.ones(3), values="tensors") for by in (2.0, 3.0)]
    found = fxdebug.compare(a, b).first
    assert found is not None
    with pytest.raises(fxdebug.UsageError, match=r"fxdebug_repro.*which is no call of torch: only operations of torch"):
        found.repro(tmp_path / "repro")


def test_random_numbers_are_noticed(tmp_path: Path) -> None:
    right, wrong = nn.Dropout(0.5), nn.Dropout(0.25)
    a, b = [fxdebug.fx_debug(model, torch.ones(64), values="tensors") for model in (right, wrong)]
    found = fxdebug.compare(a, b).first
    assert found is not None
    with pytest.raises(fxdebug.UsageError, match=r"no script can be written: .*random"):
        found.repro(tmp_path / "repro")


def test_a_folder_with_other_files_is_left_alone_and_one_with_a_script_is_written_anew(tmp_path: Path) -> None:
    found = compared(FAULTS["gelu"][0]).first
    assert found is not None
    found.repro(tmp_path / "new" / "folder")
    assert found.repro(tmp_path / "new" / "folder").exists()
    (tmp_path / "notes.txt").write_text("mine")
    for folder, told in ((tmp_path, "holds other files (new, notes.txt)"), (tmp_path / "notes.txt", "is a file")):
        with pytest.raises(fxdebug.SaveError) as error:
            found.repro(folder)
        assert told in str(error.value)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "repro.py").write_text("print('mine')")
    with pytest.raises(fxdebug.SaveError):
        found.repro(tmp_path / "own")
    assert (tmp_path / "own" / "repro.py").read_text() == "print('mine')"


def test_a_script_changes_nothing_in_the_models_and_draws_no_random_number(tmp_path: Path) -> None:
    right = original()
    wrong = copy.deepcopy(right)
    FAULTS["in place"][0](wrong)
    before = copy.deepcopy(right.state_dict())
    with torch.no_grad():
        a, b = [fxdebug.fx_debug(model, IDS, values="tensors") for model in (right, wrong)]
    found = fxdebug.compare(a, b).first
    state = torch.get_rng_state()
    assert found is not None and found.repro(tmp_path / "repro").exists()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(tensor, before[name]) for name, tensor in right.state_dict().items())
