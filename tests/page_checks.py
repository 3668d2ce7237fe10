"""What holds on every page of ours, in the book and in JupyterLab: quiet, readable, alive."""

from urllib.parse import urlparse

LOCAL = ("file", "data", "blob", "about")
# What a piece draws; a question in words has no drawing: there the choice is what changes.
PICTURE = """(node) => [...node.querySelectorAll("svg, canvas, :checked, li")].map((n) =>
  n.outerHTML + n.ariaLabel + [...n.labels ?? []].map((l) => l.textContent)).join()"""

MAX_STOPS = 400
# What has the focus, "" when that is the page itself; what is wrong with how it shows it.
FOCUS = """() => {
  const at = document.activeElement, style = (node) => getComputedStyle(node);
  if (!at || at === document.body) return ["", ""];
  const name = `${at.tagName} ${at.ariaLabel ?? at.textContent.trim().slice(0, 30)}`;
  const labels = [...at.labels ?? []], parts = labels.flatMap((label) => [...label.children]);
  const rings = [at, ...labels, ...parts]
    .filter((node) => node.offsetParent !== null || style(node).position === "fixed")
    .filter((node) => style(node).outlineStyle !== "none" && style(node).opacity !== "0");
  if (!rings.length) return [name, "no ring"];
  const box = rings[0].getBoundingClientRect();
  if (box.right <= 0 || box.left >= innerWidth || !box.width) return [name, "out of sight"];
  let ground = rings[0].parentElement;
  const isClear = (node) => /^(transparent|rgba.*, 0\\))$/.test(style(node).backgroundColor);
  while (ground && isClear(ground)) ground = ground.parentElement;
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255)
    .map((n) => (n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4))
    .reduce((sum, n, k) => sum + n * [0.2126, 0.7152, 0.0722][k], 0.05);
  const behind = ground ? style(ground).backgroundColor : "rgb(255, 255, 255)";
  const pair = [style(rings[0]).outlineColor, behind].map(light);
  const contrast = Math.max(...pair) / Math.min(...pair);
  return [name, contrast < 3 ? `a ring of contrast ${contrast.toFixed(1)}` : ""];
}"""


def walk_by_keyboard(page) -> list[str]:
    """Press Tab from the first control to the last; return what can't be seen on the way.

    A focus needs a ring with a contrast of 3:1 within the page's width. Fails where it is caught.
    """
    faults = []
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        name, fault = page.evaluate(FOCUS)
        if not name:
            return faults
        faults += [f"{name}: {fault}"] if fault else []
    raise AssertionError(f"after {MAX_STOPS} steps of Tab the focus is still at {name}")


def watch(page, port: int | None = None, heard: tuple[str, ...] = ("error", "warning")) -> list:
    """Return a list that fills with what goes wrong: what the console says, requests that leave.

    A server of ours at `port` is no way out. `heard` are the kinds of console messages that count.
    """
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type in heard else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def look(asked) -> None:
        address = urlparse(asked.url)
        if address.scheme not in LOCAL and address.netloc != f"127.0.0.1:{port}":
            wrong.append(asked.url)

    page.on("request", look)
    return wrong


def find_with_axe(
    page, *look, context: dict | None = None, rules: list[str] | None = None
) -> list[str]:
    """Return what axe has against the page, by all its rules or those named; [] if nothing."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"], "preload": False}
    options |= {"runOnly": rules} if rules else {}
    found = Axe().run(page, context=context, options=options)
    where = " ".join(map(str, look))
    return [f"{where}: {found.generate_report()}"] if found.violations_count else []


def wait_for_colors(page) -> None:
    """Wait until nothing glides to another color or place any more."""
    page.wait_for_function("""() => document.getAnimations().every((one) =>
      one.playState !== "running" || one.effect.getComputedTiming().iterations === Infinity)""")


def move(stage, name: str) -> None:
    """Take its first slider to an end, choose another option or write: what it draws must change.

    But the cockpit of a job that has ended: there is nothing left to steer.
    """
    before, slider = stage.evaluate(PICTURE), stage.locator("input[type=range]:enabled").first
    field = stage.locator("textarea").first
    if not stage.locator("input:enabled, textarea").count():
        assert stage.get_attribute("aria-label").startswith("Cockpit"), name
        return
    stage.scroll_into_view_if_needed()
    if slider.count():
        slider.focus()
    at_end = slider.count() and slider.evaluate("(it) => it.value === it.max")
    keys = (
        ("Home", "End") if at_end else ("End", "Home")
    )  # at the first there may be no more to see
    for key, looks in zip(keys, (400, 1800)):
        if slider.count():
            slider.press(key)
        elif field.count():
            field.fill(f"{{{key}")
        else:
            stage.locator("input[type=radio]:not(:checked)").first.check()
        for _ in range(looks):
            if stage.evaluate(PICTURE) != before:
                return
            stage.page.wait_for_timeout(50)
    raise AssertionError(f"{name}: a piece does not change")
