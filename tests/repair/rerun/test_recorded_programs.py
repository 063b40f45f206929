"""The operations of a recorded run return what it returned, and nothing but functions of torch runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.data.graphs import Op, Ref
from fxdebug.repair.rerun.recorded_programs import NotComputed, RecordedProgram
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.repair.rerun.torch_functions import function_of


class Mixed(nn.Module):
    """Views, masks, sizes, slices that are written to, sums in place, parts, torch's own layers and a nested result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.norm, self.mix = nn.Embedding(5, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.cells, self.attend = nn.GRU(8, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2))
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, places: Tensor, *, factor: float = 2.0) -> dict[str, object]:
        x = self.rows(places)
        batch, length, width = x.shape
        y = self.norm(x).view(batch, length, 2, width // 2).transpose(1, 2).float()
        y = y.transpose(1, 2).reshape(batch, length, width)
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        shares = (y @ y.mT).masked_fill(~allowed, float("-inf")).softmax(-1)
        z = torch.cat([x, shares @ y], -1)[..., :width]
        z[:, 0] = 0
        z += 1
        for block in self.blocks:
            z = z + self.scale * block(z)
        one, other = self.mix(z).chunk(2, -1)
        states, _ = self.cells(x)
        mixed, _ = self.attend(states, z, z, need_weights=False)
        return {"mixed": mixed + torch.cat([other, one], -1) * factor, "parts": [states, (one, 3)]}


@pytest.mark.parametrize("place", ["of this process", "saved"])
def test_what_a_model_returned_is_computed_to_the_last_bit(place: str, tmp_path: Path) -> None:
    with torch.no_grad():
        run = fxdebug.fx_debug(Mixed().eval(), torch.tensor([[1, 2, 3]]), values="tensors", save=tmp_path / "run")
    run = run if place == "of this process" else fxdebug.load(tmp_path / "run")
    program = RecordedProgram.of(run, "a")
    assert program is not None and program.is_as_recorded()
    kept = [run.tensor(value) for value in run.root.outputs]
    assert [torch.equal(one, other) for one, other in zip(kept, program.run(), strict=True)] == [True] * 3


def test_an_operation_that_is_replaced_changes_what_follows_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    run = fxdebug.fx_debug(model, torch.randn(3, 4), values="tensors")
    program = RecordedProgram.of(run, "a")
    halved = ReplacedOperations({(2, "relu"): lambda ran: ran.result / 2})
    assert program is not None
    (found,) = program.run(halved)
    assert halved.made == {(2, "relu")}
    with torch.no_grad():
        expected = model[2](run.tensor(run.calls[2].outputs.item) / 2)
    assert torch.equal(found, expected)


def test_random_numbers_and_code_without_graphs_are_not_as_recorded() -> None:
    @torch.jit.ignore
    def hidden(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    class Outside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return hidden(x) + 1

    for model in (nn.Sequential(nn.Dropout(0.5)), Outside()):
        with torch.no_grad():
            run = fxdebug.fx_debug(model, torch.ones(64), values="tensors")
        program = RecordedProgram.of(run, "a")
        assert program is None or not program.is_as_recorded()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("call_function", "torch.serialization.load"),
        ("call_function", "torch.save"),
        ("call_function", "torch.hub.load"),
        ("call_function", "torch._VariableFunctionsClass.from_file"),
        ("call_function", "os.system"),
        ("call_function", "_operator.call"),
        ("call_function", "_operator.attrgetter"),
        ("call_function", "builtins.eval"),
        ("call_method", "apply_"),
        ("call_method", "register_hook"),
        ("call_method", "__reduce_ex__"),
        ("call_method", "numpy"),
        ("call_method", "__class__"),
    ],
)
def test_what_a_file_names_beside_computations_is_no_function(kind: str, target: str, tmp_path: Path) -> None:
    assert function_of(Op("it", kind, "it", target, (Ref("x"),))) is None  # type: ignore[arg-type]
    fxdebug.fx_debug(nn.Sequential(nn.ReLU()), torch.ones(2), values="tensors", save=tmp_path / "run")
    file = tmp_path / "run" / "trace.json"
    text = file.read_text()
    assert '"torch.nn.functional.relu"' in text
    file.write_text(text.replace('"torch.nn.functional.relu"', json.dumps(target)))
    program = RecordedProgram.of(fxdebug.load(tmp_path / "run"), "a")
    assert program is not None and not program.is_as_recorded()
    with pytest.raises(NotComputed):
        program.run()
