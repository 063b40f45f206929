"""One page that shows a whole run, or two runs side by side: what is in it, how it is packed, the file."""
