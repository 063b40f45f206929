"""The test bench of planted faults: pairs of models, what differs between them, and who is to be named.

``originals``  small models of transformers, weighted so that every scale, mask and norm shows
``families``   the same for further families; ``own_models`` has those that people write from torch's own layers
``ports_*``    the same models written again with other names, nesting and functions, and the way weights get there
``case``       what a planted fault and an equal pair are; ``fault`` and ``equal`` collect them
``in_*``       the faults, in copies of the originals and in the ports
``equal_*``    pairs in which nothing may be found
``mutants``    small models with one fault at a random place, drawn anew each time, and a judge of what is told
``judge``      runs a pair in a mode, compares, and says whether the answer is right

Nothing in here knows how ``fxdebug.compare`` works.
"""
