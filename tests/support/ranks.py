"""What each process of ``test_distributed.py`` does: ``python -m support.ranks RANK FOLDER``.

Two of these make a gloo group on this machine. Every scenario returns plain facts about what happened
on its rank; they are left in ``FOLDER/<scenario>-<rank>.pickle``, or the traceback of what went wrong.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_reduce
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fxdebug
from fxdebug.capture.recorder import collectives as collectives_on_tape
from fxdebug.data.trace import replaced
from support.reference import differences, of_drop_in, of_fx_debug, of_reference, written
from support.same import difference

PATIENCE = 250  # seconds a collective waits for the other rank, which is slow to start on a busy machine

Facts = dict[str, Any]
Scenario = Callable[[int, Path], Facts]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register what both ranks do, in the order of this file."""
    SCENARIOS[function.__name__] = function
    return function


# Models ------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two layers as in every transformer, and a buffer that the forward changes."""

    def __init__(self, hidden: int = 6) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, hidden), nn.GELU(), nn.Linear(hidden, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.down(self.act(self.up(x)))


def plain_block(hidden: int = 6) -> Block:
    torch.manual_seed(0)
    return Block(hidden)


def tensor_parallel(hidden: int = 6) -> nn.Module:
    """The first layer's output stays a DTensor: the activation and the second layer get one each."""
    plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
    return parallelize_module(plain_block(hidden), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), plan)


def data_parallel() -> nn.Module:
    return nn.parallel.DistributedDataParallel(plain_block())


def fully_sharded() -> nn.Module:
    block = plain_block()
    for part in (block.up, block.down, block):
        fully_shard(part)
    return block


PARALLEL: dict[str, Callable[[], nn.Module]] = {
    "tensor_parallel": tensor_parallel,
    "data_parallel": data_parallel,
    "fully_sharded": fully_sharded,
}


def batch(rank: int, name: str) -> dict[str, torch.Tensor]:
    """Each rank its own data, except where all ranks work on the same."""
    seed = 1 if name == "tensor_parallel" else 1 + rank
    return {"x": torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))}


# Observing ---------------------------------------------------------------------------------------


def collectives() -> int:
    """How many collectives this rank has begun so far."""
    group = dist.group.WORLD
    assert group is not None
    return int(group._get_sequence_number_for_group())


class Observed:
    """A forward and a backward pass: what came out, and how many collectives it took."""

    def __init__(self, model: nn.Module, inputs: dict[str, Any], call: Callable[..., Any]) -> None:
        before = collectives()
        self.output = call(model, inputs)
        self.forward = collectives() - before
        self.output.sum().backward()
        self.backward = collectives() - before - self.forward
        self.state = {name: whole(tensor) for name, tensor in model.state_dict().items()}
        self.gradients = {name: whole(parameter.grad) for name, parameter in model.named_parameters()}

    def difference(self, other: Observed) -> str | None:
        """Where the results differ, to the last bit."""
        return difference(vars(self), vars(other))


