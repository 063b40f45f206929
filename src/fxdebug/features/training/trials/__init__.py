"""Is advice on a training right: the change is made on a copy, beside one as it is, both judged on held batches."""
