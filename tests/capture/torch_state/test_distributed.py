"""Two processes with torch.distributed between them: data parallel, tensor parallel, fully sharded.

What the processes do is in ``ranks.py``; they run once for this file and leave facts behind.
"""

from __future__ import annotations

import fcntl
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

import fxdebug
from fxdebug.capture.tensors.special_tensors import PARTS, SHARDED
from fxdebug.data.values import Sharding
from fxdebug.errors import LoadError

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch was built without gloo: no two processes can be joined on a CPU",
)

TIMEOUT = 600  # seconds for all scenarios together; they take about ten
PARALLEL = ("tensor_parallel", "data_parallel", "fully_sharded")
RANKS = (0, 1)
COLLECTIVES = (
    "reduced reduced_while_something_else_runs reduced_and_returned reduced_below_a_view sent_to_all gathered "
    "gathered_in_a_list scattered reduced_by_the_group_itself received_in_a_batch received received_later"
).split()

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both processes left their facts and files: they have run when this is given, once for all workers."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ran").exists():
            (place / "ran").touch()
            _run(place)
    return place


def _run(place: Path) -> None:
    command = [sys.executable, "-m", "support.ranks"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = []
    for rank in RANKS:
        log = (place / f"log-{rank}").open("wb")
        arguments = [*command, str(rank), str(place)]
        started.append(subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, cwd=place, env=environment))
    try:
        for process in started:
            process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        pytest.fail(f"a process did not end in {TIMEOUT} s; it last said:\n{_logs(place)}")
    finally:
        for process in started:
            process.kill()
            process.wait()


def _logs(place: Path) -> str:
    return "\n".join((place / f"log-{rank}").read_text(errors="replace")[-3000:] for rank in RANKS)


@pytest.fixture
def facts(folder: Path) -> Callable[[str, int], Facts]:
    """The facts of a scenario on a rank."""

    def read(scenario: str, rank: int) -> Facts:
        path = folder / f"{scenario}-{rank}.pickle"
        assert path.exists(), f"rank {rank} did not get to {scenario}:\n{_logs(folder)}"
        found = pickle.loads(path.read_bytes())
        assert "went wrong" not in found, found["went wrong"]
        return found

    return read


@pytest.fixture(params=PARALLEL)
def parallel(request: pytest.FixtureRequest, facts: Callable[[str, int], Facts]) -> Callable[[int], Facts]:
    """The facts of one kind of parallel model, by rank."""
    return lambda rank: facts(f"{request.param}_model", rank)


# Native first ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", RANKS)
def test_a_traced_rank_computes_what_an_untraced_one_does(parallel: Callable[[int], Facts], rank: int) -> None:
    assert parallel(rank)["difference"] is None  # output, gradients, buffers, number of collectives


@pytest.mark.parametrize("rank", RANKS)
def test_tracing_issues_no_collective(parallel: Callable[[int], Facts], rank: int) -> None:
    untraced, traced = parallel(rank)["collectives"]
    assert traced == untraced > 0


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", ["fully_sharded", "tensor_parallel"])
def test_parameters_are_counted_as_a_whole_on_each_rank(
    facts: Callable[[str, int], Facts], name: str, rank: int
) -> None:
    found = facts("counts", rank)
    assert found[name] == [found["plain"], found["plain"], 4 * found["plain"]]
    assert found[f"{name} afterwards"] == [True, []]
    assert found[f"notes of {name}"] == [
        "parameters are distributed over ranks: they are counted as a whole, operations of this rank"
    ]


def test_the_count_of_collectives_notices_one(facts: Callable[[str, int], Facts]) -> None:
    assert facts("a_collective_is_noticed", 0) == {"collectives": 1}


@pytest.mark.parametrize("rank", RANKS)
def test_one_rank_may_trace_while_the_other_does_not(facts: Callable[[str, int], Facts], rank: int) -> None:
    expected = {f"{name}, rank {tracer} traces": None for name in PARALLEL for tracer in RANKS}
    assert facts("one_rank_traces", rank) == expected


# The drop-in -------------------------------------------------------------------------------------


