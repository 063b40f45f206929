"""Let torchvision and torchaudio, which PyPI has built for CUDA only, be imported beside a torch for the CPU.

Their compiled parts cannot be loaded there. The operators of torchvision that models of this sweep need are
defined in Python instead, as custom operators: to the debugger they are what the compiled ones are, single operations.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
QNMS = "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
ROI_ALIGN = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor"
)

_libraries: list[torch.library.Library] = []  # an operator lives as long as its library


def make_importable() -> None:
    """Define what is missing, once, before the first of the two is imported."""
    if _libraries or torch.version.cuda is not None:
        return
    _torchaudio_without_extension()
    if importlib.util.find_spec("torchvision") is None:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    for schema in (NMS, QNMS, ROI_ALIGN):
        library.define(schema)
    library.impl("nms", _nms, "CompositeExplicitAutograd")
    import torchvision.extension
    from torchvision.ops.roi_align import _roi_align

    in_python = getattr(_roi_align, "__wrapped__", _roi_align)  # not compiled: an operator of C++ is not, either
    library.impl("roi_align", in_python, "CompositeExplicitAutograd")
    extension: Any = torchvision.extension
    extension._has_ops = sys.modules["torchvision.ops.roi_align"].__dict__["_has_ops"] = lambda: True


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices of the boxes that overlap no better one by more than the threshold, best first."""
    x1, y1, x2, y2 = boxes.unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    kept: list[int] = []
    order = scores.argsort(descending=True, stable=True)
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        width = (torch.minimum(x2[order], x2[best]) - torch.maximum(x1[order], x1[best])).clamp(min=0)
        height = (torch.minimum(y2[order], y2[best]) - torch.maximum(y1[order], y1[best])).clamp(min=0)
        common = width * height
        order = order[common / (areas[order] + areas[best] - common) <= threshold]
    return torch.tensor(kept, dtype=torch.long)


def _torchaudio_without_extension() -> None:
    """Have torchaudio find no compiled part, as in its builds without one."""
    found = importlib.util.find_spec("torchaudio")
    if found is None or found.origin is None:
        return
    name = "torchaudio._extension.utils"
    spec = importlib.util.spec_from_file_location(name, Path(found.origin).parent / "_extension" / "utils.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    absent: Callable[[str], bool] = lambda lib: False  # noqa: E731
    module._load_lib = absent
    sys.modules[name] = module
