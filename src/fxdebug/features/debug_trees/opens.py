"""The functions by which ``fxdebug.load`` reads debug trees."""

from __future__ import annotations

from typing import Final

from fxdebug.features.debug_trees.read_tree import find_tree, is_tree, read_tree_file
from fxdebug.plugins.given import RunFiles

FILES: Final = RunFiles(is_one=is_tree, find=find_tree, read=read_tree_file)
