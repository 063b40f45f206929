"""Two checkpoints, or a checkpoint and its model: the kind of state that changed, and what was not loaded."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fxdebug
from fxdebug.errors import UsageError
from support.sick_state import with_adapter


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.body = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False))
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("inv_freq", 10.0 ** -torch.arange(3.0))
        self.register_buffer("loose", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(x)))


def trained() -> Net:
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape))
        for norm in (net.body[1], net.body[3]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return net


def told(a: object, b: object) -> list[tuple[str, str, float | None]]:
    return [(finding.severity, finding.rule, finding.measured) for finding in fxdebug.weights(a, b).findings]


def file_of(net: nn.Module, folder: Path, **more: torch.Tensor) -> Path:
    save_file({name: weight.clone() for name, weight in net.state_dict().items()} | more, folder / "a.safetensors")
    return folder / "a.safetensors"


def moved(net: Net, *parts: str) -> Net:
    other = copy.deepcopy(net)
    with torch.no_grad():
        for name, weight in other.state_dict().items():
            if name.startswith(parts) and weight.is_floating_point():
                weight.add_(torch.rand(weight.shape) + 0.1)
    return other


def test_a_training_that_moves_all_and_an_equal_copy_are_quiet(tmp_path: Path) -> None:
    net = trained()
    assert told(net, copy.deepcopy(net)) == []
    assert told(net, moved(net, "embed", "body", "head")) == []
    assert told(file_of(net, tmp_path), net) == []
    assert told(Net(), net) == []
    before = file_of(net, tmp_path).rename(tmp_path / "before.safetensors")
    nn.init.zeros_(net.body[2].bias)
    assert told(before, file_of(net, tmp_path)) == []  # a training that moved one weight


def test_statistics_that_moved_in_a_frozen_part_are_told_apart_from_weights() -> None:
    net = trained()
    other = moved(net, "embed", "body.1.running", "body.3.running")
    assert told(net, other) == [("warning", "statistics moved", 4)]
    assert fxdebug.weights(net, other).totals["  of them running statistics"] == (4, "")
    assert told(net, moved(net, "body.1.running", "body.3.running")) == [("warning", "statistics moved", 4)]
    assert told(net, moved(net, "embed", "body.0", "body.1", "body.2", "body.3")) == []


def test_an_average_without_statistics_is_found() -> None:
    net = trained()
    average = moved(net, "embed", "body.0", "body.1.weight", "body.2")
    average.body[1].reset_running_stats()
    assert told(net, average) == [("warning", "statistics not copied", 1)]
    assert told(average, net) == []  # a model that is trained
    (finding,) = fxdebug.weights(net, average).findings
    assert finding.advice == "An average of the parameters alone has no statistics: copy the buffers along."


def test_statistics_and_weights_that_a_model_did_not_take_from_a_file_are_no_average(tmp_path: Path) -> None:
    net, other = trained(), trained()
    torch.manual_seed(7)
    for module in other.body:
        module.reset_parameters()
    (finding,) = fxdebug.weights(file_of(net, tmp_path), other).findings
    assert (finding.rule, finding.op) == ("statistics not copied", "body.1.running_mean")
    assert "its matrices have nothing in common with those of the first, either" in finding.what
    assert "a prefix such as backbone. or module." in finding.advice


def test_an_adapter_that_is_added_to_its_weight_and_kept_is_told_and_one_that_is_trained_is_not() -> None:
    (finding,) = fxdebug.weights(with_adapter(merged=False, trained=False), with_adapter(merged=True)).findings
    assert (finding.rule, finding.what) == (
        "adapter merged",
        "0.weight changed by 0.5 times the product of its own lora_B and lora_A, as 1 other weight, and both are there "
        "still: loaded, the adapter counts twice",
    )
    for seed in range(3):
        start = with_adapter(merged=False, trained=False, seed=seed)
        assert told(start, with_adapter(merged=False, seed=seed)) == []
        merged = {name: weight for name, weight in with_adapter(merged=True, seed=seed).items() if "lora" not in name}
        assert "adapter merged" not in {finding.rule for finding in fxdebug.weights(start, merged).findings}


def test_statistics_that_an_average_kept_from_the_step_of_its_copy_are_found() -> None:
    net = trained()
    average = moved(net, "embed", "body.0", "body.1", "body.2")
    net.body[1].num_batches_tracked.fill_(120)
    average.body[1].num_batches_tracked.fill_(40)
    assert told(net, average) == [("warning", "statistics late", 1)]
    assert "40 batches in the second, and 120 in the first" in fxdebug.weights(net, average).findings[0].what
    assert told(average, net) == []  # a model that is trained
    average.body[1].num_batches_tracked.fill_(120)  # carried along
    assert told(net, average) == []


def test_a_table_that_a_cast_rounded_is_found() -> None:
    net = trained()
    other = copy.deepcopy(net)
    other.inv_freq = other.inv_freq.bfloat16().float()
    assert told(net, other) == [("warning", "table changed", 1)]


def test_weights_that_only_shrank_are_told() -> None:
    net = trained()
    other = moved(net, "body")
    with torch.no_grad():
        other.embed.weight.mul_(0.9)
    assert told(net, other) == [("advice", "only shrank", 1)]


def test_names_without_a_counterpart_are_told_of_a_file_and_its_model(tmp_path: Path) -> None:
    net = trained()
    del net.body[2].bias
    net.body[2].register_parameter("bias", None)
    path = file_of(net, tmp_path, extra=torch.ones(1))
    report = fxdebug.weights(path, trained())
    assert [(f.rule, f.what) for f in report.findings if f.rule.startswith("not ")] == [
        ("not in model", "1 name of the checkpoint is of no parameter and no buffer of the model: extra"),
        ("not in file", "1 weight of the model is not in the checkpoint: body.2.bias"),
    ]


def test_a_tied_weight_is_in_the_file_by_any_of_its_names(tmp_path: Path) -> None:
    net = trained()
    for left_out in ("embed.weight", "head.weight"):
        state = {name: weight.clone() for name, weight in net.state_dict().items() if name != left_out}
        save_file(state, tmp_path / "b.safetensors")
        assert told(tmp_path / "b.safetensors", net) == []


def test_a_tie_of_one_side_that_the_other_does_not_have_is_told(tmp_path: Path) -> None:
    net, other = trained(), trained()
    assert told(net, other) == []
    other.head.weight = nn.Parameter(net.head.weight.detach().clone())
    (finding,) = fxdebug.weights(net, other).findings
    assert (finding.severity, finding.op, finding.what) == (
        "warning", "head.weight",
        "embed.weight and head.weight are one tensor in the first, and two in the second: a tie that was broken",
    )  # fmt: skip
    path = file_of(other, tmp_path)
    assert told(path, net) == told(other, net) == []  # equal numbers: either fills both
    nn.init.zeros_(other.head.weight)
    lost = (
        "embed.weight and head.weight are two in the first, with other numbers, and one tensor in the second: the "
        "numbers of one of both are lost"
    )
    for first in (file_of(other, tmp_path), other):
        assert lost in [finding.what for finding in fxdebug.weights(first, net).findings]


def test_rows_that_were_drawn_anew_as_a_weight_grew_are_told() -> None:
    net = trained()
    net.head.weight = nn.Parameter(torch.randn(9, 6))
    grown, anew = copy.deepcopy(net), copy.deepcopy(net)
    for each in (grown, anew):
        each.embed = nn.Embedding.from_pretrained(torch.cat([net.embed.weight.detach(), torch.randn(2, 6)]))
        each.head.weight = nn.Parameter(torch.cat([net.head.weight.detach(), torch.randn(2, 6)]))
    nn.init.normal_(anew.head.weight)
    assert told(net, grown) == []
    assert [(f.rule, f.severity, f.what) for f in fxdebug.weights(net, anew).findings] == [
        ("unlike file", "warning", "head.weight has 11 rows and had 9, and none of these 9 has its numbers of before")
    ]
    assert told(net, moved(anew, "embed", "body", "head")) == []  # it was trained since


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.hidden = nn.Linear(2, 2), [[nn.Linear(2, 2), nn.ReLU()], [nn.Linear(2, 3)]]


def test_weights_in_plain_lists_are_told_where_they_differ_and_beside_a_file(tmp_path: Path) -> None:
    net = Listed()
    assert told(net, copy.deepcopy(net)) == []
    other = copy.deepcopy(net)
    nn.init.ones_(other.hidden[1][0].weight)
    left_out = "state_dict() leaves out hidden, as no nn.ModuleList or nn.ModuleDict has these modules, and"
    assert [f.what for f in fxdebug.weights(net, other).findings] == [
        f"{left_out} 1 weight of them differs between both: hidden[1][0].weight"
    ]
    names = "hidden[0][0].weight, hidden[0][0].bias, hidden[1][0].weight, hidden[1][0].bias"
    assert [f.what for f in fxdebug.weights(file_of(net, tmp_path), net).findings] == [
        f"{left_out} 4 weights of them are in no checkpoint: {names}"
    ]
    for each in (net, other):
        [inner.requires_grad_(False) for layers in each.hidden for inner in layers]
    assert told(net, other) == []  # teachers, which are meant to stay out


def test_a_weight_that_was_written_after_loading_is_told(tmp_path: Path) -> None:
    net = trained()
    path = file_of(net, tmp_path)
    nn.init.zeros_(net.body[2].weight)
    assert told(path, net) == [("warning", "unlike file", 1)]
    assert told(path, moved(net, "embed", "body", "head")) == []  # it was trained since
    assert told(path, trained().bfloat16().float()) == [("warning", "table changed", 1)]


def test_a_prefix_is_told_where_nothing_was_loaded_for_it(tmp_path: Path) -> None:
    net = trained()
    path = tmp_path / "c.safetensors"
    save_file({f"module.{name}": weight.clone() for name, weight in net.state_dict().items()}, path)
    loaded = fxdebug.weights(path, net)
    assert not loaded.findings and {row.state for row in loaded.rows} == {"equal", "only in a", "only in b"}
    assert [note.what for note in loaded.notes] == [
        "names are compared without the prefix 'module.', which only one of both has"
    ]
    torch.manual_seed(7)
    other = moved(trained(), "embed", "body", "head")
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    (finding,) = fxdebug.weights(path, other).findings
    assert finding.what.startswith(
        "the names of the first have the prefix 'module.', which those of the second have not, and "
    )
    assert "weights are others: nothing was loaded by these names: module." in finding.what
    with pytest.raises(UsageError, match="both have no weight of one name"):
        fxdebug.weights(path, nn.Linear(2, 2))


def averaged(change: float, begins: float = 1.0, steps: int = 60) -> tuple[nn.Module, nn.Module]:
    """Return a net that learns, and an average with ``average += change * (weight - average)`` from a factor on."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))
    average = copy.deepcopy(net)
    x = torch.randn(64, 12)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with torch.no_grad():
        for weight in average.parameters():
            weight.mul_(begins)
    for _ in range(steps):
        optimizer.zero_grad()
        (net(x) - x[:, :4].sin()).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for weight, mean in zip(net.parameters(), average.parameters()):
                mean.add_(change * (weight - mean))
    return net, average


