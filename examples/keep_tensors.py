"""Keep every tensor of a run on disk, and look at one of them later without the model."""

import sys

import torch
from torch import nn

import fxdebug


def run(folder: str) -> None:
    """Trace a small network; the tensors are written while it runs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    fxdebug.fx_debug(model, torch.randn(3, 6), save=folder, values="tensors")


def look(folder: str) -> None:
    """This part works in another process, on another day: it needs only the folder."""
    trace = fxdebug.load(folder)
    (tanh,) = trace.find(type="Tanh")
    given, hidden = tanh.inputs[0], tanh.outputs[0]
    print(f"{tanh.path} {tanh.type} returned {hidden.label}, saved in {hidden.saved}:")
    print(trace.tensor(hidden))
    print("Recomputed from its saved input:", torch.equal(trace.tensor(given).tanh(), trace.tensor(hidden)))

    # A tensor that one call returns and the next one takes is one value: measured once, saved once.
    print("The last layer was given that very value:", trace.find("2")[0].inputs[0] is hidden)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "out/keep_tensors"
    run(folder)
    look(folder)
