// Pictures long for a sheet of paper, cut between their rows of panels: each piece can be read, and none waits for a sheet
// that takes all of them. They are made ahead and shown in print alone: a picture that only printing asks for would come
// too late. Without this script the whole picture is made to fit a sheet.
(() => {
  "use strict";
  const { hear } = window.eyechart;
  const LONGEST = 228; // millimetres: what stands under a heading

  // Rows of the picture that no panel and no word crosses. A panel is a group; what holds several is higher than `part`.
  const emptyRows = (source, height, part) => {
    const drawing = new DOMParser().parseFromString(source, "image/svg+xml").documentElement, place = document.createElement("div");
    Object.assign(place.style, { position: "absolute", visibility: "hidden", left: 0, top: 0, width: 0, height: 0, overflow: "hidden" });
    place.append(document.importNode(drawing, true));
    document.body.append(place);
    const top = place.firstChild.getBoundingClientRect().top, empty = Array(height).fill(true);
    place.querySelectorAll("g, text").forEach((mark) => {
      const box = mark.getBoundingClientRect();
      if (!box.height || box.height > part) return;
      empty.fill(false, Math.max(0, Math.floor(box.top - top)), Math.max(0, Math.ceil(box.bottom - top)));
    });
    place.remove();
    return empty;
  };

  // From one row of panels to the next, so that a sheet takes as many rows as it has room for. What is too low to stand
  // alone, a legend or a title, goes with what is nearer to it.
  const cuts = (empty, height, most, least) => {
    const bands = [];
    empty.forEach((blank, row) => {
      if (blank) return;
      if (row && !empty[row - 1]) bands.at(-1)[1] = row + 1;
      else bands.push([row, row + 1]);
    });
    for (let at = bands.length - 1; at >= 0 && bands.length > 1; at -= 1) {
      const [start, end] = bands[at];
      if (end - start >= least) continue;
      const above = at ? start - bands[at - 1][1] : Infinity, below = at + 1 < bands.length ? bands[at + 1][0] - end : Infinity;
      if (below < above) bands.splice(at, 2, [start, bands[at + 1][1]]);
      else bands.splice(at - 1, 2, [bands[at - 1][0], end]);
    }
    const places = [0];
    const reach = (end) => { while (end - places.at(-1) > most) places.push(places.at(-1) + most); }; // of one row higher than a sheet
    bands.slice(1).forEach(([start], at) => {
      const between = Math.round((bands[at][1] + start) / 2);
      reach(between);
      places.push(between);
    });
    reach(height);
    return [...places, height];
  };

  const cut = async (figure) => {
    const still = figure.querySelector(".still"), image = new Image();
    const [width, height] = ["width", "height"].map((side) => Number(still.getAttribute(side)));
    image.src = still.getAttribute("src");
    await image.decode();
    const source = decodeURIComponent(still.getAttribute("src").replace(/^[^,]*,/, ""));
    const wide = Number(figure.dataset.strips), most = Math.floor((LONGEST / wide) * width), places = cuts(emptyRows(source, height, 0.6 * most), height, most, 0.1 * most);
    const strips = places.slice(1).map((end, at) => {
      const strip = image.cloneNode();
      strip.className = "strip";
      strip.alt = at ? "" : still.alt;
      strip.style.width = `${wide}mm`;
      strip.style.objectViewBox = `inset(${(100 * places[at]) / height}% 0 ${100 - (100 * end) / height}% 0)`;
      return strip;
    });
    figure.querySelectorAll(".strip").forEach((strip) => strip.remove());
    figure.append(...strips);
  };

  const whole = (figure) => { if (figure.matches(".over-pages")) cut(figure).catch(() => {}); }; // else the whole picture is printed
  window.addEventListener("load", () => document.querySelectorAll(".over-pages").forEach(whole));
  hear("still", whole); // in another language
})();
