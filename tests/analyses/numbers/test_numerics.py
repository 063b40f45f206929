"""What is wrong with the numbers of a run: producers of NaN, the edges of dtypes, lost digits, and no false alarm."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.apps.cli import main
from support import numerics_cases
from support.bodies import Body, Runs, kinds
from support.healthy import ADVISED, NOT_HEALTHY
from support.mask_cases import MASKS, masked_model
from support.numerics_cases import CASES, false_alarms, gpt2, misses, mlp, planted
from support.sweep import whole
from zoo import zoo, zoo_sample

# Planted producers --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_s1_a_planted_producer_is_the_one_that_is_named(case):
    assert misses(case, fx_debug(*case.build())) is None


def test_there_are_enough_producers_of_different_kinds():
    tables = [*numerics_cases._IN_MODELS, *numerics_cases._IN_HALF]
    assert len(tables) + 3 >= 25 and len({op for _, _, op, _, _ in tables}) >= 15


def test_s1_a_finding_says_what_happened_with_which_numbers_and_how_far_it_goes():
    trace = fx_debug(*planted("mlp", numerics_cases.log_of_negative)())
    (found,) = trace.check()
    assert (found.kind, found.severity, found.path, found.call, found.op) == (
        "nan", "error", "layers.1", "layers.1#0", "log",
    )  # fmt: skip
    assert found.node == "layers.1#0/log" and trace.node(found.node).op == "log"
    assert "numerics_cases.py:" in found.source
    assert "log of negative numbers" in found.what and "32 NaN of 32" in found.what
    assert found.value.stats.nan == 32 and found.inputs[0].stats.max < -1
    later = [node for node in trace.downstream(found.node) if node.kind in ("call_function", "call_method")]
    assert found.reached == len(later) and found.output and found.absorbed == ()


def test_every_independent_producer_is_named_and_those_that_pass_it_on_are_not():
    def two(x):
        return (torch.log(-x.abs() - 1) + torch.sqrt(-x.abs() - 1)) * 2 + x

    trace = fx_debug(Body(two), torch.ones(3))
    assert kinds(trace) == [("nan", "error", "log"), ("nan", "error", "sqrt")]
    assert [finding.reached for finding in trace.check()] == [3, 3]


def test_nan_of_an_infinity_that_is_a_fault_is_not_a_second_fault():
    assert kinds(fx_debug(Body(lambda x: torch.log(x) - torch.log(x * 2)), torch.zeros(3))) == [
        ("inf", "error", "log"), ("inf", "error", "log"),
    ]  # fmt: skip


def test_a_fault_that_never_reaches_the_output_is_a_warning():
    assert kinds(fx_debug(Body(lambda x: torch.exp(torch.log(x))), torch.zeros(3))) == [("inf", "warning", "log")]


def test_one_that_is_put_right_at_once_is_advice():
    trace = fx_debug(Body(lambda x: torch.where(x > 0, 1 / x, 0.0)), torch.zeros(3))
    assert [finding.severity for finding in trace.check()] == ["advice"] and trace.check().healthy


def _whole(x):
    """The logarithm of distances, in whole numbers, as T5 has it."""
    return x.log().to(torch.long)


def _late(x):
    whole = _whole(x)
    for _ in range(7):
        whole = whole + 1
    return torch.where(x > 1, whole, 0)


@pytest.mark.parametrize(
    ("forward", "severity"),
    [
        (lambda x: torch.where(x > 1, _whole(x), 0), "advice"),
        (lambda x: torch.where(x > 1, _whole(x) + 8, 0), "advice"),
        (lambda x: torch.where(x > 1, x.log() * 2.0, 0.0), "advice"),
        (lambda x: torch.where(x > 1, x.log().floor(), 0.0), "warning"),
        (lambda x: _whole(x) + 1, "warning"),
        (lambda x: (torch.where(x > 1, _whole(x), 0), _whole(x) * 2), "warning"),
        (lambda x: (_whole(x), x + 1)[1], "warning"),
        (_late, "warning"),
    ],
)
def test_an_infinity_that_is_replaced_after_a_cast_to_whole_numbers_is_expected(forward, severity):
    found = [one[1] for one in kinds(fx_debug(Body(forward), torch.tensor([0.0, 1.0, 9.0]))) if one[0] == "inf"]
    assert severity in found and (severity != "advice" or found == ["advice"])


def test_memory_that_is_filled_before_it_is_read_is_no_fault():
    def filled(x):
        with numerics_cases.filled_with_nan():
            memory = torch.empty(2, 3)
        memory[0], memory[1] = x, 2 * x
        return memory.sum()

    trace = fx_debug(Body(filled), torch.ones(3))
    assert trace.ops("empty")[0].stats.nan == 6  # it held NaN, or this tests nothing
    assert kinds(trace) == []


def gathering(x, flat):
    """Compute as a layer of FSDP2 does: memory of weights is made anew, filled, read, and freed."""
    memory = flat.untyped_storage()
    memory.resize_(16 * flat.itemsize)
    ctypes.memset(memory.data_ptr(), 0xFF, 16 * flat.itemsize)  # what lay there is NaN
    flat.view(4, 4).copy_(torch.eye(4))
    y = nn.functional.linear(x, flat.view(4, 4))
    memory.resize_(0)
    return y


def test_memory_that_is_freed_and_made_anew_is_no_fault_before_it_is_filled():
    for options in ({}, {"stop_on_nonfinite": True}, {"values": "tensors"}):
        flat = torch.ones(16)
        flat.untyped_storage().resize_(0)
        trace = fx_debug(Runs(lambda x, flat=flat: gathering(x, flat)), torch.ones(2, 4), **options)
        assert any(value.stats is not None and value.stats.nan == 16 for value in trace.values)  # or this tests nothing
        assert kinds(trace) == []


def test_memory_that_is_made_anew_and_never_filled_is_told_where_it_is_computed_with():
    def body(x, flat):
        memory = flat.untyped_storage()
        memory.resize_(16 * flat.itemsize)
        ctypes.memset(memory.data_ptr(), 0xFF, 16 * flat.itemsize)
        return nn.functional.linear(x, flat.view(4, 4))

    flat = torch.ones(16)
    flat.untyped_storage().resize_(0)
    (finding,) = fx_debug(Runs(lambda x: body(x, flat)), torch.ones(2, 4)).check()
    assert finding.kind == "uninitialised" and finding.what.endswith("and Runs#0/linear computes with it")
    flat.untyped_storage().resize_(0)
    with pytest.raises(fxdebug.NonFinite) as stopped:
        fx_debug(Runs(lambda x: body(x, flat)), torch.ones(2, 4), stop_on_nonfinite=True)
    assert stopped.value.op == "linear"


def test_a_weight_that_was_not_measured_is_named_as_a_possibility():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    (found,) = fx_debug(model, torch.ones(1, 4), weights=False).check()
    assert (found.kind, found.op) in {("weight", "weight"), ("nan", "linear")}
    assert "weight" in found.what


# No false alarm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.__name__)
def test_s2_a_mask_is_no_fault(mask, dtype):
    model, inputs = masked_model(mask, dtype)
    assert false_alarms(fx_debug(model, inputs, stop_on_nonfinite=True)) == []
    assert false_alarms(fx_debug(model, inputs, graph=False)) == []


def test_healthy_models_have_no_findings():
    alarms = {}
    for name, build in zoo_sample.entries(whole()):
        if name in NOT_HEALTHY or name in ADVISED or name.startswith("scale/"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = false_alarms(fx_debug(*build()))
        if found:
            alarms[name] = found
    assert alarms == {}


def test_zoo_models_that_are_not_healthy_are_told_apart():
    builds = dict(zoo.zoo())
    found = {name: fx_debug(*builds[name]()).check() for name in (*NOT_HEALTHY, *ADVISED)}
    assert {name: sorted((f.kind, f.op) for f in found[name] if f.severity == "error") for name in NOT_HEALTHY} == (
        {name: sorted(expected) for name, expected in NOT_HEALTHY.items()}
    )
    assert {name: [f.kind for f in found[name]] for name in ADVISED} == ADVISED


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_s2_padded_batches_of_transformers_have_no_findings(attention):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    llama = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        attn_implementation=attention,
    )  # fmt: skip
    gpt = GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, attn_implementation=attention)
    ids = torch.tensor([[0, 0, 5, 7], [3, 9, 2, 4]])  # padded on the left: the first rows see nothing
    for model in (LlamaForCausalLM(llama), GPT2LMHeadModel(gpt)):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            given = {"input_ids": ids, "attention_mask": (ids > 0).long()}
            trace = fx_debug(model.eval().to(dtype), given, stop_on_nonfinite=True)
            assert false_alarms(trace) == [], (type(model).__name__, dtype)


def test_filters_of_logits_while_generating_are_no_fault():
    model, inputs = gpt2()
    options = {"max_new_tokens": 3, "do_sample": True, "top_k": 5, "top_p": 0.8, "pad_token_id": 0, "eos_token_id": 1}
    options |= {"suppress_tokens": [3], "repetition_penalty": 1.2, "bad_words_ids": [[4]]}
    torch.manual_seed(0)
    trace = fx_debug(model.generate, inputs, options, stop_on_nonfinite=True)
    assert len(trace.find(type="GPT2LMHeadModel")) > 1 and false_alarms(trace) == []


# Partial traces, no graphs, the shell ---------------------------------------------------------------


def test_a_run_that_crashed_later_is_checked_until_then():
    def crash(x):
        return torch.log(x) @ torch.ones(7, 7)

    with pytest.raises(RuntimeError):
        fx_debug(Body(crash), torch.full((2, 3), -1.0))
    found = fxdebug.last_failed().check()
    assert [(f.kind, f.severity, f.op) for f in found] == [("nan", "error", "log")]
    assert "raised RuntimeError" in str(found)


@pytest.mark.parametrize("host", ["mlp", "gpt2", "bert"])
def test_without_graphs_the_call_is_named_and_that_is_said(host):
    model, inputs = planted(host, numerics_cases.log_of_negative)()
    found = fx_debug(model, inputs, graph=False).check()
    assert [(f.kind, f.path, f.op) for f in found] == [("nan", numerics_cases.HOSTS[host][1], "Planted")]
    assert "calls are named, not operations" in found.checked.notes[0]


def test_a_producer_in_recorded_and_in_opaque_code_is_named():
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.log(-x.abs() - 1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    trace = fx_debug(nn.Sequential(nn.Linear(3, 3), Body(Custom.apply)), torch.ones(2, 3))
    assert [(f.path, f.kind) for f in trace.check()] == [("1", "nan")]
    traced = torch.jit.trace(Body(torch.log), torch.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opaque = fx_debug(nn.Sequential(nn.Identity(), traced), -torch.ones(3))
    assert opaque.calls[-1].status == "opaque" and [(f.path, f.kind) for f in opaque.check()] == [("1", "nan")]


class Steps(nn.Module):
    """Its method ``generate`` calls the model, or a layer of it, and returns something else."""

    def __init__(self, inner: bool):
        super().__init__()
        self.layer, self.inner = Body(torch.log), inner

    def forward(self, x):
        return self.layer(x) if self.inner else x

    def generate(self, x):
        (self if self.inner else self.layer)(x).mul(2)
        return x + 1


@pytest.mark.parametrize("inner, severity", [(True, "error"), (False, "warning")])
def test_in_another_method_what_a_forward_returns_is_a_result_and_what_a_layer_returns_is_not(inner, severity):
    trace = fx_debug(Steps(inner), torch.tensor([-1.0, 2.0]), method="generate")
    (found,) = trace.check()
    assert (found.kind, found.severity, found.path, found.op) == ("nan", severity, "layer", "log")


def test_one_producer_in_every_step_of_a_generation_is_one_finding():
    model, inputs = planted("gpt2", numerics_cases.log_of_negative)()
    found = fx_debug(model.generate, inputs, {"max_new_tokens": 3, "pad_token_id": 0, "eos_token_id": 1}).check()
    assert [(f.path, f.op, len(f.others)) for f in found] == [("transformer.h.1.mlp", "log", 2)]


def test_a_saved_run_is_checked_without_torch(tmp_path):
    trace = fx_debug(*planted("mlp", numerics_cases.zero_by_zero)(), save=tmp_path)
    source = "import sys, fxdebug\nprint(fxdebug.check(sys.argv[1]))\nprint('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", source, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{fxdebug.check(trace)}\nFalse\n"
    assert fxdebug.check(str(tmp_path)) == fxdebug.check(trace)
    assert [finding.what for finding in fxdebug.check(trace)] == [finding.what for finding in trace.check()]


def test_the_command_prints_findings_worst_first_and_its_status_tells(tmp_path, capsys):
    broken, well, advised = tmp_path / "broken", tmp_path / "well", tmp_path / "advised"
    trace = fx_debug(*planted("gpt2", numerics_cases.log_of_zero)(), save=broken)
    fx_debug(*mlp(), save=well)
    fx_debug(Body(lambda x: x * 1e6), torch.ones(2), save=advised)
    assert [main.main(["check", str(path)]) for path in (broken, well, advised, tmp_path / "none")] == [1, 0, 0, 2]
    out = capsys.readouterr().out
    assert out.startswith("error: transformer.h.1.mlp#0/log  numerics_cases.py:")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert main.main(["check", str(broken), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told.pop("schema"), told.pop("model")) == ("fxdebug.check/1", "GPT2LMHeadModel")
    report = json.loads(json.dumps(fxdebug.check(trace).as_json()))
    assert told.pop("notes") == [note["what"] for note in report["notes"]]
    assert told == {key: report[key] for key in told} and not told["healthy"]
    assert report["schema"] == "fxdebug.report/1"
    assert told["findings"][0]["op"] == "log" and told["findings"][0]["value"]["neginf"] == 96


def test_what_vmap_hides_is_put_down_to_the_operation_inside():
    def hidden(x):
        return torch.vmap(lambda row: torch.log(row - 9))(x) + 1

    assert kinds(fx_debug(Body(hidden), torch.ones(2, 3))) == [("nan", "error", "log")]


def test_a_mask_with_a_bias_in_it_may_be_an_input():
    bias = torch.randn(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -torch.inf)
    trace = fx_debug(Body(lambda x, mask: (x + mask).softmax(-1)), (torch.randn(3, 3), bias), stop_on_nonfinite=True)
    assert trace.check().healthy


def test_a_mean_loss_over_nothing_and_a_mean_of_nothing_are_explained():
    from torch.nn import functional

    ignored = torch.full((3,), -100)
    (loss,) = fx_debug(Body(functional.cross_entropy), (torch.randn(3, 5), ignored)).check()
    (mean,) = fx_debug(Body(lambda x: x[x > 100].mean()), torch.ones(3)).check()
    assert "every target seems to be ignored" in loss.what and "the mean of no elements" in mean.what


def test_a_weight_inside_a_fused_layer_is_named():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        layer.linear1.weight[0, 0] = torch.nan
        (found,) = fx_debug(nn.Sequential(layer), torch.randn(2, 4, 8)).check()
    assert (found.kind, found.path) == ("weight", "0") and "linear1.weight" in found.what


class Then(nn.Module):
    """What is done to scores of which some are masked."""

    def __init__(self, then):
        super().__init__()
        self.then = then

    def forward(self, x):
        return self.then(x.masked_fill(torch.tensor([True, False, False, False]), -math.inf))


OVERFLOWS = {
    "exp": lambda y: y.exp(),
    "mul": lambda y: y * 1e38,
    "half": lambda y: (y * 1e4).half(),
    "div": lambda y: y / torch.zeros(4),
    "sub": lambda y: y * 3e36 - (y * -3e36),
}


@pytest.mark.parametrize("op", OVERFLOWS)
def test_s2_an_overflow_beside_a_mask_is_found(op):
    found = fx_debug(Then(OVERFLOWS[op]), torch.tensor([1.0, 100.0, 2.0, 3.0])).check()
    assert [(finding.kind, finding.op) for finding in found if finding.severity == "error"] == [("inf", op)]


@pytest.mark.parametrize("name", ["scatter", "scatter_", "scatter_out"])
def test_a_mask_that_is_scattered_comes_from_no_other_rank(name: str) -> None:
    class Scatters(nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            scores = torch.full((2, 4), -math.inf)
            if name == "scatter":
                scores = scores.scatter(1, index, x)
            elif name == "scatter_":
                scores.scatter_(1, index, x)
            else:
                scores = torch.zeros(2, 4).scatter_(1, index, -math.inf)
            return (scores + 1).softmax(1)

    trace = fx_debug(Scatters(), (torch.ones(2, 2), torch.tensor([[0, 1], [2, 3]])))
    assert [finding.what for finding in trace.check()] == []


@pytest.mark.parametrize(
    "then",
    [
        lambda y: y.softmax(-1),
        lambda y: y * 2,
        lambda y: -y,
        lambda y: (y / 2).exp() * 0.5,
        lambda y: y.half().softmax(-1),
        lambda y: (y.repeat(3) + y.masked_fill(y < 2.5, -math.inf).repeat(3)).softmax(-1),
        lambda y: (y + torch.finfo(torch.float32).min).softmax(-1),
        lambda y: (y[:, None] + y).exp(),
    ],
)
def test_a_mask_that_is_worked_with_is_no_fault(then):
    assert fx_debug(Then(then), torch.tensor([1.0, 10.0, 2.0, 3.0])).check().healthy


@pytest.mark.parametrize("scale", [65536.0, 1e5, 65536])
@pytest.mark.parametrize("x", [[1.0, 2.0], [-1.0, 0.5], [-2.0, -3.0]])
def test_a_scale_that_float16_does_not_have_is_no_mask(scale, x):
    class Scales(nn.Module):
        def forward(self, x):
            return x.half() * scale

    found = fx_debug(Scales(), torch.tensor(x)).check()
    assert [(finding.kind, finding.op) for finding in found] == [("inf", "mul")]


F = torch.nn.functional

REASONS = {
    "atanh": (torch.atanh, [0.5, 1.0], "atanh of 1 or -1 is infinite"),
    "log1p": (torch.log1p, [0.5, -1.0], "log1p of -1 is infinite"),
    "logit": (torch.logit, [0.5, 1.0], "logit of 0 or 1 is infinite"),
    "logit of too much": (torch.logit, [0.5, 1.5], "logit of numbers outside 0 to 1 (it was given 0.5 to 1.5)"),
    "lgamma": (torch.lgamma, [0.5, 0.0], "lgamma of 0 or a negative whole number is infinite"),
    "remainder": (lambda x: x % 0, [1.0, 2.0], "the remainder of a division by 0"),
    "layer_norm": (lambda x: F.layer_norm(x, (2,), eps=0.0), [3.0, 3.0], "a variance of 0, and an eps of 0"),
    "normalize": (lambda x: F.normalize(x, dim=0, eps=0.0), [0.0, 0.0], "a norm of 0, and an eps of 0"),
    "addcdiv": (lambda x: torch.addcdiv(x, x, x - 3), [3.0, 4.0], "a division by 0 (1 of 2 elements)"),
    "a mask times infinity": (lambda x: (x > 0).float() * -math.inf, [1.0, -1.0], "0 times the infinity that is"),
    "ctc_loss": (
        lambda x: F.ctc_loss(x.expand(2, 2).log()[:, None], torch.ones(1, 2, dtype=torch.long), [2], [2]),
        [0.5, 0.5],
        "a target that does not fit into its input",
    ),
    "softmax": (lambda x: x.softmax(0).log(), [300.0, 0.0], "the logarithm of 0 (1 of 2 elements)"),
    "sigmoid": (lambda x: (1 - x.sigmoid()).log(), [300.0, -300.0], "the logarithm of 0 (1 of 2 elements)"),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_true_and_the_same_while_the_model_runs_and_afterwards(name):
    body, given, why = REASONS[name]
    (finding,) = fx_debug(Runs(body), torch.tensor(given)).check()
    assert finding.what.startswith(why)
    with pytest.raises(fxdebug.NonFinite) as stopped:
        fx_debug(Runs(body), torch.tensor(given), stop_on_nonfinite=True)
    assert f": {finding.what}" in str(stopped.value).splitlines()[0] and stopped.value.kind == finding.kind


def test_what_lay_where_a_result_is_put_says_nothing_of_it():
    zeros = torch.zeros(4)
    for place in (torch.ones(4), torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.full((4,), math.nan)):
        (finding,) = fx_debug(Runs(lambda x, place=place: torch.div(x, zeros, out=place)), torch.ones(4)).check()
        assert finding.what.startswith("a division by 0 (4 of 4 elements)")


@pytest.mark.parametrize("number", [0.0, math.inf, math.nan])
def test_memory_that_was_written_in_part_is_told_of_alike_while_the_model_runs_and_afterwards(number):
    def half_filled(x):
        memory = torch.empty(4)  # filled with NaN: that is what deterministic algorithms begin with
        memory[:2] = number
        return memory * x

    torch.use_deterministic_algorithms(True)
    try:
        (finding,) = fx_debug(Runs(half_filled), torch.ones(())).check()
        with pytest.raises(fxdebug.NonFinite) as stopped:
            fx_debug(Runs(half_filled), torch.ones(()), stop_on_nonfinite=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert stopped.value.kind == finding.kind


def test_where_the_lowest_number_of_a_mask_became_an_infinity_is_told():
    lowest = torch.zeros(4, 4).masked_fill(torch.eye(4) < 1, torch.finfo(torch.float32).min).fill_diagonal_(-1e38)
    low = torch.full((4, 4), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16)
    cast = Runs(lambda x: (x.half() + (lowest - 1e38).half()).softmax(-1))
    twice = Runs(lambda x: (x.bfloat16() + (low + low)).softmax(-1))
    written = Runs(lambda x: x.masked_fill(torch.ones(4, 4) > 0, -math.inf).softmax(-1))
    said = [fx_debug(model, torch.ones(4, 4)).check().findings[0].what for model in (cast, twice, written)]
    assert "does not fit at Runs#0/half_1, and is -Inf from there on" in said[0]
    assert "is added to another one at Runs#0/add, and is -Inf from there on" in said[1]
    assert "from there on" not in said[2]


class Scaled(nn.Module):
    """A norm of one's own, whose epsilon may be too small for the dtype."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)


