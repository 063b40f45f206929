"""Units of a layer: what they return over batches, and which of them are dead, dormant or outliers."""
