(() => {
  "use strict";
  const table = document.getElementById("functions");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const find = document.getElementById("find");
  const level = document.getElementById("level");
  const count = document.getElementById("count");
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  const show = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const is = row.dataset.l;
      const fits = level.value === "" || is === level.value ||
        (level.value === "notgood" && is !== "good");
      row.hidden = !(fits && words.every((word) => texts.get(row).includes(word)));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    const key = cell.dataset.k ?? cell.textContent.trim();
    const number = Number(key);
    return Number.isNaN(number) ? key : number;
  };

  const sort = (heading) => {
    const column = heading.cellIndex;
    // numbers are asked for largest first, names and states from the start
    const first = heading.classList.contains("n") ? "descending" : "ascending";
    const last = heading.getAttribute("aria-sort");
    const next = last === null ? first : last === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", next);
    const sign = next === "ascending" ? 1 : -1;
    rows.sort((a, b) => {
      const x = value(a, column), y = value(b, column);
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    body.append(...rows);
  };

  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(heading));
    heading.append(button);
  }
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", show);
  level.addEventListener("input", show);
  document.getElementById("filter").hidden = false;
  show();
})();
