"""Run by every rank: the recorded cases of the real library on a mesh that the ranks share.

python conformance.py EVERY   takes each EVERY-th case; prints, by category, how many passed on this rank, and what failed.

The cases were recorded with one process that drives all chips. Where ranks share them, the real library says other things
of the *devices*: ids are a host's own, chips of other ranks are Remote and have none. Those categories are left out; what
is asked of tensors must be the same on every rank.
"""

import collections
import contextlib
import glob
import io
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "conformance"))
os.environ.setdefault("TT_MESH_ID", "0")
os.environ.setdefault("TT_MESH_HOST_RANK", os.environ["OMPI_COMM_WORLD_RANK"])
# A case that reads one chip without a composer, or names a device, asks for what only the rank of that chip has; and a rank
# with one chip of several can read that one without a composer, as the real library lets it.
ELSEWHERE = ("has these values: read them there", "Cannot get device for remote device", "Device index", "expected RuntimeError('mesh to row-major")
OF_DEVICES = {"mesh-ids", "mesh-attr", "mesh-offset", "reshape", "submesh", "visualize", "visualize-colour"}


def main(every: int) -> None:
    sys.modules["torch"] = None  # NumPy will do, and torch takes seconds of each rank
    import run

    import ttkit
    from ttkit import ttnn

    ttkit.strict()
    cases = run.load(sorted(glob.glob(str(HERE.parent.parent / "conformance" / "*.json"))))
    cases = sorted((c for c in cases if c["cat"] not in OF_DEVICES), key=run.order)[::every]
    env, passed, tried, failed = run.Env(ttnn), collections.Counter(), collections.Counter(), {}
    for case in cases:
        with contextlib.redirect_stdout(io.StringIO()):
            why = run.compare(case, run.observe(env, case), False)
        tried[case["cat"]] += 1
        passed[case["cat"]] += why is None
        if why is not None and not any(text in why for text in ELSEWHERE):
            failed[case["id"]] = why
    env.close()
    ttnn.distributed_context_barrier()
    print(json.dumps({"passed": passed, "tried": tried, "failed": failed}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
