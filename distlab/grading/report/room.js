// Slides: arrow keys turn them, space shows the answer first. Without it the page scrolls.
const slides = [...document.querySelectorAll(".slide")];
const place = document.querySelector(".place");
let at = 0;

function show(next) {
  at = Math.max(0, Math.min(slides.length - 1, next));
  slides.forEach((slide, k) => { slide.hidden = k !== at; });
  place.textContent = `${at + 1} / ${slides.length}`;
  slides[at].focus();
  history.replaceState(null, "", `#${at + 1}`);
}

function forward() {
  const answer = slides[at].querySelector("details");
  if (answer && !answer.open) answer.open = true;
  else show(at + 1);
}

const keys = {
  ArrowRight: forward, PageDown: forward, " ": forward,
  ArrowLeft: () => show(at - 1), PageUp: () => show(at - 1),
  Home: () => show(0), End: () => show(slides.length - 1),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
  if (event.key === " " && event.target.closest("summary, a")) return;
  event.preventDefault();
  keys[event.key]();
});
document.body.classList.add("projected");
show((parseInt(location.hash.slice(1), 10) || 1) - 1);
