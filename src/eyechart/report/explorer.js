// Attention under one's fingers: a click on a patch asks where it looks. Everything is drawn from rows that explorer.py
// packed into the page; nothing is computed but means over heads. A second subject can stand beside the first: it is asked
// the same query of the same picture, in a layer and head of its own.
(() => {
  "use strict";
  const room = document.getElementById("explorer");
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  if (typeof DecompressionStream === "undefined") return; // the sentence that stands here stays
  const PREFIX = -1, MEAN = -2;
  const { hear, sentence, layerWords } = window.eyechart;
  const part = (name) => room.querySelector(`[data-part="${name}"]`);
  // What both sides share is in `state`; `main` is the subject in hand, `other` the one beside it.
  const state = { example: 0, show: "head", over: false, hovered: null };
  const main = { subject: 0, layer: 0, head: 0, query: 0, rows: null, picture: null };
  const other = { subject: null, layer: 0, head: 0, query: 0, rows: null, picture: null };
  const unpacked = new Map(); // "subject/example" -> rows

  const ramp = data.ramp.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  const shade = (share) => { // as palette.shades mixes them
    const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
    const low = Math.min(Math.floor(place), ramp.length - 2), high = place - low;
    return ramp[low].map((from, at) => Math.round(from + (ramp[low + 1][at] - from) * high));
  };
  const subject = (side = main) => data.subjects[side.subject];
  const layer = (side = main) => subject(side).layers[side.layer];

  // --- rows -----------------------------------------------------------------------------------------------------------

  const half = (bits) => { // a positive number of 16 bits
    const power = bits >> 10, rest = (bits & 1023) / 1024;
    return power ? (1 + rest) * 2 ** (power - 15) : rest * 2 ** -14;
  };

  const unpack = async (who, example) => {
    const key = `${who}/${example}`;
    if (!unpacked.has(key)) {
      const bytes = Uint8Array.from(atob(data.subjects[who].rows[example]), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      const all = await new Response(stream).arrayBuffer();
      const layers = data.subjects[who].layers.map((one) => ({ one, queries: one.queries.length }));
      let at = 0, count = 0, done = 0;
      for (const each of layers) { // heads, then the rollout as one more
        each.codes = new Uint8Array(all, at, (each.one.heads + 1) * each.queries * each.one.keys);
        at += each.codes.length;
      }
      for (const each of layers) {
        each.peaks = new Float32Array((each.one.heads + 1) * each.queries); // largest weights on a patch
        each.besides = new Float32Array(each.peaks.length); // and on a token without place
        count += 2 * each.peaks.length;
      }
      const bytesOf = new Uint8Array(all, at); // of all peaks first the lower bytes, then the upper ones
      for (const kind of ["peaks", "besides"]) {
        for (const { [kind]: list } of layers) {
          list.forEach((_, peak) => { list[peak] = half(bytesOf[done + peak] | (bytesOf[count + done + peak] << 8)); });
          done += list.length;
        }
      }
      unpacked.set(key, layers);
    }
    return unpacked.get(key);
  };

  // Weights of one row over its keys; head `heads` is the rollout. Codes are square roots of shares of the largest.
  const row = (side, head) => {
    const { one, queries, codes, peaks, besides } = side.rows[side.layer];
    const at = head * queries + side.query, places = one.windows[one.queries[side.query][2]];
    return Array.from(codes.subarray(at * one.keys, (at + 1) * one.keys), (code, key) =>
      (code / data.levels) ** 2 * (places[key][0] < 0 ? besides[at] : peaks[at]));
  };
  const meanRow = (side) => {
    const all = Array.from({ length: layer(side).heads }, (_, head) => row(side, head));
    return all[0].map((_, key) => all.reduce((sum, each) => sum + each[key], 0) / all.length);
  };
  // Ways to show: "head", "mean" and "rollout" are attention; "pixels" is likeness without weights; "place" and "reach" are
  // means over all images, of the final token's likeness to patches and of the field of the middle.
  const reachOf = (side) => subject(side).reach?.blocks[layer(side).name];
  const howShown = (side) => {
    const lacks = { rollout: subject(side).noRollout, place: !subject(side).place, reach: !reachOf(side) };
    return lacks[state.show] ? "mean" : state.show;
  };
  const shown = (side) => ({
    mean: () => meanRow(side),
    rollout: () => row(side, layer(side).heads),
    head: () => row(side, side.head),
    pixels: () => (queryPlace(side) ? window.eyechart.likeness(side.picture, queryPlace(side), keysOf(side)) : keysOf(side).map(() => 0)),
    place: () => placeRow(side),
    reach: () => {
      const bytes = bytesOf(reachOf(side)), sum = bytes.reduce((all, value) => all + value, 0);
      return bytes.map((value) => value / sum);
    },
  })[howShown(side)]();
  const bytesOf = (text) => Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const placeRow = (side) => { // of the token nearest to the query; in the middle where it has no place
    const { grid: [down, across], tokens, values, largest } = subject(side).place, asked = queryPlace(side);
    const [y, x] = asked ? [(asked.top + asked.bottom) / 2, (asked.left + asked.right) / 2] : [0.5, 0.5];
    const far = ([row, column]) => ((row + 0.5) / down - y) ** 2 + ((column + 0.5) / across - x) ** 2;
    const token = tokens.reduce((best, each, at) => (far(each) < far(tokens[best]) ? at : best), 0);
    return bytesOf(values).slice(token * down * across, (token + 1) * down * across).map((value) => (value / 255) * largest);
  };

  // Keys of the asked query with their places, as shares of the picture.
  const keysOf = (side) => {
    const [, , down, across, group] = layer(side).grids;
    return layer(side).windows[layer(side).queries[side.query][2]].map(([y, x]) => ({
      y, x, top: (y * group) / down, left: (x * group) / across,
      bottom: Math.min(1, ((y + 1) * group) / down), right: Math.min(1, ((x + 1) * group) / across),
    }));
  };

  const keysShown = (side) => {
    const grid = { place: subject(side).place?.grid, reach: subject(side).reach?.grid }[howShown(side)];
    if (!grid) return keysOf(side);
    const [down, across] = grid;
    return Array.from({ length: down * across }, (_, at) => [Math.floor(at / across), at % across]).map(([y, x]) => ({
      y, x, top: y / down, left: x / across, bottom: (y + 1) / down, right: (x + 1) / across,
    }));
  };

  // --- words ----------------------------------------------------------------------------------------------------------

  const percent = (value) => {
    const digits = value > 0 ? Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(100 * value)))) : 0;
    return `${(100 * value).toFixed(digits)} %`;
  };
  const tokenName = (number) => (number === 0 ? sentence("the class token") : sentence("prefix token {n}", { n: number + 1 }));
  const queryName = ([y, x]) =>
    y === PREFIX ? tokenName(x) : y === MEAN ? sentence("the average patch") : sentence("the patch in row {y}, column {x}", { y: y + 1, x: x + 1 });
  const keyName = ({ y, x }, side = main) => {
    if (howShown(side) === "place") return sentence("row {y}, column {x}", { y: y + 1, x: x + 1 });
    if (howShown(side) === "reach") return sentence("row {y}, column {x} of {grid}", { y: y + 1, x: x + 1, grid: subject(side).reach.grid.join("×") });
    const [, , , , group] = layer(side).grids;
    const span = (at) => (group > 1 ? `${at * group + 1}–${(at + 1) * group}` : `${at + 1}`);
    return y === PREFIX ? (x < 0 ? sentence("padding") : tokenName(x)) : sentence("row {y}, column {x}", { y: span(y), x: span(x) });
  };
  const headName = (side) => ({
    mean: sentence("all {n} heads, averaged", { n: layer(side).heads }),
    rollout: sentence("rollout up to here"),
    head: sentence("head {n}", { n: side.head + 1 }),
    pixels: sentence("likeness of pixels, nothing learned"),
    place: sentence("likeness of its final token to each patch"),
    reach: sentence("what its middle answers to"),
  })[howShown(side)];

  const amount = (weight, side = main) => { // a weight that was rounded to 0 is not 0
    if (howShown(side) === "place") return `CKA ${weight.toFixed(2)}`;
    if (["pixels", "reach"].includes(howShown(side))) return percent(weight);
    const { queries, peaks } = side.rows[side.layer], head = howShown(side) === "rollout" ? layer(side).heads : side.head;
    const step = peaks[head * queries + side.query] / (2 * data.levels) ** 2;
    return weight > 0 || howShown(side) === "mean" ? percent(weight) : sentence("less than {share}", { share: percent(step) });
  };

  const lookedAt = (values) => {
    if (values.n === 1 && values.all === 1) return sentence("Where {asked} of “{picture}” looks in this head. A click opens the explorer.", values);
    if (values.n === values.all) return sentence("Where {asked} of “{picture}” looks in these {n} heads. A click opens the explorer.", values);
    return sentence("Where {asked} of “{picture}” looks in {n} of these {all} heads. A click opens the explorer.", values);
  };

  const best = (side, weights, keys) => keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y >= 0)
    .reduce((one, two) => (two.weight > one.weight ? two : one));

  const finding = (side, most) => {
    const values = { asked: queryName(layer(side).queries[side.query]), layer: layerWords(layer(side).name), place: keyName(most.key, side), share: amount(most.weight, side) };
    switch (howShown(side)) {
      case "rollout": return sentence("{asked} rests most on {place}: {share}", values);
      case "pixels": return sentence("{asked} is by its pixels most like {place}: {share}", values);
      case "place": return sentence("{asked} has a final token most like the patch in {place}: {share}", values);
      case "reach": return sentence("the middle of {layer} answers most to {place}: {share}", values);
      default: return sentence("{asked} looks most at {place}: {share}", values);
    }
  };
  const sayBeside = (weights, keys) => {
    const most = best(other, weights, keys);
    part("other-said").textContent = sentence("Of {subject}, {finding}.", { subject: subject(other).name, finding: finding(other, most) });
    part("other-top").textContent = amount(most.weight, other).replace("CKA ", "");
  };

  const say = (weights, keys) => {
    const placed = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y >= 0);
    const most = best(main, weights, keys);
    const others = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y === PREFIX && howShown(main) !== "pixels");
    const beside = others.map(({ key, weight }) => sentence("{token} gets {share}", { token: keyName(key), share: amount(weight) })).join(", ");
    const words = finding(main, most);
    part("said").textContent = `${words[0].toUpperCase()}${words.slice(1)}${beside ? `; ${beside}` : ""}.`;
    part("top").textContent = amount(most.weight).replace("CKA ", "");
    teach(weights, keys);
    const under = state.hovered === null ? null : placed.find(({ key }) => key.y === state.hovered.y && key.x === state.hovered.x);
    part("hovered").textContent = under ? sentence("Under the pointer, {place}: {share}", { place: keyName(under.key), share: amount(under.weight) }) : "";
  };

  // --- lesson ---------------------------------------------------------------------------------------------------------

  // What is measured is said as well: how far the weights agree with plain likeness, the asked patch itself left out.
  const teach = (weights, keys) => {
    const lesson = part("lesson"), how = howShown(main), step = lesson.querySelector(`[data-show="${how}"]`);
    lesson.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button === step)));
    lesson.querySelectorAll("p[data-of]").forEach((words) => { words.hidden = words.dataset.of !== how; });
    const place = queryPlace(main), patches = keys.flatMap((key, at) => (key.y >= 0 && !(place && key.top === place.top && key.left === place.left) ? [at] : []));
    const learned = ["head", "mean", "rollout"].includes(how) && place && patches.length > 2;
    const plain = learned ? window.eyechart.likeness(main.picture, place, keys) : [];
    const agree = learned ? window.eyechart.rankCorrelation(patches.map((at) => weights[at]), patches.map((at) => plain[at])) : NaN;
    part("agreement").textContent = Number.isFinite(agree) ? sentence("Here, rank correlation with the likeness of pixels: {value} over {n} patches.", { value: agree.toFixed(2).replace("-", "−"), n: patches.length }) : ["place", "reach"].includes(how) ? sentence("Mean over {n} images.", { n: subject()[how].images.toLocaleString("en") }) : "";
  };

  // --- drawing --------------------------------------------------------------------------------------------------------

  const fit = (canvas, side = main) => {
    const [height, width] = subject(side).size;
    canvas.style.aspectRatio = `${width} / ${height}`;
    const fine = window.devicePixelRatio || 1;
    const wide = Math.max(1, Math.round(canvas.clientWidth * fine));
    canvas.width = wide;
    canvas.height = Math.max(1, Math.round((wide * height) / width));
    return canvas.getContext("2d");
  };
  const paintPicture = (pen, side = main) => {
    pen.imageSmoothingEnabled = subject(side).photo;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(side.picture, 0, 0, pen.canvas.width, pen.canvas.height);
  };
  const box = (pen, { top, left, bottom, right }) => {
    const { width, height } = pen.canvas;
    const x = Math.round(left * width), y = Math.round(top * height);
    return [x, y, Math.round(right * width) - x, Math.round(bottom * height) - y];
  };
  const outline = (pen, place, colour) => {
    const [x, y, width, height] = box(pen, place);
    const fine = Math.max(1, Math.round(window.devicePixelRatio || 1));
    for (const [ink, inset, thick] of [["#000000", 0, fine], [colour, fine, 2 * fine], ["#000000", 3 * fine, fine]]) {
      if (width <= 2 * inset + thick || height <= 2 * inset + thick) break;
      pen.strokeStyle = ink;
      pen.lineWidth = thick;
      pen.strokeRect(x + inset + thick / 2, y + inset + thick / 2, width - 2 * inset - thick, height - 2 * inset - thick);
    }
  };
  const queryPlace = (side) => {
    const [down, across] = layer(side).grids, [y, x] = layer(side).queries[side.query];
    return y < 0 ? null : { top: y / down, left: x / across, bottom: (y + 1) / down, right: (x + 1) / across };
  };

  const paintMap = (canvas, side, weights, keys, over) => {
    const pen = fit(canvas, side);
    const top = Math.max(...keys.map((key, at) => (key.y >= 0 ? weights[at] : 0)), 1e-12);
    const partly = keys.filter(({ y }) => y >= 0).reduce((sum, key) => sum + (key.right - key.left) * (key.bottom - key.top), 0) < 0.999;
    if (over || partly) { // the picture in grey; Safari has no filters on canvases
      paintPicture(pen, side);
      pen.globalCompositeOperation = "saturation";
      pen.fillStyle = "#000000";
      pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
      pen.globalCompositeOperation = "source-over";
      pen.fillStyle = over ? "transparent" : "rgb(0 0 0 / 0.65)";
      pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
    }
    keys.forEach((key, at) => {
      if (key.y < 0) return;
      const share = weights[at] / top;
      pen.fillStyle = `rgb(${shade(share).join(" ")} / ${over ? 0.25 + 0.65 * share : 1})`;
      pen.fillRect(...box(pen, key));
    });
    return pen;
  };

  const drawLarge = () => {
    if (!main.rows) return;
    const keys = keysShown(main), weights = shown(main), asked = queryPlace(main);
    const left = fit(part("picture"));
    paintPicture(left);
    const right = paintMap(part("map"), main, weights, keys, state.over);
    const hovered = state.hovered && keys.find(({ y, x }) => y === state.hovered.y && x === state.hovered.x);
    for (const pen of [left, right]) {
      if (hovered) outline(pen, hovered, "#ffffff");
      if (asked && (pen === left || howShown(main) !== "reach")) outline(pen, asked, "#56b4e9"); // that is of the middle
    }
    say(weights, keys);
    if (!other.rows) return;
    const theirs = keysShown(other), their = shown(other), place = queryPlace(other);
    const beside = paintMap(part("other-map"), other, their, theirs, state.over);
    if (place) outline(beside, place, "#56b4e9");
    sayBeside(their, theirs);
  };

  const draw = () => {
    if (!main.rows) return;
    drawLarge();
    const keys = keysOf(main);
    part("heads").querySelectorAll("button").forEach((button, head) => {
      paintMap(button.querySelector("canvas"), main, row(main, head), keys, false);
      button.setAttribute("aria-pressed", String(state.show === "head" && head === main.head));
    });
    part("what").textContent = `${other.rows ? `${subject().name}, ` : ""}${layerWords(layer().name)}, ${headName(main)}`;
    if (other.rows) part("other-what").textContent = `${subject(other).name}, ${layerWords(layer(other).name)}, ${headName(other)}`;
    const { layer: at, head, query } = main, { example, show } = state;
    Object.assign(room.dataset, { subject: subject().name, example, layer: at, head, show, query });
    room.dataset.beside = other.rows ? JSON.stringify({ subject: subject(other).name, layer: other.layer, head: other.head, query: other.query }) : "";
  };

  const paintScale = (name) => {
    const pen = part(name).getContext("2d");
    for (let x = 0; x < pen.canvas.width; x += 1) {
      pen.fillStyle = `rgb(${shade(x / (pen.canvas.width - 1)).join(" ")})`;
      pen.fillRect(x, 0, 1, pen.canvas.height);
    }
  };

  // --- controls -------------------------------------------------------------------------------------------------------

  const choice = (group, words, checked, change) => {
    const label = document.createElement("label"), input = document.createElement("input");
    input.type = "radio";
    input.name = group;
    input.checked = checked;
    input.addEventListener("change", change);
    label.append(input, words);
    return label;
  };

  const nearestQuery = (y, x, side = main) => { // to a point of the picture, both 0 to 1
    const [down, across] = layer(side).grids, { queries } = layer(side);
    const far = ([row, column]) => (row < 0 ? Infinity : ((row + 0.5) / down - y) ** 2 + ((column + 0.5) / across - x) ** 2);
    return queries.reduce((best, each, at, all) => (far(each) < far(all[best]) ? at : best), queries.findIndex(([row]) => row >= 0));
  };
  const ask = (query) => {
    main.query = query;
    if (other.rows) keepQuery(whereNow(), other);
    const [y, x] = layer().queries[query];
    part("tokens").querySelectorAll("button").forEach((button) => {
      button.setAttribute("aria-pressed", String(y < 0 && button.value === `${y},${x}`));
    });
    draw();
  };

  // What stays the same where it can: the place of the query, or that it has none.
  const keepQuery = (old, side = main) => {
    const [y, x, down, across] = old, { queries } = layer(side);
    const same = queries.findIndex((each) => each[0] === y && each[1] === x);
    const average = queries.findIndex(([row]) => row === MEAN);
    if (y >= 0) side.query = nearestQuery((y + 0.5) / down, (x + 0.5) / across, side);
    else side.query = same >= 0 ? same : average >= 0 ? average : nearestQuery(0.5, 0.5, side);
  };
  const whereNow = () => [...layer().queries[main.query].slice(0, 2), ...layer().grids];

  const wholeLayers = () => { // the page has no room for every patch of every layer
    const names = subject().layers.filter(({ grids, queries }) => queries.filter(([y]) => y >= 0).length === grids[0] * grids[1]).map(({ name }) => name);
    return names.length ? ` ${sentence("All of them in {layers}.", { layers: names.map(layerWords).join(", ") })}` : "";
  };

  const listBeside = () => {
    part("beside-figure").hidden = !other.rows;
    room.querySelector(".easels").classList.toggle("three", Boolean(other.rows));
    if (!other.rows) return;
    part("other-layer").max = subject(other).layers.length;
    part("other-layer").value = other.layer + 1;
    part("other-layer").setAttribute("aria-valuetext", layerWords(layer(other).name));
    part("other-head").replaceChildren(...Array.from({ length: layer(other).heads }, (_, head) => new Option(sentence("head {n}", { n: head + 1 }), head, false, head === other.head)));
    part("other-head").disabled = state.show !== "head";
  };

  const listLayer = () => {
    const tokens = layer().queries.filter(([y]) => y < 0).map(([y, x]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.value = `${y},${x}`;
      const name = queryName([y, x]).replace(/^the /, "");
      button.textContent = name[0].toUpperCase() + name.slice(1);
      button.addEventListener("click", () => ask(layer().queries.findIndex((each) => each[0] === y && each[1] === x)));
      return button;
    });
    part("tokens").replaceChildren(...tokens);
    const heads = Array.from({ length: layer().heads }, (_, head) => {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      const words = document.createElement("span"), spread = layer().entropy[head];
      button.type = "button";
      words.textContent = `${head + 1}`;
      const small = document.createElement("small");
      small.textContent = spread === null ? "" : spread.toFixed(2);
      words.append(small);
      button.setAttribute("aria-label", spread === null ? sentence("Head {n}", { n: head + 1 }) : sentence("Head {n}, entropy {share} of uniform", { n: head + 1, share: spread.toFixed(2) }));
      button.append(canvas, words);
      button.addEventListener("click", () => choose({ head, show: "head" }));
      return button;
    });
    part("heads").replaceChildren(...heads);
    part("layer").max = subject().layers.length;
    part("layer").value = main.layer + 1;
    part("layer-name").textContent = sentence("{layer} ({n} of {all})", { layer: layerWords(layer().name), n: main.layer + 1, all: subject().layers.length });
    part("layer").setAttribute("aria-valuetext", layerWords(layer().name));
    const grid = layer().grids, asked = layer().queries.filter(([y]) => y >= 0).length;
    part("thinned").textContent = asked < grid[0] * grid[1] ? `${sentence("{n} of its {grid} patches can be chosen in this layer; a click takes the nearest.", { n: asked, grid: `${grid[0]}×${grid[1]}` })}${wholeLayers()}` : "";
    part("heads-of").textContent = sentence("All {n} heads of {layer}", { n: layer().heads, layer: layerWords(layer().name) });
    const { noRollout } = subject();
    room.querySelectorAll("[data-part=show] input").forEach((input) => {
      input.disabled = input.value === "rollout" && noRollout !== "";
      input.checked = input.value === state.show;
    });
    part("no-rollout").textContent = noRollout ? sentence("No rollout: {why}.", { why: sentence(noRollout) }) : "";
  };

  // Change something and draw; the rows of another picture or subject have to be unpacked first.
  let turn = 0;
  const choose = async (change) => {
    const mine = (turn += 1), before = main.rows ? whereNow() : null, depth = main.rows ? depthOf(main) : 0.5;
    const moved = "subject" in change && change.subject !== main.subject;
    const { subject: who = main.subject, layer: at = main.layer, head = main.head, beside = {}, ...rest } = change;
    const newBeside = "subject" in beside && beside.subject !== other.subject;
    Object.assign(main, { subject: who, layer: at, head });
    Object.assign(other, beside);
    Object.assign(state, rest, { hovered: null });
    if (moved || !before) main.layer = atDepth(main, depth);
    main.head = Math.min(main.head, layer().heads - 1);
    if (subject().noRollout && state.show === "rollout") state.show = "head";
    if (other.subject !== null && newBeside) Object.assign(other, { layer: atDepth(other, depthOf(main)), head: -1 });
    const sides = other.subject === null ? [main] : [main, other];
    const found = await Promise.all(sides.map(async (side) => {
      const image = new Image();
      image.src = subject(side).pictures[state.example];
      return [side, (await Promise.all([unpack(side.subject, state.example), image.decode()]))[0], image];
    }));
    if (mine !== turn) return; // another choice came in the meantime
    if (other.subject === null) other.rows = null;
    found.forEach(([side, rows, picture]) => Object.assign(side, { rows, picture }));
    if (!before) main.head = narrowest(main);
    if (other.rows) other.head = other.head < 0 ? narrowest(other) : Math.min(other.head, layer(other).heads - 1);
    if (before) keepQuery(before);
    else main.query = nearestQuery(0.5, 0.5);
    if (state.show === "pixels" && !queryPlace(main)) main.query = nearestQuery(0.5, 0.5); // no pixels, no likeness
    if (moved || !before) listPictures();
    listLayer();
    listBeside();
    ask(main.query);
  };
  const depthOf = (side) => side.layer / Math.max(1, subject(side).layers.length - 1);
  const atDepth = (side, depth) => Math.round(depth * (subject(side).layers.length - 1));
  const narrowest = (side) => layer(side).entropy.reduce((best, value, head, all) => (value !== null && value < all[best] ? head : best), 0);

  const listPictures = () => {
    const labels = data.examples.map((name, example) => {
      const thumbnail = new Image();
      thumbnail.src = subject().pictures[example];
      thumbnail.alt = "";
      thumbnail.style.imageRendering = subject().photo ? "auto" : "pixelated";
      const words = document.createElement("span");
      words.textContent = name || sentence("picture {n}", { n: example + 1 });
      const label = choice("explorer-picture", thumbnail, example === state.example, () => choose({ example }));
      label.append(words);
      return label;
    });
    part("pictures").replaceChildren(...labels);
  };

  part("subjects").append(...data.subjects.map((each, at) => {
    const dot = document.createElement("i");
    dot.style.background = each.colour;
    const label = choice("explorer-subject", dot, at === 0, () => choose({ subject: at }));
    label.append(each.name);
    return label;
  }));
  if (data.subjects.length > 1) {
    part("besides").hidden = false;
    const nobody = choice("explorer-beside", sentence("Nobody"), false, () => choose({ beside: { subject: null } }));
    part("besides").append(nobody, ...data.subjects.map((each, at) => {
      const dot = document.createElement("i");
      dot.style.background = each.colour;
      const label = choice("explorer-beside", dot, at === 1, () => choose({ beside: { subject: at } }));
      label.append(each.name);
      return label;
    }));
    part("other-layer").addEventListener("input", (event) => choose({ beside: { layer: Number(event.target.value) - 1 } }));
    part("other-head").addEventListener("change", (event) => choose({ beside: { head: Number(event.target.value) } }));
  }
  room.querySelectorAll("[data-part=show] input").forEach((input) => input.addEventListener("change", () => choose({ show: input.value })));
  part("lesson").querySelectorAll("button").forEach((button) => {
    button.hidden = ["place", "reach"].includes(button.dataset.show) && !data.subjects.some((each) => each[button.dataset.show]);
    button.addEventListener("click", () => choose({ show: button.dataset.show }));
  });
  part("layer").addEventListener("input", (event) => choose({ layer: Number(event.target.value) - 1 }));
  part("over").addEventListener("change", (event) => { state.over = event.target.checked; drawLarge(); });

  const pointed = (event) => {
    const edge = event.currentTarget.getBoundingClientRect();
    return [(event.clientY - edge.top) / edge.height, (event.clientX - edge.left) / edge.width];
  };
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const walk = (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const [y, x] = layer().queries[main.query];
    const far = ({ row, column }) => Math.abs(row - y) + Math.abs(column - x);
    const ahead = layer().queries.map(([row, column], at) => ({ at, row, column })).filter(({ row, column }) =>
      row >= 0 && (step[0] ? column === x && (row - y) * step[0] > 0 : row === y && (column - x) * step[1] > 0));
    if (y < 0) ask(nearestQuery(0.5, 0.5));
    else if (ahead.length) ask(ahead.reduce((one, two) => (far(two) < far(one) ? two : one)).at);
  };
  for (const canvas of [part("picture"), part("map")]) {
    canvas.addEventListener("click", (event) => main.rows && ask(nearestQuery(...pointed(event))));
    canvas.addEventListener("keydown", walk);
    canvas.addEventListener("pointermove", (event) => {
      if (!main.rows) return;
      const [y, x] = pointed(event);
      const under = keysShown(main).find((key) => key.y >= 0 && y >= key.top && y < key.bottom && x >= key.left && x < key.right);
      state.hovered = under ? { y: under.y, x: under.x } : null;
      drawLarge();
    });
    canvas.addEventListener("pointerleave", () => { state.hovered = null; drawLarge(); });
  }
  part("other-map").addEventListener("click", (event) => main.rows && ask(nearestQuery(...pointed(event))));
  new ResizeObserver(() => draw()).observe(part("picture"));

  // Heads that were brushed in a figure: their maps of the picture in hand, from the query in hand, under that figure.
  const brushed = document.createElement("div");
  brushed.className = "brushed";
  const MOST_BRUSHED = 48;
  const sideOf = ({ subject: name, name: place, head }) => {
    const at = data.subjects.findIndex((each) => each.name === name), own = data.subjects[at]?.layers.findIndex((each) => each.name === place.replace(/ attention$/, ""));
    return at < 0 || own < 0 || head > data.subjects[at].layers[own].heads ? null : { subject: at, layer: own, head: head - 1, query: 0 };
  };
  hear("heads", async ({ figure, heads }) => {
    const sides = heads.map(sideOf).filter(Boolean).slice(0, MOST_BRUSHED);
    const query = main.rows ? whereNow() : null;
    const buttons = await Promise.all(sides.map(async (side) => {
      const image = new Image();
      image.src = subject(side).pictures[state.example];
      [side.rows] = await Promise.all([unpack(side.subject, state.example), image.decode()]);
      side.picture = image;
      if (query) keepQuery(query, side);
      else side.query = nearestQuery(0.5, 0.5, side);
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.type = "button";
      button.append(canvas, `${data.subjects.length > 1 ? `${subject(side).name}, ` : ""}${layerWords(layer(side).name)}, ${sentence("head {n}", { n: side.head + 1 })}`);
      button.addEventListener("click", async () => {
        await choose({ subject: side.subject, show: "head" });
        await choose({ layer: side.layer, head: side.head });
        window.location.hash = "explorer";
        room.scrollIntoView();
      });
      return { side, button, canvas };
    }));
    const words = document.createElement("p");
    words.className = "quiet";
    const asked = sides.length ? queryName(layer(sides[0]).queries[sides[0].query]) : "";
    words.textContent = sides.length ? lookedAt({ asked, picture: data.examples[state.example] || sentence("the picture"), n: sides.length, all: heads.length }) : sentence("The page carries no maps of these heads.");
    brushed.replaceChildren(words, ...buttons.map(({ button }) => button));
    figure.after(brushed);
    buttons.forEach(({ side, canvas }) => paintMap(canvas, side, row(side, side.head), keysOf(side), false));
    brushed.dataset.heads = sides.length;
  });

  hear("language", () => {
    brushed.remove();
    if (!part("table").hidden) choose({});
  });

  const start = new IntersectionObserver((entries) => { // rows are unpacked when somebody comes near
    if (!entries.some((entry) => entry.isIntersecting)) return;
    start.disconnect();
    part("fallback").hidden = true;
    part("table").hidden = false;
    paintScale("scale");
    paintScale("other-scale");
    choose(data.subjects.length > 1 ? { beside: { subject: 1 } } : {});
  }, { rootMargin: "400px 0px" });
  start.observe(room);
})();
