"""What a run shows of how a model is put together: every fault with its healthy twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from support.sick_state import Heads, NormsByName


def found(model: nn.Module, inputs: Any) -> list[tuple[str, str, str]]:
    torch.manual_seed(0)
    report = fxdebug.check(model, inputs, analyses=["structure"], config=False)
    return [(finding.severity, finding.rule, finding.node or finding.call) for finding in report]


class Attention(nn.Module):
    def __init__(self, dim: int = -1, drop: float = 0.0, how: str = "written") -> None:
        super().__init__()
        self.qkv, self.softmax, self.drop = nn.Linear(16, 48), nn.Softmax(dim), nn.Dropout(0.1)
        self.p, self.how = drop, how

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.how == "fused":
            return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)
        scores = q @ k.transpose(-1, -2) / 4
        if attention_mask is not None and self.how == "masked":
            scores = scores.masked_fill(attention_mask[:, None] == 0, -1e9)
        if attention_mask is not None and self.how == "asked" and bool((attention_mask == 0).any()):
            scores = scores * 1
        weights = F.dropout(self.softmax(scores), self.p)
        return self.drop(weights) @ v


x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])


def test_healthy_attention_is_quiet() -> None:
    for how in ("written", "fused", "masked"):
        assert found(Attention(how=how).eval(), x) == []
        assert found(Attention(how=how).train(), x) == []


@pytest.mark.parametrize(("how", "node"), [("fused", "scaled_dot_product_attention"), ("written", "dropout")])
def test_dropout_in_evaluation_is_found_and_in_training_it_is_not(how: str, node: str) -> None:
    model = Attention(drop=0.2, how=how)
    assert found(model.eval(), x) == [("warning", "dropout in evaluation", f"Attention#0/{node}")]
    assert found(model.train(), x) == []


def test_other_draws_in_evaluation_are_advice_where_the_result_depends_on_them() -> None:
    class Noisy(nn.Module):
        def __init__(self, used: bool) -> None:
            super().__init__()
            self.used = used

        def forward(self, x: Tensor) -> Tensor:
            noise = torch.randn_like(x)
            return x + noise if self.used else x * 2

    assert found(Noisy(True).eval(), x) == [("advice", "random", "Noisy#0/randn_like")]
    assert found(Noisy(False).eval(), x) == []
    assert found(Noisy(True).train(), x) == []


def test_a_mask_that_nothing_reads_is_found_if_it_hides_something() -> None:
    place = [("warning", "mask not read", "Attention#0/attention_mask")]
    assert found(Attention().eval(), {"x": x, "attention_mask": mask}) == place
    assert found(Attention().eval(), {"x": x, "attention_mask": torch.ones_like(mask)}) == []
    for how in ("masked", "asked"):
        assert found(Attention(how=how).eval(), {"x": x, "attention_mask": mask}) == []


class Masked(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        low = torch.finfo(x.dtype).min
        causal = torch.full((x.shape[1],) * 2, low, dtype=x.dtype).triu(1).expand(len(x), -1, -1)
        padding = (1 - attention_mask[:, None].to(x.dtype)) * low
        if self.how == "in place":
            both = causal.clone()
            both += padding
        else:
            both = causal + padding if self.how == "added" else torch.minimum(causal, padding)
        return (x @ x.mT + both).softmax(-1) @ x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_masks_of_the_lowest_number_are_told_where_they_are_added(dtype: torch.dtype) -> None:
    inputs = {"x": x.to(dtype), "attention_mask": mask}
    for how in ("added", "in place"):
        assert found(Masked(how), inputs) == [("advice", "masks added", "Masked#0/add")]
    assert found(Masked("smaller"), inputs) == []


@pytest.mark.parametrize(("dim", "name"), [(-2, "the queries"), (1, "the queries"), (0, "dimension 0")])
def test_a_softmax_over_another_axis_than_the_keys_is_found(dim: int, name: str) -> None:
    finding = fxdebug.check(Attention(dim).eval(), x, analyses=["structure"], config=False)[0]
    assert (finding.rule, finding.path) == ("softmax axis", "softmax")
    assert finding.what.startswith(f"softmax over {name} (dim ")


class Merged(nn.Module):
    """Attention of PyTorch-NLP: the scores of all questions are the rows of one matrix."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.softmax = nn.Softmax(dim)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.bmm(x[:, :2], x.transpose(1, 2))
        weights = self.softmax(scores.view(-1, scores.shape[-1])).view(scores.shape)
        return torch.bmm(weights, x)


