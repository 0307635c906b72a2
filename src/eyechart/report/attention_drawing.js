// How the attention explorer draws: the picture, maps over it, and the query that is asked.
(() => {
  "use strict";
  if (!window.eyechart.attention) return;
  const { room, data, part, state, main, other, subject, layer, row, shown, keysOf, keysShown, queryPlace, shownPlace, mapName, say, sayBeside } = window.eyechart.attention;

  const ramp = data.ramp.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  const shade = (share) => { // as palette.shades mixes them
    const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
    const low = Math.min(Math.floor(place), ramp.length - 2), high = place - low;
    return ramp[low].map((from, at) => Math.round(from + (ramp[low + 1][at] - from) * high));
  };

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
    for (const [pen, place] of [[left, asked], [right, shownPlace(main)]]) {
      if (hovered) outline(pen, hovered, "#ffffff");
      if (place) outline(pen, place, "#56b4e9");
    }
    say(weights, keys);
    if (!other.rows) return;
    const theirs = keysShown(other), their = shown(other), place = shownPlace(other);
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
    part("what").textContent = `${other.rows ? `${subject().name}, ` : ""}${mapName(main)}`;
    if (other.rows) part("other-what").textContent = `${subject(other).name}, ${mapName(other)}`;
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

  Object.assign(window.eyechart.attention, { paintMap, paintScale, drawLarge, draw });
})();
