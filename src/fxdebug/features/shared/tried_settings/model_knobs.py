"""Knobs that change a copy of the model or its inputs: dtypes, formats, attention, hooks, padding, compilation."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from fxdebug.capture.probe import internals, members
from fxdebug.data.measures import counted
from fxdebug.features.shared.tried_settings.knobs import Try, knob
from fxdebug.features.shared.tried_settings.padded_inputs import padded_inputs
from fxdebug.features.shared.tried_settings.process_knobs import device_type
from fxdebug.features.shared.tried_settings.subject import NotHere, Subject


def with_inputs(subject: Subject, change: Callable[[Tensor], Tensor]) -> Subject:
    """Return a subject whose input tensors are changed."""
    given = subject.args, dict(subject.kwargs)
    args, kwargs = internals.tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, given)
    return replace(subject, args=args, kwargs=kwargs)


def _cast(subject: Subject, dtype: torch.dtype) -> Subject:
    subject = subject.changeable()
    subject.model.to(dtype)
    return with_inputs(subject, lambda x: x.to(dtype) if x.is_floating_point() else x)


@knob("dtype of weights")
def dtypes(subject: Subject) -> Iterator[Try]:
    """Hold weights and inputs in float32 or bfloat16."""
    present = {p.dtype for p in members.parameters_of(subject.model) if p.is_floating_point()}
    if not present:
        return
    slow = {torch.float64, torch.float16} | ({torch.bfloat16} if device_type(subject) == "cpu" else set())
    wanted = [torch.float32] if present & slow else []
    for dtype in (*wanted, torch.bfloat16):
        if dtype not in present:
            name = str(dtype)[6:]
            code = f"model.to(torch.{name}), and the inputs, too"
            yield Try(f"{name} weights", code, lambda subject, dtype=dtype: _cast(subject, dtype))  # type: ignore[misc]


@knob("eval mode")
def eval_mode(subject: Subject) -> Iterator[Try]:
    """Switch dropout and the statistics of batches off."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        subject.model.eval()
        return subject

    if subject.loss is None and any(module.training for module in members.modules_of(subject.model)):
        yield Try("eval mode", "model.eval()", prepare)


@knob("attention")
def attention(subject: Subject) -> Iterator[Try]:
    """Use torch's fused attention in a model of transformers, and in torch's own where it returns unused weights."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        subject.model.set_attn_implementation("sdpa")  # type: ignore[operator]
        return subject

    config = getattr(subject.model, "config", None)
    if getattr(config, "_attn_implementation", None) == "eager" and hasattr(subject.model, "set_attn_implementation"):
        yield Try("fused attention", 'model.set_attn_implementation("sdpa")', prepare)
    if _returns_weights(subject):
        yield Try("attention without its weights", "attention(q, k, v, need_weights=False)", _without_weights)


def _returns_weights(subject: Subject) -> bool:
    """Does any attention of torch return its weights in a forward, which is run once for that?"""
    attentions = [module for module in members.modules_of(subject.model) if type(module) is nn.MultiheadAttention]
    asked: list[bool] = []

    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        asked.append(bool(kwargs.get("need_weights", args[4] if len(args) > 4 else True)))

    if attentions:
        handles = [module.register_forward_pre_hook(look, with_kwargs=True) for module in attentions]
        try:
            with contextlib.suppress(Exception), subject.unchanged() as restore:  # it is passed on by the first step
                restore()
                args, kwargs = subject.inputs()
                with subject.settings():
                    subject.model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
    return any(asked)


def _without_weights(subject: Subject) -> Subject:
    subject = subject.changeable()
    for module in members.modules_of(subject.model):
        if type(module) is nn.MultiheadAttention:
            module.forward = _fused(module.forward)  # type: ignore[method-assign]
    return subject


def _fused(forward: Callable[..., Any]) -> Callable[..., Any]:
    def fused(*args: Any, **kwargs: Any) -> Any:
        return forward(*args[:4], **{**kwargs, "need_weights": False})

    return fused


_NORMS = (WeightNorm, SpectralNorm)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@knob("hooks")
def hooks(subject: Subject) -> Iterator[Try]:
    """Run without the hooks that are on the modules."""

    def found(model: nn.Module) -> list[tuple[dict[int, Any], int]]:
        registries = [getattr(module, name) for module in members.modules_of(model) for name in _HOOKS]
        return [(one, key) for one in registries for key, hook in one.items() if not isinstance(hook, _NORMS)]

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for registry, key in found(subject.model):
            del registry[key]
        return subject

    count = len(found(subject.model))
    if count:
        yield Try("without hooks", f"remove {counted(count, 'hook')}: handle.remove()", prepare)


@knob("parametrizations")
def parametrizations(subject: Subject) -> Iterator[Try]:
    """Compute parametrized and normed weights once, and not in every run."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for module in members.modules_of(subject.model):
            if parametrize.is_parametrized(module):
                _keep_weights(module)
            for hook in [one for one in module._forward_pre_hooks.values() if isinstance(one, _NORMS)]:
                remove = remove_weight_norm if isinstance(hook, WeightNorm) else remove_spectral_norm
                remove(module, hook.name)
        return subject

    modules = members.modules_of(subject.model)
    hooks = [hook for module in modules for hook in module._forward_pre_hooks.values()]
    has_any = any(isinstance(one, _NORMS) for one in hooks) or any(map(parametrize.is_parametrized, modules))
    if subject.loss is None and has_any:
        code = "torch.nn.utils.parametrize.remove_parametrizations(module, name), or remove_weight_norm(module)"
        yield Try("weights computed once", code, prepare)


