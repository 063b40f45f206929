"""One call as text: where it stands, its inputs, outputs and weights with statistics, and its code."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from fxdebug.cells import cell_len, shortened_to, wrapped
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, leaves
from fxdebug.exports.columns import number
from fxdebug.exports.records import tensor_label
from fxdebug.exports.screen import Screen, wants_color
from fxdebug.exports.text import not_finite
from fxdebug.printable import printable
from fxdebug.query.measures import Tensor
from fxdebug.query.names import own_parameters

_LONGEST_TEXT = 60  # characters of an argument that is no tensor


def call_text(trace: TraceData, call: Call, *, width: int | None = None, color: bool | None = None) -> str:
    """Return one call as text: inputs, outputs, weights of the module itself, its code as torch.fx writes it."""
    if width is None:
        width = shutil.get_terminal_size().columns
    console = Screen(width, wants_color() if color is None else color)
    console.print(_headline(call))
    for line in _facts(call):
        console.print(Text("\n".join(wrapped(printable(line), width, further="  ")), "dim"))
    parts: dict[str, list[tuple[str, Tensor | str]]] = {
        "inputs": list(_arguments(call)),
        "outputs": list(_results(call)),
        "weights": [(parameter.name, parameter) for parameter in own_parameters(trace, call)],
    }
    for title, rows in parts.items():
        if rows:
            console.print()
            console.print(_table(title, rows, width))
    console.print()
    if call.code:
        console.print(Text(call.code), soft_wrap=True)
    else:
        console.print(Text(f"no code: {call.reason or 'the run was made with graph=False'}", "yellow"))
    return console.text()


def _headline(call: Call) -> Text:
    parts = [call.type, call.status or "", f"{call.duration * 1e3:.1f} ms"]
    return Text.assemble((call.id, "bold"), "  ", " · ".join(filter(None, parts)))


def _facts(call: Call) -> Iterator[str]:
    """Yield lines about where the call stands and how it ended."""
    if call.parent is not None:
        yield f"in {call.parent.id} {call.parent.type}" + (
            f", at {call.source.rpartition('/')[2]}" if call.source else ""
        )
    if call.error is not None:
        yield f"raised {call.error}"
    if call.reason:
        yield f"{call.status}: {call.reason}"
    if call.children:
        names = [child.id for child in call.children]
        yield f"calls {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    for note in call.notes:
        yield f"note: {note.what}"


def _arguments(call: Call) -> Iterator[tuple[str, Tensor | str]]:
    for position, item in enumerate(call.inputs.args):
        yield from _tensors_or_text(f"args[{position}]", item)
    for name, item in call.inputs.kwargs.items():
        yield from _tensors_or_text(name, item)


def _results(call: Call) -> Iterator[tuple[str, Tensor | str]]:
    if call.outputs is not None:
        yield from _tensors_or_text("", call.outputs.item)


def _tensors_or_text(slot: str, item: Item) -> Iterator[tuple[str, Tensor | str]]:
    """Yield the tensors inside an item, or the item itself as text where there is none."""
    found = list(leaves(item, slot))
    yield from found
    if not found:
        if isinstance(item, (Thing, Group)):
            yield slot, item.text or item.type
        else:
            yield slot, repr(item)


def _table(title: str, rows: Sequence[tuple[str, Tensor | str]], width: int) -> Table:
    """Return the tensors of one kind with their statistics; dtype and shape stay when there is little room."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    bad = any(not isinstance(tensor, str) and _not_finite(tensor) for _, tensor in rows)
    columns = [title, "", "mean", "std", "min", "max", *(["not finite"] if bad else [])]
    lines = [list(_cells(name, tensor, bad)) for name, tensor in rows]
    sizes = [max(cell_len(column), *(line[i].cell_len for line in lines)) for i, column in enumerate(columns)]
    shown = list(range(len(columns)))
    for dropped in ("std", "min", "max", "mean"):
        if sum(sizes[i] + 2 for i in shown) <= width:
            break
        shown.remove(columns.index(dropped))
    for i in shown:
        side = "right" if columns[i] in ("mean", "std", "min", "max") else "left"
        table.add_column(columns[i], justify=side, no_wrap=True)  # type: ignore[arg-type]
    for line in lines:
        table.add_row(*[line[i] for i in shown])
    return table


def _cells(name: str, tensor: Tensor | str, bad: bool) -> Iterable[Text]:
    yield Text(name or "result")
    if isinstance(tensor, str):
        yield Text(shortened_to(tensor, _LONGEST_TEXT), "dim")
        yield from [Text("")] * (4 + bad)
        return
    stats = tensor.stats
    yield Text(tensor_label(tensor))
    for statistic in ("mean", "std", "min", "max"):
        yield Text(number(None if stats is None else getattr(stats, statistic)), "red" if _not_finite(tensor) else "")
    if bad:
        yield Text(_not_finite(tensor), "bold red")


def _not_finite(tensor: Tensor) -> str:
    return "" if tensor.stats is None else not_finite(tensor.stats)
