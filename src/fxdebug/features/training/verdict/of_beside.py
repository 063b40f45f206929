"""Rules about what is done beside forward, backward and step, and about odd things that a graph shows of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import median

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.verdict.seen import Found, Seen, found, g

FEWEST = 20  # steps
PERIODS = 3.0  # of a cosine
MOST_OF = 0.5  # of the steps
FEWEST_STEPS, NEARLY_ALL, CLOSE = 3, 0.9, 0.01  # steps, their share, and relative
FALLS, FEWEST_RISING = 0.5, 3  # of the rate before, and steps
RARE = 0.2  # of the targets have a reward: such are goals that are reached, as a rule, and then it ends
CUT_DOWN = 0.01  # of the steps, that clipping would have made smaller


def rules(seen: Seen) -> Found:
    """Yield what these signs tell, the first cause first."""
    is_known = math.isfinite(seen.progress.first) or math.isfinite(seen.progress.last)
    way = f" (loss {g(seen.progress.first)} → {g(seen.progress.last)})" if is_known else ""
    for one in seen.facts.beside:
        told = _TOLD.get(one.name)
        yield from () if told is None else told(seen, one, way)
    yield from _unscaled(seen, way)
    yield from _left_in_eval(seen, way)
    yield from _past_its_end(seen, way)
    yield from _warms_again(seen, way)


def _clipped(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    count, bound, over = one.numbers
    norms = [step.norm for step in seen.record.steps if step.norm is not None and math.isfinite(step.norm)]
    above = over if one.name == "clipped late" else sum(norm > bound for norm in norms)
    if above < max(1.0, CUT_DOWN * count) and seen.progress.state != "not finite":
        return  # it would have changed nothing in time, too
    severity: Severity = ERROR if seen.progress.is_bad else WARNING
    largest = f"; gradients reach a norm of {g(max(norms))} there" if norms else ""
    if one.name == "clipped late":
        yield found(
            "clipped too late", severity,
            f"clip_grad_norm_(…, {g(bound)}) is called after the step, all {count:.0f} times: the gradients that it "
            f"cuts down were used already{way}",
            "Call it between backward() and step().", op="clip_grad_norm_", measured=bound,
        )  # fmt: skip
        return
    where = (
        "is given parameters that are none of the model's and have no gradient"
        if one.name == "clipped others"
        else "is called when there are no gradients, before backward() or after they were cleared"
    )
    yield found(
        "clipped too early", severity,
        f"clip_grad_norm_(…, {g(bound)}) {where}, all {count:.0f} times: nothing is ever clipped{largest}{way}",
        "Call it between backward() and step(), with the parameters of this model.", op="clip_grad_norm_",
        measured=bound,
    )  # fmt: skip


def _clipped_in_parts(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    parts, bound, _ = one.numbers
    yield found(
        "clipped too early", WARNING if seen.progress.is_bad else ADVICE,
        f"clip_grad_norm_(…, {g(bound)}) is called after each of {parts:.0f} backwards of a step, and cuts down most "
        f"of them: what came first is cut down again and again, and counts least{way}",
        "Call it once, after the last backward of a step.", op="clip_grad_norm_", measured=bound,
    )  # fmt: skip


def _freezes(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    name, path = one.names
    whose = f"{path}.{name}" if path else name
    yield found(
        "freezes nothing", WARNING,
        f"{whose} = False freezes nothing: {one.numbers[0]:.0f} of the parameters that it is meant for get gradients, "
        f"and an optimizer changes them{way}",
        "Call requires_grad_(False) on the module, or set requires_grad of each parameter.", path=path, op=name,
    )  # fmt: skip


def _beside(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    told, used = one.numbers
    yield found(
        "rate set beside", ERROR if seen.progress.is_bad else WARNING,
        f"optimizer.{one.names[0]} is {g(told)}, which no step reads: the learning rate of its groups is {g(used)} in "
        f"all {seen.steps} steps{way}",
        'Set it in each group: for group in optimizer.param_groups: group["lr"] = …', op=one.names[0], measured=used,
    )  # fmt: skip


def _of_others(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    count, rate = one.numbers
    yield found(
        "schedule of others", ERROR if seen.progress.is_bad else WARNING,
        f"{one.names[0]} goes on {count:.0f} times, for an optimizer that never makes a step: its learning rate is "
        f"{g(rate)} by now, and that of the one which does is {g(seen.rates[-1] if seen.rates else None)}{way}",
        "Make the schedule after the optimizer that is used, and for it; make both again where one is replaced.",
        op=one.names[0], measured=rate,
    )  # fmt: skip


def _copies(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    name, path = one.names
    whose = f"{path or f'a copy of {name}'}"
    if one.name == "statistics of a copy":
        yield found(
            "copy stays", WARNING,
            f"the weights of {whose} follow the model's, and its running means and variances stay as they were: in its "
            f"{one.numbers[0]:.0f} runs in eval mode it normalises by numbers of other weights{way}",
            "Copy buffers as well: for b, c in zip(model.buffers(), copy.buffers()): c.copy_(b).", path=path,
        )  # fmt: skip
        return
    yield found(
        "copy stays", ADVICE,
        f"targets are made of what {whose} returns, and none of its weights has changed in {seen.steps} steps, while "
        f"the model's did: what is learned never reaches the targets{way}",
        "A target network is to follow: target.load_state_dict(model.state_dict()) every so many steps, or a moving "
        "average.", path=path,
    )  # fmt: skip


def _no_end(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    discount, rows, rewards, share = one.numbers
    yield found(
        "no end", ERROR if seen.progress.state == "rising" else ADVICE,
        f"each of {rows:.0f} targets is {'the same reward' if rewards == 1 else f'one of {rewards:.0f} rewards'} and "
        f"{g(discount)} times the value of what follows: none of them is the end of an episode{way}",
        "Where episodes end, add nothing after it: reward + discount * (1 - done) * value.", measured=share,
        threshold=RARE,
    )  # fmt: skip


def _copied(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    size, whole = one.numbers
    yield found(
        "targets are inputs", ADVICE if seen.progress.state == "rising" else WARNING,
        f"the target is what the model is given: its {size:.0f} numbers are among the {whole:.0f} that the first layer "
        f"takes, and no layer on the way is narrower, so that it only has to copy them{way}",
        "Compare with what is to be told: the clean numbers or the noise, not the noisy input.", measured=size,
    )  # fmt: skip


def _read(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    share, places = one.numbers
    yield found(
        "targets are inputs", ERROR,
        f"what the decoder looks up in a place is the target of this place, in {100 * share:.1f} % of {places:.0f}: it "
        f"only has to copy{way}",
        "Give the decoder the targets shifted by one: a begin token, and all but the last.", measured=share,
    )  # fmt: skip


def _padding(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    share, value = one.numbers
    yield found(
        "padding counts", WARNING if seen.progress.is_bad else ADVICE,
        f"{100 * share:.0f} % of the targets are {value:g} at the ends of rows, where the input is one value, too: the "
        f"padding counts in the loss, and makes it look low{way}",
        f"Leave it out: cross_entropy(…, ignore_index={value:g}), or labels of -100.", measured=share,
    )  # fmt: skip


def _norm(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    along, added, size = one.numbers
    yield found(
        "norm misplaced", WARNING if seen.progress.state == "falling" else ERROR,
        f"vectors are divided by their norm along dimension {along:.0f} ({size:.0f} numbers), and multiplied with "
        f"others along dimension {added:.0f}: these are no cosines{way}",
        "Give normalize() the dimension of the features: dim=-1.", op="normalize",
    )  # fmt: skip


def _slope(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    yield found(
        "norm misplaced", WARNING,
        f"a norm that is to be 1 is taken of the channels alone, in each of {one.numbers[0]:.0f} places of a picture: "
        f"what is held at 1 is the slope of each pixel, and the whole is far steeper{way}",
        "Take it of all numbers of an example: gradient.flatten(1).norm(2, dim=1).", op="norm", measured=one.numbers[0],
    )  # fmt: skip


def _carried(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    name, *some = one.names
    yield found(
        "not cleared", ERROR,
        f"before {one.numbers[0]:.0f} of {one.numbers[1]:.0f} steps of {name} ({', '.join(some[:2])}, …) gradients of "
        f"another loss were there already, and its own were added to them{way}",
        "Call its zero_grad() right before the backward of its own loss; detach what another net made in the loss of "
        "the other.", op=name,
    )  # fmt: skip


def _told_alike(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    value, terms = one.numbers
    yield found(
        "targets alike", ERROR,
        f"all {terms:.0f} terms of the losses for which {one.names[0]} and others are changed have one and the same "
        f"target, {value:g}: there is nothing that they are to be told from{way}",
        "Give what was made the other label: ones for what is real, zeros for what is made.", op=one.names[0],
        measured=value,
    )  # fmt: skip


def _saturated(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    yield found(
        "saturated activation", ERROR if seen.progress.is_bad else ADVICE,
        f"an attention looks at one place alone, in {100 * one.numbers[0]:.0f} % of its rows and from the first step "
        f"on: its scores are far apart, and next to no gradient passes its softmax{way}",
        "Divide scores by the root of the width of a head, and look at the size of queries and keys.", op="softmax",
        measured=one.numbers[0],
    )  # fmt: skip


def _nothing(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    function, *names = one.names
    some = ", ".join(names[:3]) + (f" and {one.numbers[0] - 3:.0f} more" if one.numbers[0] > 3 else "")
    is_factor = function == "Mul"
    what = "is multiplied by 0" if is_factor else f"goes through {function.lower()}(), which has no slope anywhere"
    advice = (
        "Look at the factor: alpha // r of whole numbers, a gate, a share that is not set?"
        if is_factor
        else f"Pass the gradient by: x + ({function.lower()}(x) - x).detach()."
    )
    yield found(
        "zero gradients", ERROR if seen.progress.is_bad else WARNING,
        f"what is computed with {some} {what}: their gradients are exactly 0 at every look{way}",
        advice, op=names[0],
    )  # fmt: skip


def _turned(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    since, count = one.numbers
    before, after = seen.losses[max(0, int(since) - FEWEST) : int(since)], seen.losses[-FEWEST:]
    decay = max([rate * step.decay for step, rate in zip(seen.signs, seen.rates)], default=0.0)
    is_meant = seen.facts.maximizes or not seen.facts.alone or seen.facts.nested or decay > seen.limits.decay
    if (
        is_meant
        or min(seen.rates, default=0.0) < 0
        or not before
        or not all(map(math.isfinite, after))
        or median(after) <= median(before)
    ):
        return
    is_sure = median(after) > seen.progress.first  # a heavy ball rolls uphill, too, though not so far
    yield found(
        "steps uphill", (ERROR if seen.progress.is_bad else WARNING) if is_sure else ADVICE,
        f"since step {since:.0f} each of {count:.0f} steps goes where gradients point, not against them, as "
        f"with a learning rate below 0, in the schedule or in the optimizer (loss {g(median(before))} before, "
        f"{g(median(after))} at the end)",
        "Plan the schedule for the number of steps that are made (epochs × batches, counted from what is trained on), "
        "and keep its factor above 0: max(0, 1 - step / steps).", measured=count,
    )  # fmt: skip


def _place_in_batch(seen: Seen, one: Sign, way: str) -> Iterator[Finding]:
    apart, rows = one.numbers
    severity: Severity = WARNING if seen.progress.is_bad or seen.barely_learns else ADVICE
    yield found(
        "batch mixed", severity,
        f"asked again with its {rows:.0f} examples in another order, the model answers otherwise (by {100 * apart:.2g} "
        f"% of its largest answer): what it says of one depends on the place in the batch, or on the others{way}",
        "Look for what goes along the first dimension: batch_first=True of recurrent layers and attentions, encodings "
        "of places that are added along x.size(0), a reshape or view that mixes rows.", op="batch", measured=apart,
    )  # fmt: skip


def asked(seen: Seen) -> Found:
    """Yield what a model does not know, or does not read, where nothing else explains that it hardly learns."""
    way = f" (loss {g(seen.progress.first)} → {g(seen.progress.last)})"
    is_bad = seen.progress.is_bad or seen.barely_learns
    for one in seen.facts.beside:
        if one.name == "input unread":
            yield found(
                "input ignored", WARNING if is_bad else ADVICE,
                f"asked again with {', '.join(one.names[:3])} of other examples, the model gives the same answer, but "
                f"for 0.001 %: next to nothing of that input comes to what it returns{way}",
                "Look at where it is read in the forward: a variable that is overwritten, a mask of one value, a "
                "condition that is always false, an embedding of something else.", op=one.names[0],
            )  # fmt: skip
        elif one.name == "order unknown" and is_bad:
            yield found(
                "order unknown", ADVICE,
                f"asked again with the {one.numbers[0]:.0f} places of each example in another order, the model gives "
                f"the same answer: it does not know where things stand{way}",
                "If the order matters: add encodings of places (a row for each place, x + waves[: x.size(1)]), and "
                "look at whether those that are there differ from place to place.", op="places",
            )  # fmt: skip


_TOLD: dict[str, Callable[[Seen, Sign, str], Iterator[Finding]]] = {
    "clipped early": _clipped, "clipped in parts": _clipped_in_parts,
    "clipped late": _clipped, "clipped others": _clipped, "freezes nothing": _freezes,
    "rate beside": _beside, "schedule of others": _of_others, "copied": _copied,
    "no end": _no_end, "statistics of a copy": _copies, "copy stays": _copies, "target read": _read,
    "padding counts": _padding,
    "slope of each": _slope, "carried": _carried, "told alike": _told_alike, "norm misplaced": _norm,
    "place in batch": _place_in_batch,
    "turned uphill": _turned, "attention saturated": _saturated, "no slope": _nothing,
}  # fmt: skip


def _left_in_eval(seen: Seen, way: str) -> Found:
    """Yield that the model began in training mode, and is in eval mode since."""
    modes = [one.training for one in seen.signs]
    facts = seen.facts
    last = next((at for at in range(len(modes) - 1, -1, -1) if modes[at]), None)
    if last is None or not all(modes[: last + 1]) or not (facts.norms or facts.drops):
        return
    left = len(modes) - 1 - last
    if left < max(FEWEST, MOST_OF * len(modes)):
        return
    yield found(
        "eval mode", WARNING,
        f"the model trains in eval mode since step {last + 1}, the last {left} of {len(modes)}: before that it was in "
        f"training mode{way}",
        "Call model.train() again after each evaluation.",
    )  # fmt: skip


def _unscaled(seen: Seen, way: str) -> Found:
    """Yield that steps use gradients that still have the factor of a scaler in them."""
    known = [one for one in seen.signs if one.scale > 1 and one.arrived and one.used and math.isfinite(one.used)]
    still = [one for one in known if abs((one.used or 0.0) / (one.arrived or 1.0) / one.scale - 1) < CLOSE]
    if len(still) < FEWEST_STEPS or len(still) < NEARLY_ALL * len(known):
        return
    adapts = any(one.adapts and one.own for one in seen.facts.optimizers)
    yield found(
        "not unscaled", ERROR if not adapts and seen.progress.state != "falling" else ADVICE,
        f"a scaler multiplies the loss by {g(still[0].scale)}, and steps use gradients that are so many times too "
        f"large, in {len(still)} of {len(seen.signs)} steps: nobody divides them{way}",
        "Call scaler.step(optimizer) and scaler.update() in place of optimizer.step().", measured=still[0].scale,
    )  # fmt: skip


def _warms_again(seen: Seen, way: str) -> Found:
    """Yield that the learning rate rises step by step, falls back at once, and rises again, over and over."""
    rates, rising, falls = seen.rates, 0, list[int]()
    for step in range(1, len(rates)):
        if rates[step] > rates[step - 1]:
            rising += 1
            continue
        if rates[step] < FALLS * rates[step - 1] and rising >= FEWEST_RISING:
            falls.append(step)
        rising = 0
    lows = [rates[step] for step in falls]
    if len(falls) < FEWEST_STEPS or not seen.facts.alone or max(lows) > 1.01 * min(lows):
        return
    yield found(
        "warms up again", WARNING if seen.progress.is_bad or seen.barely_learns else ADVICE,
        f"the learning rate rises to {g(max(rates))} and falls back to {g(lows[0])} at once, {len(falls)} times, first "
        f"at step {falls[0]}: a warm-up begins anew, as with a count of steps that begins anew in each epoch{way}",
        "Count steps over all epochs.", measured=float(len(falls)),
    )  # fmt: skip


def _past_its_end(seen: Seen, way: str) -> Found:
    """Yield that a cosine goes up and down many times, which was planned for one way down."""
    if seen.facts.schedule is None or seen.facts.schedule[0] != "CosineAnnealingLR":
        return
    _, planned, gone = seen.facts.schedule
    if gone > PERIODS * planned:
        yield found(
            "schedule too fast", WARNING if seen.progress.is_bad else ADVICE,
            f"CosineAnnealingLR was planned for {planned} steps, and has made {gone}: the learning rate has gone up "
            f"again {gone / planned / 2:.1f} times{way}",
            "T_max is the number of times that its step() is called: plan it in batches, or call it once an epoch.",
            measured=gone / planned, threshold=PERIODS,
        )  # fmt: skip
