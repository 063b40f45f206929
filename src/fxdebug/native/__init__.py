"""A native core, built for the torch that is installed: what Python does for every tensor and operation, in C++."""
