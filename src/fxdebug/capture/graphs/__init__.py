"""From tapes to graphs, each checked against the tape of its call."""
