"""Measure a tensor: three ways to its :class:`~fxdebug.data.values.Stats`, and why each exists.

- Blocks of numpy and torch (``cpu_sums``): four passes over blocks that stay in the cache. This way is the reference:
  it takes every dtype and layout, zeros of both signs, and a mean much larger than the spread.
- The native core (``fxdebug.native``), where it is built: one pass over plain dense tensors on the CPU, each element
  read once, all sums in float64. With it, measuring a tensor is almost as fast as reading it.
- Batches on the device (``accelerator``): copies wait on the accelerator, are measured there together, and all results
  come over in one copy when the run is over. A number fetched earlier would make the host wait for the device.

``measure`` chooses among them, and has the arithmetic of the other dtypes and layouts (integers, complex, quantised,
sparse, nested).
"""
