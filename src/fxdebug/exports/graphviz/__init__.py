"""Pictures by Graphviz: DOT text, rendered by dot."""
