"""`python -m ttkit` is the command `ttkit`; `python -m ttkit PROGRAM` is `ttkit python PROGRAM`."""

import sys

from ttkit.cli import COMMANDS, main

words = sys.argv[1:]
if words and words[0] not in (*COMMANDS, "-h", "--help"):
    words = ["python", *words]
sys.exit(main(words))
