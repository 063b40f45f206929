"""From tapes to graphs, each checked against what ran."""
