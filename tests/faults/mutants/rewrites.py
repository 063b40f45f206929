"""Healthy rewrites, as a table: the same mathematics in another spelling, as a port has it."""

from __future__ import annotations

import ast
from collections.abc import Callable

_TABLE: dict[str, Callable[[ast.Call], str | None]] = {
    "gelu": lambda c: None if c.keywords else "0.5 * ({0}) * (1.0 + torch.erf(({0}) / 1.4142135623730951))",
    "silu": lambda c: "({0}) * torch.sigmoid({0})",
    "relu": lambda c: "({0}).clamp(min=0)",
    "matmul": lambda c: "torch.einsum('...ij,...jk->...ik', {0}, {1})",
    "softmax": lambda c: "(lambda e: e / e.sum(dim=-1, keepdim=True))(({0} - ({0}).amax(dim=-1, keepdim=True)).exp())",
    "square": lambda c: "({0}) * ({0})",
    "rsqrt": lambda c: "1.0 / torch.sqrt({0})",
    "sigmoid": lambda c: "1.0 / (1.0 + torch.exp(-({0})))",
    "softplus": lambda c: None if c.keywords else "torch.log1p(torch.exp({0}))",
    "masked_fill": lambda c: "torch.where({1}, torch.tensor({2}), {0})",
    "scaled_dot_product_attention": lambda c: (
        "(torch.matmul({0}, ({1}).transpose(-2, -1)) / math.sqrt(({0}).shape[-1]) + "
        "torch.full((({0}).shape[2],) * 2, -1e9).triu(1)).softmax(-1) @ ({2})"
    ),
    "mean": lambda c: "(lambda t: t.sum(dim=-1, keepdim=True) / t.shape[-1])({0})" if _keeps(c) else None,
    "flatten": lambda c: "({0}).reshape(({0}).shape[0], ({0}).shape[1], -1)" if len(c.args) == 1 else None,
    "chunk": lambda c: f"({{0}}).split(({{0}}).shape[-1] // {ast.unparse(c.args[0])}, dim=-1)",
}
_MODULES = {
    "linear": "F.linear({0}, self.{name}.weight, self.{name}.bias)",
    "norm": "F.layer_norm({0}, self.{name}.normalized_shape, self.{name}.weight, self.{name}.bias, self.{name}.eps)",
    "norm, written out": (
        "(lambda t: (t - t.mean(-1, keepdim=True)) / (t.var(-1, keepdim=True, unbiased=False) + self.{name}.eps).sqrt()"
        " * self.{name}.weight + self.{name}.bias)({0})"
    ),
}


def _keeps(call: ast.Call) -> bool:
    return {k.arg for k in call.keywords} == {"dim", "keepdim"}


def rewritten(node: ast.AST, modules: dict[str, str]) -> list[tuple[ast.expr, str]]:
    """Return a call in other spellings, each with a name; ``modules`` has the classes of the model's own modules."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return []
    owner, name = node.func.value, node.func.attr
    if isinstance(owner, ast.Name) and owner.id == "self":
        kind = {"Linear": ["linear"], "LayerNorm": ["norm", "norm, written out"]}.get(modules.get(name, ""), [])
        return [(_parsed(_MODULES[each], node.args, name=name), each) for each in kind]
    method = not (isinstance(owner, ast.Name) and owner.id in ("torch", "F", "math"))
    text = _TABLE[name](node) if name in _TABLE else None
    axes = [k.value for k in node.keywords if k.arg == "dim"]
    if text is None or (name in ("softmax", "mean", "chunk") and [ast.unparse(axis) for axis in axes] != ["-1"]):
        return []
    return [(_parsed(text, [owner, *node.args] if method else node.args), name)]


def _parsed(text: str, arguments: list[ast.expr], **names: str) -> ast.expr:
    return ast.parse(text.format(*map(ast.unparse, arguments), **names), mode="eval").body
