"""SVG text as PNG and PDF, with fonts of the library's own where the machine has none."""

from __future__ import annotations

from fxdebug.errors import MissingExtra

SCALE = 2  # pixels of a PNG for one of the page
MOST_PIXELS = 12_000  # along either side of a PNG


class Raster:
    """Turns SVG text into other formats; made first of all, since a picture takes seconds.

    Raises ``MissingExtra`` without its library.
    """

    def __init__(self) -> None:
        try:
            import vl_convert
        except ImportError as error:
            raise MissingExtra(
                "PNG and PDF need the extra draw: pip install 'fxdebug[draw]'; .svg needs no vl-convert-python"
            ) from error
        self._convert = vl_convert

    def png(self, svg: str, width: float, height: float) -> bytes:
        """Return a picture as PNG, two pixels for one, and fewer where it would be too large to be shown."""
        scale = min(SCALE, MOST_PIXELS / max(width, height))
        found: bytes = self._convert.svg_to_png(svg, scale=scale)
        return found

    def pdf(self, svg: str) -> bytes:
        """Return a picture as PDF: lines and letters, one page of its size."""
        found: bytes = self._convert.svg_to_pdf(svg)
        return found