def test_the_drop_in_records_on_rank_0(parallel: Callable[[int], Facts]) -> None:
    seen = parallel(0)["drop-in"]
    model = parallel(0)["trace"].model
    assert seen["files"] == [f"{model}_debug_tree_FULL_TENSORS.json", f"{model}_debug_tree_SUMMARY.json"]
    assert "" in seen["wrapped"]
    assert seen["patched"]


def test_the_drop_in_adds_nothing_on_other_ranks(parallel: Callable[[int], Facts]) -> None:
    seen = parallel(1)["drop-in"]
    assert seen["files"] is None  # not even the folder
    assert seen["wrapped"] == []
    assert not seen["patched"]


@pytest.mark.parametrize("rank", RANKS)
def test_a_forward_in_the_drop_in_has_the_collectives_of_one_outside(
    parallel: Callable[[int], Facts], rank: int
) -> None:
    assert parallel(rank)["drop-in"]["collectives"] == parallel(rank)["collectives"][0]


@pytest.mark.parametrize("rank", RANKS)
def test_the_drop_in_switches_gradients_off_on_every_rank(facts: Callable[[str, int], Facts], rank: int) -> None:
    seen = facts("drop_in_after_a_training_step", rank)
    assert seen["grad"] is False
    assert seen["collectives"] == facts("drop_in_after_a_training_step", 1 - rank)["collectives"]


def test_the_standard_files_are_the_references(parallel: Callable[[int], Facts]) -> None:
    on_zero, on_one = parallel(0)["standard"], parallel(1)["standard"]
    if "AsyncCollectiveTensor" in {value.type for value in parallel(0)["trace"].values}:
        assert "invalid python storage" in on_zero.pop("drop-in, use_repr=False")  # where the reference stops
    assert set(on_zero.values()) == set(on_one.values()) == {"same"}  # on rank 1: neither writes anything


# Traces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", RANKS)
def test_every_rank_has_a_trace_and_a_folder(parallel: Callable[[int], Facts], rank: int) -> None:
    found = parallel(rank)
    assert found["folder"].name == f"rank-{rank}"
    settings = found["trace"].settings
    assert (settings["rank"], settings["world_size"]) == (rank, 2)
    assert found["equal when loaded"]


@pytest.mark.parametrize("rank", RANKS)
def test_ranks_that_save_to_one_place_do_not_overwrite_each_other(parallel: Callable[[int], Facts], rank: int) -> None:
    found = parallel(rank)
    assert found["saved again"].name == f"rank-{rank}"
    assert found["equal when saved again"]


@pytest.mark.parametrize("name", PARALLEL)
def test_load_without_a_rank_says_which_there_are(folder: Path, facts: Callable[[str, int], Facts], name: str) -> None:
    run = folder / f"{name}_model" / "run"
    facts(f"{name}_model", 0)
    with pytest.raises(LoadError) as raised:
        fxdebug.load(run)
    assert str(raised.value) == f"{run} is a run of 2 ranks: load one with rank=0 … rank=1"
    with pytest.raises(LoadError, match="has no rank 2: it is a run of the ranks 0, 1"):
        fxdebug.load(run, rank=2)
    assert [fxdebug.load(run, rank=rank).settings["rank"] for rank in RANKS] == [0, 1]
    assert fxdebug.load(run / "rank-1") == fxdebug.load(run, rank=1)


@pytest.mark.parametrize("rank", RANKS)
def test_a_dtensor_has_its_global_shape_and_its_place(facts: Callable[[str, int], Facts], rank: int) -> None:
    trace = facts("tensor_parallel_model", rank)["trace"]
    calls = {call.path: call for call in trace.calls}

    def sharded(shape: tuple[int, ...], placement: str) -> Sharding:
        return Sharding(shape, (shape[1], 1), (2,), ("tp",), (placement,))

    assert [call.path for call in trace.calls] == ["", "up", "act", "down"]
    up, act, down = calls["up"], calls["act"], calls["down"]
    assert (up.inputs[0].shape, up.inputs[0].sharding) == ((3, 4), sharded((3, 4), "R"))
    assert (up.outputs[0].shape, up.outputs[0].sharding) == ((3, 3), sharded((3, 6), "S(1)"))
    assert (act.outputs[0].shape, act.outputs[0].sharding) == ((3, 3), sharded((3, 6), "S(1)"))
    assert (down.outputs[0].shape, down.outputs[0].sharding) == ((3, 4), sharded((3, 4), "P(sum)"))
    weights = {parameter.name: parameter for parameter in trace.parameters}
    assert (weights["up.weight"].shape, weights["up.weight"].sharding) == ((3, 4), sharded((6, 4), "S(0)"))
    assert (weights["down.weight"].shape, weights["down.weight"].sharding) == ((4, 3), sharded((4, 6), "S(1)"))


