"""Regions that ``torch.compile`` compiled: each is one opaque operation, nothing inside is recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Protocol

from fxdebug.capture.hooks.patch import Attribute, OwnAttribute, Patch, SharedPatch
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
    """A function mode that is off while compiled code runs, and is told of it."""

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
        return bool(_nesting.frames)

    def enter(self, function: Any, args: Any, kwargs: Any) -> None:
        """Take the mode off: compiled code begins in this thread."""
        above = None if self._mode is None else remove_mode(self._mode)
        if self._mode is not None and above is not None:
            self._here.above = above
            self._here.noted = self._mode.enter_region(function, args, kwargs)

    def leave(self, result: Any) -> None:
        """Put the mode on again: compiled code ended in this thread; ``result`` is ``None`` where it is not known."""
        above = getattr(self._here, "above", None)
        if self._mode is not None and above is not None:
            if self._here.noted is not None:
                self._mode.leave_region(self._here.noted, result)
            insert_mode(self._mode, above)
            self._here.above = self._here.noted = None


class _Nesting(threading.local):
    """The regions this thread is in, each as the id of the Python frame of dynamo in which it begins and ends."""

    def __init__(self) -> None:
        self.frames: list[int] = []


_nesting = _Nesting()


class _Announcements(SharedPatch):
    """The patch of dynamo's announcements of regions. Its users are all :class:`CompiledRegions` that are on."""

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
            _nesting.frames.clear()

    def _announcing(self, original: Any) -> Any:
        def ours(callback: Any) -> Any:
            frame, frames = sys._getframe(1), _nesting.frames
            # Dynamo announces code that must not be compiled, too, and each end with the callback from before the
            # region: only the frame tells a beginning from an end. A context manager has one frame for each.
            ended = bool(frames) and (frames[-1] == id(frame) or frame.f_code.co_name == "__exit__")
            if ended:
                frames.pop()
                before = original(callback)  # called first: until then older torch inspects every frame, even ours
                if not frames:
                    result = frame.f_locals.get("result")
                    for regions in reversed(self.users):
                        regions.leave(result)
                return before
            if frames or callable(callback):
                if not frames:
                    found = frame.f_locals
                    for regions in self.users:
                        regions.enter(found.get("fn"), found.get("args", ()), found.get("kwargs", {}))
                frames.append(id(frame))
            return original(callback)

        internals.keep_dynamo_off(ours.__code__)
        return ours


_announced = _Announcements()
