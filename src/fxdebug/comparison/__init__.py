"""Where two runs part ways: alignment of two implementations, measures, and who adds error.

``steps`` flattens a trace; ``by_path``, ``by_value``, ``by_flow`` and ``calls`` pair what belongs together;
``judge`` says which steps add error, ``blame`` and ``between`` who is to blame; ``comparing`` does all of it.
"""

from fxdebug.comparison.comparing import compare, paired
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.verdict import KINDS, ComparisonData, Kind, Row, Side, Verdict

__all__ = [
    "KINDS",
    "ComparisonData",
    "Kind",
    "Measures",
    "Row",
    "Side",
    "Verdict",
    "compare",
    "paired",
]
