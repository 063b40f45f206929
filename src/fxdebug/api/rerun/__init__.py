"""Models that run once more: as recorded, with edits, or with fused operations written out."""
