"""The command line. A command parses, calls one function, renders.

Each command group has a module (``app`` lists them). They share ``options``, print with
``tables`` and ``console``, and fail as ``errors`` says. Modules import only click at the top and
the rest when a command runs, so that ``--help`` is fast.
"""

from __future__ import annotations


def main() -> int:
    """Run the command line on ``sys.argv`` and return the exit code."""
    try:
        from zae_limiter_ops.cli.app import app
        from zae_limiter_ops.cli.errors import run

        return run(app)
    except KeyboardInterrupt:
        return 130
