"""The bodies of a page say what ran: items in their order, edges from what made a tensor to what reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fxdebug
from fxdebug import Trace, fx_debug
from support.page_data import RunOfPage, data_in
from support.trees import Does


def page_of(trace: Trace, folder: Path) -> RunOfPage:
    return RunOfPage(data_in(trace.export(folder / "run.html")))


def run_of(forward: Any, *inputs: Any, tmp_path: Path, **parts: nn.Module) -> RunOfPage:
    model = Does(forward)
    for name, part in parts.items():
        model.add_module(name, part)
    return page_of(fx_debug(model, inputs), tmp_path)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).relu()
        return x.view(-1)


def test_a_body_is_one_for_all_calls_that_did_the_same(tmp_path: Path) -> None:
    run = page_of(fx_debug(Residual(), torch.ones(2, 4)), tmp_path)
    (linear,) = {item[4] for item in run.root["items"] if item[0] == "call"}
    layer = [
        ("call", "layers.0", "Linear", "2×4", linear, [(-1, 0, 0)]),
        ("operation", "relu", "", "2×4", -1, [(0, 0, 0)]),
    ]
    assert run.root["items"][:3] == [*layer, ("operation", "add", "", "2×4", -1, [(-1, 0, 0), (1, 1, 0)])]
    assert run.root["items"][3][5] == [(2, 0, 0)] and run.root["items"][9] == (
        "views",
        "view",
        "",
        "8",
        -1,
        [(8, 0, 0)],
    )
    assert (run.root["title"], run.root["inputs"], run.root["outputs"]) == ("Residual", [("x", "2×4")], [(9, 0, "")])
    assert run.body(linear) == {
        "title": "Linear",
        "inputs": [("input", "2×4")],
        "items": [("operation", "linear", "", "2×4", -1, [(-1, 0, 0)])],
        "outputs": [(0, 0, "")],
    }
    assert run.data["calls"]["item"] == [-1, 0, 3, 6]


def test_a_part_of_a_tuple_comes_from_what_made_the_tuple(tmp_path: Path) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return b * a.tanh()

    kinds = run_of(forward, torch.ones(2, 4), tmp_path=tmp_path).root["items"]
    by_name = {name: i for i, (_, name, *_rest) in enumerate(kinds)}
    assert [kind for kind, *_ in kinds] == ["operation", "structure", "structure", "operation", "operation"]
    assert kinds[by_name["tanh"]][5] == [(0, 0, 0)]
    assert kinds[by_name["mul"]][5] == [(0, 0, 1), (by_name["tanh"], 1, 0)]


def test_what_reads_a_tensor_after_it_was_written_to_hangs_on_what_wrote(tmp_path: Path) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return y.relu()

    items = run_of(forward, torch.ones(3), tmp_path=tmp_path).root["items"]
    assert [(name, edges) for _, name, _, _, _, edges in items] == [
        ("mul", [(-1, 0, 0)]),
        ("add", [(0, 0, 0)]),
        ("relu", [(1, 0, 0)]),
    ]


def test_a_call_gets_each_argument_at_the_input_that_has_its_value(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, flag: bool, b: Tensor) -> dict[str, Tensor]:
            return {"sum": a + b, "difference": a - b}

    def forward(self: Any, x: Tensor) -> Tensor:
        made = self.two(b=x.tanh(), a=x, flag=True)
        return made["difference"]

    run = run_of(forward, torch.ones(3), tmp_path=tmp_path, two=Two())
    call = next(item for item in run.root["items"] if item[0] == "call")
    inner = run.body(call[4])
    names = [name for name, _ in inner["inputs"]]
    assert {(names[argument], source) for source, argument, _ in call[5]} == {("a", -1), ("b", 0)}
    assert [name for *_, name in inner["outputs"]] == ["sum", "difference"]
    assert run.root["outputs"] == [(1, 1, "")]


def test_without_graphs_equal_values_tell_where_results_went(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    run = page_of(fx_debug(model, torch.ones(1, 4), graph=False), tmp_path)
    assert [(name, kind, edges) for kind, name, _, _, _, edges in run.root["items"]] == [
        ("0", "call", [(-1, 0, 0)]),
        ("1", "call", [(0, 0, 0)]),
        ("2", "call", [(1, 0, 0)]),
    ]
    assert run.data["hasGraphs"] is False and run.data["calls"]["body"][1:] == [-1, -1, -1]


def test_a_run_that_raised_has_what_ran_and_where_it_ended(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    with pytest.raises(RuntimeError):
        fx_debug(model, torch.ones(1, 4))
    failed = fxdebug.last_failed()
    assert failed is not None
    run = page_of(failed, tmp_path)
    assert [item[1] for item in run.root["items"]] == ["0", "1"]
    assert run.data["partial"].startswith("The run raised RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    raised = [run.data["failures"][i]["here"] if i >= 0 else None for i in run.data["calls"]["failure"]]
    assert raised == [False, None, False, None, True]


MODELS: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "lstm": (nn.LSTM(3, 4, 2, bidirectional=True), (torch.ones(5, 2, 3),)),
    "attention": (nn.MultiheadAttention(8, 2), (torch.ones(3, 1, 8),) * 3),
    "encoder": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
        (torch.ones(3, 1, 8),),
    ),
    "decoder": (nn.TransformerDecoderLayer(8, 2, 16).eval(), (torch.ones(3, 1, 8), torch.ones(2, 1, 8))),
    "shared": (Does(lambda self, x: torch.stack([x, x]).unbind()), (torch.ones(2),)),
    "nothing": (Does(lambda self, x: None), (torch.ones(2),)),
    "hooked": (nn.Sequential(nn.ReLU(), nn.Tanh()), (torch.ones(2),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_edge_joins_what_there_is(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name]
    if name == "hooked":
        model[0].register_forward_hook(lambda module, given, made: made * 2)
    run = page_of(fx_debug(model, inputs), tmp_path)
    bodies = [run.body(i) for i in range(len(run.data["bodies"]["title"]))]
    assert all(item >= 0 for item in run.data["calls"]["item"][1:])
    for body in bodies:
        for i, (kind, _, _, _, inner, edges) in enumerate(body["items"]):
            for source, argument, output in edges:
                assert -len(body["inputs"]) <= source < i
                maker = body["items"][source] if source >= 0 else None
                assert maker is None or maker[0] != "structure" or kind == "structure"
                assert maker is None or maker[4] < 0 or output < len(bodies[maker[4]]["outputs"])
                assert inner < 0 or argument < len(bodies[inner]["inputs"])
        assert all(-len(body["inputs"]) <= source < len(body["items"]) for source, _, _ in body["outputs"])


class GivesWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.hyper = nn.Sequential(nn.Linear(4, 8)), nn.Linear(2, 32)

    def forward(self, x: Tensor, z: Tensor) -> Any:
        return functional_call(self.net, {"0.weight": self.hyper(z).view(8, 4)}, (x,))


def test_a_weight_that_is_given_for_one_call_enters_by_an_input_of_its_own(tmp_path: Path) -> None:
    run = page_of(fx_debug(GivesWeights(), (torch.randn(5, 4), torch.randn(2))), tmp_path)
    items = {item[1]: item for item in run.root["items"]}
    view = [item[1] for item in run.root["items"]].index("view")
    assert items["net"][5] == [(-1, 0, 0), (view, 1, 0)]


def test_each_output_comes_from_the_call_that_returned_it_though_all_are_one_tensor(tmp_path: Path) -> None:
    def forward(self: Any, x: Tensor) -> dict[str, Any]:
        y = x * 2
        return {"first": y, "others": [self.same(y), self.same(y)]}

    run = run_of(forward, torch.ones(2), tmp_path=tmp_path, same=nn.Identity())
    assert [item[5] for item in run.root["items"]] == [[(-1, 0, 0)], [(0, 0, 0)], [(0, 0, 0)]]
    assert [output[:2] for output in run.root["outputs"]] == [(0, 0), (1, 0), (2, 0)]
