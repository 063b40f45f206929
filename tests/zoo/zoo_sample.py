"""Which zoo entries a test runs on: the plain groups always, architectures in a sample or all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from zoo import zoo

PLAIN = ("flow", "call", "layers", "values", "tensors", "state", "modes", "hooks", "names", "scale")
# One of each kind: encoder, decoder, both, vision, audio, mixture of experts, state space, odd ones.
SAMPLE = (
    "hf/bert/", "hf/gpt2/", "hf/llama/", "hf/t5/", "hf/clip_text_model/", "hf/vit/", "hf/whisper/", "hf/mixtral/",
    "hf/mamba/", "hf/convnext/", "hf/segformer/", "hf/gemma2/", "hf/longformer/", "hf/detr/", "hf/wav2vec2/",
    "hf/xlnet/", "hf/reformer/", "hf/big_bird/", "hf/bart/", "hf/llava/",
)  # fmt: skip


def entries(whole: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, build) of the chosen entries, with warnings of building them silenced."""
    for name, build in zoo.zoo():
        if name.split("/")[0] in PLAIN or whole or name.startswith(SAMPLE):
            yield name, quietly(build)


def quietly(build: Callable[[], Any]) -> Callable[[], Any]:
    def built() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()

    return built
