"""Diagnosis: the steps that add error, and the causes."""