def _keep_weights(module: nn.Module) -> None:
    """Make plain parameters of parametrized ones: torch's own function changes the class, which copies share."""
    weights = {name: getattr(module, name).detach() for name in module.parametrizations}  # type: ignore[union-attr]
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]
    for name, weight in weights.items():
        module.register_parameter(name, nn.Parameter(weight, requires_grad=False))


@knob("padding")
def padding(subject: Subject) -> Iterator[Try]:
    """Cut the last steps of the inputs where they are padding in every row."""
    padded = padded_inputs(subject.args, subject.kwargs)
    if not padded:
        return
    length, longest = padded[0].length, max(one.longest for one in padded if one.length == padded[0].length)

    def cut(x: Tensor) -> Tensor:
        return x[:, :longest].contiguous() if x.dim() >= 2 and x.shape[1] == length else x

    yield Try(
        f"inputs cut from {length} to {longest} steps",
        f'pad to the longest row, {longest} (padding="longest"), instead of {length}',
        lambda subject: with_inputs(subject, cut),
    )


@knob("channels last")
def channels_last(subject: Subject) -> Iterator[Try]:
    """Hold pictures and the weights of convolutions with the channels last."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        subject.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return with_inputs(subject, lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x)

    if any(isinstance(module, nn.Conv2d) for module in members.modules_of(subject.model)):
        yield Try("channels last", "model.to(memory_format=torch.channels_last), and the inputs, too", prepare)


@knob("sparse gradients")
def sparse_gradients(subject: Subject) -> Iterator[Try]:
    """Give large embeddings a gradient of the rows that were read."""

    def tables(model: nn.Module) -> list[nn.Embedding]:
        found = [module for module in members.modules_of(model) if isinstance(module, nn.Embedding)]
        return [one for one in found if not one.sparse and one.weight.requires_grad and one.num_embeddings >= 4096]

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for table in tables(subject.model):
            table.sparse = True
        return subject

    if subject.loss is not None and tables(subject.model):
        yield Try("sparse gradients", "nn.Embedding(…, sparse=True), with SGD or SparseAdam for it", prepare)


@knob("optimizer")
def optimizers(subject: Subject) -> Iterator[Try]:
    """Let the optimizer update all parameters at once."""
    if subject.optimizer is None:
        return
    options = subject.optimizer.defaults
    for name in ("fused", "foreach"):
        if name in options and not options[name]:

            def prepare(subject: Subject, name: str = name) -> Subject:
                make = subject.make_optimizer
                assert make is not None
                subject = replace(subject, make_optimizer=lambda ps: _with_option(make(ps), name))
                return Subject.with_optimizer(subject.changeable())

            yield Try(f"{name} optimizer", f"{type(subject.optimizer).__name__}(…, {name}=True)", prepare)


def _with_option(optimizer: torch.optim.Optimizer, name: str) -> torch.optim.Optimizer:
    known = inspect.signature(type(optimizer)).parameters
    options = optimizer.defaults | {"fused": None, "foreach": None, name: True}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return type(optimizer)(parameters, **{option: value for option, value in options.items() if option in known})


@knob("untrained parameters")
def untrained(subject: Subject) -> Iterator[Try]:
    """Compute no gradients of parameters that the optimizer does not have."""

    def names(subject: Subject) -> list[str]:
        named = members.named_parameters_of(subject.model)
        return [name for name, parameter in named if name in subject.untrained and parameter.requires_grad]

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        chosen = set(names(subject))
        for name, parameter in members.named_parameters_of(subject.model):
            if name in chosen:
                parameter.requires_grad_(False)
        return subject

    count = len(names(subject))
    if subject.loss is not None and count:
        code = "parameter.requires_grad_(False) for each parameter that the optimizer does not have"
        yield Try(f"no gradients for {count} untrained parameters", code, prepare)


@knob("set_to_none")
def set_to_none(subject: Subject) -> Iterator[Try]:
    """Fill the gradients with zeros before each step, instead of throwing them away."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        for parameter in members.parameters_of(subject.model):
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        return replace(subject, sets_to_none=False)

    if subject.loss is not None:
        yield Try("gradients filled with zeros", "optimizer.zero_grad(set_to_none=False)", prepare)


