"""Text escaped for HTML, and the policy that forbids a page all scripts but its own."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape as _escaped

from fxdebug.printable import printable_lines


def policy(*scripts: str, more: str = "") -> str:
    """Return the element that forbids a page everything but its own styles and these scripts, and ``more``."""
    allowed = " ".join(
        [f"'sha256-{b64encode(sha256(script.encode('utf-8')).digest()).decode('ascii')}'" for script in scripts]
    )
    rules = "default-src 'none'; " + (f"script-src {allowed}" if allowed else "") + more
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{rules.rstrip("; ")}; '
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
    )


def escape(text: str) -> str:
    """Return text for HTML, also inside quotes; line breaks are kept."""
    return _escaped(printable_lines(text), quote=True)
