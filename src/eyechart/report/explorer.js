// Attention under one's fingers: a click on a patch asks where it looks. Everything is drawn from rows that explorer.py
// packed into the page; nothing is computed but means over heads.
(() => {
  "use strict";
  const room = document.getElementById("explorer");
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  if (typeof DecompressionStream === "undefined") return; // the sentence that stands here stays
  const PREFIX = -1, MEAN = -2;
  const part = (name) => room.querySelector(`[data-part="${name}"]`);
  const state = { subject: 0, example: 0, layer: 0, head: 0, show: "head", query: 0, over: false, hovered: null };
  const unpacked = new Map(); // "subject/example" -> rows
  let rows = null, picture = null;

  const ramp = data.ramp.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  const shade = (share) => { // as palette.shades mixes them
    const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
    const low = Math.min(Math.floor(place), ramp.length - 2), high = place - low;
    return ramp[low].map((from, at) => Math.round(from + (ramp[low + 1][at] - from) * high));
  };
  const subject = () => data.subjects[state.subject];
  const layer = () => subject().layers[state.layer];

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
        each.peaks = new Float32Array((each.one.heads + 1) * each.queries);
        count += each.peaks.length;
      }
      const bytesOf = new Uint8Array(all, at); // of all peaks first the lower bytes, then the upper ones
      for (const each of layers) {
        each.peaks.forEach((_, peak) => { each.peaks[peak] = half(bytesOf[done + peak] | (bytesOf[count + done + peak] << 8)); });
        done += each.peaks.length;
      }
      unpacked.set(key, layers);
    }
    return unpacked.get(key);
  };

  // Weights of one row over its keys; head `heads` is the rollout.
  const row = (head) => {
    const { one, queries, codes, peaks } = rows[state.layer];
    const at = head * queries + state.query;
    return Array.from(codes.subarray(at * one.keys, (at + 1) * one.keys), (code) => (code / data.levels) * peaks[at]);
  };
  const meanRow = () => {
    const all = Array.from({ length: layer().heads }, (_, head) => row(head));
    return all[0].map((_, key) => all.reduce((sum, each) => sum + each[key], 0) / all.length);
  };
  const shown = () => (state.show === "mean" ? meanRow() : row(state.show === "rollout" ? layer().heads : state.head));

  // Keys of the asked query with their places, as shares of the picture.
  const keysOf = () => {
    const [, , down, across, group] = layer().grids;
    return layer().windows[layer().queries[state.query][2]].map(([y, x]) => ({
      y, x, top: (y * group) / down, left: (x * group) / across,
      bottom: Math.min(1, ((y + 1) * group) / down), right: Math.min(1, ((x + 1) * group) / across),
    }));
  };

  // --- words ----------------------------------------------------------------------------------------------------------

  const percent = (value) => {
    const digits = value > 0 ? Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(100 * value)))) : 0;
    return `${(100 * value).toFixed(digits)} %`;
  };
  const tokenName = (number) => (number === 0 ? "the class token" : `prefix token ${number + 1}`);
  const queryName = ([y, x]) =>
    y === PREFIX ? tokenName(x) : y === MEAN ? "the average patch" : `the patch in row ${y + 1}, column ${x + 1}`;
  const keyName = ({ y, x }) => {
    const [, , , , group] = layer().grids;
    const span = (at) => (group > 1 ? `${at * group + 1}–${(at + 1) * group}` : `${at + 1}`);
    return y === PREFIX ? (x < 0 ? "padding" : tokenName(x)) : `row ${span(y)}, column ${span(x)}`;
  };
  const headName = () => ({ mean: `all ${layer().heads} heads, averaged`, rollout: "rollout up to here", head: `head ${state.head + 1}` })[state.show];

  const amount = (weight) => { // a weight that was rounded to 0 is not 0
    const { queries, peaks } = rows[state.layer], head = state.show === "rollout" ? layer().heads : state.head;
    const step = peaks[head * queries + state.query] / data.levels;
    return weight > 0 || state.show === "mean" ? percent(weight) : `less than ${percent(step / 2)}`;
  };

  const say = (weights, keys) => {
    const placed = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y >= 0);
    const best = placed.reduce((one, two) => (two.weight > one.weight ? two : one));
    const others = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y === PREFIX);
    const beside = others.map(({ key, weight }) => `${keyName(key)} gets ${amount(weight)}`).join(", ");
    const asked = queryName(layer().queries[state.query]), does = state.show === "rollout" ? "rests most on" : "looks most at";
    part("said").textContent = `${asked[0].toUpperCase()}${asked.slice(1)} ${does} ${keyName(best.key)}: ` +
      `${amount(best.weight)}${beside ? `; ${beside}` : ""}.`;
    part("top").textContent = percent(best.weight);
    const under = state.hovered === null ? null : placed.find(({ key }) => key.y === state.hovered.y && key.x === state.hovered.x);
    part("hovered").textContent = under ? `Under the pointer, ${keyName(under.key)}: ${amount(under.weight)}` : "";
  };

  // --- drawing --------------------------------------------------------------------------------------------------------

  const fit = (canvas) => {
    const [height, width] = subject().size;
    canvas.style.aspectRatio = `${width} / ${height}`;
    const fine = window.devicePixelRatio || 1;
    const wide = Math.max(1, Math.round(canvas.clientWidth * fine));
    canvas.width = wide;
    canvas.height = Math.max(1, Math.round((wide * height) / width));
    return canvas.getContext("2d");
  };
  const paintPicture = (pen) => {
    pen.imageSmoothingEnabled = subject().photo;
    pen.drawImage(picture, 0, 0, pen.canvas.width, pen.canvas.height);
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
  const queryPlace = ([y, x]) => {
    const [down, across] = layer().grids;
    return y < 0 ? null : { top: y / down, left: x / across, bottom: (y + 1) / down, right: (x + 1) / across };
  };

  const paintMap = (canvas, weights, keys, over) => {
    const pen = fit(canvas);
    const top = Math.max(...keys.map((key, at) => (key.y >= 0 ? weights[at] : 0)), 1e-12);
    const partly = keys.filter(({ y }) => y >= 0).reduce((sum, key) => sum + (key.right - key.left) * (key.bottom - key.top), 0) < 0.999;
    if (over || partly) { // the picture in grey; Safari has no filters on canvases
      paintPicture(pen);
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
    if (!rows) return;
    const keys = keysOf(), weights = shown(), asked = queryPlace(layer().queries[state.query]);
    const left = fit(part("picture"));
    paintPicture(left);
    const right = paintMap(part("map"), weights, keys, state.over);
    const hovered = state.hovered && keys.find(({ y, x }) => y === state.hovered.y && x === state.hovered.x);
    for (const pen of [left, right]) {
      if (hovered) outline(pen, hovered, "#ffffff");
      if (asked) outline(pen, asked, "#56b4e9");
    }
    say(weights, keys);
  };

  const draw = () => {
    if (!rows) return;
    drawLarge();
    const keys = keysOf();
    part("heads").querySelectorAll("button").forEach((button, head) => {
      paintMap(button.querySelector("canvas"), row(head), keys, false);
      button.setAttribute("aria-pressed", String(state.show === "head" && head === state.head));
    });
    part("what").textContent = `${layer().name}, ${headName()}`;
    const { example, layer: at, head, show, query } = state;
    Object.assign(room.dataset, { subject: subject().name, example, layer: at, head, show, query });
  };

  const paintScale = () => {
    const pen = part("scale").getContext("2d");
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

  const nearestQuery = (y, x) => { // to a point of the picture, both 0 to 1
    const [down, across] = layer().grids;
    const far = ([row, column]) => (row < 0 ? Infinity : ((row + 0.5) / down - y) ** 2 + ((column + 0.5) / across - x) ** 2);
    return layer().queries.reduce((best, each, at, all) => (far(each) < far(all[best]) ? at : best), layer().queries.findIndex(([row]) => row >= 0));
  };
  const ask = (query) => {
    state.query = query;
    const [y, x] = layer().queries[query];
    part("tokens").querySelectorAll("button").forEach((button) => {
      button.setAttribute("aria-pressed", String(y < 0 && button.value === `${y},${x}`));
    });
    draw();
  };

  // What stays the same where it can: the place of the query, or that it has none.
  const keepQuery = (old) => {
    const [y, x, down, across] = old;
    const same = layer().queries.findIndex((each) => each[0] === y && each[1] === x);
    state.query = y < 0 && same >= 0 ? same : y < 0 ? nearestQuery(0.5, 0.5) : nearestQuery((y + 0.5) / down, (x + 0.5) / across);
  };
  const whereNow = () => [...layer().queries[state.query].slice(0, 2), ...layer().grids];

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
      button.setAttribute("aria-label", `Head ${head + 1}${spread === null ? "" : `, entropy ${spread.toFixed(2)} of uniform`}`);
      button.append(canvas, words);
      button.addEventListener("click", () => choose({ head, show: "head" }));
      return button;
    });
    part("heads").replaceChildren(...heads);
    part("layer").max = subject().layers.length;
    part("layer").value = state.layer + 1;
    part("layer-name").textContent = `${layer().name} (${state.layer + 1} of ${subject().layers.length})`;
    part("layer").setAttribute("aria-valuetext", layer().name);
    const grid = layer().grids, asked = layer().queries.filter(([y]) => y >= 0).length;
    part("thinned").textContent = asked < grid[0] * grid[1] ? `${asked} of its ${grid[0]}×${grid[1]} patches can be chosen; a click takes the nearest.` : "";
    part("heads-of").textContent = `All ${layer().heads} heads of ${layer().name}`;
    const { noRollout } = subject();
    room.querySelectorAll("[data-part=show] input").forEach((input) => {
      input.disabled = input.value === "rollout" && noRollout !== "";
      input.checked = input.value === state.show;
    });
    part("no-rollout").textContent = noRollout ? `No rollout: ${noRollout}.` : "";
  };

  // Change something and draw; the rows of another picture or subject have to be unpacked first.
  let turn = 0;
  const choose = async (change) => {
    const mine = (turn += 1), before = rows ? whereNow() : null, depth = rows ? state.layer / Math.max(1, subject().layers.length - 1) : 0.5;
    const moved = "subject" in change && change.subject !== state.subject;
    Object.assign(state, change, { hovered: null });
    if (moved || !before) state.layer = Math.round(depth * (subject().layers.length - 1));
    state.head = Math.min(state.head, layer().heads - 1);
    if (subject().noRollout && state.show === "rollout") state.show = "head";
    const image = new Image();
    image.src = subject().pictures[state.example];
    const [found] = await Promise.all([unpack(state.subject, state.example), image.decode()]);
    if (mine !== turn) return; // another choice came in the meantime
    rows = found;
    picture = image;
    if (!before) state.head = layer().entropy.reduce((best, value, head, all) => (value !== null && value < all[best] ? head : best), 0);
    if (before) keepQuery(before);
    else state.query = nearestQuery(0.5, 0.5);
    if (moved || !before) listPictures();
    listLayer();
    ask(state.query);
  };

  const listPictures = () => {
    const labels = data.examples.map((name, example) => {
      const thumbnail = new Image();
      thumbnail.src = subject().pictures[example];
      thumbnail.alt = "";
      thumbnail.style.imageRendering = subject().photo ? "auto" : "pixelated";
      const words = document.createElement("span");
      words.textContent = name || `picture ${example + 1}`;
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
  room.querySelectorAll("[data-part=show] input").forEach((input) => input.addEventListener("change", () => choose({ show: input.value })));
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
    const [y, x] = layer().queries[state.query];
    const far = ({ row, column }) => Math.abs(row - y) + Math.abs(column - x);
    const ahead = layer().queries.map(([row, column], at) => ({ at, row, column })).filter(({ row, column }) =>
      row >= 0 && (step[0] ? column === x && (row - y) * step[0] > 0 : row === y && (column - x) * step[1] > 0));
    if (y < 0) ask(nearestQuery(0.5, 0.5));
    else if (ahead.length) ask(ahead.reduce((one, two) => (far(two) < far(one) ? two : one)).at);
  };
  for (const canvas of [part("picture"), part("map")]) {
    canvas.addEventListener("click", (event) => rows && ask(nearestQuery(...pointed(event))));
    canvas.addEventListener("keydown", walk);
    canvas.addEventListener("pointermove", (event) => {
      if (!rows) return;
      const [y, x] = pointed(event);
      const under = keysOf().find((key) => key.y >= 0 && y >= key.top && y < key.bottom && x >= key.left && x < key.right);
      state.hovered = under ? { y: under.y, x: under.x } : null;
      drawLarge();
    });
    canvas.addEventListener("pointerleave", () => { state.hovered = null; drawLarge(); });
  }
  new ResizeObserver(() => draw()).observe(part("picture"));

  const start = new IntersectionObserver((entries) => { // rows are unpacked when somebody comes near
    if (!entries.some((entry) => entry.isIntersecting)) return;
    start.disconnect();
    part("fallback").hidden = true;
    part("table").hidden = false;
    paintScale();
    choose({});
  }, { rootMargin: "400px 0px" });
  start.observe(room);
})();
