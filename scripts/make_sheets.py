"""Take screenshots of the lessons as they are kept, for somebody to look at.

Each lesson is drawn in a window of 1,280 and of 800 px, light and dark, cut into sheets. They are
PNGs in .cache/sheets. Needs chromium and chromedriver, and the extra `test`.

python scripts/make_sheets.py [NN ...]
"""

import base64
import pathlib
import shutil
import sys
import tempfile

from nbconvert import HTMLExporter
from nbconvert.preprocessors import TagRemovePreprocessor
from selenium import webdriver

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHEETS = ROOT / ".cache" / "sheets"
WIDTHS, THEMES, HEIGHT = (1280, 800), ("light", "dark"), 3200
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


def page(lesson: pathlib.Path, theme: str) -> str:
    """Return a lesson as a page of HTML that needs no network."""
    offline = dict.fromkeys(("mathjax_url", "require_js_url", "jquery_url"), "")
    exporter = HTMLExporter(theme=theme, **offline)
    folded = TagRemovePreprocessor(remove_cell_tags={"solution", "script"})
    exporter.register_preprocessor(folded, enabled=True)
    return exporter.from_filename(str(lesson))[0]


def main() -> None:
    """Write the sheets of the lessons whose numbers are given, or of all."""
    lessons = sorted((ROOT / "notebooks").glob("*.ipynb"))
    chosen = [one for one in lessons if not sys.argv[1:] or one.name[:2] in sys.argv[1:]]
    SHEETS.mkdir(parents=True, exist_ok=True)
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options, service) as driver, tempfile.TemporaryDirectory() as folder:
        for lesson in chosen:
            for theme in THEMES:
                file = pathlib.Path(folder) / f"{theme}.html"
                file.write_text(page(lesson, theme), encoding="utf-8")
                for width in WIDTHS:
                    for number, png in enumerate(sheets(driver, file.as_uri(), width)):
                        name = f"{lesson.name[:2]}_{width}_{theme}_{number}.png"
                        (SHEETS / name).write_bytes(png)
            print(lesson.stem, flush=True)
    print(SHEETS)


def sheets(driver: webdriver.Chrome, address: str, width: int):
    """Yield the pictures of a page from top to bottom."""
    size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)
    end = driver.execute_script("return document.body.scrollHeight")
    for top in range(0, end, HEIGHT):
        part = {"x": 0, "y": top, "width": width, "height": min(HEIGHT, end - top), "scale": 1}
        how = {"clip": part, "captureBeyondViewport": True}
        yield base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", how)["data"])


if __name__ == "__main__":
    main()
