"""The table of all rules that make findings, and of their thresholds: those of numbers, then those of the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fxdebug.analyses.numbers.rules import BOOK
from fxdebug.data.rules import Rule, RuleBook, Threshold
from fxdebug.plugins.features import features, part
from fxdebug.plugins.installed import plugin_rules

NUMBERS: Final = BOOK.analysis
GRADIENTS: Final = "gradients"
TRAINING: Final = "training"
PLUGINS: Final = "plugins"

_JUDGING = [one for one in features() if one.on_model or one.on_run or one.folder]
# The analyses that are done only when they are asked for, and all of them in the order in which findings are told.
ASKED_FOR = tuple([one.name for one in _JUDGING if one.asked_for])
ANALYSES = (NUMBERS, *[one.name for one in _JUDGING if not one.asked_for], PLUGINS, *ASKED_FOR)

_BOOKS: Mapping[str, RuleBook] = {
    BOOK.analysis: BOOK,
    **{one.name: part(one, one.rules) or RuleBook(one.name, ()) for one in _JUDGING},
    PLUGINS: RuleBook(PLUGINS, ()),
}
LIMITS: Mapping[str, type[Any]] = {name: book.limits for name, book in _BOOKS.items() if book.limits is not None}
THRESHOLDS: dict[str, Threshold] = {
    one.name: one
    for thresholds in (RuleBook.settable, lambda book: book.fixed)
    for book in _BOOKS.values()
    for one in thresholds(book)
}
_RULES = [_BOOKS[name].every_rule() for name in ANALYSES]
RULES: dict[str, Rule] = {
    rule.id: rule for rule in (*[rule for rules in _RULES for rule in rules[:-1]], *[rules[-1] for rules in _RULES])
}


def every_rule() -> dict[str, Rule]:
    """Return our rules and those of plug-ins, by id."""
    others = [Rule(PLUGINS, name, severity, about) for name, (severity, about) in plugin_rules().items()]
    return RULES | {rule.id: rule for rule in others}


def rule_of(analysis: str, name: str) -> Rule | None:
    """Return the rule of an analysis by its name; a watched training also tells by the rules about gradients.

    >>> rule_of("training", "vanishing").id, rule_of("weights", "vanishing")
    ('gradients.vanishing', None)
    """
    return every_rule().get(f"{analysis}.{name}") or (
        RULES.get(f"{GRADIENTS}.{name}") if analysis == TRAINING else None
    )
