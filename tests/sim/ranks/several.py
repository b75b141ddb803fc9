"""Run by every rank: other programs of this folder, one after the other. python several.py
"PROGRAM ARGUMENTS" ...
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    for words in sys.argv[1:]:
        sys.argv = words.split()
        runpy.run_path(str(HERE / sys.argv[0]), run_name="__main__")
