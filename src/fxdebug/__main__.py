"""``python -m fxdebug`` is the command ``fxdebug``."""

from __future__ import annotations

import sys

from fxdebug.apps.cli.main import main

sys.exit(main())
