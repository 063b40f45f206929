"""TensorBoard reads from a run, a report and a watched training what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, api, fx_debug
from fxdebug.errors import LoadError, UsageError
from fxdebug.features.shared.programs.facts import shortened
from support.browser import click_until, opened, require_browser, served
from support.exported_models import RUNS, as_it_was, built, run_of

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)
EVERYTHING = {"scalars": 0, "histograms": 0, "tensors": 0}
SERIES = re.compile(r"(?:.*/)?\D*\d+", re.ASCII)


def read(folder: Path) -> Any:
    events = accumulator.EventAccumulator(str(folder), size_guidance=EVERYTHING)
    events.Reload()
    return events


def log(trace: Trace, folder: Path, **options: Any) -> Any:
    return read(trace.export(folder / "tb", to="tensorboard", **options))


def fact(node: Any, name: str) -> str:
    return node.attr[name].s.decode()


@pytest.mark.parametrize("name", RUNS)
def test_the_graph_has_every_operation_with_the_shapes_and_numbers_of_the_trace(name, tmp_path):
    trace = run_of(name)
    graph = log(trace, tmp_path).Graph()
    nodes = {fact(node, "id"): node for node in graph.node}
    assert len(nodes) == len(graph.node) == len({node.name for node in graph.node})
    for node in trace.ops() if trace.graph_source is not None else ():
        found = nodes.get(node.id) or _long(nodes, node.id)
        shapes = [tuple(dim.size for dim in shape.dim) for shape in found.attr["_output_shapes"].list.shape]
        assert shapes == [value.shape for value in node.values]
        assert found.op == shortened(node.op)
        if node.stats is not None and node.stats.mean is not None:
            assert fact(found, "mean") == str(node.stats.mean)
    names = {node.name for node in graph.node}
    assert {source.partition(":")[0] for node in graph.node for source in node.input} <= names


def _long(nodes: dict[str, Any], id: str) -> Any:
    """The node of an id that is longer than TensorBoard shows."""
    end = shortened(id, 100_000)[-200:]
    return next(node for known, node in nodes.items() if "…" in known and known.endswith(end))


@pytest.mark.parametrize("name", RUNS)
def test_no_attribute_is_cut_off_no_siblings_fold_and_no_box_is_an_operation_too(name, tmp_path):
    graph = log(run_of(name), tmp_path).Graph()
    scopes = set()
    for node in graph.node:
        parts = node.name.split("/")
        scopes.update("/".join(parts[:end]) for end in range(1, len(parts)))
        assert [key for key, value in node.attr.items() if value.ByteSize() > 1024] == []
        assert [part for part in parts if SERIES.fullmatch(part)] == []
    assert scopes.isdisjoint(node.name for node in graph.node)


def test_names_are_paths_and_data_flows_through_calls(tmp_path):
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.Identity()), nn.ReLU())
    graph = log(fx_debug(net, torch.ones(1, 4)), tmp_path).Graph()
    assert [(node.name, list(node.input)) for node in graph.node] == [
        ("Sequential/input_1.", []),
        ("Sequential/0./0./weight", []),
        ("Sequential/0./0./bias", []),
        ("Sequential/0./0./linear", ["Sequential/input_1.", "Sequential/0./0./weight", "Sequential/0./0./bias"]),
        ("Sequential/1./relu", ["Sequential/0./0./linear"]),
        ("Sequential/output", ["Sequential/1./relu"]),
    ]
    assert {node.device for node in graph.node} == {"/device:CPU:0"}


def test_times_are_those_of_the_profile_and_bytes_those_of_new_results(tmp_path):
    net, x = nn.Sequential(nn.Linear(64, 64), nn.Flatten()), torch.ones(8, 64)
    timed = fx_debug(net, x).with_measures(fxdebug.profile(net, x, repeats=2, peak=False))
    events = log(timed, tmp_path)
    (device,) = events.RunMetadata("run").step_stats.dev_stats
    stats = {stats.node_name: stats for stats in device.node_stats}
    times = timed.numbers("time.self")
    linear, flatten = stats["Sequential/0./linear"], stats["Sequential/1./flatten"]
    assert linear.all_end_rel_micros == pytest.approx(times["0#0/linear"] * 1e6, abs=1)
    assert flatten.all_end_rel_micros == pytest.approx(times["1#0/flatten"] * 1e6, abs=1)
    assert flatten.all_start_micros == pytest.approx(linear.all_start_micros + linear.all_end_rel_micros, abs=1)
    assert [memory.total_bytes for memory in linear.memory] == [8 * 64 * 4] and not flatten.memory


def test_a_run_that_was_not_timed_has_no_times(tmp_path):
    events = log(run_of("lstm"), tmp_path)
    devices = events.RunMetadata("run").step_stats.dev_stats
    assert [one for device in devices for one in device.node_stats if one.all_end_rel_micros] == []


def test_a_file_may_claim_more_bytes_than_the_format_can_say(tmp_path):
    fx_debug(nn.ReLU(), torch.ones(2, 3), save=tmp_path)
    file = tmp_path / "trace.json"
    file.write_text(file.read_text().replace("[2,3]", f"[{2**31},{2**31 - 1}]"))
    trace = fxdebug.load(tmp_path)
    assert trace.root.outputs[0].numel > 2**61
    assert trace.export(tmp_path / "log", to="tensorboard").is_dir()


def test_numbers_of_calls_are_scalars_of_their_step(tmp_path):
    trace = run_of("minilm")
    for step in (3, 7):
        trace.export(tmp_path / "tb", to="tensorboard", step=step, measures="absmax,flops")
    events = read(tmp_path / "tb")
    path = "encoder.layer.0.attention"
    wanted = trace[path].outputs[0].stats.absmax
    assert [(one.step, one.value) for one in events.Scalars(f"absmax/{path}")] == [
        (3, pytest.approx(wanted)), (7, pytest.approx(wanted)),
    ]  # fmt: skip
    assert events.Scalars("flops/BertModel")[0].value == trace.number("flops", trace.root)
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("mean/")]


def test_histograms_of_weights_have_the_buckets_that_were_counted(tmp_path):
    report = fxdebug.weights(nn.Linear(8, 8))
    events = read(report.export(tmp_path / "tb", to="tensorboard"))
    (event,) = events.Histograms("weights/weight")
    found, counted = event.histogram_value, report.histograms["weight"]
    assert tuple(found.bucket) == counted.counts and tuple(found.bucket_limit) == counted.edges[1:]
    assert sum(found.bucket) == found.num == 64 and (found.min, found.max) == (counted.edges[0], counted.edges[-1])


def test_histograms_of_activations_and_totals_of_a_profile_are_written(tmp_path):
    net, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(16, 8)
    events = read(fxdebug.activations(net, x).export(tmp_path / "a", to="tensorboard"))
    (event,) = events.Histograms("activations/1")
    assert sum(event.histogram_value.bucket) == 128
    profile = fxdebug.profile(net, x, repeats=2, peak=False)
    events = read(profile.export(tmp_path / "p", to="tensorboard"))
    assert events.Scalars("time.self/0")[0].value == pytest.approx(profile.measures["time.self"]["0#0"])


def watched(folder: Path) -> fxdebug.api.Watch:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, every=2, save=folder, histograms=True) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).pow(2).mean().backward()
            optimizer.step()
    return watch


def test_a_watched_training_is_written_step_by_step(tmp_path):
    watch = watched(tmp_path / "train")
    events = read(watch.export(tmp_path / "tb", to="tensorboard"))
    losses = events.Scalars("training/loss")
    assert [(one.step, one.value) for one in losses] == [(s.number, pytest.approx(s.loss)) for s in watch.steps]
    assert [one.wall_time for one in losses] == sorted(one.wall_time for one in losses)
    for name in ("weight.norm/0.weight", "grad.norm/0.weight", "update.ratio/2.bias", "std/1", "result.grad.norm/1"):
        assert [one.step for one in events.Scalars(name)] == [0, 2, 4], name
    for name, count in (("weight/0.weight", 32), ("grad/0.weight", 32), ("grad/2.bias", 1)):
        assert [(one.step, sum(one.histogram_value.bucket)) for one in events.Histograms(name)] == [
            (0, count), (2, count), (4, count),
        ]  # fmt: skip


def test_a_training_on_the_disk_is_written_like_a_live_one(tmp_path):
    watched(tmp_path / "train").export(tmp_path / "live", to="tensorboard")
    api.export_training(tmp_path / "train", tmp_path / "disk", "tensorboard")
    (live,), (disk,) = (list((tmp_path / name).iterdir()) for name in ("live", "disk"))
    assert live.name == disk.name and live.read_bytes() == disk.read_bytes()


def test_an_embedding_has_a_point_and_a_label_for_each_token(tmp_path):
    model, inputs = built("gpt2")
    kept = fx_debug(model, inputs, values="tensors")
    log(kept, tmp_path, embedding="transformer.wte", labels=[f"word {i}\t" for i in range(12)])
    log(kept, tmp_path, embedding="transformer.wte", labels=[f"word {i}\t" for i in range(12)])
    config = (tmp_path / "tb" / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 1 and 'tensor_name: "transformer.wte"' in config
    points = (tmp_path / "tb" / re.search(r'tensor_path: "(.*)"', config)[1]).read_text().splitlines()
    labels = (tmp_path / "tb" / re.search(r'metadata_path: "(.*)"', config)[1]).read_text().splitlines()
    assert labels[1] == "word 1\\t" and len(labels) == len(points) == 12
    row = kept.tensor(kept["transformer.wte"].outputs[0])[0, 1]
    assert list(map(float, points[1].split("\t"))) == row.double().tolist()
    with pytest.raises(UsageError, match="12 points and 1 labels"):
        log(kept, tmp_path, embedding="transformer.wte", labels=["one"])
    with pytest.raises(LoadError, match="values='tensors'"):
        log(fx_debug(model, inputs), tmp_path, embedding="transformer.wte")


def test_a_second_export_takes_the_place_of_the_first(tmp_path):
    trace = run_of("lstm")
    first = {file.name: file.read_bytes() for file in trace.export(tmp_path, to="tensorboard").iterdir()}
    assert first == {file.name: file.read_bytes() for file in trace.export(tmp_path, to="tensorboard").iterdir()}


def test_exporting_a_live_run_leaves_the_model_alone(tmp_path):
    model, inputs = built("minilm")
    before = as_it_was(model)
    log(fx_debug(model, inputs, values="tensors"), tmp_path, embedding="embeddings")
    assert as_it_was(model) == before


def test_the_page_shows_the_boxes_of_the_model_and_the_shape_of_a_node(tmp_path):
    require_browser()
    path = run_of("gpt2").export(tmp_path / "tb", to="tensorboard")
    with served("tensorboard", path) as address, opened(f"{address}#graphs") as page:
        names = ["GPT2LMHeadModel", "GPT2LMHeadModel/transformer", "GPT2LMHeadModel/transformer/h"]
        for name, inside in zip(names, [*names[1:], "GPT2LMHeadModel/transformer/h/5."]):
            node = page.locator(f'g.node[data-name="{name}"]')
            node.wait_for(state="attached")
            shape = node.locator("rect, ellipse, use").first
            click_until(page, shape, f'g.node[data-name="{inside}"]', "attached", event="dblclick")
        leaf = page.locator('g.node[data-name="GPT2LMHeadModel/transformer/add_1."]')
        leaf.wait_for(state="attached")
        click_until(page, leaf.locator("rect, ellipse, use").first, "tf-node-info >> text=Operation: add", "attached")
        shown = page.locator("tf-node-info").get_by_text("2×6×32")
        shown.first.wait_for(state="attached")
