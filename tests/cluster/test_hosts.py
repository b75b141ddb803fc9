"""hosts.txt, hosts.json and rankfiles: read, refused with the line, converted into each other."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit import TTKitError
from ttkit import __main__ as cli
from ttkit.cluster.files.hosts import (
    host_of_each_slot,
    hosts_text,
    rankfile_of,
    read_hosts,
    read_rankfile,
)

# The files of the reference documents.
TWO = "metal-wh-01 slots=1\nmetal-wh-04 slots=1\n"
FIVE = (
    "metal-wh-01 slots=1\nmetal-wh-03 slots=1\nmetal-wh-04 slots=1\nmetal-wh-05 "
    "slots=1\nmetal-wh-06 slots=1\n"
)
THREE = "10.85.100.220 slots=1\n10.85.100.221 slots=1\n10.85.100.222 slots=1\n"


@pytest.fixture
def put(tmp_path):
    def call(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return call


@pytest.mark.parametrize("text", [TWO, FIVE, THREE])
def test_hosts_of_the_reference_documents(put, text):
    hosts = read_hosts(put("hosts.txt", text))
    assert hosts_text(hosts) == text


TXT = (
    "# the cluster\n\na slots=2 # first\nb\nttuser@c slots = 3 max_slots=4\na "
    "slots=1\n[fe80::1] max-slots=2\n"
)
MLX = '[{"ssh": "a", "ips": ["10.0.0.1"]}, {"ssh": "b", "ips": []}, {"ssh": "a", "ips": ["::2"]}]'


@pytest.mark.parametrize(
    "name, text, hosts",
    [
        ("hosts.txt", TXT, [("a", 3), ("b", 1), ("ttuser@c", 3), ("[fe80::1]", 1)]),
        ("hosts.json", MLX, [("a", 2), ("b", 1)]),
        ("hosts.json", '["a", "b"]', [("a", 1), ("b", 1)]),
    ],
)
def test_forms_of_a_hosts_file(put, name, text, hosts):
    assert list(read_hosts(put(name, text)).items()) == hosts


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("hosts.txt", "a slots=0", "hosts.txt:1: 'a slots=0' is not a line of a hosts file"),
        ("hosts.txt", "a\nb slots=x", "hosts.txt:2: 'b slots=x' is not a line"),
        ("hosts.txt", "a slot=1", "try: one line 'host slots=N' for each host"),
        ("hosts.txt", "-oProxyCommand=x slots=1", "is not a line of a hosts file"),
        ("hosts.txt", "", "it names no host"),
        ("hosts.json", '{"hosts": []}', "host 1: {'hosts': []} names no host"),
        ("hosts.json", '["a", {"ips": []}]', "host 2: {'ips': []} names no host"),
        ("hosts.json", '[{"ssh": "-x"}]', "host 1: {'ssh': '-x'} names no host"),
        ("hosts.json", "[]", "it names no host"),
        ("hosts.json", '["a",\n', "hosts.json:2: malformed YAML"),
        ("rankfile", "rank 0 host slot=0", "rankfile:1: 'rank 0 host slot=0' is not a line of a"),
        ("rankfile", "rank 0=a slot=0\n\nrank 0=b slot=0", "from 0, each once. Got: [0, 0]"),
        ("rankfile", "", "Got: []"),
        ("rankfile", "rank 0=-x slot=0", "'rank 0=-x slot=0' is not a line of a rankfile"),
    ],
)
def test_files_that_are_refused(put, name, text, said):
    with pytest.raises(TTKitError) as error:
        host_of_each_slot(put(name, text))
    assert said in str(error.value)


def test_rankfiles(put):
    text = (
        "# rank 0=host1 slot=0, as the guide has it\nrank 1=host2 slot=0\nRANK 0 = host1 "
        "slots=0:1-3  # bound\n"
    )
    assert read_rankfile(put("rf", text)) == {1: "host2", 0: "host1"}


NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,10}", fullmatch=True)
HOSTS = st.dictionaries(NAMES, st.integers(1, 5), min_size=1, max_size=6)


@settings(max_examples=30)
@given(HOSTS)
def test_conversions_keep_hosts_and_slots(tmp_path_factory, hosts):
    folder = tmp_path_factory.mktemp("hosts", numbered=True)
    (folder / "hosts.txt").write_text(hosts_text(hosts))
    (folder / "rankfile").write_text(rankfile_of(hosts))
    assert list(read_hosts(folder / "hosts.txt").items()) == list(hosts.items())
    ranks = host_of_each_slot(folder / "hosts.txt")
    assert host_of_each_slot(folder / "rankfile") == ranks and Counter(ranks) == hosts


def test_the_command(put, capsys):
    path = put("hosts.json", '[{"ssh": "a", "ips": []}, "b"]')
    assert cli.main(["convert", str(path), "--to", "txt"]) == 0
    assert capsys.readouterr().out == "a slots=1\nb slots=1\n"
    assert cli.main(["convert", "configs/2loudboxes/mgd.textproto"]) == 0
    assert capsys.readouterr().out.startswith("mesh_descriptors {")
    assert cli.main(["convert", "nowhere", "--to", "txt"]) == 1
    assert "hosts file not found: nowhere" in capsys.readouterr().err


def test_the_command_line_itself(capsys):
    assert cli.main([]) == 2
    assert cli.main(["nothing"]) == 2
    assert cli.main(["--help"]) == 0
    assert "ttkit run --help" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "--help"])
    assert stop.value.code == 0 and "--rank-binding" in capsys.readouterr().out
