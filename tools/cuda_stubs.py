"""Let a CUDA build of torch run on a machine without CUDA, on the CPU: empty stand-ins for the libraries it links to.

``python tools/cuda_stubs.py VENV`` makes them in ``VENV/cuda-stubs`` and prints that folder, for ``LD_LIBRARY_PATH``.
For Linux, PyPI has torch built for CUDA; without the ``nvidia-*`` packages (``pip install --no-deps``) that is 2.5 GB
less to download. Each function of a stand-in returns an error code, so torch finds no device. Needs gcc and binutils.
For ``tools/compat.py`` only: nobody is to work with such a torch.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PREFIXES = {
    "libcudnn": "cudnn", "libnccl": "nccl", "libcupti": "cupti", "libcusparseLt": "cusparseLt", "libcufile": "cuFile",
    "libcudart": "cuda", "libnvshmem_host": "nvshmem",
}  # fmt: skip


@dataclass
class Symbols:
    """What torch's libraries ask of others."""

    libraries: set[str] = field(default_factory=set)  # needed, by their file names
    provided: set[str] = field(default_factory=set)  # by torch's own libraries
    plain: set[str] = field(default_factory=set)  # names that say nothing of where they come from
    versioned: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    version_of: dict[str, str] = field(default_factory=dict)  # the version of the symbols that a library has

    def of(self, library: str) -> set[str]:
        """The functions that this library is expected to have."""
        stem = library.split(".so")[0]
        names = set(self.versioned.get(self.version_of.get(library, ""), ()))
        missing = self.plain - self.provided
        if stem == "libcuda":
            return names | {name for name in missing if re.match("cu[A-Z]", name) and not name.startswith("cuFile")}
        if stem in PREFIXES:
            return names | {name for name in missing if name.startswith(PREFIXES[stem])}
        return names


def main(venv: Path) -> Path:
    """Make the stand-ins for the torch in this virtual environment; returns their folder."""
    torch = next(venv.glob("lib/python3*/site-packages/torch"))
    own = [*(torch / "lib").glob("*.so*"), *torch.glob("_C*.so")]
    symbols = _symbols_of(own)
    present = {path.name for path in own} | set(re.findall(r"^\s+(\S+)", _output("ldconfig", "-p"), re.MULTILINE))
    folder = venv.resolve() / "cuda-stubs"
    folder.mkdir(exist_ok=True)
    for library in sorted(symbols.libraries - present):
        _make(folder / library, symbols.of(library), symbols.version_of.get(library))
    return folder


def _symbols_of(libraries: list[Path]) -> Symbols:
    found = Symbols()
    for path in libraries:
        found.libraries |= set(re.findall(r"NEEDED.*\[(.*)\]", _output("readelf", "-d", path)))
        source = ""
        for line in _output("objdump", "-p", path).splitlines():  # the library that each version of symbols is from
            if match := re.match(r"\s+required from (\S+):", line):
                source = match[1]
            elif source and (match := re.match(r"\s+0x\S+ 0x\S+ \d+ (\S+)", line)):
                found.version_of[source] = match[1]
        for line in _output("nm", "-D", "--with-symbol-versions", path).splitlines():
            parts = line.split()
            if len(parts) == 3:  # an address: it is defined here
                found.provided.add(parts[2].split("@")[0])
            elif len(parts) == 2 and parts[0] in "Uw":  # undefined, or weak
                name, *version = re.split("@+", parts[1])
                (found.versioned[version[0]] if version else found.plain).add(name)
    return found


def _make(path: Path, functions: set[str], version: str | None) -> None:
    with tempfile.TemporaryDirectory() as work:
        source, script = Path(work, "stub.c"), Path(work, "stub.map")
        source.write_text("\n".join(_body(name) for name in sorted(functions)) or "void none(){}")
        script.write_text(f"{version} {{ global: *; }};\n")
        options = ["-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
        options += [f"-Wl,--version-script={script}"] if version else []
        subprocess.run(["gcc", *options, "-o", str(path), str(source)], check=True)


def _body(function: str) -> str:
    if function.endswith(("GetErrorString", "GetErrorName")):
        return f'char *{function}(){{return "there is no CUDA here";}}'
    error = 0 if function == "cudaStreamIsCapturing" else 100  # asked of a stream: no, it is not; cudaErrorNoDevice
    return f"int {function}(){{return {error};}}"


def _output(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
