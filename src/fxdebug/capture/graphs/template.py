"""The template of a body's graph: a tape in which slots stand for tensors, and expressions for sizes.

A template that was proven for one call is matched with the tapes of other calls. Its operations are
:class:`~fxdebug.capture.tape.call_tape.TapeEntry` like those of a tape; only the leaves of their arguments differ:
a :class:`Slot`, an :class:`Attribute`, an :class:`OpaqueSlot` or a
:class:`~fxdebug.capture.graphs.symbolic_size.Size` where the tape has a tensor's id, an object or a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from fxdebug.capture.graphs.symbolic_size import Size
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.tape.call_tape import TapeEntry
from fxdebug.capture.tape.encoding import Struct, leaves_in
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.data.graphs import Guard

if TYPE_CHECKING:
    from fxdebug.capture.graphs.to_fx import FxBuild


class Slot:
    """A tensor that is an argument or the result of an operation, by number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Attribute:
    """A tensor or other object that the module holds, by name; a tensor without a name stands for itself."""

    __slots__ = ("name", "tensor")

    def __init__(self, name: str | None, tensor: Any) -> None:
        self.name = name
        self.tensor = tensor


class OpaqueSlot:
    """An object that is compared by identity: the same number is the same object.

    ``contents`` is the template of what it holds, where it comes first and can be made anew from that.
    """

    __slots__ = ("contents", "number", "type")

    def __init__(self, number: int, type: type, contents: Struct | None = None) -> None:
        self.number = number
        self.type = type
        self.contents = contents


class TensorInObject(NamedTuple):
    """A tensor in an object that is compared by identity, with the steps that lead to it.

    A step is a key, and whether it is the name of an attribute.
    """

    object: OpaqueSlot
    steps: tuple[tuple[Any, bool], ...]


class AssignedByCall(NamedTuple):
    """A tensor that a call in the body made and assigned to an attribute of a module, as a layer does with its loss.

    ``owner`` is the path of the module; ``steps`` lead from the attribute to the tensor, as in
    :class:`TensorInObject`. The attribute is read whenever the graph runs, after that call.
    """

    owner: str
    name: str
    steps: tuple[tuple[Any, bool], ...] = ()


class HandedOver(NamedTuple):
    """A tensor that a body passes to a call in an attribute, not as an argument, as hooks that compute a weight do.

    ``owner`` is the module with the attribute: its path, or the module itself where it has no path. ``is_registered``:
    it takes the place of a parameter or buffer, for the length of the call, as in ``torch.func.functional_call``.
    """

    owner: str | nn.Module
    name: str
    tensor: Slot | Attribute | TensorInObject | AssignedByCall
    is_registered: bool = False


class Switched(NamedTuple):
    """A number, text or flag that a body sets for the length of a call: in a class, as for a switch, or in a module.

    ``owner`` is the class or the module: its path, or the module itself where it has no path.
    """

    owner: str | nn.Module | type
    name: str
    content: Any


@dataclass(frozen=True, slots=True)
class TemplateGuard(Guard):
    """An assumption of a template, with the operation that gave the answer if a tensor's value was asked for."""

    entry: int | None = None


@dataclass(eq=False)
class GraphTemplate:
    """The graph of a body in template form.

    The first ``inputs`` slots are tensors among the arguments, ``input_names`` their names. ``given_sizes`` are the
    integers among the arguments that the caller computed from sizes, by their position among the leaves; sizes stand
    for them. An entry that is a call of a child has the child's path as its ``what``, or the module itself where it has
    no path. ``handed_over`` are the tensors in attributes that such an entry takes, by its index, and ``switched`` what
    the body sets around it. ``forwards_only`` are such entries whose hooks or ``__call__`` compute something: that is
    in this graph, and only the module's ``forward`` is left to call. ``names`` are slots for further names of a tensor,
    which an operation gave it that returned its argument, each with the slot of the first name; those in
    ``written_names`` are of tensors that an operation wrote to and returned, so that all names have the new numbers.
    ``written`` are such results, by entry and place.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    entries: list[TapeEntry] = field(default_factory=list)
    out: Any = None
    handed_over: dict[int, tuple[HandedOver, ...]] = field(default_factory=dict)
    switched: dict[int, tuple[Switched, ...]] = field(default_factory=dict)
    forwards_only: set[int] = field(default_factory=set)
    guards: list[TemplateGuard] = field(default_factory=list)
    names: dict[int, int] = field(default_factory=dict)
    written_names: set[int] = field(default_factory=set)
    written: frozenset[tuple[int, int]] = frozenset()
    slots: int = 0  # the number of slots
    inputs: int = 0
    opaque_slots: int = 0  # the number of objects compared by identity
    context: Context = (True, False, None)
    input_names: tuple[str, ...] = ()
    given_sizes: frozenset[int] = frozenset()
    size_names: tuple[str, ...] = ()
    changed_by_calls: set[int] = field(default_factory=set)  # objects that only its calls change, not its body
    for_class: bool = True  # it may hold for other instances of the class: it names nothing by identity
    traits: tuple[Any, ...] = ()  # of the module it was traced for
    hooks: tuple[Any, ...] = ()  # around the calls in its body, in the run that it was traced for
    numbers: tuple[Any, ...] = ()  # that the body's code may have read, in that run
    not_reusable: ReasonText | None = None  # why the graph, right for its own run, is not run on other inputs
    fx_build: FxBuild | None = None  # the torch.fx graph, once it was asked for
    assumed: ReasonText | None = None  # the first guards in words, once they were asked for
    sizes_passed: tuple[tuple[int, frozenset[int]], ...] | None = None  # see :func:`sizes_passed`

    def places_assigned(self) -> set[AssignedByCall]:
        """Return the attributes in which calls left tensors that the body takes."""
        handed = [each.tensor for given in self.handed_over.values() for each in given]
        codes = (self.out, handed, [(entry.args, entry.kwargs) for entry in self.entries])
        return {leaf for leaf in leaves_in(codes) if type(leaf) is AssignedByCall}


def sizes_passed(template: GraphTemplate) -> tuple[tuple[int, frozenset[int]], ...]:
    """Return the entries that pass sizes to a call of a child, and which of its arguments' leaves are sizes."""
    if template.sizes_passed is None:
        found = [(index, _sizes_in(entry)) for index, entry in enumerate(template.entries) if is_call(entry)]
        template.sizes_passed = tuple([(index, sizes) for index, sizes in found if sizes])
    return template.sizes_passed


def _sizes_in(entry: TapeEntry) -> frozenset[int]:
    leaves = enumerate(leaves_in((entry.args, entry.kwargs)))
    return frozenset([number for number, leaf in leaves if type(leaf) is Size])


def is_call(entry: TapeEntry) -> bool:
    """Is this entry, of a tape or of a template, the call of a module?"""
    return type(entry.what) is str or isinstance(entry.what, nn.Module)
