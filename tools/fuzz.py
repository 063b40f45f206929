"""Damage saved runs at random and run every command on them: each gives a result or a ``LoadError``, fast and small.

    python tools/fuzz.py --cases 10000 --jobs 2

A case fails if anything but an error of fxdebug is raised, a command takes more than 5 s of processor time or waits
for ever, the process takes more than 1 GB, a file outside the run, Python and the results is opened, or an escape for
the terminal is printed. ``--seed`` begins with another case; a failing case is run alone with ``--seed N --cases 1``.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

SECONDS = 5  # of processor time: how long a command takes by the clock depends on what else the machine does
PATIENCE = 100  # by the clock, for a command that waits: it takes no processor time
MEGABYTES = 1_000


def main() -> int:
    """Run the cases in processes of their own; print the failing ones and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    import torch

    from support import mutations

    torch.set_num_threads(1)  # a process that is forked has none of the threads, and would wait for them
    warnings.simplefilter("ignore")
    work = Path(tempfile.mkdtemp(prefix="fxdebug-fuzz-"))
    try:
        outside = work / "outside"
        outside.mkdir()
        (outside / "secret").write_text(mutations.SECRET + "\n")
        os.mkfifo(outside / "pipe")
        (work / "seeds").mkdir()
        seeds = mutations.make_seeds(work / "seeds")
        run = _Run(work, outside, seeds)
        for seed in seeds:  # imports and caches are made before the processes part
            run.one(seed.name, seed, Random(0))
        return run.all(range(options.seed, options.seed + options.cases), options.jobs)
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Run:
    def __init__(self, work: Path, outside: Path, seeds: list[Path]) -> None:
        self.work = work
        self.outside = outside
        self.seeds = seeds

    def all(self, numbers: range, jobs: int) -> int:
        """Run all cases, ``jobs`` at a time; return the exit status."""
        began, results = time.monotonic(), Counter[str]()
        failures: list[str] = []
        largest, longest = 0.0, 0.0
        running: dict[int, tuple[int, int]] = {}
        waiting = iter(numbers)
        while True:
            while len(running) < jobs and (number := next(waiting, None)) is not None:
                reader, writer = os.pipe()
                process = os.fork()
                if not process:
                    os.close(reader)
                    self._child(number, writer)
                os.close(writer)
                running[process] = number, reader
            if not running:
                break
            process, status, usage = os.wait4(-1, 0)
            number, reader = running.pop(process)
            with os.fdopen(reader, "rb") as file:
                told = file.read().decode(errors="replace")
            outcome, _, detail = told.partition("\n")
            seconds, megabytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000
            largest, longest = max(largest, megabytes), max(longest, seconds)
            if status or not outcome:
                outcome = f"ended by signal {status & 127}" if status & 127 else f"ended with status {status >> 8}"
            if megabytes > MEGABYTES:
                outcome, detail = f"more than {MEGABYTES} MB", f"{megabytes:.0f} MB\n{detail}"
            results[outcome] += 1
            if outcome not in ("a result", "LoadError"):
                failures.append(f"case {number}: {outcome}\n{detail}")
                print(failures[-1], flush=True)
            shutil.rmtree(self.work / f"case-{number}", ignore_errors=True)
            done = sum(results.values())
            if done % 500 == 0 or done == len(numbers):
                print(
                    f"{done} cases, {len(failures)} failures in {time.monotonic() - began:.0f} s; "
                    f"at most {largest:.0f} MB and {longest:.1f} s for all commands of a case: {dict(results)}",
                    flush=True,
                )
        return 1 if failures else 0

    def _child(self, number: int, writer: int) -> None:
        outcome = ""
        try:
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # it also ends what no timer can interrupt
            faulthandler.dump_traceback_later(6 * PATIENCE, exit=True)  # and this what waits where none can
            outcome = self.case(number)
        except BaseException:
            outcome = f"an exception\n{traceback.format_exc()[-3000:]}"
        finally:
            os.write(writer, outcome.encode(errors="replace")[:60_000])
            os._exit(0)

    def case(self, number: int) -> str:
        """Make and run a case; return the outcome, and details in further lines."""
        from support import mutations

        rng = Random(number)
        seed = rng.choice(self.seeds)
        folder = self.work / f"case-{number}"
        home = seed if seed.is_dir() else seed.parent
        shutil.copytree(home, folder, symlinks=True)
        target = folder if seed.is_dir() else folder / seed.name
        done = mutations.mutate(target, rng, self.outside)
        outcome = self.one(f"{seed.name}: {done}", target, rng, watched=True)
        return outcome if outcome in ("a result", "LoadError") else f"{outcome}\n{seed.name}: {done}"

    def one(self, what: str, target: Path, rng: Random, *, watched: bool = False) -> str:
        """Load a run and, if it can be loaded, run three commands on it."""
        from fxdebug.errors import LoadError
        from support import mutations

        out = target.parent / f"{target.name}-out" if not target.is_dir() else target / ".." / f"{target.name}-out"
        out = Path(os.path.normpath(out))
        out.mkdir(exist_ok=True)
        opened: list[str] = []
        if watched:
            allowed = (
                str(target.parent if target.is_file() else target),
                str(out),
                sys.prefix,
                sys.base_prefix,
                str(ROOT),
            )

            def hook(event: str, arguments: tuple[Any, ...]) -> None:
                if event == "open" and isinstance(arguments[0], (str, bytes)):
                    path = os.path.normpath(Path.cwd() / os.fsdecode(arguments[0]))
                    if not path.startswith(allowed) and path != os.devnull:
                        opened.append(path)

            sys.addaudithook(hook)
        try:
            all_commands = mutations.commands(str(target), str(rng.choice(self.seeds[:5])), out)
            allowed_seeds = str(self.work / "seeds")
            chosen = all_commands if not watched else rng.sample(all_commands, 3)
            outcome = "a result"
            _limit()
            try:
                printed = mutations.ask_in_python(target)
                wrong = mutations.complaints(printed)
            except LoadError as error:
                outcome, wrong = "LoadError", mutations.complaints(str(error))
                chosen = chosen[:1]
            for command in chosen:
                _limit()
                _, printed = mutations.run_command(command)
                wrong += [f"{' '.join(command[:1])} {text}" for text in mutations.complaints(printed)]
            _limit(0)
            outside = [path for path in opened if not path.startswith(allowed_seeds)]
            if outside:
                wrong.append(f"opens {outside[:3]}")
            return outcome if not wrong else f"{wrong[0]}\n{wrong}"
        finally:
            _limit(0)
            shutil.rmtree(out, ignore_errors=True)


def _limit(times: int = 1) -> None:
    """Let what follows take its seconds, counted from now; none with 0."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.signal(signal.SIGALRM, _waits)
    signal.setitimer(signal.ITIMER_PROF, times * SECONDS)
    signal.alarm(times * PATIENCE)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of processor time")


def _waits(*_: object) -> None:
    raise TimeoutError(f"still waiting after {PATIENCE} s")


if __name__ == "__main__":
    sys.exit(main())
