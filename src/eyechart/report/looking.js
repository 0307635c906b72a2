// Linked looking: a layer that is picked anywhere is marked everywhere; a cell of a map of layers becomes two curves; heads
// that are brushed show their maps. Marks lie over the charts, found by what each mark of a chart stands for (its subject
// and the name of its layer), so that no chart has to know of it.
(() => {
  "use strict";
  const { state, set, hear, tell, views, sentence, layerWords } = window.eyechart;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const HOLD = 350; // milliseconds
  const SVG = "http://www.w3.org/2000/svg";

  // "block 3 attention junction" is in "block 3"; what is outside of blocks is its own layer.
  const layerOf = (name) => /^block \d+/.exec(name)?.[0] ?? name;
  // A figure of pairs says `whose` where its rows stay though only one of the two is shown.
  const whose = (datum) => datum.subject ?? datum.whose, otherOf = (datum) => datum.other_subject ?? datum.other_whose;
  const same = (pick, subject, name) => pick.subject === subject && typeof name === "string" && layerOf(name) === layerOf(pick.name);

  // Every mark of a chart with its box, in pixels of its canvas.
  const visit = (view, see) => {
    const [left, top] = view.origin(), padding = view.padding();
    const inside = (group, x, y) => (group.items || []).forEach((mark) => {
      if (mark.marktype === "group") mark.items.forEach((each) => inside(each, x + (each.x || 0), y + (each.y || 0)));
      else mark.items.forEach((item) => see(item, mark, x, y));
    });
    view.scenegraph().root.items.forEach((group) => inside(group, padding.left + left + (group.x || 0), padding.top + top + (group.y || 0)));
  };
  window.eyechart.visit = visit;
  const boxOf = (item, x, y) => ({ x1: x + item.bounds.x1, y1: y + item.bounds.y1, x2: x + item.bounds.x2, y2: y + item.bounds.y2 });
  const around = (one, two) => (one ? { x1: Math.min(one.x1, two.x1), y1: Math.min(one.y1, two.y1), x2: Math.max(one.x2, two.x2), y2: Math.max(one.y2, two.y2) } : two);

  // --- marks ------------------------------------------------------------------------------------------------------------

  const sheetOver = (figure) => {
    const live = figure.querySelector(".live");
    let sheet = live.querySelector("svg.rings");
    if (!sheet) {
      sheet = document.createElementNS(SVG, "svg");
      sheet.setAttribute("class", "rings");
      sheet.setAttribute("aria-hidden", "true");
      live.append(sheet);
    }
    return sheet;
  };

  const ring = ({ x1, y1, x2, y2 }, wide) => {
    const box = document.createElementNS(SVG, "rect");
    const size = wide ? { x: x1, y: y1, width: x2 - x1, height: y2 - y1 } : { x: x1 - 2, y: y1 - 2, width: x2 - x1 + 4, height: y2 - y1 + 4, rx: 6 };
    Object.entries(size).forEach(([name, value]) => box.setAttribute(name, value));
    return box;
  };

  const mark = (figure) => {
    const { view } = views.get(figure) || {};
    if (!view) return;
    const rings = [];
    for (const pick of state.layers) {
      const spans = new Map(); // of cells: a column or a row of a map
      visit(view, (item, { marktype }, x, y) => {
        const { datum } = item;
        if (!datum || !item.bounds || item.opacity === 0) return;
        const across = same(pick, whose(datum), datum.name), up = same(pick, otherOf(datum), datum.other_name);
        if (marktype === "rect" && (across || up)) {
          const box = boxOf(item, x, y), map = `${x},${y},${datum.map}`; // two maps may stand in one panel
          if (across) spans.set(`${map} across`, around(spans.get(`${map} across`), box));
          if (up) spans.set(`${map} up`, around(spans.get(`${map} up`), box));
        } else if ((across || up) && ["symbol", "image"].includes(marktype)) rings.push(ring(boxOf(item, x, y)));
      });
      rings.push(...[...spans.values()].map((box) => ring(box, true)));
    }
    sheetOver(figure).replaceChildren(...rings);
    figure.dataset.marked = rings.length;
  };
  hear("drawn", mark);

  const said = document.createElement("button");
  said.type = "button";
  said.className = "alone looking";
  said.hidden = true;
  said.addEventListener("click", () => set("layers", []));
  document.querySelector(".afloat").prepend(said);
  const layers = all("button.layer");
  hear("layers", (picks) => {
    layers.forEach((button) => button.setAttribute("aria-pressed", String(picks.some((pick) => same(pick, button.dataset.subject, button.dataset.layer)))));
    said.hidden = !picks.length;
    said.textContent = sentence("Marked: {layers}. Unmark", { layers: picks.map(({ subject, name }) => `${subject}, ${layerWords(layerOf(name))}`).join("; ") });
    views.forEach((_, figure) => mark(figure));
    if (cell && !picks.length) cell.hidden = true;
  });
  hear("language", () => tell("layers", state.layers));
  const pick = (...picks) => set("layers", JSON.stringify(picks) === JSON.stringify(state.layers) ? [] : picks);
  layers.forEach((button) => button.addEventListener("click", () => pick({ subject: button.dataset.subject, name: button.dataset.layer })));
  all(".live-only").forEach((words) => { words.hidden = false; });

  // --- a click on a chart -------------------------------------------------------------------------------------------------

  let cell = null;
  const heard = new WeakSet();
  hear("drawn", (figure) => {
    const { view } = views.get(figure);
    if (heard.has(view)) return;
    heard.add(view);
    view.addEventListener("click", (_, item) => {
      const datum = item?.datum;
      if (!datum || typeof whose(datum) !== "string" || typeof datum.name !== "string") return;
      if (typeof datum.other_name === "string" && item.mark.marktype === "rect") {
        const across = { subject: whose(datum), name: datum.name }, up = { subject: otherOf(datum), name: datum.other_name };
        pick(across, ...(same(across, up.subject, up.name) ? [] : [up])); // on the diagonal it is one layer
        if (state.layers.length) curves(figure, datum);
      } else pick({ subject: whose(datum), name: layerOf(datum.name) });
      if (typeof datum.head === "number" && state.layers.length) tell("heads", { figure, heads: [datum] });
    });
  });

  // A cell's row and column as curves, under the map.
  const curves = (figure, datum) => {
    const value = ["cka"].find((name) => name in datum);
    if (!value) return;
    const rows = window.eyechart.rowsOf(figure.dataset.chart).filter((row) => whose(row) === whose(datum) && otherOf(row) === otherOf(datum) && row.map === datum.map && row.other_name);
    const removed = datum.map && datum.map !== "intact" ? sentence("without the skips of {layer}", { layer: layerWords(datum.map) }) : undefined;
    const panel = (moving, fixed, title, owner) => {
      const { fill } = document.querySelector(`#subjects .swatch[data-subject="${CSS.escape(owner)}"] circle`).attributes, color = fill.value;
      const along = rows.filter((row) => row[fixed] === datum[fixed]).map((row) => ({ layer: layerWords(row[moving]), value: row[value], low: row[`${value}_low`], high: row[`${value}_high`], here: row[moving] === datum[moving] }));
      const x = { field: "layer", type: "nominal", sort: null, title: null, axis: { labelAngle: -45, labelOverlap: true } };
      const least = Math.min(0, ...along.map(({ low, value: middle }) => low ?? middle)); // unbiased CKA may lie below 0
      const y = (field) => ({ field, type: "quantitative", title: value.toUpperCase(), scale: { domain: [least, 1] } });
      return {
        data: { values: along }, width: 330, height: 170, title: { text: title, subtitle: removed, fontSize: 12, limit: 360 },
        layer: [
          { mark: { type: "area", style: "interval-band", clip: true, color }, encoding: { x, y: y("low"), y2: { field: "high" } } },
          { mark: { type: "line", clip: true, color }, encoding: { x, y: y("value") } },
          { mark: { type: "point", filled: true, size: 40, color }, encoding: { x, y: y("value"), size: { condition: { test: "datum.here", value: 130 }, value: 30 },
            tooltip: [{ field: "layer", type: "nominal", title: sentence("layer") }, { field: "value", type: "quantitative", format: ".3f", title: value.toUpperCase() }, { field: "low", type: "quantitative", format: ".3f", title: sentence("from") }, { field: "high", type: "quantitative", format: ".3f", title: sentence("to") }] } },
        ],
      };
    };
    const one = panel("other_name", "name", sentence("{subject}, {layer}, with each layer of {other}", { subject: whose(datum), layer: layerWords(datum.name), other: otherOf(datum) }), whose(datum));
    const two = panel("name", "other_name", sentence("{subject}, {layer}, with each layer of {other}", { subject: otherOf(datum), layer: layerWords(datum.other_name), other: whose(datum) }), otherOf(datum));
    if (!cell) {
      cell = document.createElement("div");
      cell.className = "cell";
    }
    figure.after(cell);
    cell.hidden = false;
    const across = figure.clientWidth < 840 ? 1 : 2;
    if (across === 1) [one, two].forEach((each) => { each.width = Math.max(160, figure.clientWidth - 80); });
    const diagonal = whose(datum) === otherOf(datum) && datum.name === datum.other_name;
    window.eyechart.show(cell, { concat: diagonal ? [one] : [one, two], columns: across }).then(() => { cell.dataset.shown = `${datum.name} ${datum.other_name}`; });
  };

  // --- heads under a brush ------------------------------------------------------------------------------------------------

  // A head that two panels draw is one.
  const once = (heads) => [...new Map(heads.map((head) => [JSON.stringify([head.subject, head.name, head.head]), head])).values()];

  // A brush needs a pointer: who has none chooses a layer and sees all of its heads.
  const byKeys = (figure, heads) => {
    const label = document.createElement("label"), words = document.createElement("span"), chosen = document.createElement("select");
    const keyOf = ({ subject, name }) => JSON.stringify([subject, layerOf(name)]);
    chosen.append(new Option("–", ""), ...[...new Set(heads.map(keyOf))].map((key) => new Option("", key)));
    const tellWhat = () => {
      words.textContent = sentence("Or choose a layer:");
      [...chosen.options].slice(1).forEach((option) => { const [subject, layer] = JSON.parse(option.value); option.text = `${subject}, ${layerWords(layer)}`; });
    };
    tellWhat();
    hear("language", tellWhat);
    chosen.addEventListener("change", () => { if (chosen.value) tell("heads", { figure, heads: heads.filter((head) => keyOf(head) === chosen.value) }); });
    label.className = "hint quiet";
    label.append(words, " ", chosen);
    return label;
  };

  hear("drawn", (figure) => {
    const canvas = figure.querySelector(".live canvas"), heads = [];
    visit(views.get(figure).view, ({ datum, bounds }, { marktype }, x, y) => {
      if (marktype === "symbol" && bounds && typeof datum?.head === "number" && typeof datum.name === "string") heads.push({ datum, x: x + (bounds.x1 + bounds.x2) / 2, y: y + (bounds.y1 + bounds.y2) / 2 });
    });
    if (!heads.length || !document.getElementById("explorer")) return;
    if (!figure.querySelector(".hint")) {
      const hint = document.createElement("figcaption");
      hint.className = "hint quiet";
      const fingers = window.matchMedia("(pointer: coarse)").matches;
      const tellHow = () => { hint.textContent = fingers ? sentence("Hold a finger on the figure and then draw a box around heads, or tap one, to see where they look.") : sentence("Draw a box around heads, or click on one, to see where they look."); };
      tellHow();
      hear("language", tellHow);
      figure.append(hint, byKeys(figure, once(heads.map(({ datum }) => datum))));
    }
    const at = (event) => { const edge = canvas.getBoundingClientRect(); return { x: event.clientX - edge.left, y: event.clientY - edge.top }; };
    const isFar = (one, two) => Math.hypot(one.x - two.x, one.y - two.y) > 6;
    let from = null, brush = null, touched = null, held = 0;
    // A finger that moves at once scrolls the page; one that is held first draws.
    canvas.addEventListener("pointerdown", (event) => {
      const here = at(event);
      if (event.pointerType !== "touch") from = here;
      else {
        touched = here;
        held = setTimeout(() => {
          from = here;
          draw(from, { x: here.x + 14, y: here.y + 14 }); // to see that it was held long enough
        }, HOLD);
      }
    });
    const forget = () => {
      clearTimeout(held);
      brush?.remove();
      from = brush = touched = null;
    };
    canvas.addEventListener("pointercancel", forget);
    canvas.addEventListener("touchmove", (event) => { if (from) event.preventDefault(); }, { passive: false });
    canvas.addEventListener("contextmenu", (event) => { if (touched) event.preventDefault(); });
    canvas.addEventListener("pointermove", (event) => {
      const to = at(event);
      if (touched && !from && isFar(to, touched)) forget();
      if (!from || (!brush && !isFar(to, from))) return;
      canvas.setPointerCapture(event.pointerId);
      draw(from, to);
    });
    const draw = (one, to) => {
      brush?.remove();
      brush = ring({ x1: Math.min(one.x, to.x), y1: Math.min(one.y, to.y), x2: Math.max(one.x, to.x), y2: Math.max(one.y, to.y) }, true);
      brush.setAttribute("class", "brush");
      sheetOver(figure).append(brush);
    };
    canvas.addEventListener("pointerup", (event) => {
      const to = at(event);
      if (brush && isFar(to, from)) {
        const between = (value, one, two) => value >= Math.min(one, two) && value <= Math.max(one, two);
        tell("heads", { figure, heads: once(heads.filter(({ x, y }) => between(x, from.x, to.x) && between(y, from.y, to.y)).map(({ datum }) => datum)) });
      }
      forget();
    });
  });
})();