def test_a_softmax_over_the_rows_of_merged_scores_is_found() -> None:
    finding = fxdebug.check(Merged(0), x, analyses=["structure"], config=False)[0]
    assert finding.what == (
        "softmax over the queries (dim 0 of 4×6): the product with the values sums over the keys, whose weights do not "
        "have the sum 1"
    )
    assert found(Merged(-1), x) == []


def test_a_softmax_over_keys_that_stand_in_the_rows_is_no_fault() -> None:
    class Linear(nn.Module):
        """Efficient attention: the keys are normalised over the tokens, and multiplied with the values transposed."""

        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(-1) @ (x.softmax(-2).transpose(-1, -2) @ x)

    class Slots(nn.Module):
        """Slots compete for tokens; the weights of each slot are then divided by their sum."""

        def forward(self, x: Tensor) -> Tensor:
            weights = (x @ x.transpose(-1, -2)).softmax(-2)
            return weights / weights.sum(-1, keepdim=True) @ x

    assert found(Linear(), x) == []
    assert found(Slots(), x) == []


class Positions(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(8) / 8))

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(x.shape[1])
        if self.how == "cast":
            angles = torch.outer(count.to(x.dtype), self.inv_freq.to(x.dtype))
        elif self.how == "count":
            angles = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), self.inv_freq.to(x.dtype))
        elif self.how == "type_as":
            angles = torch.einsum("i,j->ij", count.type_as(x), self.inv_freq.to(x.dtype))
        elif self.how == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                angles = count.float()[:, None] @ self.inv_freq.float()[None]
        else:
            angles = torch.outer(count.float(), self.inv_freq.float())
        return x + angles.cos().repeat(1, 2).to(x.dtype)


@pytest.mark.parametrize(
    ("how", "node"), [("cast", "to"), ("count", "arange_1"), ("type_as", "type_as"), ("autocast", "matmul")]
)
def test_positions_that_a_narrow_dtype_rounds_are_found(how: str, node: str) -> None:
    long = torch.zeros(1, 300, 16, dtype=torch.bfloat16)
    assert found(Positions(how), long) == [("warning", "positions rounded", f"Positions#0/{node}")]
    assert found(Positions(how), long[:, :256]) == []
    assert found(Positions("float32"), long) == []


def test_one_block_that_runs_on_its_own_result_from_a_list_is_found() -> None:
    class Blocks(nn.Module):
        def __init__(self, layers: list[nn.Module], parallel: bool = False) -> None:
            super().__init__()
            self.layers, self.parallel = nn.ModuleList(layers), parallel

        def forward(self, x: Tensor) -> Tensor:
            if self.parallel:
                return sum(layer(x * place) for place, layer in enumerate(self.layers))  # type: ignore[return-value]
            for layer in self.layers:
                x = layer(x)
            return x

    one = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    assert found(Blocks([one] * 3), x) == [("warning", "repeated module", "layers.0#0")]
    assert found(Blocks([one] * 3, parallel=True), x) == []  # heads that share their weights
    assert found(Blocks([nn.Linear(16, 16) for _ in range(3)]), x) == []
    assert found(nn.Sequential(*[one] * 3), x) == [("warning", "repeated module", "0#0")]
    relu = nn.ReLU()
    assert found(nn.Sequential(nn.Linear(16, 16), relu, relu), x) == []


class InALoop(nn.Module):
    """One block that is run several times."""

    def __init__(self, block: nn.Module, times: int, new_each_time: bool = False) -> None:
        super().__init__()
        self.block, self.times, self.new_each_time = block, times, new_each_time

    def forward(self, x: Tensor) -> Tensor:
        for time in range(self.times):
            x = self.block(x + time if self.new_each_time else x)
        return x


