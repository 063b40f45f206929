"""A script and its tensors that show a finding without the model and without this library."""
