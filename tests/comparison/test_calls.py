"""Two calls compared: of one run, of two, of saved ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from faults.originals import inputs_of, reference
from fxdebug import compare, fx_debug
from fxdebug.api.trace import Trace
from fxdebug.apps.cli.main import main
from fxdebug.errors import NotFound, UsageError
from fxdebug.query.run_of_call import run_of_call
from support.blocks import Model, X, model, run


def _with(change: object) -> Model:
    other = model()
    with torch.no_grad():
        change(other)  # type: ignore[operator]
    return other


def _wrong_epsilon() -> Model:
    return _with(lambda other: setattr(other.blocks[1].norm, "eps", 0.5))


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_a_call_of_two_runs_is_compared_with_paths_relative_to_it(values: str) -> None:
    a, b = (run(each, values=values).find("blocks.1")[0] for each in (model(), _wrong_epsilon()))
    found = compare(a, b)
    assert (found.verdict, found.first.path, found.first.op, found.first.kind) == (
        "different", "norm", "layer_norm", "constant",
    )  # fmt: skip
    assert [call.path for call in found.a.calls] == ["", "norm", "up", "down"]
    assert found.coverage.calls[1:] == (4, 4)
    assert "  a  Block  4 calls, float32  blocks.1#0 of Model" in str(found)
    assert compare(a, a).equal and compare(a, run(model(), values=values).find("blocks.1")[0]).equal


def test_a_layer_against_the_next_has_other_inputs_and_other_weights() -> None:
    trace = run(model())
    found = compare(*(trace.find(f"blocks.{i}")[0] for i in (0, 1)))
    assert found.verdict == "different" and found.first.kind == "input"
    twins = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twins = twins

        def forward(self, x: Tensor) -> Tensor:
            return self.twins[0](x) + self.twins[1](x)

    both = fx_debug(Both(), torch.ones(2, 4))
    found = compare(both.find("twins.0")[0], both.find("twins.1")[0])
    assert [(row.kind, row.path) for row in found.findings] == [("weights", "")]
    assert "twins.1.weight holds" in found.first.because or "twins.1.weight differs" in found.first.because


def test_inputs_of_a_call_are_compared() -> None:
    a, b = (run(model(), x).find("blocks.0")[0] for x in (X, X + 1))
    assert [(row.kind, row.because) for row in compare(a, b).findings] == [
        ("input", "the runs were given different inputs: args[0]")
    ]


def test_steps_of_generate_are_compared() -> None:
    llama, tokens = reference("llama", "sdpa"), inputs_of("llama")["input_ids"][:1, :5]
    given = {"input_ids": tokens, "max_new_tokens": 3, "do_sample": False}
    with torch.no_grad():
        a, b = (fx_debug(llama, given, method="generate", values="tensors") for _ in range(2))
    steps = [call for call in a.calls if call.path == "" and call.parent_index is not None]
    again = [call for call in b.calls if call.path == "" and call.parent_index is not None]
    for one, other in zip(steps, again, strict=True):
        assert compare(one, other).equal
    decode = compare(steps[1], steps[2])
    assert {row.kind for row in decode.findings} >= {"input"} and decode.first.kind == "input"
    prefill = compare(steps[0], steps[1])
    assert "input_ids, 1×5 in a and 1×1 in b" in prefill.first.because
    assert prefill.coverage.calls.compared > 30


def _steps(trace: fxdebug.Trace) -> list[fxdebug.data.calls.Call]:
    return [call for call in trace.calls if call.path == "" and call.parent_index is not None]


def test_a_decoding_step_is_compared_with_the_last_position_of_a_prefill() -> None:
    llama, tokens = reference("llama", "sdpa"), inputs_of("llama")["input_ids"][:1, :5]
    with torch.no_grad():
        begun = fx_debug(llama, {"input_ids": tokens, "max_new_tokens": 3}, method="generate", values="tensors")
        more = llama.generate(tokens, max_new_tokens=1)
        again = fx_debug(llama, {"input_ids": more, "max_new_tokens": 2}, method="generate", values="tensors")
    prefill, decode = _steps(again)[0], _steps(begun)[1]
    for a, b, long, short in ((prefill, decode, "a", "b"), (decode, prefill, "b", "a")):
        found = compare(a, b)
        assert found.equal and found.coverage.calls == (45, 45, 45), str(found)
        assert found.notes[0].startswith(
            f"{long} has 6 positions, {short} one: it is compared with the last one of {long}"
        )
    attention = llama.model.layers[1].self_attn
    right = attention.forward
    attention.forward = lambda *args, **given: (lambda out: (out[0] * 1.1, *out[1:]))(right(*args, **given))
    try:
        with torch.no_grad():
            wrong = fx_debug(llama, {"input_ids": tokens, "max_new_tokens": 2}, method="generate", values="tensors")
    finally:
        del attention.forward
    found = compare(prefill, _steps(wrong)[1])
    assert (found.verdict, found.first.path) == ("different", "model.layers.1.self_attn")


def test_without_tensors_and_models_one_position_of_a_sequence_is_not_guessed(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    whole = torch.randn(2, 6, 4)
    for name, x in (("whole", whole), ("last", whole[:, -1:]), ("one", whole[:1])):
        fx_debug(layer, x, save=tmp_path / name)
    found = compare(tmp_path / "whole", tmp_path / "last")
    assert found.verdict == "could not compare", str(found)
    assert 'values="tensors"' in found.notes[0]
    found = compare(tmp_path / "whole", tmp_path / "one")  # a smaller batch is another input
    assert found.first.kind == "input" and found.first.because.endswith("2×6×4 in a and 1×6×4 in b")


def test_a_compiled_call_is_compared_with_the_eager_one() -> None:
    plain = _with(lambda other: None)
    eager = run(plain)
    compiled = run(torch.compile(plain, backend="aot_eager"))
    assert compare(eager.root, compiled.root).equal
    wrong = run(torch.compile(_wrong_epsilon(), backend="aot_eager"))
    assert not compare(eager.root, wrong.root)


def test_calls_of_saved_runs_are_compared_by_name_here_and_in_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(model(), save=tmp_path / "a", values="tensors")
    run(_wrong_epsilon(), save=tmp_path / "b", values="tensors")
    same, wrong = (f"{tmp_path}/{{}}::blocks.{i}" for i in (0, 1))
    assert compare(same.format("a"), same.format("b")).equal
    assert main(["compare", same.format("a"), same.format("b")]) == 0
    assert main(["compare", wrong.format("a"), wrong.format("b"), "--json"]) == 1
    out = capsys.readouterr().out
    told = json.loads(out[out.index("\n{") :])
    assert (told["format"], told["version"]) == ("fxdebug comparison summary", 1)
    assert (told["verdict"], told["equal"], told["missing"]) == ("different", False, [])
    assert told["coverage"]["calls"] == {"compared": 4, "a": 4, "b": 4}
    assert [(row["path"], row["op"], row["kind"]) for row in told["findings"]] == [("norm", "layer_norm", "constant")]
    assert compare(f"{tmp_path}/a::#0", f"{tmp_path}/a").equal
    with pytest.raises(NotFound, match=r"no call 'blocks.9' in this run of Model"):
        compare(f"{tmp_path}/a::blocks.9", f"{tmp_path}/b")


def test_a_call_is_found_by_its_number_where_its_module_is_called_often() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    from fxdebug.query.run_of_call import call_named

    trace = fx_debug(Twice(), torch.ones(2, 4))
    assert call_named(trace, "layer#1") is trace.calls[2]
    with pytest.raises(UsageError, match=r"'layer' was called 2 times: name one call, layer#0 … layer#1"):
        call_named(trace, "layer")
    with pytest.raises(UsageError, match=r"'layer#7' was called 2 times"):
        call_named(trace, "layer#7")
    assert compare(trace.calls[1], trace.calls[1]).equal


def test_a_call_outlives_the_name_of_its_trace_and_a_copy_of_one_belongs_to_none() -> None:
    call = run(model(), values="tensors").find("blocks.1")[0]
    assert compare(call, call).basis in ("tensors", "statistics")
    part = run_of_call(call)
    assert part.tensor(part.root.outputs[0]).shape == (4, 12)
    import copy

    with pytest.raises(UsageError, match="belongs to no trace"):
        compare(copy.copy(call), call)


def test_a_call_of_a_debug_tree_can_be_compared(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4))
    with fxdebug.model_addition_debugger_context(layers, debug_path=str(tmp_path), use_repr=False), torch.no_grad():
        layers(torch.ones(2, 4))
    trace = fx_debug(layers, torch.ones(2, 4))
    found = compare(fxdebug.load(tmp_path).find("0")[0], trace.find("0")[0])
    assert (found.verdict, found.coverage.stand_in) == ("equal", "a")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_last_positions_of_a_forward_are_those_that_go_on_from_its_cache(name: str, count: int) -> None:
    from transformers import DynamicCache

    model = reference(name)
    tokens = torch.arange(3, 12)[None]

    def continued(given: Tensor) -> fxdebug.Trace:
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(tokens[:, :-count], past_key_values=cache, use_cache=True)
            return fx_debug(model, {"input_ids": given, "past_key_values": cache, "use_cache": True}, values="tensors")

    with torch.no_grad():
        whole = fx_debug(model, {"input_ids": tokens, "use_cache": True}, values="tensors")
    part = continued(tokens[:, -count:])
    for a, b in ((whole, part), (part, whole)):
        found = compare(a, b)
        assert (found.findings, found.verdict) == ((), "equal")
        assert found.coverage.calls.compared == found.coverage.calls.a
        assert {row.basis for row in found.outputs} == {"tensors"}
    other = compare(whole, continued(tokens[:, -count:] + 1))
    assert other.first is not None
    assert (other.verdict, other.first.kind) == ("different", "input")


def run_of_tokens(start: int, stop: int) -> Trace:
    with torch.no_grad():
        given = {"input_ids": torch.arange(start, stop)[None], "use_cache": True}
        return fx_debug(reference("gpt2"), given, values="tensors")


def test_the_beginning_of_a_longer_text_is_compared_with_it_whichever_stands_first() -> None:
    long, short = run_of_tokens(3, 12), run_of_tokens(3, 9)
    for one, other, said in (
        (long, short, "row 0, positions 0 to 5, of a with row 0 of b"),
        (short, long, "row 0 of a with row 0, positions 0 to 5, of b"),
    ):
        found = compare(one, other)
        assert (found.verdict, found.findings) == ("equal", ())
        assert found.notes[0].startswith(f"compared are {said}, which have the same tokens")


def test_other_lengths_of_other_tokens_without_a_cache_are_other_inputs() -> None:
    a, b = run_of_tokens(3, 12), run_of_tokens(20, 26)
    found = compare(a, b)
    assert found.first is not None
    assert (found.first.kind, found.first.because) == (
        "input", "the runs were given different inputs: input_ids, 1×9 in a and 1×6 in b",
    )  # fmt: skip