def whole(tensor: Any) -> Any:
    """The local part of a DTensor, any other value itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def native(model: nn.Module, inputs: dict[str, Any]) -> Any:
    return model(**inputs)


def plain(trace: fxdebug.Trace) -> fxdebug.Trace:
    """The trace without live objects, as it can be sent to another process."""
    return replaced(trace, data=None, folder=None, _output=None)


def under_drop_in(model: nn.Module, inputs: dict[str, Any], folder: Path) -> Facts:
    """What a forward in the drop-in shows on this rank."""
    seen: Facts = {}

    def look(*_: Any) -> None:
        seen["wrapped"] = [name for name, module in model.named_modules() if "forward" in module.__dict__]
        seen["patched"] = torch.nn.Module._call_impl.__code__ is not _call_impl
        seen["grad"] = torch.is_grad_enabled()

    hook = next(m for m in model.modules() if isinstance(m, nn.GELU)).register_forward_hook(look)
    before = collectives()
    with fxdebug.model_addition_debugger_context(model, folder):
        model(**inputs)
    hook.remove()
    files = sorted(path.name for path in folder.iterdir()) if folder.exists() else None
    return {**seen, "collectives": collectives() - before, "files": files}


_call_impl = torch.nn.Module._call_impl.__code__


# Scenarios ---------------------------------------------------------------------------------------


def traced_and_not(name: str, rank: int, folder: Path) -> Facts:
    """One kind of parallel model: untraced, traced, in the drop-in and in the reference."""
    make, inputs = PARALLEL[name], batch(rank, name)
    traces: list[fxdebug.Trace] = []

    def traced(model: nn.Module, given: dict[str, Any]) -> Any:
        traces.append(fxdebug.fx_debug(model, given, save=folder / "run", values="tensors"))
        return traces[0].output

    untraced = Observed(make(), inputs, native)
    ours = Observed(make(), inputs, traced)
    trace = traces[0]
    saved = trace.save(folder / "saved-again")

    def build() -> Any:
        return make(), inputs

    standard: dict[str, list[str] | str] = {}
    for use_repr in (True, False):
        theirs = of_reference(build, prune=True, use_repr=use_repr)
        mine = of_drop_in(build, prune=True, use_repr=use_repr)
        same = sorted(theirs.files) == sorted(mine.files) == [] if rank else differences(theirs, mine) == []
        standard[f"drop-in, use_repr={use_repr}"] = "same" if same else repr((theirs.error, differences(theirs, mine)))
        if use_repr and rank == 0:
            found = of_fx_debug(build, values="repr", prune=True, inside="rank-0")
            standard["fx_debug"] = differences(theirs, found) or "same"
        elif use_repr:  # both ranks run the same forwards
            of_fx_debug(build, values="repr", prune=True, inside="rank-1")
    return {
        "difference": untraced.difference(ours),
        "collectives": (untraced.forward, ours.forward),
        "drop-in": under_drop_in(make(), inputs, folder / f"drop-in-{rank}"),
        "standard": standard,
        "trace": plain(trace),
        "folder": trace.folder,
        "equal when loaded": fxdebug.load(folder / "run", rank=rank) == trace,
        "saved again": saved,
        "equal when saved again": plain(fxdebug.load(folder / "saved-again", rank=rank)) == plain(trace),
        "local parts": {
            v.number: v.stats and (v.shape, trace.tensor(v)) for v in trace.values if v.sharding and v.saved
        },
    }


@scenario
def tensor_parallel_model(rank: int, folder: Path) -> Facts:
    return traced_and_not("tensor_parallel", rank, folder)


@scenario
def data_parallel_model(rank: int, folder: Path) -> Facts:
    return traced_and_not("data_parallel", rank, folder)


@scenario
def fully_sharded_model(rank: int, folder: Path) -> Facts:
    return traced_and_not("fully_sharded", rank, folder)


@scenario
def counts(rank: int, folder: Path) -> Facts:
    """Parameters of the plain model, the totals of ``summary`` of each parallel one, and whether it runs afterwards."""
    found: Facts = {"plain": sum(p.numel() for p in plain_block().parameters())}
    for name in ("fully_sharded", "tensor_parallel"):
        model, given = PARALLEL[name](), batch(rank, name)
        report = fxdebug.summary(model, given)
        first = model(**given)  # FSDP2 leaves its root's weights gathered
        fxdebug.gradients(model, given, lambda output: output.square().mean())
        left = [weight for weight, p in model.named_parameters() if p.grad is not None]
        found[f"{name} afterwards"] = [bool((model(**given) == first).all()), left]
        found[name] = [report.totals[heading][0] for heading in ("parameters", "trainable", "size of parameters")]
        found[f"notes of {name}"] = [note.what for note in report.notes]
    return found


@scenario
def one_rank_traces(rank: int, folder: Path) -> Facts:
    """The other rank runs the plain model meanwhile: neither may wait for more than the model's own collectives."""
    facts: Facts = {}
    for name, make in PARALLEL.items():
        for tracer in (0, 1):
            inputs = batch(rank, name)
            untraced = Observed(make(), inputs, native)

            def call(model: nn.Module, given: dict[str, Any], tracer: int = tracer, name: str = name) -> Any:
                if rank != tracer:
                    return model(**given)
                return fxdebug.fx_debug(model, given, values="tensors", save=folder / f"{name}-{tracer}").output

            facts[f"{name}, rank {tracer} traces"] = untraced.difference(Observed(make(), inputs, call))
    return facts