def test_one_block_that_a_loop_runs_on_its_own_result_is_told() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))

    (finding,) = fxdebug.check(InALoop(block(), 4), x, analyses=["structure"], config=False)
    assert (finding.severity, finding.rule, finding.call, finding.what) == (
        "advice", "repeated module", "block#0",
        "runs 4 times in a row, each time on its own result alone, with one set of weights: "
        "these are one layer, not several",
    )  # fmt: skip
    assert found(InALoop(block(), 2), x) == []
    assert found(InALoop(block(), 4, new_each_time=True), x) == []  # a cell that is given the next step
    assert found(InALoop(nn.ReLU(), 4), x) == []


class Layered(nn.Module):
    """Layers in a list: each on the result of the one before, all on what is given, or a head on each."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layers = how, nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        results = []
        for layer in self.layers:
            results.append(layer(x))
            if self.how in ("chained", "heads of a chain"):
                x = results[-1] if self.how == "chained" else x.relu()
        return torch.stack(results).sum(0) if self.how == "summed" else results[-1]


def test_layers_whose_results_are_dropped_are_told_where_they_are_given_the_same_as_the_last() -> None:
    (finding,) = fxdebug.check(Layered("beside each other"), x, analyses=["structure"], config=False)
    assert (finding.severity, finding.rule, finding.call, finding.what) == (
        "warning", "result dropped", "layers.0#0",
        "its result is used by nothing, as that of 3 layers of layers: each is given what layers.3 is given, "
        "and only layers.3 has an effect",
    )  # fmt: skip
    assert [found(Layered(how), x) for how in ("chained", "summed", "heads of a chain")] == [[], [], []]


def test_a_list_made_of_the_modules_of_another_is_told_where_both_run() -> None:
    class Mirror(nn.Module):
        def __init__(self, decoder: list[nn.Module], runs: bool = True) -> None:
            super().__init__()
            self.enc, self.dec, self.runs = nn.ModuleList(blocks), nn.ModuleList(decoder), runs

        def forward(self, x: Tensor) -> Tensor:
            for layer in (*self.enc, *self.dec) if self.runs else self.enc:
                x = layer(x)
            return x

    blocks = [nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(2)]
    (finding,) = fxdebug.check(Mirror(blocks[::-1]), x, analyses=["structure"], config=False)
    assert (finding.severity, finding.call, finding.what) == (
        "advice", "enc.0#0",
        "dec and enc have 2 modules in common, which run for both with one set of weights: "
        "dec.1 is enc.0, dec.0 is enc.1",
    )  # fmt: skip
    assert found(Mirror(blocks, runs=False), x) == []  # one list, kept under two names
    assert found(Mirror([nn.Sequential(nn.Linear(16, 16)), nn.ReLU()]), x) == []


def test_a_saved_run_tells_the_same(tmp_path: Any) -> None:
    fxdebug.fx_debug(Attention(-2).eval(), {"x": x, "attention_mask": mask}, save=tmp_path / "run")
    report = fxdebug.check(tmp_path / "run", analyses=["structure"], config=False)
    assert [finding.rule for finding in report] == ["mask not read", "softmax axis"]


class ByLetters(nn.Module):
    """Attention by einsum, whose softmax is over ``dim``; ``turned``: the keys stand in the rows of the weights."""

    def __init__(self, dim: int, turned: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.dim, self.turned = dim, turned

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 8)) for layer in (self.q, self.k, self.v))
        if self.turned:
            weights = torch.einsum("bihd,bjhd->bhji", q, k).softmax(self.dim)
            return torch.einsum("bhji,bjhd->bihd", weights, v).flatten(2)
        weights = torch.einsum("bihd,bjhd->bhij", q, k).softmax(self.dim)
        return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


@pytest.mark.parametrize(("turned", "wrong", "right"), [(False, -2, -1), (True, -1, -2), (False, 1, 3)])
def test_the_axis_that_an_einsum_sums_over_is_read_from_its_letters(turned: bool, wrong: int, right: int) -> None:
    (one,) = found(ByLetters(wrong, turned).eval(), x)
    assert one[:2] == ("warning", "softmax axis")
    assert found(ByLetters(right, turned).eval(), x) == []


def test_a_softmax_over_the_one_output_of_a_layer_is_found() -> None:
    class Pool(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.score, self.dim = nn.Linear(16, 1), dim

        def forward(self, x: Tensor) -> Tensor:
            return (self.score(x).softmax(self.dim) * x).sum(1)

    finding = fxdebug.check(Pool(-1).eval(), x, analyses=["structure"], config=False)[0]
    assert finding.what == "softmax over one element (dim 2 of 2×6×1), as score (linear) makes it: every result is 1"
    assert found(Pool(1).eval(), x) == []
    assert found(Attention().eval(), x[:, :1]) == []  # a sequence of one token


class Neuron(nn.Module):
    """A leaky integrator, which may begin anew in each call."""

    def __init__(self, resets: bool) -> None:
        super().__init__()
        self.resets, self.charge = resets, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.charge = x if self.resets else self.charge / 2 + x
        return self.charge.relu()


def test_state_that_a_call_leaves_for_the_next_is_told_in_evaluation() -> None:
    def told(model: nn.Module) -> list[tuple[str, str, str]]:
        report = fxdebug.check(model, torch.randn(2, 3), analyses=["structure"], config=False)
        return [(finding.severity, finding.rule, finding.what) for finding in report]

    what = (
        "a second call with the same inputs returns something else: it goes on from 1.charge, which the first call has "
        "left"
    )
    model = nn.Sequential(nn.Linear(3, 3), Neuron(False)).eval()
    assert told(model) == [("advice", "state kept", what)]
    assert model[1].charge == 0.0  # as before
    assert told(nn.Sequential(nn.Linear(3, 3), Neuron(True)).eval()) == []
    assert told(model.train()) == []


class Pixels(nn.Module):
    """Channels behind the pixels, by a view or by a transpose."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv, self.head, self.how = nn.Conv2d(3, 8, 3), nn.Linear(8, 4), how

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).relu()
        y = y.reshape(len(y), -1, 8) if self.how == "view" else y.flatten(2).transpose(1, 2)
        out: Tensor = self.head(y)
        return out


