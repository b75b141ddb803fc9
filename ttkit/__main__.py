"""The command `ttkit`, which runs one of the commands in the table below.

Each command is a function, in the `cli.py` of a subpackage or in `ttkit.program`. The function gets
a parser, to which it adds its options, and the words that follow the command's name. Its docstring
is the command's help text.

`python -m ttkit` is the same command, and `python -m ttkit PROGRAM` is `ttkit python PROGRAM`. The
exit codes are those of tt-run: the program's own code, 1 if a file or an argument is wrong, 2 for
an unknown option, 130 after Ctrl-C, 0 after a dry run.
"""

import gc
import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from ttkit.errors import ERRORS
from ttkit.lazy import attach

# Each line lists a module and the commands that it defines.
_NAMES = """
cluster.cli  run doctor sync lint convert
train.cli    train
layouts.cli  plan
program      python report
lessons.cli  lab lessons
"""
command_named, _, COMMANDS = attach(__name__, _NAMES, parent="ttkit")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if words is None else list(words)
    name = words[0] if words else ""
    if name not in COMMANDS:
        asked_for = name in ("-h", "--help")
        text = [f"usage: ttkit {{{','.join(COMMANDS)}}} ...\n"]
        text += [f"  ttkit {command} --help" for command in COMMANDS]
        print("\n".join(text), file=sys.stdout if asked_for else sys.stderr)
        return 0 if asked_for else 2
    try:
        gc.disable()  # Objects that an import makes stay alive, so a collection would free none.
        command = command_named(name)
        gc.enable()
        parser = ArgumentParser(f"ttkit {name}", description=command.__doc__, allow_abbrev=False)
        status = int(command(parser, words[1:]))
        sys.stdout.flush()
        return status
    except ERRORS as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # The reader has ended, as in `ttkit plan ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What is left to write, goes there.
        return 1


if __name__ == "__main__":
    program = sys.argv[1:]
    if program and program[0] not in (*COMMANDS, "-h", "--help"):
        program = ["python", *program]
    sys.exit(main(program))