@pytest.mark.parametrize(
    ("dtype", "eps", "why"),
    [
        (torch.float16, 1e-12, "0 divided by 0 (1e-12, which add adds, is 0 in float16): 4 NaN of 8 elements"),
        (torch.float16, 0.0, "0 divided by 0: 4 NaN of 8 elements"),
        (torch.float32, 1e-12, None),
        (torch.bfloat16, 1e-12, None),
    ],
)
def test_an_epsilon_that_is_zero_in_its_dtype_is_named_behind_what_is_divided(dtype, eps, why):
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]], dtype=dtype)
    found = fxdebug.check(Scaled(eps), x, analyses=["numbers"], config=False)
    assert [finding.what for finding in found if finding.severity == "error"] == ([] if why is None else [why])


def test_the_first_of_several_layers_that_make_nan_in_one_line_stands_first_though_its_own_is_left_out():
    class Layer(nn.Module):
        def forward(self, x, mask):
            return (x @ x.mT).masked_fill(mask, -math.inf).softmax(-1) @ x

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = Layer(), Layer()

        def forward(self, x, mask):
            return self.two(torch.cat([self.one(x, mask)[:3], x[3:]]), mask)

    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[3] = True
    report = fx_debug(Layers(), (torch.ones(4, 2), mask)).check()
    assert [(one.severity, one.path, one.output) for one in report.findings if one.rule == "nan"] == [
        ("error", "one", False),
        ("error", "two", True),
    ]
