"""Two runs, or two models after backward, that hold gradients: compare says how these differ, and is silent else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import compare, compare_models, fx_debug
from fxdebug.api import Trace
from fxdebug.apps.cli import main

torch.manual_seed(7)
X, Y = torch.randn(12, 8), torch.randint(0, 3, (12,))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def loss(output: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, Y)


def run(model: nn.Module, criterion: Callable[[Tensor], Tensor] = loss, folder: Path | None = None) -> Trace:
    return fx_debug(model, X).with_measures(fxdebug.gradients(model, X, criterion))


def test_runs_with_equal_gradients_are_silent() -> None:
    found = compare(run(net()), run(net()))
    assert found.equal and found.gradients is None and "gradients" not in found.text(width=80)


def test_runs_that_hold_no_gradients_are_compared_as_ever() -> None:
    assert compare(fx_debug(net(), X), run(net())).gradients is None


def test_equal_forwards_with_another_factor_of_the_loss_are_different() -> None:
    found = compare(run(net()), run(net(), lambda output: 4 * loss(output)))
    assert found.findings == () and found.verdict == "different" and not found
    assert found.gradients is not None
    assert found.gradients.answer.startswith("all gradients of b are those of a × 4 (6 parameters)")
    lines = found.text(width=80, color=False).splitlines()
    assert lines[0] == "different: the gradients; the forwards are equal within tolerance"
    assert any(line.startswith("gradients: all gradients of b are those of a × 4") for line in lines)
    assert found.as_json()["gradients"].startswith("all gradients") and "gradients differ" in repr(found)


def test_the_findings_of_the_forward_stand_first() -> None:
    port = net()
    port[1].eps = 0.3
    found = compare(run(net()), run(port))
    assert found.first is not None and found.first.kind == "constant"
    text = found.text(width=80, color=False)
    assert text.startswith("different: first at 1") and 0 < text.index("eps=") < text.index("\ngradients: ")


def test_saved_runs_are_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, factor in (("a", 1.0), ("b", 2.0), ("c", 1.0)):
        model = net()
        trace = fx_debug(model, X, save=tmp_path / name)
        report = fxdebug.gradients(model, X, lambda output, factor=factor: factor * loss(output))
        fxdebug.api.save_measures(trace.with_measures(report))
    a, b, c = (str(tmp_path / name) for name in "abc")
    found = compare(a, b)
    assert found.gradients is not None and "× 2" in found.gradients.answer and compare(a, c).equal
    assert main.main(["compare", a, b]) == 1
    assert "gradients: all gradients of b are those of a × 2" in capsys.readouterr().out
    assert main.main(["gradients", a, b]) == 1
    assert capsys.readouterr().out.startswith("all gradients of b are those of a × 2 (6 parameters)")
    assert main.main(["gradients", a, c]) == 0
    assert capsys.readouterr().out.startswith("all gradients of b are those of a by their norms")


def test_models_after_backward_are_told_and_keep_their_gradients() -> None:
    one, other = net(), net()
    loss(one(X)).backward()
    for part, label in zip(X.split(4), Y.split(4)):
        nn.functional.cross_entropy(other(part), label).backward()
    before = other[0].weight.grad
    found = compare_models(one, other, X)
    assert found.findings == () and found.gradients is not None and "× 3" in found.gradients.answer
    assert other[0].weight.grad is before
    assert compare_models(one, copy.deepcopy(one), X).equal
    assert compare_models(one, net(), X).equal  # b has none


def test_parameters_under_other_names_are_paired_by_their_calls() -> None:
    class Port(nn.Module):
        def __init__(self, inner: nn.Sequential) -> None:
            super().__init__()
            self.first, self.norm, self.last = inner[0], inner[1], inner[3]

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norm(self.first(x)).relu())

    assert compare(run(net()), run(Port(net()))).equal
    found = compare(run(net()), run(Port(net()), lambda output: 4 * loss(output)))
    assert found.gradients is not None and "× 4 (6 parameters)" in found.gradients.answer


def test_fused_parameters_are_left_out() -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.q, self.k, self.head = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.q(x) * self.k(x))

    class Fused(nn.Module):
        def __init__(self, apart: Apart) -> None:
            super().__init__()
            self.qk, self.head = nn.Linear(8, 8), apart.head
            with torch.no_grad():
                self.qk.weight.copy_(torch.cat([apart.q.weight, apart.k.weight]))
                self.qk.bias.copy_(torch.cat([apart.q.bias, apart.k.bias]))

        def forward(self, x: Tensor) -> Tensor:
            q, k = self.qk(x).chunk(2, -1)
            return self.head(q * k)

    found = compare(run(Apart()), run(Fused(Apart())))
    assert found.gradients is None and found.equal


def test_two_models_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, cut):\n"
        "        super().__init__()\n        torch.manual_seed(0)\n        self.cut = cut\n"
        "        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)\n\n    def forward(self, x):\n"
        "        y = self.one(x)\n        return self.two(y.detach() if self.cut else y)\n\n\n"
        "def whole():\n    return Net(False), torch.ones(2, 4)\n\n\ndef cut():\n    return Net(True), None\n"
    )
    assert main.main(["gradients", "nets.py:whole", "nets.py:cut"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "one.bias, one.weight have no gradient in b, and one in a" in told and "detach" in told
    assert main.main(["gradients", "nets.py:whole", "nets.py:whole", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["analysis"] == "compare_gradients"
    assert main.main(["gradients", "nets.py:whole", "runs"]) == 2
    assert main.main(["gradients", "--hf", "gpt2", "nets.py:whole", "nets.py:cut"]) == 2
