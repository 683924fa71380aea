"use strict";
(() => {
  const key = (cell) => (cell.dataset.v === undefined ? null : Number(cell.dataset.v));
  const compare = (a, b, down) => {
    const x = key(a), y = key(b);
    if (x !== null || y !== null) {
      if (x === null) return 1;  // cells without a number stay at the end, whichever way it is sorted
      if (y === null) return -1;
      return (x - y) * (down ? -1 : 1);
    }
    return a.textContent.localeCompare(b.textContent, "en", { numeric: true }) * (down ? -1 : 1);
  };
  const sort = (head) => {
    const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = Array.from(body.rows);
    rows.sort((a, b) => compare(a.cells[column], b.cells[column], down));
    body.append(...rows);
  };
  for (const button of document.querySelectorAll("th .sort")) button.addEventListener("click", () => sort(button.closest("th")));

  const filter = (input) => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = document.querySelector(`table[data-table="${input.dataset.for}"]`).tBodies[0].rows;
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    input.parentElement.querySelector("output").textContent = words.length ? `${shown} of ${rows.length}` : "";
  };
  for (const input of document.querySelectorAll("input[data-for]")) input.addEventListener("input", () => filter(input));

  const tip = document.getElementById("tip");
  let on = null;
  for (const title of document.querySelectorAll(".panels title")) {  // our own hover replaces the browser's slow one
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  const hide = () => { tip.hidden = true; if (on) on.classList.remove("on"); on = null; };
  const show = (event) => {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!mark) { hide(); return; }
    if (on !== mark) { hide(); on = mark; mark.classList.add("on"); }
    tip.textContent = mark.dataset.tip.split(" · ").join("\n");
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
    const top = event.clientY + gap + box.height > innerHeight ? event.clientY - gap - box.height : event.clientY + gap;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });

  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("dpflbench-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("dpflbench-theme", theme); } catch { /* a page from disk may not store */ } };
  if (remembered() === "dark" || remembered() === "light") root.dataset.theme = remembered();
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
  });
})();
