"""Signs beside forward, backward and step: clipping, settings that nothing reads, copies of the model."""
