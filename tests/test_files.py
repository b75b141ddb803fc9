"""A file is whole, or what it was before."""

import os

import pytest

from ttkit import TTKitError
from ttkit.files import write_whole


def test_a_file_is_whole_or_as_before(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.txt"
    assert write_whole(str(path), "first é", "write") == path
    assert path.read_text(encoding="utf-8") == "first é"
    with pytest.raises(TTKitError, match=r"^write: the file cannot be written: .*surrogates"):
        write_whole(path, "half \ud800", "write")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(TTKitError, match="No space left on device"):
        write_whole(path, "second", "write")
    assert path.read_text(encoding="utf-8") == "first é" and os.listdir(path.parent) == ["a.txt"]


@pytest.mark.parametrize("name", ["", "folder", "x" * 300, "a\0b"])
def test_where_no_file_can_be(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TTKitError, match="the file cannot be written"):
        write_whole(name, "x", "write")
    assert os.listdir(tmp_path) == ["folder"] and not os.listdir(tmp_path / "folder")
