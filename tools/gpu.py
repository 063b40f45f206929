"""Everything that depends on the device, tried on a CUDA device: ``make gpu``.

``python tools/gpu.py [NAME ...]`` runs the checks whose name contains one of the names. Each prints ``ok`` and its
figures, or ``FAIL`` and the reason; exits with 1 if one fails. ``--device cpu`` tries the program itself where no
GPU is. No test of the project needs a device: these checks are run by hand where one is.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fxdebug
from fxdebug import fx_debug

DEVICE = torch.device("cuda")
CHECKS: dict[str, Callable[[], str]] = {}


def gpu_check(function: Callable[[], str]) -> Callable[[], str]:
    """Register a check: it returns its figures, or raises."""
    CHECKS[function.__name__] = function
    return function


# Models ------------------------------------------------------------------------------------------


class Conv(nn.Module):
    """Convolutions with batch norm and dropout, in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.down = nn.Conv2d(32, 64, 3, stride=2)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(F.relu(self.down(self.stem(x))).mean((2, 3))))


class Attends(nn.Module):
    """Causal attention by the fused operation, in a residual block."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(made.transpose(1, 2).reshape(batch, length, width))


class SideStream(nn.Module):
    """A branch that runs in a stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(512, 512), nn.Linear(512, 512)
        self.stream = torch.cuda.Stream() if DEVICE.type == "cuda" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.stream is None:
            return self.a(x) + self.b(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            right = self.b(x).relu()
        left = self.a(x)
        torch.cuda.current_stream().wait_stream(self.stream)
        return left + right


def llama(layers: int = 4, width: int = 256, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A small Llama in eval mode."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
    )
    return LlamaForCausalLM(config).eval().to(DEVICE, dtype)


def tokens(length: int = 64) -> Tensor:
    return torch.arange(length, device=DEVICE)[None] * 7 % 1000


def models() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    """Return models with their inputs, by name."""
    torch.manual_seed(0)
    image, sequence = torch.randn(4, 3, 32, 32, device=DEVICE), torch.randn(2, 24, 256, device=DEVICE)
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    made: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
        "conv, training": (Conv(), (image,)),
        "conv, eval": (Conv().eval(), (image,)),
        "attention": (Attends(), (sequence,)),
        "encoder, training": (nn.TransformerEncoder(layer, 2), (sequence,)),
        "encoder, eval": (nn.TransformerEncoder(layer, 2).eval(), (sequence,)),
        "lstm": (nn.LSTM(256, 128, 2, batch_first=True, bidirectional=True, dropout=0.1), (sequence,)),
        "gru, half": (nn.GRU(256, 128, batch_first=True).half(), (sequence.half(),)),
        "side stream": (SideStream(), (torch.randn(64, 512, device=DEVICE),)),
        "embedding bag": (nn.EmbeddingBag(100, 16), (torch.arange(40, device=DEVICE).view(4, 10),)),
    }
    return {name: (model.to(DEVICE), inputs) for name, (model, inputs) in made.items()}


def leaves(value: Any) -> list[Tensor]:
    """Return the tensors in a value, in order."""
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def same(a: Any, b: Any) -> bool:
    """Are all tensors of two values equal to the last bit, NaN with NaN?"""
    one, other = leaves(a), leaves(b)
    return len(one) == len(other) and all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(x.nan_to_num(), y.nan_to_num())
        for x, y in zip(one, other)
    )


def mean_square(output: Any) -> Tensor:
    """Return the loss of the checks: the mean square of each tensor that a model returned, added up."""
    return torch.stack([leaf.float().square().mean() for leaf in leaves(output)]).sum()


def traced_with_result(model: nn.Module, inputs: Any) -> tuple[Any, fxdebug.Trace]:
    """Return what the model returned while it was traced, and the trace."""
    made: list[Any] = []
    handle = model.register_forward_hook(lambda module, given, output: made.append(output))
    trace = fx_debug(model, inputs)
    handle.remove()
    return made[0], trace


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def seconds(run: Callable[[], Any], repeats: int = 15) -> float:
    """Return the median time of a run, the device's work in it."""
    found = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        run()
        wait()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def rng() -> Tensor:
    return torch.cuda.get_rng_state() if DEVICE.type == "cuda" else torch.get_rng_state()


def unread(report: Any) -> list[str]:
    """Return the notes of a report that something was not done."""
    return [note.what for note in report.notes]


