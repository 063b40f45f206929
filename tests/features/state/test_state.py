"""The state of a model, asked by ``check`` without inputs: every fault with its healthy twin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


class Rotary(nn.Module):
    def __init__(self, head: int = 16, base: float = 10000.0) -> None:
        super().__init__()
        self.head, self.base = head, base
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, head, 2) / head), persistent=False)


class Bias(nn.Module):
    def __init__(self, slopes: int) -> None:
        super().__init__()
        self.slopes = slopes
        self.register_buffer("table", torch.linspace(1, 2, slopes), persistent=False)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rotary, self.bias = nn.Embedding(40, 32), Rotary(), Bias(5)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(5)])
        self.norms = nn.ModuleList([Norm(32) for _ in range(5)])
        self.bn, self.drop, self.head = nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 40, bias=False)


def trained() -> Net:
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
        net.bn.running_mean.normal_()
        net.bn.running_var.uniform_(0.5, 2)
    return net.eval()


def found(model: nn.Module, **options: Any) -> list[tuple[str, str, str]]:
    report = fxdebug.check(model, analyses=["state"], config=False, **options)
    return [(finding.severity, finding.rule, finding.path) for finding in report]


def test_fresh_and_trained_models_are_quiet() -> None:
    assert found(trained()) == []
    assert found(Net()) == []
    assert found(Net().eval()) == []


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_norms_that_are_drawn_are_no_sign_of_training(mean: float) -> None:
    net = Net().eval()
    for norm in net.norms:
        nn.init.normal_(norm.weight, mean, 0.02)
    nn.init.normal_(net.bn.weight, mean, 0.02)
    nn.init.zeros_(net.layers[0].weight)
    assert found(net) == []


@pytest.mark.parametrize(
    "numbers",
    [
        torch.zeros(8),
        torch.tensor([9e-41, 0, 3e-41, 0, 0, 0, 0, 0]),
        torch.tensor([3e29, -7e12, 2e35, 1.4e8, 1, 1, 1, 1]),
        torch.tensor([float("nan"), 0.3, 2, 0.1, 0, 0, 0, 0]),
        torch.tensor([0.3, 0.9, 0.2, 0.1, 0.8, 0.5, 0.6, 0.4]),
        -(10000.0 ** -(torch.arange(8) / 8)),
        500000.0 ** -(torch.arange(8) / 8),
    ],
    ids=["zero", "subnormal", "huge", "nan", "any", "negative", "another base"],
)
def test_frequencies_that_no_module_makes_are_found(numbers: torch.Tensor) -> None:
    net = trained()
    net.rotary.inv_freq.copy_(numbers)
    assert found(net) == [("error", "buffer", "rotary")]


def test_a_table_is_compared_with_that_of_a_new_module_where_its_arguments_are_known() -> None:
    net = trained()
    net.bias.table.zero_()
    finding = fxdebug.check(net, config=False)[0]
    assert finding.what == "the buffer bias.table is zero; what its __init__ makes goes up to 2"
    del net.bias.slopes  # it cannot be made anew, and its text says enough
    finding = fxdebug.check(net, config=False)[0]
    assert finding.what.startswith("the buffer bias.table is zero; its class makes it by ")


class Tables(nn.Module):
    """Tables that are in no checkpoint: one that is computed, and three that begin as zeros."""

    def __init__(self, parts: int) -> None:  # which it does not keep: it cannot be made anew
        super().__init__()
        computed = 10000.0 ** -(torch.arange(parts) / parts)
        self.register_buffer("computed", computed, persistent=False)
        self.register_buffer("cache", torch.zeros(4), persistent=False)
        filled = torch.zeros(4)
        filled[1:] = torch.arange(3.0)
        self.register_buffer("filled", filled, persistent=False)
        self.register_buffer("given", torch.tensor([0.0, 0.0]), persistent=False)


def test_a_table_is_judged_by_the_text_of_its_class_where_it_is_zero() -> None:
    model = Tables(4)
    assert found(model) == []
    for buffer in model.buffers():
        buffer.zero_()
    (finding,) = fxdebug.check(model, config=False)
    assert (
        finding.what == "the buffer computed is zero; its class makes it by 10000.0 ** (-(torch.arange(parts) / parts))"
    )


def test_masks_partial_frequencies_and_half_precision_are_no_fault() -> None:
    net = trained()
    net.register_buffer("mask", torch.full((4, 4), torch.finfo(torch.float32).min).triu(1))
    frequencies = net.rotary.inv_freq.clone()
    del net.rotary.head  # so that it cannot be made anew
    net.rotary.inv_freq[4:] = 0
    assert found(net) == []
    net.rotary.inv_freq.copy_(torch.cat([frequencies[::2], frequencies[1::2]]))  # of rows and of columns
    assert found(net) == []
    assert found(trained().bfloat16()) == []
    assert found(trained().half()) == []


def test_weights_that_were_not_loaded_are_found_among_trained_ones() -> None:
    net = trained()
    nn.init.zeros_(net.layers[1].weight)
    net.head = nn.Linear(32, 40, bias=False)
    assert found(net) == [("warning", "not loaded", "layers.1"), ("warning", "not loaded", "head")]
    fresh = Net().eval()
    nn.init.zeros_(fresh.layers[1].weight)
    assert found(fresh) == []


def test_a_zero_matrix_of_an_adapter_on_a_frozen_model_is_no_fault() -> None:
    net = trained().requires_grad_(False)
    net.up = nn.Linear(4, 32, bias=False)
    nn.init.zeros_(net.up.weight)
    assert found(net) == []


def test_one_step_of_training_makes_a_drawn_matrix_a_trained_one() -> None:
    net = trained()
    net.head = nn.Linear(32, 40, bias=False)
    with torch.no_grad():
        net.head.weight.add_(torch.randn(40, 32) * 1e-3)
    assert found(net) == []


def test_modules_in_training_mode_are_found_where_they_act() -> None:
    net = trained()
    net.drop.train()
    net.layers.train()  # computes the same
    assert found(net) == [("warning", "mode", "drop")]
    net.drop.p = 0.0
    assert found(net) == []
    net.bn.train()
    assert found(net) == [("warning", "mode", "bn")]


def test_statistics_that_move_in_a_frozen_part_are_found() -> None:
    net = trained().train()
    assert found(net) == []
    net.bn.requires_grad_(False)
    assert found(net) == [("warning", "statistics", "bn")]
    net.bn.eval()
    assert found(net) == []
    plain = nn.ModuleDict({"body": nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False)), "head": Norm(8)})
    plain["body"].requires_grad_(False)
    assert found(plain) == [("warning", "statistics", "body.1")]


def test_statistics_as_at_their_start_are_found_in_trained_models() -> None:
    net = trained()
    net.bn.reset_running_stats()
    assert found(net) == [("warning", "statistics", "bn")]


def test_statistics_that_hardly_moved_are_found() -> None:
    for momentum, expected in ((0.001, [("warning", "statistics", "bn")]), (0.1, [])):
        net = trained()
        net.bn = nn.BatchNorm1d(32, momentum=momentum).train()
        with torch.no_grad():
            for _ in range(200):
                net.bn(torch.randn(16, 32) * 3 + 1)
            net.bn.weight.add_(torch.randn(32) * 0.1)
        net.bn.eval()
        assert found(net) == expected, momentum


def test_a_tie_that_was_broken_is_found() -> None:
    net = trained()
    net.head.weight = net.embed.weight
    assert found(net) == []
    net.head.weight = nn.Parameter(net.embed.weight.detach().clone())
    assert found(net) == [("warning", "broken tie", "head")]


def test_a_tie_that_a_dictionary_of_settings_asks_for_is_told() -> None:
    net = nn.Sequential(nn.Embedding(40, 32), nn.Linear(32, 40, bias=False))
    net.config = {"tie_word_embeddings": True}
    (finding,) = fxdebug.check(net, config=False)
    assert finding.what == (
        "1.weight and 0.weight are to be tied (config.tie_word_embeddings), and differ in 1280 of 1280 elements"
    )
    net[1].weight = net[0].weight
    assert found(net) == []


def test_a_tie_that_only_the_configuration_of_a_part_has_is_told() -> None:
    net = nn.Sequential(nn.Embedding(40, 32), nn.Linear(32, 40, bias=False))
    net.config = SimpleNamespace(text_config=SimpleNamespace(tie_word_embeddings=True))
    (finding,) = fxdebug.check(net, config=False)
    assert finding.what == (
        "1.weight and 0.weight are to be tied (text_config.tie_word_embeddings; the config of the model has none), and "
        "differ in 1280 of 1280 elements"
    )
    net.config.tie_word_embeddings = False  # what the model says counts
    assert found(net) == []
    del net.config.tie_word_embeddings
    net[1].weight = net[0].weight
    assert found(net) == []


def test_a_tie_that_training_moved_apart_is_found_and_weights_drawn_apart_are_not() -> None:
    net = trained()
    assert found(net) == []
    net.head.weight.data.copy_(net.embed.weight + 0.01 * torch.randn(40, 32))
    assert found(net) == [("warning", "broken tie", "head")]
    net.head.weight.data.copy_(net.embed.weight + 2 * torch.randn(40, 32))
    assert found(net) == []


def test_a_list_that_has_one_module_several_times_is_told() -> None:
    layer = nn.Linear(8, 8)
    assert found(nn.ModuleDict({"layers": nn.ModuleList([layer] * 3)})) == [("advice", "repeated module", "layers.0")]
    assert found(nn.Sequential(layer, nn.ReLU(), copy.deepcopy(layer), nn.ReLU())) == []
    relu = nn.ReLU()
    assert found(nn.Sequential(layer, relu, copy.deepcopy(layer), relu)) == []


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)


def spared(net: nn.Module) -> torch.optim.Optimizer:
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.1)


@pytest.mark.parametrize(
    ("make", "expected"),
    [(sgd, ["decay"]), (spared, []), (lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3), [])],
)
def test_decay_of_norms_and_biases_is_told_by_the_steps_to_halve_them(
    make: Callable[[nn.Module], torch.optim.Optimizer], expected: list[str]
) -> None:
    net = trained()
    assert [rule for _, rule, _ in found(net, optimizer=make(net))] == expected


@pytest.mark.parametrize(
    ("held", "said"),
    [([1e-41, 0.0, 3e33, 0.1], "has numbers up to 3e+33"), ([1e-41, 0.0, 9e-42, 0.0], "is at most 1e-41, below the")],
)
def test_a_parameter_that_holds_what_memory_held_is_found(held: list[float], said: str) -> None:
    net = trained()
    with torch.no_grad():
        net.layers[0].bias.copy_(torch.tensor(held * 8))
    (finding,) = fxdebug.check(net, analyses=["state"], config=False)
    assert finding.what.startswith(f"the parameter layers.0.bias {said}")
    assert "torch.empty() and to_empty() fill nothing" in str(finding.advice)


@pytest.mark.parametrize(
    "dtype, settings, told",
    [
        (torch.float16, {}, ["optimizer epsilon"]),
        (torch.float16, {"eps": 1e-4}, []),
        (torch.bfloat16, {}, []),
        (torch.float32, {}, []),
    ],
)
def test_an_epsilon_that_is_zero_in_the_dtype_of_the_weights_is_found(
    dtype: torch.dtype, settings: dict[str, float], told: list[str]
) -> None:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)).to(dtype)
    optimizer = torch.optim.Adam(net.parameters(), **settings)
    report = fxdebug.check(net, analyses=["state"], optimizer=optimizer, config=False)
    assert [finding.rule for finding in report] == told
    assert all(
        finding.what == "eps=1e-08 of Adam is 0 in float16, the dtype of 3 parameters (0.weight, 1.weight, …): where a "
        "gradient is 0, as of rows that are not used, the step is 0 / 0, NaN"
        for finding in report
    )


def test_a_part_that_all_entries_of_a_list_share_is_advice() -> None:
    class Heads(nn.Module):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            block = nn.Sequential(nn.Linear(8, 8), nn.SiLU())
            blocks = [block if shared else copy.deepcopy(block) for _ in range(3)]
            self.heads = nn.ModuleList([nn.Sequential(one, nn.Linear(8, 20)) for one in blocks])

    (finding,) = fxdebug.check(Heads(shared=True), analyses=["state"], config=False)
    assert (finding.severity, finding.rule) == ("advice", "repeated module")
    assert finding.what == "heads.0.0 is one module in all 3 entries of heads: they share its weights"
    normed = nn.ModuleList([nn.Sequential(linear, norm) for linear, norm in [(nn.Linear(8, 8), nn.BatchNorm1d(8))] * 2])
    first, second = fxdebug.check(normed, analyses=["state"], config=False)
    assert (first.path, second.path) == ("0.1", "0.0")
    assert first.what.endswith(": they share its running statistics, which mix what all of them see")
    assert fxdebug.check(Heads(shared=False), analyses=["state"], config=False).findings == ()


def test_a_complex_table_of_rotary_positions_that_is_zero_is_found() -> None:
    class Turned(nn.Module):
        def __init__(self, filled: bool) -> None:
            super().__init__()
            angles = torch.arange(12.0).reshape(3, 4)
            table = torch.polar(torch.ones_like(angles) * filled, angles)
            self.register_buffer("freqs_cis", table, persistent=False)

    (finding,) = fxdebug.check(Turned(filled=False), analyses=["state"], config=False)
    assert finding.what == "the buffer freqs_cis is zero: what every position is multiplied by"
    assert fxdebug.check(Turned(filled=True), analyses=["state"], config=False).findings == ()


class NeverFilled(nn.Module):
    """Parameters of memory as it was: one that a method fills, one that nothing does, one of given numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.filled, self.left = nn.Parameter(torch.empty(3, 4)), nn.Parameter(torch.empty(3, 4))
        self.old = nn.Parameter(torch.Tensor(3, 4))
        self.given = nn.Parameter(torch.Tensor([0.0, 1.0]))
        self.register_parameter("named", nn.Parameter(torch.empty(4)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.filled)


class FilledAtOnce(NeverFilled):
    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


def test_a_parameter_that_its_class_never_fills_is_found_by_the_zeros_that_memory_has() -> None:
    def told(model: nn.Module, numbers: float) -> list[str]:
        with torch.no_grad():
            for name in ("filled", "left", "old", "named"):
                parameter = getattr(model, name)
                parameter.copy_(torch.linspace(numbers, 1, parameter.numel()).view_as(parameter))
        return [finding.what for finding in fxdebug.check(model) if finding.rule == "buffer"]

    by = "has 1 zero among 12, as memory has them: torch.{}() makes it in its class's __init__, and nothing"
    assert [what.removesuffix(" there fills it") for what in told(NeverFilled(), 0.0)] == [
        f"the parameter left {by.format('empty')}",
        f"the parameter old {by.format('Tensor')}",
        f"the parameter named {by.format('empty').replace('12', '4')}",
    ]
    assert told(NeverFilled(), 0.5) == []  # loaded, or filled from outside
    assert told(FilledAtOnce(), 0.0) == []


class WithScale(nn.Module):
    """A layer of torch's, and a parameter of memory as it was, which a method would fill that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.empty(4))
        self.scale.data = torch.linspace(0.5, 1, 4)  # memory that holds numbers of a usual size

    def start(self) -> None:
        nn.init.ones_(self.scale)


class ThroughData(WithScale):
    def start(self) -> None:
        self.scale.data.fill_(1)


def test_a_parameter_that_nothing_wrote_to_is_advice_where_writes_are_counted() -> None:
    def told(model: nn.Module) -> list[tuple[str, str]]:
        return [(finding.severity, finding.what) for finding in fxdebug.check(model) if finding.rule == "buffer"]

    class Bare(WithScale):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.empty(4))

    left = Bare()
    left.scale.data = torch.linspace(0.5, 1, 4)  # such numbers memory may hold
    what = "the parameter scale is of torch.empty(), which fills nothing: its class does not fill it either, and no "
    assert told(left) == [("advice", f"{what}write to it was counted")]
    assert told(copy.deepcopy(left)) == []  # a copy has no count
    left.start()
    assert told(left) == []
    assert told(WithScale()) == told(ThroughData()) == []  # written through .data, which is not counted


def test_modules_in_a_plain_list_are_in_no_checkpoint() -> None:
    class Listed(nn.Module):
        def __init__(self, kind: Callable[..., Any], count: int) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.hidden = kind([nn.Linear(4, 4) for _ in range(count)])

    def told(kind: Callable[..., Any], count: int = 2) -> list[tuple[str, str]]:
        report = fxdebug.check(Listed(kind, count), analyses=["state"], config=False)
        return [(finding.severity, finding.what) for finding in report]

    left_out = "state_dict(), parameters() and to() leave them out, so that no checkpoint has them and no optimizer"
    assert told(list) == [("warning", f"hidden is a plain list of 2 modules (40 elements): {left_out}")]
    assert told(lambda ones: {"a": ones}) == [
        ("warning", f"hidden is a plain dict of 2 modules (40 elements): {left_out}")
    ]
    assert told(list, 1) == [("advice", f"hidden is a plain list of 1 module (20 elements): {left_out}")]
    assert told(nn.ModuleList) == told(lambda ones: [nn.ReLU()]) == []


def test_positions_in_a_narrow_buffer_are_told_where_it_has_not_all_of_them() -> None:
    net = trained()
    net.register_buffer("places", torch.arange(4096.0), persistent=False)
    assert found(net) == []
    assert found(net.half()) == [("error", "buffer", "")]
    report = fxdebug.check(net, analyses=["state"], config=False)
    assert report.findings[0].what == (
        "the buffer places counts from 0 to 4095 in float16, which has every integer only up to 2048: "
        "3073 of 4096 positions are left apart"
    )
    net.places = torch.arange(2048.0).half()
    assert found(net) == []


def test_dropouts_in_a_plain_list_stay_in_training_mode_when_the_model_does_not() -> None:
    net = trained()
    net.drops = [nn.Dropout(0.1), nn.Dropout(0.2)]
    report = fxdebug.check(net, analyses=["state"], config=False)
    assert [(finding.severity, finding.what) for finding in report] == [
        (
            "warning",
            "drops[0], drops[1] are in training mode, the model is in evaluation: Dropout drops values at random, and "
            "eval() does not reach it in a plain list or dict",
        )
    ]
    for drop in net.drops:
        drop.eval()
    assert found(net) == []
    assert found(net.train()) == []


def test_a_model_in_evaluation_that_is_as_it_was_made_gets_a_note_after_loading() -> None:
    def notes(model: nn.Module, *given: Any) -> list[str]:
        found = fxdebug.check(model, *given, analyses=["state"], config=False).notes
        return [note.what for note in found if "as it was made" in note.what]

    assert notes(Net().eval()) == [
        "all 6 norms have the weights and biases of their start, and 6 layers the weights that torch draws: the "
        "model is as it was made; if a checkpoint was loaded, nothing of it was taken (fxdebug weights FILE MODEL)"
    ]
    assert notes(Net()) == []  # about to learn
    assert notes(trained()) == []


class _Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))


def _trained_beside(untrained: str) -> _Towers:
    """Make a model that learned, and take one part of it as it was made."""
    torch.manual_seed(0)
    model, fresh = _Towers(), _Towers()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(2.5)
            if untrained and name.startswith(untrained):
                parameter.copy_(fresh.get_parameter(name))
    return model.eval()


def test_a_part_of_small_layers_that_is_as_drawn_is_found_beside_trained_ones() -> None:
    (finding,) = fxdebug.check(_trained_beside("head."), analyses=["state"]).findings
    assert (finding.rule, finding.path) == ("not loaded", "head")
    assert finding.what == "all 2 layers of head are as torch draws them, and 2 other layers are trained"
    assert not fxdebug.check(_trained_beside(""), analyses=["state"]).findings
    assert not fxdebug.check(_trained_beside("head.").train(), analyses=["state"]).findings  # about to be tuned
    assert not fxdebug.check(_Towers().eval(), analyses=["state"]).findings


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_directions_as_drawn_beside_trained_lengths_are_found(norm: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(*[norm(nn.Conv1d(6, 6, 3)) for _ in range(3)]), nn.Conv1d(6, 1, 1)).eval()
    assert not fxdebug.check(model, analyses=["state"]).findings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("weight_g", "original0")):
                parameter.mul_(1.5)
    (finding,) = fxdebug.check(model, analyses=["state"]).findings
    assert finding.what == "the directions of all 3 layers of 0 are as torch draws them, and their lengths are trained"


def test_a_dict_of_names_for_one_module_is_told_where_all_are_one() -> None:
    layer = nn.Linear(4, 4)
    (finding,) = fxdebug.check(nn.ModuleDict(dict.fromkeys(("a", "b", "c"), layer)), analyses=["state"]).findings
    assert finding.what == "the model has 3 entries that are one module: they share all weights"
    alias = nn.ModuleDict({"user": layer, "item": layer, "other": nn.Linear(4, 4)})
    assert not fxdebug.check(alias, analyses=["state"]).findings  # two names for one may be meant
