"""Build the site: every lesson with its outputs, the reference, and tables of the planner.

`python docs/make_site.py` (or `make site`) writes the folder site/, which opens without a kernel
and without a network. It fails where a page has a broken link. Needs the extra `site`.
"""

import importlib
import inspect
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SOURCE = ROOT / "build" / "site"
PAGES = ("real_programs.md", "published.md", "ttnn.md")
MODULES = ("ttkit", "ttkit.plans", "ttkit.train", "ttkit.cluster", "ttkit.lessons")
# What the page of the planner shows: a model, and the system that it is planned on.
PLANNED = [("tinyllama", "t3000"), ("tinyllama", "galaxy"), ("llama8b", "galaxy")]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def relinked(text: str) -> str:
    """Keep links between pages of the site; of a link to another file only the words stay."""

    def link(found: re.Match) -> str:
        words, target, anchor = found.groups()
        name = pathlib.PurePosixPath(target).name
        name = "index.md" if name == "welcome.md" else name
        return f"[{words}]({name}{anchor or ''})" if (SOURCE / name).is_file() else words

    return LINK.sub(link, text)


def reference() -> str:
    """Return the public names of ttkit with their signatures and docstrings."""
    parts = ["# Reference\n"]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{(module.__doc__ or '').strip().splitlines()[0]}\n")
        for public in getattr(module, "__all__", sorted(vars(module))):
            thing = getattr(module, public)
            if not callable(thing):
                continue
            try:
                head = f"{public}{inspect.signature(thing)}"
            except (TypeError, ValueError):  # An enumeration or an error has none.
                head = public
            text = inspect.getdoc(thing) or ""
            parts.append(f"### {public}\n\n```python\n{head}\n```\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def tables() -> str:
    """Return the planner's tables, as the command line prints them."""
    from ttkit import plan_layouts

    parts = ["# What the planner says\n"]
    for model, system in PLANNED:
        command = f"ttkit plan --model configs/models/{model}.yaml --system {system}"
        found = plan_layouts(str(ROOT / "configs" / "models" / f"{model}.yaml"), system)
        parts.append(f"## {model} on {system}\n\n`{command}`\n\n```\n{found!r}\n```\n")
    return "\n".join(parts)


def gather() -> None:
    """Put the pages together in build/site."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for lesson in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(lesson, SOURCE)
    shutil.copy(ROOT / "notebooks" / "all_gather.svg", SOURCE)
    for page in (ROOT / "notebooks").glob("*.md"):
        shutil.copy(page, SOURCE / ("index.md" if page.name == "welcome.md" else page.name))
    for name in (*PAGES, "site.css"):
        shutil.copy(ROOT / "docs" / name, SOURCE)
    (SOURCE / "planner.md").write_text(tables(), encoding="utf-8")
    (SOURCE / "reference.md").write_text(reference(), encoding="utf-8")
    for page in SOURCE.glob("*.md"):
        page.write_text(relinked(page.read_text(encoding="utf-8")), encoding="utf-8")
    for lesson in SOURCE.glob("*.ipynb"):
        notebook = json.loads(lesson.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = relinked("".join(cell["source"]))
        lesson.write_text(json.dumps(notebook), encoding="utf-8")


def main() -> int:
    gather()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    config = ["--config-file", str(ROOT / "docs" / "mkdocs.yml")]
    if failed := subprocess.run([*command, *config]).returncode:
        return failed
    # The theme's pages would load this script from another host.
    theirs, ours = "https://unpkg.com/iframe-worker/shim", "assets/javascripts/site_worker.js"
    shutil.copy(ROOT / "docs" / "site_worker.js", ROOT / "site" / ours)
    (ROOT / "site" / "404.html").unlink()  # Its links work only at the root of a host.
    # Each lesson would say that its page is light. Without that, pictures follow the reader's
    # system, as the pages do.
    light = ' data-jp-theme-light="true"'
    for page in (ROOT / "site").glob("*.html"):
        text = page.read_text(encoding="utf-8").replace(theirs, ours).replace(light, "")
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
