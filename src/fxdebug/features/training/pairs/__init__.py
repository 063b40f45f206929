"""Do targets belong to their inputs: the same for the same input, in the right row, and the right way round?"""
