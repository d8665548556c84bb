"""Looks at the console of a brick under load in headless Chromium: browser.py SINTER DIRECTORY.

Ends with a message and exit code 1 if anything is not as it should be. Screenshots go to DIRECTORY.
"""

import base64
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

WIDTHS = {"desktop": (1280, 900), "phone": (360, 740)}
THEMES = ("light", "dark")
# Seconds of load before anything is looked at: all tables are about ten.
LOADED = 14
TAB, ENTER, DOWN = "\ue004", "\ue007", "\ue015"

# What each panel shows, as the page has it.
PANELS = """
const rows = (id) => document.querySelectorAll(`#${id} tbody tr`).length;
const inked = (id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  if (!canvas) return 0;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 128) colours.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
  }
  return colours.size;
};
return {
  sentence: document.getElementById("sentence").textContent,
  state: document.getElementById("state").textContent,
  evidence: document.querySelectorAll("#evidence li").length,
  bars: document.querySelectorAll("#bars .band").length,
  rows: Object.fromEntries(["operations", "heat-table", "stages", "pools", "transfers", "segments", "locks", "slow"].map((id) => [id, rows(id)])),
  inked: Object.fromEntries(["rates", "heat", "p99", "cores", "io"].map((id) => [id, inked(id)])),
  unlabelled: [...document.querySelectorAll("[role=img]")].filter((one) => !one.getAttribute("aria-label")).map((one) => one.id),
  untold: [...document.querySelectorAll("section")].filter((one) => !one.querySelector(".about")).map((one) => one.id),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  dark: document.documentElement.classList.contains("dark"),
};
"""

# Texts whose colours are too close to each other (WCAG 2: a contrast of 4.5).
FAINT = """
const light = (colour) => {
  const parts = colour.match(/[\\d.]+/g).map(Number).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour;
  }
  return getComputedStyle(document.documentElement).backgroundColor;
};
const faint = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.offsetParent) continue;
  const [one, other] = [light(getComputedStyle(element).color), light(ground(element))];
  const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  if (contrast < 4.5) faint.push(`${element.tagName} ${element.className} ${element.textContent.slice(0, 20)}: ${contrast.toFixed(1)}`);
}
return faint;
"""


class Wrong(Exception):
    """Something is not as it should be."""


