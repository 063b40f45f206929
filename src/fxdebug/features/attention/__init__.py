"""Maps of attention and the numbers of their heads: ``attention``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="attention",
    functions={"attention": "fxdebug.features.attention.run:attention"},
    further={"AttentionReport": "fxdebug.features.attention.run:AttentionReport"},
    on_model="fxdebug.features.attention.run:on_model",
    on_run="fxdebug.features.attention.run:on_run",
    needs=("inputs", "tensors"),
    rules="fxdebug.features.attention.rules:BOOK",
    measures=("fxdebug.features.attention.report",),
    pictures={"attention": "fxdebug.features.attention.picture:draw_heads"},
    exporters={
        ("attention", ".html"): "fxdebug.features.attention.page_of_maps:write_page",
        ("map", ".png"): "fxdebug.features.attention.picture:write_map",
        ("map", ".svg"): "fxdebug.features.attention.picture:write_map",
        ("map", ".pdf"): "fxdebug.features.attention.picture:write_map",
    },
    sheet="fxdebug.features.attention.run:report_for_page",
    maps="fxdebug.features.attention.sheet:attention_data",
    commands="fxdebug.features.attention.command:COMMANDS",
)
