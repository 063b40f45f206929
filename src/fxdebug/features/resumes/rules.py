"""The rules of ``resumes``."""

from __future__ import annotations

from fxdebug.data.findings import ERROR
from fxdebug.data.rules import RuleBook, RuleSpec

BOOK = RuleBook(
    "resumes",
    (
        RuleSpec("not restored", ERROR, "a part of the training is another after loading, and the steps need it"),
        RuleSpec("differs", ERROR, "steps after loading differ though all parts that were found are restored"),
        RuleSpec("not repeatable", ERROR, "two runs in one go differ: nothing can be told about loading"),
        RuleSpec("saving changes", ERROR, "a run that is saved goes on otherwise than one that is not"),
    ),
)
