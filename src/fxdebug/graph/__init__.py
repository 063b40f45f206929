"""A trace as one graph: every operation, call, input, read parameter and output of a run.

Ids are readable and stable: ``encoder.layer.0.attention.self#0`` is a call, with ``/softmax`` behind it
an operation of its body. Data flows from producers through a call's placeholders and operations to its
output, from there to the node of the call itself, and on to whoever uses the result; so the graph has no
cycles, and execution order is a topological order.

``network`` has the nodes, ``flows`` the edges, ``views`` what networkx is given.
"""

from fxdebug.graph.flows import Edge, EdgeKind
from fxdebug.graph.network import Network, Node
from fxdebug.graph.views import STATISTICS, attributes, collapsed, edge_attributes, shortest_ways, some_of, to_networkx

__all__ = [
    "STATISTICS",
    "Edge",
    "EdgeKind",
    "Network",
    "Node",
    "attributes",
    "collapsed",
    "edge_attributes",
    "shortest_ways",
    "some_of",
    "to_networkx",
]
