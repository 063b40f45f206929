"""Learn that an epoch of transformers' ``Trainer`` raised: where a training raises, it calls none of its callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fxdebug.capture.probe import patch

METHOD = "_run_epoch"  # all that is left of a training that raises: nothing else of it is a call of its own


def tell_if_epoch_raises(tell: Callable[[BaseException], None]) -> None:
    """Call ``tell`` with the exception if the epoch raises that is about to begin; called by ``on_epoch_begin``.

    The trainer's method is replaced until it is called. A trainer without it, of a class of its own, tells nothing.
    """
    trainer = _trainer()
    if trainer is None:
        return
    run = getattr(trainer, METHOD)

    def run_epoch(*args: Any, **kwargs: Any) -> Any:
        replaced.restore()
        try:
            return run(*args, **kwargs)
        except BaseException as error:
            tell(error)
            raise

    replaced = patch.OwnAttribute("<trainer>._run_epoch", vars(trainer), METHOD, run_epoch)
    replaced.put()


def _trainer() -> Any:
    """Return the trainer that is calling its callbacks, if it has epochs as ``Trainer`` has them."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_varnames[:1] == ("self",):
            owner = frame.f_locals.get("self")
            if hasattr(type(owner), METHOD) and hasattr(owner, "callback_handler"):
                return owner
    return None
