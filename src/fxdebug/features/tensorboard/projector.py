"""A result of a run for TensorBoard's projector: one point a row of the tensor, with a label for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable
from fxdebug.query.node_lookup import node_at

_CONFIG = "projector_config.pbtxt"
MOST = 10_000  # points: the page computes the neighbours of all of them


def write_embedding(
    trace: TraceData, folder: Path, place: str, labels: Sequence[str] | None = None, *, earlier: Path
) -> Path:
    """Write the tensor of a place: rows of its last dimension as points. ``labels`` has one text for each.

    ``earlier``: the folder whose list of embeddings is continued.
    Raises ``LoadError`` for a tensor that the run did not keep, ``UsageError`` for another number of labels.
    """
    node = node_at(trace, place)
    if node.value is None:
        raise UsageError(f"{place} returns no tensor: an embedding is a tensor")
    tensor = trace.tensor(node.value)
    width = tensor.shape[-1] if tensor.ndim else 1
    rows = tensor.reshape(-1, width).cpu().double().tolist()
    if len(rows) > MOST:
        raise UsageError(f"{place} has {len(rows)} points, and the projector shows at most {MOST}: take fewer tokens")
    names = [str(number) for number in range(len(rows))] if labels is None else [printable(str(one)) for one in labels]
    if len(names) != len(rows):
        raise UsageError(f"{place} has {len(rows)} points and {len(names)} labels: give one for each")
    own = "embedding-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in node.id)[:100]
    write_text(folder / f"{own}.tsv", "".join("\t".join(map(repr, row)) + "\n" for row in rows))
    write_text(folder / f"{own}-labels.tsv", "".join(f"{name}\n" for name in names))
    shown = _in_address(node.id.removesuffix("#0"))
    entry = (
        f'embeddings {{\n  tensor_name: "{shown}"\n  tensor_path: "{own}.tsv"\n'
        f'  metadata_path: "{own}-labels.tsv"\n}}\n'
    )
    known = (earlier / _CONFIG).read_text(encoding="utf-8") if (earlier / _CONFIG).exists() else ""
    return write_text(folder / _CONFIG, known if entry in known else known + entry)


def _in_address(name: str) -> str:
    """Return a name without the letters that end it: the page puts it into an address as it is.

    >>> _in_address("h.0#1/add"), _in_address('a?b&"c')
    ('h.0:1/add', 'a_b__c')
    """
    return "".join(c if c.isalnum() or c in "-_.:/()" else "_" for c in name.replace("#", ":"))
