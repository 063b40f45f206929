"""Draw the floors of the package into docs/floors.svg: the import lines, and what each room says of itself.

python tools/floors.py
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fxdebug"
PICTURE = ROOT / "docs" / "floors.svg"

WIDTH, MARGIN, GAP = 960, 12, 8
NAME, LINE, LETTER = 20, 15, 6.3  # heights of a name and of a line below it, width of a letter
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.name{font-weight:600;font-size:13px}"
    "rect{fill:#eef2f7;stroke:#8a99ad}.files rect{fill:#f7f7f4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#232a33;stroke:#5d6b7d}.files rect{fill:#26261f}}"
)


def floors() -> list[list[str]]:
    """Return the names of the package's import line in docs/how-it-works.md, from the lowest floor to the highest.

    >>> floors()[0]
    ['printable']
    """
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^printable < .*$", page, re.MULTILINE)
    return [re.findall(r"\w+", floor) for floor in line.split(" < ")]


def rows() -> list[list[str]]:
    """Return the rows of the picture from the top: a floor each; the files that lie below all folders share the last.

    >>> rows()[-1][0]
    'printable'
    """
    lowest = [name for floor in floors() for name in floor if not (PACKAGE / name).is_dir()]
    return [floor for floor in reversed(floors()) if floor[0] not in lowest] + [lowest]


def charter(name: str) -> str:
    """Return the first sentence of the docstring of a room; a file has its name alone."""
    if not (PACKAGE / name).is_dir():
        return ""
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`|``", r"\1", text.split("\n")[0]).rstrip(".")


def drawn() -> str:
    """Return the picture as SVG."""
    parts, y = [], MARGIN
    for row in rows():
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        texts = [textwrap.wrap(charter(name), int((width - 2 * MARGIN) / LETTER)) for name in row]
        height = 2 * GAP + NAME + LINE * max(len(lines) for lines in texts)
        boxes = [
            _box(MARGIN + i * (width + GAP), y, width, height, name, lines)
            for i, (name, lines) in enumerate(zip(row, texts, strict=True))
        ]
        kind = "folders" if any(texts) else "files"
        parts.append(f'<g class="{kind}">\n{"".join(boxes)}</g>\n')
        y += height + GAP
    size = f'width="{WIDTH}" height="{y + MARGIN - GAP}" viewBox="0 0 {WIDTH} {y + MARGIN - GAP}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{"".join(parts)}</svg>\n'


def _box(x: float, y: int, width: float, height: int, name: str, lines: list[str]) -> str:
    """Return a rectangle with a name and the lines below it."""
    left, top = x + MARGIN, y + NAME
    text = "".join(
        f'<text x="{left:g}" y="{top + (i + 1) * LINE + 2}">{escape(line)}</text>\n' for i, line in enumerate(lines)
    )
    box = f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="4"/>\n'
    return f'{box}<text class="name" x="{left:g}" y="{top}">{escape(name)}</text>\n{text}'


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
