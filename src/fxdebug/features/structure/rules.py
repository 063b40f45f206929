"""The rules of the structure of a run."""

from __future__ import annotations

from fxdebug.data.findings import ADVICE, WARNING
from fxdebug.data.rules import RuleBook, RuleSpec

BOOK = RuleBook(
    "structure",
    (
        RuleSpec(
            "dropout in evaluation", WARNING, "an operation drops values at random though its module is in evaluation"
        ),
        RuleSpec(
            "batch statistics", WARNING, "a model in evaluation normalises a sample with the numbers of its batch"
        ),
        RuleSpec("random", ADVICE, "an operation draws random numbers though the model is in evaluation"),
        RuleSpec(
            "state kept",
            ADVICE,
            "a second call with the same inputs goes on from what the first left, in it or in them",
        ),
        RuleSpec("mask not read", WARNING, "a mask that hides something is given, and nothing returned depends on it"),
        RuleSpec("masks added", ADVICE, "two masks of the lowest number are added: where both hide, the sum is -Inf"),
        RuleSpec("positions rounded", WARNING, "positions are cast to a dtype that has no number for each of them"),
        RuleSpec("softmax axis", WARNING, "attention weights have the sum 1 over something else than the keys"),
        RuleSpec("repeated module", WARNING, "one module that stands several times in a list or in two runs for each"),
        RuleSpec("result dropped", WARNING, "layers are given the same, and only the last one's result is used"),
        RuleSpec(
            "dimensions mixed",
            WARNING,
            "a view or a norm mixes heads with tokens, channels with places, or embeddings",
        ),
        RuleSpec(
            "never called",
            WARNING,
            "a module never runs where one beside it runs twice, or all others of its name run",
        ),
        RuleSpec("no activation", ADVICE, "two linear layers follow each other with nothing nonlinear between them"),
        RuleSpec("result normalised", ADVICE, "what the model returns is a norm of each example without weights"),
    ),
)
