"""The command line. A command parses, calls one function, renders.

One module per command group (``app`` lists them), the options they share in ``options``, what
they print with in ``render``, how they fail in ``errors``. Modules import only click at the top:
what a command needs it imports when it runs, so that help is instant.
"""

from __future__ import annotations


def main() -> int:
    """Run the command line on ``sys.argv``; returns the exit code."""
    try:
        from zae_limiter.cli.app import app
        from zae_limiter.cli.errors import run

        return run(app)
    except KeyboardInterrupt:
        return 130
