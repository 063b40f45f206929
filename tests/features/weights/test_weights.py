"""``fxdebug.weights``: rows W1, W2, W3 (units without weights) and W4 of the analyses; two checkpoints."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import fxdebug

transformers = pytest.importorskip("transformers", reason="the rows' fixture is a model of transformers")


def gpt2(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=128, bos_token_id=0, eos_token_id=0
        )
    )


def rules(report: fxdebug.Report[Any]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in report.findings]


def test_w1_histograms_hold_every_element_and_tied_weights_count_once() -> None:
    model = gpt2()
    report = fxdebug.weights(model)
    names = [row.name for row in report.rows]
    assert "transformer.wte.weight" in names and "lm_head.weight" not in names
    for name, found in report.histograms.items():
        weight = model.get_parameter(name).detach()
        counts, edges = np.histogram(weight.double().numpy(), bins=len(found.counts))
        assert sum(found.counts) == weight.numel(), name
        assert found.counts == tuple(counts) and found.edges == tuple(edges), name


def test_w2_statistics_are_numpys() -> None:
    model = gpt2()
    for row in fxdebug.weights(model).rows:
        weight = model.get_parameter(row.name).detach().double().numpy()
        assert row.std == pytest.approx(weight.std(ddof=1), rel=1e-6)
        bound = 16 * 2.0**-23 * abs(weight).max()  # docs/native.md: without the core, sums are those of float32
        assert row.mean == pytest.approx(weight.mean(), rel=1e-6, abs=bound)
        assert row.zeros == 100 * (weight == 0).mean()
        if row.spectral_norm is not None:
            values = np.linalg.svd(weight, compute_uv=False)
            assert row.spectral_norm == pytest.approx(values[0], rel=1e-6)
            assert row.stable_rank == pytest.approx((values**2).sum() / values[0] ** 2, rel=1e-6)


def test_w2_large_matrices_are_measured_by_the_power_method() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(1100, 1100, bias=False)
    (row,) = fxdebug.weights(layer).rows
    assert row.spectral_norm == pytest.approx(float(torch.linalg.matrix_norm(layer.weight.detach(), 2)), rel=1e-3)


@pytest.mark.parametrize(
    "layer, cut, unit",
    [
        (nn.Linear(8, 16), lambda w: w[5].zero_(), 5),
        (nn.Conv2d(4, 16, 3), lambda w: w[5].zero_(), 5),
        (nn.ConvTranspose2d(4, 16, 3), lambda w: w[:, 5].zero_(), 5),
        (nn.ConvTranspose1d(4, 16, 3, groups=2), lambda w: w[2:, 5].zero_(), 13),
        (transformers.pytorch_utils.Conv1D(16, 8), lambda w: w[:, 5].zero_(), 5),
    ],
    ids=["Linear", "Conv2d", "ConvTranspose2d", "grouped ConvTranspose1d", "Conv1D"],
)
def test_w3_a_unit_without_weights_is_named_whatever_the_layout(layer: nn.Module, cut: Any, unit: int) -> None:
    assert rules(fxdebug.weights(layer)) == []
    with torch.no_grad():
        cut(layer.weight)
    (finding,) = fxdebug.weights(nn.Sequential(layer)).findings
    assert (finding.rule, finding.path) == ("dead unit", "0")
    assert finding.what == f"0.weight has 1 output unit with only zero weights: {unit}"


def test_w3_a_table_of_numbers_beside_layers_has_no_units() -> None:
    class Mesh(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            flat = torch.randn(25, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 0.0])
            flat[12] = 0
            self.places, self.layer = nn.Parameter(flat), nn.Linear(3, 8)

    assert {rule for rule, _ in rules(fxdebug.weights(Mesh()))} & {"dead unit", "unread input"} == set()


def test_w3_an_input_that_no_unit_reads_is_named() -> None:
    layer = nn.Linear(8, 16)
    with torch.no_grad():
        layer.weight[:, 3] = 0
    assert [(f.rule, f.what) for f in fxdebug.weights(layer).findings] == [
        ("unread input", "weight has 1 input read by no unit: 3")
    ]


def test_w3_a_unit_that_is_silent_on_the_inputs_is_named_at_its_layer() -> None:
    ids = torch.arange(64).reshape(2, 32) * 37 % 1000
    model = gpt2().eval()
    assert fxdebug.weights(model, ids).findings == ()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.bias[7] = -1e4
    report = fxdebug.weights(model, inputs=ids)
    assert [(f.rule, f.path, f.op, f.measured) for f in report.findings] == [
        ("dead unit", "transformer.h.1.mlp.c_fc", "Conv1D", 1.0)
    ]
    assert report.findings[0].what.startswith("behind gelu unit [7] of 256 is never active, on 64 tokens")
    rows = {row.name: (row.silent, row.dead) for row in report.rows}
    assert rows["transformer.h.1.mlp.c_fc.weight"] == (1, 0) and rows["transformer.h.0.mlp.c_fc.weight"] == (0, 0)
    assert rows["transformer.h.0.attn.c_attn.weight"] == (None, 0)
    assert fxdebug.weights(model).findings == ()  # structurally nothing is wrong


@pytest.mark.parametrize(
    "convolution, x, spoilt",
    [
        (nn.Conv1d(3, 16, 5), torch.randn(8, 3, 40), "0"),
        (nn.Conv2d(3, 16, 3), torch.randn(4, 3, 12, 12), "0"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)), torch.randn(4, 3, 12, 12), "0.1"),
        (nn.Linear(8, 16), torch.randn(4, 6, 6, 8), "0"),
    ],
    ids=["Conv1d", "Conv2d", "Conv2d and norm", "Linear on images with channels last"],
)
def test_w3_units_are_those_of_the_layer_whatever_its_layout(convolution: nn.Module, x: Any, spoilt: str) -> None:
    model = nn.Sequential(convolution, nn.Dropout(0.0), nn.ReLU(inplace=True))
    with torch.no_grad():
        model.get_submodule(spoilt).bias[4] = -1e3  # type: ignore[index, operator]
    (finding,) = fxdebug.weights(model, x).findings
    assert (finding.rule, finding.path) == ("dead unit", spoilt)
    assert finding.what.startswith("behind relu unit [4] of 16 is never active")


def test_w3_a_function_that_several_layers_share_has_the_units_of_each() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.up, self.mid, self.act = nn.Linear(8, 16), nn.Linear(16, 16), nn.ReLU()

        def forward(self, x: torch.Tensor) -> Any:
            return self.act(self.mid(self.act(self.up(x))))

    model = Shared()
    with torch.no_grad():
        model.mid.bias[3] = -100
    (finding,) = fxdebug.weights(model, torch.randn(50, 8)).findings
    assert finding.path == "mid" and "unit [3] of 16" in finding.what
    rows = [row.call for row in fxdebug.activations(model, torch.randn(50, 8)).rows]
    assert rows == ["up#0", "act#0(up)", "mid#0", "act#0(mid)", "Shared#0"]


def test_inputs_are_for_one_model() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    for wrong in ({"model": layer, "other": layer, "inputs": x}, {"model": "a.safetensors", "inputs": x}):
        with pytest.raises(fxdebug.UsageError, match="inputs are for one model"):
            fxdebug.weights(**wrong)
    with pytest.raises(fxdebug.UsageError, match="given twice"):
        fxdebug.weights(layer, x, inputs=x)


def test_w4_the_variance_from_block_to_block_is_told_with_inputs() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64, bias=False), nn.Identity()) for _ in range(6)])
    with torch.no_grad():
        for block in model:
            nn.init.orthogonal_(block[0].weight)  # type: ignore[index]
        model[3][0].weight.mul_(3)  # type: ignore[index, union-attr]
    (part,) = fxdebug.weights(model, torch.randn(256, 64)).parts
    ratios = [row.ratio for row in part.rows]
    assert [row.call for row in part.rows] == [f"{i}#0" for i in range(6)] and ratios[0] is None
    assert ratios[1:] == pytest.approx([1, 1, 9, 1, 1], rel=0.02)


def test_w4_gpt2_was_drawn_by_its_own_scheme() -> None:
    rows = {row.name: row for row in fxdebug.weights(gpt2()).rows}
    assert rows["transformer.h.0.attn.c_attn.weight"].scheme == "normal 0.02"
    assert rows["transformer.h.1.mlp.c_proj.weight"].scheme == "normal 0.02/√(2·2)"
    assert rows["transformer.h.1.mlp.c_proj.weight"].ratio == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_w4_torchs_defaults_are_known_and_have_no_finding(seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.Conv2d(3, 16, 3), nn.ConvTranspose2d(16, 8, 3), nn.Conv1d(8, 32, 5, groups=4),
        nn.Embedding(500, 64), nn.Embedding(100, 16, padding_idx=0), nn.LayerNorm(64), nn.Bilinear(8, 8, 16),
    )  # fmt: skip
    report = fxdebug.weights(model)
    assert rules(report) == [] and report.totals["state"][0] == "as initialised"
    drawn = [row for row in report.rows if row.name.endswith("weight") and row.type not in ("LayerNorm", "Bilinear")]
    assert {row.scheme for row in drawn} == {"torch's default"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_w4_one_layer_with_another_scale_is_found(seed: int, factor: float) -> None:
    model = gpt2(seed)
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight.mul_(factor)
    (finding,) = fxdebug.weights(model).findings
    assert (finding.rule, finding.path) == ("initialisation", "transformer.h.1.mlp.c_fc")
    assert finding.measured == pytest.approx(factor, rel=0.05)


def test_w4_a_trained_model_has_no_finding() -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(0)
    for _ in range(30):
        ids = torch.randint(0, 1000, (4, 16))
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    report = fxdebug.weights(model)
    assert rules(report) == [] and report.totals["state"][0] != "as initialised"


def test_weights_that_are_not_finite_are_an_error() -> None:
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight[1, 2] = float("nan")
    (finding,) = fxdebug.weights(layer).findings
    assert (finding.rule, finding.severity, finding.measured) == ("weight not finite", "error", 1)


def test_every_kind_of_weight_is_read_and_none_is_changed() -> None:
    model = nn.ModuleDict({"linear": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4)}).double()
    model.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool))
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_parameter("short", nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16)))
    model.register_parameter("nothing", nn.Parameter(torch.ones(0, 2)))
    model.register_parameter("waves", nn.Parameter(torch.ones(2, 2, dtype=torch.complex64)))
    model.register_buffer("meta", torch.ones(2, device="meta"))
    versions = {name: tensor._version for name, tensor in model.state_dict(keep_vars=True).items()}
    report = fxdebug.weights(model)
    assert len(report.rows) == len(versions) - 1
    assert [note.what for note in report.notes] == [
        "missing here, without data or arithmetic, or packed by quantisation: meta"
    ]
    assert {name: tensor._version for name, tensor in model.state_dict(keep_vars=True).items()} == versions
    json.loads(report.json_text())


def test_weights_that_cannot_be_read_are_counted_where_their_number_is_known() -> None:
    both = ("elements of parameters", "  that ask for gradients")

    def counts(model: nn.Module) -> tuple[list[object], tuple[str, ...]]:
        report = fxdebug.weights(model)
        return [report.totals[name][0] for name in both], report.at_least

    with torch.device("meta"):
        assert counts(nn.Linear(3, 4)) == ([16, 16], ())
    assert counts(nn.Sequential(nn.LazyLinear(4), nn.Linear(3, 4))) == ([16, 16], both)
    with warnings.catch_warnings(action="ignore"):
        packed = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), {nn.Linear})
    assert counts(packed) == ([8, 8], both[:1])
    assert "0._packed_params._packed_params" in str(fxdebug.weights(packed))


def test_a_module_that_is_registered_in_itself_is_read_once() -> None:
    layer = nn.Linear(2, 2)
    layer.register_module("again", layer)
    assert [row.name for row in fxdebug.weights(layer).rows] == ["weight", "bias"]


# Two checkpoints ---------------------------------------------------------------------------------


def saved(model: nn.Module, path: Path) -> Path:
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    if path.suffix == ".pt":
        torch.save(tensors, path)
    else:
        safetensors.torch.save_file(tensors, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_two_checkpoints_are_compared_without_building_the_model(suffix: str, tmp_path: Path) -> None:
    model = gpt2()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.transformer.h[1].ln_1.weight[3] += 0.5
        other.transformer.h[0].mlp.c_fc.weight.mul_(1.01)
    report = fxdebug.weights(saved(model, tmp_path / f"a{suffix}"), saved(other, tmp_path / f"b{suffix}"))
    assert [(row.name, row.state) for row in report.rows[:3]] == [
        ("transformer.h.1.ln_1.weight", "changed"),
        ("transformer.h.0.mlp.c_fc.weight", "changed"),
        (report.rows[2].name, "equal"),
    ]
    assert report.rows[0].change == pytest.approx(100 * 0.5 / 8) and report.rows[0].differing == 100 / 64
    assert report.rows[1].change == pytest.approx(1, rel=1e-4) and report.rows[1].cosine == pytest.approx(1)
    assert {row.change for row in report.rows[2:]} == {0}
    live = fxdebug.weights(model, other)
    assert live.rows[:2] == report.rows[:2]


def test_weights_of_one_side_and_of_other_shapes_come_first(tmp_path: Path) -> None:
    a = nn.ModuleDict({"x": nn.Linear(4, 4), "y": nn.Linear(4, 4, bias=False)})
    b = nn.ModuleDict({"x": nn.Linear(4, 8), "z": nn.Linear(4, 4, bias=False)})
    report = fxdebug.weights(a, b)
    assert [(row.name, row.state, row.shape) for row in report.rows] == [
        ("x.weight", "shape differs", "4×4 → 8×4"),
        ("x.bias", "shape differs", "4 → 8"),
        ("y.weight", "only in a", "4×4"),
        ("z.weight", "only in b", "4×4"),
    ]
    with pytest.raises(fxdebug.UsageError, match="the first has 'weight', the second 'x"):
        fxdebug.weights(nn.Linear(2, 2), a)


def test_a_folder_in_parts_is_one_checkpoint(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path / "parts", max_shard_size="200KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    report = fxdebug.weights(tmp_path / "parts", gpt2())
    assert {row.state for row in report.rows} - {"only in b"} == {"equal"}
    assert len(fxdebug.weights(tmp_path / "parts").rows) == 28


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.safetensors", b"\xff" * 100, "is no safetensors file"),
        ("a.safetensors", b"", "is no safetensors file"),
        ("a.pt", b"hello", "cannot be read as weights alone"),
        ("a.txt", b"hello", "is no checkpoint"),
    ],
)
def test_files_without_weights_are_a_load_error(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(fxdebug.LoadError, match=said):
        fxdebug.weights(tmp_path / name)


@pytest.mark.parametrize(
    "table", ["[]", "{}", '{"weight_map": {"x": "../secret.safetensors"}}', '{"weight_map": {"x": 1}}']
)
def test_an_index_that_is_damaged_or_leads_elsewhere_is_a_load_error(table: str, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    saved(nn.Linear(2, 2), tmp_path / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(table)
    with pytest.raises(fxdebug.LoadError):
        fxdebug.weights(folder)


def test_a_pickle_that_would_run_code_is_a_load_error(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("run",)

    torch.save({"x": Evil()}, tmp_path / "a.pt")
    with pytest.raises(fxdebug.LoadError, match="as weights alone"):
        fxdebug.weights(tmp_path / "a.pt")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_drawn_by_their_hidden_size(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 32), kind(32, 64, 2), nn.Linear(64, 20))
    report = fxdebug.weights(model)
    assert report.findings == ()
    assert {row.scheme for row in report.rows if row.name.startswith("1.weight")} == {"torch's default"}
    with torch.no_grad():
        model[1].weight_hh_l1.mul_(3)
    assert [finding.rule for finding in fxdebug.weights(model).findings] == ["initialisation"]


def test_a_weight_of_few_elements_that_looks_normal_and_has_the_usual_deviation_is_none() -> None:
    torch.manual_seed(0)  # by which 12.weight, of 128 uniform numbers, looks normal
    model = nn.Sequential(*[nn.Linear(*sizes) for sizes in [(8, 16), (16, 2), (2, 8)] * 6])
    assert fxdebug.weights(model).findings == ()
    with torch.no_grad():
        model[12].weight.mul_(10)
    assert rules(fxdebug.weights(model)) == [("initialisation", "12")]


def tiny(name: str, **sizes: Any) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=200, **sizes)
    model: nn.Module = getattr(transformers, f"{name}Model")(config)
    return model


OWN_SCHEMES = {
    "Mamba": {"hidden_size": 64, "num_hidden_layers": 2},  # decays: one row again and again, the first one 0
    "T5": {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16},  # queries √d_kv smaller
    "Whisper": {
        "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0,
    },  # a table of sinusoids
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_SCHEMES)
def test_w4_tables_and_schemes_of_a_models_own_have_no_finding(name: str) -> None:
    assert [str(finding) for finding in fxdebug.weights(tiny(name, **OWN_SCHEMES[name])).findings] == []


def test_w4_a_weight_that_is_off_its_models_own_scheme_is_found() -> None:
    model = tiny("T5", **OWN_SCHEMES["T5"])
    with torch.no_grad():
        model.get_parameter("decoder.block.1.layer.1.EncDecAttention.q.weight").mul_(3)
    before = torch.get_rng_state()
    (finding,) = fxdebug.weights(model).findings
    assert finding.path == "decoder.block.1.layer.1.EncDecAttention.q"
    assert "times that of the model's own scheme (0.031" in finding.what and 2.8 < finding.measured < 3.2
    assert torch.equal(before, torch.get_rng_state())


def test_w4_positions_in_a_table_are_not_taken_for_drawn_weights() -> None:
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])
    angles = torch.arange(64.0)[:, None] / 10_000 ** (torch.arange(32) / 32)
    model.register_parameter("positions", nn.Parameter(torch.cat([angles.sin(), angles.cos()], 1)))
    assert fxdebug.weights(model).findings == ()


def test_w4_a_weight_that_fits_a_scheme_alone_is_not_measured_against_it() -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(6)])
    with torch.no_grad():
        model[3].weight.normal_(0, 0.34, generator=torch.Generator().manual_seed(0))  # 0.96 of Kaiming's, by chance
    assert [finding for finding in fxdebug.weights(model).findings if "other weights" in finding.what] == []


def test_w4_thresholds_of_the_initialisation_can_be_set() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])
    with torch.no_grad():
        model[3].weight.mul_(1.5)
    assert [finding.path for finding in fxdebug.weights(model).findings] == ["3"]
    assert fxdebug.check(model, limits={"weights.ratio": 0.8}, analyses="weights").healthy
    assert not fxdebug.check(model, limits={"weights.ratio": 0.3}, analyses="weights").healthy


def test_w2_without_spectra_everything_else_is_the_same() -> None:
    model = gpt2()
    fast, whole = fxdebug.weights(model, spectra=False), fxdebug.weights(model)
    assert {row.spectral_norm for row in fast.rows} == {None} and not fast.measures["weight.stable_rank"]
    assert [replace(row, spectral_norm=None, stable_rank=None) for row in whole.rows] == list(fast.rows)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.MultiheadAttention(16, 4),
        lambda: nn.MultiheadAttention(16, 4, kdim=24, vdim=40),
        lambda: nn.TransformerEncoderLayer(16, 4, 64),
        lambda: nn.LSTM(8, 16, 2, proj_size=4),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 24)),
        lambda: torch.nn.utils.weight_norm(nn.Linear(16, 24)),  # type: ignore[no-untyped-call, unused-ignore]
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(16, 24)),
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(16, 24)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_w4_layers_of_torch_with_a_scheme_or_a_parametrization_of_their_own_have_no_finding(make: Any) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        beside = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        made = make()
        assert rules(fxdebug.weights(made)) == rules(fxdebug.weights(beside.append(made))) == []


def test_w4_projections_into_attention_that_are_off_are_found() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.TransformerEncoderLayer(16, 4, 64), *(nn.Linear(64, 64) for _ in range(4))])
    model[0].self_attn.in_proj_weight.data *= 2  # type: ignore[operator, union-attr]
    assert rules(fxdebug.weights(model)) == [("initialisation", "0.self_attn")]


def test_a_weight_whose_rows_are_of_several_sizes_is_not_told_as_drawn_by_another_scheme() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(48, 48) for _ in range(6)])
    assert [finding.rule for finding in fxdebug.weights(net).findings] == []
    with torch.no_grad():
        net[2].weight[:32] *= 4  # type: ignore[index, operator]
    assert [finding.rule for finding in fxdebug.weights(net).findings] == []  # put together, or trained
    with torch.no_grad():
        net[2].weight[32:] *= 4  # type: ignore[index, operator]
    assert [(finding.rule, finding.path) for finding in fxdebug.weights(net).findings] == [("initialisation", "2")]
