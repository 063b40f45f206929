"""``call.fx``: the graph of a verified call runs on other inputs with the right bits, or refuses and says why."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import fxdebug


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(8, 8)


def graph(model: nn.Module, *inputs: Any) -> Any:
    with torch.no_grad():
        return fxdebug.fx_debug(model.eval(), inputs or torch.randn(2, 5, 8)).root.fx


def agree(model: nn.Module, made: Any, *shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        x = torch.randn(shape)
        with torch.no_grad():
            assert torch.equal(made(x), model(x)), shape


def refusal(made: Any, *args: Any) -> str:
    with torch.no_grad(), pytest.raises(fxdebug.UsageError) as caught:
        made(*args)
    return str(caught.value).partition("does not hold here: ")[2]


class Both(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return a * 2 + b, a is b


def test_one_tensor_given_twice_is_not_two() -> None:
    x, y, z = torch.randn(3, 2, 8)
    once, twice = graph(Both(), x, y), graph(Both(), x, x)
    assert torch.equal(once(y, z)[0], y * 2 + z) and torch.equal(twice(z, z)[0], z * 2 + z)
    assert refusal(twice, x, y) == "one and the same tensor is expected in two places, and two were passed"
    assert refusal(once, x, x) == "its arguments or results are arranged differently for these inputs"


class Constants(nn.Module):
    def forward(self, x: torch.Tensor, scale: float, where: Any) -> torch.Tensor:
        return x[where] * scale


def test_constants_that_compare_equal_and_are_not_the_same() -> None:
    x = torch.randn(3, 3)
    made = graph(Constants(), x, 0.0, [0, 1])
    assert torch.equal(made(x, 0.0, [0, 1]), x[[0, 1]] * 0.0)
    assert refusal(made, x, -0.0, [0, 1]) == "it holds for the argument 0.0, not for -0.0"
    assert refusal(made, x, 0.0, (0, 1)) == "a list is expected where tuple was passed"
    assert refusal(made, x, 0.0, [0, True]) == "it holds for the argument 1, not for True"


class WritesIntoWhatIsContiguous(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        whole = x.contiguous().add_(1)
        return x.clone(), whole


def test_a_layout_for_which_an_operation_copies_instead_of_returning_its_input() -> None:
    made = graph(WritesIntoWhatIsContiguous(), torch.randn(3, 8))
    assert torch.equal(*made(torch.randn(3, 8)))
    for other in (torch.randn(1, 8).expand(3, 8), torch.randn(8, 3).t(), torch.randn(3, 16)[:, ::2]):
        assert refusal(made, other).startswith("for these inputs, and as the model is now, it does something else at ")


OTHERS = ((2, 5, 8), (3, 5, 8), (2, 9, 8), (1, 1, 8), (7, 2, 8))


class Attention(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q = self.l(x).view(b, t, 2, d // 2).transpose(1, 2)
        scores = q @ q.transpose(-1, -2) / math.sqrt(d // 2)
        mask = torch.full((t, t), float("-inf")).triu(1)
        return (scores + mask).softmax(-1).matmul(q).transpose(1, 2).reshape(b, t, -1)


def test_other_batch_sizes_and_sequence_lengths() -> None:
    model = Attention()
    made = graph(model)
    assert isinstance(made, torch.fx.GraphModule)
    agree(model, made, *OTHERS)


def test_a_whole_language_model_on_another_batch_and_length() -> None:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=32, use_cache=False)
    model = GPT2Model(config).eval()
    trace = fxdebug.fx_debug(model, {"input_ids": torch.randint(0, 50, (2, 6))})
    block = next(call for call in trace.calls if call.path == "h.0.mlp")
    with torch.no_grad():
        agree(model.h[0].mlp, block.fx, (3, 6, 32), (2, 11, 32))
    made = trace.root.fx
    for shape in ((3, 6), (2, 11)):
        ids = torch.randint(0, 50, shape)
        try:
            out = made(input_ids=ids)
        except fxdebug.UsageError as error:
            pytest.fail(f"{shape}: {error}")
        assert torch.equal(out.last_hidden_state, model(ids).last_hidden_state)


def test_it_is_called_as_the_module_is() -> None:
    class Named(Layer):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, shift: float = 1.0) -> dict[str, torch.Tensor]:
            return {"y": self.l(x) * scale + shift}

    model, scale = Named(), torch.tensor(3.0)
    made = fxdebug.fx_debug(model, {"x": torch.randn(2, 8), "scale": scale}).root.fx
    x = torch.randn(4, 8)
    assert torch.equal(made(x=x, scale=scale)["y"], model(x=x, scale=scale)["y"])
    with pytest.raises(fxdebug.UsageError, match=r"does not hold here"):
        made(x=x, scale=scale, shift=2.0)
    with pytest.raises(fxdebug.UsageError, match=r"does not hold here"):
        made(x, scale=scale)


def test_gradients_flow_through_it_as_through_the_module() -> None:
    model = Attention()
    made = fxdebug.fx_debug(model, torch.randn(2, 5, 8)).root.fx
    x = torch.randn(3, 4, 8)
    (expected,) = torch.autograd.grad(model(x).sum(), model.l.weight)
    (found,) = torch.autograd.grad(made(x).sum(), model.l.weight)
    assert torch.equal(found, expected)


def test_it_is_the_model_s_weights_and_not_a_copy_of_them() -> None:
    model = Attention()
    made = graph(model)
    with torch.no_grad():
        model.l.weight.mul_(2)
    agree(model, made, (3, 4, 8))


# Refusals ------------------------------------------------------------------------------------------------------------


class Loop(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.shape[1]):
            x = self.l(x)
        return x


class Compared(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 6:
            return self.l(x) * 2
        return self.l(x)


class Repeated(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x) + torch.tensor([1.0] * x.shape[1])[:, None]


class Stepped(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.l(x[:, i]) for i in range(int(x.shape[1]))], 1)


class Unpacked(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *rest = x.unbind(1)
        return self.l(first + sum(rest))


@pytest.mark.parametrize("kind", [Loop, Compared, Repeated, Stepped, Unpacked])
def test_a_size_that_python_uses_makes_it_refuse_where_the_body_would_do_something_else(kind: type[Layer]) -> None:
    model = kind()
    made = graph(model)
    agree(model, made, (2, 5, 8), (3, 5, 8))  # another batch is none of its business
    with pytest.raises(fxdebug.UsageError, match=r"it .* at test_execute\.py:\d+"):
        made(torch.randn(2, 7, 8))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (lambda x: x * x.sum().item(), r"item"),
        (lambda x: x * 2 if x.sum() > 0 else x, r"bool"),
        (lambda x: x[: int((x > 0).sum())], r"int"),
        (lambda x: x * sum(x.flatten().tolist()), r"tolist"),
        (lambda x: x * float(x.max()), r"float"),
    ],
)
def test_a_value_that_python_uses_makes_it_refuse_where_the_answer_is_another(what: Any, text: str) -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return what(x)

    x = torch.arange(1.0, 7.0).view(2, 3)
    made = graph(Asks(), x)
    assert any(text in guard for guard in made.guards)
    assert torch.equal(made(x), what(x))
    with pytest.raises(fxdebug.UsageError, match=rf"{text}.*test_execute\.py:\d+"):
        made(-x)


def test_other_dtypes_and_structures_are_refused() -> None:
    made = graph(Attention())
    with pytest.raises(Exception, match="same dtype"):  # as the module itself says
        made(torch.randn(2, 5, 8).double())
    with pytest.raises(fxdebug.UsageError, match=r"the graph of #0 does not hold here"):
        made([torch.randn(2, 5, 8)])
    with pytest.raises(fxdebug.UsageError, match=r"the graph of #0 does not hold here"):
        made()


def test_a_recorded_call_has_no_graph_to_run_and_says_why() -> None:
    class Escapes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) + torch.from_numpy(x.numpy())

    call = fxdebug.fx_debug(Escapes(), torch.randn(2, 8)).root
    line = r"a tensor can be changed unseen through numpy\(\) \(test_execute\.py:\d+\)"
    with pytest.raises(fxdebug.UsageError, match=rf"#0 is recorded and can only be shown: {line}"):
        _ = call.fx


def test_an_opaque_call_has_no_graph_to_run_and_says_why() -> None:
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        call = fxdebug.fx_debug(nn.MultiheadAttention(8, 2, batch_first=True).eval(), (x, x, x)).root
    with pytest.raises(fxdebug.UsageError, match=r"#0 is opaque and can only be shown: MultiheadAttention runs fused"):
        _ = call.fx


def test_a_loaded_trace_can_show_its_graphs_and_not_run_them(tmp_path: Any) -> None:
    fxdebug.fx_debug(Attention(), torch.randn(2, 5, 8), save=tmp_path)
    loaded = fxdebug.load(tmp_path)
    assert loaded.root.status == "verified"
    assert "softmax" in loaded.root.code
    with pytest.raises(fxdebug.UsageError):
        _ = loaded.root.fx


def test_running_it_elsewhere_leaves_the_model_as_it_was() -> None:
    class Counts(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.l(x)

    model = Counts()
    made = graph(model)
    with pytest.raises(fxdebug.UsageError, match=r"its Python changes attributes or other objects that last"):
        made(torch.randn(9, 8))
    assert model.calls == 1
    assert "forward" not in vars(model)


class MakesItsNorm(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.LayerNorm(x.shape[-1], elementwise_affine=False)(self.l(x))


def test_a_module_without_weights_that_is_made_in_the_body_is_taken_for_the_one_that_ran() -> None:
    model = MakesItsNorm()
    agree(model, graph(model), *OTHERS)