@knob("int8", asked_for=True)
def int8(subject: Subject) -> Iterator[Try]:
    """Quantise linear layers to int8 while they run."""

    def prepare(subject: Subject) -> Subject:
        from torch.ao.quantization import quantize_dynamic

        subject = subject.changeable()
        return replace(subject, model=quantize_dynamic(subject.model, {nn.Linear}, torch.qint8))

    if subject.loss is None and device_type(subject) == "cpu":
        code = "torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)"
        yield Try("int8 linear layers", code, prepare)


@knob("batch size", asked_for=True)
def batch(subject: Subject) -> Iterator[Try]:
    """Run four times as many rows at once; the time is that of a row."""

    def prepare(subject: Subject) -> Subject:
        tensors = [x for x in internals.tree_leaves((subject.args, dict(subject.kwargs))) if isinstance(x, Tensor)]
        sizes = {x.shape[0] for x in tensors if x.dim()}
        if len(sizes) != 1:
            raise NotHere("the inputs have no first size in common")
        larger = with_inputs(subject, lambda x: torch.cat([x] * 4) if x.dim() else x)
        return replace(larger, rows=4 * subject.rows)

    yield Try("4 times the batch", "give 4 times as many rows at once", prepare)


@knob("compile")
def compiled(subject: Subject) -> Iterator[Try]:
    """Compile the model."""

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        return replace(subject, call=torch.compile(subject.model))

    yield Try("compile", "model = torch.compile(model)", prepare)


@knob("compile modes", asked_for=True)
def compile_modes(subject: Subject) -> Iterator[Try]:
    """Compile the model with its kernels tried, and on a GPU without the calls of the host."""
    on_gpu = device_type(subject) == "cuda"
    for mode in ("max-autotune-no-cudagraphs", *(("reduce-overhead", "max-autotune") if on_gpu else ())):

        def prepare(subject: Subject, mode: str = mode) -> Subject:
            subject = subject.changeable()
            return replace(subject, call=torch.compile(subject.model, mode=mode))

        yield Try(f"compile, {mode}", f'model = torch.compile(model, mode="{mode}")', prepare)
