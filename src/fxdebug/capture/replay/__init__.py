"""Run a forward again without side effects: snapshot, refuse, restore.

Begin with ``sandbox``, the one context manager that other packages use for it. Below it:

- to restore: ``snapshot`` (everything together), ``reachable`` (finds the objects), ``containers`` (places that hold
  objects), ``stateful_objects`` (generators, arrays, files), ``global_settings``, ``rng``;
- to refuse: ``side_effects``; ``stateful_objects`` blocks single objects, and ``rng`` notices seeds;
- to keep finalizers and other threads from interfering: ``pause_gc_and_threads``;
- to notice what no graph records: ``ambient_state`` (modes and settings that decide what operations compute),
  ``references`` (places where the program holds a tensor);
- to read objects without running code of the program: ``introspect``, ``functions``.
"""
