"""Records of measurements beside a trace: times and histograms."""