@pytest.mark.parametrize("rank", RANKS)
def test_what_hooks_made_of_a_dtensor_is_recorded(facts: Callable[[str, int], Facts], rank: int) -> None:
    """Tensor parallelism is all hooks: a tensor comes in, a DTensor goes in, and a tensor comes out again."""
    calls = {call.path: call for call in facts("tensor_parallel_model", rank)["trace"].calls}
    up, down = calls["up"], calls["down"]
    assert [value.type for value in up.given] == ["Tensor"]
    assert [value.type for value in up.inputs] == ["DTensor"]
    assert [value.type for value in down.outputs] == ["DTensor"]
    assert [value.type for value in down.returned] == ["AsyncCollectiveTensor"]


@pytest.mark.parametrize("rank", RANKS)
def test_what_is_shown_of_a_dtensor_says_that_it_is_a_part(facts: Callable[[str, int], Facts], rank: int) -> None:
    trace = fxdebug.Trace.of(facts("tensor_parallel_model", rank)["trace"])
    lines = trace.text(width=80, color=False).splitlines()
    assert [line[2:25].rstrip() for line in lines if line[:1] in "├└"] == [
        "up Linear   3×3 of 3×6",
        "act GELU    3×3 of 3×6",
        "down Linear 3×4 partial",
    ]
    assert lines[-2:] == [
        f"3×3 of 3×6: the local shard of rank {rank}; statistics are of this shard",
        f"partial: the term of rank {rank} of a sum over the ranks that is still to be taken",
    ]
    described = trace.describe("down", width=100, color=False)
    assert "float32[3, 3] local shard of 3×6" in described and "float32[3, 4] partial sum" in described
    assert "down.weight  float32[4, 3] local shard of 4×6" in described
    assert "3×3 of 3×6" in trace._repr_html_()


@pytest.mark.parametrize("rank", RANKS)
def test_what_a_gather_has_not_written_yet_is_no_finding(facts: Callable[[str, int], Facts], rank: int) -> None:
    found = facts("findings_with_unwritten_buffers", rank)
    assert [found[name] for name in PARALLEL] == [[], [], []]
    assert "error" in found["damaged"]


def test_statistics_and_data_of_a_dtensor_are_those_of_the_local_part(facts: Callable[[str, int], Facts]) -> None:
    parts = []
    for rank in RANKS:
        found = facts("tensor_parallel_model", rank)
        values = {value.number: value for value in found["trace"].values}
        for number, (shape, tensor) in found["local parts"].items():
            assert tuple(tensor.shape) == shape
            assert values[number].stats.max == tensor.max().item()
            assert values[number].stats.mean == pytest.approx(tensor.mean().item(), abs=1e-6)
        parts.append(next(v for v in found["trace"].calls if v.path == "act").outputs[0].digest)
    assert parts[0] != parts[1]  # each rank has its own columns


def test_the_ranks_of_a_data_parallel_model_have_their_own_values(facts: Callable[[str, int], Facts]) -> None:
    first, second = (facts("data_parallel_model", rank)["trace"] for rank in RANKS)
    assert [call.path for call in first.calls] == ["", "module", "module.up", "module.act", "module.down"]
    assert [call.path for call in second.calls] == [call.path for call in first.calls]
    assert first.root.outputs[0].digest != second.root.outputs[0].digest


