"""Run a forward again without side effects: snapshot, refuse, restore."""
