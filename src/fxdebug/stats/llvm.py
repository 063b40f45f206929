"""Machine code for this processor, compiled by llvmlite (the extra ``fast``) and called like Python's builtins.

Programs are written in LLVM's language: https://llvm.org/docs/LangRef.html. They may call the functions of Python's
C API (https://docs.python.org/3/c-api) that ``_C_API`` lists.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

METH_FASTCALL = 0x80  # Python's calling convention for several arguments in an array

_C_API = {
    "PyFloat_FromDouble": "ptr (double)",
    "PyLong_AsLongLong": "i64 (ptr)",
    "PyLong_FromLongLong": "ptr (i64)",
    "PyTuple_New": "ptr (i64)",
    "PyTuple_SetItem": "i32 (ptr, i64, ptr)",
}

_engines: list[Any] = []  # kept for the whole process


class Engine:
    """The machine code of one program. It stays as long as the process, so its functions may always be called.

    Raises ``ImportError`` without llvmlite, ``RuntimeError`` for a system or a processor that llvmlite cannot serve.
    """

    def __init__(self, program: str) -> None:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_default_triple()
        features = binding.get_host_cpu_features().flatten()
        machine = target.create_target_machine(binding.get_host_cpu_name(), features, opt=3, jit=True)
        declared = []
        for name, kind in _C_API.items():
            if f"@{name}(" in program:
                result, _, arguments = kind.partition(" ")
                declared.append(f"declare {result} @{name}{arguments}")
                binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly("\n".join([*declared, program])), machine)
        self._engine.finalize_object()
        self._definitions: dict[str, _Definition] = {}  # builtins point into them
        _engines.append(self)

    def code(self, name: str, results: type[Any]) -> Any:
        """Return a function (address, count, results), called through ctypes; other threads may run meanwhile."""
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(results))
        return kind(self._engine.get_function_address(name))

    def function(self, name: str, convention: int) -> Callable[..., Any]:
        """Return a function in the form of a Python builtin: calling it costs a tenth of a call through ctypes.

        ``convention`` is its calling convention (``METH_…``). The interpreter's lock is held during the call.
        """
        definition = self._definitions.get(name)
        if definition is None:
            definition = _Definition(name.encode(), self._engine.get_function_address(name), convention, None)
            self._definitions[name] = definition
        builtin: Callable[..., Any] = _new_builtin(ctypes.addressof(definition), None, None)
        return builtin


class _Definition(ctypes.Structure):
    """Python's ``PyMethodDef``."""

    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


_new_builtin = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
