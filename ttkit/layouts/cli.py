"""The command `ttkit plan`."""

import argparse
import json
import os
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


def plan(words: Sequence[str]) -> int:
    """`ttkit plan`: every layout of a model on a machine, the fastest first."""
    about = "List every layout of a model on a machine, the fastest first; open nothing."
    parser = argparse.ArgumentParser("ttkit plan", description=about)
    model = "a configuration with the model, such as configs/models/llama8b.yaml"
    parser.add_argument("--model", required=True, metavar="FILE", help=model)
    system = "of each host, such as galaxy (default: the one in use)"
    parser.add_argument("--system", metavar="NAME", help=system)
    for name, default, what in (
        ("batch", 32, "sequences of a step, of all replicas together"),
        ("sequence", None, "tokens of each (default: the model's max_sequence_length)"),
        ("hosts", 1, "how many of these systems"),
    ):
        text = what if default is None else f"{what} (default: {default})"
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    kinds = ("float32", "bfloat16")
    parser.add_argument("--precision", choices=kinds, default="float32")
    text = f"optimizer state of each parameter: {', '.join(OPTIMIZERS)} (default: adamw)"
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help=text)
    text = f"network between hosts, of each host (default: {NETWORK}, 100 Gbit/s Ethernet)"
    parser.add_argument(
        "--network", type=float, default=NETWORK, metavar="GB/s", dest="network_gb_per_s", help=text
    )
    free = "the part of DRAM that stays free (default: 0.1)"
    parser.add_argument("--headroom", type=float, default=0.1, metavar="PART", help=free)
    hang = "train on mesh shapes, too, on which collectives may hang"
    parser.add_argument("--may-hang", action="store_true", help=hang)
    beside = "rank steps that overlap communication with compute where they can"
    parser.add_argument("--overlap", action="store_true", help=beside)
    what = "prefill and decode with a KV cache, in place of training"
    parser.add_argument("--mode", choices=("training", "inference"), default="training", help=what)
    page = "explain one layout, such as 'DP8 TP4 ZeRO-1 recompute', with the YAML to run it"
    parser.add_argument("--explain", metavar="LAYOUT", help=page)
    run = "write the files that run that layout (default: the fastest) into a new folder"
    parser.add_argument("--write", metavar="DIR", help=run)
    text = "print every layout as JSON: bytes, seconds, tokens/s, or why it was refused"
    parser.add_argument("--json", action="store_true", help=text)
    asked = vars(parser.parse_args(words))
    os.environ["TTKIT_BACKEND"] = "sim"  # Planning must not open a card.
    name, as_json, folder = (asked.pop(key) for key in ("explain", "json", "write"))
    asked["optimizer"] = OPTIMIZERS[asked["optimizer"]]
    found = plan_layouts(**asked)
    if folder and asked["mode"] == "inference":
        fail("ttkit plan --write", "a run is for training", "--mode training")
    chosen = found.find(name) if name else None
    if as_json:
        print(json.dumps(found.figures(), indent=1))
    else:
        print(found.explain(chosen) if chosen else found)
    if folder:
        print(found.write(folder, chosen))
    return 0