def hold(truth, what):
    if not truth:
        raise Wrong(what)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Browser:
    """A session of chromedriver."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise Wrong(f"{path}: {error.read().decode()[:500]}") from error

    def do(self, path, body):
        return self.call("POST", f"/session/{self.session}{path}", body)

    def run(self, script):
        return self.do("/execute/sync", {"script": script, "args": []})

    def devtools(self, command, **parameters):
        return self.do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, key):
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.do("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def errors(self):
        said = self.do("/se/log", {"type": "browser"})
        return [line["message"] for line in said if line["level"] in ("SEVERE", "WARNING")]

    def picture(self, path):
        told = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(told["data"]))

    def end(self):
        self.call("DELETE", f"/session/{self.session}")


@contextlib.contextmanager
def program(arguments, **options):
    """A program that runs until the block has ended."""
    process = subprocess.Popen(arguments, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise Wrong(f"{what} after {seconds} s")


def small_files(mount, over):
    """Creates, syncs, lists and removes files until it is over."""
    number = 0
    while not over.is_set():
        path = os.path.join(mount, f"small-{number % 100}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"content {number}\n" * 50)
            file.flush()
            os.fsync(file.fileno())
        os.listdir(mount)
        if number % 3 == 0:
            os.remove(path)
        number += 1


def check_panels(told, where):
    hold(told["state"] == "live", f"{where}: {told['state']}")
    hold(told["sentence"].endswith(".") and "Waiting" not in told["sentence"], f"{where}: no verdict: {told['sentence']}")
    hold(told["evidence"] > 0 and told["bars"] == 4, f"{where}: {told}")
    empty = [name for name, rows in told["rows"].items() if rows < 2]
    hold(not empty, f"{where}: empty tables: {empty}")
    blank = [name for name, colours in told["inked"].items() if colours < 4]
    hold(not blank, f"{where}: blank charts: {blank}")
    hold(not told["unlabelled"] and not told["untold"], f"{where}: without a text: {told['unlabelled']} {told['untold']}")
    hold(told["wide"] <= 0, f"{where}: {told['wide']} pixels wider than the window")


def look(browser, url, directory):
    for theme in THEMES:
        for name, (width, height) in WIDTHS.items():
            where = f"{name}-{theme}"
            browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            browser.do("/url", {"url": url})
            wait_for("no figures", lambda: "live" in browser.run("return document.getElementById('state').textContent"))
            time.sleep(2)
            told = browser.run(PANELS)
            check_panels(told, where)
            hold(told["dark"] == (theme == "dark"), f"{where}: the system's theme is not followed")
            faint = browser.run(FAINT)
            hold(not faint, f"{where}: faint texts: {faint}")
            browser.picture(os.path.join(directory, f"{where}.png"))
            print(f"{where}: every panel has figures; {told['sentence']}")


def focused(browser):
    return browser.run("const one = document.activeElement; return one.id || one.getAttribute('aria-label') || one.className || one.tagName")


def use_keyboard(browser, url):
    """Through the page by keyboard alone."""
    browser.do("/url", {"url": url})
    wait_for("no figures", lambda: browser.run("return document.querySelectorAll('#stages-operation option').length") > 1)
    met = []
    for _ in range(40):
        browser.press(TAB)
        met.append(focused(browser))
        hold(browser.run("return document.activeElement.matches(':focus-visible')") or met[-1] == "BODY", f"no mark of focus at {met[-1]}")
    for wanted in ("skip", "span", "pause", "theme", "heat-operation", "stages-operation", "Slowest requests"):
        hold(wanted in met, f"{wanted} can't be reached by Tab: {met}")
    before = browser.run(PANELS)["dark"]
    browser.run("document.getElementById('theme').focus()")
    browser.press(ENTER)
    hold(browser.run(PANELS)["dark"] != before, "Enter does not switch the theme")
    browser.run("location.reload()")
    wait_for("no figures", lambda: browser.run("return document.querySelectorAll('#stages-operation option').length") > 1)
    hold(browser.run(PANELS)["dark"] != before, "the theme is forgotten")
    browser.run("document.getElementById('stages-operation').focus()")
    chosen = browser.run("return document.activeElement.value")
    browser.press(DOWN)
    hold(browser.run("return document.activeElement.value") != chosen, "an arrow does not choose another operation")
    time.sleep(2.5)
    hold(focused(browser) == "stages-operation", "new figures take the focus away")
    browser.run("document.getElementById('pause').focus()")
    browser.press(ENTER)
    hold(browser.run("return document.getElementById('state').textContent") == "paused", "Enter does not pause")
    browser.press(ENTER)
    print("by keyboard: every control is reached, and does what it says")


def lose_the_daemon(browser, daemon):
    """The page says that what it shows is old."""
    browser.errors()
    daemon.terminate()
    daemon.wait(120)
    wait_for("the page does not notice", lambda: "old" in browser.run("return document.getElementById('state').textContent"))
    print("without a daemon: the page says so")


def main():
    binary, directory = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="sinter-console-"))
        data, mount = os.path.join(scratch, "data"), os.path.join(scratch, "mount")
        os.mkdir(mount)
        port, driver_port = free_port(), free_port()
        address = f"127.0.0.1:{port}"
        command = [binary, "up", data, mount, "--size", "4G", "--console", address, "--metrics", address]
        daemon = stack.enter_context(program(command, stdout=subprocess.DEVNULL))
        wait_for("no mount", lambda: os.path.ismount(mount))
        fio = ["fio", "--name=mix", f"--directory={mount}", "--rw=randrw", "--bs=4k", "--size=64M", "--direct=1", "--ioengine=libaio"]
        fio += ["--iodepth=8", "--numjobs=2", "--time_based", "--runtime=300", "--fsync=32", "--thinktime=200"]
        load = stack.enter_context(program(fio, stdout=subprocess.DEVNULL))
        over = threading.Event()
        files = threading.Thread(target=small_files, args=(mount, over), daemon=True)
        files.start()
        stack.callback(files.join)
        stack.callback(over.set)
        stack.enter_context(program(["chromedriver", f"--port={driver_port}"], stdout=subprocess.DEVNULL))
        wait_for("no chromedriver", lambda: socket.create_connection(("127.0.0.1", driver_port)).close() is None)
        browser = Browser(driver_port)
        stack.callback(browser.end)
        url = f"http://{address}/"
        browser.do("/url", {"url": url})
        time.sleep(LOADED)
        look(browser, url, directory)
        use_keyboard(browser, url)
        errors = browser.errors()
        hold(not errors, f"errors in the browser's console: {errors}")
        print("the browser's console has no error")
        over.set()
        files.join()
        load.terminate()
        load.wait()
        lose_the_daemon(browser, daemon)
    print(f"screenshots to look at: {directory}")


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"console: {wrong}")
