"""Diagnosis: the steps that add error, and which operation, weight or argument is to blame."""
