// Turns each chart's picture into a live chart when it comes near the window. Without this script the page still reads:
// pictures, tables and sentences are in the HTML.
(() => {
  "use strict";
  const { charts, config } = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const arrays = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  const drawn = new Map(); // figure -> { view, room }
  const subjects = new Set([...document.querySelectorAll("#subjects [data-subject]")].map((each) => each.dataset.subject));
  let alone = null; // the subject that is shown by itself, if any

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

  // One subject by itself: rows of the others are left out of tables that hold several, and so are their small panels.
  const columnsOfSubjects = ["subject", "who"];
  const onlyRows = (rows) => {
    const column = alone !== null && columnsOfSubjects.find((name) => rows.some((row) => row[name] === alone));
    return column ? rows.filter((row) => row[column] === alone) : rows;
  };
  const isOfAnother = ({ transform = [], layer = [] }) => layer.some(isOfAnother) ||
    transform.some(({ filter }) => columnsOfSubjects.includes(filter?.field) && filter.equal !== alone);
  const onlyPanels = (part) => {
    if (!part.concat) return;
    const mine = part.concat.filter((one) => !isOfAnother(one));
    if (mine.length) part.concat = mine;
    part.concat.forEach(onlyPanels);
  };

  // Legends answer to a click: Vega-Lite makes them deaf.
  const hearing = (spec) => {
    (spec.legends || []).forEach((legend) => {
      legend.encode = legend.encode || {};
      ["symbols", "labels"].forEach((role) => { legend.encode[role] = { ...legend.encode[role], interactive: true }; });
    });
    (spec.marks || []).forEach(hearing);
    return spec;
  };

  const draw = async (figure) => {
    const { spec, tables } = charts[figure.dataset.chart];
    const room = figure.clientWidth;
    const live = figure.querySelector(".live");
    const look = config[dark.matches ? "dark" : "light"];
    const datasets = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, onlyRows(unpack(table))]));
    let excess = 0;
    for (const way of ways(spec)) {
      const copy = JSON.parse(JSON.stringify(spec));
      if (alone !== null) onlyPanels(copy);
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
        mode: "vega-lite", actions: false, ast: true, renderer: "canvas", tooltip: { theme: "eyechart" }, patch: hearing,
      });
      view.addEventListener("click", (_, item) => {
        const named = item && /^legend-(label|symbol)$/.test(item.mark.role) && item.datum?.value;
        if (subjects.has(named)) show(named);
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

  // A click on a subject in a legend or in the list of subjects shows it by itself everywhere; another click, all again.
  const back = document.createElement("button");
  back.type = "button";
  back.className = "alone";
  back.hidden = true;
  back.addEventListener("click", () => show(alone));
  document.body.append(back);
  const show = (name) => {
    alone = alone === name ? null : name;
    document.documentElement.dataset.alone = alone ?? "";
    back.hidden = alone === null;
    back.textContent = `Only ${alone}. Show all subjects`;
    document.querySelectorAll("tbody tr, .stamp").forEach((row) => {
      const named = [...row.querySelectorAll("[data-subject]")].map((each) => each.dataset.subject);
      row.classList.toggle("aside", alone !== null && named.length > 0 && !named.includes(alone));
    });
    document.querySelectorAll("p.key .subject").forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.subject === alone)));
    drawn.forEach((_, figure) => attempt(figure));
  };
  if (subjects.size > 1) {
    document.querySelectorAll("p.key .subject").forEach((each) => {
      each.tabIndex = 0;
      each.setAttribute("role", "button");
      each.setAttribute("aria-pressed", "false");
      each.title = "Show this subject by itself";
      each.addEventListener("keydown", (event) => { if (["Enter", " "].includes(event.key)) { event.preventDefault(); show(each.dataset.subject); } });
    });
    document.querySelectorAll("p.key .subject, h1 .subject, #subjects .subject").forEach((each) => {
      each.classList.add("pick");
      each.addEventListener("click", () => show(each.dataset.subject));
    });
  }

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
