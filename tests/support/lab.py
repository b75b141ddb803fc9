"""JupyterLab in a headless browser: a server on a copy of the lessons, and what a learner does
there with menus, keys and the mouse.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import psutil
import pytest
from jupyter_server.serverapp import list_running_servers

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: .venv/bin/pip install -e '.[test]'"
)
ui = pytest.importorskip("selenium.webdriver.support.ui")
actions = webdriver.ActionChains
exceptions = pytest.importorskip("selenium.common.exceptions")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CSS = "css selector"
# in the environment of every process below the server and the browser, also of those that lost
# their parent
MARK = "JUPYTER_RUNTIME_DIR"
# limits, several times what these take on two cores; together less than faulthandler_timeout
START_S, PAGE_S, LESSON_S, STOP_S = 60, 45, 120, 30
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--window-size=1400,1000",
)
# JupyterLab's own: its debugger asks each new kernel something, and a restart that comes before the
# answer cancels that.
NOT_OURS = "Could not restore the debugger state"
# Scripts see the notebook in front as `panel`; what is out of sight is in its model, not in the
# page.
PANEL = (
    "const shell = window.jupyterapp?.shell, "
    "panel = shell?.currentWidget ?? [...(shell?.widgets('main') ?? [])].at(-1), "
    "kernel = panel?.sessionContext?.session?.kernel;"
)
STATE = """return {idle: kernel?.status === 'idle', cells: [...panel.content.model.cells].map((cell, index) => ({
    index, type: cell.type, source: cell.sharedModel.getSource(), tags: cell.getMetadata('tags') ?? [], count: cell.executionCount,
    outputs: (cell.outputs?.toJSON() ?? []).map(out => ({
        type: out.output_type, name: out.name ?? out.ename ?? '', text: out.evalue ?? String(out.text ?? ''), kinds: Object.keys(out.data ?? {})}))}))};"""


@contextlib.contextmanager
def started(folder):
    """A `Lab` on copies of the lessons without outputs; afterwards no process of it is left.

    In the folder is then all that Jupyter and the browser keep.
    """
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    chromedriver = shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.skip(
            "there is no chromium or no chromedriver here: apt install chromium chromium-driver"
        )
    kept = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "IPYTHONDIR": "ipython"}
    kept[MARK] = "runtime"
    # what a learner sees has progress
    env = {name: text for name, text in os.environ.items() if name != "TTKIT_PROGRESS"}
    env |= {name: str(folder / place) for name, place in kept.items()} | {"PYTHONPATH": str(ROOT)}
    env["TTKIT_LEARNER"] = str(folder / "learner.json")
    words = [sys.executable, "-m", "ttkit", "lab", str(folder)]  # as a learner says it
    subprocess.run([*words, "--copy-only"], env=env, check=True, stdout=subprocess.DEVNULL)
    words += ["--no-browser", "--ip=127.0.0.1", "--port=0", "--LabApp.expose_app_in_browser=True"]
    log = folder / "lab.log"
    with contextlib.ExitStack() as end:
        end.callback(none_left, folder)
        with log.open("w") as said:
            server = subprocess.Popen(words, env=env, cwd=folder, stdout=said, stderr=said)
        end.callback(server.wait, STOP_S)
        end.callback(server.terminate)  # it ends its kernels, and their engines end with them
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={folder / 'chromium'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(chromedriver, env=env)
        driver = webdriver.Chrome(options=options, service=service)
        end.callback(driver.quit)
        driver.set_page_load_timeout(PAGE_S)
        driver.set_script_timeout(PAGE_S)
        until = time.monotonic() + START_S
        while not (address := answering(folder)):
            assert server.poll() is None and time.monotonic() < until, (
                f"JupyterLab does not answer:\n{log.read_text()[-3000:]}"
            )
            time.sleep(0.1)
        yield Lab(driver, address)


def answering(folder):
    """What the server says of itself (url, port, token), once it takes connections."""
    for address in list_running_servers(str(folder / "runtime")):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", address["port"]), timeout=5),
        ):
            return address
    return None


def processes_of(folder):
    """All living processes that were started for this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # ended meanwhile, or not ours to look at
            if process.environ().get(MARK) == str(folder / "runtime"):
                found.append(process)
    return found


def none_left(folder):
    """All processes are gone within a time; those that are not are ended, and it is a fault."""
    until = time.monotonic() + STOP_S
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    names = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(process.cmdline())[:200])
            process.kill()
    assert not names, f"still there {STOP_S} s after the end: {names}"


