"""Write out torch's recurrent layers: layer by layer, direction by direction, step by step, gate by gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

MOST_STEPS = 96  # steps of all layers and directions: the record of a longer sequence would be long
Cell: TypeAlias = Callable[[Tensor, tuple[Tensor, ...], Sequence[Tensor]], tuple[Tensor, ...]]
"""From an input, a state and weights to the next state, whose first tensor is the output."""


def lstm_cell(input: Tensor, hx: Sequence[Tensor], *weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return what ``torch.lstm_cell`` returns.

    >>> cell, x, h, c = torch.nn.LSTMCell(4, 3), torch.randn(2, 4), torch.randn(2, 3), torch.randn(2, 3)
    >>> written_out = lstm_cell(x, (h, c), *cell.parameters())
    >>> all(torch.allclose(one, other, atol=1e-5) for one, other in zip(cell(x, (h, c)), written_out))
    True
    """
    of_input, of_state = _gates(input, hx[0], weights)
    i, f, g, o = (of_input + of_state).chunk(4, 1)
    c = torch.sigmoid(f) * hx[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell(input: Tensor, hx: Tensor, *weights: Tensor | None) -> Tensor:
    """Return what ``torch.gru_cell`` returns.

    >>> cell, x, h = torch.nn.GRUCell(4, 3), torch.randn(2, 4), torch.randn(2, 3)
    >>> torch.allclose(cell(x, h), gru_cell(x, h, *cell.parameters()), atol=1e-5)
    True
    """
    of_input, of_state = _gates(input, hx, weights)
    reset_x, update_x, new_x = of_input.chunk(3, 1)
    reset_h, update_h, new_h = of_state.chunk(3, 1)
    reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + reset * new_h)
    return (1 - update) * new + update * hx


def lstm(*args: Any) -> tuple[Tensor, ...] | None:
    """Return what ``torch.lstm`` returns; ``None`` for packed or long sequences, dropout or projections.

    >>> layer, x = torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True), torch.randn(2, 5, 4)
    >>> state = torch.zeros(4, 2, 3), torch.zeros(4, 2, 3)
    >>> given = x, state, layer._flat_weights, True, 2, 0.0, False, True, True
    >>> all(torch.allclose(one, other, atol=1e-5) for one, other in zip(torch.lstm(*given), lstm(*given)))
    True
    """
    return _layers(args, lambda x, state, weights: lstm_cell(x, state, *weights))


def gru(*args: Any) -> tuple[Tensor, ...] | None:
    """Return what ``torch.gru`` returns; ``None`` for packed or long sequences, or dropout.

    >>> layer, x = torch.nn.GRU(4, 3, num_layers=2), torch.randn(5, 2, 4)
    >>> given = x, torch.zeros(2, 2, 3), layer._flat_weights, True, 2, 0.0, False, False, False
    >>> all(torch.allclose(one, other, atol=1e-5) for one, other in zip(torch.gru(*given), gru(*given)))
    True
    """
    return _layers(args, lambda x, state, weights: (gru_cell(x, state[0], *weights),))


def _gates(input: Tensor, state: Tensor, weights: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the products of an input and of a state with their weights."""
    w_ih, w_hh, b_ih, b_hh = (*weights, None, None)[:4]
    assert w_ih is not None and w_hh is not None
    return F.linear(input, w_ih, b_ih), F.linear(state, w_hh, b_hh)


def _layers(args: tuple[Any, ...], cell: Cell) -> tuple[Tensor, ...] | None:
    """Run the layers of a recurrent network by its cell; ``None`` where that is not what torch would do."""
    if len(args) != 9 or not isinstance(args[2], (list, tuple)):
        return None  # a packed sequence has its sizes in the place of its state
    x, given, weights, has_biases, layers, dropout, training, bidirectional, batch_first = args
    states = (given,) if isinstance(given, Tensor) else tuple(given)
    ways = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if x.dim() != 3 or (dropout and training) or len(weights) != each * layers * ways:
        return None
    steps = x.transpose(0, 1) if batch_first else x
    if len(steps) * layers * ways > MOST_STEPS:
        return None
    inputs, last = list(steps.unbind(0)), []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            number = layer * ways + way
            own = weights[number * each : (number + 1) * each]
            state = tuple([kind[number] for kind in states])
            made = []
            for step in inputs[::-1] if way else inputs:
                state = cell(step, state, own)
                made.append(state[0])
            outputs.append(made[::-1] if way else made)
            last.append(state)
        inputs = [torch.cat(step, -1) for step in zip(*outputs)] if ways == 2 else outputs[0]
    out = torch.stack(inputs, 1 if batch_first else 0)
    return out, *[torch.stack(kind, 0) for kind in zip(*last)]
