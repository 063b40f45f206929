"""Run the tests of one file: those beside it in tests/, and those that import it; the first line says which.

python tools/tests_of.py src/fxdebug/query/find.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "src" / "fxdebug", ROOT / "tests"


def tests_of(file: Path) -> list[Path]:
    """Return the test files of a source file: with its name, else of its folder, and those that import it.

    >>> [path.name for path in tests_of(PACKAGE / "query" / "find.py")][:1]
    ['test_find.py']
    """
    place = file.resolve().relative_to(PACKAGE)
    own = sorted(TESTS.joinpath(place.parent).glob(f"**/test_{place.stem}*.py"))
    module = ".".join(("fxdebug", *place.with_suffix("").parts)).removesuffix(".__init__")
    importing = [path for path in sorted(TESTS.rglob("test_*.py")) if module in _imported(path)]
    found = list(dict.fromkeys([*own, *importing]))
    folder = TESTS / place.parent
    while not found and folder != TESTS.parent:
        found = sorted(folder.rglob("test_*.py")) if folder.is_dir() and folder != TESTS else []
        folder = folder.parent
    return found


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def main() -> int:
    """Print and run the tests of the file that is named."""
    if len(sys.argv) != 2:
        print("name one file: make test-of FILE=src/fxdebug/query/find.py", file=sys.stderr)
        return 2
    file = Path(sys.argv[1])
    if not file.is_file() or not file.resolve().is_relative_to(PACKAGE):
        print(f"{file} is no file of {PACKAGE.relative_to(ROOT)}", file=sys.stderr)
        return 2
    found = tests_of(file)
    if not found:
        print(f"no test has the name of {file} or imports it: make test runs all", file=sys.stderr)
        return 2
    print(f"{file}: {', '.join(str(path.relative_to(ROOT)) for path in found)}", flush=True)
    return subprocess.call([sys.executable, "-m", "pytest", "-q", *map(str, found)], cwd=ROOT)


if __name__ == "__main__":
    raise SystemExit(main())
