"""Text to train on: the kit's own is the same everywhere, the learner's own is read whole or
refused by name.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from ttkit import TTKitError
from ttkit.train import corpus
from ttkit.train.corpus import builtin_corpus, read_text, standard_library_text


def test_the_same_corpus_on_every_machine():
    """Losses that a lesson prints depend on it: a change of it is a break."""
    text = builtin_corpus()
    assert (len(text), hashlib.sha256(text.encode("ascii")).hexdigest()) == (LENGTH, DIGEST)


LENGTH = 193277
DIGEST = "eff81fc57f771bf7a7223c3c6b1b8ed70cd666bc4883aa7120264373ed8a1ea4"


def test_the_corpus_is_right():
    text = builtin_corpus()
    # the vocabulary of ttml's smallest model
    assert set(text) <= set(map(chr, range(32, 127))) | {"\n"} and len(set(text)) <= 96
    sums = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", text)
    assert len(sums) > 300
    assert all(int(a) + int(b) * (1 if sign == "+" else -1) == int(c) for a, sign, b, c in sums)
    for animal, things, home in corpus.ANIMALS:
        assert set(re.findall(rf"The {animal} likes (\w+)", text)) == {things}
        assert set(re.findall(rf"The {animal} lives by the (\w+)", text)) == {home}
    stories = text.strip("\n").split("\n\nThe ")
    assert len(set(stories)) > 0.95 * corpus.STORIES


def test_the_standard_library():
    text = standard_library_text()
    assert len(text) > 5_000_000 and "def urlopen(" in text and "\0" not in text
    assert "import numpy" not in text.splitlines()[:100]
    code = (
        "import hashlib\nfrom ttkit.train import "
        "*\nprint(hashlib.sha256(standard_library_text().encode()).hexdigest())"
    )
    env = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_a_python_without_its_source(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(TTKitError, match="no source files in"):
        standard_library_text()


def test_a_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo \xc3\xa9")
    assert read_text(tmp_path / "a.txt") == "one\ntwo é" == read_text(str(tmp_path / "a.txt"))


def test_a_folder_in_order(tmp_path):
    files = {
        "b.txt": "b",
        "a/z.md": "az\n",
        "a/b/c.txt": "abc",
        "c.txt": "",
        ".hidden/x": "x",
        ".DS_Store": "y",
        "B.txt": "B",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "a" / "round").symlink_to(tmp_path)  # a circle
    os.mkfifo(tmp_path / "pipe")  # nobody writes: reading it would wait for ever
    assert read_text(tmp_path) == "B\nabc\naz\nb\n"


def test_errors_name_the_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "picture.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "zero").write_bytes(b"abc\0def")
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "nothing").mkdir()
    wrong = {
        "in/picture.png is not text: byte 0 is not UTF-8": tmp_path / "in",
        "zero is not text: character 3 is a zero": tmp_path / "zero",
        "there is no text in": tmp_path / "blank",
        f"there is no text in {tmp_path / 'nothing'}": tmp_path / "nothing",
        "there is no file or folder": tmp_path / "no",
        "is neither a file nor a folder": "/dev/zero",  # which never ends
    }
    for rule, path in wrong.items():
        with pytest.raises(TTKitError) as caught:
            read_text(path)
        assert rule in str(caught.value) and "\n  try: " in str(caught.value)


def test_what_may_not_be_opened(ordinary_user):
    """A file and a folder without permission are errors, not left out."""
    folder = tempfile.mkdtemp()  # pytest's own folders are closed to other users
    try:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/shut")
        for name in ("one.txt", "shut/two.txt"):
            with open(f"{folder}/{name}", "w") as file:
                file.write(name)
        os.chmod(f"{folder}/shut", 0)
        with (
            ordinary_user(),
            pytest.raises(TTKitError, match=f"{folder}/shut cannot be opened: Permission denied"),
        ):
            read_text(folder)
        os.chmod(f"{folder}/shut", 0o755)
        os.chmod(f"{folder}/one.txt", 0)
        with (
            ordinary_user(),
            pytest.raises(
                TTKitError, match=f"{folder}/one.txt cannot be opened: Permission denied"
            ),
        ):
            read_text(folder)
    finally:
        os.chmod(f"{folder}/shut", 0o755)
        shutil.rmtree(folder)
