"""Everything that stands in front of a function while a run is on, and its restore."""
