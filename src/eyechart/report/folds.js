// What is folded, and links to single things: what is folded away or filtered out ("hidden" is told then) is shown before the
// window goes there. Without this script everything stands unfolded in the HTML.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)], { tell } = window.eyechart;
  const folds = window.eyechart.folds = all("details.fold");
  folds.forEach((fold) => { fold.open = false; });

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = all("details").filter((fold) => !fold.open);
    folded.forEach((fold) => { fold.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((fold) => { fold.open = false; }));

  const reveal = window.eyechart.reveal = () => {
    const name = decodeURIComponent(window.location.hash.slice(1)), target = name && document.getElementById(name);
    if (!target) return;
    if (target.closest("[hidden]")) tell("hidden", target);
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView({ behavior: "instant" });
  };
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => { // a second click on the same link changes no hash
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === window.location.hash) reveal();
  });
})();
