"""What the site is made of: links between its pages stay, others become words."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def maker():
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_to_pages_of_the_site_stay_and_others_become_words(tmp_path, monkeypatch):
    site = maker()
    monkeypatch.setattr(site, "SOURCE", tmp_path)
    for name in ("index.md", "04_collectives.ipynb"):
        (tmp_path / name).touch()
    assert site.relinked(
        "[map](welcome.md) of [04](../notebooks/04_collectives.ipynb#Exercises)"
    ) == ("[map](index.md) of [04](04_collectives.ipynb#Exercises)")
    text = "[a file](../ttkit/words.py), [a host](https://example.org/x.md), ![a picture](x.svg)"
    assert site.relinked(text) == "a file, [a host](https://example.org/x.md), ![a picture](x.svg)"


def test_the_reference_has_every_public_function_with_its_example():
    text = maker().reference()
    assert "### visualize_tensor" in text and "### all_gather" in text and ">>> " in text
