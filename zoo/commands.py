"""What the zoo's commands have in common: progress on standard error, and failures in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(main: Callable[[], int | None]) -> None:
    """Run a command and exit. What went wrong with files or arguments is told in a line, not with a traceback."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        sys.exit(130)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
