"""In place of transformers' ``model_addition_debugger_context``: the same files, and every forward is kept."""

import json
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from fxdebug import model_addition_debugger_context  # was: from transformers import …


def main(folder: str = "out/drop_in") -> None:
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64)
    ).eval()

    with model_addition_debugger_context(model, debug_path=folder):
        model(input_ids=torch.tensor([[1, 2, 3, 4]]))
        model(input_ids=torch.tensor([[5, 6]]))

    for file in sorted(Path(folder).iterdir()):  # the second forward has the plain names, the first has a number
        root = json.loads(file.read_text(encoding="utf-8"))
        print(f"{file.name}: input_ids {root['inputs']['kwargs']['input_ids']['shape']}")

    encoder = root["children"][1]
    layers = [child["module_path"] for child in encoder["children"]]
    print(f"{encoder['module_path']} keeps its first and last layer: {', '.join(layers)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
