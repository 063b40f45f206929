"""Running user code: nothing outside this folder calls a model."""
