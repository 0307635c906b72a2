// Attention without any learned weight: patches compared by their pixels alone, softmax(XXᵀ/√d). And how far two ways of
// weighing the same patches agree.
(() => {
  "use strict";
  const SAMPLES = 6; // points a side at which each patch is looked at, whatever its size

  // All points of the picture's patches in three colours, each with mean 0 and variance 1 over the picture.
  const points = (image, boxes) => {
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(image, 0, 0);
    const { data, width, height } = pen.getImageData(0, 0, canvas.width, canvas.height), pixels = data.length / 4;
    const mean = [0, 0, 0], spread = [0, 0, 0];
    for (let at = 0; at < data.length; at += 4) for (let c = 0; c < 3; c += 1) mean[c] += data[at + c] / pixels;
    for (let at = 0; at < data.length; at += 4) for (let c = 0; c < 3; c += 1) spread[c] += (data[at + c] - mean[c]) ** 2 / pixels;
    return boxes.map(({ top, left, bottom, right }) => {
      const values = [];
      for (let y = 0; y < SAMPLES; y += 1) for (let x = 0; x < SAMPLES; x += 1) {
        const row = Math.min(height - 1, Math.floor((top + ((y + 0.5) / SAMPLES) * (bottom - top)) * height));
        const column = Math.min(width - 1, Math.floor((left + ((x + 0.5) / SAMPLES) * (right - left)) * width));
        for (let c = 0; c < 3; c += 1) values.push((data[4 * (row * width + column) + c] - mean[c]) / Math.sqrt(spread[c] || 1));
      }
      return values;
    });
  };

  const likeness = (image, asked, keys) => {
    const [query, ...others] = points(image, [asked, ...keys.filter(({ y }) => y >= 0)]);
    const scores = others.map((values) => values.reduce((sum, value, at) => sum + value * query[at], 0) / Math.sqrt(query.length));
    const largest = Math.max(...scores), powers = scores.map((score) => Math.exp(score - largest));
    const total = powers.reduce((sum, power) => sum + power, 0);
    let next = 0;
    return keys.map(({ y }) => (y >= 0 ? powers[next++] / total : 0)); // tokens without place have no pixels
  };

  const ranks = (values) => {
    const order = values.map((value, at) => ({ value, at })).sort((one, two) => one.value - two.value), found = [];
    for (let from = 0; from < order.length;) {
      let to = from;
      while (to + 1 < order.length && order[to + 1].value === order[from].value) to += 1;
      for (let at = from; at <= to; at += 1) found[order[at].at] = (from + to) / 2;
      from = to + 1;
    }
    return found;
  };
  const rankCorrelation = (one, two) => {
    const [a, b] = [ranks(one), ranks(two)], middle = (one.length - 1) / 2;
    const product = (x, y) => x.reduce((sum, value, at) => sum + (value - middle) * (y[at] - middle), 0);
    return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
  };
  Object.assign(window.eyechart, { likeness, rankCorrelation });
})();
