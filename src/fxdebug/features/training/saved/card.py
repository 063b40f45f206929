"""A watched training in a list of folders: its state, its verdict, its last step, its losses."""

from __future__ import annotations

from pathlib import Path

from fxdebug.features.training.live import training_state
from fxdebug.plugins.given import Card


def card_of(folder: Path) -> Card:
    """Return the card of a watched training. Raises ``LoadError`` for a damaged file.

    >>> import tempfile, torch, fxdebug
    >>> folder = tempfile.mkdtemp()
    >>> with fxdebug.watch(torch.nn.Linear(2, 1), save=folder):
    ...     pass
    >>> card_of(Path(folder)).facts
    ('Linear', '0 steps')
    """
    now = training_state(folder)
    facts = (
        now.model,
        f"{now.steps:,} steps",
        "" if now.loss is None else f"loss {now.loss:.4g}",
        "" if now.rate is None else f"learning rate {now.rate:.3g}",
        "" if now.seconds is None else f"{_duration(now.seconds)} a step",
    )
    return Card(
        state=now.state,
        verdict=now.sentence,
        facts=tuple(filter(None, facts)),
        curve=now.losses,
        is_fault=now.is_fault,
        is_good=now.learns,
        moves=now.state in ("running", "late"),
        follows=True,
    )


def verdict_of_folder(folder: Path) -> str:
    """Return the sentence of verdict on a watched training. Raises ``LoadError`` for a damaged file."""
    return training_state(folder).sentence


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
