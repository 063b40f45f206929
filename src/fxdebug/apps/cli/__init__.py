"""The command `fxdebug`."""
