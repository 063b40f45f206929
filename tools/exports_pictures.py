"""Draw the pictures of docs/exports.md: runs of ours in the pages of other programs, photographed by chromium.

    python tools/exports_pictures.py [tensorboard] [netron] ...

Each program must be installed, and chromium; ``make setup`` installs the programs.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import fxdebug  # noqa: E402
from support.browser import choose, drill, opened, served  # noqa: E402
from support.exported_models import built  # noqa: E402

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


PICTURES: dict[str, Callable[[Path], None]] = {"tensorboard": tensorboard, "netron": netron}


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