# Recording ---------------------------------------------------------------------------------------


@gpu_check
def results_and_random_numbers_are_those_of_the_plain_run() -> str:
    torch.use_deterministic_algorithms(True)
    try:
        for (name, (model, inputs)), (other, _) in zip(models().items(), models().values()):
            with torch.no_grad():
                model(*inputs), other(*inputs)  # cudnn and cublas choose once
            torch.manual_seed(3)
            plain, after_plain = other(*inputs), rng()
            sum(leaf.float().sum() for leaf in leaves(plain)).backward()
            torch.manual_seed(3)
            made, _ = traced_with_result(model, inputs)
            assert same(plain, made), f"{name}: results differ"
            assert torch.equal(after_plain, rng()), f"{name}: the generator of the device stands elsewhere"
            sum(leaf.float().sum() for leaf in leaves(made)).backward()
            assert same([p.grad for p in other.parameters()], [p.grad for p in model.parameters()]), (
                f"{name}: gradients"
            )
            assert same(list(other.buffers()), list(model.buffers())), f"{name}: buffers"
    finally:
        torch.use_deterministic_algorithms(False)
    return f"{len(models())} models"


@gpu_check
def graphs_are_verified() -> str:
    found: Counter[str] = Counter()
    reasons: list[str] = []
    for name, (model, inputs) in {**models(), "llama": (llama(), (tokens(),))}.items():
        with torch.no_grad():
            trace = fx_debug(model, inputs)
        for call in trace.find():
            found[call.status] += 1
            if call.status != "verified":
                reasons.append(f"{name} {call.path}: {call.status} ({call.reason})")
        assert not trace.notes, f"{name}: {trace.notes}"
    assert found["verified"] >= 0.8 * sum(found.values()), (found, reasons)
    return f"{dict(found)} {reasons}"


@gpu_check
def statistics_are_those_of_the_elements() -> str:
    checked = 0
    for dtype in (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.bool,
        torch.complex64,
    ):

        class Hands(nn.Module):
            def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
                return tuple([value.clone() for value in values])

        torch.manual_seed(0)
        sizes = [(), (1,), (7,), (33, 65), (1 << 20,), ((1 << 20) + 3,), (3 << 20,)]
        given = [(torch.randn(size, device=DEVICE) * 5 + 1000).to(dtype) for size in sizes]
        if dtype.is_floating_point:
            given[3][2, 3], given[3][4, 5], given[3][6] = float("nan"), float("inf"), float("-inf")
            given += [torch.full((100,), 5.0, device=DEVICE, dtype=dtype)]
            given += [(torch.randn(64, 64, device=DEVICE).to(dtype).t()[::2])]
        trace = fx_debug(Hands(), tuple(given))
        for value, tensor in zip(trace.root.outputs, given):
            stats, host = value.stats, tensor.cpu()
            assert stats is not None and stats.count == host.numel(), (dtype, value)
            if dtype in (torch.complex64,):
                continue
            wide = host.double().flatten()
            finite = wide[wide.isfinite()]
            assert stats.nan == int(wide.isnan().sum()) and stats.posinf == int((wide == torch.inf).sum()), (
                dtype,
                stats,
            )
            assert stats.zeros == int((wide == 0).sum()), (dtype, stats)
            near = {"rel": 1e-5, "abs_": 1e-6}
            assert _near(stats.mean, finite.mean().item(), **near), (dtype, stats.mean, finite.mean().item())
            assert stats.min == finite.min().item() and stats.max == finite.max().item(), (dtype, stats)
            if finite.numel() > 1:
                assert _near(stats.std, finite.std().item(), rel=1e-4, abs_=1e-6), (
                    dtype,
                    stats.std,
                    finite.std().item(),
                )
            checked += 1
    return f"{checked} tensors of 7 dtypes"


def _near(a: float | None, b: float, rel: float, abs_: float) -> bool:
    return a is not None and abs(a - b) <= max(abs_, rel * abs(b))


@gpu_check
def eight_bits_of_float() -> str:
    class Casts(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2)

    x = torch.randn(64, 64, device=DEVICE)
    trace = fx_debug(Casts(), x)
    for value, dtype in zip(trace.root.outputs, (torch.float8_e4m3fn, torch.float8_e5m2)):
        wide = x.to(dtype).float().double()
        assert _near(value.stats.mean, wide.mean().item(), 1e-5, 1e-7), (dtype, value.stats)
    return "float8_e4m3fn, float8_e5m2"


