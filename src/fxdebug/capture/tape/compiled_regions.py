"""Regions that ``torch.compile`` compiled: each is one opaque operation, nothing inside is recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, Protocol

from fxdebug.capture.hooks.patch import Attribute, OwnAttribute, Patch, SharedPatch
from fxdebug.capture.tape.tape_mode import UNSEEN
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.mode_stack import insert_mode, remove_mode


class WhenImported(Patch):
    """Calls ``then`` with the module named ``module`` as soon as it is imported, if that happens while this is put.

    It is an import finder that finds nothing itself. The other finders find the module; its loader, which runs the
    module's code, is patched to call ``then`` afterwards.
    """

    def __init__(self, module: str, then: Callable[[Any], None]) -> None:
        super().__init__("sys.meta_path")
        self._module = module
        self._then = then
        self._loaders: list[Patch] = []

    def read(self) -> Any:
        """Return the present content."""
        return self if self in sys.meta_path else None

    def write(self, content: Any) -> None:
        """Become the first finder, or stop being one."""
        if content is self:
            sys.meta_path.insert(0, self)
        while content is None and self in sys.meta_path:
            sys.meta_path.remove(self)

    def replacement(self, original: Any) -> Any:
        """Return our content."""
        return self

    def restore(self) -> None:
        """Stop being a finder, and restore the loaders that were patched so far."""
        super().restore()
        while self._loaders:
            self._loaders[-1].restore()
            self._loaders.pop()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders find, if it is of the awaited module."""
        if name != self._module:
            return None
        found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module") and hasattr(loader, "__dict__"):
            run = loader.exec_module

            def run_and_tell(module: ModuleType) -> None:
                patch.restore()
                run(module)
                if self.is_put:
                    self.restore()
                    self._then(module)

            patch = OwnAttribute("<loader>.exec_module", loader.__dict__, "exec_module", run_and_tell)
            self._loaders.append(patch)
            patch.put()
        return spec


# torch.compile'd functions -----------------------------------------------------------------------


class StepsAside(Protocol):
    """A function mode that is off while compiled code runs, and is notified of it."""

    def enter_region(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Note that compiled code is about to run; return what :meth:`leave_region` is to be given, or ``None``."""

    def leave_region(self, region: Any, result: Any) -> None:
        """Note the result of compiled code."""


class CompiledRegions:
    """Takes a mode of ours off while compiled code runs, wherever it is called from: the tape, or that of a probe.

    A mode would make ``torch.compile`` run its functions eagerly. Dynamo announces the beginning and end of each region
    by calling ``_maybe_set_eval_frame``, which is patched while recordings are on. If the program compiles for the
    first time during a recording, dynamo is imported only then.
    """

    def __init__(self, mode: StepsAside | None) -> None:
        self._mode = mode
        self._here = threading.local()

    def begin(self) -> None:
        """Begin, now or at the moment when dynamo is imported."""
        _announced.begin(self)

    def end(self) -> None:
        """End; recordings may end in any order."""
        _announced.end(self)

    @staticmethod
    def is_inside() -> bool:
        """Is compiled code running in this thread? Modules that it calls are the compiler's own."""
        return _announced.here.open is not None

    def enter(self, function: Any, args: Any, kwargs: Any) -> None:
        """Take the mode off: compiled code begins in this thread."""
        above = None if self._mode is None else remove_mode(self._mode)
        if self._mode is not None and above is not None:
            self._here.above = above
            self._here.noted = self._mode.enter_region(function, args, kwargs)

    def leave(self, result: Any) -> None:
        """Put the mode on again: compiled code ended in this thread, with this result or :data:`UNSEEN`."""
        above = getattr(self._here, "above", None)
        if self._mode is not None and above is not None:
            if self._here.noted is not None:
                self._mode.leave_region(self._here.noted, result)
            insert_mode(self._mode, above)
            self._here.above = self._here.noted = None


class _Here(threading.local):
    """The region that this thread is in, without those inside it: where it began, and the exception handled then."""

    def __init__(self) -> None:
        self.open: int | None = None  # the id of the frame of dynamo, or of the context manager, that ends it, too
        self.handled: BaseException | None = None


class _Announcements(SharedPatch):
    """The patch of dynamo's announcements of regions. Its users are all :class:`CompiledRegions` that are on."""

    def __init__(self) -> None:
        super().__init__()
        self.here = _Here()

    def places(self) -> tuple[Patch, ...]:
        """Return the places to patch now."""
        dynamo = sys.modules.get(internals.COMPILED)
        return (WhenImported(internals.COMPILED, self._loaded),) if dynamo is None else self._in(dynamo)

    def _loaded(self, dynamo: Any) -> None:
        for patch in self._in(dynamo):
            self.add(patch)

    def _in(self, dynamo: Any) -> tuple[Patch, ...]:
        if not internals.announces_regions(dynamo):
            return ()
        patch = Attribute(
            "torch._dynamo.eval_frame._maybe_set_eval_frame", dynamo, "_maybe_set_eval_frame", self._announcing
        )
        return (patch,)

    def end(self, user: Any) -> None:
        """Restore, if this is the last user."""
        super().end(user)
        if not self.users:
            self.here = _Here()  # of all threads: their regions end unannounced

    def _announcing(self, original: Any) -> Any:
        def ours(callback: Any) -> Any:
            frame, here = sys._getframe(1), self.here
            place = _place_of(frame)
            if here.open == place:  # called first: until then older torch inspects every frame, even ours
                before = original(callback)
                here.open = None
                _with_result(frame, sys.exc_info()[1] is not here.handled, self._left)
                return before
            if here.open is None and callable(callback) and not _gives_back(frame, callback):
                found = frame.f_locals
                for regions in self.users:
                    regions.enter(found.get("fn"), found.get("args", ()), found.get("kwargs", {}))
                here.open, here.handled = place, sys.exc_info()[1]
            return original(callback)

        internals.keep_dynamo_off(ours.__code__)
        return ours

    def _left(self, result: Any) -> None:
        for regions in reversed(self.users):
            regions.leave(result)


def _place_of(frame: FrameType) -> int:
    """Return what the beginning and the end of a region have in common; a context manager has a frame for each."""
    is_of_manager = frame.f_code.co_name in ("__enter__", "__exit__")
    return id(frame.f_locals.get("self") if is_of_manager else frame)


def _gives_back(frame: FrameType, callback: Any) -> bool:
    """Does dynamo set the callback from before? Then something ends whose beginning was not announced.

    It announces code that must not be compiled, too, of which torch 2.14 announces only the end.
    """
    return frame.f_locals.get("prior", _announced) is callback


def _with_result(frame: FrameType, has_raised: bool, then: Callable[[Any], None]) -> None:
    """Call ``then`` with what a region returned, ``None`` if it raised.

    Dynamo of torch 2.8 and 2.9 has that in no variable: a profile function sees it as soon as the frame returns, if the
    program has no profiler of its own.
    """
    found = frame.f_locals.get("result", None if has_raised else UNSEEN)
    if found is not UNSEEN or sys.getprofile() is not None or frame.f_code.co_name == "__exit__":
        then(found)
        return

    def profile(at: FrameType, event: str, result: Any) -> None:
        if at is frame and event == "return":
            sys.setprofile(None)
            then(result)

    sys.setprofile(profile)


_announced = _Announcements()
