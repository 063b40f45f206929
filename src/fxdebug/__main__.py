"""``python -m fxdebug`` is the command ``fxdebug``."""

import sys

from fxdebug.apps.cli import main

sys.exit(main())
