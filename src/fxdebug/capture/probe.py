"""The door of ``capture``: all that features take from it to run a model, to look at it, and to put it back.

A name is a class or a function, or a module where features need several functions about one subject.
"""

from fxdebug.capture.hooks import patch
from fxdebug.capture.hooks.errors_to_notes import Guard
from fxdebug.capture.hooks.observers import ForwardsOnly
from fxdebug.capture.pausing import edits
from fxdebug.capture.pausing.moments import Moment
from fxdebug.capture.pausing.paused_run import PausedRun
from fxdebug.capture.probes.measuring_mode import MeasuringMode
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.replay.pause_gc_and_threads import gc_paused
from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.runnable_graphs.changed_call import VerifiedBody
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.observed_run import ObservedRun
from fxdebug.capture.runs.root_forward import root_forward
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.capture.source.source_line import UserLines
from fxdebug.capture.tensors import special_tensors
from fxdebug.capture.tensors.named_tensors import named_tensors, tensors_in
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state import module_members as members
from fxdebug.capture.torch_state.untracked import is_in_transform, untracked

__all__ = [
    "Attached",
    "ForwardsOnly",
    "Guard",
    "MeasuringMode",
    "Moment",
    "ObservedRun",
    "PausedRun",
    "RngSnapshot",
    "Sites",
    "UserLines",
    "VerifiedBody",
    "deep_copy",
    "edits",
    "gc_paused",
    "internals",
    "is_in_transform",
    "members",
    "named_tensors",
    "patch",
    "root_forward",
    "special_tensors",
    "state_restored",
    "tensors_in",
    "untracked",
]
