// A piece on a page without a kernel: the address can hold its state, and `?slide` shows it alone.
//
// #ex:ring:ranks=16&size=1000000 is the first "ring" of the page (the second is ring-2). Only what
// a control of the piece can choose is taken from an address.
const { make, button, mount } = require("./core.js");

const HASH = "#ex:", SLIDE = "ex-slide", HAND = [".ex-player", ".ex-panel, .ex-controls", ".ex-numbers", ".ex-tries", ".ex-share"];
const isSlide = () => new URLSearchParams(location.search).has("slide");

async function mountOnPage(piece, host, told, options) {
  let data = told;
  try {
    if (typeof told === "string") data = await unpack(told);
  } catch {  // DecompressionStream is in browsers since 2023
    host.append(make("p", { text: "This picture needs a newer browser." }));
    return passOver(host);
  }
  let stage;
  try {
    stage = mount(piece, host, data, options).stage;
  } catch (error) {  // the next piece may still be shown
    passOver(host);
    throw error;
  }
  const name = namePiece(host);
  if (!Object.keys(stage.fits).length || "question" in data) return passOver(host);  // a guess is one's own
  const first = { ...options };
  const take = () => {
    const told = readState(name);
    for (const [option, value] of Object.entries(told ?? {})) if (stage.fits[option]?.(value)) stage.set(option, value);
    return told !== null;
  };
  const write = () => {
    const changed = Object.entries(stage.options).filter(([option, value]) => stage.fits[option] && value !== first[option]);
    const state = new URLSearchParams(changed.map(([option, value]) => [option, JSON.stringify(value)]));
    return `${HASH}${name}:${state}`;
  };
  const said = make("span", { role: "status" });
  const copy = async () => {
    history.replaceState(null, "", write());
    try {
      await navigator.clipboard.writeText(location.href);
      said.textContent = "Copied.";
    } catch { said.textContent = "The link is in the address bar."; }
  };
  const alone = button("Full screen", () => showAlone(host.classList.contains(SLIDE) ? null : host, write()));
  stage.root.append(make("div", { class: "ex-share" }, said, button("Copy link", copy), alone));
  host.shareState = write;
  if (isSlide() && readState(name) !== null) showAlone(host, location.hash);
  showFirst();
  if (take()) document.readyState === "complete" ? host.scrollIntoView() : window.addEventListener("load", () => host.scrollIntoView());
  window.addEventListener("hashchange", () => { if (take()) host.scrollIntoView(); });
  document.addEventListener("keydown", (event) => turn(event, host));
}

// Data that write_fragment packed: JSON, deflated, in base64.
async function unpack(text) {
  const packed = new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

// The page's pieces in their order, mounted or not: an id is "ex-", the kind, and a mark of the data.
function listPieces() { return [...document.querySelectorAll('[id^="ex-"]')].filter((each) => /-[0-9a-f]{10}$/.test(each.id)); }
function kindOf(piece) { return piece.id.replace(/^ex-|-[0-9a-f]{10}$/g, ""); }

function passOver(host) {
  host.isUnshared = true;
  showFirst();
}

// `?slide` alone shows the first piece that can be shared, once it's there: pieces mount in any order.
function showFirst() {
  const first = listPieces().find((each) => !each.isUnshared);
  if (isSlide() && first?.shareState && !location.hash.startsWith(HASH)) showAlone(first, location.hash);
}

// "ring" for the page's first piece of that kind, "ring-2" for the next.
function namePiece(host) {
  const kind = kindOf(host), place = listPieces().filter((each) => kindOf(each) === kind).indexOf(host);
  return place > 0 ? `${kind}-${place + 1}` : kind;
}

// The options that the address holds for a piece; null if it holds none.
function readState(name) {
  const start = `${HASH}${name}:`;
  if (!location.hash.startsWith(start)) return null;
  const told = {};
  for (const [option, text] of new URLSearchParams(location.hash.slice(start.length))) {
    try { told[option] = JSON.parse(text); } catch { /* an address that was cut short */ }
  }
  return told;
}

// One piece over the whole window, or with null the page again.
function showAlone(host, hash) {
  const focused = document.activeElement;
  for (const each of document.querySelectorAll(`.${SLIDE}`)) { each.classList.remove(SLIDE); each.putBack(); }
  if (host) { host.classList.add(SLIDE); moveHand(host); }
  focused?.focus();
  document.documentElement.classList.toggle("ex-slides", host !== null);
  for (const each of document.querySelectorAll(".ex-share button:last-child")) each.textContent = each.closest(`.${SLIDE}`) ? "Leave full screen" : "Full screen";
  history.replaceState(null, "", `${location.pathname}${host ? "?slide" : ""}${hash}`);
  host?.scrollIntoView();
}

// What a hand or a question needs stands in a column, and the stage keeps what it shows.
function moveHand(host) {
  const stage = host.querySelector(".ex-stage"), parts = [...stage.children];
  const hand = make("div", { class: "ex-hand", role: "group", "aria-label": "Controls" }, 
    ...HAND.flatMap((kind) => parts.filter((each) => each.matches(kind))));
  host.prepend(hand);
  host.putBack = () => { stage.append(...parts); hand.remove(); };
}

// Keys of a slide: left and right step through it, or go to the page's next piece; so do Page Up and Down.
function turn(event, host) {
  if (!host.classList.contains(SLIDE) || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape") return showAlone(null, "");
  const way = { ArrowRight: 1, ArrowLeft: -1, PageDown: 1, PageUp: -1 }[event.key];
  if (!way || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  const player = event.key.startsWith("Arrow") && host.querySelector(".ex-player");
  if (player) return player.querySelectorAll("button")[way > 0 ? 2 : 1].click();
  const pieces = [...document.querySelectorAll(".ex")].filter((each) => each.shareState);
  const next = pieces[pieces.indexOf(host) + way];
  if (next) setTimeout(() => showAlone(next, next.shareState()));  // not the key's own turn: the next piece hears it too
}
module.exports = { mountOnPage };
