// A slider over the runs of a comparison: what belongs to one later run (data-run) is shown beside the first run, one at a
// time; rows and columns of tables that show all runs mark it (data-now). Without this script all runs stand in order.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)];
  window.addEventListener("beforeprint", () => all("details").forEach((fold) => { fold.open = true; }));

  const bar = document.querySelector(".slider");
  if (!bar) return;
  const run = bar.querySelector("#run"), every = bar.querySelector("#all-runs"), said = bar.querySelector("output");
  const steps = [...bar.querySelectorAll("[data-step]")], parts = all("[data-run]"), marks = all("[data-now]");

  const show = () => {
    parts.forEach((part) => part.classList.toggle("away", part.dataset.run !== run.value && (!every.checked || said.contains(part))));
    marks.forEach((mark) => mark.classList.toggle("now", mark.dataset.now === run.value && !every.checked));
    said.hidden = every.checked;
    document.documentElement.classList.toggle("all", every.checked);
    steps.forEach((step) => { step.disabled = run.value === (step.dataset.step < 0 ? run.min : run.max); });
    run.setAttribute("aria-valuetext", said.querySelector("[data-run]:not(.away)")?.innerText ?? run.value);
  };
  const moved = () => {
    every.checked = false;
    show();
  };
  run.addEventListener("input", moved);
  steps.forEach((step) => step.addEventListener("click", () => {
    run.valueAsNumber += Number(step.dataset.step);
    moved();
  }));
  every.addEventListener("change", show);
  window.eyechart.hear("language", show);
  bar.hidden = false;
  document.documentElement.classList.add("slid");
  show();
})();
