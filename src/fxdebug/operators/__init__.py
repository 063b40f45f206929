"""What is known of torch's operations and dtypes by name; no torch import."""
