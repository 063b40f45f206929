"""Draw the pictures of docs/exports.md: a comparison in Model Explorer, a run in speedscope (make programs)."""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

import fxdebug

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.programs import chromium, model_explorer, open_speedscope, with_panes  # noqa: E402


def runs(folder: Path) -> tuple[fxdebug.Trace, fxdebug.Trace]:
    """Two runs that differ in the activation of one layer, without the folders of this machine."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_embd=32, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    model = GPT2Model(config).eval()
    other = copy.deepcopy(model)
    other.h[2].mlp.act = nn.ReLU()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        made = {"a": fxdebug.fx_debug(model, tokens), "b": fxdebug.fx_debug(other, tokens)}
    for name, trace in made.items():
        trace.save(folder / name, private=True)
    return fxdebug.load(folder / "a"), fxdebug.load(folder / "b")


def main() -> None:
    """Write docs/model-explorer.png and docs/speedscope.png."""
    with tempfile.TemporaryDirectory() as name:
        a, b = runs(Path(name))
        folder = fxdebug.compare(a, b).export(Path(name) / "compared", to="model-explorer")
        overlays = [folder / "error.json", folder / "verdict.json"]
        layer = "GPT2Model/h.2/mlp___group___"
        with model_explorer(folder / "graph.json", overlays) as address, chromium(1600, 1000) as page:
            page.goto(with_panes(address, ("a: GPT2Model", layer, ""), ("b: GPT2Model", layer, "")))
            page.get_by_text("Sync", exact=True).click()
            page.get_by_text("Upload mapping from computer").click()
            page.set_input_files("input[type=file][accept='.json']", str(folder / "mapping.json"))
            page.get_by_text("mapping.json").wait_for()
            page.keyboard.press("Escape")
            page.locator("input[placeholder*='Search nodes']").first.fill("h.2.mlp.c_proj#0/addmm")
            page.locator(".search-results-container").get_by_text("addmm", exact=True).first.click(modifiers=["Alt"])
            page.wait_for_timeout(3_000)
            page.screenshot(path=ROOT / "docs" / "model-explorer.png")
        path = a.export(Path(name) / "run.speedscope.json")
        with chromium(1400, 600) as page:
            open_speedscope(page, path)
            page.get_by_text("Sandwich").wait_for()
            page.wait_for_timeout(1_000)
            page.screenshot(path=ROOT / "docs" / "speedscope.png")


if __name__ == "__main__":
    main()
