"""How well colours of text can be read, as the guidelines for the web (WCAG 2) count it."""

from __future__ import annotations

import re

LIGHT, DARK = "#ffffff", "#111111"  # pages of notebooks


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, written ``#rrggbb``: 1 where they are the same, 21 for black on white."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def unreadable(html: str, least: float = 4.0) -> set[str]:
    """Return the colours of text without a background of its own that do not stand out on a light and a dark page."""
    found = {
        colour
        for style in map("".join, re.findall(r'style="([^"]*)"|\{([^}]*)\}', html))
        if "background" not in style
        for colour in re.findall(r"(?<![-\w])color:\s*(#[0-9a-f]{6})", style)
    }
    return {colour for colour in found if min(contrast(colour, LIGHT), contrast(colour, DARK)) < least}


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
