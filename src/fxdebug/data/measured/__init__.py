"""Records of measurements beside a trace: times, memory, distributions, gradients, weights, training."""
