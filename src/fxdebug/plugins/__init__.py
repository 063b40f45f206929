"""Functions of other packages that export runs, take measures, find faults or answer questions: plug-ins.

A package names its functions in its ``pyproject.toml``; nothing has to be inherited from:

.. code-block:: toml

    [project.entry-points."fxdebug.exporters"]
    ".rows" = "my_package:write_rows"          # a suffix, or a name for to=

    [project.entry-points."fxdebug.measures"]
    "my.weight_bytes" = "my_package:weight_bytes"

    [project.entry-points."fxdebug.rules"]
    "wide layer" = "my_package:wide_layer"

    [project.entry-points."fxdebug.analyses"]
    "widths" = "my_package:widths"

A function is imported when it is used. One that cannot be imported, or that raises, is reported and skipped.
"""

from fxdebug.plugins.making import found, measure, report, rule

__all__ = ["found", "measure", "report", "rule"]
