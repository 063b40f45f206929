"""Candidates of a cause that no finding names: each is tried, and told where b then returns what a returns."""