@pytest.mark.parametrize("change", [0.02, 0.1, 0.9])
def test_an_average_that_follows_is_left_alone(change: float) -> None:
    assert told(*averaged(change)) == []


def test_an_average_that_runs_away_is_told_by_its_size() -> None:
    net, average = averaged(-0.05, steps=80)
    finding = fxdebug.weights(net, average).findings[0]
    assert (finding.severity, finding.rule) == ("advice", "no average")
    assert finding.what.startswith("all 6 weights of the second are larger, ")
    assert "the sign of its update is wrong" in finding.advice


def test_an_average_that_begins_at_zero_is_told_by_its_factor() -> None:
    net, average = averaged(0.01, begins=0.0)
    finding = fxdebug.weights(net, average).findings[0]
    assert (finding.severity, finding.rule) == ("advice", "no average")
    assert "it begins at 0 and is not divided by 1 - decay^steps" in finding.advice


def test_an_average_in_a_narrow_dtype_is_told_where_more_than_rounding_differs() -> None:
    net, average = averaged(0.02)
    assert told(net, average.bfloat16()) == [("advice", "no average", 6)]
    assert told(net, copy.deepcopy(net).bfloat16()) == []  # a cast


def test_a_model_as_drawn_is_told_beside_one_that_is_trained() -> None:
    net, average = averaged(0.0)
    assert told(net, average) == [("warning", "as drawn", 3)]
    assert told(average, net) == []  # before and after
    assert told(average, averaged(0.0)[1]) == []