PICTURES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "inputs", "what"),
    [
        (Heads(split="view"), x, "4 heads gets the features of other tokens"),
        (Heads(join="view"), x, "each token gets parts of other tokens, not those of its 4 heads"),
        (Pixels("view"), PICTURES, "each of the 36 places gets numbers of one channel, not its own 8"),
    ],
)
def test_a_view_that_mixes_heads_with_tokens_or_channels_with_places_is_told(model, inputs, what) -> None:
    (finding,) = fxdebug.check(model.eval(), inputs, analyses=["structure"], config=False)
    assert (finding.rule, finding.what.endswith(what)) == ("dimensions mixed", True)
    assert "leaves the elements in their order" in finding.what


class Shifted(nn.Module):
    """Relative positions that a view shifts, as in Transformer-XL, frames put together, and a product per head."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        scores = F.pad(x @ x.mT, (1, 0))
        scores = scores.view(len(x), -1, scores.shape[1])[:, 1:].reshape(len(x), -1, scores.shape[1])
        stacked = self.inner(x).reshape(len(x), -1, 32)
        merged = self.inner(x).transpose(0, 1).reshape(x.shape[1], len(x) * 4, 4)
        return scores.sum() + stacked.sum() + merged.sum()


class Moved(nn.Module):
    """Frames of videos for a convolution over time, back again, tokens for one over them, and heads put in groups."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.inner, self.over_time = how, nn.Linear(16, 16), nn.Conv1d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        y = self.inner(x)
        if self.how == "frames":
            return self.over_time(y.flatten(0, 1).view(rows, width, tokens))
        if self.how == "tokens":
            return self.over_time(y.view(rows, width, tokens))
        if self.how == "back":
            images = self.over_time(y.transpose(1, 2))[..., None] * torch.ones(3)
            return images.reshape(rows * tokens, width, 3)
        if self.how == "groups":
            return y.view(rows, tokens, 8, 2).reshape(rows, tokens, 2, 8) @ x[:, :1, :8, None]
        return self.over_time(y.flatten(0, 1).view(rows, tokens, width).transpose(1, 2))


