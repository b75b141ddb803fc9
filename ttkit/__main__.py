"""`python -m ttkit` is the command `ttkit`."""

import sys

from ttkit.cli import main

sys.exit(main())
