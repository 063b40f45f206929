"""Tracebacks of the model's exceptions, without the debugger's frames."""

from __future__ import annotations

from types import TracebackType

from fxdebug.capture.hooks.module_call import is_our_code
from fxdebug.capture.torch_state.callers_frame import is_in_between
from fxdebug.capture.torch_state.whose_code import is_our_file


def without_our_frames(link: TracebackType | None) -> TracebackType | None:
    """Return the traceback as it would be without the debugger: its frames are taken out of the chain."""
    others = []
    while link is not None:
        code = link.tb_frame.f_code
        if not is_our_file(code.co_filename) and not is_our_code(code) and not is_in_between(code):
            others.append(link)
        link = link.tb_next
    chain: TracebackType | None = None
    for link in reversed(others):
        line = -1 if link.tb_lineno is None else link.tb_lineno  # type: ignore[redundant-expr]  # interrupted: none
        chain = TracebackType(chain, link.tb_frame, link.tb_lasti, line)
    return chain
