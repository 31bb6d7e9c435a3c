"""`python -m sooner` is the `sooner` command."""

from __future__ import annotations

import sys

from sooner._cli.command import main

sys.exit(main())
