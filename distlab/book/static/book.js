// The book's own script: which theme is on, for pictures and explorables; and the page of errors.

(() => {
  "use strict";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  // Pictures and explorables look for JupyterLab's marks: they get them here.
  const markTheme = (chosen) => {
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.documentElement.dataset.jpThemeLight = String(!dark);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  };

  const readChoice = () => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  };

  markTheme(readChoice());
  document.addEventListener("DOMContentLoaded", () => {
    const follow = () => markTheme(document.body.dataset.theme);
    new MutationObserver(follow).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    system.addEventListener("change", follow);
    let chosen;  // paper is white: the theme changes before the pieces draw themselves for it
    const change = (theme) => { document.body.dataset.theme = theme; follow(); };
    window.addEventListener("beforeprint", () => { chosen = document.body.dataset.theme; change("light"); }, true);
    window.addEventListener("afterprint", () => change(chosen));
    nameParts();
    const field = document.getElementById("book-message");
    if (field) findErrors(field);
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

  const findErrors = (field) => {
    const known = JSON.parse(document.getElementById("book-patterns").textContent);
    const entries = [...document.querySelectorAll(".book-error")];
    const patterned = entries.filter((entry) => entry.classList.contains("book-pattern"));
    const patterns = new Map(patterned.map((entry, k) => [entry, known[k]]));
    const heads = [...document.querySelectorAll("section section")];
    const fits = (entry, text) => {
      const pattern = patterns.get(entry);
      return pattern && new RegExp(pattern.text, "m").test(text) && text.includes(pattern.needs);
    };
    const show = () => {
      const text = field.value.trim(), words = text.toLowerCase().split(/\s+/);
      let shown = entries.filter((entry) => text && fits(entry, text));
      if (!shown.length) shown = entries.filter((entry) => words.every((word) => entry.textContent.toLowerCase().includes(word)));
      for (const entry of entries) entry.hidden = !shown.includes(entry);
      for (const head of heads) head.hidden = Boolean(text) && !head.querySelector(".book-error:not([hidden])");
      const count = shown.length === 1 ? "1 entry fits" : `${shown.length} entries fit`;
      document.getElementById("book-found").textContent = text ? `${count}.` : "";
    };
    field.addEventListener("input", show);
  };
})();
