// What the page can do besides being read: keep the place when the language changes, sort tables, open all for print.
(() => {
  "use strict";
  const sheets = [...document.querySelectorAll(".sheet")];
  const shown = () => sheets.find((sheet) => sheet.offsetParent !== null) || sheets[0];

  const name = () => {
    const sheet = shown();
    document.documentElement.lang = sheet.lang;
    document.title = sheet.dataset.title;
  };

  // The section that is being read; the other language opens there.
  const section = () => {
    const passed = [...shown().querySelectorAll("section[id]")].filter((one) => one.getBoundingClientRect().top < 120);
    return passed.length ? passed[passed.length - 1].id.slice(3) : "";
  };

  document.querySelectorAll("a.switch").forEach((link) => {
    const target = link.hash;
    link.addEventListener("click", () => {
      const place = section();
      link.hash = place ? `${target}-${place}` : target;
    });
  });
  addEventListener("hashchange", name);
  name();

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.order === undefined ? cell.textContent.trim() : Number(cell.dataset.order);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  const sort = (table, head) => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => sign * compare(value(a, head.cellIndex), value(b, head.cellIndex)));
    table.tBodies[0].append(...rows);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  };

  document.querySelectorAll("table.sortable").forEach((table) => {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.title = table.dataset.sort;
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
  });

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });
})();
