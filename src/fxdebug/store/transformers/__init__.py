"""The debug tree of transformers, written and read, byte for byte."""
