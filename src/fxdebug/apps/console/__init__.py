"""The console: step through a forward pass, forwards and backwards, in the words of pdb."""
