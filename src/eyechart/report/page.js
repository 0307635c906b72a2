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

  // Panels go below one another, and wide plots become narrower, where the window has no room for them.
  const fit = (spec, natural, room) => {
    if (spec.hconcat) {
      spec.concat = spec.hconcat;
      spec.columns = spec.concat.length;
      delete spec.hconcat;
    }
    if (spec.concat) {
      const columns = spec.columns || spec.concat.length;
      if (natural > room) spec.columns = Math.max(1, Math.min(columns, Math.floor((room * columns) / natural)));
      if (spec.columns === 1 && columns > 1) natural /= columns;
    }
    const narrow = (part) => {
      if (typeof part.width === "number") part.width = Math.min(part.width, Math.max(180, room - 110));
      [...(part.concat || []), ...(part.vconcat || []), ...(part.layer || []), part.spec || {}].forEach((inner) => {
        if (Object.keys(inner).length) narrow(inner);
      });
    };
    if (natural > room) {
      narrow(spec);
      // A legend beside a narrow plot would leave nothing for the plot.
      return { legend: { orient: "bottom", direction: "horizontal", columns: 2, gradientLength: 160 } };
    }
    return {};
  };

  const draw = async (figure) => {
    const { spec, tables, width } = charts[figure.dataset.chart];
    const room = figure.clientWidth;
    const live = figure.querySelector(".live");
    const copy = JSON.parse(JSON.stringify(spec));
    copy.datasets = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, unpack(table)]));
    const look = config[dark.matches ? "dark" : "light"];
    const small = fit(copy, width, room);
    copy.config = { ...look, background: "transparent", legend: { ...look.legend, ...(small.legend || {}) } };
    drawn.get(figure)?.view?.finalize();
    drawn.set(figure, { room });
    live.hidden = false;
    // `ast`: expressions are interpreted, so the page needs no permission to make code from text.
    const { view } = await window.eyechartVega.embed(live, copy, {
      mode: "vega-lite", actions: false, ast: true, renderer: "canvas", tooltip: { theme: "eyechart" },
    });
    drawn.set(figure, { room, view });
    figure.querySelector(".still").style.display = "none";
  };

  const attempt = (figure) => draw(figure).catch((error) => {
    figure.querySelector(".live").hidden = true; // the picture stays
    console.error(`The chart ${figure.dataset.chart} stays a picture: ${error}`);
  });

  const near = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      near.unobserve(target);
      attempt(target);
    });
  }, { rootMargin: "300px 0px" });
  document.querySelectorAll("figure[data-chart]").forEach((figure) => near.observe(figure));

  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn.forEach(({ room }, figure) => {
      if (Math.abs(figure.clientWidth - room) > 16) attempt(figure);
    }), 250);
  });
  dark.addEventListener("change", () => drawn.forEach((_, figure) => attempt(figure)));

  // PNG: the picture, three times as fine, on white.
  document.querySelectorAll("button.png").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const still = document.querySelector(`figure[data-chart="${CSS.escape(button.dataset.name)}"] .still`);
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
      const link = document.createElement("a");
      link.download = `${button.dataset.name}.png`;
      link.href = canvas.toDataURL("image/png");
      link.click();
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
      list.scrollTo({ left: link.offsetLeft - list.offsetLeft - list.clientWidth / 3 });
    });
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main > section").forEach((section) => reading.observe(section));

  // What was folded away is printed too.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));
})();