@scenario
def drop_in_after_a_training_step(rank: int, folder: Path) -> Facts:
    """DDP's second forward rebuilds its buckets, with a broadcast, unless gradients are off: on all ranks or none."""
    model = data_parallel()
    inputs = batch(rank, "data_parallel")
    model(**inputs).sum().backward()
    seen = under_drop_in(model, inputs, folder / f"{rank}")
    dist.barrier()
    model(**inputs).sum().backward()
    return seen


@scenario
def uneven_shards(rank: int, folder: Path) -> Facts:
    """One hidden unit for two ranks: the second has an empty part of everything."""
    trace = fxdebug.fx_debug(tensor_parallel(hidden=1), batch(rank, "tensor_parallel"), values="tensors")
    return {"trace": plain(trace), "parts": {v.number: tuple(trace.tensor(v).shape) for v in trace.values if v.saved}}


@scenario
def findings_with_unwritten_buffers(rank: int, folder: Path) -> Facts:
    """New memory holds NaN here: what a gather has not written yet is no fault, and a NaN among the weights is one."""
    facts: Facts = {}
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        for name, make in PARALLEL.items():
            trace = fxdebug.fx_debug(make(), batch(rank, name))
            facts[name] = [str(finding) for finding in trace.check()]
        model = fully_sharded()
        with torch.no_grad():
            whole(next(model.parameters())).view(-1)[:1] = float("nan")
        facts["damaged"] = [finding.severity for finding in fxdebug.fx_debug(model, batch(rank, "x")).check()]
    finally:
        torch.use_deterministic_algorithms(False)
    return facts


@scenario
def two_dimensional_mesh(rank: int, folder: Path) -> Facts:
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    whole_input = distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0), Replicate()])
    trace = fxdebug.fx_debug(nn.Identity(), whole_input)
    return {"trace": plain(trace), "same object": trace.output is whole_input}


