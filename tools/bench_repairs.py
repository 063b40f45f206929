"""What `compare_models` takes on models from tiny to large: plain forwards, the comparison, the repairs, the memory.

``python tools/bench_repairs.py [NAME ...]`` prints a table of processor seconds, on one thread: of two plain forwards
each, of ``compare_models(a, b, budget=0)`` and of the same with repairs, each in a process of its own. One setting of b
differs. Of a model of a billion parameters, two layers of that size with random weights are compared.
"""

from __future__ import annotations

import copy
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

Pair: TypeAlias = tuple[nn.Module, nn.Module, dict[str, Any]]


def _pair(model: nn.Module, path: str, name: str, value: Any, inputs: dict[str, Any]) -> Pair:
    """A model, its copy with one setting of a module changed, and inputs."""
    other = copy.deepcopy(model)
    setattr(other.get_submodule(path), name, value)
    return model.eval(), other.eval(), inputs


def _of_transformers(kind: str, path: str, name: str, value: Any, inputs: dict[str, Any], **sizes: Any) -> Pair:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}Model")(config)
    return _pair(model, path, name, value, inputs)


def _words(length: int) -> dict[str, Any]:
    return {"input_ids": torch.arange(length)[None] % 97 + 3}


def _bert(layers: int, width: int) -> Pair:
    path = f"encoder.layer.{layers // 2}.output.LayerNorm"
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
    return _of_transformers("Bert", path, "eps", 0.01, _words(64), num_attention_heads=width // 32, **sizes)


def _llama(layers: int, width: int, vocabulary: int = 32000) -> Pair:
    path = f"layers.{layers // 2}.input_layernorm"
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width, "use_cache": False}
    heads = {"num_attention_heads": width // 64, "num_key_value_heads": width // 256}
    return _of_transformers(
        "Llama", path, "variance_epsilon", 0.01, _words(64), vocab_size=vocabulary, **sizes, **heads
    )


def _mlp() -> Pair:
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    return _pair(nn.Sequential(*layers), "5", "eps", 0.01, {"input": torch.randn(8, 64)})


def _images(kind: str, path: str, **sizes: Any) -> Pair:
    return _of_transformers(kind, path, "eps", 0.05, {"pixel_values": torch.randn(1, 3, 224, 224)}, **sizes)


VIT = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
SWIN = {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]}
MODELS: dict[str, Callable[[], Pair]] = {
    "MLP": _mlp,
    "BERT tiny": lambda: _bert(2, 128),
    "ViT tiny": lambda: _images("ViT", "layers.6.layernorm_after", **VIT),
    "ResNet-50": lambda: _images("ResNet", "encoder.stages.2.layers.1.layer.1.normalization"),
    "ConvNeXt tiny": lambda: _images("ConvNext", "encoder.stages.2.layers.4.layernorm"),
    "Swin tiny": lambda: _images("Swin", "encoder.layers.2.blocks.3.layernorm_after", **SWIN),
    "DistilBERT": lambda: _of_transformers("DistilBert", "transformer.layer.3.sa_layer_norm", "eps", 0.01, _words(64)),
    "BERT base": lambda: _bert(12, 768),
    "GPT-2": lambda: _of_transformers("GPT2", "h.6.ln_2", "eps", 0.01, _words(64), use_cache=False),
    "BERT large": lambda: _bert(24, 1024),
    "Llama, 0.3B": lambda: _llama(12, 1024),
    "Llama, 1B: two layers": lambda: _llama(2, 2048, 1000),
}


def measured(name: str) -> dict[str, Any]:
    """The seconds and the peak memory of one model."""
    import fxdebug

    torch.set_num_threads(1)
    time.monotonic = time.process_time  # the budget is processor time, too: other work on the machine does not count
    torch.manual_seed(0)
    a, b, inputs = MODELS[name]()
    with torch.no_grad():
        one, other, small = _mlp()
        fxdebug.compare_models(one, other, (), small)  # what is made once in a process
        for model in (a, b):
            model(**inputs)
        began = _peak()
        plain = _timed(lambda: [model(**inputs) for model in (a, b)])
        without = _timed(lambda: fxdebug.compare_models(a, b, (), inputs, budget=0))
        found: list[Any] = []
        repaired = _timed(lambda: found.append(fxdebug.compare_models(a, b, (), inputs)))
    parameters = sum(weight.numel() for weight in a.parameters())
    first = found[0].first
    return {
        "parameters": parameters,
        "plain": plain,
        "without": without,
        "with": repaired,
        "before": began,
        "peak": _peak(),
        "proven": bool(first and first.proven),
    }


def _timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(names: list[str]) -> int:
    """Measure each model in a process of its own, and print the table."""
    print("| model | parameters | two forwards | compared | with repairs | peak memory | tried |")
    print("|---|" + "--:|" * 5 + "---|")
    for name in names or MODELS:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {name} | {done.stderr.splitlines()[-1][:200]} |", flush=True)
            continue
        seen = json.loads(done.stdout.splitlines()[-1])
        size = f"{seen['parameters'] / 1e6:,.1f}M"
        seconds = " | ".join(f"{seen[key]:.2f} s" for key in ("plain", "without", "with"))
        memory = f"{seen['before']:.1f} → {seen['peak']:.1f} GiB"
        print(f"| {name} | {size} | {seconds} | {memory} | {'yes' if seen['proven'] else 'no'} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(sys.argv[2])))
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
