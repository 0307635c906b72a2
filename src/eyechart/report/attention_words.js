// What the attention explorer says: names of queries, keys and heads, what a query looks at most, and the steps of the
// lesson.
(() => {
  "use strict";
  if (!window.eyechart.attention) return;
  const { data, part, PREFIX, MEAN, state, main, other, subject, layer, howShown, queryPlace, shownPlace } = window.eyechart.attention;
  const { sentence, layerWords } = window.eyechart;

  const percent = (value) => {
    const digits = value > 0 ? Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(100 * value)))) : 0;
    return `${(100 * value).toFixed(digits)}\u00a0%`;
  };
  const tokenName = (number, side) => (number === subject(side).cls ? sentence("the class token") : sentence("prefix token {n}", { n: number + 1 }));
  const queryName = ([y, x], side = main) =>
    y === PREFIX ? tokenName(x, side) : y === MEAN ? sentence("the average patch") : sentence("the patch in row {y}, column {x}", { y: y + 1, x: x + 1 });
  const keyName = ({ y, x }, side = main) => {
    if (howShown(side) === "place") return sentence("row {y}, column {x}", { y: y + 1, x: x + 1 });
    if (howShown(side) === "reach") return sentence("row {y}, column {x} of {grid}", { y: y + 1, x: x + 1, grid: subject(side).reach.grid.join("×") });
    const [, , , , group] = layer(side).grids;
    const span = (at) => (group > 1 ? `${at * group + 1}–${(at + 1) * group}` : `${at + 1}`);
    return y === PREFIX ? (x < 0 ? sentence("padding") : tokenName(x, side)) : sentence("row {y}, column {x}", { y: span(y), x: span(x) });
  };
  const headName = (side) => ({
    mean: sentence("all {n} heads, averaged", { n: layer(side).heads }),
    rollout: sentence("rollout up to here"),
    head: sentence("head {n}", { n: side.head + 1 }),
    pixels: sentence("likeness of pixels, nothing learned"),
    place: sentence("likeness of its token to each patch"),
    reach: sentence("what its middle answers to"),
  })[howShown(side)];
  // Of the layer in hand, but of the last one where final tokens are shown, and of none where only pixels are.
  const mapName = (side) => {
    if (howShown(side) === "pixels") return headName(side);
    return `${layerWords(howShown(side) === "place" ? subject(side).place.name : layer(side).name)}, ${headName(side)}`;
  };

  const amount = (weight, side = main) => { // a weight that was rounded to 0 is not 0
    if (howShown(side) === "place") return `CKA ${weight.toFixed(2)}`;
    if (["pixels", "reach"].includes(howShown(side))) return percent(weight);
    const { queries, peaks } = side.rows[side.layer], head = howShown(side) === "rollout" ? layer(side).heads : side.head;
    const step = peaks[head * queries + side.query] / (2 * data.levels) ** 2;
    return weight > 0 || howShown(side) === "mean" ? percent(weight) : sentence("less than {share}", { share: percent(step) });
  };

  const lookedAt = (values) => {
    if (values.n === 1 && values.all === 1) return sentence("Where {asked} of “{picture}” looks in this head. Choose it to open the explorer.", values);
    if (values.n === values.all) return sentence("Where {asked} of “{picture}” looks in these {n} heads. Choose one to open the explorer.", values);
    return sentence("Where {asked} of “{picture}” looks in {n} of these {all} heads. Choose one to open the explorer.", values);
  };

  const best = (side, weights, keys) => keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y >= 0)
    .reduce((one, two) => (two.weight > one.weight ? two : one));

  const finding = (side, most) => {
    const values = { asked: queryName(layer(side).queries[side.query], side), layer: layerWords(layer(side).name), place: keyName(most.key, side), share: amount(most.weight, side) };
    switch (howShown(side)) {
      case "rollout": return sentence("{asked} rests most on {place}: {share}", values);
      case "pixels": return sentence("by pixels alone {asked} looks most at {place}: {share}", values);
      case "place": {
        const { y, x } = shownPlace(side);
        return sentence("the final token of row {y}, column {x} is most like the patch in {place}: {share}", { ...values, y: y + 1, x: x + 1 });
      }
      case "reach": return sentence("the middle of {layer} answers most to {place}: {share}", values);
      default: return sentence("{asked} looks most at {place}: {share}", values);
    }
  };
  const instead = (side) => // where the kind of map that was asked for is not there
    howShown(side) === state.show ? "" : ` ${sentence("{subject} has no such map here: its heads are averaged instead.", { subject: subject(side).name })}`;
  const sayBeside = (weights, keys) => {
    const most = best(other, weights, keys);
    part("other-said").textContent = sentence("Of {subject}, {finding}.", { subject: subject(other).name, finding: finding(other, most) }) + instead(other);
    part("other-top").textContent = amount(most.weight, other).replace("CKA ", "");
  };

  const say = (weights, keys) => {
    const placed = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y >= 0);
    const most = best(main, weights, keys);
    const others = keys.map((key, at) => ({ key, weight: weights[at] })).filter(({ key }) => key.y === PREFIX && howShown(main) !== "pixels");
    const beside = others.map(({ key, weight }) => sentence("{token} gets {share}", { token: keyName(key), share: amount(weight) })).join(", ");
    const words = finding(main, most);
    const whole = `${words}${beside ? `; ${beside}` : ""}`; // with two on the page, both are named
    part("said").textContent = `${other.rows ? sentence("Of {subject}, {finding}.", { subject: subject().name, finding: whole }) : `${whole[0].toUpperCase()}${whole.slice(1)}.`}${instead(main)}`;
    part("top").textContent = amount(most.weight).replace("CKA ", "");
    teach(weights, keys);
    const under = state.hovered === null ? null : placed.find(({ key }) => key.y === state.hovered.y && key.x === state.hovered.x);
    part("hovered").textContent = under ? sentence("Pointed at, {place}: {share}", { place: keyName(under.key), share: amount(under.weight) }) : "";
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
    const mean = ["place", "reach"].includes(how) ? sentence("Mean over {n} images.", { n: subject()[how].images.toLocaleString("en") }) : "";
    const rounded = (Math.round(100 * agree) / 100 || 0).toFixed(2).replace("-", "−");
    const alike = Number.isFinite(agree) ? sentence("Here, rank correlation with the likeness of pixels: {value} over {n} patches.", { value: rounded, n: patches.length }) : mean;
    const untrained = subject().random && how !== "pixels" ? sentence("The weights of {subject} are random: nothing has been learned here.", { subject: subject().name }) : "";
    part("agreement").textContent = `${alike} ${untrained}`.trim();
  };

  Object.assign(window.eyechart.attention, { queryName, mapName, lookedAt, say, sayBeside });
})();
