"""Which step adds the error, and why."""
