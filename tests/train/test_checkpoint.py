"""Checkpoints: what was saved comes back, a crash at any byte leaves the last good one, and what
is no checkpoint says so.
"""

import json
import os
import resource
import tempfile
import warnings

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ttkit import TTKitError
from ttkit.train.run import checkpoint
from ttkit.train.run.checkpoint import (
    DamagedCheckpoint,
    check_matches,
    checkpoints,
    latest,
    load,
    save,
)

TENSORS = {
    "weight": np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3),
    "tokens": np.array([3, 1], np.uint32),
}


DTYPES = "bool int8 int32 int64 uint8 uint32 float16 float32 float64".split()


def names(folder):
    return sorted(os.listdir(folder))


arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: st_numpy.arrays(
        dtype, st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)


@given(
    st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"])).filter(
            lambda name: name != "__metadata__"
        ),
        arrays,
        max_size=4,
    ),
    st.text(),
)
def test_what_was_saved_comes_back(tensors, word):
    meta = {"step": 3, "losses": [0.1, 1e-30, 7], "tokenizer": {"characters": word}, "none": None}
    with tempfile.TemporaryDirectory() as folder:
        found, reported = load(save(folder, 3, tensors, meta))
    assert reported == meta and found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert (
            found[name].dtype == array.dtype
            and found[name].shape == array.shape
            and found[name].tobytes() == array.tobytes()
        )
        assert found[name].flags.writeable


def test_any_safetensors_program_reads_it(tmp_path):
    found = safetensors.numpy.load_file(save(tmp_path, 1, TENSORS, {"a": 1}))
    assert all((found[name] == array).all() for name, array in TENSORS.items())


def test_the_same_run_writes_the_same_bytes(tmp_path):
    one, two = (
        save(tmp_path / "one", 1, TENSORS, {"a": 1}),
        save(tmp_path / "two", 1, dict(reversed(TENSORS.items())), {"a": 1}),
    )
    assert (
        load(one)[1] == load(two)[1]
        and safetensors.numpy.load_file(one).keys() == safetensors.numpy.load_file(two).keys()
    )
    assert marks(one)["digest"] == marks(two)["digest"]


def marks(path):
    with safetensors.safe_open(str(path), "np") as file:
        return file.metadata()


def test_the_newest_stay(tmp_path):
    for step in range(0, 100_000_101, 20_000_020):
        save(tmp_path, step, TENSORS, {}, keep=2)
    assert (
        names(tmp_path) == ["step_100000100.safetensors", "step_80000080.safetensors"]
        and latest(tmp_path).stem == "step_100000100"
    )
    # a run that was set back: what it writes is never what goes
    save(tmp_path, 7, TENSORS, {}, keep=2)
    assert names(tmp_path) == ["step_00000007.safetensors", "step_100000100.safetensors"]
    save(tmp_path, 8, TENSORS, {}, keep=1)
    assert names(tmp_path) == ["step_00000008.safetensors"]
    save(tmp_path, 8, TENSORS, {"again": True}, keep=1)
    assert load(latest(tmp_path))[1] == {"again": True}


def test_other_files_are_left_alone(tmp_path):
    others = [
        "notes.txt",
        "step_1.safetensors",
        "model.safetensors",
        "step_00000001.safetensors.bak",
        ".hidden.part",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".step_00000009.safetensors.part").write_text("of a process that was killed")
    for step in range(5):
        save(tmp_path, step, TENSORS, {}, keep=1)
    assert names(tmp_path) == sorted([*others, "step_00000004.safetensors"])


def test_a_file_cut_anywhere_is_no_checkpoint(tmp_path):
    good = save(tmp_path, 1, TENSORS, {"a": 1})
    bad = tmp_path / "step_00000002.safetensors"
    whole = good.read_bytes()
    for size in range(len(whole)):
        bad.write_bytes(whole[:size])
        with pytest.raises(
            DamagedCheckpoint,
            match=rf"step_00000002.safetensors: its {size:,} bytes were cut short or are no safetensors file",
        ):
            load(bad)
    bad.write_bytes(whole[:-1])
    with pytest.warns(
        UserWarning,
        match=r"load .*step_00000002.safetensors: its [\d,]+ bytes were cut short .*; passed over for step_00000001",
    ) as caught:
        assert latest(tmp_path) == good
    assert caught[0].filename == __file__
    bad.write_bytes(whole + b"\0")
    with pytest.raises(DamagedCheckpoint, match="cut short or"):
        load(bad)


@pytest.mark.parametrize("flip", [0x01, 0x05, 0x20, 0xFF])
def test_a_changed_byte_is_seen(tmp_path, flip):
    path = save(tmp_path, 1, TENSORS, {"a": 1})
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpoint) as caught:
            load(path)
        if place >= header:
            assert "does not agree with its digest" in str(caught.value)


