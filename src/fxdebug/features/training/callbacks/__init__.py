"""Callbacks for the trainers of other libraries: watch a training, trace some of its steps."""
