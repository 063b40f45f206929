"""The library ``wandb``, the extra of that name: a run logged into a folder, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxdebug.errors import SaveError, needs
from fxdebug.features.trackers.tracked import Tracked, accepted_names, write_names
from fxdebug.printable import printable_lines

try:
    import wandb
except ImportError as error:
    raise needs("logging for Weights & Biases", "wandb", "wandb") from error

ALLOWED = r"[^\x00-\x1f\ud800-\udfff\u2028\u2029\u202a-\u202e]"  # names are texts; its files are UTF-8


def log(run: Tracked, files: Path, path: Path, options: Mapping[str, Any]) -> None:
    """Log a run with the files in a folder; nothing is sent. Raises ``SaveError`` where wandb refuses it."""
    path.mkdir(parents=True, exist_ok=True)
    names = accepted_names([name for _, metrics in run.steps() for name in metrics], ALLOWED)
    write_names(names, files / "names.json")
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True, disable_git=True)
    params = {name: printable_lines(text) for name, text in run.params.items()}
    try:
        logged = wandb.init(
            mode="offline", dir=str(path), project=options["project"], name=printable_lines(run.name)[:128],
            config=params, tags=[], notes=_notes(run), settings=quiet,
        )  # fmt: skip
        for step, metrics in run.steps():
            logged.log({names[name]: number for name, number in metrics.items()}, step=step)
        artifact = wandb.Artifact("fxdebug-run", type="trace")
        artifact.add_dir(str(files))
        logged.log_artifact(artifact)
        logged.finish(exit_code=1 if "fxdebug.raised" in run.tags else 0)
    except wandb.Error as error:
        raise SaveError(f"wandb refused the run: {error}") from error


def _notes(run: Tracked) -> str:
    return printable_lines("\n".join([f"{name}: {text}" for name, text in run.tags.items()]))
