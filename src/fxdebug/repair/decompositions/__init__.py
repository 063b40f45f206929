"""Run fused operations of torch as the operations they are made of, so that a comparison sees inside."""
