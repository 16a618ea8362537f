#!/usr/bin/env python3
# Tests the page of `samesum teach --html` in a browser: uses each control, compares every sum with `samesum sum eval`.
# SPDX-License-Identifier: Apache-2.0
#
# teach_browser_test.py SAMESUM_MODEL FOLDER: the program, and the folder for the page and the screenshots. Speaks WebDriver
# to chromedriver without any package. Exits with 77 (skipped) without Chromium; with SAMESUM_STRICT set that is a failure.
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

samesum, folder = sys.argv[1], sys.argv[2]
checks, failures = 0, []


def check(what, holds, seen=""):
    global checks
    checks += 1
    if not holds:
        failures.append(what)
        print(f"FAILED: {what} {seen}", file=sys.stderr)


def run(*arguments):
    done = subprocess.run([samesum, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"samesum {' '.join(arguments)}: {done.stderr}")
    return done.stdout


class Browser:
    """One headless Chromium behind one chromedriver."""

    def __init__(self, driver):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.root = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = ""
        for _ in range(100):
            try:
                self.call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                            "--disable-dev-shm-usage", "--window-size=1280,1000"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": wanted})["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + self.session + path, data, {"Content-Type": "application/json"},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:400]}") from error

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, code, *arguments):
        return self.call("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def find(self, css):
        return next(iter(self.call("POST", "/element", {"using": "css selector", "value": css}).values()))

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click", {})

    def type(self, css, keys):
        self.call("POST", f"/element/{self.find(css)}/value", {"text": keys})

    def choose(self, css, value):
        """Chooses a value of a select as a user does: sets it and dispatches the event."""
        return self.js("const s = document.querySelector(arguments[0]); s.value = arguments[1];"
                       "s.dispatchEvent(new Event('change')); return s.value", css, str(value))

    def drag(self, css, onto, pointer="mouse"):
        """Presses the pointer on one element, moves it, and releases it on another."""
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", css)
        moves = [{"type": "pointerMove", "origin": {"element-6066-11e4-a52e-4f735466cecf": self.find(css)}, "x": 0, "y": 0},
                 {"type": "pointerDown", "button": 0},
                 {"type": "pointerMove", "duration": 120,
                  "origin": {"element-6066-11e4-a52e-4f735466cecf": self.find(onto)}, "x": 0, "y": 0},
                 {"type": "pointerUp", "button": 0}]
        self.call("POST", "/actions", {"actions": [
            {"type": "pointer", "id": pointer, "parameters": {"pointerType": pointer}, "actions": moves}]})

    def becomes(self, expression, value):
        """Waits until the expression has the value: browser events may take a moment."""
        for _ in range(50):
            if self.js("return " + expression) == value:
                return True
            time.sleep(0.1)
        return False

    def text(self, css):
        return self.js("return document.querySelector(arguments[0]).textContent", css)

    def screenshot(self, name, **parameters):
        time.sleep(0.7)  # until the runner has arrived
        picture = self.devtools("Page.captureScreenshot", format="png", **parameters)["data"]
        with open(os.path.join(folder, name), "wb") as file:
            file.write(base64.b64decode(picture))

    def messages(self):
        return self.call("POST", "/se/log", {"type": "browser"})

    def close(self):
        try:
            if self.session:
                self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


def compare_with_engine(page, what, explained=False):
    """Compares both sides of the page with `sum eval` on the same trees and values, bit for bit."""
    seen = page.js("return {format: state.format.name, values: state.values.slice(0, state.ranks).map(state.format.hex),"
                   "trees: [...document.querySelectorAll('.panel .order')].map(e => e.textContent),"
                   "results: [...document.querySelectorAll('[data-result]')].map(e => e.textContent),"
                   "hops: [state.before, state.owner].map(owner => reduction(owner).hops.map(hop => ({"
                   "  result: state.format.hex(hop.sum), rounded: hop.rounding[0] !== 'exact',"
                   "  bits: (bit_rows(state.format, hop.left, hop.right, hop) || []).filter(r => !r.note).map("
                   "    r => (r.mark + ' ' + r.digits + r.bar + r.tail + r.scale).trimEnd()), kind: hop.rounding[0]})))}")
    for tree, result, hops in zip(seen["trees"], seen["results"], seen["hops"]):
        answer = json.loads(run("sum", "eval", "--dtype", seen["format"], "--tree", tree, "--values",
                                " ".join(seen["values"]), "--json", "-"))
        bits = answer["result"]["bits"]
        check(f"{what}: {tree} gives what sum eval gives", f"({bits})" in result, f"{result} against {bits}")
        check(f"{what}: each hop of {tree}", [hop["result"] for hop in hops] ==
              [step["result"]["bits"] for step in answer["steps"]])
        check(f"{what}: which hops of {tree} rounded", [hop["rounded"] for hop in hops] ==
              [step["rounded"] for step in answer["steps"]])
        if not explained:
            continue
        # The drawn bits equal those of --explain row by row; the text after them differs.
        drawn = run("sum", "eval", "--dtype", seen["format"], "--tree", tree, "--values", " ".join(seen["values"]),
                    "--explain")
        rows = [line[4:] for line in drawn.splitlines() if "  x 2^" in line]
        mine = [row for hop in hops for row in hop["bits"]]
        if any(hop["kind"] == "saturated" for hop in hops):
            continue  # the page's data does not contain the exact sum beyond the largest value
        check(f"{what}: bits of {tree}", len(rows) == len(mine) > 0 and
              all(row.startswith(part) for row, part in zip(rows, mine)), f"\n{rows}\n{mine}")


def use_everything(page):
    formats, schemes, most = page.js("return [data.formats.map(f => f.name), data.schemes.map(s => s.name), data.ranks]")
    check("the page has formats and schemes", len(formats) == 5 and len(schemes) == 6 and most == 8)
    compared = 0
    for scheme in range(len(schemes)):
        page.choose("#scheme", scheme)
        for ranks in range(2, most + 1):
            page.choose("#ranks", ranks)
            page.choose("#format", (scheme + ranks) % len(formats))
            page.choose("#before", ranks - 1)
            page.click("#last")
            compare_with_engine(page, f"{schemes[scheme]}, {ranks} ranks", explained=ranks in (3, 8))
            compared += 1
    check("schemes and ranks were compared", compared == 42)
    for index, name in enumerate(formats):
        page.choose("#format", index)
        page.choose("#scheme", 0)
        page.choose("#ranks", 4)
        for preset in range(page.js("return state.format.presets.length")):
            page.choose("#preset", preset)
            compare_with_engine(page, f"{name}, preset {preset}", explained=True)
        # Every value on rank 2; of float8, with all of its values, only some.
        choices = page.js("return state.format.choices")
        for value in choices[::max(1, len(choices) // 9)]:
            page.choose("#value2", value)
            compare_with_engine(page, f"{name}, rank 2 has {value}")
    check("other values are not a preset", page.js("return document.querySelector('#preset').value") == "own")


def step_and_play(page):
    page.choose("#format", 0)
    page.choose("#scheme", 0)
    page.choose("#ranks", 4)
    page.click("#first")
    check("nothing is added at the start", page.text("#count") == "step 0 of 3")
    page.click("#step")
    page.click("#step")
    page.click("#back")
    check("two steps on, one back", page.text("#count") == "step 1 of 3")
    check("the status shows the step", "Step 1." in page.text("#status") and "=" in page.text("#status"), page.text("#status"))
    page.click("#last")
    check("the end", page.text("#count") == "step 3 of 3")
    check("no step after the end", page.js("return document.querySelector('#step').disabled"))
    page.click("#play")
    check("play starts again", page.text("#count") == "step 0 of 3" and
          page.js("return document.querySelector('#play').ariaLabel") == "Pause")
    check("and continues to the end", page.becomes("document.querySelector('#count').textContent", "step 3 of 3") and
          page.js("return document.querySelector('#play').ariaLabel") == "Play")
    page.click(".hops li:first-child button")
    check("a click on a hop goes to its step", page.text("#count") == "step 1 of 3")
    arrow_right, arrow_left, home, end = "\ue014", "\ue012", "\ue011", "\ue010"
    for keys, count in ((home, 0), (arrow_right, 1), (arrow_right, 2), (arrow_left, 1), (end, 3)):
        page.type("#stage", keys)
        check(f"key {keys!r} on the stage", page.text("#count") == f"step {count} of 3", page.text("#count"))
    page.choose("#scheme", 4)
    page.click("#last")
    check("fixed_root sends the row to its owner", page.text("#count") == "step 4 of 4" and
          "no addition" in page.text("#status"), page.text("#status"))
    page.choose("#scheme", 0)


def move_the_token(page):
    owner = lambda: page.js("return document.querySelector('.rank.owner').dataset.rank")
    page.choose("#preset", 0)
    page.choose("#before", 0)
    page.click("[data-rank='1'] .name")
    page.drag("#token", "[data-rank='3']")
    check("dragged to rank 3", owner() == "3" and page.text("#after") == "3", owner())
    check("the old owner is the one before", page.js("return document.querySelector('#before').value") == "1")
    results = page.js("return [...document.querySelectorAll('[data-result]')].map(e => e.textContent)")
    check("the bits change", results[0] != results[1] and "different bits" in page.text("#verdict"), results)
    compare_with_engine(page, "after the drag", explained=True)
    page.drag("#token", "h1")
    check("released outside of all ranks, it stays", owner() == "3")
    page.type("#owner3", "\ue012")
    check("an arrow key moves it", owner() == "2", owner())
    check("the focus stays on it", page.js("return document.activeElement.id") == "owner2")
    compare_with_engine(page, "after the key")
    page.click("[data-rank='0'] .name")
    check("a click on a rank moves it", owner() == "0")


def read_lessons(page):
    count = page.js("return document.querySelectorAll('.lesson').length")
    lessons = json.loads(run("teach", "--json", "-"))["lessons"]
    check("the page has all lessons", count == len(lessons) == 12)
    for lesson in lessons:
        text = page.text("#" + lesson["name"])
        check(f"{lesson['name']}: its figures, question, command and exercise", all(
            part in text for part in [lesson["question"].replace("`", ""), lesson["command"], lesson["exercise"]["solution"]] +
            [passage["text"].rstrip("\n") for passage in lesson["text"] if passage["figure"]]))
    opened = page.js("for (const d of document.querySelectorAll('details')) d.querySelector('summary').click();"
                     "return document.querySelectorAll('details[open]').length")
    check("every answer opens", opened == 2 * len(lessons))
    page.js("for (const d of document.querySelectorAll('details')) d.open = false")
    page.click("#contents li:nth-child(6) a")
    check("the contents link to the lessons", page.js("return location.hash") == "#owner")


def try_lessons(page):
    tried = 0
    for lesson in json.loads(run("teach", "--json", "-"))["lessons"]:
        shown = lesson["demonstration"]
        button = page.js("return document.querySelectorAll(`#${arguments[0]} .try`).length", lesson["name"])
        check(f"{lesson['name']}: has a button if it has a demonstration", button == (1 if shown else 0))
        if not shown:
            continue
        tried += 1
        page.click(f"#{lesson['name']} .try")
        check(f"{lesson['name']}: the reduction is the lesson's",
              page.js("return [state.format.name, state.scheme.name, state.values.slice(0, state.ranks), state.before, state.owner]")
              == [shown[key] for key in ("format", "scheme", "values", "before", "after")])
        check(f"{lesson['name']}: the controls agree", page.js(
            "return [...document.querySelectorAll('.choices select')].slice(0, 3).map(s => s.selectedOptions[0].text)")
            == [shown["format"], str(len(shown["values"])), shown["scheme"]])
        check(f"{lesson['name']}: the focus is on the stage", page.js("return document.activeElement.id") == "stage")
        compare_with_engine(page, lesson["name"], explained=True)
    check("lessons were tried", tried == 8)


def is_accessible(page):
    missing = page.js("""return [...document.querySelectorAll('button, select, input, summary, a')].filter(e =>
        !(e.ariaLabel || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML)""")
    check("every control has a name", missing == [], missing)
    check("steps are announced", page.js("return document.querySelector('#status').ariaLive") == "polite")
    # Contrast of text and background by WCAG 2: at least 4.5, in the light and the dark theme.
    worst = page.js("""
        const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
                             return .2126 * r + .7152 * g + .0722 * b; };
        const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                              if (!/^rgba\\(.*, 0\\)$/.test(c)) return rgb(c); } return [255, 255, 255]; };
        let worst = [99, ''];
        for (const e of document.querySelectorAll('main *, header *')) {
          if (e.closest('svg') || e.disabled || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
          const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
          const ratio = (a + .05) / (b + .05);
          if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 120)];
        }
        return worst""")
    check("text has enough contrast", worst[0] >= 4.5, worst)


def fits(page, width):
    wide = page.js("return document.documentElement.scrollWidth")
    check(f"the page fits into {width} px", wide <= width, wide)
    outside = page.js("""return [...document.querySelectorAll('button, select, .rank, .panel, svg, .verdict, h1, p')].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width > 0 && (box.left < -1 || box.right > document.documentElement.clientWidth + 1); }).map(e => e.outerHTML.slice(0, 80))""")
    check(f"every part is inside at {width} px", outside == [], outside)


def main():
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if not driver or not chromium:
        strict = os.environ.get("SAMESUM_STRICT")
        print("no Chromium and chromedriver here (Debian: chromium, chromium-driver)" + ("" if strict else ": skipped"))
        return 1 if strict else 77
    os.makedirs(folder, exist_ok=True)
    file = os.path.abspath(os.path.join(folder, "teach.html"))
    run("teach", "--html", file)
    check("the page is below 1 MiB", os.path.getsize(file) < 1 << 20)
    source = open(file, encoding="utf-8").read()
    check("it loads nothing", "src=" not in source and "@import" not in source and "url(" not in source and
          source.count("http") == source.count("http://www.w3.org/2000/svg"))
    page = Browser(driver)
    try:
        page.go("file://" + file)
        use_everything(page)
        step_and_play(page)
        move_the_token(page)
        read_lessons(page)
        try_lessons(page)
        fits(page, 1280)
        for theme in ("light", "dark"):
            page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            check(f"the system's theme {theme} is used", page.becomes("document.documentElement.dataset.theme", theme))
            is_accessible(page)
        page.click("#theme")
        check("and the button overrides it", page.js("return document.documentElement.dataset.theme") == "light")
        page.choose("#scheme", 0)
        page.choose("#ranks", 4)
        page.choose("#before", 0)
        page.drag("#token", "[data-rank='1']")
        page.click("#back")
        page.js("scrollTo(0, 0)")
        page.screenshot("desktop-light.png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": 1280, "height": 1900, "scale": 1})
        page.click("#theme")
        page.choose("#scheme", 1)
        page.choose("#ranks", 8)
        for _ in range(3):
            page.click("#step")
        page.screenshot("desktop-dark.png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": 1280, "height": 1900, "scale": 1})
        page.devtools("Emulation.setDeviceMetricsOverride", width=375, height=812, deviceScaleFactor=2, mobile=True)
        page.devtools("Emulation.setTouchEmulationEnabled", enabled=True)
        fits(page, 375)
        page.screenshot("phone-dark.png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": 375, "height": 2400, "scale": 1})
        page.click("#theme")
        page.choose("#scheme", 0)
        page.choose("#format", 2)
        page.choose("#ranks", 8)
        page.drag("#token", "[data-rank='4']", "touch")
        check("the token can be dragged with a finger", page.js("return state.owner") == 4)
        compare_with_engine(page, "on a phone", explained=True)
        fits(page, 375)
        page.js("scrollTo(0, 0)")
        page.screenshot("phone-light.png", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": 375, "height": 2600, "scale": 1})
        page.js("document.querySelector('#owner').scrollIntoView()")
        page.screenshot("phone-lesson.png")
        page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        check("no motion with prefers-reduced-motion", page.js(
            "return getComputedStyle(document.querySelector('.turning')).transitionProperty") in ("none", ""))
        messages = page.messages()
        check("no message on the console", messages == [], messages)
    finally:
        page.close()
    print(f"{checks - len(failures)} of {checks} checks of the page passed; screenshots are in {folder}")
    return 1 if failures else 0


sys.exit(main())
