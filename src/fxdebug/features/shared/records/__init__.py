"""Records that features measure: distributions, gradients, units, trainings."""