@pytest.mark.parametrize(
    ("how", "what", "instead"),
    [
        ("frames", "12×16 becomes 2×16×6 by view", "view(2, 6, 16).transpose(1, 2)"),
        ("tokens", "2×6×16 becomes 2×16×6 by view", "transpose(1, 2)"),
        ("back", "2×16×6×3 becomes 12×16×3 by reshape", "transpose(1, 2).reshape(12, 16, 3)"),
    ],
)
def test_a_view_by_which_two_sizes_change_places_is_told(how: str, what: str, instead: str) -> None:
    (finding,) = fxdebug.check(Moved(how).eval(), x, analyses=["structure"], config=False)
    assert (finding.rule, finding.advice) == ("dimensions mixed", f"Use {instead}.")
    assert finding.what.startswith(f"{what}, which leaves the elements in their order: ")
    assert finding.what.endswith("so that numbers of several stand in one")


@pytest.mark.parametrize("how", ["transposed", "groups"])
def test_views_that_split_and_join_neighbours_are_quiet(how: str) -> None:
    assert found(Moved(how).eval(), x) == []


def test_views_that_keep_dimensions_together_are_quiet() -> None:
    for model, inputs in ((Heads(), x), (Pixels("transpose"), PICTURES), (Shifted(), x)):
        assert found(model.eval(), inputs) == []


def test_a_module_that_runs_in_place_of_one_that_never_does_is_told() -> None:
    (finding,) = fxdebug.check(NormsByName("norm1").eval(), x, analyses=["structure"], config=False)
    assert (finding.rule, finding.path, finding.what) == (
        "never called",
        "norm1",
        "runs 2 times, and norm2, which has weights of the same shapes, never does",
    )
    assert found(NormsByName().eval(), x) == [] == found(NormsByName(spare=True).eval(), x)


