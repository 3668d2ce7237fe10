// Sorts and filters the table of the term. Without it the table is all there, in the order of names.
const table = document.getElementById("term");
const body = table.tBodies[0];
const state = document.getElementById("state");
const named = document.getElementById("name");

function show() {
  const wanted = named.value.trim().toLowerCase();
  let shown = 0;
  for (const row of body.rows) {
    const fits = !state.value || row.dataset.states.split(" ").includes(state.value);
    row.hidden = !(fits && row.cells[0].textContent.toLowerCase().includes(wanted));
    shown += !row.hidden;
  }
  document.getElementById("shown").textContent = `${shown} of ${body.rows.length}`;
}

function sortBy(column, heading) {
  const down = heading.ariaSort === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.ariaSort = down ? "descending" : "ascending";
  const order = (a, b) => column
    ? a.cells[column].dataset.sort - b.cells[column].dataset.sort
    : a.cells[0].textContent.localeCompare(b.cells[0].textContent);
  body.append(...[...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)));
}

[...table.tHead.rows[0].cells].forEach((heading, column) => {
  const button = document.createElement("button");
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortBy(column, heading));
  heading.append(button);
});
document.querySelector(".tools").hidden = false;
state.addEventListener("change", show);
named.addEventListener("input", show);
show();
