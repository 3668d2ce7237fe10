// The search's order and its spelling. Sphinx puts this file before its own search; it asks for the two names below.

// A lesson that the glossary names for a word of the search comes first, and any lesson before a page of the API.
var Scorer = {
  score: ([page, , anchor, , score, , kind]) => {
    const asked = (new URLSearchParams(location.search).get("q") ?? "").trim().toLowerCase();
    const named = (globalThis.BOOK_LESSONS ?? {})[asked] ?? [], place = named.indexOf(page);
    if (place >= 0 && !anchor && kind !== "object") return 200 - place;
    return score + (page.startsWith("notebooks/") && kind === "text" ? 3 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,  // as Sphinx has them
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

// Words apart as Sphinx has it; a word that no page has is read as the one that is spelled most like it.
var splitQuery = (query) => {
  const known = Object.keys(Search._index.terms), stemmer = new Stemmer();
  const readPairs = (word) => [...word].map((letter, k, all) => letter + (all[k + 1] ?? " "));
  const compare = (pairs, other) => {
    const theirs = new Set(readPairs(other));
    return (2 * pairs.filter((pair) => theirs.has(pair)).length) / (pairs.length + theirs.size);
  };
  const correct = (word) => {
    const stem = stemmer.stemWord(word.toLowerCase());
    if (stem.length < 4 || stopwords.has(word.toLowerCase()) || known.some((term) => term.includes(stem))) return word;
    const pairs = readPairs(stem), best = known.reduce((one, other) => (compare(pairs, other) > compare(pairs, one) ? other : one));
    return compare(pairs, best) > 0.6 ? best : word;
  };
  return query.split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/gu).filter(Boolean).map(correct);
};
