// Attention under one's fingers: a click on a patch asks where it looks. These are the controls; what they change is in
// attention_rows.js, what is said of it in attention_words.js, and what is drawn in attention_drawing.js.
(() => {
  "use strict";
  if (!window.eyechart.attention) return;
  const { room, data, part, MEAN, state, main, other, subject, layer, layersOf, unpack, row, howShown, keysOf, keysShown, queryPlace, queryName, lookedAt, paintMap, paintScale, drawLarge, draw } = window.eyechart.attention;
  const { hear, sentence, layerWords } = window.eyechart;

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

  const isWhole = ({ grids, queries }) => queries.filter(([y]) => y >= 0).length === grids[0] * grids[1];
  const wholeLayers = () => { // the page has no room for every patch of every layer
    const names = layersOf(main.subject, main.example).filter(isWhole).map(({ name }) => name);
    if (names.length) return ` ${sentence("All of them in {layers}.", { layers: names.map(layerWords).join(", ") })}`;
    return subject().asked ? ` ${sentence("All of them in the first picture.")}` : "";
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

  const needsPlace = () => ["pixels", "place"].includes(howShown(main));

  const listLayer = () => {
    const tokens = layer().queries.filter(([y]) => y < 0).map(([y, x]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.value = `${y},${x}`;
      const name = queryName([y, x]).replace(/^the /, "");
      button.textContent = name[0].toUpperCase() + name.slice(1);
      button.disabled = needsPlace() || howShown(main) === "reach"; // whose query is the middle
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
    const held = [...part("heads").children].indexOf(document.activeElement); // chosen by key: the focus stays on it
    part("heads").replaceChildren(...heads);
    heads[held]?.focus();
    part("layer").max = subject().layers.length;
    part("layer").value = main.layer + 1;
    part("layer-name").textContent = sentence("{layer} ({n} of {all})", { layer: layerWords(layer().name), n: main.layer + 1, all: subject().layers.length });
    part("layer").setAttribute("aria-valuetext", layerWords(layer().name));
    const grid = layer().grids, asked = layer().queries.filter(([y]) => y >= 0).length;
    part("thinned").textContent = asked < grid[0] * grid[1] ? `${sentence("{n} of its {grid} patches can be chosen in this layer, as all would make the page too large; of the others, the nearest is taken.", { n: asked, grid: `${grid[0]}×${grid[1]}` })}${wholeLayers()}` : "";
    const heading = { n: layer().heads, layer: layerWords(layer().name), subject: subject().name };
    part("heads-of").textContent = other.rows ? sentence("All {n} heads of {layer} of {subject}", heading) : sentence("All {n} heads of {layer}", heading);
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
    if (moved || !before) main.layer = before ? atDepth(main, depth) : firstLayer();
    main.head = Math.min(main.head, layer().heads - 1);
    if (subject().noRollout && state.show === "rollout") state.show = "head";
    if (other.subject !== null && newBeside) Object.assign(other, { layer: atDepth(other, depthOf(main)), head: -1 });
    const sides = other.subject === null ? [main] : [main, other], { example } = state;
    const found = await Promise.all(sides.map(async (side) => {
      const image = new Image();
      image.src = subject(side).pictures[state.example];
      return [side, (await Promise.all([unpack(side.subject, example), image.decode()]))[0], image];
    }));
    if (mine !== turn) return; // another choice came in the meantime
    if (other.subject === null) other.rows = null;
    found.forEach(([side, rows, picture]) => Object.assign(side, { rows, picture, example }));
    if (!before) main.head = narrowest(main);
    if (other.rows) other.head = other.head < 0 ? narrowest(other) : Math.min(other.head, layer(other).heads - 1);
    if (before) keepQuery(before);
    else main.query = nearestQuery(0.5, 0.5);
    if (needsPlace() && !queryPlace(main)) main.query = nearestQuery(0.5, 0.5); // no pixels, no likeness
    if (moved || !before) listPictures();
    listLayer();
    listBeside();
    ask(main.query);
  };
  const depthOf = (side) => side.layer / Math.max(1, subject(side).layers.length - 1);
  const atDepth = (side, depth) => Math.round(depth * (subject(side).layers.length - 1));
  const firstLayer = () => { // the middle one; where some have every patch and others few, the next one that has
    const middle = atDepth(main, 0.5), whole = layersOf(main.subject, state.example).map((each, at) => (isWhole(each) ? at : -1)).filter((at) => at >= 0);
    return whole.length ? whole.reduce((best, at) => (Math.abs(at - middle) < Math.abs(best - middle) ? at : best)) : middle;
  };
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

  // Words that are written once and change with the language of the page.
  const spokenHere = (english) => {
    const words = document.createElement("span");
    const say = () => { words.textContent = sentence(english); };
    hear("language", say);
    say();
    return words;
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
    const nobody = choice("explorer-beside", spokenHere("Nobody"), false, () => choose({ beside: { subject: null } }));
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
    return at < 0 || own < 0 || head > data.subjects[at].layers[own].heads ? null : { subject: at, example: state.example, layer: own, head: head - 1, query: 0 };
  };
  hear("heads", async ({ figure, heads }) => {
    const sides = heads.map(sideOf).filter(Boolean).slice(0, MOST_BRUSHED);
    const query = main.rows ? whereNow() : null;
    const buttons = await Promise.all(sides.map(async (side) => {
      const image = new Image();
      image.src = subject(side).pictures[side.example];
      [side.rows] = await Promise.all([unpack(side.subject, side.example), image.decode()]);
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
    const asked = sides.length ? queryName(layer(sides[0]).queries[sides[0].query], sides[0]) : "";
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
