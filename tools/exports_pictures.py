"""Draw the pictures of docs/exports.md: runs of ours in the pages of other programs, photographed by chromium.

    .programs/bin/python tools/exports_pictures.py [tensorboard] [netron] ...

Each program must be installed, and chromium: ``make programs`` installs the programs.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import fxdebug  # noqa: E402
from support.browser import choose, drill, opened, served  # noqa: E402
from support.exported_models import built  # noqa: E402
from support.programs import (  # noqa: E402
    chromium,
    drawn_by_mermaid,
    mlflow_server,
    open_speedscope,
    opened_by_perfetto,
    with_panes,
)
from support.programs import model_explorer as model_explorer_server  # noqa: E402

DOCS = ROOT / "docs"


def timed_run(folder: Path) -> fxdebug.Trace:
    """A run of a small GPT-2 with its times, saved and read again without the folders of this machine."""
    model, inputs = built("gpt2")
    with torch.no_grad():
        profile = fxdebug.profile(model, inputs, repeats=5, peak=False)
        trace = fxdebug.fx_debug(model, inputs).with_measures(profile)
    return fxdebug.load(trace.save(folder / "run", private=True))


def tensorboard(folder: Path) -> None:
    """The graph, opened down to a layer's attention, with one node chosen."""
    path = timed_run(folder).export(folder / "tb", to="tensorboard")
    with served("tensorboard", path) as address, opened(f"{address}#graphs") as page:
        scope = "GPT2LMHeadModel"
        page.wait_for_selector("g.node", state="attached", timeout=60_000)
        for name in (scope, f"{scope}/transformer"):
            node = page.locator(f'g.node[data-name="{name}"]')
            node.wait_for(state="attached")
            node.locator("rect").first.dispatch_event("dblclick")
            page.wait_for_timeout(1_000)
        node = page.locator(f'g.node[data-name="{scope}/transformer/add_1."]')
        node.locator("rect, ellipse, use").first.dispatch_event("click")
        page.wait_for_timeout(1_500)
        page.screenshot(path=DOCS / "tensorboard.png")


def netron(folder: Path) -> None:
    """The inside of a layer, with its attention chosen."""
    path = timed_run(folder).export(folder / "gpt2.onnx")
    with served("netron", path) as address, opened(address) as page:
        for name in ("transformer#0", "transformer.h.5#0"):
            page.wait_for_selector(f'g.node[id="node-name-{name}"]', state="attached")
            drill(page, name)
        choose(page, "transformer.h.5.attn#0")
        page.wait_for_timeout(1_000)
        page.screenshot(path=DOCS / "netron.png")


def projector(folder: Path) -> None:
    """The embeddings of the tokens, as points with their labels."""
    model, inputs = built("gpt2")
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, inputs, values="tensors")
    labels = [f"token {token}" for token in inputs["input_ids"].flatten().tolist()]
    path = trace.export(folder / "tb", to="tensorboard", embedding="transformer.wte", labels=labels)
    with served("tensorboard", path) as address, opened(f"{address}#projector", 1400, 800) as page:
        page.wait_for_timeout(15_000)
        page.screenshot(path=DOCS / "projector.png")


def perfetto(folder: Path) -> None:
    """Calls and operations in time."""
    path = timed_run(folder).export(folder / "run.pftrace")
    with chromium(1400, 460) as page, opened_by_perfetto(page, path):
        page.screenshot(path=DOCS / "perfetto.png")


def mlflow(folder: Path) -> None:
    """The metrics of a run."""
    path = timed_run(folder).export(folder / "mlflow.db", to="mlflow", measures="flops")
    with mlflow_server(path) as address, chromium(1400, 1300) as page:
        page.goto(f"{address}/#/experiments/1/runs")
        page.get_by_text("GPT2LMHeadModel", exact=True).first.click()
        page.get_by_text("Metrics", exact=False).first.wait_for()
        page.wait_for_timeout(4_000)
        page.screenshot(path=DOCS / "mlflow.png")


def mermaid(folder: Path) -> None:
    """A folded chart of the run."""
    text = timed_run(folder).export(folder / "run.mmd", depth=2).read_text(encoding="utf-8")
    with chromium(1000, 1000) as page:
        drawn_by_mermaid(page, text)
        page.locator("#here svg").screenshot(path=DOCS / "mermaid.png")


def model_explorer(folder: Path) -> None:
    """Two runs that differ in the activation of one layer, side by side, with their error."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_embd=32, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    model = GPT2Model(config).eval()
    other = copy.deepcopy(model)
    other.h[2].mlp.act = nn.ReLU()
    for name, one in (("a", model), ("b", other)):
        with torch.no_grad():
            fxdebug.fx_debug(one, torch.tensor([[1, 2, 3]])).save(folder / name, private=True)
    compared = fxdebug.compare(folder / "a", folder / "b").export(folder / "compared", to="model-explorer")
    overlays = [compared / "error.json", compared / "verdict.json"]
    layer = "GPT2Model/h.2/mlp___group___"
    with model_explorer_server(compared / "graph.json", overlays) as address, chromium(1600, 1000) as page:
        page.goto(with_panes(address, ("a: GPT2Model", layer, ""), ("b: GPT2Model", layer, "")))
        page.get_by_text("Sync", exact=True).click()
        page.get_by_text("Upload mapping from computer").click()
        page.set_input_files("input[type=file][accept='.json']", str(compared / "mapping.json"))
        page.get_by_text("mapping.json").wait_for()
        page.keyboard.press("Escape")
        page.locator("input[placeholder*='Search nodes']").first.fill("h.2.mlp.c_proj#0/addmm")
        page.locator(".search-results-container").get_by_text("addmm", exact=True).first.click(modifiers=["Alt"])
        page.wait_for_timeout(3_000)
        page.screenshot(path=DOCS / "model-explorer.png")


def speedscope(folder: Path) -> None:
    """The calls of a run in time."""
    path = timed_run(folder).export(folder / "run.speedscope.json")
    with chromium(1400, 600) as page:
        open_speedscope(page, path)
        page.get_by_text("Sandwich").wait_for()
        page.wait_for_timeout(1_000)
        page.screenshot(path=DOCS / "speedscope.png")


PICTURES: dict[str, Callable[[Path], None]] = {
    "tensorboard": tensorboard, "projector": projector, "netron": netron, "perfetto": perfetto, "mlflow": mlflow,
    "mermaid": mermaid, "model-explorer": model_explorer, "speedscope": speedscope,
}  # fmt: skip


def main(names: list[str]) -> None:
    """Draw the pictures of some programs, or of all."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            PICTURES[name](Path(folder))
        print(f"wrote docs/{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
