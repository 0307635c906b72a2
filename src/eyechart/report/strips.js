// Pictures too long for a sheet of paper, cut between their panels, so that each piece fits on one and can be read. They
// are made ahead and shown in print alone: a picture that only printing asks for would come too late. Without this script
// the whole picture is made to fit a sheet.
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

  const cuts = (empty, height, most) => {
    const made = [0];
    while (height - made.at(-1) > most) {
      const last = made.at(-1);
      let at = last + most;
      while (at > last + most / 2 && !empty[at]) at -= 1;
      made.push(at > last + most / 2 ? at : last + most);
    }
    return [...made, height];
  };

  const cut = async (figure) => {
    const still = figure.querySelector(".still"), image = new Image();
    const [width, height] = ["width", "height"].map((side) => Number(still.getAttribute(side)));
    image.src = still.getAttribute("src");
    await image.decode();
    const source = decodeURIComponent(still.getAttribute("src").replace(/^[^,]*,/, ""));
    const wide = Number(figure.dataset.strips), most = Math.floor((LONGEST / wide) * width), places = cuts(emptyRows(source, height, 0.6 * most), height, most);
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