def test_state_dicts_are_compared_and_the_part_that_the_second_lacks_is_told() -> None:
    net = trained()
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    after = {name: weight for name, weight in before.items() if not name.startswith("body.0")}
    finding = fxdebug.weights(before, after).findings[0]
    assert (finding.severity, finding.rule) == ("advice", "not in second")
    assert finding.what == (
        "2 weights of the first are not in the second, which has the other 13: body.0.weight, body.0.bias"
    )
    assert told(before, before) == []
    assert told(after, before) == []  # the second has more
    assert told(net, before) == []
    assert len(fxdebug.weights(before).rows) == len(before)


def test_what_a_loader_put_under_another_name_or_joined_to_one_weight_is_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    fused = nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "norm": nn.LayerNorm(8)})
    kept = fused.state_dict()
    file = {f"norm.{end}": kept[f"norm.{end}"] for end in ("weight", "bias")}
    for end in ("weight", "bias"):
        file |= {f"{name}.{end}": part.clone() for name, part in zip("qkv", kept[f"qkv.{end}"].split(8))}
        file[f"o_proj.{end}"] = kept[f"out.{end}"].clone()
    torch.save(file, tmp_path / "file.pt")
    assert fxdebug.weights(tmp_path / "file.pt", fused).findings == ()
    with torch.no_grad():
        fused["qkv"].weight[9] = 1
    told = [(finding.rule, finding.measured) for finding in fxdebug.weights(tmp_path / "file.pt", fused).findings]
    assert told == [("not in model", 3.0), ("not in file", 1.0)]