@scenario
def a_result_that_is_still_on_its_way(rank: int, folder: Path) -> Facts:
    """A functional collective gives a tensor that waits when it is first used."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(all_reduce(x, "sum", dist.group.WORLD))  # type: ignore[arg-type]

    inputs = {"x": torch.full((2, 2), float(rank + 1))}
    before = collectives()
    with torch.no_grad():
        trace = fxdebug.fx_debug(Sum(), inputs, values="tensors", save=folder / "run")
    value = trace.root.outputs[0]
    mine = of_drop_in(lambda: (Sum(), inputs), prune=True, use_repr=False)
    return {
        "collectives": collectives() - before,
        "type": isinstance(trace.output, AsyncCollectiveTensor),
        "output": trace.output.tolist(),
        "saved": fxdebug.load(folder / "run", rank=rank).tensor(value).tolist(),
        "max": value.stats and value.stats.max,
        "notes": [note.what for note in trace.notes],
        "files": sorted(mine.files),
        "bytes": mine.files.get("Sum.inner_outputs.safetensors", b"")[-16:],
    }


Move = Callable[[torch.Tensor, int], torch.Tensor]
COLLECTIVES: dict[str, Move] = {}


def move(function: Move) -> Move:
    """Register a forward in which rank 0 is given something of rank 1."""
    COLLECTIVES[function.__name__] = function
    return function


@move
def reduced(x: torch.Tensor, rank: int) -> torch.Tensor:
    dist.all_reduce(x)
    return x / 2


@move
def reduced_while_something_else_runs(x: torch.Tensor, rank: int) -> torch.Tensor:
    work = dist.all_reduce(x, async_op=True)
    other = torch.ones(3) + 1
    work.wait()
    return x / 2 + other


@move
def reduced_and_returned(x: torch.Tensor, rank: int) -> torch.Tensor:
    dist.all_reduce(x)
    return x


@move
def reduced_below_a_view(x: torch.Tensor, rank: int) -> torch.Tensor:
    row = x[0]
    dist.all_reduce(x)
    return row / 2


@move
def sent_to_all(x: torch.Tensor, rank: int) -> torch.Tensor:
    dist.broadcast(x, 1)
    return x / 2


@move
def gathered(x: torch.Tensor, rank: int) -> torch.Tensor:
    all_of_them = torch.empty(2 * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(all_of_them, x)
    return all_of_them / 2


@move
def gathered_in_a_list(x: torch.Tensor, rank: int) -> torch.Tensor:
    parts = [torch.zeros_like(x), torch.zeros_like(x)]
    dist.all_gather(parts, x)
    return parts[1] / 2


@move
def scattered(x: torch.Tensor, rank: int) -> torch.Tensor:
    part = torch.empty(1, *x.shape[1:])
    dist.reduce_scatter_tensor(part, x)
    return part / 2


@move
def reduced_by_the_group_itself(x: torch.Tensor, rank: int) -> torch.Tensor:
    assert dist.group.WORLD is not None
    dist.group.WORLD.allreduce([x]).wait()  # type: ignore[attr-defined]
    return x / 2


@move
def received_in_a_batch(x: torch.Tensor, rank: int) -> torch.Tensor:
    there = torch.empty_like(x)
    moves = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, there, 1 - rank)]
    for work in dist.batch_isend_irecv(moves):
        work.wait()
    return there / 2 if rank == 0 else x


@move
def received(x: torch.Tensor, rank: int) -> torch.Tensor:
    if rank == 1:
        dist.send(x, 0)
        return x
    there = torch.empty_like(x)
    dist.recv(there, 1)
    return there / 2


@move
def received_later(x: torch.Tensor, rank: int) -> torch.Tensor:
    if rank == 1:
        dist.isend(x, 0).wait()  # type: ignore[union-attr]
        return x
    there = torch.empty_like(x)
    work = dist.irecv(there, 1)
    other = x * 3
    work.wait()  # type: ignore[union-attr]
    return there / 2 + other


@scenario
def writes_from_other_ranks(rank: int, folder: Path) -> Facts:
    """New memory holds NaN here, and so does what rank 1 gives, in the first of two runs."""

    class Moves(nn.Module):
        def __init__(self, move: Move, factor: float) -> None:
            super().__init__()
            self.move, self.factor = move, factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.move(x * self.factor, rank)

    x = torch.ones(2, 3)
    facts: Facts = {}
    torch.use_deterministic_algorithms(True)
    try:
        for name, run in COLLECTIVES.items():
            bad, good = Moves(run, math.nan if rank == 1 else 1.0), Moves(run, 2.0 + rank)
            plain = good(x)
            traced = fxdebug.fx_debug(good, x)
            facts[name] = {
                "same": torch.equal(traced.output, plain),
                "finite": [str(finding) for finding in traced.check()],
                "nan": [(one.rule, one.op, one.what) for one in fxdebug.fx_debug(bad, x).check()],
            }
    finally:
        torch.use_deterministic_algorithms(False)
    facts["left"] = collectives_on_tape._collectives.users, collectives_on_tape._collectives._put
    return facts


class Log(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.log(x.amax(1, keepdim=True) + 50)  # of the poisoned batch: log of a negative number


class Root(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.where(x >= 0, 0.0).sum(1, keepdim=True).sqrt()  # the root of 0 has no derivative


def watched_training(
    rank: int, folder: Path, wrap: Callable[[nn.Module], nn.Module], middle: nn.Module, *, same: bool = False
) -> Facts:
    """Eight steps on each rank; the batch of rank 1 is poisoned at step 5, or that of both, which is the ``same``."""

    def trained(watch: Callable[[nn.Module], Any]) -> tuple[list[float], Any, Any]:
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(4, 4, bias=False), middle, nn.Linear(4, 4, bias=False)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        losses = []
        with watch(model) as watched:
            for step in range(8):
                x = batch(10 * step + (0 if same else rank), "")["x"]
                if step == 5 and (same or rank == 1):
                    x = torch.full_like(x, -math.inf) if isinstance(middle, Log) else x * 0
                loss = model(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(loss.detach()))
        return losses, str([losses, weight_bits(model), torch.rand(2).tolist()]), watched

    _, plain, _ = trained(contextlib.nullcontext)
    losses, seen, watched = trained(lambda model: fxdebug.watch(model, every=4, save=folder / "run", histograms=same))
    return {
        "steps": len(watched.steps),
        "losses": [step.loss for step in watched.steps],
        "plain": losses,
        "same": seen == plain,
        "norms": [step.norm for step in watched.steps],
        "incidents": [(i.step, i.trouble, i.path, i.op, i.what) for i in watched.incidents],
        "file": watched.report().settings["rank"],
        "folders": sorted(path.name for path in (folder / "run").iterdir()),
        "notes": [note.what for note in watched.report().notes],
        "findings": [finding.rule for finding in watched.report().findings],
    }


def sharded_parts(model: nn.Module, mesh: DeviceMesh | None = None) -> nn.Module:
    for part in (*model, model):  # type: ignore[misc]
        if any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    return model


def hybrid(model: nn.Module) -> nn.Module:
    """Sharded over one dimension of the mesh, and the same on all ranks of the other (HSDP)."""
    return sharded_parts(model, init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")))


def split(model: nn.Module, mesh: DeviceMesh | None = None) -> nn.Module:
    """Split over ranks: the first layer's results, and what the last one is given. The first has a plain neighbour."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)) if mesh is None else mesh
    plan = {"0": ColwiseParallel(output_layouts=Replicate()), "2": RowwiseParallel(input_layouts=Replicate())}
    return parallelize_module(nn.Sequential(*model, nn.LayerNorm(4)), mesh, plan)


