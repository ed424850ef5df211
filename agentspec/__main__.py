"""``python -m agentspec``: the same as the command ``agentspec``."""

from __future__ import annotations

import sys

from agentspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
