"""Whatever stands in the files: an answer or an error of ours; nothing is run, nothing hangs.
300 inputs; 100,000 under make test-long.
"""

import datetime
import json
import pathlib

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoiled import nothing_is_run, spoiled_bytes

from ttkit import TTKitError
from ttkit.cluster import (
    find_config,
    lint_path,
    read_bindings,
    read_hosts,
    read_rankfile,
)
from ttkit.cluster.files.bindings import Bindings, RankBinding
from ttkit.cluster.files.lint import findings_table
from ttkit.train import read_settings
from ttkit.train.config import SECTIONS

TOP_KEYS, BINDING_KEYS = [*Bindings.model_fields], [*RankBinding.model_fields]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECONDS = 10  # of processor time for one file and one reader; usual are milliseconds
SEEDS = [path.read_text() for path in sorted((ROOT / "configs").rglob("*")) if path.is_file()] + [
    """device_config: {mesh_shape: [1, 8], device_ids: [0, 1], enable_ddp: true}
training_config:
  batch_size: 8
  max_steps: 10
  learning_rate: 3e-4
  transformer_config: {model_type: gpt2, num_heads: 6, rope_scaling: {scaling_factor: 32.0}}
multihost_config:
  enabled: true
  num_workers: 4
  socket_type: fabric
  pipeline_parallel_config: {num_blocks: 6, blocks_per_rank: {0: 2, 1: 2, 2: 1, 3: 1}}
""",
    "multihost_config: x.yaml\ntraining_config: {model_config: x.yaml}\n",
    "rank 0=a slot=0\nrank 1=b slot=0:1-3\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nglobal_env: {<<: *b}\nrank_bindings: *b\n",
]
PIECES = [
    *TOP_KEYS,
    *BINDING_KEYS,
    *SECTIONS,
    ": ",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    ",",
    '"',
    "'",
    "&a ",
    "*a ",
    "<<: ",
    "!!",
    "!!python/object/apply:os.system ['x']",
]
PIECES += [
    "!!binary ",
    "!!timestamp ",
    "!!int ",
    "!!float ",
    "!!set ",
    "!!omap ",
    "0",
    "-1",
    "1e400",
    ".inf",
    "0x",
    "1:99",
    "9" * 30,
    "9" * 5000,
    "2024-13-40",
    "~",
    "yes",
    "\0",
    "\t",
    "#",
    "|",
    ">",
    "%",
]
PIECES += [
    "rank 0=a slot=0\n",
    "slots=1",
    "=",
    "ssh",
    "ips",
    "../" * 5,
    "/dev/zero",
    "/dev/stdin",
    "~nobody/x",
    "x" * 300,
    "ü",
    "\ufeff",
    "\u2028",
    "\x85",
    "$HOME",
    "${",
    "rankfile:file=",
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(PIECES),
    st.just(datetime.date(2026, 1, 1)),
)
keys = st.one_of(
    st.sampled_from([*TOP_KEYS, *BINDING_KEYS, *SECTIONS, "ssh", "ips"]),
    st.integers(-1, 3),
    st.text(max_size=4),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
bindings = st.fixed_dictionaries(
    {}, optional={key: scalars | st.integers(0, 3) | values for key in BINDING_KEYS}
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "rank_bindings": st.lists(bindings, max_size=4),
        **dict.fromkeys(TOP_KEYS[1:], values),
        **dict.fromkeys(SECTIONS, values),
    },
)