@pytest.mark.parametrize("rank", RANKS)
def test_the_parameters_of_a_fully_sharded_model_say_where_they_lie(
    facts: Callable[[str, int], Facts], rank: int
) -> None:
    weights = {p.name: p for p in facts("fully_sharded_model", rank)["trace"].parameters}
    assert weights["up.weight"].shape == (3, 4)
    assert weights["up.weight"].sharding.shape == (6, 4)
    assert weights["up.weight"].sharding.placements == ("S(0)",)
    assert not weights["up.weight"].changed
    assert weights["calls"].changed  # the buffer that the forward counts up


def test_a_rank_whose_part_is_empty_records_that(facts: Callable[[str, int], Facts]) -> None:
    shapes, counts = [], []
    for rank in RANKS:
        found = facts("uneven_shards", rank)
        value = next(call for call in found["trace"].calls if call.path == "act").outputs[0]
        shapes.append((value.shape, value.sharding.shape, found["parts"][value.number]))
        counts.append((value.stats.count, value.stats.mean is None))
    assert shapes == [((3, 1), (3, 1), (3, 1)), ((3, 0), (3, 1), (3, 0))]
    assert counts == [(3, False), (0, True)]


@pytest.mark.parametrize("rank", RANKS)
def test_a_mesh_of_two_dimensions_is_recorded_with_its_names(facts: Callable[[str, int], Facts], rank: int) -> None:
    found = facts("two_dimensional_mesh", rank)
    value = found["trace"].root.outputs[0]
    assert value.shape == (2, 3)
    assert value.sharding == Sharding((4, 3), (3, 1), (2, 1), ("dp", "tp"), ("S(0)", "R"))
    assert found["same object"]
    assert value.stats.mean == 2.5 + 6 * rank


@pytest.mark.parametrize("rank", RANKS)
def test_a_result_that_is_still_on_its_way_is_waited_for(facts: Callable[[str, int], Facts], rank: int) -> None:
    found = facts("a_result_that_is_still_on_its_way", rank)
    threes = [[3.0, 3.0], [3.0, 3.0]]
    assert found["collectives"] == 2  # the two forwards have one each
    assert found["type"]  # the model's caller still gets what it would have got
    assert (found["output"], found["saved"], found["max"], found["notes"]) == (threes, threes, 3.0, [])
    trees = ["Sum_debug_tree_FULL_TENSORS.json", "Sum_debug_tree_SUMMARY.json"]
    tensors = ["Sum.inner_inputs_args_0", "Sum.inner_outputs", "Sum_inputs_kwargs_x"]
    assert found["files"] == ([] if rank else sorted(trees + [f"{name}.safetensors" for name in tensors]))
    if rank == 0:
        assert found["bytes"] == torch.full((4,), 3.0).numpy().tobytes()


@pytest.mark.parametrize("rank", RANKS)
def test_a_forward_that_raises_leaves_its_partial_run_on_every_rank(
    facts: Callable[[str, int], Facts], rank: int
) -> None:
    found = facts("a_forward_that_raises", rank)
    assert found["raised"] == found["drop-in raised"] == f"on rank {rank}"
    assert str(found["error"]) == f"ValueError: on rank {rank}"
    assert len(found["files"]) == (0 if rank else 2)


# Writes that come from other ranks ---------------------------------------------------------------


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_nan_that_comes_from_another_rank_is_told_as_that_and_here_as_what_made_it(facts, name):
    healthy, guilty = (facts("writes_from_other_ranks", rank)[name] for rank in RANKS)
    assert healthy["same"] and guilty["same"]
    ((rule, op, what),) = healthy["nan"]
    assert op and (rule, what.partition(":")[0]) == ("nan", "it comes from another rank")
    assert [(rule, op) for rule, op, _ in guilty["nan"]] == [("nan", "mul")]
    assert healthy["finite"] == guilty["finite"] == []


def test_the_kernels_of_collectives_are_taken_out_again(facts):
    assert [facts("writes_from_other_ranks", rank)["left"] for rank in RANKS] == [((), ()), ((), ())]


