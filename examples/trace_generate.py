"""Trace ``generate()``: one trace of the whole loop, with a forward pass per token in it."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from fxdebug import fx_debug


def main() -> None:
    torch.manual_seed(0)
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3, **special)
    model = GPT2LMHeadModel(config).eval()
    prompt = {"input_ids": torch.tensor([[11, 22, 33]])}

    # A bound method in place of the model: fx_debug(model, …, method="generate") does the same.
    trace = fx_debug(model.generate, prompt, {"max_new_tokens": 4, "do_sample": False}, values="tensors")
    print(f"{trace.model}.{trace.root.method}: {len(trace.calls)} calls, returned {trace.output.tolist()}")

    for forward in trace.root.children:  # the model itself, once a token; the root stands for generate()
        logits = forward.outputs["logits"]
        token = int(trace.tensor(logits)[0, -1].argmax())
        print(f"  {forward.id}: input_ids {forward.inputs['input_ids'].shape} → token {token}, logits {logits.label}")

    attention = trace.find("transformer.h.0.attn")[-1]
    print(f"In the last step {attention.path} is given {attention.inputs[0].label}: one position, the rest is cached.")


if __name__ == "__main__":
    main()
