// High figures of many subjects show two of them at first; the row of names above picks others, or all. Paper and readers
// without JavaScript get the picture of all.
(() => {
  "use strict";
  const { hear, tell, state } = window.eyechart;
  const drawable = JSON.parse(document.getElementById("charts").textContent).charts;
  const few = window.eyechart.few = new Map(); // figure -> subjects, where these are not all

  document.querySelectorAll("figure[data-few]").forEach((figure) => {
    if (!drawable[figure.dataset.chart]) return;
    const row = figure.querySelector(".few"), all = row.querySelector("[data-show-all]");
    const names = [...row.querySelectorAll("[data-show]")], atFirst = JSON.parse(figure.dataset.few);
    let last = atFirst; // what is gone back to from all
    const show = (shown) => {
      if (shown.length < names.length) few.set(figure, shown);
      else few.delete(figure);
      names.forEach((name) => name.setAttribute("aria-pressed", String(shown.includes(name.dataset.show))));
      all.setAttribute("aria-pressed", String(shown.length === names.length));
      tell("few", figure);
    };
    const every = names.map((name) => name.dataset.show);
    names.forEach((name) => name.addEventListener("click", () => {
      const shown = few.get(figure) ?? every, own = name.dataset.show;
      const next = shown.includes(own) ? shown.filter((each) => each !== own) : every.filter((each) => each === own || shown.includes(each));
      if (next.length) show(last = next);
    }));
    all.addEventListener("click", () => show(few.has(figure) ? every : last.length < every.length ? last : atFirst));
    hear("only", () => { row.hidden = state.only.length > 0; });
    row.hidden = false;
    figure.classList.add("waiting"); // the picture of all would be high, and gone once the figure is drawn
    show(atFirst);
  });
})();
