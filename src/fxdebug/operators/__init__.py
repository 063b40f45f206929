"""Facts about torch's operations and dtypes by name, without importing torch."""
