"""The zoo of models that promises are tried on; `zoo.py` has the models, `zoo_hf.py` those of transformers."""
