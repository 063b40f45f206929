"""Times of calls and operations, repeated: for profiles, memory and attention."""
