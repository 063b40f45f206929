"""The gradients of two steps against each other: what factor fits all, which parameters differ, and why."""
