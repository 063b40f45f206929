"""The graph as DOT and as pictures."""
