"""Make the screenshots of docs/page.md and the README: ``tools/page_screenshots.py [--all FOLDER]``.

``--all`` writes every sample model in both themes, wide and narrow, to a folder, to look at.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import page_samples

DOCS = Path(__file__).resolve().parent.parent / "docs"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
COLORS = 192  # of a picture in the docs: a third of the bytes, and nobody sees it

# file, model, state of the page (its address), theme, and what is done before the picture
SHOTS = (
    ("page.png", "measured", "", "light", "fxdebug.select('encoder.layer.0.attention.output.dense')"),
    ("page-dark.png", "measured", "#colour=absmax", "dark", "fxdebug.select('encoder.layer.0.output')"),
    ("page-diff.png", "port", "", "light", ""),
)


def shot(browser: Browser, path: Path, hash: str, theme: Any, *, width: int, height: int, script: str = "") -> bytes:
    """Open a page and return its picture."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", offline=True
    )
    page = context.new_page()
    page.goto(path.as_uri() + hash)
    page.wait_for_selector("html[data-ready]", state="attached")
    if script:
        page.evaluate(script)
    page.wait_for_timeout(400)
    picture = page.screenshot()
    context.close()
    return picture


def for_the_docs(browser: Browser, folder: Path) -> None:
    """Write the pictures of the docs."""
    for name, model, hash, theme, script in SHOTS:
        path = folder / f"{model}.html"
        if not path.exists():
            page_samples.write(model, folder)
            page_samples.wrap(model, folder)
        data = shot(browser, path, hash, theme, width=1280, height=800, script=script)
        small = Image.open(io.BytesIO(data)).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
        small.save(DOCS / name, optimize=True)
        print(f"{DOCS / name}: {(DOCS / name).stat().st_size >> 10} KB")


def for_looking(browser: Browser, folder: Path) -> None:
    """Write every sample in both themes, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*page_samples.MODELS, *page_samples.PAIRS, "measured"):
        if not (folder / f"{name}.html").exists():
            page_samples.write(name, folder)
            page_samples.wrap(name, folder)
        for theme in ("light", "dark"):
            for width, height in ((1280, 800), (390, 844)):
                picture = shot(browser, folder / f"{name}.html", "", theme, width=width, height=height)
                (folder / f"{name}-{theme}-{width}.png").write_bytes(picture)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every sample model to a folder")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no chromium on the PATH: apt-get install chromium", file=sys.stderr)
        return 1
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        if options.all is None:
            for_the_docs(browser, Path(folder))
        else:
            for_looking(browser, options.all.resolve())
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
