"""Run the tests of the native core under AddressSanitizer, with a build of its own that nothing else uses.

The sanitizer must be in the process before Python, so the tests run in a second one, with its library preloaded. What
Python and torch themselves never free is not looked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fxdebug.errors import NativeError
from fxdebug.native.build import build, cannot_build, compiler_of_this_machine

ROOT = Path(__file__).parents[1]
OPTIONS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address")  # it brings warnings about others' headers
TESTS = ("tests/native", "tests/capture/tensors/test_value_table.py", "tests/capture/tensors/test_parameters.py")


def main() -> int:
    """Build, run the tests, and return their status."""
    compiler = compiler_of_this_machine()
    if compiler is None or cannot_build() is not None:
        print(f"nothing to test: {cannot_build()}")
        return 0
    asked = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    library = Path(asked.stdout.strip())
    if not library.is_absolute():
        print(f"nothing to test: {compiler[0]} has no AddressSanitizer ({library})")
        return 0
    with tempfile.TemporaryDirectory(prefix="fxdebug-asan-") as cache:
        environment = os.environ | {
            "XDG_CACHE_HOME": cache,
            "LD_PRELOAD": str(library.resolve()),
            "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:abort_on_error=0",
            "FXDEBUG_NATIVE": "1",
        }
        os.environ["XDG_CACHE_HOME"] = cache
        try:
            build(print, options=OPTIONS)
        except NativeError as error:
            print(error)
            return 1
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "600", *TESTS, *sys.argv[1:]]
        return subprocess.run(command, env=environment, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