@gpu_check
def autocast_and_mixed_devices() -> str:
    model, inputs = models()["attention"]
    with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16):
        plain = model(*inputs)
        trace = fx_debug(model, inputs, values="tensors")
    kept = trace.root.outputs[0]
    statuses = Counter(call.status for call in trace.find())

    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8).to(DEVICE)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).to(DEVICE, non_blocking=True)).cpu()

    mixed = fx_debug(Moves(), torch.randn(2, 8))
    devices = [call.outputs[0].device for call in mixed.find()]
    assert plain.dtype == torch.float32 and str(kept.dtype).endswith("float32"), (plain.dtype, kept.dtype)
    assert statuses == {"verified": 4}, (statuses, [call.reason for call in trace.find()])
    assert all(call.status == "verified" for call in mixed.find()), [(c.path, c.reason) for c in mixed.find()]
    return f"{dict(statuses)}, devices {devices}"


@gpu_check
def no_wait_for_the_device_in_a_run_without_graphs() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"
    model, given = llama(8), tokens()
    with torch.no_grad():
        model(given)
        fx_debug(model, given, graph=False)
        counts = {}
        for graph in (False, True):
            torch.cuda.set_sync_debug_mode("warn")
            try:
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    trace = fx_debug(model, given, graph=graph)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            counts[graph] = sum("synchroniz" in str(one.message) for one in heard)
            places = Counter(
                f"{Path(one.filename).name}:{one.lineno}" for one in heard if "synchroniz" in str(one.message)
            )
            print(f"      graph={graph}: {places.most_common(6)}")
    calls = len(trace.find())
    assert counts[False] <= 8, counts
    return f"waits in {calls} calls: {counts[False]} tree only, {counts[True]} with graphs"


@gpu_check
def what_recording_costs() -> str:
    small = _cost(llama(8, 256, torch.bfloat16), tokens())
    return f"small {small}; wide {_cost(llama(16, 2048, torch.bfloat16), tokens(512))}"


def _cost(model: nn.Module, given: Tensor) -> str:
    with torch.no_grad():
        for _ in range(3):
            model(given)
        plain = seconds(lambda: model(given))
        tree = seconds(lambda: fx_debug(model, given, graph=False), 7)
        graph = seconds(lambda: fx_debug(model, given), 5)
    return f"{plain * 1e3:.1f} ms, tree {tree / plain:.1f} ×, graph {graph / plain:.1f} ×"


@gpu_check
def files_of_transformers_debugger() -> str:
    from transformers import model_addition_debugger_context as theirs

    model = llama(2)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model(tokens())
        for use_repr in (True, False):
            with theirs(model, debug_path=f"{folder}/a{use_repr}", do_prune_layers=False, use_repr=use_repr):
                model(tokens())
            with fxdebug.model_addition_debugger_context(
                model, debug_path=f"{folder}/b{use_repr}", do_prune_layers=False, use_repr=use_repr
            ):
                model(tokens())
            for path in sorted(Path(f"{folder}/a{use_repr}").rglob("*.json")):
                mine = Path(str(path).replace(f"/a{use_repr}", f"/b{use_repr}", 1))
                a, b = (
                    each.read_text().replace(f"/a{use_repr}/", "/X/").replace(f"/b{use_repr}/", "/X/")
                    for each in (path, mine)
                )
                assert json.loads(a) == json.loads(b), f"{path.name} differs, use_repr={use_repr}: {_first(a, b)}"
    return "use_repr True and False"


def _first(a: str, b: str) -> str:
    for one, other in zip(a.splitlines(), b.splitlines()):
        if one != other:
            return f"{one!r} ≠ {other!r}"
    return "lengths"


@gpu_check
def saved_and_loaded() -> str:
    model, inputs = models()["attention"]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        trace = fx_debug(model, inputs, save=folder + "/run", values="tensors")
        assert fxdebug.load(folder + "/run") == trace
        loaded = fxdebug.load(folder + "/run")
        trace.export(folder + "/run.html")
        trace.export(folder + "/run.dot")
        assert loaded.root.outputs[0].device.startswith(DEVICE.type), loaded.root.outputs[0].device
        return f"{sum(f.stat().st_size for f in Path(folder).rglob('*') if f.is_file())} bytes"


