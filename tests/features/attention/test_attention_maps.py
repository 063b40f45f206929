"""``fxdebug.attention``: rows T1 to T4 of the analyses, and the faults that it finds by name."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.errors import NotFound, UsageError

transformers = pytest.importorskip("transformers", reason="the rows' fixtures are models of transformers")


def gpt2(attention: str = "sdpa", **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000, "n_positions": 128} | changes
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation=attention)
    return transformers.GPT2LMHeadModel(config).eval()


def bert(attention: str = "sdpa") -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=1000,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def llama(attention: str = "sdpa", kind: str = "Llama", **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": attention}
    config = getattr(transformers, f"{kind}Config")(**(sizes | heads | changes))
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


IDS = torch.arange(64).reshape(2, 32) * 37 % 1000
PADDED = {"input_ids": IDS[:, :16], "attention_mask": (torch.arange(16) < torch.tensor([[16], [10]])).long()}


def eager_maps(model: Any, inputs: dict[str, Tensor]) -> list[np.ndarray]:
    with torch.no_grad():
        return [weights.numpy() for weights in model(**inputs, output_attentions=True).attentions]


# T1: maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        pytest.param(gpt2, {"input_ids": IDS}, id="causal"),
        pytest.param(bert, PADDED, id="padding mask"),
        pytest.param(llama, {"input_ids": IDS}, id="grouped queries"),
        pytest.param(
            lambda attention: llama(attention, "Mistral", sliding_window=8), {"input_ids": IDS}, id="sliding window"
        ),
    ],
)
def test_t1_rebuilt_maps_are_those_of_the_eager_model(build: Any, inputs: dict[str, Tensor]) -> None:
    report = fxdebug.attention(build("sdpa"), inputs)
    eager = eager_maps(build("eager"), inputs)
    queries = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool().numpy()
    assert len(report.maps) == len(eager) and {one.op for one in report.maps} == {"scaled_dot_product_attention"}
    for one, weights in zip(report.maps, eager):
        apart = np.abs(one.weights - weights).max((1, 3))[queries]  # a query that is padding may see anything
        assert apart.max() <= 6e-8  # one unit of the last place of a weight between 0.5 and 1
        assert one.error is not None and one.error <= 1e-6 and one.is_true
        assert np.abs(one.weights.sum(-1) - 1).max() < 1e-6
    assert report.findings == ()


def test_t1_the_error_of_the_rows_fixture_is_within_3e_8() -> None:
    maps = fxdebug.attention(gpt2(), IDS).maps
    assert [np.abs(a.weights - b).max() <= 3e-8 for a, b in zip(maps, eager_maps(gpt2("eager"), {"input_ids": IDS}))]


def test_t1_eager_attention_is_the_softmax_itself_also_behind_a_softcap() -> None:
    model = llama("eager", "Gemma2", head_dim=16, attn_logit_softcapping=2.0, sliding_window=8)
    report = fxdebug.attention(model, IDS)
    assert {one.op for one in report.maps} == {"softmax"}
    assert all((one.weights == eager).all() for one, eager in zip(report.maps, eager_maps(model, {"input_ids": IDS})))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_run_that_kept_its_tensors_has_the_same_maps(attention: str, tmp_path: Path) -> None:
    model = gpt2(attention)
    fxdebug.fx_debug(model, IDS, values="tensors", save=tmp_path / "run")
    saved, live = fxdebug.attention(tmp_path / "run"), fxdebug.attention(model, IDS)
    assert [(a.weights == b.weights).all() for a, b in zip(saved.maps, live.maps)] == [True, True]
    assert [row.error for row in saved.parts[0].rows] == [row.error for row in live.parts[0].rows]


def test_a_run_without_tensors_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="values='tensors'"):
        fxdebug.attention(fxdebug.fx_debug(gpt2(), IDS))
    with pytest.raises(UsageError, match="no graphs"):
        fxdebug.attention(fxdebug.fx_debug(gpt2(), IDS, graph=False))


class Fused(nn.Module):
    """One scaled_dot_product_attention with the arguments that it is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **self.options)


