"""The door of ``capture``: all that features take from it to run a model, to look at it, and to put it back."""

from fxdebug.capture.hooks.guard import Guard
from fxdebug.capture.hooks.observers import ForwardsOnly
from fxdebug.capture.pausing.edits import Edit, Edits
from fxdebug.capture.pausing.moments import Moment
from fxdebug.capture.pausing.paused_run import PausedRun
from fxdebug.capture.probes.call_times import CallTimes
from fxdebug.capture.probes.measuring_mode import MeasuringMode
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.rerun.replay_body import VerifiedBody
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.gradient_runs import run_with_gradients
from fxdebug.capture.runs.observed_run import ObservedRun
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.capture.runs.timed_runs import TimedRuns, scalar_loss
from fxdebug.capture.source.source_line import UserLines
from fxdebug.capture.tensors import special_tensors
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state import module_members as members
from fxdebug.capture.torch_state.torch_tracing import not_compiled
from fxdebug.capture.torch_state.untracked import untracked

__all__ = [
    "Attached",
    "CallTimes",
    "Edit",
    "Edits",
    "ForwardsOnly",
    "Guard",
    "MeasuringMode",
    "Moment",
    "ObservedRun",
    "PausedRun",
    "Sites",
    "TimedRuns",
    "UserLines",
    "VerifiedBody",
    "deep_copy",
    "internals",
    "members",
    "named_tensors",
    "not_compiled",
    "run_with_gradients",
    "scalar_loss",
    "special_tensors",
    "state_restored",
    "untracked",
]
