"""The command `ttkit plan`."""

import gc
import json
import os
from argparse import ArgumentParser
from collections.abc import Sequence

from ttkit.errors import fail
from ttkit.layouts.places import NETWORK
from ttkit.layouts.search import plan_layouts

# "adamw-bf16" keeps no float32 copy of bfloat16 weights.
OPTIMIZERS = {
    "adamw": {"type": "AdamW"},
    "sgd": {"type": "SGD"},
    "adamw-bf16": {"type": "AdamW", "master_weights": False},
}


def plan(parser: ArgumentParser, words: Sequence[str]) -> int:
    """List every layout of a model on a machine, the fastest first; open nothing."""
    add = parser.add_argument
    text = "a configuration with the model, such as configs/models/llama8b.yaml"
    add("--model", required=True, metavar="FILE", help=text)
    add("--system", metavar="NAME", help="of each host, such as galaxy (default: the one in use)")
    text = "sequences of a step, of all replicas together (default: 32)"
    add("--batch", type=int, default=32, metavar="N", help=text)
    text = "tokens of each (default: the model's max_sequence_length)"
    add("--sequence", type=int, metavar="N", help=text)
    text = "how many of these systems (default: 1)"
    add("--hosts", type=int, default=1, metavar="N", help=text)
    add("--precision", choices=("float32", "bfloat16"), default="float32")
    text = f"optimizer state of each parameter: {', '.join(OPTIMIZERS)} (default: adamw)"
    add("--optimizer", choices=OPTIMIZERS, default="adamw", help=text)
    text = f"network between hosts, of each host (default: {NETWORK}, 100 Gbit/s Ethernet)"
    name = "network_gb_per_s"
    add("--network", type=float, default=NETWORK, metavar="GB/s", dest=name, help=text)
    text = "the part of DRAM that stays free (default: 0.1)"
    add("--headroom", type=float, default=0.1, metavar="PART", help=text)
    text = "train on mesh shapes, too, on which collectives may hang"
    add("--may-hang", action="store_true", help=text)
    text = "rank steps that overlap communication with compute where they can"
    add("--overlap", action="store_true", help=text)
    text = "prefill and decode with a KV cache, in place of training"
    add("--mode", choices=("training", "inference"), default="training", help=text)
    text = "explain one layout, such as 'DP8 TP4 ZeRO-1 recompute', with the YAML to run it"
    add("--explain", metavar="LAYOUT", help=text)
    text = "write the files that run that layout (default: the fastest) into a new folder"
    add("--write", metavar="DIR", help=text)
    text = "print every layout as JSON: bytes, seconds, tokens/s, or why it was refused"
    add("--json", action="store_true", help=text)
    asked = vars(parser.parse_args(words))
    os.environ["TTKIT_BACKEND"] = "sim"  # Planning must not open a card.
    name, as_json, folder = (asked.pop(key) for key in ("explain", "json", "write"))
    asked["optimizer"] = OPTIMIZERS[asked["optimizer"]]
    found = plan_layouts(**asked)
    if (name or folder) and asked["mode"] == "inference":
        rule = "a page and a run are for training; --json has the parts of a decode step"
        fail(f"ttkit plan {'--explain' if name else '--write'}", rule, "--mode training, or --json")
    chosen = found.find(name) if name else None
    if as_json:
        print(json.dumps(found.figures(), indent=1))
    else:
        print(found.explain(chosen) if chosen else found)
    if folder:
        print(found.write(folder, chosen))
    gc.freeze()  # Else the end of the process would look through all that the dry runs keep.
    return 0
