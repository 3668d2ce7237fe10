// The page of errors: the entries that fit what was pasted, and the nearest ones, in a list of their own.

(() => {
  "use strict";
  const NEAREST = 3, SIMILAR = 0.45;

  const cutEnding = (word) => (word.length > 5 ? word.replace(/(ings?|ions?|ed|es|s|e)$/, "") : word.replace(/s$/, ""));
  const readWords = (text) => {
    const apart = text.replace(/(?<=[a-z]{2})(?=[A-Z])/g, " ").toLowerCase();  // ResourceExhaustedError: three words
    return new Set((apart.match(/[a-z]{3,}/g) ?? []).map(cutEnding));
  };
  const readPairs = (word) => new Set([...` ${word}`].map((letter, k, all) => letter + (all[k + 1] ?? " ")));
  const compare = (one, other) => {
    const [a, b] = [readPairs(one), readPairs(other)];
    return (2 * [...a].filter((pair) => b.has(pair)).length) / (a.size + b.size);
  };

  // Each entry with its words (those of the message count twice) and, where it has one, its pattern.
  const readEntries = () => {
    const patterns = JSON.parse(document.getElementById("book-patterns").textContent);
    return [...document.querySelectorAll(".book-error")].map((node) => {
      const pattern = node.classList.contains("book-pattern") ? patterns.shift() : null;
      const section = node.closest("section"), title = section.querySelector("h2, h3");
      const said = [...node.children].filter((part) => !part.querySelector("strong")).map((part) => part.textContent);
      return { node, section, title: title.firstChild.textContent, words: readWords(`${title.textContent} ${node.textContent}`),
        said: said.join(" ").toLowerCase(), message: readWords(said.join(" ")), needs: pattern?.needs, pattern: pattern && new RegExp(pattern.text, "m") };
    });
  };

  const rank = (entries, text) => {
    const count = new Map();
    for (const { words } of entries) for (const word of words) count.set(word, (count.get(word) ?? 0) + 1);
    const correct = (word) => {  // a word that no entry has is read as the one that is spelled most like it
      if (count.has(word)) return word;
      const [best] = [...count.keys()].map((known) => [known, compare(word, known)]).sort((a, b) => b[1] - a[1]);
      return best[1] >= SIMILAR ? best[0] : "";
    };
    const sought = [...readWords(text)].map(correct);
    const weigh = ({ words, message }) => sought.filter((word) => words.has(word))
      .reduce((sum, word) => sum + Math.log(entries.length / count.get(word)) * (message.has(word) ? 2 : 1), 0);
    const size = ({ words, section }) => (1 + words.size / 60)  // a long entry shares words with everything
      * (section.id.startsWith("lab-") ? 2 : 1);  // and what a lab says of an answer is seldom what one pastes
    return entries.map((entry) => [weigh(entry) / size(entry), entry]).sort((a, b) => b[0] - a[0]).map((pair) => pair[1]);
  };

  const show = (entry) => {
    const item = entry.node.cloneNode(true), place = document.createElement("a");
    Object.assign(place, { href: `#${entry.section.id}`, textContent: entry.title, className: "book-place" });
    item.append(place);
    return item;
  };

  document.addEventListener("DOMContentLoaded", () => {
    const field = document.getElementById("book-message"), list = document.getElementById("book-nearest");
    const entries = readEntries();
    field.addEventListener("input", () => {
      const text = field.value.trim();
      const near = text ? rank(entries, text) : [], part = /\w \w/.test(text) && text.length > 9 && text.toLowerCase();
      const exact = entries.filter((each) => text && each.pattern?.test(text) && text.includes(each.needs));
      const fitting = exact.length ? exact : near.filter((each) => part && each.said.includes(part));  // words of a message
      const more = near.filter((each) => !fitting.includes(each)).slice(0, Math.max(0, NEAREST - fitting.length));
      list.replaceChildren(...[...fitting, ...more].map(show));
      const fit = fitting.length === 1 ? "One entry fits." : `${fitting.length} entries fit.`;
      const words = fitting.length ? fit + (more.length ? " Below, the nearest others." : "")
        : `No entry fits exactly. These ${NEAREST} come nearest.`;
      document.getElementById("book-found").textContent = text ? words : "";
    });
  });
})();
