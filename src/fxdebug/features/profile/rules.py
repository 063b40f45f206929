"""The rules of a profile."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, WARNING
from fxdebug.data.rules import CALIBRATED, RuleBook, RuleSpec
from fxdebug.features.profile.findings import Limits

WASTED = {
    "repeated work": "equal operations compute equal results of equal inputs",
    "same in each run": "each run computes the same of weights and constants alone",
    "unused results": "what is computed reaches nothing that the run returns",
    "checks": "numbers are computed only to be checked",
    "slice used": "half of a result is used, or less",
    "row by row": "a loop of Python goes over rows that do not need one another",
    "loop over time": "a loop of Python goes over steps that need one another",
    "side by side": "many small layers take the same input, one by one",
    "grows by cat": "a tensor is copied in every step to grow by a part",
    "order of products": "another order of products multiplies half as often, or less",
    "earlier positions again": "each step of a generation computes all earlier positions again",
    "weights one by one": "a line goes over many small weights, one after the other",
    "numbers of Python": "lists of numbers become tensors, or tensors lists",
    "large between": "a far larger tensor is made of small ones, and summed or multiplied away",
    "written out": "a norm or a softmax is written as single operations",
    "mostly zeros": "a product multiplies with a matrix that is mostly zeros",
    "equal rows": "layers compute the same for rows that are all equal",
    "long kernel": "a convolution multiplies far more often than Fourier transforms, or two short kernels, would",
    "transform length": "a Fourier transform has a length with a large prime factor",
    "inverse": "the inverse of a matrix is only multiplied",
    "one-hot product": "a product with one-hot rows, or a diagonal matrix, multiplies by zeros",
    "casts there and back": "tensors are cast to another dtype and back",
    "copies": "tensors are copied and nothing is computed",
    "slow function": "a function is called in a form that takes far longer than another one",
    "repeated in memory": "the same numbers are written several times",
    "training mode": "dropout, batch norm or observers of a training in a run without a loss",
    "threads": "torch computes with more threads than there are cores",
    "anomaly mode": "autograd looks for NaN in each gradient",
    "kept graph": "an attribute keeps the graph of a run after the next one",
    "float16 on the CPU": "float16 is computed on the CPU",
    "bfloat16 on the CPU": "a recurrence without a kernel for bfloat16 is computed in it on the CPU",
    "subnormal": "numbers below 1.2e-38 are computed with",
    "padding": "the last steps of every row are padding",
    "recomputation": "checkpoints compute again what there is memory for",
    "dense gradient": "a gradient is filled for a whole tensor, of which few parts were read",
}
GRAVE = ("threads", "padding", "anomaly mode", "kept graph")

BOOK = RuleBook(
    "profile",
    (
        RuleSpec("slow", WARNING, "a call takes far longer than equal calls", "slow_ratio slow_share"),
        RuleSpec("outside torch", WARNING, "a call's own time is not torch's", "idle_seconds idle_share"),
        RuleSpec("float64", WARNING, "a narrower model computes in float64", "wide_share"),
        RuleSpec("float64 weights", ADVICE, "the model itself is in float64", "wide_share"),
        RuleSpec("reads numbers", ADVICE, "a line reads numbers out of tensors again and again", "sync_count"),
        RuleSpec("eager attention", ADVICE, "attention is not one fused operation", "eager_share"),
        *(RuleSpec(name, WARNING if name in GRAVE else ADVICE, about, "waste_share") for name, about in WASTED.items()),
    ),
    limits=Limits,
    about={
        "slow_share": ("%", "share of the run", CALIBRATED),
        "slow_ratio": ("", "time over the median of equal calls", CALIBRATED),
        "slow_seconds": ("s", "time above the median of equal calls", CALIBRATED),
        "idle_seconds": ("s", "time outside of torch's functions", CALIBRATED),
        "idle_share": ("%", "that time over the call's own", CALIBRATED),
        "sync_count": ("", "reads of single numbers at one line", CALIBRATED),
        "wide_share": ("%", "share of the time or bytes in float64", CALIBRATED),
        "eager_share": ("%", "share of the time in attention that is written out", CALIBRATED),
        "waste_share": ("%", "share of the time that is at stake", CALIBRATED),
    },
)
