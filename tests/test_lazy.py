"""Names that are imported on first use."""

import subprocess
import sys

import pytest

import ttkit
import ttkit.cluster
import ttkit.train


@pytest.mark.parametrize("package", [ttkit, ttkit.train, ttkit.cluster], ids=lambda p: p.__name__)
def test_every_name_is_there_and_no_other(package):
    assert set(package.__all__) <= set(dir(package)) | {"__version__"}
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'no'"):
        package.no  # noqa: B018


def test_a_missing_name_says_the_closest():
    for module, name in ((ttkit.train, "AutoContex"), (ttkit.ttml.autograd, "AutoContex")):
        with pytest.raises(AttributeError, match="the closest is AutoContext"):
            getattr(module, name)


def test_a_name_is_imported_when_it_is_asked_for():
    code = (
        "import sys, ttkit.train; before = 'ttkit.train.autograd' in sys.modules; "
        "ttkit.train.no_grad; print(before, 'ttkit.train.autograd' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
