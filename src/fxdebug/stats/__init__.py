"""Measure a tensor: three ways to its :class:`~fxdebug.data.values.Stats`, and why each exists.

- Compiled loops (``llvm_sums``, machine code by llvmlite, the extra ``fast``): one pass over floats of 16 to 64 bits,
  each element read once, all sums in float64. With them, measuring a tensor is almost as fast as reading it.
- Blocks of numpy and torch (``cpu_sums``): the same numbers in four passes over blocks that stay in the cache.
  Statistics must be right without llvmlite, too, and for tensors that the loops do not take: many separate rows, zeros
  of both signs, a mean much larger than the spread, magnitudes whose squares overflow, NaN and infinities.
- Batches on the device (``accelerator``): copies wait on the accelerator, are measured there together, and all results
  come over in one copy when the run is over. A number fetched earlier would make the host wait for the device.

``measure`` chooses among them, and has the arithmetic of the other dtypes and layouts (integers, complex, quantised,
sparse, nested). ``llvm_checksum`` is no statistic: it tells whether a weight was written to.
"""
