"""A normalisation without weights right before the end: what the model returns has mean 0 and deviation 1."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import ADVICE, Finding
from fxdebug.features.structure.linear_pairs import is_border
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

PER_EXAMPLE = frozenset("instance_norm group_norm layer_norm".split())
THROUGH = frozenset("view reshape flatten squeeze unsqueeze contiguous to float transpose permute identity".split())


def find_normalised_results(net: Network) -> Iterator[Finding]:
    """Yield normalisations of single examples, without weights, behind a layer and right before the end of the model.

    With weights their mean and deviation are learned, and statistics of a batch leave examples apart.
    """
    end = net.call_id(net.trace.root)
    for node in net.nodes.values():
        if node.op not in PER_EXAMPLE or node.step is None or _has_weights(net, node) or not _reaches(net, node, end):
            continue
        yield found(
            node,
            f"{node.op} without weights makes what the model returns: of each example its mean is 0 and its deviation "
            "1, so it cannot say how much of something there is",
            rule="result normalised",
            severity=ADVICE,
            advice="Leave the norm of the last layer out, where the results are logits or amounts.",
        )


def _has_weights(net: Network, node: Node) -> bool:
    return sum(edge.value is not None for edge in net.into.get(node.id, ())) > 1


def _reaches(net: Network, node: Node, end: str) -> bool:
    """Is a result returned as it is, through views and borders of modules alone?"""
    pending = [node.id]
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            user = net.nodes[edge.target]
            if edge.target == end:
                return True
            if is_border(net.nodes[edge.source], user) or user.op in THROUGH:
                pending.append(edge.target)
    return False