def written_out(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.softmax((q @ k.mT * scale).masked_fill(~mask, -torch.inf), -1)


def test_masks_scales_and_groups_are_those_of_the_operation() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    boolean = torch.rand(2, 1, 5, 7) > 0.4
    boolean[..., 0] = True
    additive = torch.zeros(5, 7).masked_fill(torch.rand(5, 7) > 0.7, torch.finfo(torch.float32).min)
    additive[:, 0] = 0
    causal = torch.ones(5, 7, dtype=torch.bool).tril()
    repeated = k.repeat_interleave(2, 1)
    cases = [
        ({"attn_mask": boolean, "enable_gqa": True}, boolean, 8**-0.5),
        ({"attn_mask": additive, "enable_gqa": True}, additive == 0, 8**-0.5),
        ({"is_causal": True, "enable_gqa": True, "scale": 0.7}, causal, 0.7),
    ]
    for options, mask, scale in cases:
        (one,) = fxdebug.attention(Fused(**options), (q, k, v)).maps
        expected = written_out(q, repeated, mask, scale)
        assert np.abs(one.weights - expected.numpy()).max() < 1e-6
        assert one.is_true and (one.seen() == np.broadcast_to(mask.numpy(), one.weights.shape)).all()


def test_a_query_that_sees_nothing_has_no_weights() -> None:
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    (one,) = fxdebug.attention(Fused(attn_mask=mask), (*torch.randn(3, 1, 1, 3, 4),)).maps
    assert one.weights[0, 0].sum(-1).tolist() == pytest.approx([1, 0, 1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_within_their_rounding(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    report = fxdebug.attention(Fused(is_causal=True), (*torch.randn(3, 2, 4, 16, 8).to(dtype),))
    assert len(report.maps) == 1 and report.maps[0].is_true and (report.maps[0].error > 0 or dtype == torch.float64)


def test_a_map_that_does_not_explain_the_result_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = F.scaled_dot_product_attention

    class Wrong(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return fused(q, k, v)

    import fxdebug.features.attention.seen.probe as probe

    monkeypatch.setattr(
        probe, "bound", lambda name, args, kwargs: dict(zip("query key value".split(), args), scale=3.0)
    )
    report = fxdebug.attention(Wrong(), (*torch.randn(3, 1, 2, 4, 8),))
    assert report.maps == () and report.rows == ()
    assert "the map is left out" in report.notes[0].what


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["query", "key", "value", "all"])
def test_no_sentence_has_a_number_that_is_none(broken: float, which: str) -> None:
    torch.manual_seed(0)
    given = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    for place, name in enumerate(("query", "key", "value")):
        if which in (name, "all"):
            given[place][:, :, 2:4] = broken
    report = fxdebug.attention(Fused(), tuple(given))
    told = [note.what for note in report.notes] + [finding.what for finding in report.findings]
    assert [text for text in told if re.search(r"\b(nan|inf)\b", text)] == []
    assert not re.search(r"\bnan\b|\binf\b", str(report))


def test_dropout_leaves_the_map_and_takes_its_check() -> None:
    report = fxdebug.attention(gpt2().train(), IDS)
    assert [one.error for one in report.maps] == [None, None] and len(report.rows) == 8
    assert "drop weights at random" in report.notes[0].what


@pytest.mark.parametrize("fast", [True, False])
def test_multi_head_attention_has_maps_also_on_its_fast_path(fast: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 7, 16)
    with torch.set_grad_enabled(not fast):
        report = fxdebug.attention(model, x)
        _, expected = model.layers[0].self_attn(x, x, x, average_attn_weights=False)
    assert [one.path for one in report.maps] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert np.abs(report.maps[0].weights - expected.detach().numpy()).max() < 1e-6
    assert all(one.error is not None and one.is_true for one in report.maps)


def test_the_fast_path_runs_as_it_does_without_us() -> None:
    model, x = (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval(),
        torch.randn(2, 7, 16),
    )
    hidden = torch.arange(7) > torch.tensor([[6], [3]])
    with torch.no_grad():
        report = fxdebug.attention(model, x, {"src_key_padding_mask": hidden})
    assert len(report.maps) == 2 and report.findings == ()


def test_the_steps_of_generate_are_one_map_with_a_row_for_each_query() -> None:
    model = gpt2()
    report = fxdebug.attention(model.generate, {"input_ids": IDS[:, :6], "max_new_tokens": 4, "do_sample": False})
    joined = report.map("transformer.h.0.attn")
    assert joined.weights.shape == (2, 4, 9, 9) and [row.calls for row in report.parts[0].rows] == [4, 4]
    assert (np.triu(joined.weights, 1) == 0).all() and np.abs(joined.weights.sum(-1) - 1).max() < 1e-6
    with torch.no_grad():
        ids = model.generate(input_ids=IDS[:, :6], max_new_tokens=4, do_sample=False)[:, :9]
    whole = fxdebug.attention(model, ids).map("transformer.h.0.attn")
    assert np.abs(joined.weights - whole.weights).max() < 1e-6


def test_what_it_costs_is_in_the_totals() -> None:
    totals = fxdebug.attention(gpt2(), IDS).totals
    assert totals["queries, keys, values and masks"] == (2 * 3 * 2 * 4 * 32 * 16 * 4, "B")
    assert totals["maps"] == (2 * 2 * 4 * 32 * 32 * 4, "B")


def test_maps_beyond_the_budget_are_measured_and_not_kept() -> None:
    report = fxdebug.attention(gpt2(), IDS, budget=40_000)
    assert len(report.maps) == 1 and len(report.rows) == 8
    assert any("1 maps were measured and not kept" in note.what for note in report.notes)


def test_the_model_is_as_before_and_its_result_the_same() -> None:
    model = gpt2().train()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    fxdebug.attention(model, IDS)
    assert torch.equal(torch.random.get_rng_state(), before) and model.training
    assert all("forward" not in vars(module) and not module._forward_hooks for module in model.modules())


def test_an_exception_of_the_model_passes_through() -> None:
    with pytest.raises(IndexError):
        fxdebug.attention(gpt2(), IDS + 10_000)


# T2: numbers per head ------------------------------------------------------------------------------


class Given(nn.Module):
    """Attention with the weights that it is given, written out."""

    def forward(self, scores: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(scores, -1) @ v


def test_t2_hand_built_heads_have_the_numbers_of_their_kind() -> None:
    n, low = 8, -1e9
    own = torch.full((n, n), low).fill_diagonal_(0)
    even = torch.full((n, n), low).triu(1)
    first = torch.full((n, n), low)
    first[:, 0] = 0
    previous = torch.full((n, n), low)
    previous[torch.arange(n), (torch.arange(n) - 1).clamp(0)] = 0
    scores = torch.stack([own, even, first, previous])[None]
    rows = fxdebug.attention(Given(), (scores, torch.randn(1, 4, n, 3))).rows
    assert [row.entropy for row in rows] == pytest.approx([0, 1, 0, 0], abs=1e-6)
    even_share = sum(1 / keys for keys in range(4, 9)) / 5  # of queries that see at least 4 keys
    assert [row.own for row in rows] == pytest.approx([1, even_share, 0, 0])
    assert [row.first for row in rows] == pytest.approx([0, even_share, 1, 0])
    assert [row.previous for row in rows] == pytest.approx([0, even_share, 0, 1])


def test_t2_induction_is_measured_on_tokens_that_repeat() -> None:
    n, period = 12, 6
    scores = torch.zeros(1, 2, n, n)
    scores[0, 0].fill_diagonal_(0)
    for query in range(period, n):
        scores[0, 1, query, query - period + 1] = 50.0

    class Named(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return torch.softmax(scores, -1) @ torch.ones(1, 2, n, 3)

    repeated = torch.arange(period).repeat(2)[None]
    rows = fxdebug.attention(Named(), repeated).rows
    assert rows[1].induction == pytest.approx(1.0) and rows[0].induction == pytest.approx(1 / n)
    assert [row.induction for row in fxdebug.attention(Named(), torch.arange(n)[None]).rows] == [None, None]


def test_t2_the_sheet_has_a_cell_for_every_head(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn by the extra plot")
    from fxdebug.features.attention.picture import CELL_PIXELS, GAP_PIXELS, layers_to_show, sheet

    report = fxdebug.attention(gpt2(), IDS)
    picture = sheet(layers_to_show(report), 4)
    assert picture.shape == (2 * (CELL_PIXELS + GAP_PIXELS), 4 * (CELL_PIXELS + GAP_PIXELS))
    assert report.plot(tmp_path / "heads.png").read_bytes()[:4] == b"\x89PNG"
    assert report.plot_map(tmp_path / "map.svg", "transformer.h.1.attn", head=3).stat().st_size > 1000
    with pytest.raises(UsageError, match="no head 4"):
        report.plot_map(tmp_path / "map.svg", "transformer.h.1.attn", head=4)
    with pytest.raises(NotFound, match=r"transformer\.h\.1\.attn"):
        report.map("transformer.h.1.atn")


# T3: rollout and flow -------------------------------------------------------------------------------


def test_t3_rollout_of_one_layer_is_half_its_mean_and_half_the_token_itself() -> None:
    report = fxdebug.attention(gpt2(n_layer=1), IDS)
    mean = report.maps[0].weights[1].astype(float).mean(0)
    expected = 0.5 * (mean + np.eye(32))
    assert np.allclose(report.rollout(row=1), expected / expected.sum(1, keepdims=True), atol=1e-12)


def test_t3_rollout_and_flow_stay_causal_and_rows_sum_to_1() -> None:
    report = fxdebug.attention(gpt2(n_layer=3), IDS[:, :10])
    rollout = report.rollout()
    assert np.allclose(rollout.sum(1), 1) and (np.triu(rollout, 1) == 0).all()
    flow = report.flow(query=4)
    assert (flow[5:] == 0).all() and (flow[:5] > 0).all() and flow.sum() >= 1 - 1e-6


def test_t3_flow_through_one_layer_is_its_mixing() -> None:
    report = fxdebug.attention(gpt2(n_layer=1), IDS[:, :6])
    assert np.allclose(report.flow(query=3), report.rollout()[3], atol=1e-9)
    edges = report.edges(least=0.5)
    assert {(edge["query"], edge["key"]) for edge in edges} >= {(0, 0)}
    assert all(edge["weight"] >= 0.5 for edge in edges)  # type: ignore[operator]


# T4: the page ---------------------------------------------------------------------------------------

TOKENS = ["</script>", "<b>bold</b>", "&amp;", '"quoted"', "$x$", "über", "猫", "end"]


def test_t4_the_page_works_offline_and_has_the_maps_and_escaped_tokens(tmp_path: Path) -> None:
    report = fxdebug.attention(gpt2(), IDS[:, :8], tokens=TOKENS)
    page = report.export(tmp_path / "attention.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://|<link|src=|@import|url\(", page)
    assert page.count("<script") == page.count("</script>") == 2 and "<b>bold" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    first = data["layers"][0]
    assert first["keys"][0] == TOKENS and data["rows"] == 2
    steps = np.frombuffer(base64.b64decode(first["weights"]), "<u2").reshape(first["shape"])
    assert np.abs(steps / 65535 - report.maps[0].weights).max() < 1e-5


def test_t4_other_reports_have_a_page_without_scripts(tmp_path: Path) -> None:
    report = fxdebug.flops(fxdebug.fx_debug(nn.Linear(2, 2), torch.ones(1, 2)))
    page = report.export(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "flops of Linear" in page and "<script" not in page


# Findings -------------------------------------------------------------------------------------------


def rules(report: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in report.findings]


@pytest.mark.parametrize("build", [gpt2, bert, llama])
def test_healthy_models_have_no_findings(build: Any) -> None:
    assert rules(fxdebug.attention(build(), IDS)) == [] == rules(fxdebug.attention(build(), PADDED))


def test_a_mask_that_lets_padding_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bert()
    layer = model.bert.encoder.layer[2].attention.self
    forward = type(layer).forward
    layer.forward = lambda hidden, attention_mask=None, *args, **kwargs: forward(layer, hidden, None, *args, **kwargs)
    report = fxdebug.attention(model, PADDED)
    assert rules(report) == [("padding seen", "bert.encoder.layer.2.attention.self")]
    assert "all 4 heads" in report.findings[0].what and report.findings[0].severity == "error"


def test_an_additive_mask_that_is_too_weak_is_found() -> None:
    class Weak(nn.Module):
        def forward(self, q: Tensor, attention_mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, attn_mask=(1 - attention_mask[:, None, None].float()) * -3)

    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    assert rules(fxdebug.attention(Weak(), (torch.randn(1, 2, 6, 8), mask))) == [("padding seen", "")]


def test_a_layer_that_sees_later_tokens_is_found() -> None:
    model = llama(num_hidden_layers=3)
    model.model.layers[1].self_attn.is_causal = False
    report = fxdebug.attention(model, IDS)
    assert rules(report) == [("future seen", "model.layers.1.self_attn")]
    assert "2 other layers of its kind see none" in report.findings[0].what
    assert rules(fxdebug.attention(model, IDS, causal=False)) == []
    assert [rule for rule, _ in rules(fxdebug.attention(bert(), IDS, causal=True))] == ["future seen"] * 4


def test_an_unused_head_is_found() -> None:
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[1].attn.c_proj.weight[16:32] = 0  # what the layer makes of head 1
    report = fxdebug.attention(model, IDS)
    assert (
        rules(report) == [("unused head", "transformer.h.1.attn")] and "head 1 adds nothing" in report.findings[0].what
    )


def test_a_head_without_a_query_is_found() -> None:
    model = llama()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[32:48] = 0
    report = fxdebug.attention(model, IDS)
    assert rules(report) == [("uniform head", "model.layers.0.self_attn")]
    assert report.findings[0].what.startswith("head 2 gives every visible key the same weight")


def test_a_sink_is_found_and_even_weights_are_none() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 32, 8)
    k[:, 2, 0] = 0
    q[:, 2, :, 0], k[:, 2, 0, 0] = 4.0, 5.0
    report = fxdebug.attention(Fused(is_causal=True), (q, k, v))
    assert rules(report) == [("attention sink", "")] and report.findings[0].what.startswith("head 2 gives up to")
    assert rules(fxdebug.attention(Fused(is_causal=True), (torch.zeros(1, 4, 32, 8), k, v))) == []


def test_a_module_named_attention_without_one_is_noted() -> None:
    class LinearAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ (x.mT @ x)

    report = fxdebug.attention(nn.Sequential(LinearAttention()), torch.randn(1, 4, 4))
    assert report.rows == () and "no attention was seen in 1 modules" in report.notes[-1].what
