// The language of the page: `<html lang>` decides, page.css hides what is in the other. This script exchanges what CSS
// cannot (attributes, options, the title) and says what other scripts say.
(() => {
  "use strict";
  const korean = JSON.parse(document.getElementById("charts").textContent).words, root = document.documentElement;
  const { tell } = window.eyechart;
  const spoken = () => (root.lang === "ko" ? korean : {});

  // sentence("{n} of {all} claims", { n, all }): a whole sentence, whatever the language; English where there is no other.
  window.eyechart.sentence = (english, values = {}) =>
    (spoken()[english] ?? english).replace(/\{(\w+)\}/g, (place, name) => (name in values ? values[name] : place));

  // Layers are called "block 3 attention junction": each word of the name by itself.
  window.eyechart.layerWords = (name) => (root.lang === "ko" ? name.split(" ").map((word) => korean[word] ?? word).join(" ") : name);

  const ATTRIBUTES = ["aria-label", "title", "placeholder", "alt", "data-label"];
  const exchange = () => {
    ATTRIBUTES.forEach((name) => document.querySelectorAll(`[data-other-${name}]`).forEach((element) => {
      const shown = element.getAttribute(name);
      element.setAttribute(name, element.getAttribute(`data-other-${name}`));
      element.setAttribute(`data-other-${name}`, shown);
    }));
    document.querySelectorAll("[data-other-text]").forEach((element) => {
      const shown = element.textContent;
      element.textContent = element.dataset.otherText;
      element.dataset.otherText = shown;
    });
  };

  const buttons = document.querySelectorAll("[data-language]");
  const mark = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.language === root.lang)));
  buttons.forEach((button) => button.addEventListener("click", () => {
    if (button.dataset.language === root.lang) return;
    root.lang = button.dataset.language;
    exchange();
    mark();
    tell("language", root.lang);
  }));
  mark();
  document.querySelectorAll(".languages").forEach((group) => { group.hidden = false; });
})();