class Lab:
    """One notebook at a time in JupyterLab, as a learner sees it."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address

    def until(self, ready, limit_s=PAGE_S, what=""):
        """Ask until the answer is true; that answer.

        What is drawn anew or lies under something else just then, is asked again.
        """
        passing = (
            exceptions.StaleElementReferenceException,
            exceptions.ElementClickInterceptedException,
        )
        how = {"poll_frequency": 0.1, "ignored_exceptions": passing}
        return ui.WebDriverWait(self.driver, limit_s, **how).until(lambda _: ready(), what)

    def ask(self, script, *args):
        """What a script says of the notebook in front."""
        return self.driver.execute_script(PANEL + script, *args)

    def open(self, name):
        """A notebook whose kernel has started."""
        self.driver.get(f"{self.address['url']}lab/tree/{name}?reset&token={self.address['token']}")
        ready = (
            "return panel?.context?.path === arguments[0] && panel.context.isReady && "
            "kernel?.status === 'idle'"
        )
        self.until(lambda: self.ask(ready, name), what=f"{name} does not open")

    def click(self, selector, text=""):
        """Click on the first thing of this kind that is shown, can be clicked and begins so."""

        def clicked():
            for found in self.driver.find_elements(CSS, selector):
                if found.is_displayed() and found.text.startswith(text):
                    found.click()
                    return True
            return False

        self.until(clicked, what=f"there is no {selector} {text}")

    def restart_and_run_all(self):
        """By the menu, and wait until every cell has run or one stopped the others; the cells."""
        self.click(".lm-MenuBar-item", "Run")
        self.click(".lm-Menu-item:not(.lm-mod-disabled)", "Restart Kernel and Run All Cells")
        self.click(".jp-Dialog .jp-mod-accept")
        return self.until(self.finished, LESSON_S, "the lesson does not come to its end")

    def run_above(self, index, restart=False):
        """By the menus run all cells above one, in a new kernel if asked to; the cells."""
        self.node(index).find_element(CSS, ".jp-InputArea-editor .cm-line").click()
        if restart:
            self.click(".lm-MenuBar-item", "Kernel")
            self.click(".lm-Menu-item:not(.lm-mod-disabled)", "Restart Kernel and Clear")
            self.click(".jp-Dialog .jp-mod-accept")
            self.until(lambda: not any(cell["count"] for cell in self.cells()), what="a restart")
        self.click(".lm-MenuBar-item", "Run")
        self.click(".lm-Menu-item:not(.lm-mod-disabled)", "Run All Above Selected Cell")
        return self.until(lambda: self.finished(index), LESSON_S, "the cells above do not end")

    def run(self, index):
        """Run a cell with Shift+Enter, and do not wait for its end."""
        self.node(index).find_element(CSS, ".jp-InputArea-editor .cm-line").click()
        keys = webdriver.ActionChains(self.driver).key_down(webdriver.Keys.SHIFT)
        keys.send_keys(webdriver.Keys.ENTER).key_up(webdriver.Keys.SHIFT).perform()

    def finished(self, end=None):
        """The cells, once each before `end` has run, or once an error has stopped the rest."""
        state = self.ask(STATE)  # at once: the kernel is idle for a moment between two cells, too
        code = [cell for cell in state["cells"][:end] if cell["type"] == "code"]
        return (
            state["idle"]
            and (all(cell["count"] for cell in code) or any(map(faults, code)))
            and state["cells"]
        )

    def cells(self):
        """Every cell's source, tags, number and outputs."""
        return self.ask(STATE)["cells"]

    def node(self, index):
        """A cell on the page, scrolled to."""
        self.ask("panel.content.scrollToItem(arguments[0], 'center')", index)
        attached = (
            "const cell = panel.content.widgets[arguments[0]]; "
            "return cell.isAttached && cell.inViewport ? cell.node : null"
        )
        return self.until(
            lambda: self.ask(attached, index), what=f"cell {index} does not come into view"
        )

    def settle(self):
        """Wait until the kernel has done all that it was asked to, and the page has all that it
        said.
        """
        self.driver.execute_async_script(
            f"const done = arguments[0]; {PANEL} kernel.requestExecute({{code: '', silent: true, "
            f"store_history: false}}).done.then(() => done())"
        )

    def listen(self):
        """From now on remember what goes wrong in the kernel outside of cells: what a widget
        calls has no cell to say it in.
        """
        self.ask("""window.heard = []; panel.sessionContext.iopubMessage.connect((_, message) => {
            if (message.header.msg_type === 'error' || message.content.name === 'stderr')
                window.heard.push(message.content.evalue ?? message.content.text)});""")

    def heard(self):
        """What went wrong since `listen`."""
        return self.ask("return window.heard")

    def complaints(self):
        """What the page said on the browser's console, as an error."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE" and NOT_OURS not in entry["message"]
        ]

    def answer(self, index, lines, text):
        """Replace lines of a cell by typing, run the cell with Shift+Enter; what is to be seen
        below it then.
        """
        node = self.node(index)
        ran = self.cells()[index]["count"]
        row = node.find_elements(CSS, ".jp-InputArea-editor .cm-line")[lines.start]
        row.click()
        keys = webdriver.ActionChains(self.driver)
        down = [webdriver.Keys.DOWN] * (len(lines) - 1)
        keys.send_keys(webdriver.Keys.HOME).key_down(webdriver.Keys.SHIFT).send_keys(
            *down, webdriver.Keys.END
        ).key_up(webdriver.Keys.SHIFT).send_keys(text)
        keys.key_down(webdriver.Keys.SHIFT).send_keys(webdriver.Keys.ENTER).key_up(
            webdriver.Keys.SHIFT
        ).perform()
        self.until(
            lambda: self.cells()[index]["count"] not in (None, ran),
            what=f"cell {index} does not run",
        )
        self.settle()
        return self.node(index).find_element(CSS, ".jp-Cell-outputArea").text


def faults(cell):
    """What is wrong in a cell's outputs: errors where none is expected, none where one is, and
    all that came over stderr.
    """
    errors = [f"{out['name']}: {out['text']}" for out in cell["outputs"] if out["type"] == "error"]
    said = [out["text"] for out in cell["outputs"] if out["name"] == "stderr"]
    if "raises-exception" not in cell["tags"]:
        return errors + said
    return (
        said
        if errors or not cell["count"]
        else [*said, "no error, though the cell is there to show one"]
    )
