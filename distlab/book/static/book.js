// The book's own script: which theme is on, for pictures and explorables; what folds and scrolls.

(() => {
  "use strict";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  // Pictures and explorables look for JupyterLab's marks: they get them here.
  const markTheme = (chosen) => {
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.documentElement.dataset.jpThemeLight = String(!dark);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  };

  const recall = (name) => {
    try { return localStorage.getItem(name); } catch { return null; }
  };
  // What the book's search looked for; Sphinx forgets it as soon as it has marked the words.
  const sought = recall("sphinx_highlight_terms") || new URLSearchParams(location.search).get("highlight") || "";

  markTheme(recall("theme"));
  document.addEventListener("DOMContentLoaded", () => {
    const follow = () => markTheme(document.body.dataset.theme);
    new MutationObserver(follow).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    system.addEventListener("change", follow);
    let chosen;  // paper is white: the theme changes before the pieces draw themselves for it
    const change = (theme) => { document.body.dataset.theme = theme; follow(); };
    window.addEventListener("beforeprint", () => { chosen = document.body.dataset.theme; change("light"); }, true);
    window.addEventListener("afterprint", () => change(chosen));
    nameParts();
    openDrawers();
    openFolds();
  });

  // A part that scrolls must be reachable by keyboard, and which ones scroll depends on the window.
  const markScrolling = () => {
    const parts = [...document.querySelectorAll("div.highlight pre, .output pre, div.cell_output, .table-wrapper")];
    for (const [part, scrolls] of parts.map((each) => [each, each.scrollWidth > each.clientWidth])) {
      if (scrolls) part.tabIndex = 0; else part.removeAttribute("tabindex");
    }
  };

  const nameParts = () => {
    markScrolling();
    window.addEventListener("resize", markScrolling);
    const roles = { ".sidebar-drawer": "The course", ".toc-drawer": "On this page" };
    for (const [look, words] of Object.entries(roles)) document.querySelector(look)?.setAttribute("aria-label", words);
    for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
    const article = document.querySelector("article");
    if (article && !document.querySelector("h1")) article.prepend(Object.assign(document.createElement("h1"), { textContent: "Search" }));
    for (const search of document.querySelectorAll("input.sidebar-search")) search.setAttribute("aria-label", "Search");
  };

  // On a narrow page the menu and the contents are drawers. The theme opens them with labels, which no key reaches:
  // they become buttons. Who opens a drawer goes into it, and Escape leads back.
  const openDrawers = () => {
    for (const [name, look] of [["__navigation", ".sidebar-drawer"], ["__toc", ".toc-drawer"]]) {
      const box = document.getElementById(name), drawer = document.querySelector(look);
      if (!box || !drawer) continue;
      const buttons = [...document.querySelectorAll(`label[for="${name}"]:not(.overlay)`)].map((label) => {
        const button = Object.assign(document.createElement("button"), { type: "button", className: label.className, ariaLabel: box.ariaLabel });
        button.append(...label.childNodes);
        button.addEventListener("click", () => box.click());
        label.replaceWith(button);
        return button;
      });
      const show = () => {
        for (const button of buttons) button.ariaExpanded = String(box.checked);
        if (box.checked) [...drawer.querySelectorAll("a")].find((link) => link.offsetParent)?.focus();
      };
      box.addEventListener("change", show);
      show();
      document.addEventListener("keydown", ({ key }) => {
        if (key !== "Escape" || !box.checked) return;
        box.click();
        buttons.find((button) => button.offsetParent)?.focus();
      });
    }
  };

  // A folded part opens when what is looked for is in it: a part of the address, or a word of the search.
  const openFolds = () => {
    const folds = [...document.querySelectorAll("details.book-fold, details.hide")];
    const openWhere = (holds) => { for (const fold of folds) if (holds(fold)) fold.open = true; };
    const openTarget = () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (target) openWhere((fold) => fold.contains(target) || fold.parentElement === target);
    };
    openTarget();
    window.addEventListener("hashchange", openTarget);
    const words = sought.toLowerCase().split(/\s+/).filter(Boolean);
    openWhere((fold) => words.some((word) => fold.textContent.toLowerCase().includes(word)));
    let closed = [];
    window.addEventListener("beforeprint", () => { closed = folds.filter((fold) => !fold.open); openWhere(() => true); });
    window.addEventListener("afterprint", () => { for (const fold of closed) fold.open = false; });
  };
})();
