"""Files of others read with suspicion, files of ours written whole: regular, bounded, of the stated shape."""
