"""Make another model of the same class and configuration, to see by which scheme the model draws its weights."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn

from fxdebug.capture.probe import members, state_restored, untracked

MOST_BYTES = 1 << 30


def fresh_deviations(model: nn.Module) -> dict[str, float]:
    """Return the standard deviations of the weights of a new model of this class, by name.

    It is made from a copy of the model's ``config``, as models of transformers are; random generators are restored.
    Nothing is returned for other models, for those above 1 GiB, and for those that cannot be made so.
    """
    config = getattr(model, "config", None)
    size = sum(weight.numel() * weight.element_size() for weight in members.parameters_of(model))
    if config is None or not callable(getattr(model, "_init_weights", None)) or size > MOST_BYTES:
        return {}
    try:
        with state_restored(), untracked(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            twin = type(model)(copy.deepcopy(config))
            return {
                name: float(weight.float().std())
                for name, weight in members.named_parameters_of(twin)
                if weight.numel() > 1
            }
    except Exception:  # whatever its constructor wants
        return {}
