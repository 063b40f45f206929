"""Does a training learn, and if not, why: rules over its whole history, the first that holds is the verdict."""
