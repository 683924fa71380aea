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
    const turned = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")];
    const down = (turned || head.dataset.first) === "descending";  // first the best at the top, then the other way round
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
  let on = null, walking = false, at = { x: -1, y: -1 };  // the mark that is shown, by the keyboard or not, where the pointer was last
  for (const title of document.querySelectorAll(".panels title")) {  // our own hover replaces the browser's slow one
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  const show = (mark, x, y) => {
    if (on !== mark) { if (on) on.classList.remove("on"); on = mark; if (on) on.classList.add("on"); }
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip.split(" · ").join("\n");
    const box = tip.getBoundingClientRect(), gap = 14;
    const left = x + gap + box.width > innerWidth ? x - gap - box.width : x + gap;
    const top = y + gap + box.height > innerHeight ? y - gap - box.height : y + gap;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const under = (element) => (element && element.closest ? element.closest("[data-tip]") : null);
  const beside = (mark) => {
    const box = mark.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.top + Math.min(box.height / 2, 20));
  };
  const point = (event) => {
    if (walking && event.clientX === at.x && event.clientY === at.y) return;  // a page that moves under a resting pointer is no pointer
    walking = false;
    at = { x: event.clientX, y: event.clientY };
    show(under(event.target), at.x, at.y);
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  // what lies under a resting pointer changes as the page moves; a scroll that was under way when it came to rest hides nothing
  document.addEventListener("scroll", () => {
    if (walking && on) beside(on); else show(under(document.elementFromPoint(at.x, at.y)), at.x, at.y);
  }, { passive: true, capture: true });
  document.addEventListener("focusout", () => { walking = false; show(null); });
  for (const panel of document.querySelectorAll(".panels svg")) {
    panel.addEventListener("keydown", (event) => {  // arrows walk through the values of a panel, Escape leaves them
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape" && on) { event.preventDefault(); walking = false; show(null); }
      if (!step) return;
      event.preventDefault();
      const marks = Array.from(panel.querySelectorAll("[data-tip]")).filter((mark) => !mark.closest(".off"));
      if (!marks.length) return;
      const here = walking ? marks.indexOf(on) : -1;
      walking = true;
      beside(marks[here < 0 ? (step > 0 ? 0 : marks.length - 1) : (here + step + marks.length) % marks.length]);
    });
  }
  for (const key of document.querySelectorAll("[data-toggle]")) {
    key.addEventListener("click", () => {
      const shown = key.getAttribute("aria-pressed") === "false";
      key.setAttribute("aria-pressed", String(shown));
      for (const group of key.closest("figure").querySelectorAll(".panels .s[data-name]")) {
        if (group.dataset.name === key.dataset.toggle) group.classList.toggle("off", !shown);
      }
    });
  }

  const large = document.getElementById("large");
  let home = null;  // where the figure that is enlarged came from
  for (const button of document.querySelectorAll("[data-enlarge]")) {
    button.addEventListener("click", () => {
      if (large.open) { large.close(); return; }
      const figure = button.closest("figure");
      home = figure.parentElement;
      large.append(figure);
      large.append(document.getElementById("tip"));  // a dialog lies above everything that is not inside it
      button.textContent = "close";
      large.showModal();
    });
  }
  large.addEventListener("close", () => {
    const figure = large.querySelector("figure"), button = figure.querySelector("[data-enlarge]");
    show(null);
    document.body.append(document.getElementById("tip"));
    home.append(figure);
    button.textContent = "enlarge";
    button.focus();
  });
  large.addEventListener("click", (event) => { if (event.target === large) large.close(); });

  const menus = Array.from(document.querySelectorAll("nav details"));
  document.addEventListener("click", (event) => {  // a menu closes when something was chosen, or elsewhere
    for (const menu of menus) if (!menu.contains(event.target) || event.target.closest("a")) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of menus) menu.open = false;
  });

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
