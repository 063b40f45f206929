"""``fxdebug.flops``: as torch's FlopCounterMode where that one is right, and the differences by name (row P4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fxdebug
from fxdebug.analyses.cost.flops import count_flops
from fxdebug.data.values import Value
from fxdebug.operators.flops import NONE, Flops, flops_of
from support.torchs_flops import torchs_count

aten = torch.ops.aten


def our_count(model: nn.Module, inputs: Any) -> tuple[int, int]:
    counted = count_flops(fxdebug.fx_debug(model, inputs))[0].total
    return counted.forward, counted.backward


class Einsum(nn.Module):
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, *operands)


class Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.function(*operands)


def grown(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "linear": (nn.Linear(7, 5), (grown(3, 4, 7),)),
    "linear on an input without gradient": (nn.Linear(7, 5), (torch.randn(3, 7),)),
    "convolution in one dimension": (nn.Conv1d(4, 6, 3), (grown(2, 4, 9),)),
    "strided, dilated convolution": (nn.Conv2d(4, 6, 3, stride=2, dilation=2, padding=1), (grown(2, 4, 12, 9),)),
    "convolution in three dimensions": (nn.Conv3d(2, 3, 2), (grown(1, 2, 4, 5, 6),)),
    "transposed convolution": (nn.ConvTranspose2d(4, 6, 3, stride=2), (grown(2, 4, 5, 6),)),
    "product of matrices": (Function(torch.matmul), (grown(3, 4), grown(4, 5))),
    "broadcast product": (Function(torch.matmul), (grown(2, 3, 4, 5), grown(5, 6))),
    "product of batches": (Function(torch.bmm), (grown(2, 3, 4), grown(2, 4, 5))),
    "addmm": (Function(torch.addmm), (grown(3, 5), grown(3, 4), grown(4, 5))),
    "baddbmm": (Function(torch.baddbmm), (grown(2, 3, 5), grown(2, 3, 4), grown(2, 4, 5))),
    "tensordot": (Function(lambda a, b: torch.tensordot(a, b, dims=2)), (grown(2, 3, 4), grown(3, 4, 5))),
    "einsum of two": (Einsum("bij,bkj->bik"), (grown(2, 3, 4), grown(2, 5, 4))),
    "einsum with dots": (Einsum("...ij,jk->...ik"), (grown(2, 6, 3, 4), grown(4, 5))),
    "einsum without an arrow": (Einsum("ij,jk"), (grown(3, 4), grown(4, 5))),
    "attention": (Function(nn.functional.scaled_dot_product_attention), tuple(grown(2, 3, 5, 8) for _ in range(3))),
    "cross-attention": (
        Function(nn.functional.scaled_dot_product_attention), (grown(2, 3, 5, 8), grown(2, 3, 7, 8), grown(2, 3, 7, 8)),
    ),
    "GRU": (nn.GRU(4, 6, num_layers=2, bidirectional=True), (torch.randn(5, 2, 4),)),
    "Elman network": (nn.RNN(4, 6), (torch.randn(5, 2, 4),)),
    "one step of an LSTM": (nn.LSTMCell(4, 6), (grown(2, 4),)),
    "attention layer": (nn.MultiheadAttention(8, 2), tuple(grown(5, 2, 8) for _ in range(3))),
    "attention layer with other widths": (
        nn.MultiheadAttention(8, 2, kdim=6, vdim=4), (grown(5, 2, 8), grown(3, 2, 6), grown(3, 2, 4)),
    ),
    "a result that nobody returns": (Function(lambda a, b: (a @ b, a * 2)[1]), (grown(3, 4), grown(4, 5))),
    "an overload of aten": (Function(lambda a, b: aten.mm.default(a, b)), (grown(3, 4), grown(4, 5))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_p4_the_count_is_that_of_torchs_counter_forward_and_backward(name: str) -> None:
    model, inputs = CASES[name]
    ours = our_count(model, inputs)
    assert ours == torchs_count(model, inputs)
    assert ours[0] > 0


def test_p4_eager_and_fused_attention_count_the_same() -> None:
    transformers = pytest.importorskip("transformers", reason="the rows' fixture G is a model of transformers")
    counts = []
    for implementation in ("eager", "sdpa"):
        config = transformers.GPT2Config(
            n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=128, attn_implementation=implementation
        )
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
        with torch.no_grad():
            counts.append(fxdebug.flops(fxdebug.fx_debug(model, torch.ones(2, 32, dtype=torch.long))).rows)
    totals = [next(row.forward for row in rows if row.call == "GPT2LMHeadModel#0") for rows in counts]
    assert totals == [21_823_488, 21_823_488]


def test_a_bilinear_layer_and_a_grouped_convolution_count_by_hand() -> None:
    bilinear = our_count(nn.Bilinear(3, 4, 5), (grown(2, 3), grown(2, 4)))
    assert bilinear == (2 * 2 * 5 * 3 * 4 + 2 * 2 * 5 * 4, 3 * (2 * 2 * 5 * 3 * 4 + 2 * 2 * 5 * 4))
    grouped = our_count(nn.Conv2d(8, 8, 3, groups=8, padding=1), (grown(1, 8, 4, 4),))
    assert grouped == (2 * 8 * 16 * 9, 2 * 2 * 8 * 16 * 9)  # FlopCounterMode says eight times as many backward


def test_an_lstm_counts_although_torchs_counter_sees_one_kernel_without_products() -> None:
    lstm = nn.LSTM(4, 6, num_layers=2)
    assert torchs_count(lstm, (torch.randn(5, 2, 4),), repaired=False) == (0, 0)
    forward = 2 * 5 * 2 * 24 * (4 + 6 + 6 + 6)
    assert our_count(lstm, (torch.randn(5, 2, 4),))[0] == forward


@pytest.mark.parametrize("type", ["layer", "encoder"])
def test_fused_transformer_layers_count_as_their_operations_do(type: str) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = (layer if type == "layer" else nn.TransformerEncoder(layer, 2)).eval()
    inputs = (torch.randn(2, 5, 16),)
    with torch.no_grad():
        fused = fxdebug.fx_debug(model, inputs)
    assert fused.root.status == "opaque"
    assert count_flops(fused)[0].total.forward == torchs_count(model, inputs)[0]


def test_unknown_operations_are_listed_and_not_counted() -> None:
    report = fxdebug.flops(fxdebug.fx_debug(Function(lambda a: torch.linalg.svd(a @ a)[1]), (torch.randn(4, 4),)))
    assert [(row.forward, row.unknown) for row in report.rows] == [(128, "linalg_svd")]
    assert [note.what for note in report.notes] == ["not counted, because their number is not known: linalg_svd"]


@pytest.mark.parametrize("target", ["torch._ops.mylib.fused", "flash_attn.flash_attn_func", "mylib.layers.swiglu"])
def test_functions_of_other_libraries_are_unknown(target: str) -> None:
    x = Value(0, (2, 2), "float32", "cpu")
    assert flops_of(target.rpartition(".")[2], target, x, (x,)) is None


def test_ragged_sizes_and_batches_hidden_by_vmap_are_unknown() -> None:
    ragged, weight = Value(0, (2, -1, 4), "float32", "cpu"), Value(1, (3, 4), "float32", "cpu")
    inside = Value(0, (4,), "float32", "cpu", detail="inside vmap")
    assert flops_of("linear", "torch._C._nn.linear", ragged, (ragged, weight)) is None
    assert flops_of("linear", "torch._C._nn.linear", inside, (inside, weight)) is None


def test_no_gradient_is_counted_for_a_run_without_gradients() -> None:
    with torch.no_grad():
        trace = fxdebug.fx_debug(nn.Linear(4, 3), torch.ones(2, 4))
    assert count_flops(trace)[0].total.backward == 0


def test_a_run_without_graphs_says_what_is_missing() -> None:
    trace = fxdebug.fx_debug(nn.Linear(4, 3), torch.ones(2, 4), graph=False)
    with pytest.raises(fxdebug.UsageError, match="graph=True"):
        fxdebug.flops(trace)


def test_a_loaded_run_counts_the_same(tmp_path: Any) -> None:
    trace = fxdebug.fx_debug(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(2, 4), save=tmp_path / "run")
    assert fxdebug.flops(tmp_path / "run").rows == fxdebug.flops(trace).rows


def test_calls_in_a_call_add_up() -> None:
    trace = fxdebug.fx_debug(nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2))), torch.ones(2, 4))
    rows = {row.call: row for row in fxdebug.flops(trace).rows}
    assert rows["Sequential#0"].forward == rows["0#0"].forward + rows["1#0"].forward == 48 + 24
    assert sum(row.own for row in rows.values()) == rows["Sequential#0"].forward


# What is not known, and what is computed again ----------------------------------------------------

X = torch.randn(3, 8)


class Weighted(nn.Module):
    """A product by some code, with a linear layer behind it."""

    def __init__(self, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.w, self.linear, self.product = nn.Parameter(torch.randn(8, 4)), nn.Linear(4, 4), product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.product(x, self.w))  # type: ignore[no-any-return]


@torch.library.custom_op("numbers_of_a_test::product", mutates_args=())
def custom_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@torch.jit.script
def scripted_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


UNKNOWN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "custom operation": (lambda: Weighted(custom_product), "product.default"),
    "scripted function": (lambda: Weighted(scripted_product), "scripted function"),
    "numpy": (lambda: Weighted(lambda x, w: torch.from_numpy(x.numpy() @ w.detach().numpy())), "numpy"),
    "vmap": (lambda: Weighted(lambda x, w: torch.func.vmap(lambda row: row @ w)(x)), "matmul"),
    "a function that calls functions": (
        lambda: Weighted(lambda x, w: torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x @ w + 1, (x,))),
        "cond_op_wrapper",
    ),
    "scripted module": (
        lambda: nn.Sequential(torch.jit.script(nn.Linear(8, 4)), nn.Linear(4, 4)), "RecursiveScriptModule"
    ),
    "quantised layer": (
        lambda: nn.Sequential(
            torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear}), nn.Linear(4, 4)
        ),
        "linear_dynamic",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_no_zero_in_any_sum_or_measure(name: str) -> None:
    build, unknown = UNKNOWN[name]
    with torch.no_grad():
        trace = fxdebug.fx_debug(build(), X)
    report = fxdebug.flops(trace)
    assert report.totals["forward"] == (2 * 3 * 4 * 4, "FLOP") and "forward" in report.at_least
    assert report.notes[0].what == f"not counted, because their number is not known: {unknown}"
    root = next(row for row in report.rows if row.call == f"{trace.model}#0")
    assert root.inside == unknown and "at least 96 FLOP" in report.text(width=100)
    assert trace.number("flops", trace.root) is None and trace.number("macs", trace.root) is None
    assert trace.root not in trace.find(where="flops >= 0") and trace.root not in trace.find(where="not flops > 100")
    assert "n/a where an operation is not counted" in trace.text(width=100, columns="flops")


def test_where_nothing_is_counted_the_number_is_not_known_and_comes_last() -> None:
    layers = [Function(torch.linalg.inv), nn.Linear(4, 4)]
    report = fxdebug.flops(nn.Sequential(*layers), torch.eye(4))
    assert [(row.call, row.own) for row in report.rows] == [("1#0", 128), ("Sequential#0", 0), ("0#0", None)]
    assert report.text(width=100).splitlines()[-2].split() == ["0", "Function", *["n/a"] * 4, "linalg_inv"]
    assert fxdebug.flops(layers[0], torch.eye(4)).totals["forward"] == (None, "FLOP")
    row = report.as_json()["rows"][-1]
    assert row["own"] is None and "0#0,Function,,,,," in report.csv_text()


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grads[0] @ w.T, x.T @ grads[0]


def test_the_backward_of_an_autograd_function_is_not_known() -> None:
    report = fxdebug.flops(Weighted(Squares.apply), X.clone().requires_grad_())
    assert report.totals["forward"] == (288, "FLOP") and report.totals["backward"] == (192, "FLOP")
    assert report.at_least == ("backward",) and "not counted in the backward: matmul" in report.notes[0].what


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_backward_goes_through_checkpoints_of_both_kinds(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self, plain: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2))
            self.plain = plain

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + (block(x) if self.plain else checkpoint(block, x, use_reentrant=reentrant))
            with torch.no_grad():
                x.square().mean()
            return x

    x = X.clone().requires_grad_()
    plain, report = (fxdebug.flops(Checkpointed(plain), x) for plain in (True, False))
    assert report.totals == plain.totals and report.at_least == () and not report.notes


def test_transfers_between_ranks_have_no_products() -> None:
    assert flops_of("all_gather_copy_in", "torch._ops.fsdp.all_gather_copy_in", None, ()) == NONE
    assert flops_of("linear", "torch._ops.quantized.linear", None, ()) is None


@pytest.mark.parametrize(
    "op, known",
    [
        ("_int_mm", True),
        ("_scaled_mm", True),
        ("_weight_int8pack_mm", True),
        ("_cslt_sparse_mm", False),
        ("_scaled_mm_v2", False),
        ("_foreach_mm", False),
        ("_dyn_quant_matmul_4bit", False),
    ],
)
def test_p4_a_product_of_narrow_numbers_is_counted_or_unknown_and_never_zero(op: str, known: bool) -> None:
    a, b, result = (Value(number, shape, "int8", "cpu") for number, shape in enumerate([(4, 8), (8, 2), (4, 2)]))
    found = flops_of(op, f"torch._ops.aten.{op}", result, (a, b))
    assert found == (Flops(2 * 4 * 8 * 2, 0) if known else None)
