"""Commands that look at the present stop: where, up, down, list, ops, code, print, inspect, hist."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug import api
from fxdebug.cells import cell_len, padded, shortened_to
from fxdebug.data.measured.histograms import Histogram
from fxdebug.errors import NotFound, UsageError
from fxdebug.exports.columns import number
from fxdebug.features.console.expressions import Expression, Scope, shown
from fxdebug.features.console.machine import Machine, Slots, Stop
from fxdebug.features.console.session import Session
from fxdebug.features.console.stop_text import result_slot, short_source
from fxdebug.plugins.console import command
from fxdebug.query.measures import Tensor

GROUP = "look"
AROUND = 6  # lines of the code before and after the present one
OPS_AROUND = 8  # operations before and after the present one
BINS, BAR = 16, 40  # of a histogram: lines, and the columns of its longest bar


# Where ----------------------------------------------------------------------------------------------------------


@command("where w bt", "", group=GROUP)
def where(session: Session, argument: str) -> None:
    """Show the open calls, the model's own first; > marks the one that names are looked up in."""
    frames = session.machine.frames
    selected = len(frames) - 1 - session.frame_up
    for place, frame in enumerate(frames):
        source = "" if frame.source is None else short_source(frame.source)
        mark = "> " if place == selected else "  "
        session.screen.line((mark, "bold"), (frame.id, "bold"), (f"  {frame.type}", "cyan"), (f"  {source}", "dim"))
    stop = session.machine.stop
    if stop.kind == "op":
        source = "" if stop.source is None else short_source(stop.source)
        session.screen.line("    at ", (stop.id, "bold"), (f"  {source}", "dim"))


@command("up u", "[N]", group=GROUP, repeats=True)
def up(session: Session, argument: str) -> None:
    """Look from the call around this one: names, list and ops are its own then."""
    _select(session, session.frame_up + _count(argument))


@command("down", "[N]", group=GROUP, repeats=True)
def down(session: Session, argument: str) -> None:
    """Look from the call inside again."""
    _select(session, session.frame_up - _count(argument))


def _select(session: Session, frame_up: int) -> None:
    if frame_up < 0:
        raise UsageError("this is the innermost call")
    if frame_up >= len(session.machine.frames):
        raise UsageError("this is the model's own call")
    session.frame_up = frame_up
    where(session, "")


def _count(argument: str) -> int:
    if argument and not argument.isdecimal():
        raise UsageError(f"{argument!r} is no number of calls")
    return int(argument or 1)


# Code and operations --------------------------------------------------------------------------------------------


