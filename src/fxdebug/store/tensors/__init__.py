"""The data of values: written as safetensors while the model runs, and read back."""