@gpu_check
def a_graph_of_the_device_and_compiled_models() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"
    told = []
    inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    with torch.no_grad():
        eager = inner(x)
    graphed = torch.cuda.make_graphed_callables(copy.deepcopy(inner), (x.clone(),))
    with torch.no_grad():
        want = graphed(x).clone()
        trace = fx_debug(graphed, x)
        got = graphed(x)
    assert torch.equal(want, got) and torch.allclose(want, eager, atol=1e-2)
    told.append(f"graphed: {[(c.path, c.status) for c in trace.find()][:2]}")

    try:
        compiled = torch.compile(copy.deepcopy(inner))
        with torch.no_grad():
            compiled(x)
            trace = fx_debug(compiled, x)
        told.append(f"compiled: {[(c.path, c.status, c.reason) for c in trace.find()][:2]}")
    except Exception as error:
        told.append(f"compiled: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
    return "; ".join(told)


class Graphed(nn.Module):
    """Runs its body as a CUDA graph, which the first call captures, as engines for inference do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.LayerNorm(64)
        self.graph: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.graph is None:
            self.given = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.body(self.given)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.made = self.body(self.given)
        self.given.copy_(x)
        self.graph.replay()
        return self.norm(self.made)


class Turns(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.body(x * 3)


def _in_own_process(name: str) -> str:
    """Run a function of this file in another process: what it may break is the state of CUDA."""
    if DEVICE.type != "cuda":
        return "needs a CUDA device"
    program = f"import gpu; print(gpu.{name}())"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{done.stdout[-600:]}\n{done.stderr[-3000:]}")
    return done.stdout.strip()


@gpu_check
def a_forward_that_is_captured() -> str:
    return _in_own_process("_captured")


def _captured() -> str:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 64)).to(DEVICE).eval()
    x = torch.randn(8, 64, device=DEVICE)
    told = []
    with torch.no_grad():
        eager = inner(x)
        wait()
        for way in ("trace_forwards", "fx_debug"):
            graph = torch.cuda.CUDAGraph()
            if way == "fx_debug":
                with torch.cuda.graph(graph):
                    out, trace = traced_with_result(inner, x)
                told.append(f"{len(trace.find())} calls, notes {[str(note) for note in trace.notes]}")
            else:
                with fxdebug.trace_forwards(inner) as traces, torch.cuda.graph(graph):
                    out = inner(x)
                told.append(f"{len(list(traces))} traces")
            graph.replay()
            wait()
            assert torch.equal(out, eager), way
    return f"equal; {told}"


@gpu_check
def a_model_that_replays_a_graph() -> str:
    return _in_own_process("_replayed")


def _replayed() -> str:
    torch.manual_seed(0)
    plain, traced = Turns(Graphed()).to(DEVICE), Turns(Graphed()).to(DEVICE)
    traced.load_state_dict(plain.state_dict())
    x = torch.randn(8, 64, device=DEVICE)
    told = []
    with torch.no_grad():
        for turn in range(2):  # the first captures
            want = plain(x + turn)
            made, trace = traced_with_result(traced, x + turn)
            assert torch.equal(want, made), f"turn {turn}: another result"
            calls = [(call.id, call.status, str(call.reason)) for call in trace.find()]
            told.append(f"{calls}, notes {[note.what for note in trace.notes]}")
            for call, factor in zip(trace.find("body.norm"), (1, 3)):
                given = plain.body.body((x + turn) * factor).double()
                stats = call.inputs[0].stats
                assert _near(stats.mean, given.mean().item(), 1e-4, 1e-6), f"turn {turn}, {call.id}: {stats}"
            for call in trace.find("body"):
                assert call.status != "verified", "nobody saw what the graph computed"
    return "\n      ".join(told)


@gpu_check
def a_watched_training_in_a_graph() -> str:
    return _in_own_process("_watched_graph")


def _watched_graph() -> str:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, capturable=True)
    x, y = torch.randn(64, 16, device=DEVICE), torch.randn(64, 1, device=DEVICE)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with tempfile.TemporaryDirectory() as folder:
        with fxdebug.watch(model, optimizer, every=1, save=folder + "/run"):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                loss = step()
            losses = []
            for _ in range(20):
                graph.replay()
                losses.append(loss.item())
        assert losses[-1] < losses[0], losses
        return f"loss {losses[0]:.3f} → {losses[-1]:.3f}\n{fxdebug.check(folder + '/run')}"


@gpu_check
def a_kernel_of_triton() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"
    source = Path(tempfile.mkdtemp()) / "doubles.py"
    source.write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def kernel(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)\n"
        "class Doubles(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        out = torch.empty_like(x)\n"
        "        kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)\n"
        "        return out\n"
    )
    sys.path.insert(0, str(source.parent))
    from doubles import Doubles  # type: ignore[import-not-found]

    x = torch.randn(1000, device=DEVICE)
    model = nn.Sequential(nn.ReLU(), Doubles(), nn.ReLU())
    trace = fx_debug(model, x)
    want = x.relu() * 2
    value = trace.find("1")[0].outputs[0]
    print("     ", [(call.id, call.status, str(call.reason)) for call in trace.find()])
    assert _near(value.stats.mean, want.double().mean().item(), 1e-5, 1e-7), value.stats
    return f"{[(c.path, c.status, str(c.reason)) for c in trace.find()]}, notes {list(trace.notes)}"


# Failures ----------------------------------------------------------------------------------------


@gpu_check
def out_of_memory() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"

    class Big(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            return y.expand(1 << 20, 1 << 20, 2, 8).contiguous()

    model = Big().to(DEVICE)
    try:
        fx_debug(model, torch.ones(2, 8, device=DEVICE))
    except torch.OutOfMemoryError as error:
        assert "fxdebug" not in str(error)
    else:
        raise AssertionError("no exception")
    last = fxdebug.last_failed()
    assert last is not None and last.find("a")[0].outputs[0].stats is not None
    return str(last.root.error)[:100]


@gpu_check
def an_assertion_on_the_device() -> str:
    return _in_own_process("_asserted")


class Looks(nn.Module):
    """Looks up a row that its table does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.table = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Embedding(10, 4)

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        made = self.body(x) + self.table(rows)
        wait()
        return made


def _asserted() -> str:
    given = torch.ones(3, 4, device=DEVICE), torch.tensor([1, 2, 30], device=DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fx_debug(Looks().to(DEVICE), given, save=folder + "/run")
        except RuntimeError as error:
            assert "device-side assert" in str(error), "the program's exception is another"
        else:
            raise AssertionError("no exception")
        last = fxdebug.last_failed()
        assert last is not None and [call.path for call in last.find()] == ["", "body", "body.0", "body.1", "table"]
        assert not any(parameter.changed for parameter in last.parameters)
        assert len(fxdebug.load(folder + "/run").calls) == 5
    return f"the trace up to it is there and saved; notes {[note.what for note in last.notes]}"


# Reports -----------------------------------------------------------------------------------------


@gpu_check
def memory_is_that_of_the_allocator() -> str:
    told = []
    for name in ("conv, training", "attention", "encoder, training"):
        model, inputs = models()[name]
        mean_square(model(*inputs)).backward()
        for p in model.parameters():
            p.grad = None
        report = fxdebug.memory(model, inputs, loss=mean_square)
        if DEVICE.type == "cuda":
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_stats()["requested_bytes.all.current"]
            mean_square(model(*inputs)).backward()
            plain = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
            told.append(f"{name}: totals {dict(report.totals)}; allocator's peak above the start {plain}")
        told.append(f"notes {unread(report)}")
    return "\n      ".join(told)


@gpu_check
def times_are_those_of_the_device() -> str:
    model, given = llama(8, 1024, torch.bfloat16), tokens(256)
    with torch.no_grad():
        for _ in range(3):
            model(given)
        plain = seconds(lambda: model(given))
        report = fxdebug.profile(model, given, repeats=10)
    return f"plain {plain * 1e3:.2f} ms; totals {dict(report.totals)}; notes {unread(report)}"


@gpu_check
def times_of_one_long_kernel() -> str:
    """A kernel that runs long after its launch is its own call's time."""
    if DEVICE.type != "cuda":
        return "needs a CUDA device"

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heavy, self.light = nn.Linear(8192, 8192), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.light(self.heavy(x))

    model, x = Two().to(DEVICE, torch.bfloat16), torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    with torch.no_grad():
        report = fxdebug.profile(model, x, repeats=10)
        started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        model.heavy(x)
        ended.record()
        wait()
        alone = started.elapsed_time(ended) / 1e3
    rows = {row.call: row for row in report.rows}
    heavy = next(row for call, row in rows.items() if call.startswith("heavy"))
    return f"heavy alone {alone * 1e3:.3f} ms, in the report {heavy}"


@gpu_check
def a_check_of_healthy_models_finds_nothing() -> str:
    told = []
    for name, (model, inputs) in models().items():
        findings = fxdebug.check(model, inputs, mean_square)
        bad = [
            f"{f.severity} {f.rule} {f.where if hasattr(f, 'where') else ''}"
            for f in findings.findings
            if f.severity != "advice"
        ]
        told.append(f"{name}: {bad} notes {[n for n in unread(findings) if 'not' in n][:4]}")
    return "\n      ".join(told)


@gpu_check
def reports_agree_with_those_of_the_cpu() -> str:
    told = []
    torch.manual_seed(0)
    model, x = Attends(), torch.randn(2, 24, 256)
    on_device = copy.deepcopy(model).to(DEVICE)
    for name, ask in {
        "gradients": lambda m, x: fxdebug.gradients(m, x, mean_square),
        "activations": lambda m, x: fxdebug.activations(m, x),
        "attention": lambda m, x: fxdebug.attention(m, x),
        "weights": lambda m, x: fxdebug.weights(m),
        "flops": lambda m, x: fxdebug.flops(m, x),
        "summary": lambda m, x: fxdebug.summary(m, x),
        "shadow": lambda m, x: fxdebug.shadow(m, x),
    }.items():
        here, there = ask(model, x), ask(on_device, x.to(DEVICE))
        assert unread(here) == unread(there), (name, unread(there))
        told.append(f"{name}: {len(there.rows)} rows, {len(there.findings)} findings")
        assert len(here.findings) == len(there.findings), name
        assert len(here.rows) == len(there.rows), name
        if name in ("flops", "summary"):
            assert str(here.totals) == str(there.totals), (here.totals, there.totals)
    return "\n      ".join(told)


@gpu_check
def a_run_compared_with_that_of_the_cpu() -> str:
    torch.manual_seed(0)
    told = []
    for name, (model, inputs) in models().items():
        if name in ("side stream", "gru, half"):
            continue
        model = model.eval()
        with torch.no_grad():
            here = fx_debug(model, inputs)
            there = fx_debug(copy.deepcopy(model).cpu(), tuple([each.cpu() for each in inputs]))
            found = fxdebug.compare(there, here)
        told.append(f"{name}: {str(found).splitlines()[0]}")
    model = llama(4)
    with torch.no_grad():
        there = fx_debug(copy.deepcopy(model).cpu(), tokens().cpu())
        told.append("llama: " + str(fxdebug.compare(there, fx_debug(model, tokens()))).splitlines()[0])
        half = copy.deepcopy(model).bfloat16()
        told.append("llama, bfloat16: " + str(fxdebug.compare(there, fx_debug(half, tokens()))).splitlines()[0])
        broken = copy.deepcopy(model)
        broken.model.layers[2].input_layernorm.variance_epsilon = 1e-2
        text = str(fxdebug.compare(there, fx_debug(broken, tokens())))
        assert "layers.2.input_layernorm" in text.splitlines()[0], text[:500]
        told.append("llama with another epsilon: " + text.splitlines()[0])
        old = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        told.append("llama, TF32: " + str(fxdebug.compare(there, fx_debug(model, tokens()))).splitlines()[0])
        torch.backends.cuda.matmul.allow_tf32 = old
    return "\n      ".join(told)


# Trainings ---------------------------------------------------------------------------------------


def _train(steps: int, watched: bool, folder: str, break_at: int = -1) -> tuple[list[float], list[Tensor], float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE.type)
    x = torch.randn(512, 64, device=DEVICE)
    y = x[:, :1] * 2
    losses = []

    def loop() -> None:
        for step in range(steps):
            given = x * (float("nan") if step == break_at else 1.0)
            with torch.autocast(DEVICE.type, torch.float16 if DEVICE.type == "cuda" else torch.bfloat16):
                loss = F.mse_loss(model(given).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())

    wait()
    began = time.perf_counter()
    if watched:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with fxdebug.watch(model, optimizer, every=20, save=folder):
                loop()
    else:
        loop()
    wait()
    return [loss.item() for loss in losses], [p.detach() for p in model.parameters()], time.perf_counter() - began


@gpu_check
def a_watched_training_is_the_same_training() -> str:
    with tempfile.TemporaryDirectory() as folder:
        _train(20, False, folder)
        losses, weights, plain = _train(200, False, folder)
        losses2, weights2, watched = _train(200, True, folder + "/run")
        assert losses == losses2 and same(weights, weights2), "another training"
        findings = fxdebug.check(folder + "/run")
        return (
            f"plain {plain * 5:.2f} ms a step, watched {watched / plain:.2f} ×; {[f.rule for f in findings.findings]}"
        )


@gpu_check
def a_watched_training_names_the_first_nan() -> str:
    with tempfile.TemporaryDirectory() as folder:
        _train(30, True, folder + "/run", break_at=17)
        findings = fxdebug.check(folder + "/run")
        return str(findings)[:900]


@gpu_check
def compiled_with_graphs_of_the_device() -> str:
    return _in_own_process("_reduced_overhead")


def _reduced_overhead() -> str:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(DEVICE)
    x = torch.randn(16, 64, device=DEVICE)
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            plain = compiled(x).clone()
        trace = fx_debug(compiled, x)
        assert torch.equal(plain, compiled(x))
        mean = trace.root.outputs[0].stats.mean
        assert _near(mean, plain.double().mean().item(), 1e-4, 1e-6), (mean, plain.mean())
    return f"{[(call.id, call.status) for call in trace.find()]}, notes {[note.what for note in trace.notes]}"


@gpu_check
def products_of_eight_bits() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"

    class Scaled(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            one = torch.ones((), device=a.device)
            return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    a = torch.randn(64, 128, device=DEVICE).to(torch.float8_e4m3fn)
    b = torch.randn(256, 128, device=DEVICE).to(torch.float8_e4m3fn).t()
    trace = fx_debug(Scaled(), (a, b))
    want = a.float().double() @ b.float().double()
    assert _near(trace.root.outputs[0].stats.mean, want.mean().item(), 1e-2, 1e-2)
    return f"{trace.root.status} {trace.root.reason}; flops {dict(fxdebug.flops(Scaled(), (a, b)).totals)}"


@gpu_check
def patches_and_replays() -> str:
    model, inputs = models()["conv, eval"]
    with torch.no_grad():
        trace = fx_debug(model, inputs, values="tensors")
        call = trace.find("stem")[0]
        made = call.fx(inputs[0])
        assert torch.equal(made, model.stem(inputs[0])), "call.fx gives another result"
    return f"call.fx on {made.device}"


@gpu_check
def ranks_of_nccl() -> str:
    if DEVICE.type != "cuda":
        return "needs a CUDA device"
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    told = []
    try:
        for name in ("DDP", "FSDP2"):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(DEVICE)
            x = torch.randn(4, 64, device=DEVICE)
            with torch.no_grad():
                want = model(x)
            wrapped = DistributedDataParallel(model) if name == "DDP" else fully_shard(model)
            with torch.no_grad():
                trace = fx_debug(wrapped, x)
                got = wrapped(x)
            assert torch.allclose(want, got), name
            told.append(
                f"{name}: {dict(Counter(c.status for c in trace.find()))} {[str(n)[:160] for n in trace.notes]}"
            )
    finally:
        dist.destroy_process_group()
    return "; ".join(told)


# -------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run the checks, print what came out; return the exit status."""
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of checks; all without any")
    parser.add_argument("--device", default="cuda", help="the device to try (default: %(default)s)")
    options = parser.parse_args(arguments)
    DEVICE = torch.device(options.device)
    if DEVICE.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here")
        return 1
    from fxdebug.native import core

    what = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "the CPU"
    print(f"torch {torch.__version__} on {what}; native core: {core.loaded().why or 'yes'}", flush=True)
    failed = 0
    for name, check in CHECKS.items():
        if options.names and not any(part in name for part in options.names):
            continue
        began = time.perf_counter()
        try:
            told, verdict = check(), "ok"
        except Exception as error:
            failed += 1
            told, verdict = f"{type(error).__name__}: {error}", "FAIL"
            traceback.print_exc(limit=-6, file=sys.stdout)
        print(f"{verdict:4} {name}  ({time.perf_counter() - began:.1f} s)\n      {told}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
