"""Facts and flows of a run as other programs read them, for the exporters of features."""
