"""Machine code for this very processor, made by llvmlite (the extra ``fast``), and called as Python's own functions.

Programs are in LLVM's language: https://llvm.org/docs/LangRef.html. They may call Python's own functions for
C (https://docs.python.org/3/c-api): those that are listed here are declared in every program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

MANY_ARGUMENTS = 0x80  # how Python calls them: METH_FASTCALL

_PYTHONS = {
    "PyFloat_FromDouble": "ptr (double)",
    "PyLong_AsLongLong": "i64 (ptr)",
    "PyLong_FromLongLong": "ptr (i64)",
    "PyTuple_New": "ptr (i64)",
    "PyTuple_SetItem": "i32 (ptr, i64, ptr)",
}

_kept: list[Any] = []


class Engine:
    """The machine code of one program. It stays for as long as the process does: who has a function may call it.

    Raises ``ImportError`` without llvmlite, ``RuntimeError`` on a system or a processor that it can write nothing for.
    """

    def __init__(self, program: str) -> None:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_default_triple()
        features = binding.get_host_cpu_features().flatten()
        machine = target.create_target_machine(binding.get_host_cpu_name(), features, opt=3, jit=True)
        declared = []
        for name, kind in _PYTHONS.items():
            if f"@{name}(" in program:
                result, _, arguments = kind.partition(" ")
                declared.append(f"declare {result} @{name}{arguments}")
                binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly("\n".join([*declared, program])), machine)
        self._engine.finalize_object()
        self._definitions: dict[str, _Definition] = {}  # Python has their addresses
        _kept.append(self)

    def code(self, name: str, results: type[Any]) -> Any:
        """A function of it, to be called with an address, a count and where its results go; others run meanwhile."""
        made = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(results))
        return made(self._engine.get_function_address(name))

    def function(self, name: str, called: int) -> Callable[..., Any]:
        """A function of it as a builtin of Python's: a call costs a tenth of one through ctypes.

        ``called``: how.
        """
        definition = self._definitions.get(name)
        if definition is None:
            definition = _Definition(name.encode(), self._engine.get_function_address(name), called, None)
            self._definitions[name] = definition
        made: Callable[..., Any] = _new_builtin(ctypes.addressof(definition), None, None)
        return made


class _Definition(ctypes.Structure):
    """Python's ``PyMethodDef``."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("called", ctypes.c_int), ("doc", ctypes.c_char_p)
    ]  # fmt: skip


_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