@st.composite
def spoiled(draw):
    """A good file with a few places cut out, doubled or written over."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 12)))
        text = (
            text[:start]
            + draw(st.sampled_from(["", text[start:stop] * 2, *PIECES]) | st.text(max_size=3))
            + text[stop:]
        )
    return text.encode(errors="replace")


inputs = st.one_of(
    spoiled(),
    spoiled_bytes([text.encode() for text in SEEDS]),
    st.lists(st.sampled_from(PIECES), max_size=25).map(lambda parts: "".join(parts).encode()),
    (values | documents).map(
        lambda value: yaml.safe_dump(value, allow_unicode=True).encode(errors="replace")
    ),
    values.map(lambda value: json.dumps(value, default=str).encode()),
    st.binary(max_size=60),
)
NAMES = (
    "rank_bindings.yaml",
    "hosts.txt",
    "hosts.json",
    "rankfile.txt",
)
READERS = list(zip((read_bindings, read_hosts, read_hosts, read_rankfile), NAMES))
READERS += [
    (read_settings, NAMES[0]),
    *((lint_path, name) for name in NAMES),
    (lint_path, "."),
    (find_config, "."),
]


def check(folder, content, readers=READERS):
    """Give one input to readers, under every name that a reader goes by."""
    for name in NAMES:
        (folder / name).write_bytes(content)
    (folder / "x.yaml").write_text(
        "rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: mgd.textproto\n"
    )
    (folder / "mgd.textproto").write_text((ROOT / "configs/t3000_2ranks/mgd.textproto").read_text())
    for reader, name in readers:
        with nothing_is_run(SECONDS):
            try:
                answer = reader(folder / name)
            except TTKitError as error:
                assert len(str(error)) < 20_000
            else:
                if (reader, name) == (lint_path, "."):
                    findings_table(answer[:2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(inputs)
def test_any_file_is_read_or_refused(folder, content):
    check(folder, content)


@pytest.mark.long
@settings(QUICK, max_examples=100_000)
@given(inputs, st.sampled_from(READERS))
def test_any_of_100_000_files_is_read_or_refused(folder, content, reader):
    check(folder, content, [reader])


def laughs(depth, way):
    """A small file that unfolds to 9 ** depth values."""
    lines = ["a0: &a0 {x: y}" if way == "merge" else "a0: &a0 [x, x, x]"]
    for level in range(1, depth):
        parts = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(
            f"a{level}: &a{level} {{<<: [{parts}]}}"
            if way == "merge"
            else f"a{level}: &a{level} [{parts}]"
        )
    return "\n".join([*lines, f"rank_bindings: *a{depth - 1}"]).encode()


HARD = {
    "half of a character": b'{"mesh_graph_desc_path": "\\ud800"}',
    "many aliases": laughs(12, "list"),
    "many merges": laughs(12, "merge"),
    "a list that holds itself": b"rank_bindings: &a [*a]\n",
    "a mapping that holds itself": b"rank_bindings: [&a {rank: 0, mesh_id: 0, env_overrides: *a}]\nmesh_graph_desc_path: mgd.textproto\n",
    "merged with itself": b"rank_bindings: [&a {<<: *a, rank: 0}]\n",
    "deep": b"[" * 50_000,
    "deep mappings": b"{a: " * 20_000,
    "deep blocks": b"- " * 20_000,
    "big": b"a" * 300_000,
    "long lines": b"rank_bindings: ["
    + b"{rank: 0, mesh_id: 0}, " * 1_500
    + b"]\nmesh_graph_desc_path: mgd.textproto\n",
    "many keys": b"\n".join(b"key%d: %d" % (n, n) for n in range(1_500)),
    "many anchors": b"\n".join(b"k%d: &a%d x" % (n, n) for n in range(1_500)),
    "control characters": b"rank_bindings: \x00\x01\x02",
    "other encoding": "rank_bindings: ü".encode("utf-16"),
    "many documents": b"---\na: 1\n" * 1_000,
    "devices without end": b"rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: /dev/zero\n",
}


@pytest.mark.parametrize("name", HARD)
def test_files_made_to_hurt(tmp_path, name):
    check(tmp_path, HARD[name])


def test_a_named_pipe_is_no_file(tmp_path):
    """Opening one would wait for ever."""
    import os

    os.mkfifo(tmp_path / "hosts.txt")
    with pytest.raises(TTKitError, match="not found"):
        read_hosts(tmp_path / "hosts.txt")
