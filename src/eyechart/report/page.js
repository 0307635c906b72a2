// Turns each chart's picture into a live chart when it comes near the window. Without this script the page still reads:
// pictures, tables and sentences are in the HTML.
(() => {
  "use strict";
  const { charts, config } = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const arrays = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  const drawn = new Map(); // figure -> { view, room }

  // Columns as embed.py packed them: base64 arrays (NaN: nothing there), codes into a list of words, or plain values.
  const unpackColumn = (column) => {
    if (column.values) return column.values;
    const kind = Object.keys(arrays).find((name) => name in column);
    const bytes = Uint8Array.from(atob(column[kind]), (letter) => letter.charCodeAt(0));
    const numbers = Array.from(new arrays[kind](bytes.buffer));
    return column.words ? numbers.map((code) => column.words[code]) : numbers.map((n) => (Number.isNaN(n) ? null : n));
  };

  const unpack = ({ rows, columns }) => {
    const lists = Object.entries(columns).map(([name, column]) => [name, unpackColumn(column)]);
    return Array.from({ length: rows }, (_, row) => Object.fromEntries(lists.map(([name, list]) => [name, list[row]])));
  };

  // Ways to draw a chart, each narrower than the one before: as it is, legends below, fewer panels a row, and at last
  // plots narrower by what was still too much.
  const columnsOf = (part) => {
    const own = part.concat ? Math.min(part.columns || part.concat.length, part.concat.length) : 1;
    return Math.max(own, ...(part.concat || []).map(columnsOf));
  };

  const atMost = (part, columns) => {
    if (part.concat) part.columns = Math.min(part.columns || part.concat.length, columns);
    (part.concat || []).forEach((one) => atMost(one, columns));
  };

  const ways = (spec) => {
    const columns = columnsOf(spec);
    const fewer = Array.from({ length: columns - 1 }, (_, taken) => ({ below: true, columns: columns - 1 - taken }));
    return [{}, { below: true }, ...fewer, { below: true, columns: 1, narrow: true }];
  };

  // Pictures and maps keep their shape: their height and all that is placed on them in pixels shrink with the width.
  const isMap = (part) => (part.layer || [part]).some(({ mark }) => mark && ["rect", "image"].includes(mark.type || mark));

  const shrink = (part, ratio) => {
    if (part.mark?.type === "image") ["width", "height"].forEach((side) => { if (part.mark[side]) part.mark[side] *= ratio; });
    if (part.mark?.type === "text" && part.mark.dy > 12) part.mark.dy *= ratio; // a name under its picture
    ["x", "y", "x2", "y2"].forEach((channel) => {
      const place = part.encoding?.[channel];
      if (typeof place?.value === "number" && place.value > 0) place.value *= ratio;
      if (place?.axis && !place.axis.labelAngle) place.axis.labelOverlap = "greedy"; // slanted ones seem to overlap always
      if (channel === "x" && place?.axis?.labelLimit) place.axis.labelLimit *= ratio;
    });
    (part.layer || []).forEach((one) => shrink(one, ratio));
  };

  const narrow = (part, excess) => {
    Object.values(part.encoding || {}).forEach(({ legend }) => { if (legend?.columns) legend.columns = 1; });
    if (typeof part.width === "number") {
      const width = Math.max(120, part.width - excess);
      if (isMap(part) && typeof part.height === "number") {
        shrink(part, width / part.width);
        part.height *= width / part.width;
      }
      part.width = width;
    }
    const inner = [...(part.concat || []), ...(part.vconcat || []), ...(part.layer || []), ...(part.spec ? [part.spec] : [])];
    inner.forEach((one) => narrow(one, excess));
  };

  const draw = async (figure) => {
    const { spec, tables } = charts[figure.dataset.chart];
    const room = figure.clientWidth;
    const live = figure.querySelector(".live");
    const look = config[dark.matches ? "dark" : "light"];
    const datasets = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, unpack(table)]));
    let excess = 0;
    for (const way of ways(spec)) {
      const copy = JSON.parse(JSON.stringify(spec));
      if (way.columns) atMost(copy, way.columns);
      if (way.narrow) narrow(copy, excess);
      const below = { orient: "bottom", direction: "horizontal", columns: way.narrow ? 1 : 2 };
      const under = way.narrow ? { layout: { bottom: { direction: "vertical", anchor: "start" } } } : {};
      const legend = way.below ? { ...look.legend, ...below, ...under } : look.legend;
      copy.datasets = datasets;
      copy.config = { ...look, background: "transparent", legend };
      drawn.get(figure)?.view?.finalize();
      drawn.set(figure, { room });
      // `ast`: expressions are interpreted, so the page needs no permission to make code from text.
      const { view } = await window.eyechartVega.embed(live, copy, {
        mode: "vega-lite", actions: false, ast: true, renderer: "canvas", tooltip: { theme: "eyechart" },
      });
      drawn.set(figure, { room, view });
      const canvas = live.querySelector("canvas"); // without a style its pixels are the screen's
      excess = (parseFloat(canvas.style.width) || canvas.width) - room;
      if (excess <= 0) break;
    }
    live.hidden = false;
    figure.querySelector(".still").style.display = "none";
  };

  const attempt = (figure) => draw(figure).catch((error) => {
    figure.querySelector(".live").hidden = true;
    figure.querySelector(".still").style.display = "";
    console.error(`The chart ${figure.dataset.chart} stays a picture: ${error}`);
  });

  const near = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      near.unobserve(target);
      attempt(target);
    });
  }, { rootMargin: "300px 0px" });
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    if (charts[figure.dataset.chart]) near.observe(figure);
  });

  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn.forEach(({ room }, figure) => {
      if (Math.abs(figure.clientWidth - room) > 16) attempt(figure);
    }), 250);
  });
  dark.addEventListener("change", () => drawn.forEach((_, figure) => attempt(figure)));

  const stillOf = (name) => document.querySelector(`figure[data-chart="${CSS.escape(name)}"] .still`);
  const download = (file, address) => {
    const link = document.createElement("a");
    link.download = file;
    link.href = address;
    link.click();
  };

  // SVG: the picture as it is. A link with its own copy of every picture would make the page a fifth larger.
  document.querySelectorAll("button.svg").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      download(`${button.dataset.name}.svg`, stillOf(button.dataset.name).getAttribute("src"));
    });
  });

  // PNG: the picture, three times as fine, on white.
  document.querySelectorAll("button.png").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const still = stillOf(button.dataset.name);
      const image = new Image();
      image.src = still.getAttribute("src");
      await image.decode();
      const canvas = document.createElement("canvas");
      canvas.width = 3 * still.getAttribute("width");
      canvas.height = 3 * still.getAttribute("height");
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#ffffff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(image, 0, 0, canvas.width, canvas.height);
      download(`${button.dataset.name}.png`, canvas.toDataURL("image/png"));
    });
  });

  // Which section is being read.
  const links = new Map([...document.querySelectorAll(".contents ol a")].map((link) => [link.hash.slice(1), link]));
  const reading = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      links.forEach((link) => link.removeAttribute("aria-current"));
      const link = links.get(target.id);
      if (!link) return;
      link.setAttribute("aria-current", "true");
      const list = link.closest("ol");
      const left = link.offsetLeft - list.offsetLeft;
      const seen = left >= list.scrollLeft && left + link.offsetWidth <= list.scrollLeft + list.clientWidth - 32;
      if (!seen) list.scrollTo({ left: left - list.clientWidth / 3 });
    });
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main > section").forEach((section) => reading.observe(section));

  // What was folded away is printed too.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));
})();
