"""The command `ttkit plan`."""

import gc
import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from ttkit.errors import fail
from ttkit.layouts.places import NETWORK
from ttkit.layouts.search import plan_layouts
from ttkit.words import add_options

# "adamw-bf16" keeps no float32 copy of bfloat16 weights.
OPTIMIZERS = {
    "adamw": {"type": "AdamW"},
    "sgd": {"type": "SGD"},
    "adamw-bf16": {"type": "AdamW", "master_weights": False},
}


OPTIONS = (
    ("--system", "NAME", "system of each host, such as galaxy (default: the one in use)"),
    ("--batch", "N", "sequences in a step, over all replicas (default: 32)", 32),
    ("--sequence", "N", "tokens per sequence (default: the model's max_sequence_length)"),
    ("--hosts", "N", "number of hosts (default: 1)", 1),
    (
        "--precision",
        ("float32", "bfloat16"),
        "type of weights and activations in training (default: float32)",
        "float32",
    ),
    (
        "--optimizer",
        OPTIMIZERS,
        f"optimizer state of each parameter: {', '.join(OPTIMIZERS)} (default: adamw)",
        "adamw",
    ),
    (
        "--network",
        "GB/s",
        f"network bandwidth of each host (default: {NETWORK}, 100 Gbit/s Ethernet)",
        NETWORK,
    ),
    ("--headroom", "PART", "the part of DRAM that stays free (default: 0.1)", 0.1),
    ("--may-hang", "", "also allow mesh shapes on which collectives may hang"),
    ("--overlap", "", "rank steps that overlap communication with compute where they can"),
    (
        "--mode",
        ("training", "inference"),
        "inference: prefill and decode with a KV cache (default: training)",
        "training",
    ),
    (
        "--explain",
        "LAYOUT",
        "explain one layout, such as 'DP8 TP4 ZeRO-1 recompute', with the YAML to run it",
    ),
    (
        "--write",
        "DIR",
        "write the files that run that layout (default: the fastest) into a new folder",
    ),
    ("--json", "", "print every layout as JSON, in place of --explain: bytes, seconds, tokens/s"),
)


def plan(parser: ArgumentParser, words: Sequence[str]) -> int:
    """List every layout of a model on a machine, the fastest first; open no device."""
    text = "a configuration with the model, such as configs/models/llama8b.yaml"
    parser.add_argument("--model", required=True, metavar="FILE", help=text)
    add_options(parser, OPTIONS)
    asked = vars(parser.parse_args(words))
    name, as_json, folder = map(asked.pop, ("explain", "json", "write"))
    asked["network_gb_per_s"] = asked.pop("network")
    asked["optimizer"] = OPTIMIZERS[asked["optimizer"]]
    if (name or folder) and asked["mode"] == "inference":
        fail(
            f"ttkit plan {'--explain' if name else '--write'}",
            "this option is for training; --json has the parts of a decode step",
            "--mode training, or --json",
        )
    found = plan_layouts(**asked)
    chosen = found.find(name) if name else None
    if as_json:
        print(json.dumps(found.figures(), indent=1))
    else:
        print(found.explain(chosen) if chosen else found)
    if folder:
        print(found.write(folder, chosen), file=sys.stderr if as_json else None)
    # Without this, the garbage collection at exit would visit all objects that the dry runs keep.
    gc.freeze()
    return 0
