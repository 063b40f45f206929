"""Answers about saved runs for other programs and agents, by the Model Context Protocol."""
