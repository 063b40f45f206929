"""The data of values as safetensors."""
