// The paper tour: the figures move into the order of the papers, and back. A figure that several steps speak of stands at
// the first that is shown; the others link to it.
(() => {
  "use strict";
  const { hear, sentence } = window.eyechart;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const tour = document.getElementById("tour"), on = document.getElementById("tour-on"), of = document.getElementById("tour-of");
  const homes = new Map(all("figure[data-chart]").map((figure) => [figure.dataset.chart, { figure, parent: figure.parentElement, next: figure.nextElementSibling }]));
  const home = () => homes.forEach(({ figure, parent, next }) => parent.insertBefore(figure, next?.parentElement === parent ? next : null));

  const place = () => {
    home();
    const stands = new Map();
    all(".tour > li", tour).forEach((step) => {
      const { paper, notes } = step.dataset;
      step.hidden = Boolean(of.value) && paper !== of.value && !notes.split(" ").includes(of.value);
      const slot = step.querySelector(".slot"), link = slot?.querySelector("a");
      if (!slot || step.hidden) return;
      const { measure } = slot.dataset, figure = homes.get(measure)?.figure;
      const first = stands.get(measure);
      link.hash = on.checked && first ? first : `measure-${measure}`;
      link.textContent = on.checked && first ? sentence("Our figure stands above") : on.checked && figure ? sentence("Its numbers, method and downloads") : sentence("Our figure");
      if (!on.checked || first || !figure) return;
      slot.prepend(figure);
      stands.set(measure, step.id);
    });
    document.body.classList.toggle("touring", on.checked);
  };
  on.addEventListener("change", () => {
    place();
    const fold = tour.closest("details");
    if (fold) fold.open = on.checked;
    if (on.checked) tour.scrollIntoView();
  });
  of.addEventListener("change", place);
  hear("language", place);
  window.addEventListener("hashchange", () => { // a link out of the tour, to what it hides
    const target = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
    if (!on.checked || !target?.closest(".chapter")) return;
    on.checked = false;
    place();
  });
  on.closest("label").hidden = false;
  of.closest("p").hidden = false;
  on.checked = document.documentElement.dataset.tour === "on";
  place();
})();