def test_a_file_that_nests_its_weights_is_read_and_a_model_that_has_none_of_them_is_told(tmp_path: Path) -> None:
    net, path = trained(), tmp_path / "run.pt"
    moments = {"state": {0: {"exp_avg": torch.zeros(3)}}, "lr": 0.1}
    torch.save({"epoch": 5, "net": net.state_dict(), "ema": {"w": torch.ones(2)}, "optimizer": moments}, path)
    assert told(path, net) == []
    assert {row.state for row in fxdebug.weights(path, net).rows if row.name.startswith("body")} == {"equal"}
    deep = [nn.Linear(16, 16) for _ in range(4)]
    nested = nn.Sequential(*deep)
    torch.save({"epoch": 5, "net": nested.state_dict()}, path)
    other = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)])
    (finding,) = fxdebug.weights(path, other).findings
    assert (finding.rule, finding.measured) == ("not in model", 4)
    assert finding.what.startswith(
        "none of the 4 matrices of the model has anything in common with that of its name in "
    )
    assert "nothing was loaded; the file has them under 'net'" in finding.what
    other[2].load_state_dict(deep[2].state_dict())
    assert "not in model" not in [rule for _, rule, _ in told(path, other)]


def test_the_answer_names_what_changed_and_the_rank_of_what_was_added() -> None:
    before = nn.ModuleDict({name: nn.ModuleList([nn.Linear(32, 32) for _ in range(3)]) for name in ("query", "key")})
    after = copy.deepcopy(before)
    with torch.no_grad():
        for layer in after["query"]:
            layer.weight += torch.randn(32, 2) @ torch.randn(2, 32)
    how = "by matrices of rank 2 (as of an adapter: merged with another factor, or into one of both alone)"
    rest = "the other 9 weights are equal"
    assert fxdebug.weights(before, after).answer == (
        f"changed: query.0.weight, query.1.weight and query.2.weight, {how}; {rest}"
    )
    with torch.no_grad():
        after["query"][1].bias += 1
    assert fxdebug.weights(before, after).answer == (
        "changed: query.0.weight, query.1.bias, query.1.weight and query.2.weight; the other 8 weights are equal"
    )
    with torch.no_grad():
        for layer in after["query"]:
            layer.bias += 1
    assert fxdebug.weights(before, after).answer == "changed in query; the other part is equal"


def test_the_answer_says_that_nothing_was_changed() -> None:
    before = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).state_dict()
    after = {name: one.clone() for name, one in before.items()}
    assert fxdebug.weights(before, after).answer == "nothing was changed: all 4 weights are equal"
    after["lora_A"] = torch.ones(2)
    assert fxdebug.weights(before, after).answer == (
        "nothing was changed: all 4 weights that both have are equal; 1 is only in b"
    )
    after = {name: one.double() for name, one in before.items()}
    assert fxdebug.weights(before, after).answer.endswith("all 4 weights are equal, 4 of them in another dtype")


def test_the_answer_about_a_model_and_its_file_says_that_both_have_the_same(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert fxdebug.weights(tmp_path / "model.pt", model).answer == (
        "the model has what the file has: all 2 weights are equal"
    )


def test_the_answer_says_that_all_weights_changed_and_by_how_much() -> None:
    before = {"one.weight": torch.ones(2, 2), "one.bias": torch.ones(4)}
    after = {"one.weight": 1.5 * torch.ones(2, 2), "one.bias": torch.ones(4) + torch.tensor([2.0, 0, 0, 0])}
    assert fxdebug.weights(before, after).answer == "all 2 weights changed, by 50 to 1e+02 % of their size"
