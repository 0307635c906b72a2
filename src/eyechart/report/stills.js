// The pictures of the charts in the language of the page: on paper they stand in place of the live charts. The other language's
// travel deflated, and take their pictures (maps, patches) from those that stand in the page: embed.in_the_other_language.
(() => {
  "use strict";
  const { hear, tell, inflated } = window.eyechart;
  const { others } = JSON.parse(document.getElementById("charts").textContent), root = document.documentElement, opened = root.lang;
  const kept = new Map(); // figure -> { own, other } as they stand in the page: a source, two sides, a width on paper
  const attributes = ["src", "width", "height"];

  const known = async (figure) => {
    if (kept.has(figure)) return kept.get(figure);
    const still = figure.querySelector(".still"), source = still.getAttribute("src"), { svg, width, height, paper } = others[figure.dataset.chart];
    const text = decodeURIComponent(source.replace(/^[^,]*,/, "")), pictures = [...new Set(text.match(/data:image\/(?!svg)[^"']+/g))];
    const other = new TextDecoder().decode(await inflated(svg)).replace(/picture:(\d+)\./g, (name, at) => pictures[at] ?? name);
    const own = Object.fromEntries(attributes.map((name) => [name, still.getAttribute(name)]));
    const wide = Math.min(paper, (228 * width) / height);
    kept.set(figure, {
      own: { ...own, paper: figure.style.getPropertyValue("--paper"), strips: figure.dataset.strips },
      other: { src: `data:image/svg+xml,${encodeURIComponent(other)}`, width, height, paper: `${wide}mm`, strips: paper },
    });
    return kept.get(figure);
  };

  const speak = async (figure) => {
    const both = await known(figure), shown = root.lang === opened ? both.own : both.other, still = figure.querySelector(".still");
    attributes.forEach((name) => still.setAttribute(name, shown[name]));
    figure.style.setProperty("--paper", shown.paper);
    if (figure.dataset.strips) figure.dataset.strips = shown.strips;
    tell("still", figure);
  };
  hear("language", () => document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    if (others[figure.dataset.chart]) speak(figure).catch((error) => console.error(`The picture of ${figure.dataset.chart} keeps its language: ${error}`));
  }));
})();
