"""Every rule that makes findings: the table, the thresholds, and the findings of several analyses as one report."""
