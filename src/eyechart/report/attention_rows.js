// What the attention explorer knows: the rows that explorer.py packed into the page, what is chosen, and what is shown of
// it. Nothing is computed but means over heads. A second subject can stand beside the first: it is asked the same query of
// the same picture, in a layer and head of its own.
(() => {
  "use strict";
  if (typeof DecompressionStream === "undefined") return; // the sentence that stands in its place stays
  const room = document.getElementById("explorer");
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const PREFIX = -1, MEAN = -2;
  const part = (name) => room.querySelector(`[data-part="${name}"]`);
  // What both sides share is in `state`; `main` is the subject in hand, `other` the one beside it.
  const state = { example: 0, show: "head", over: false, hovered: null };
  // `example` of a side: the picture whose rows it has, which may lag behind the chosen one.
  const main = { subject: 0, example: 0, layer: 0, head: 0, query: 0, rows: null, picture: null };
  const other = { subject: null, example: 0, layer: 0, head: 0, query: 0, rows: null, picture: null };
  const unpacked = new Map(); // "subject/example" -> rows
  const listed = new Map(); // "subject/not the first example" -> layers with the queries that can be asked
  const subject = (side = main) => data.subjects[side.subject];
  // All pictures but the first may have rows of some queries only: `asked`, for each layer.
  const layersOf = (who, example) => {
    const { layers, asked } = data.subjects[who], key = `${who}/${example > 0}`;
    if (!listed.has(key)) listed.set(key, asked && example > 0 ? layers.map((one, at) => ({ ...one, queries: asked[at].map((query) => one.queries[query]) })) : layers);
    return listed.get(key);
  };
  const layer = (side = main) => layersOf(side.subject, side.example)[side.layer];

  const half = (bits) => { // a positive number of 16 bits
    const power = bits >> 10, rest = (bits & 1023) / 1024;
    return power ? (1 + rest) * 2 ** (power - 15) : rest * 2 ** -14;
  };

  // Puts back what explorer.py took from the codes of each head: the forecast by the key and the query before.
  const foresee = (codes, queries, keys) => codes.forEach((rest, at) => {
    const first = at % keys === 0, top = Math.floor(at / keys) % queries === 0;
    const left = first ? 0 : codes[at - 1], above = top ? 0 : codes[at - keys], corner = first || top ? 0 : codes[at - keys - 1];
    codes[at] = rest + Math.min(Math.max(left + above - corner, Math.min(left, above)), Math.max(left, above)); // modulo 256
  });

  const unpack = async (who, example) => {
    const key = `${who}/${example}`;
    if (!unpacked.has(key)) {
      const all = await window.eyechart.inflated(data.subjects[who].rows[example]);
      const layers = layersOf(who, example).map((one) => ({ one, queries: one.queries.length }));
      let at = 0, count = 0, done = 0;
      for (const each of layers) { // heads, then the rollout as one more
        each.codes = new Uint8Array(all, at, (each.one.heads + 1) * each.queries * each.one.keys);
        foresee(each.codes, each.queries, each.one.keys);
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
  const finalToken = (side) => { // the one nearest to the query: not every token is kept, and the last grid may be coarser
    const { grid: [down, across], tokens } = subject(side).place, asked = queryPlace(side);
    const [y, x] = asked ? [(asked.top + asked.bottom) / 2, (asked.left + asked.right) / 2] : [0.5, 0.5];
    const far = ([row, column]) => ((row + 0.5) / down - y) ** 2 + ((column + 0.5) / across - x) ** 2;
    return tokens.reduce((best, each, at) => (far(each) < far(tokens[best]) ? at : best), 0);
  };
  const placeRow = (side) => {
    const { grid: [down, across], values, largest } = subject(side).place, token = finalToken(side);
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

  // Where the asked query lies; null for one without place.
  const queryPlace = (side) => {
    const [down, across] = layer(side).grids, [y, x] = layer(side).queries[side.query];
    return y < 0 ? null : { top: y / down, left: x / across, bottom: (y + 1) / down, right: (x + 1) / across };
  };

  // Whose map is shown: the asked query; the final token nearest to it; nobody's where it is that of the middle.
  const shownPlace = (side) => {
    if (howShown(side) === "reach") return null;
    if (howShown(side) !== "place") return queryPlace(side);
    const { grid: [down, across], tokens } = subject(side).place, [y, x] = tokens[finalToken(side)];
    return { y, x, top: y / down, left: x / across, bottom: (y + 1) / down, right: (x + 1) / across };
  };

  window.eyechart.attention = {
    room, data, part, PREFIX, MEAN, state, main, other, subject, layer, layersOf, unpack, row, howShown, shown, keysOf, keysShown, queryPlace, shownPlace,
  };
})();
