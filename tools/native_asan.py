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
TESTS = (
    "tests/native",
    "tests/capture/tensors/test_value_table.py",
    "tests/capture/tensors/test_parameters.py",
    "tests/capture/recorder/test_native_calls.py",
    "tests/capture/tape/test_native_entries.py",
    "tests/capture/hooks/test_native_module_call.py",
)


def main() -> int:
    """Build, run the tests, and return their status."""
    compiler = compiler_of_this_machine()
    if compiler is None or cannot_build() is not None:
        print(f"nothing to test: {cannot_build()}")
        return 0
    # with that of C++, whose exceptions the sanitizer looks for before torch brings them
    libraries = [_file_of(compiler, name) for name in ("libasan.so", "libstdc++.so")]
    if not all(library.is_absolute() for library in libraries):
        print(f"nothing to test: {compiler[0]} has no AddressSanitizer ({libraries[0]})")
        return 0
    with tempfile.TemporaryDirectory(prefix="fxdebug-asan-") as cache:
        environment = os.environ | {
            "XDG_CACHE_HOME": cache,
            "LD_PRELOAD": " ".join(str(library.resolve()) for library in libraries),
            "ASAN_OPTIONS": f"detect_leaks=0:verify_asan_link_order=0:log_path={cache}/report",
            "FXDEBUG_NATIVE": "1",
        }
        os.environ["XDG_CACHE_HOME"] = cache
        try:
            build(print, options=OPTIONS)
        except NativeError as error:
            print(error)
            return 1
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "600", *TESTS, *sys.argv[1:]]
        status = subprocess.run(command, env=environment, cwd=ROOT).returncode
        for report in sorted(Path(cache).glob("report.*")):  # pytest holds back what a process writes before it ends
            print(report.read_text(encoding="utf-8", errors="replace"))
        return status


def _file_of(compiler: list[str], library: str) -> Path:
    """Return the path of a library of the compiler; only its name if the compiler has none."""
    asked = subprocess.run([*compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    return Path(asked.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
