"""Signs of whether a training learns, and why not: a line for each step, facts about the whole loop. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fxdebug.brief import brief

# Names of signs in the graph of a loss, by which a verdict finds them.
CANCELS = "cancels"
TOP_ONE = "division by its sum"

GOES_ON = "goes on"  # the name of a sign: optimizers had a state before the first step that was seen


@brief
@dataclass(frozen=True, slots=True)
class StepSigns:
    """Signs of one step, of 256 elements spread over each parameter and each input; ``None`` for what is not known.

    ``batch`` is the size of the first dimension of the input, ``digest`` tells inputs apart, ``largest`` is their
    largest magnitude. ``backwards`` were made for the step. ``scale`` is the factor of a scaler in the loss.
    ``carried``: all of them began with gradients that were not 0. ``cleared``: there were several, and each began
    without, and nothing used what they had brought. ``added`` backwards, the last of the step, add up: 1 where the last
    began without gradients. ``arrived`` is the norm of the gradients' elements after the last backward, ``used`` that
    at the step. ``update`` is the median update of matrices relative to their norm, ``unmoved`` the share of elements
    with a gradient that the step left bit for bit as they were, ``cosine`` that between these gradients and the last
    ones. ``decay`` is the largest weight decay of the optimizer's groups. ``fresh``: the optimizer had no state yet.
    ``before``, ``forward``, ``backward`` and ``optimizer`` are seconds: before the first forward, and in each of them;
    ``loading`` are those in the next batch of a DataLoader, most of them before the first forward.
    """

    number: int
    batch: int
    digest: str
    largest: float | None = None
    training: bool = True
    backwards: int = 0
    scale: float = 1.0
    carried: bool = False
    cleared: bool = False
    arrived: float | None = None
    used: float | None = None
    update: float | None = None
    unmoved: float | None = None
    cosine: float | None = None
    decay: float = 0.0
    fresh: bool = False
    before: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    added: int | None = None  # a file of an earlier version ends before it
    loading: float | None = None  # the same


@brief
@dataclass(frozen=True, slots=True)
class Names:
    """Names of parameters or modules, the first of them in ``some``, and their share of all elements of parameters."""

    some: tuple[str, ...] = ()
    count: int = 0
    share: float = 0.0


@brief
@dataclass(frozen=True, slots=True)
class Sign:
    """Something that was seen beside the loss, by its name, with names and numbers that tell what and how much."""

    name: str
    names: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class LossFacts:
    """The loss as autograd's graph has it, and its targets.

    ``kind`` is the function of torch that it amounts to, empty where it is another. ``known``: it was computed again
    from the graph, gives the loss of the step, and takes what the model returned. ``reduction`` is mean, sum, or batch
    mean, of ``elements`` terms; ``factor`` is that on it (a quarter for four accumulated batches), without a scaler's.
    ``terms`` are the known losses that are added up. ``constant`` is the loss of the best answer that is always the
    same. ``log_of_zero``: the step, the zeros, and the elements of a logarithm in it. ``over_batch``: its softmax runs
    over the batch instead of the classes. ``root_of_zero`` is the same of a square root as ``log_of_zero``.

    ``targets`` were seen, ``ignored`` of them count for nothing, ``only`` is their value where all are the same;
    ``level`` and ``spread`` are the mean and deviation of numbers.
    ``classes`` is the number of different ones; ``within`` is the mean entropy of the classes inside of a batch,
    ``shuffled`` that of batches drawn at random.
    ``lowest`` and ``highest`` are those of numbers. ``emptied`` is the first step of which all targets were ignored.
    ``different`` counts batches of targets that differ, up to 64. ``smoothing`` is that of labels, ``lowest_loss`` the
    loss of an answer that is right, which it keeps above 0. ``most`` is the value that most targets have, and their
    share. ``cosine`` is the sign of a loss that is a cosine of results and targets. ``in_batch``: of numbers that are
    computed of the model's results, and the class of each row is its place in the batch (contrast with the others).
    ``bounds`` are the operation that made what the loss was given, and between which numbers it keeps it; ``beyond`` is
    the share of targets outside of them. ``widest`` is the largest magnitude of logits, where looks show them at 1.
    ``attracts``: all of its terms draw two things together that both learn; ``both_learn``: these are what the model
    returns. ``upside_down``: a clipped
    surrogate, of which the most is sought, is minimised. ``grown`` is how far targets reach in the first steps,
    halfway, and at the end. ``upturned`` is the commonest class, its share, and its weight over that of the rarest,
    where weights of classes grow with their counts. ``bound`` is the largest magnitude of logits, where they have
    stayed at it for long. ``outlying`` is a number a hundred times as far out as nine of ten targets, and where these
    lie. ``is_contrast``: the class of each row is the first of its columns, which is put in front of many others.
    ``shifts`` tells how often target[i] is input[i + k]: k, agreements, places. ``leak`` are an input, what it tells of
    the target, their correlation and the examples; ``others_tell`` is the share of the target's variance that a line
    through the other inputs explains. ``unrelated``: the probabilities, at the beginning and now, that
    features of the last layer tell as much of targets drawn at random, and the examples.
    """

    kind: str = ""
    known: bool = False
    reduction: str = ""
    elements: int = 0
    factor: float = 1.0
    divided: bool = False
    terms: int = 0
    constant: float | None = None
    log_of_zero: tuple[int, int, int] | None = None
    over_batch: bool = False
    targets: int = 0
    ignored: int = 0
    only: float | None = None
    level: float | None = None
    spread: float | None = None
    classes: int = 0
    within: float | None = None
    shuffled: float | None = None
    batches: int = 0
    shifts: tuple[tuple[int, int, int], ...] = ()
    leak: tuple[str, str, float, int] | None = None
    unrelated: tuple[float, float, int] | None = None
    others_tell: float | None = None
    root_of_zero: tuple[int, int, int] | None = None
    lowest: float | None = None
    highest: float | None = None
    emptied: int | None = None
    different: int = 0
    smoothing: float = 0.0
    lowest_loss: float | None = None
    most: tuple[float, float] | None = None
    cosine: float | None = None
    in_batch: bool = False
    bounds: tuple[str, float, float] | None = None
    beyond: float | None = None
    widest: float | None = None
    attracts: bool = False
    both_learn: bool = False
    upside_down: bool = False
    grown: tuple[float, float, float] | None = None
    upturned: tuple[int, float, float] | None = None
    bound: float | None = None
    outlying: tuple[float, float, float] | None = None
    is_contrast: bool = False


@brief
@dataclass(frozen=True, slots=True)
class PartFacts:
    """The purpose of a loss's parts, as its graph shows at every look.

    ``rarer``: log-probabilities of what was drawn, times weights, are minimised, so that what has a large weight
    becomes rarer; it is the mean of these weights at first and at the end. ``weights_alike`` is the one that all have.
    ``learned_weights``: they learn, too. ``entropy_sunk``: beside such terms an entropy is minimised. ``overlap``: an
    overlap of answers with targets is minimised. ``overlap_of`` is the largest target of an overlap whose targets are
    0 and this number. ``unlikely``: the log-probability of what is asked for is all that is minimised. ``repels``: two
    things that learn are driven apart without a bound.
    ``bits`` is a function of a margin that is given labels of 0 and 1, and the share of zeros. ``code_upside_down``:
    the distance of a code from its prior is made large. ``code_cut``: nothing else in the loss depends on the code.
    ``ratio_of_one`` counts looks at a clipped surrogate whose ratio was exactly 1 with examples that came before.
    ``cosine_scale`` is by what logits that are cosines are multiplied. ``margin`` is what margins come to in the last
    looks, where all of them come to about the same. ``without_gradient`` is a part of the loss that changes and has no
    gradient, on average, and the whole loss. ``each_with_each`` are the examples of a batch, where what rewards an
    action is multiplied with the probabilities of all others, because it has a dimension of 1 more. ``shown`` are odd
    things of its graph, by name, with numbers that tell how.
    """

    rarer: tuple[float, float] | None = None
    weights_alike: float | None = None
    learned_weights: bool = False
    entropy_sunk: bool = False
    overlap: bool = False
    overlap_of: float | None = None
    unlikely: bool = False
    repels: bool = False
    bits: tuple[str, float] | None = None
    code_upside_down: bool = False
    code_cut: bool = False
    ratio_of_one: int = 0
    cosine_scale: float | None = None
    margin: float | None = None
    without_gradient: tuple[float, float] | None = None
    each_with_each: int = 0
    shown: tuple[tuple[str, tuple[float, ...]], ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class SameInputs:
    """Inputs that came ``again``: how often with the target that they had before, and how often by ``chance``.

    Of numbers ``alike`` is the share of their variance that the input tells. ``one`` is the share of all examples that
    the commonest input has, ``one_alike`` what ``alike`` is of these.
    """

    again: int
    alike: float
    chance: float
    one: float = 0.0
    one_alike: float | None = None


@brief
@dataclass(frozen=True, slots=True)
class RowFacts:
    """The order in which targets belong to inputs, inside of batches and across them.

    ``other`` is the order of targets, other than their own, that fits the inputs best, with how many deviations it lies
    above orders drawn at random; ``own`` is the same of the order that they have, both inside of each batch by itself;
    ``across`` is that of what batches have in common. ``turned`` are examples whose targets fit their inputs only where
    they are turned, how, and of how many.
    """

    other: tuple[str, float] | None = None
    own: float | None = None
    across: float | None = None
    turned: tuple[int, str, int] | None = None


@brief
@dataclass(frozen=True, slots=True)
class MixedBatch:
    """A module that goes over the examples of a batch as over a sequence: its path and class, and the sizes it takes.

    ``dimension`` is the one that it takes for the sequence, which has as many elements as there are targets.
    ``is_single``: there is no other dimension, or it is of size 1.
    """

    path: str
    type: str
    sizes: tuple[int, ...]
    dimension: int
    is_single: bool


@brief
@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """An optimizer that made a step: its class, its parameters, those that the model has, and those alike in shape.

    ``adapts``: the size of its steps does not depend on that of the gradients. ``settings`` are its defaults as texts,
    such as betas and momentum, but for those that each step tells.
    """

    name: str
    parameters: int
    own: int
    alike: int
    adapts: bool
    settings: tuple[tuple[str, str], ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class InputFacts:
    """The first floating-point input of the first step: ``alike``: all its rows are equal."""

    mean: float
    deviation: float
    largest: float
    size: float  # root mean square
    normed: bool  # a normalisation is the first layer
    learned: bool  # it has a gradient, or was made by a model
    alike: bool


@brief
@dataclass(frozen=True, slots=True)
class LearningFacts:
    """Facts about a loop at one of its steps; a later line takes the place of an earlier one.

    ``missing`` are parameters that get gradients and are in no optimizer, ``cut`` those of modules that ran although
    no gradient ever reached them, with the place in ``cut_at``; ``unused`` were not called. ``still`` got gradients
    and never changed, ``still_rate`` is their learning rate. ``zero`` are matrices that began as zeros, of
    ``matrices``. ``untied`` are pairs that began equal in every bit and are not any more. ``norms`` are the
    normalisations over batches, ``norms_in_eval`` those that ran in eval mode, ``norms_unused`` those among them that
    never saw a batch; ``drops`` and ``drops_in_eval`` are the same of dropouts, ``strong_drops`` are those that drop
    at least ``strongest``. ``frozen_fresh`` are frozen matrices that are as they were drawn. ``linear`` are the
    products with weights in a net that has nothing but linear operations, else 0. ``silent`` are activations that
    returned only zeros in the first step, ``died`` those that came to it, with the step. ``first_gradient`` and
    ``last_gradient`` are the name and root mean square of the gradients of the first and the last matrix of ``depth``.
    ``initial_rate`` is the learning rate from which a scheduler began. ``restored`` are steps before which the
    weights were again as at the beginning. ``skipped`` steps were left out by a scaler, whose factor went from
    ``first_scale`` to ``last_scale``. ``alone``: one optimizer makes all steps. ``nested``: backwards run inside of
    steps (LBFGS). ``answers_alike`` is the step since which the model returns the same for different examples.
    ``idle`` are parameters of an optimizer, ``idle_of``, that made ``idle_steps`` steps without a gradient of any of
    them. ``anew`` counts the ``missing`` ones that took the place of others since the beginning. ``called``: the model
    itself was called. ``mixed`` takes the examples of a batch for a sequence. ``resting`` are parameters whose gradient
    was there and exactly 0 at every look. ``changed_between`` are steps before which the weights were others than the
    step before left, by ``change_between`` of their norm (median). ``empty_code`` is the step since which the mean and
    the log-variance of a code are those of its prior, with the KL divergence of one example. ``large`` are layers
    whose weights began far too large: the ``largest_gain`` is by how much they grow an input, ``gain`` the median of
    all layers; ``small`` are those that began far too small, where most did. ``alike`` are matrices whose rows were all
    the same at the beginning, and are so now. ``bounded`` are sigmoids and tanhs that were at their bounds from the
    first look on. ``detached`` are parameters that an optimizer has, of modules that ran although no gradient ever
    reached them, where no place shows why. ``schedule`` is that of the learning rate, where its length is known: its
    class, its steps, and how many it has gone. ``inverted`` are attentions whose mask ignores the tokens and keeps the
    padding. ``last_drop`` is a dropout that makes what the model returns. ``ahead`` are the steps
    that a schedule had made before the first one of the optimizer. ``over_one`` are softmaxes and layer norms over one
    element. ``spreads`` are the deviations of the inputs at the first look and at the last ones. ``clipped_late`` are
    the steps after which gradients were scaled, when it has no effect any more, and by how much. ``constants`` are
    batch normalisations whose running statistics are 0 and 1 after training. ``viewed`` are the sizes before and after
    a view that puts the batch in another place without moving its numbers. ``interleaved`` are the channels of pictures
    that take turns along rows, and the correlations of neighbours and of pixels so far apart. ``lost`` is a module and
    whether it
    ``returns`` or ``is given`` the same for all examples, though what the model is given differs, at every look.
    ``one_way`` is the step since which answers to different examples all point one way. ``idle_term`` are the
    parameters that a term of the loss depends on, and those that are changed for it, where these are others.
    ``sees_ahead`` are recurrent layers and attentions in which a place sees those that follow. ``weighs_examples``: a
    softmax inside of the model goes over the examples of a batch. ``uphill`` is the share of the first steps in which
    weights went where gradients point, and not against them. ``first_pass`` is the step in which most examples came
    back, 0 where none was seen to. ``kept`` is the norm of the weights over that at the beginning. ``asleep`` are
    parameters that an optimizer has, of modules that never ran. ``parts`` are those of the loss.
    ``same_inputs`` tells whether inputs that came again had the same targets, ``rows`` which targets belong to which.
    ``detached_state`` is a module, empty for the model, that runs several times for one loss, and is always given what
    it returned before without its gradient. ``after_step`` are backwards between a step and the next forward.
    ``places_alike`` is the module from which on all places of an example are alike, where each has a target.
    ``taken`` is the root mean square of what the first layer took in the first step.
    ``hidden``: a mask of attention hides all places.
    ``infinite_targets`` are the step of a loss that is not finite, the targets that are not, and all of them.
    ``beside`` are signs of what is done beside forward, backward and step, and of what a graph shows of the model.
    """

    number: int
    loss: LossFacts = LossFacts()
    optimizers: tuple[OptimizerFacts, ...] = ()
    inputs: InputFacts | None = None
    missing: Names = Names()
    stale: int = 0
    cut: Names = Names()
    cut_at: str = ""
    unused: Names = Names()
    still: Names = Names()
    still_rate: float | None = None
    zero: Names = Names()
    matrices: int = 0
    untied: tuple[str, str] | None = None
    norms: int = 0
    norms_in_eval: Names = Names()
    norms_unused: Names = Names()
    drops: int = 0
    drops_in_eval: Names = Names()
    strong_drops: Names = Names()
    strongest: float = 0.0
    frozen_fresh: Names = Names()
    linear: int = 0
    silent: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    died_at: int = 0
    first_gradient: tuple[str, float] | None = None
    last_gradient: tuple[str, float] | None = None
    depth: int = 0
    initial_rate: float | None = None
    restored: int = 0
    skipped: int = 0
    first_scale: float = 1.0
    last_scale: float = 1.0
    backwards: int = 0
    alone: bool = True
    nested: bool = False
    dtype: str = ""  # of most elements of the weights
    maximizes: bool = False  # the optimizer goes uphill
    outdated: tuple[str, ...] = ()
    answers_alike: int | None = None
    idle: Names = Names()
    idle_of: str = ""
    idle_steps: int = 0
    anew: int = 0
    called: bool = True
    mixed: MixedBatch | None = None
    resting: Names = Names()
    changed_between: int = 0
    change_between: float | None = None
    empty_code: tuple[int, float] | None = None
    large: Names = Names()
    largest_gain: float = 0.0
    gain: float | None = None
    small: Names = Names()
    alike: Names = Names()
    bounded: tuple[str, ...] = ()
    detached: Names = Names()
    schedule: tuple[str, int, int] | None = None
    inverted: tuple[str, ...] = ()
    last_drop: str = ""
    ahead: int = 0
    over_one: tuple[str, ...] = ()
    spreads: tuple[float, float] | None = None
    clipped_late: tuple[int, float] | None = None
    constants: Names = Names()
    viewed: tuple[str, str] | None = None
    interleaved: tuple[int, float, float] | None = None
    lost: tuple[str, str] | None = None
    one_way: int | None = None
    idle_term: tuple[Names, Names] | None = None
    sees_ahead: tuple[str, ...] = ()
    weighs_examples: bool = False
    uphill: float = 0.0
    first_pass: int = 0
    kept: float = 1.0
    asleep: Names = Names()
    parts: PartFacts = PartFacts()
    same_inputs: SameInputs | None = None
    rows: RowFacts = RowFacts()
    hidden: bool = False
    detached_state: str | None = None
    after_step: int = 0
    places_alike: str | None = None
    taken: float | None = None
    infinite_targets: tuple[int, int, int] | None = None
    beside: tuple[Sign, ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a change that a rule advises, beside none: both began alike, and were judged on held batches.

    ``answer``: ``yes`` where the change is better by more than chance, ``no`` where it is not, ``not tried`` for the
    reason in ``why``. ``control`` and ``changed`` are the losses after ``steps`` steps, the means over ``batches``
    batches that neither was trained on; not finite where it diverged.
    """

    rule: str
    change: str
    answer: Literal["yes", "no", "not tried"]
    control: float | None = None
    changed: float | None = None
    steps: int = 0
    batches: int = 0
    why: str = ""
