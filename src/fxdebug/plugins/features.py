"""The list of features: those of fxdebug in the order of their findings, then those of other packages."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fxdebug.errors import first_line
from fxdebug.plugins.command import Command
from fxdebug.plugins.feature import OURS, Feature, Place, at
from fxdebug.plugins.given import Folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "fxdebug.features"
BUILT_IN: Final = (
    "training", "gradients", "weights", "state", "structure", "attention", "activations", "profile", "tune", "shadow",
    "memory", "flops", "summary", "edit", "console", "serve", "mcp", "tensorboard", "onnx", "model_explorer",
    "timelines", "trackers", "resumes", "independent", "repro", "debug_trees",
    "diagrams", "graphml", "markdown", "golden",
)  # fmt: skip
RESERVED: Final = ("numbers", "plugins")  # analyses of the core


@functools.cache
def features() -> tuple[Feature, ...]:
    """Return all features; of one that cannot be read, :func:`broken` has the reason."""
    return (*built_in(), *[found for found in _installed() if isinstance(found, Feature)])


@functools.cache
def built_in() -> tuple[Feature, ...]:
    """Return the features of fxdebug."""
    return tuple([at(f"fxdebug.features.{name}:FEATURE") for name in BUILT_IN])


@functools.cache
def of_others() -> tuple[Feature, ...]:
    """Return the features of other packages."""
    return features()[len(BUILT_IN) :]


def feature_of(name: str) -> Feature | None:
    """Return a feature by its name, ``None`` where there is none."""
    return next((one for one in features() if one.name == name), None)


def part(feature: Feature, place: Place) -> Any:
    """Import a part of a feature; ``None`` where there is none, or where another package fails, which is noted."""
    if not place:
        return None
    try:
        return at(place)
    except (Exception, SystemExit) as error:
        if feature.package == OURS:
            raise
        _failed.setdefault(
            feature.name, (feature.name, feature.package, f"{type(error).__name__}: {first_line(error)}")
        )
        return None


def folder_kind(path: Path) -> tuple[str, Folder] | None:
    """Return the feature and the kind of a folder that a feature reads, ``None`` for other paths.

    >>> folder_kind(Path("nowhere"))
    """
    return next(((one.name, kind) for one, kind in folder_kinds() if kind.holds(path)), None)


def folder_kinds() -> list[tuple[Feature, Folder]]:
    """Return the kinds of folders that features read, each with its feature.

    >>> [(feature.name, kind.what) for feature, kind in folder_kinds() if feature.package == OURS]
    [('training', 'a training')]
    """
    return [(one, kind) for one in features() if (kind := part(one, one.folder)) is not None]


def commands_of(feature: Feature) -> tuple[Command, ...]:
    """Return the commands of a feature."""
    return tuple(part(feature, feature.commands) or ())


_failed: dict[str, tuple[str, str, str]] = {}  # features of other packages, parts of which cannot be imported


def broken() -> list[tuple[str, str, str]]:
    """Return the features of other packages that cannot be used: their name, their package, and why."""
    return [*[found for found in _installed() if isinstance(found, tuple)], *_failed.values()]


def package_of(entry: EntryPoint) -> str:
    """Return the distribution that has an entry point, with its version."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


@functools.cache
def _installed() -> tuple[Feature | tuple[str, str, str], ...]:
    return tuple(_read())


def _read() -> Iterator[Feature | tuple[str, str, str]]:
    from importlib.metadata import entry_points  # takes longer than all the rest of `import fxdebug`

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        package = package_of(entry)
        try:
            found = entry.load()
        except (Exception, SystemExit) as error:  # whatever the other package does when it is imported
            yield entry.name, package, f"{type(error).__name__}: {first_line(error)}"
            continue
        if not isinstance(found, Feature):
            yield entry.name, package, f"{entry.value} is {type(found).__name__}, not a Feature"
        elif found.name in (*BUILT_IN, *RESERVED):
            yield entry.name, package, f"fxdebug has {found.name} itself"
        else:
            yield replace(found, package=package)
