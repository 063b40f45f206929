"""Models of other libraries, recorded: is everything equal, verified, and does ``call.fx`` hold? ``make libs``.

``python tools/libs.py [NAME ...]`` runs the models whose ``library/name`` contains one of the names, all of them
without any. Each library is imported in a process of its own, and each of its models runs in a child of that, with a
limit of time and memory. Ends with a table, the reasons of what is not verified, and the bars; exits with 1 if a bar
is missed. ``--write`` puts the table into ``docs/other-libraries.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]

import libs_table  # noqa: E402
from libs_measured import Measured  # noqa: E402

SECONDS, GIGABYTES = 240, 11  # of a model: of processor time, as the machine may do other things
LONGEST = 3600  # for one that waits
MARK = "measured: "


def main(arguments: list[str]) -> int:
    """Run the models, print progress, table and bars; return the exit status."""
    options = _options(arguments)
    if options.library:
        return _run_library(options.library, options.names, frozenset(json.loads(options.but)))
    began = time.perf_counter()
    results = [Measured(**told) for told in json.loads(options.read.read_text())] if options.read else []
    known = frozenset(found.name for found in results)
    missing: dict[str, str] = {}
    import libs_models

    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [
            pool.submit(_in_process, name, options.names, known, results, missing, options.json)
            for name in _libraries(tuple(libs_models.LIBRARIES), options.names)
        ]
        for run in runs:
            run.result()
    if not results and not missing:
        print(f"no model has any of these in its name: {', '.join(options.names)}", file=sys.stderr)
        return 2
    order = list(libs_models.LIBRARIES)
    results.sort(key=lambda found: order.index(found.library))
    _write(results, options.json)
    print(f"\n{time.perf_counter() - began:.0f} s")
    return libs_table.tell(results, missing, whole=not options.names, write=options.write)


def _write(results: list[Measured], file: Path | None) -> None:
    if file is not None:
        file.write_text(json.dumps([vars(found) for found in results], indent=1))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of library/name; all without any")
    parser.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="processes (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured, as it comes")
    parser.add_argument("--read", type=Path, metavar="FILE", help="what --json wrote: these models are not run again")
    parser.add_argument("--write", action="store_true", help="put the table into docs/other-libraries.md")
    parser.add_argument("--but", default="[]", help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)  # a child process: one library, results on stdout
    options = parser.parse_args(arguments)
    if options.write and options.names:
        parser.error("--write puts down what came out for all libraries: it takes no names")
    return options


def _libraries(all_of_them: tuple[str, ...], names: list[str]) -> list[str]:
    """Return the libraries in which models with such names may be."""
    parts = [name.partition("/")[0] for name in names]
    if any("/" not in name and not any(name in library for library in all_of_them) for name in names):
        return list(all_of_them)  # it is the name of a model
    return [library for library in all_of_them if not names or any(part in library for part in parts)]


# One library ---------------------------------------------------------------------------------------


def _in_process(
    library: str,
    names: list[str],
    known: frozenset[str],
    results: list[Measured],
    missing: dict[str, str],
    file: Path | None,
) -> None:
    """Run a library in a process of its own; collect what it prints, in a file as well."""
    command = [sys.executable, __file__, "--library", library, "--but", json.dumps(sorted(known)), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith(MARK):
                continue
            told = json.loads(line[len(MARK) :])
            if "missing" in told:
                missing[library] = told["missing"]
                print(f"{library} cannot be imported here: {told['missing']}", flush=True)
                continue
            found = Measured(**told)
            results.append(found)
            _write(results, file)
            print(f"{len(results):4} {found.name:<64} {found.seconds:6.1f} s  {found.verdict()}", flush=True)
            for text in found.problems()[:4]:
                print(f"       {text[:300]}", flush=True)
    if process.returncode:
        missing[library] = f"its process ended with {process.returncode}"


def _run_library(library: str, names: list[str], known: frozenset[str]) -> int:
    """Import a library and measure its models, each in a child that has it already."""
    import libs_models
    import libs_without_cuda

    report = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what the libraries print
        try:
            libs_without_cuda.make_importable()
            entries = libs_models.entries(library)
            importlib.import_module(libs_models.LIBRARIES[library])
            importlib.import_module("libs_measure")
        except Exception as error:
            _report(report, {"missing": f"{type(error).__name__}: {error}".partition("\n")[0][:200]})
            return 0
        gc.collect()
        gc.freeze()  # what the library holds is not looked through at each collection
        for name, build in entries.items():
            full = f"{library}/{name}"
            if full not in known and (not names or any(part in full for part in names)):
                _report(report, vars(_in_child(full, build)))
    return 0


def _report(stream: Any, told: dict[str, Any]) -> None:
    stream.write(f"{MARK}{json.dumps(told)}\n")
    stream.flush()


def _in_child(name: str, build: Any) -> Measured:
    """Measure a model in a fork of this process, within limits."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_measure, args=(name, build, theirs))
    child.start()
    theirs.close()
    found = Measured(name)
    with contextlib.suppress(EOFError):
        if ours.poll(LONGEST):
            found = ours.recv()
        else:
            child.kill()
            found.failed = f"not done after {LONGEST} s"
    child.join()
    if child.exitcode == -signal.SIGXCPU:
        found.failed = f"not done after {SECONDS} s of processor time"
    if found.failed is None and found.stopped is None and not found.calls:
        found.failed = f"its process ended with {child.exitcode}"
    return found


def _measure(name: str, build: Any, answer: Any) -> None:
    import torch

    import libs_measure

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 10))
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    torch.set_num_threads(1)
    answer.send(libs_measure.measured(name, build))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
