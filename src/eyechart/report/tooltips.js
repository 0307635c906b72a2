// What charts tell the pointer, in the language of the page: a line for each number, with its interval.
(() => {
  "use strict";
  const { sentence, layerWords } = window.eyechart;
  const KINDS = { mlp: "MLP", conv: "convolution", subsampling: "sub-sampling" }; // as legends say them: theme.KIND_WORDS

  // Titles are said already. Of what they stand before: whole phrases, else names of layers word by word; names of subjects
  // and numbers stay.
  const said = (value) => {
    const [, y, x] = /^row (\d+), column (\d+)$/.exec(value) ?? [];
    if (y) return sentence("row {y}, column {x}", { y, x });
    const whole = sentence(value);
    return whole === value ? layerWords(KINDS[value] ?? value.replace(/^(block \d+) mlp\b/, "$1 MLP")) : whole;
  };
  const isThere = (end) => end !== "null" && end !== "NaN" && end !== "undefined";

  // Ends that read like the number itself say less than that they are nearer than its last digit shows.
  const interval = (value, low, high) => {
    const [whole, tail = "", unit] = /^[−-]?\d+(?:\.(\d+))?(\u00a0%|)$/.exec(value) ?? [];
    return whole && low === value && high === value ? ` (±<0.${"0".repeat(tail.length)}5${unit})` : ` [${low}, ${high}]`;
  };

  // "from" and "to" after a number are its interval: charts.tables.interval_tooltips.
  const lines = (entries) => {
    const made = [];
    for (let at = 0; at < entries.length; at += 1) {
      const [title, value] = entries[at], [low, high] = entries.slice(at + 1, at + 3);
      const hasEnds = low?.[0].endsWith(sentence("from")) && high?.[0].endsWith(sentence("to"));
      const span = hasEnds && isThere(low[1]) && isThere(high[1]) ? interval(value, low[1], high[1]) : "";
      made.push([title, said(value) + span]);
      if (hasEnds) at += 2;
    }
    return made.filter(([, value]) => isThere(value));
  };

  window.eyechart.tooltip = {
    theme: "eyechart",
    formatTooltip: (value, safe) => {
      if (typeof value !== "object") return safe(String(value));
      const rows = lines(Object.entries(value).map(([title, each]) => [title, String(each)]));
      return `<table>${rows.map(([title, each]) => `<tr><td class="key">${safe(title)}</td><td class="value">${safe(each)}</td></tr>`).join("")}</table>`;
    },
  };
})();
