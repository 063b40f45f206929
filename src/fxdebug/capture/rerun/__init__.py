"""A proven graph on other inputs (`call.fx`), and the graphs of a run, made when asked for."""
