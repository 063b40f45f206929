"""A server of the Model Context Protocol on a folder of runs; it reads and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fxdebug.errors import FxDebugError, needs
from fxdebug.features.mcp import answers
from fxdebug.features.mcp.answers import Runs
from fxdebug.features.mcp.paging import TOKENS, error_of, page_of
from fxdebug.plugins.features import features, part
from fxdebug.version import __version__

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError as error:
    raise needs("fxdebug mcp", "mcp", "mcp") from error

_INSTRUCTIONS = (
    "Runs of PyTorch models, recorded by fxdebug: the tree of module calls, each operation with shapes and statistics. "
    "Begin with `runs`. `check` names faults, `compare` the first operation at which a run differs from a reference, "
    "`explain` one call or operation. Answers are cut to pages: page= and tokens= ask for more."
)


def server_of(folder: Path) -> MCPServer:
    """Return the server of a folder of runs; ``server_of(folder).run("stdio")`` serves it."""
    runs = Runs(folder)
    server = MCPServer("fxdebug", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR")

    def paged(answer: Callable[..., list[str]], page: int, tokens: int, narrower: str, *asked: object) -> str:
        try:
            return page_of(answer(runs, *asked), page, tokens, narrower)
        except FxDebugError as error:  # another exception would be told without its text
            raise ToolError(error_of(str(error), tokens)) from None

    @server.tool(name="runs", structured_output=False)
    def list_runs(page: int = 1, tokens: int = TOKENS) -> str:
        """List the saved runs and watched trainings: name, model, extent, and the exception that ended a run."""
        return paged(answers.list_runs, page, tokens, "name a run")

    @server.tool(structured_output=False)
    def tree(
        run: str,
        path: str | None = None,
        depth: int = 2,
        columns: str | None = None,
        page: int = 1,
        tokens: int = TOKENS,
    ) -> str:
        """Show the tree of module calls with shapes and statistics, repeated layers once, or one call by its path.

        columns: measures in place of the statistics, such as time.self,flops,params.
        """
        return paged(answers.tree, page, tokens, "give a path or a smaller depth", run, path, depth, columns)

    @server.tool(structured_output=False)
    def find(
        run: str,
        path: str | None = None,
        type: str | None = None,
        where: str | None = None,
        operations: str | None = None,
        page: int = 1,
        tokens: int = TOKENS,
    ) -> str:
        """Find module calls, or with operations= operations of these names ("*": all), that meet every condition.

        path: a glob of module paths, "*.attn"; type: a class of modules, "Linear"; where: a condition on measures such
        as "nan > 0", "absmax > 1e3 and input.std < 2", "time.self > 1ms".
        """
        return paged(answers.find, page, tokens, "give a narrower where=", run, path, type, where, operations)

    @server.tool(structured_output=False)
    def explain(run: str, place: str, page: int = 1, tokens: int = TOKENS) -> str:
        """Tell all about a call ("h.0.attn", "h.0#2") or an operation ("h.0.attn#0/softmax").

        Its statistics, its line, its code, the operations that it reads and those that read it.
        """
        return paged(answers.explain, page, tokens, "name an operation in it", run, place)

    @server.tool(structured_output=False)
    def check(run: str, page: int = 1, tokens: int = TOKENS) -> str:
        """Find what is wrong with the numbers of a run: the first NaN and its producer, overflow, cancellation."""
        return paged(answers.check, page, tokens, "explain the node of one finding", run)

    @server.tool(structured_output=False)
    def compare(a: str, b: str, page: int = 1, tokens: int = TOKENS) -> str:
        """Compare run b with run a, the reference: equal or not, and the first operation that adds error."""
        return paged(answers.compare, page, tokens, "explain one of the places", a, b)

    @server.tool(structured_output=False)
    def training(run: str, page: int = 1, tokens: int = TOKENS) -> str:
        """Report a watched training: losses, norms of gradients, incidents such as a loss that is not finite."""
        return paged(answers.training, page, tokens, "ask about the run that an incident names", run)

    @server.tool(structured_output=False)
    def measures(run: str, page: int = 1, tokens: int = TOKENS) -> str:
        """List the measures that a run has: names for columns= and where=, with units and meanings."""
        return paged(answers.measures, page, tokens, "use their names in where=", run)

    def tool_of(function: Callable[..., Any]) -> Callable[..., str]:
        def ask(run: str, page: int = 1, tokens: int = TOKENS) -> str:
            return paged(answers.report_of, page, tokens, "ask about one of its lines", run, function)

        return ask

    for feature in features():
        for name, place in feature.tools.items():
            function = part(feature, place)
            if function is not None:
                server.tool(name=name, description=function.__doc__, structured_output=False)(tool_of(function))
    return server