def split_and_sharded(model: nn.Module) -> nn.Module:
    """A mesh of two dimensions: FSDP2 over the one, tensor parallel over the other."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(split(model, mesh["tp"]), mesh=mesh["dp"])  # type: ignore[no-any-return]


@scenario
def watched_alone(rank: int, folder: Path) -> Facts:
    """What the two that follow must say, too: the same model on each rank by itself."""
    return watched_training(rank, folder, lambda model: nn.Sequential(*model, nn.LayerNorm(4)), Log(), same=True)  # type: ignore[misc]


@scenario
def watched_tensor_parallel(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, split, Log(), same=True)


@scenario
def watched_on_a_mesh_of_two_dimensions(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, split_and_sharded, Log(), same=True)


@scenario
def watched_data_parallel(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, nn.parallel.DistributedDataParallel, Log())


@scenario
def watched_data_parallel_backward(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, nn.parallel.DistributedDataParallel, Root())


@scenario
def watched_fully_sharded(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, sharded_parts, Log())


@scenario
def watched_fully_sharded_backward(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, sharded_parts, Root())


@scenario
def watched_hybrid_sharded(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, hybrid, Log())


@scenario
def watched_hybrid_sharded_backward(rank: int, folder: Path) -> Facts:
    return watched_training(rank, folder, hybrid, Root())


@scenario
def watched_pipeline(rank: int, folder: Path) -> Facts:
    """Each rank has and watches one stage; one row of the batch of step 5 is poisoned."""
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), Log())]
    model = stages[rank]
    schedule = Schedule1F1B(
        PipelineStage(model, rank, 2, torch.device("cpu")), n_microbatches=2, loss_fn=lambda y, t: (y - t).pow(2).mean()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with fxdebug.watch(model, every=4, save=folder / "run") as watched:
        for step in range(8):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            if step == 5:
                x[1] = math.nan
            schedule.step(*[x] if rank == 0 else (), **{} if rank == 0 else {"target": torch.zeros(8, 4)})
            optimizer.step()
            optimizer.zero_grad()
    return {
        "steps": len(watched.steps),
        "losses": [step.loss for step in watched.steps],
        "norms": [step.norm for step in watched.steps],
        "incidents": [(i.step, i.trouble, i.path, i.op, i.what) for i in watched.incidents],
        "notes": [note.what for note in watched.report().notes],
    }


@scenario
def reports_of_sharded_weights(rank: int, folder: Path) -> Facts:
    """Gradients and weights of FSDP2 and of HSDP, and the sums that they must have together."""
    facts: Facts = {}
    for name, wrap in {"fsdp": sharded_parts, "hsdp": hybrid}.items():
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False)))
        before = weight_bits(model)
        gradients = fxdebug.gradients(
            model, batch(rank, "")["x"], lambda y: y.pow(2).mean(), optimizer=torch.optim.SGD(model.parameters(), 0.1)
        )
        weights = fxdebug.weights(model, batch(rank, "")["x"])
        facts[name] = {
            "norm": gradients.totals["total norm"][0],
            "updates": [row.update is not None for row in gradients.parts[0].rows],
            "stds": [row.std for row in weights.rows],
            "notes": [note.what for report in (gradients, weights) for note in report.notes],
            "same": weight_bits(model) == before and all(p.grad is None for p in model.parameters()),
        }
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False))
    plain(torch.cat([batch(r, "")["x"] for r in (0, 1)])).pow(2).mean().backward()
    facts["true norm"] = float(
        torch.nn.utils.get_total_norm([p.grad for p in plain.parameters() if p.grad is not None])
    )
    facts["true stds"] = [float(p.detach().double().std()) for p in plain.parameters()]
    return facts


def weight_bits(model: nn.Module) -> list[list[float]]:
    return [whole(parameter).detach().flatten().tolist() for parameter in model.parameters()]


@scenario
def a_collective_is_noticed(rank: int, folder: Path) -> Facts:
    """The count that the other scenarios stand on does go up."""
    before = collectives()
    dist.all_reduce(torch.ones(1))
    return {"collectives": collectives() - before}


@scenario
def a_forward_that_raises(rank: int, folder: Path) -> Facts:
    """Rank 1 raises: both have a trace, and the drop-in leaves a partial tree on rank 0 only."""

    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"on rank {rank}")

    model = nn.Sequential(nn.ReLU(), Raises())
    context = fxdebug.model_addition_debugger_context
    found = written(lambda: (model, {"input": torch.ones(1)}), lambda m, path: context(m, path))
    try:
        fxdebug.fx_debug(model, torch.ones(1), save=folder / "run")
        raised = None
    except ValueError as error:
        raised = str(error)
    loaded = fxdebug.load(folder / "run", rank=rank)
    return {"raised": raised, "error": loaded.error, "files": sorted(found.files), "drop-in raised": str(found.error)}


def main(rank: int, folder: Path) -> None:
    """Join the group and go through the scenarios."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    patience = datetime.timedelta(seconds=PATIENCE)
    met = f"file://{folder}/met"  # a port that is free now may be taken then
    dist.init_process_group("gloo", init_method=met, rank=rank, world_size=2, timeout=patience)
    for name, run in SCENARIOS.items():
        (folder / name).mkdir(exist_ok=True)
        try:
            facts = run(rank, folder / name)
        except BaseException:
            facts = {"went wrong": traceback.format_exc()}
        (folder / f"{name}-{rank}.pickle").write_bytes(pickle.dumps(facts))
        if "went wrong" in facts:
            sys.exit(f"rank {rank}, {name}: {facts['went wrong']}")  # the other rank must not wait for us
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