# Watching a training -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data_parallel", "fully_sharded", "hybrid_sharded"])
def test_the_rank_with_the_poisoned_batch_names_it_and_none_waits(facts, kind):
    on = [facts(f"watched_{kind}", rank) for rank in RANKS]
    assert [seen["steps"] for seen in on] == [8, 8] and [seen["file"] for seen in on] == [0, 1]
    assert all(str(seen["losses"]) == str(seen["plain"]) for seen in on)
    assert on[0]["folders"] == ["step-5", "training.rank0.jsonl", "training.rank1.jsonl"]
    (healthy,), (guilty,) = (seen["incidents"] for seen in on)
    assert (guilty[0], guilty[3], guilty[4]) == (5, "input", "the input 'input' has 12 -Inf of 12")
    assert (healthy[0], healthy[2]) == (5, "") and healthy[4].endswith("look at the incidents of the others")


@pytest.mark.parametrize("way", ["", "_backward"])
@pytest.mark.parametrize("kind", ["data_parallel", "fully_sharded", "hybrid_sharded"])
def test_a_training_on_several_ranks_is_the_same_to_the_last_bit_with_and_without_watch(facts, kind, way):
    assert all(facts(f"watched_{kind}{way}", rank)["same"] for rank in RANKS)


@pytest.mark.parametrize("kind", ["data_parallel", "fully_sharded", "hybrid_sharded"])
def test_a_backward_that_is_not_finite_is_explained_on_all_ranks(facts, kind):
    for rank in RANKS:
        ((step, trouble, path, op, what),) = facts(f"watched_{kind}_backward", rank)["incidents"]
        assert (step, trouble, path, op) == (5, "gradient", "1", "sqrt") and "the backward of sqrt makes" in what


@pytest.mark.parametrize("kind", ["tensor_parallel", "on_a_mesh_of_two_dimensions"])
def test_a_training_that_is_split_over_ranks_tells_what_one_process_tells(facts, kind):
    alone = facts("watched_alone", 0)
    for rank in RANKS:
        on = facts(f"watched_{kind}", rank)
        assert on["losses"][:5] == pytest.approx(alone["losses"][:5], rel=1e-5)
        assert on["norms"][:5] == pytest.approx(alone["norms"][:5], rel=1e-5)
        assert str(on["losses"]) == str(on["plain"]) and on["incidents"] == alone["incidents"] != []
        assert on["findings"] == alone["findings"] and "loss not finite" in on["findings"]
        assert on["notes"] == [SHARDED, PARTS]


def test_numbers_of_sharded_weights_are_those_of_a_rank(facts):
    for kind in ("fully_sharded", "hybrid_sharded"):
        assert [facts(f"watched_{kind}", rank)["notes"] for rank in RANKS] == [[SHARDED], [SHARDED]]
    assert [facts("watched_data_parallel", rank)["notes"] for rank in RANKS] == [[], []]


def test_each_stage_of_a_pipeline_names_the_poisoned_batch_and_the_last_one_has_the_loss(facts):
    first, last = (facts("watched_pipeline", rank) for rank in RANKS)
    assert (first["steps"], last["steps"], first["notes"], last["notes"]) == (8, 8, [], [])
    assert all(norm > 0 for on in (first, last) for norm in on["norms"][:5])
    assert first["losses"][:5] == [None] * 5 and all(loss > 0 for loss in last["losses"][:5])
    assert first["incidents"] == [(5, "gradient", "", "input", "the input 'input' has 4 NaN of 16")]
    assert last["incidents"] == [(5, "loss", "", "input", "the input 'input' has 4 NaN of 16")]


@pytest.mark.parametrize("kind", ["fsdp", "hsdp"])
def test_reports_on_sharded_weights_are_those_of_the_parts_and_leave_them_alone(facts, kind):
    on = [facts("reports_of_sharded_weights", rank) for rank in RANKS]
    parts = [seen[kind] for seen in on]
    assert all(part["same"] and part["updates"] == [True, True] for part in parts)
    assert all(part["notes"].count(SHARDED) == 2 for part in parts)
    norms = [part["norm"] for part in parts]
    together = math.hypot(*norms) if kind == "fsdp" else norms[0]
    assert together == pytest.approx(on[0]["true norm"], rel=1e-5)
    if kind == "hsdp":  # here every rank has all weights
        assert norms[0] == pytest.approx(norms[1]) and parts[0]["stds"] == pytest.approx(on[0]["true stds"], rel=1e-5)
