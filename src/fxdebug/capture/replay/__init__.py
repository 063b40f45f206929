"""Run a forward again without side effects: snapshot, refuse, restore.

Begin with ``sandbox``, the one context manager that other rooms use for it. Below it:

- to restore: ``snapshot`` (everything together), ``reachable`` (which objects), ``containers`` (places that hold
  objects), ``stateful_objects`` (generators, arrays, files), ``global_settings``, ``rng``;
- to refuse: ``side_effects``; ``stateful_objects`` blocks single objects, and ``rng`` notices seeds;
- to keep others from interfering: ``paused``;
- to notice what no graph has: ``ambient_state`` (what decides how operations compute), ``references`` (who holds a
  tensor);
- to read objects without running code of the program: ``introspect``, ``functions``.
"""
