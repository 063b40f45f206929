"""``Trace``: the data of a run, with one typed method for each query, and with save and export."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from fxdebug.analyses.measures import available, derive
from fxdebug.analyses.numbers import numerics
from fxdebug.api.page import display
from fxdebug.api.reports.findings import Findings
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.data.calls import Call, Parameter
from fxdebug.data.graphs import NodeKind, Status
from fxdebug.data.measures import Measure
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.exports import call_text, notebook, registry, text
from fxdebug.narrow_output import as_printed
from fxdebug.query import as_networkx, attach_measures, find, measures, node_lookup, patterns, walk
from fxdebug.query.find import TypeCondition
from fxdebug.query.measures import Number
from fxdebug.query.network import Node
from fxdebug.query.node_lookup import Place
from fxdebug.query.where import Shape, Where
from fxdebug.store import save_run

if TYPE_CHECKING:
    import networkx as nx

    from fxdebug.data.measured.histograms import Histogram
    from fxdebug.exports.drawing.options import Coloring, PictureLayout, RankDir, Theme


class _Printer(Protocol):
    def text(self, obj: str, /) -> object: ...


class ExportOptions(TypedDict, total=False):
    """The options of ``Trace.export``, which lists them by suffix."""

    depth: int | None
    fold: bool
    leaves: bool
    color: Coloring
    columns: str | Sequence[str] | None
    measures: str | Sequence[str]
    everything: bool
    rankdir: RankDir
    layout: PictureLayout | None
    theme: Theme
    ops: bool
    width: int
    whole: bool
    ranks: Sequence[TraceData]
    step: int
    experiment: str
    tracking: str
    project: str
    artifacts: str | Sequence[str] | None
    embedding: str | None
    labels: Sequence[str] | None
    check: bool | None
    reports: Sequence[ReportData[object]]
    histograms: Mapping[int, Histogram]
    remarks: Sequence[str]


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
        trace = object.__new__(cls)  # the calls have their tree already
        trace._take(data)
        return trace

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
        or about another measure of the call, as ``"time.self > 1ms"``: :attr:`measures` has their names. Numbers may
        have a unit (``1ms``, ``3MiB``, ``2GFLOP``, ``5%``); without one they are in seconds, bytes, operations.
        Raises ``NotFound`` for a name without wildcards that the trace does not know, ``UsageError`` for a condition
        that cannot be read.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0]))
        >>> [call.path for call in trace.find(type="ReLU")], [call.path for call in trace.find(where="min >= 0")]
        (['1'], ['', '1'])
        >>> [call.path for call in trace.find(type=(torch.nn.ReLU, "Identity"), where="input.min < 0")]
        ['0', '1']
        """
        derive(self, where)
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
        derive(self, where)
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

    # Measures --------------------------------------------------------------------------------------

    def with_measures(self, reports: ReportData[object] | Iterable[ReportData[object]]) -> Trace:
        """Return a copy of the trace that has the measures of a report too, or of several: of ``fxdebug.profile`` …

        A report may come from another run of the same model: its numbers are joined by path, call number and
        operation. A note of the trace says which of them belong to places that this run does not have. ``save`` writes
        the measures, and ``fxdebug.load`` reads them. Raises ``UsageError`` for a report of another model.

        >>> import torch, fxdebug
        >>> model, x = torch.nn.Linear(64, 64), torch.ones(8, 64)
        >>> profile = fxdebug.profile(model, x, repeats=2, peak=False)
        >>> trace = fxdebug.fx_debug(model, x).with_measures(profile)
        >>> sorted(trace.numbers("time.self")), [call.path for call in trace.find(where="time.self < 1s")]
        (['Linear#0', 'Linear#0/linear'], [''])
        """
        return attach_measures.with_measures(self, [reports] if isinstance(reports, ReportData) else reports)

    @property
    def measures(self) -> dict[str, Measure]:
        """The measures that the trace has numbers of, by name: those of every run, and those that were attached.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> trace.measures["duration"].unit, "flops" in trace.measures, "time.self" in trace.measures
        ('s', True, False)
        """
        return available(self)

    def numbers(self, measure: str) -> dict[str, Number]:
        """Return every number of a measure: of calls and operations by their ids, of parameters by their names.

        Numbers are in seconds, bytes, operations. Raises ``UsageError`` for a measure that the trace does not have.

        >>> import torch, fxdebug
        >>> fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2)).numbers("flops")
        {'Linear#0': 8, 'Linear#0/linear': 8}
        """
        derive(self, measure)
        return measures.numbers_of(self, measure)

    def number(self, measure: str, place: Call | Node | Value | Parameter) -> Number:
        """Return one number of a call, an operation, a value or a parameter; ``None`` where it is not known.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
        >>> trace.number("params", trace.root), trace.number("absmax", trace.root.inputs[0])
        (6, 1.0)
        """
        derive(self, measure)
        return measures.number_of(self, place, measure)

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
        return Findings.of(numerics.check_numerics(self, tensors=tensors))

    def save(self, folder: str | os.PathLike[str], *, private: bool = False) -> Path:
        """Write the run to a folder, with the standard tree and the tensors that were kept; return the folder.

        ``private=True`` leaves out folders and text of source files, texts of objects (``repr``), string arguments and
        the texts of exceptions; a note in the trace says so. Tensors and names of modules are kept. Such a trace
        stays private when it is loaded, saved again or exported, also with reports of the run itself.

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

    def export(self, path: str | os.PathLike[str], to: str | None = None, **options: Unpack[ExportOptions]) -> Path:
        """Write the trace to a file, in the format of its suffix or for the program ``to``; return the path.

        ``.svg .png .pdf``: a picture in the layout of the page, or by Graphviz with ``layout="dot"`` (``depth``,
        ``color`` by ``kind``, by ``status`` or by a measure such as ``time.self``, ``measures`` to write into the
        items, ``fold``, ``theme`` …); ``.dot .gv``: the graph for Graphviz, with the same options; ``.graphml``,
        ``.gexf`` and ``.json``: the networkx graph; ``.html``: the page of the run, see :meth:`show`; ``.txt``: the
        tree as text; ``.md``: the state of the run to paste into an issue; ``.mmd``: a Mermaid flowchart;
        ``.onnx``, ``netron``: the run as ONNX, for Netron (``measures``, ``whole``); ``tensorboard``: a folder with
        graph, times, numbers of calls as scalars of a ``step``, and an ``embedding`` with ``labels``;
        ``model-explorer``: a folder with the graph and overlays (``measures``), or a ``.json`` with the graph alone;
        ``perfetto`` or ``.pftrace``, ``chrome-trace`` or ``.trace.json``, ``speedscope`` or ``.speedscope.json``: calls
        in time (``ranks``: traces of further ranks); ``mlflow``: a run in a database (``measures``, ``step``,
        ``experiment``; ``tracking``: a server in its place; ``artifacts`` to log); ``wandb``: a folder (``measures``,
        ``step``, ``project``, ``artifacts``).
        Raises ``UsageError`` for a form that there is not, ``MissingExtra`` where a picture cannot be drawn here.

        >>> import torch, fxdebug, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2)).export(folder + "/relu.dot", depth=1).name
        'relu.dot'
        """
        chosen: Mapping[str, object] = options
        trace = self
        if registry.form_of("trace", Path(path), to) == ".html":
            trace, chosen = display.prepared(self, options)
        with collect_less_often.block():
            return registry.export("trace", trace, Path(path), to=to, **chosen)

    def show(self, *, check: bool | None = None, reports: Sequence[ReportData[object]] = ()) -> display.Page:
        """Open the page of the run in the browser, or in the cell of a notebook: one file that needs no network.

        It shows the tree and the graph, the numbers of every call and operation with their source lines, searches,
        colours by any measure, folds repeated layers. ``check``: with the findings of :meth:`check`; ``None``: unless
        the run is very large, which a note says. ``reports``: of
        other analyses, such as ``fxdebug.profile`` (times), ``fxdebug.memory``, ``fxdebug.attention``,
        ``fxdebug.activations``; their measures are colours of the graph. The attention maps and histograms of a run
        with ``values="tensors"`` are there anyway.

            trace.show()
        """
        return display.show("trace", self, {"check": check, "reports": reports})

    def text(
        self,
        *,
        width: int | None = None,
        color: bool | None = None,
        fold: bool = True,
        depth: int | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> str:
        """Return the call tree as text, as ``print(trace)`` shows it, in ``width`` columns.

        ``width`` and ``color`` default to those of the terminal (80 columns and no colour where output is piped).
        ``fold=False`` shows every layer; ``depth`` limits the levels. ``columns`` takes the place of the statistics:
        names of measures of calls (:attr:`measures`), and ``input``, ``output``, ``dtype``, ``kernel``, ``status``,
        ``source``. Numbers of repeated layers are summed where they add up, else pooled or averaged.
        Raises ``UsageError`` for a column that the run does not have.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
        >>> print("\\n".join(trace.text(width=80, columns="output,flops,params").splitlines()[1:]))
                   flops
        call   out  FLOP params
        Linear 1×2     8      6
        """
        return text.tree(self, width=width, color=color, fold=fold, depth=depth, columns=columns)

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
        return as_printed(self.text())

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        printer.text(str(self))  # at the prompt of IPython

    def _repr_html_(self) -> str:
        return notebook.cell(self)
