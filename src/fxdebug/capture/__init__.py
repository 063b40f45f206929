"""Run user code and record it; what features run besides goes through the one door, ``probe``.

The rooms, in the order in which they may import one another: ``reasons`` (texts that users read), ``torch_state`` (what
torch keeps per thread or process), ``hooks`` (patches), ``source`` (the user's lines), ``replay`` (a forward's Python
again, without side effects), ``tensors`` (identity, description and statistics of tensors), ``tape`` (operations of one
call), ``recorder`` (calls of a run), ``graphs`` (from tapes to graphs), ``runnable_graphs`` (graphs on other inputs),
``probes`` (other observers), ``runs`` (the ways to run a model), ``decompositions`` (fused operations written out),
``pausing`` (runs that wait and are changed), ``probe`` (the door for features).
"""