class Stages(nn.Module):
    """Layers by numbers, of which some are not called."""

    def __init__(self, *rest: int) -> None:
        super().__init__()
        self.rest = rest
        for number in range(1, 5):
            setattr(self, f"layer{number}", nn.Sequential(nn.Linear(16, 16), nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        for number in range(1, 5):
            x = x if number in self.rest else getattr(self, f"layer{number}")(x)
        return x


def test_a_layer_that_never_runs_amid_those_before_it_and_behind_it_is_advice() -> None:
    (finding,) = fxdebug.check(Stages(2).eval(), x, analyses=["structure"], config=False)
    assert (finding.severity, finding.rule, finding.what) == (
        "advice",
        "never called",
        "layer2, which has weights, never runs, and layer1, layer3, layer4 do",
    )
    for rest in ((), (4,), (2, 3)):  # cut off at its end, or more than one call that was left out
        assert found(Stages(*rest).eval(), x) == []


class Fields(nn.Module):
    """Embeddings of three columns, which a norm takes one by one or all together."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(9, 8) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm([3, 8] if together else 8), nn.Linear(24, 2)

    def forward(self, ids: Tensor) -> Tensor:
        columns = torch.stack([table(ids[:, at]) for at, table in enumerate(self.tables)], dim=1)
        return self.head(self.norm(columns).flatten(1))


def test_a_norm_over_several_embeddings_is_advice() -> None:
    ids = torch.arange(6).view(2, 3)
    (finding,) = fxdebug.check(Fields(True).eval(), ids, analyses=["structure"], config=False)
    assert (finding.severity, finding.rule, finding.path) == ("advice", "dimensions mixed", "norm")
    assert finding.what.startswith("its mean is over 3×8, the vectors of 3 embeddings that stack put side by side: ")
    assert found(Fields(False).eval(), ids) == []


def test_two_linear_layers_with_nothing_nonlinear_between_are_advice() -> None:
    def model(*between: nn.Module, width: int = 32) -> nn.Module:
        layers = [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, width), *between, nn.Linear(width, 8)]
        return nn.Sequential(*layers).eval()

    for between in ((), (nn.Dropout(0.1),)):
        (finding,) = fxdebug.check(model(*between), x, analyses=["structure"], config=False)
        assert (finding.severity, finding.rule, finding.path) == ("advice", "no activation", "2")
        assert finding.what.endswith("together they are one linear layer of 16 to 8 features, whatever the 32 between")
    assert found(model(nn.GELU()), x) == []
    assert found(model(width=4), x) == []  # of low rank
    assert found(nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8)).eval(), x) == []  # a linear model


def test_a_norm_without_weights_behind_the_last_layer_is_advice() -> None:
    def model(*last: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), *last).eval()

    for last in ((nn.InstanceNorm2d(4),), (nn.InstanceNorm2d(4), nn.Flatten(2))):
        (finding,) = fxdebug.check(model(*last), PICTURES, analyses=["structure"], config=False)
        assert (finding.severity, finding.rule, finding.path) == ("advice", "result normalised", "4")
    for last in ((), (nn.InstanceNorm2d(4, affine=True),), (nn.InstanceNorm2d(4), nn.ReLU()), (nn.BatchNorm2d(4),)):
        assert found(model(*last), PICTURES) == []


class Placed(nn.Module):
    """Positions that are added in place, or into a copy; a cache that is written at its place."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.positions, self.layer = how, nn.Parameter(torch.ones(6, 16)), nn.Linear(16, 4)

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        if self.how == "in place":
            x += self.positions
        elif self.how == "a part":
            x[:, 0].mul_(2)
        elif self.how == "the same again":
            x.clamp_(min=0)
        elif cache is not None:
            cache[:, 0] += x[:, 0]
            x = x + cache
        return self.layer(x + self.positions)


@pytest.mark.parametrize(("how", "op"), [("in place", "add"), ("a part", "mul")])
def test_a_model_that_writes_into_its_input_is_told_with_the_operation(how: str, op: str) -> None:
    given = x.clone()
    (finding,) = fxdebug.check(Placed(how).eval(), given, analyses=["structure"], config=False)
    assert (finding.severity, finding.rule, finding.op) == ("warning", "state kept", op)
    assert finding.what == (
        f"{op} writes into x, which the caller gave: a second call with the same tensor returns something else"
    )


@pytest.mark.parametrize("how", ["a copy", "the same again"])
def test_writes_that_a_second_call_does_not_see_and_those_into_a_cache_are_quiet(how: str) -> None:
    assert found(Placed(how).eval(), x.clone()) == []
    assert found(Placed("cached").eval(), (x.clone(), torch.zeros(2, 6, 16))) == []


class Normalised(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv, self.how = nn.Conv2d(3, 4, 3), how
        self.norm = nn.BatchNorm2d(4, track_running_stats=how != "untracked")
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4) * 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.how == "function":
            return F.batch_norm(x, self.mean, self.var, training=True)
        if self.how == "weights":  # each filter by itself, as in a network without norms
            weight = F.batch_norm(self.conv.weight.reshape(1, 4, -1), None, None, training=True)
            return F.conv2d(x[:, :3], weight.reshape(4, 3, 3, 3))
        if self.how in ("by hand", "each by hand"):
            mean = x.mean((0, 2, 3) if self.how == "by hand" else (2, 3), keepdim=True)
            return (x - mean) / (x - mean).square().mean((1, 2, 3), keepdim=True).sqrt()
        return F.instance_norm(x).relu() if self.how == "instance" else self.norm(x)


@pytest.mark.parametrize(
    ("how", "severity", "op"),
    [("untracked", "warning", "batch_norm"), ("function", "warning", "batch_norm"), ("by hand", "advice", "mean")],
)
def test_norms_by_the_numbers_of_the_batch_are_told_in_evaluation(how: str, severity: str, op: str) -> None:
    report = fxdebug.check(Normalised(how).eval(), PICTURES, analyses=["structure"], config=False)
    (finding,) = report
    assert (finding.severity, finding.rule, finding.op) == (severity, "batch statistics", op)
    assert finding.what.endswith(": what is returned for a sample depends on what stands beside it")
    assert found(Normalised(how).train(), PICTURES) == []


@pytest.mark.parametrize("how", ["tracked", "weights", "each by hand", "instance"])
def test_norms_over_each_sample_or_with_running_statistics_are_quiet(how: str) -> None:
    assert found(Normalised(how).eval(), PICTURES) == []
