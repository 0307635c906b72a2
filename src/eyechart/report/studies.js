// How the page of the studies is read: claims are searched and filtered, at a glance and in full; folds.js folds them.
(() => {
  "use strict";
  const { hear, sentence, reveal } = window.eyechart;
  const all = (selector) => [...document.querySelectorAll(selector)], one = (selector) => document.querySelector(selector);
  const words = one("#find-words"), [state, kind, study, paper] = ["state", "kind", "study", "paper"].map((name) => one(`#find-${name}`));
  const fields = [words, state, kind, study, paper];
  const claims = all(".found").map((element) => ({
    element,
    text: element.textContent.toLowerCase().replace(/\s+/g, " "),
    state: element.dataset.state,
    verdicts: element.dataset.verdicts.split(" ").map((each) => each.split(":")), // [study, kind]
    papers: JSON.parse(element.dataset.papers),
  }));
  const inFull = new Map(claims.filter(({ element }) => element.id).map(({ element, text }) => [element.id, text]));

  const filter = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    claims.forEach((claim) => {
      const text = inFull.get(claim.element.id || claim.element.querySelector(".id").textContent);
      claim.element.hidden = !(asked.every((word) => text.includes(word)) &&
        (!state.value || claim.state === state.value) && (!paper.value || claim.papers.includes(paper.value)) &&
        ((!kind.value && !study.value) || claim.verdicts.some(([by, said]) => (!study.value || by === study.value) && (!kind.value || said === kind.value))));
    });
    const active = fields.some((field) => field.value), shown = all(".claim-fold:not([hidden])").length;
    const said = active ? sentence("{shown} of {claims} claims", { shown, claims: inFull.size }) : "";
    all(".find-said").forEach((place) => { place.textContent = said; });
    all(".find-reset").forEach((button) => { button.hidden = !active; });
  };
  const reset = () => {
    fields.forEach((field) => { field.value = ""; });
    filter();
  };
  fields.forEach((field) => field.addEventListener("input", filter));
  all(".find-reset").forEach((button) => button.addEventListener("click", reset));
  hear("hidden", reset);
  hear("language", filter);
  all(".tally [data-state]").forEach((link) => link.addEventListener("click", () => {
    reset();
    state.value = link.dataset.state;
    filter();
  }));
  all("[data-unfold]").forEach((button) => button.addEventListener("click", () => {
    all(".claim-fold:not([hidden])").forEach((fold) => { fold.open = Boolean(button.dataset.unfold); });
  }));
  one(".finder").addEventListener("submit", (event) => event.preventDefault());
  all(".finder, .folding").forEach((part) => { part.hidden = false; });
  filter();

  const links = new Map(all(".contents ol a").map((link) => [link.hash.slice(1), link])), list = one(".contents ol");
  const reading = new IntersectionObserver((entries) => entries.filter(({ isIntersecting }) => isIntersecting).forEach(({ target }) => {
    links.forEach((link, id) => link[id === target.id ? "setAttribute" : "removeAttribute"]("aria-current", "true"));
    const { offsetLeft, offsetWidth } = links.get(target.id); // on a phone the contents are wider than the window
    list.scrollLeft = offsetLeft - list.offsetLeft + (offsetWidth - list.clientWidth) / 2;
  }), { rootMargin: "-15% 0px -80% 0px" });
  links.forEach((_, id) => reading.observe(document.getElementById(id)));
  reveal();
})();
