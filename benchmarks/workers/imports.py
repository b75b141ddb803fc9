"""What an import costs in a fresh process:

`python imports.py <peer> <row>`. Loads nothing else that the import could use.
"""

import sys
import time

began = time.perf_counter()
if sys.argv[1] == "numpy":
    import numpy as loaded
elif sys.argv[2] == "import-ttkit":
    import ttkit as loaded
else:
    import numpy  # noqa: F401

    began = time.perf_counter()
    from ttkit import ttnn as loaded  # noqa: F401

taken = time.perf_counter() - began
import json  # noqa: E402
import resource  # noqa: E402

scale = 1024 * 1024 if sys.platform == "darwin" else 1024
print(
    json.dumps(
        {
            "seconds": taken,
            "value": None,
            "versions": {},
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale,
        }
    )
)
