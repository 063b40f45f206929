"""The library ``mlflow``, the extra of that name: a run logged to a database or a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from fxdebug.errors import SaveError, needs
from fxdebug.features.trackers.tracked import Tracked, accepted_names, write_names
from fxdebug.printable import printable_lines

try:
    import mlflow
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException
except ImportError as error:
    raise needs("logging to MLflow", "mlflow", "mlflow") from error

METRICS_A_BATCH = 1_000  # these are the limits of its servers
PARAMS_A_BATCH = 100
LONGEST_PARAM = 6_000
LONGEST_TAG = 5_000
ALLOWED = r"[A-Za-z0-9_/. \-]"  # in names of metrics and parameters

Item = TypeVar("Item")


def log(run: Tracked, files: Path, path: Path, options: Mapping[str, Any]) -> None:
    """Log a run with the files in a folder. Raises ``SaveError`` where MLflow refuses it."""
    uri = options["tracking"] or f"sqlite:///{path.resolve()}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        beside = None if options["tracking"] else (path.resolve().parent / f"{path.stem}-artifacts").as_uri()
        experiment = client.get_experiment_by_name(options["experiment"])
        number = experiment.experiment_id if experiment else client.create_experiment(options["experiment"], beside)
        _log(client, number, run, files)
    except MlflowException as error:
        raise SaveError(f"MLflow at {uri} refused the run: {error}") from error


def _log(client: mlflow.MlflowClient, experiment: str, run: Tracked, files: Path) -> None:
    names = accepted_names([name for _, metrics in run.steps() for name in metrics], ALLOWED)
    now = time.time_ns() // 1_000_000
    metrics = [Metric(names[name], number, now, step) for step, ones in run.steps() for name, number in ones.items()]
    keys = accepted_names(list(run.params), ALLOWED)
    params = [Param(keys[name], printable_lines(text)[:LONGEST_PARAM]) for name, text in run.params.items()]
    tags = [RunTag(name, text[:LONGEST_TAG]) for name, text in run.tags.items()]
    id = client.create_run(experiment, run_name=printable_lines(run.name)[:250]).info.run_id
    client.log_batch(id, tags=tags)
    for some in _batches(params, PARAMS_A_BATCH):
        client.log_batch(id, params=some)
    for batch in _batches(metrics, METRICS_A_BATCH):
        client.log_batch(id, metrics=batch)
    write_names(names, files / "names.json")
    client.log_artifacts(id, str(files))
    client.set_terminated(id, "FAILED" if "fxdebug.raised" in run.tags else "FINISHED")


def _batches(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
