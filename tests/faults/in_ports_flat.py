"""Faults planted in the port of DistilBERT, which has no module but its own: the call is always the root."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .case import Pair, fault, plant
from .equal_families import rewritten

# DistilBERT ----------------------------------------------------------------------------------------


@fault("port-distilbert/norm-epsilon", ".", "add", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")
    right = type(b).norm

    def norm(self: Any, x: Tensor, name: str, eps: float = 1e-12) -> Tensor:
        return right(self, x, name, 1e-2 if "1_sa" in name else eps)

    plant(b, norm=norm)
    return Pair(a, b, inputs)


@fault("port-distilbert/unbiased-variance", ".", "var sqrt add mean pow", "values")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")

    def norm(self: Any, x: Tensor, name: str, eps: float = 1e-12) -> Tensor:
        normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt()
        return normed * self.held[f"{name}_weight"] + self.held[f"{name}_bias"]

    plant(b, norm=norm)
    return Pair(a, b, inputs)


@fault("port-distilbert/mean-not-subtracted", ".", "layer_norm sub pow mean truediv div", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")
    right = type(b).norm

    def norm(self: Any, x: Tensor, name: str, eps: float = 1e-12) -> Tensor:
        if "0_output" not in name:
            return right(self, x, name, eps)
        scale = x.pow(2).mean(-1, keepdim=True).add(eps).sqrt()
        return x / scale * self.held[f"{name}_weight"] + self.held[f"{name}_bias"]

    plant(b, norm=norm)
    return Pair(a, b, inputs)


@fault("port-distilbert/key-bias-of-the-values", ".", "add", "weights values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")
    b.held["transformer_layer_0_attention_v_lin_bias"].data.copy_(b.held["transformer_layer_0_attention_k_lin_bias"])
    return Pair(a, b, inputs)


@fault("port-distilbert/bias-left-out", ".", "add matmul", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")
    right = type(b).dense

    def dense(self: Any, x: Tensor, name: str) -> Tensor:
        if "1_ffn_lin1" in name:
            return torch.matmul(x, self.held[f"{name}_weight"].t())
        return right(self, x, name)

    plant(b, dense=dense)
    return Pair(a, b, inputs)


@fault("port-distilbert/positions-from-one", ".", "getitem", "constant values weights")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")

    def embed(self: Any, ids: Tensor) -> Tensor:
        words, places = (self.held[f"embeddings_{kind}_embeddings_weight"] for kind in ("word", "position"))
        return self.norm(words[ids] + places[1 : ids.shape[1] + 1], "embeddings_LayerNorm")

    plant(b, embed=embed)
    return Pair(a, b, inputs)


@fault("port-distilbert/mask-multiplied", ".", "mul matmul add", "missing values extra wiring")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")

    def attend(self: Any, x: Tensor, keep: Tensor, at: str) -> Tensor:
        q, k, v = (self.split(self.dense(x, f"{at}_attention_{part}_lin")) for part in "qkv")
        scores = (q @ k.mT) * q.shape[-1] ** -0.5 * keep[:, None, None].to(x.dtype)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        return self.dense(mixed, f"{at}_attention_out_lin")

    plant(b, attend=attend)
    return Pair(a, b, inputs)


@fault("port-distilbert/layers-share-a-norm", ".", "mul truediv div add", "weights wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("distilbert")
    right = type(b).norm
    plant(b, norm=lambda self, x, name, eps=1e-12: right(self, x, name.replace("layer_1_sa", "layer_0_sa"), eps))
    return Pair(a, b, inputs)
