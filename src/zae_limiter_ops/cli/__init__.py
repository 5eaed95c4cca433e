"""The command line. A command parses its options, calls one function, and renders the answer.

Each group of commands has a folder; ``app`` lists the commands, and ``shared`` holds the options,
tables and errors of all. Modules import only click at the top and the rest when a command runs,
so that ``--help`` is fast.
"""

from __future__ import annotations


def main() -> int:
    """Run the command line on ``sys.argv`` and return the exit code."""
    try:
        from zae_limiter_ops.cli.app import app
        from zae_limiter_ops.cli.shared.errors import run

        return run(app)
    except KeyboardInterrupt:
        return 130
