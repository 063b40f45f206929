"""``Trace``: the data of a run, with one typed method for each query, and with save and export."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from fxdebug.analyses import numerics
from fxdebug.analyses.findings import Findings
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.data.calls import Call
from fxdebug.data.graphs import NodeKind, Status
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports import call_text, html, registry, text
from fxdebug.query import as_networkx, find, node_lookup, patterns, walk
from fxdebug.query.find import TypeCondition
from fxdebug.query.network import Node
from fxdebug.query.node_lookup import Place
from fxdebug.query.where import Shape, Where
from fxdebug.store import save_run

if TYPE_CHECKING:
    import networkx as nx

    from fxdebug.exports.graphviz.options import Coloring, RankDir


class ExportOptions(TypedDict, total=False):
    """The options of ``Trace.export``, which lists them by suffix."""

    depth: int | None
    fold: bool
    leaves: bool
    color: Coloring
    everything: bool
    rankdir: RankDir
    ops: bool
    width: int


class Trace(TraceData):
    """One forward pass: its calls in execution order, the values they passed, and notes for the reader.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> trace.root.type, trace.root.outputs[0].shape
    ('Linear', (1, 3))
    """

    @classmethod
    def of(cls, data: TraceData) -> Trace:
        """Return the same run with these methods; its calls are the same objects."""
        return cls(**{field.name: getattr(data, field.name) for field in fields(data) if field.init})

    # Finding ---------------------------------------------------------------------------------------

    def find(
        self,
        path: str | None = None,
        *,
        type: TypeCondition = None,
        dtype: str | None = None,
        shape: Shape = None,
        status: Status | None = None,
        source: str | None = None,
        where: Where[Call] = None,
    ) -> list[Call]:
        """Return the calls that meet every condition, in execution order.

        ``path``: a glob over module paths and their aliases. ``type``: a glob over class names, a class such as
        ``nn.Linear`` (its subclasses count, too), or a tuple of these. ``dtype`` and ``shape`` (``"2,*,384"``): of a
        tensor it returned. ``status``: ``verified``, ``recorded`` or ``opaque``. ``source``: ``model.py``,
        ``model.py:12`` or a glob. ``where``: a function of the call, or a line about the statistics of a tensor it
        returned, as ``"absmax > 100 or nan > 0"``, of an ``input.``, of a ``parameter.`` or buffer of its own module,
        or about its ``duration`` in seconds. Raises ``NotFound`` for a name without
        wildcards that the trace does not know, ``UsageError`` for a condition that cannot be read.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0]))
        >>> [call.path for call in trace.find(type="ReLU")], [call.path for call in trace.find(where="min >= 0")]
        (['1'], ['', '1'])
        >>> [call.path for call in trace.find(type=(torch.nn.ReLU, "Identity"), where="input.min < 0")]
        ['0', '1']
        """
        return find.find_calls(
            self, path, type=type, dtype=dtype, shape=shape, status=status, source=source, where=where
        )

    def ops(
        self,
        op: str | None = None,
        *,
        path: str | None = None,
        type: TypeCondition = None,
        kind: NodeKind | None = None,
        dtype: str | None = None,
        shape: Shape = None,
        status: Status | None = None,
        source: str | None = None,
        where: Where[Node] = None,
    ) -> list[Node]:
        """Return the operations that meet every condition, in execution order.

        ``op``: a glob over their names (``softmax``, ``mat*``). ``path`` and ``type``: of the module whose
        ``forward`` ran them. ``kind``: one of torch.fx's kinds of nodes; ``call_function`` and ``call_method`` by
        default. The other conditions are those of :meth:`find`.
        Raises ``UsageError`` for a run without graphs.

        >>> import torch, fxdebug
        >>> [node.op for node in fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2)).ops()]
        ['linear']
        """
        return find.find_ops(
            self,
            op,
            path=path,
            type=type,
            kind=kind,
            dtype=dtype,
            shape=shape,
            status=status,
            source=source,
            where=where,
        )

    def __getitem__(self, name: str) -> Call:
        """Return the call of a module by its path, or any call by its id: ``trace["lm_head"]``, ``trace["cell#3"]``.

        ``trace[""]`` is the call of the model. Raises ``NotFound`` for a module that was called several times, with
        the ids of its calls, and for an unknown name, with the nearest ones.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0]))
        >>> trace["1"].type, trace["1#0"] is trace["1"]
        ('ReLU', True)
        """
        if not isinstance(name, str):
            raise UsageError(f"trace[{name!r}]: give the path of a module or the id of a call; trace.calls is a tuple")
        return node_lookup.call_at(self, name)

    __iter__ = None  # a trace is no sequence: say so, and do not try trace[0], trace[1] …

    def node(self, place: Place) -> Node:
        """Return the node of a place: a node, a call, a value (then its producer, or the input that it is) or an id.

        An id is that of a node (``h.0.attn#0/softmax``), of a call (``h.0.attn#0``), the path of a module that was
        called once, or the name of a tensor that the run was given or returned, such as ``logits``. Raises
        ``NotFound`` with the nearest ids.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2))
        >>> trace.node("0").id, trace.node(trace.calls[1].outputs[0]).op
        ('0#0', 'relu')
        """
        return node_lookup.node_at(self, place)

    # Walking ---------------------------------------------------------------------------------------

    def upstream(self, place: Place, *, steps: int | None = None) -> list[Node]:
        """Return every node that ``place`` depends on, in execution order; at most ``steps`` operations away.

        Raises ``NotFound`` for a place that is not of this trace.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2))
        >>> [node.kind for node in trace.upstream("0#0/relu")]
        ['placeholder', 'placeholder']
        """
        return walk.upstream(self, place, steps=steps)

    def downstream(self, place: Place, *, steps: int | None = None) -> list[Node]:
        """Return every node that depends on ``place``, in execution order; at most ``steps`` operations away.

        Raises ``NotFound`` for a place that is not of this trace.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2))
        >>> [node.kind for node in trace.downstream("Sequential#0/input_1", steps=1)]
        ['placeholder', 'call_function']
        """
        return walk.downstream(self, place, steps=steps)

    def producers(self, place: Place) -> list[Node]:
        """Return the nodes whose results ``place`` takes; for a call, the nodes that made its arguments.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> [node.id for node in trace.producers("1")]
        ['0#0']
        """
        return walk.producers(self, place)

    def consumers(self, place: Place) -> list[Node]:
        """Return the nodes that take the result of ``place``.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> [node.kind for node in trace.consumers("0")]
        ['placeholder']
        """
        return walk.consumers(self, place)

    def between(self, start: Place, end: Place) -> list[Node]:
        """Return every node on some path from ``start`` to ``end``, both included; empty if there is no path.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> len(trace.between("0", "1")), trace.between("1", "0")
        (5, [])
        """
        return walk.nodes_between(self, start, end)

    def paths(self, start: Place, end: Place, *, limit: int = 100) -> list[list[Node]]:
        """Return paths from ``start`` to ``end``, the shortest first, at most ``limit`` of them.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> [[node.op for node in path] for path in trace.paths("0#0/relu", "1#0/tanh")]
        [['relu', 'output', 'ReLU', 'placeholder', 'tanh']]
        """
        return walk.paths_between(self, start, end, limit=limit)

    def pattern(self, names: Sequence[str], *, within: int = 4) -> list[tuple[Node, ...]]:
        """Return the chains of operations with these names along the flow of data, one node per name.

        Up to ``within`` other steps may lie between two of them (a scaling, a mask, a dropout). At most one match
        begins at a node: the nearest one. For attention: ``["matmul", "softmax", "matmul"]``.
        Raises ``UsageError`` for no names, ``NotFound`` for an operation that the run does not have.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> [[node.path for node in match] for match in trace.pattern(["relu", "tanh"])]
        [['0', '1']]
        """
        return patterns.find_patterns(self, names, within=within)

    # As networkx -----------------------------------------------------------------------------------

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The whole run as one graph: every operation, call, input and output, with statistics on the nodes.

        >>> import torch, fxdebug
        >>> len(fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)).graph)
        4
        """
        with collect_less_often.block():
            return as_networkx.whole_graph(self)

    def graph_at(self, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
        """Return the graph with every call ``depth`` levels below the root as one node; ``ops=False``: modules only.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> list(trace.graph_at(ops=False).edges())
        [('0#0', '1#0')]
        """
        return as_networkx.graph_at(self, depth, ops=ops)

    def subgraph(self, places: Iterable[Place]) -> nx.MultiDiGraph:
        """Return the graph of some places and the edges among them.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), torch.ones(2))
        >>> list(trace.subgraph(trace.between("0", "1#0/tanh")).edges())
        [('0#0', '1#0/input_1'), ('1#0/input_1', '1#0/tanh')]
        """
        return as_networkx.subgraph(self, places)

    # Checking, saving, showing ---------------------------------------------------------------------

    def check(self, *, tensors: bool = True) -> Findings:
        """Find what is wrong with the numbers of the run, the worst first: see :func:`fxdebug.check`.

        ``tensors=False`` does not read the data that the run kept.

        >>> import torch, fxdebug
        >>> fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)).check().healthy
        True
        """
        return numerics.check_numerics(self, tensors=tensors)

    def save(self, folder: str | os.PathLike[str], *, private: bool = False) -> Path:
        """Write the run to a folder, with the standard tree and the tensors that were kept; return the folder.

        ``private=True`` leaves out folders and text of source files, texts of objects (``repr``), string arguments and
        the texts of exceptions; a note in the trace says so. Tensors and names of modules are kept.

        A trace of a distributed run goes to the subfolder of its rank, as with ``fx_debug(save=…)``, so that every
        rank can save to the same folder. Raises ``SaveError``.

        >>> import torch, fxdebug, tempfile
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fxdebug.load(trace.save(folder + "/run")) == trace
        True
        """
        with collect_less_often.block():
            return save_run.save_trace(self, folder, private=private)

    def export(self, path: str | os.PathLike[str], **options: Unpack[ExportOptions]) -> Path:
        """Write the trace to a file, in the format of its suffix; return the path.

        ``.dot .gv .svg .png .pdf``: the drawn graph (``depth``, ``color``, ``fold``, ``everything`` …); ``.graphml``
        and ``.json``: the networkx graph; ``.html``: the tree as a page; ``.txt``: as text.
        Raises ``UsageError`` for another suffix, ``MissingExtra`` where a picture cannot be drawn here.

        >>> import torch, fxdebug, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)).export(folder + "/relu.dot", depth=1).name
        'relu.dot'
        """
        return registry.export("trace", self, Path(path), **options)

    def text(
        self, *, width: int | None = None, color: bool | None = None, fold: bool = True, depth: int | None = None
    ) -> str:
        """Return the call tree as text, as ``print(trace)`` shows it, in ``width`` columns.

        ``width`` and ``color`` default to those of the terminal (80 columns and no colour where output is piped).
        ``fold=False`` shows every layer; ``depth`` limits the levels.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> trace.text(width=80, color=False).splitlines()[0].startswith("ReLU")
        True
        """
        return text.tree(self, width=width, color=color, fold=fold, depth=depth)

    def describe(self, call: Call | str, *, width: int | None = None, color: bool | None = None) -> str:
        """Return one call as text: its inputs, outputs and weights with statistics, and its code.

        ``call``: a call of this trace, or its name as in ``trace[name]``. ``width`` and ``color`` as in :meth:`text`.

        >>> import torch, fxdebug
        >>> text = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)).describe("ReLU", width=80)
        >>> [line for line in text.splitlines() if "float32" in line]
        ['args[0]  float32[2]     1    0    1    1', 'result   float32[2]     1    0    1    1']
        """
        found = self[call] if isinstance(call, str) else call
        return call_text.call_text(self, found, width=width, color=color)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html.tree(self)