@pytest.mark.parametrize(
    "old, new", [(b'"F32"', b'"I32"'), (b"[1,1,2,3]", b"[1,1,3,2]"), (b'"tokens"', b'"tokenz"')]
)
def test_another_type_shape_or_name_is_seen(tmp_path, old, new):
    path = save(tmp_path, 1, TENSORS, {})
    whole = path.read_bytes()
    assert whole.count(old) == 1
    path.write_bytes(whole.replace(old, new))
    with pytest.raises(DamagedCheckpoint, match="does not agree with its digest"):
        load(path)


def test_what_others_wrote(tmp_path):
    path = tmp_path / "step_00000005.safetensors"
    text = dict.fromkeys(["cut short or are no safetensors file", "\n  try: an older checkpoint"])
    for content in (b"", b"PK\x03\x04 a zip", b"\x80\x04." * 500, b"{}" * 100, bytes(1000)):
        path.write_bytes(content)
        with pytest.raises(DamagedCheckpoint) as caught:
            load(path)
        assert all(part in str(caught.value) for part in text)
    safetensors.numpy.save_file(TENSORS, path)
    with pytest.raises(
        DamagedCheckpoint,
        match=r"it is a safetensors file, but no checkpoint of ttkit\n  try: safetensors.numpy.load_file",
    ):
        load(path)
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        }
    ).encode()
    # a published model: NumPy has no bfloat16
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(DamagedCheckpoint, match="but no checkpoint of ttkit"):
        load(path)
    safetensors.numpy.save_file(TENSORS, path, {checkpoint.MARK: "2"})
    with pytest.raises(DamagedCheckpoint, match="its format is 2, this ttkit reads 1"):
        load(path)
    safetensors.numpy.save_file(TENSORS, path, {checkpoint.MARK: checkpoint.FORMAT})
    with pytest.raises(DamagedCheckpoint, match="does not agree with its digest"):
        load(path)
    with pytest.raises(
        DamagedCheckpoint,
        match=r"none of 1 is whole:\n  load .*step_00000005.safetensors: its content",
    ):
        latest(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(TTKitError, match="there is no such folder"):
        latest(tmp_path / "no")
    with pytest.raises(TTKitError, match=r"it holds no step_NNNNNNNN.safetensors"):
        latest(tmp_path)
    for path, reason in ((tmp_path / "no", "No such file or directory"), ("a\0b", "null byte")):
        with pytest.raises(TTKitError, match=f"it cannot be read: .*{reason}") as caught:
            load(path)
        assert not isinstance(caught.value, DamagedCheckpoint)


def test_the_kernels_own_limit(tmp_path):
    good = save(tmp_path, 1, TENSORS, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(TTKitError, match="it cannot be written: File too large"):
            save(tmp_path, 2, {"big": np.zeros(100_000, np.float32)}, {}, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == [good.name] and latest(tmp_path) == good


def test_a_stopped_save_cleans_up(tmp_path, monkeypatch):
    def stop(file):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 1, TENSORS, {})
    assert names(tmp_path) == []


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    for where in ("file", "file/below"):
        with pytest.raises(
            TTKitError, match=r"it cannot be written: (File exists|Not a directory)"
        ):
            save(tmp_path / where, 1, TENSORS, {})
    assert checkpoints(tmp_path / "file") == []


def test_tensors_of_another_model():
    here = {f"blocks.{i}.weight": (1, 1, 4, 4) for i in range(5)} | {"bias": (1, 1, 1, 4)}
    check_matches(here, {name: np.zeros(shape) for name, shape in here.items()})
    there = {
        "bias": np.zeros((1, 1, 1, 8)),
        "head": np.zeros((1, 1, 2, 2)),
    }
    with pytest.raises(TTKitError) as caught:
        check_matches(here, there, "resume from step 7")
    assert str(caught.value).splitlines() == [
        "resume from step 7: 7 tensors are not those of the model",
        "  blocks.0.weight is missing, the model has [1, 1, 4, 4]",
        "  blocks.1.weight is missing, the model has [1, 1, 4, 4]",
        "  blocks.2.weight is missing, the model has [1, 1, 4, 4]",
        "  try: the model configuration that the checkpoint was made with",
    ]
    with pytest.raises(TTKitError, match=r"bias is \[1, 1, 1, 8\], the model has \[1, 1, 1, 4\]"):
        check_matches({"bias": here["bias"]}, {"bias": there["bias"]})
    with pytest.raises(TTKitError, match=r"head is \[1, 1, 2, 2\], the model has none"):
        check_matches({}, {"head": there["head"]})


def test_no_warning_without_a_reason(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(tmp_path, 1, TENSORS, {})
        assert latest(tmp_path).stem == "step_00000001"