@command("list l", "", group=GROUP)
def list_(session: Session, argument: str) -> None:
    """Show the code around the line that runs, with the operations and calls of each line.

    Of a saved run, these are the lines that it kept: those that ran something.
    """
    machine = session.machine
    source, running = _present_source(session)
    if source is None:
        raise NotFound("no line of the code is known here; ops lists the operations")
    file, line = _file_and_line(source)
    ran: dict[int, list[str]] = {}
    for stop in () if running is None else machine.operations(running):
        if stop.source is not None and _file_and_line(stop.source)[0] == file:
            ran.setdefault(_file_and_line(stop.source)[1], []).append(stop.op or stop.path.rpartition(".")[2])
    known = _known_lines(machine, file, line)
    texts = {at: shortened_to(text, session.screen.width * 2 // 3) for at, text in known.items()}
    size = max(map(cell_len, texts.values()), default=0)
    for at, text in texts.items():
        here = at == line
        ops = ", ".join(dict.fromkeys(ran.get(at, ())))
        mark = ("->", "bold") if here else ("  ", "")
        session.screen.line(f"{at:>5} ", mark, " ", (padded(text, size), "bold" if here else ""), (f"  {ops}", "cyan"))


def _present_source(session: Session) -> tuple[str | None, Stop | None]:
    """Return the line that runs, and the call that it is in: where a call begins or ends, that is the one around it."""
    frames, stop = session.machine.frames, session.machine.stop
    if session.frame_up:
        return frames[len(frames) - session.frame_up].source, session.frame
    if stop.kind == "op" or (stop.error is not None and stop.error.source == stop.source):
        return stop.source, session.frame
    return stop.source, frames[-2] if len(frames) > 1 else None


def _file_and_line(source: str) -> tuple[str, int]:
    file, _, line = source.rpartition(":")
    return file, int(line) if line.isdecimal() else 0


def _known_lines(machine: Machine, file: str, line: int) -> dict[int, str]:
    """Return the lines around one whose text is known."""
    near = ((at, machine.source_text(f"{file}:{at}")) for at in range(line - AROUND, line + AROUND + 1))
    return {at: text for at, text in near if text is not None}


@command("ops o", "[all]", group=GROUP)
def ops(session: Session, argument: str) -> None:
    """List the operations of this call and the calls that it makes, with their results; "ops all" lists every one."""
    machine = session.machine
    found = list(machine.operations(session.frame))
    if not found:
        raise NotFound("the operations of this call are not known")
    present = machine.stop.number
    here = next((place for place, stop in enumerate(found) if stop.number >= present), len(found) - 1)
    if session.machine.stop.kind == "call" and session.frame_up == 0:
        here = -1
    first, last = (0, len(found)) if argument == "all" else (max(here - OPS_AROUND, 0), here + OPS_AROUND + 1)
    if first:
        session.screen.line((f"   {first} before", "dim"))
    for place, stop in enumerate(found[first:last], first):
        name = stop.id.rpartition("/")[2] if stop.kind == "op" else stop.path or stop.id
        value = stop.results[0][1] if stop.results else None
        line = "" if value is None else value.label
        mark = ("-> ", "bold") if place == here else ("   ", "")
        session.screen.line(mark, (f"{name:<20} ", "bold" if place == here else ""), (f"{line:<24} ", ""), _about(stop))
    if len(found) > last:
        session.screen.line((f"   {len(found) - last} more: ops all", "dim"))


def _about(stop: Stop) -> tuple[str, str]:
    source = "" if stop.source is None else short_source(stop.source)
    return (f"{stop.op or stop.type}  {source}", "dim")


@command("code", "", group=GROUP)
def code(session: Session, argument: str) -> None:
    """Show the graph of this call as Python, as torch.fx writes it, with the present operation marked."""
    call = session.machine.call_of(session.frame)
    if call is None or not call.code:
        reason = "" if call is None or not call.reason else f": {call.reason}"
        raise NotFound(f"this call has no graph{reason}")
    stop = session.machine.stop
    name = stop.id.rpartition("/")[2] if stop.kind == "op" and session.frame_up == 0 else ""
    if call.outputs is None and call.error is None and not session.machine.knows_all_names:
        session.screen.line(("   so far: this call has not ended", "dim"))
    for line in str(call.code).splitlines():
        here = bool(name) and line.strip().startswith(f"{name} = ")
        session.screen.line(("-> " if here else "   ", "bold"), (line, "bold" if here else ""))


# Values ---------------------------------------------------------------------------------------------------------


@command("print p", "EXPR", group=GROUP, completes="expression")
def print_(session: Session, argument: str) -> None:
    """Show a tensor, a measure of one, or a Python expression of tensors: print out, print x.nan, print out.sum()."""
    found = Expression(session.machine, argument).value(session.frame)
    if isinstance(found, list) and found and isinstance(found[0], tuple):
        for slot, value in found:
            session.screen.line(f"{result_slot(slot)}  {shown(value)}")
    else:
        session.screen.wrapped(shown(found))


@command("inspect i", "[PLACE]", group=GROUP, completes="place")
def inspect(session: Session, argument: str) -> None:
    """Show tensors in two lines each: shape, dtype and device, then statistics.

    PLACE is a name of this call (out, args[0], x, weight), a call or an operation (h.0.attn, h.0.attn#0/softmax), or a
    tensor of one (h.0.attn.output[0], h.0.attn.input[0]). Without it, what went in here and what came out.
    """
    if argument:
        found: Slots = [(_full_slot(argument, slot), value) for slot, value in _tensors(session, argument)]
    else:
        stop = session.machine.stop
        given = [] if stop.kind == "return" else list(stop.inputs)
        found = [*given, *[(result_slot(slot), value) for slot, value in stop.results]]
    if not found:
        raise NotFound("there are no tensors here")
    for slot, value in found:
        session.screen.line((slot, "bold"))
        for line in lines_of(value):
            session.screen.wrapped(line, first="    ")


def _full_slot(place: str, slot: str) -> str:
    """Return the name of a tensor of a place.

    >>> _full_slot("out", "[1]"), _full_slot("out[1]", "[1][0]"), _full_slot("h.output", "logits"), _full_slot("x", "")
    ('out[1]', 'out[1][0]', 'h.output.logits', 'x')
    """
    if place.rpartition(".")[2].startswith(("input", "args")):
        slot = slot.removeprefix("args")
    same = next((size for size in range(len(slot), 0, -1) if place.endswith(slot[:size])), 0)
    rest = slot[same:]
    return f"{place}.{rest}" if rest and not rest.startswith(("[", ".")) else f"{place}{rest}"


def _tensors(session: Session, place: str) -> Slots:
    scope = Scope(session.machine, session.frame)
    found = scope.place(place)
    if not found:
        raise scope.unknown(place)
    return found


def lines_of(value: Tensor) -> Iterator[str]:
    """Yield a tensor as two lines: what it is, and the statistics of its elements.

    >>> from fxdebug.data.values import Stats, Value
    >>> for line in lines_of(Value(0, (2, 3), "float32", "cpu", stats=Stats(6, 0.5, 1.25, -1.0, 2.0, 2.0, zeros=1))):
    ...     print(line)
    Tensor(shape=(2, 3), dtype=float32, device=cpu)
    mean=0.5, std=1.25, min=-1, max=2, absmax=2, zeros=1, count=6
    """
    grad = ", requires_grad" if value.requires_grad else ""
    yield f"Tensor(shape={value.shape}, dtype={value.dtype}, device={value.device}{grad})"
    stats = value.stats
    if stats is None:
        yield "no statistics were taken"
        return
    facts = {name: getattr(stats, name) for name in ("mean", "std", "min", "max", "absmax")}
    counts = {name: getattr(stats, name) for name in ("nan", "posinf", "neginf", "zeros")}
    known = {name: one for name, one in facts.items() if one is not None} | {k: n for k, n in counts.items() if n}
    yield ", ".join(f"{name}={_number(one)}" for name, one in (known | {"count": stats.count}).items())


def _number(one: float | complex) -> str:
    return f"{one:.6g}" if isinstance(one, (float, complex)) else str(one)


@command("hist", "[PLACE] [BINS]", group=GROUP, completes="place")
def hist(session: Session, argument: str) -> None:
    """Show how the elements of a tensor are distributed; its data must have been kept.

    PLACE as for inspect; without it, the first result here.
    """
    words = argument.split()
    bins = int(words.pop()) if words and words[-1].isdecimal() else BINS
    if not 0 < bins <= 200 or len(words) > 1:
        raise UsageError("hist takes a place and a number of bins up to 200, such as hist out 20")
    place = words[0] if words else "out" if session.machine.stop.results else "input"
    slot, value = _tensors(session, place)[0]
    tensor = session.machine.tensor(value)
    found = api.histogram(tensor, bins)  # loads torch
    session.screen.line((result_slot(slot) if slot else place, "bold"), f"  {shown(value)}")
    for line in bars(found, min(BAR, session.screen.width - 30)):
        session.screen.line(line)


def bars(found: Histogram, longest: int) -> Iterator[str]:
    """Yield a histogram as one line for each bin, in ``longest`` columns at most for a bar.

    >>> for line in bars(Histogram((0.0, 1.0, 2.0), (1, 4), nan=2), 8):
    ...     print(line)
            0 … 1         1  ██
            1 … 2         4  ████████
    2 NaN
    """
    largest = max(found.counts, default=0)
    size = max((len(str(count)) for count in found.counts), default=1)
    for low, high, count in zip(found.edges, found.edges[1:], found.counts):
        eighths = round(count / largest * longest * 8) if largest else 0
        bar = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
        if count and not eighths:
            bar = "▏"
        yield f"{number(low):>9} … {number(high):<9} {count:>{size}}  {bar}".rstrip()
    for what, count in (("NaN", found.nan), ("infinite", found.inf)):
        if count:
            yield f"{count} {what}"
