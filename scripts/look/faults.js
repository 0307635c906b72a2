// What a person would call broken on the page as it stands in the window: words over words, words cut off, words too small.
// Called by scripts/look_at.py once every figure near the window is drawn; gives a list of { kind, where, what }.
() => {
  const SMALLEST = 9;
  const faults = [], page = document.documentElement;
  const say = (kind, where, what) => faults.push({ kind, where, what: `${what}`.replace(/\s+/g, " ").slice(0, 160) });
  const nameOf = (element) => {
    const near = element.closest("figure[data-chart], [id]");
    return near ? near.dataset?.chart ?? `#${near.id}` : element.tagName.toLowerCase();
  };

  // Boxes as polygons, so that slanted words do not seem to lie on their neighbours.
  const axesOf = (box) => box.map(([x, y], at) => { const [u, v] = box[(at + 1) % box.length]; return [v - y, x - u]; });
  const reach = (box, [a, b]) => { const at = box.map(([x, y]) => a * x + b * y); return [Math.min(...at), Math.max(...at)]; };
  const meets = (one, two, slack) => [...axesOf(one), ...axesOf(two)].every((axis) => {
    const [low, high] = reach(one, axis), [from, to] = reach(two, axis), unit = Math.hypot(...axis) || 1;
    return Math.min(high, to) - Math.max(low, from) > slack * unit;
  });
  // Level words on one line need room between them, or two numbers read as one.
  const CLOSE = 3;
  const isLevel = ({ box }) => Math.abs(box[0][1] - box[1][1]) < 0.1 && box[1][0] > box[0][0];
  const beside = (one, two) => Math.min(one[2][1], two[2][1]) - Math.max(one[0][1], two[0][1]) > 4;
  const overlapping = (texts, where, kind, slack) => texts.forEach((one, at) => texts.slice(at + 1).forEach((two) => {
    if (one.words === two.words && Math.hypot(one.box[0][0] - two.box[0][0], one.box[0][1] - two.box[0][1]) < 0.5) return; // its halo
    if (meets(one.box, two.box, slack)) say(kind, where, `"${one.words}" × "${two.words}"`);
    else if (isLevel(one) && isLevel(two) && meets(one.box, two.box, -CLOSE) && beside(one.box, two.box)) say(kind.replace("on words", "touch"), where, `"${one.words}" × "${two.words}"`);
  }));

  // Charts: every word of Vega's scene.
  const pen = document.createElement("canvas").getContext("2d");
  const chartTexts = (view) => {
    const texts = [], [left, top] = view.origin();
    const boxOf = (item, x, y, lines) => {
      const size = item.fontSize ?? 11, turn = ((item.angle ?? 0) * Math.PI) / 180;
      pen.font = `${item.fontStyle ?? ""} ${item.fontWeight ?? ""} ${size}px ${item.font ?? "sans-serif"}`;
      const width = Math.max(...lines.map((line) => pen.measureText(line).width)), limit = item.limit > 0 ? Math.min(item.limit, width) : width;
      const step = item.lineHeight ?? size + 2, height = 0.72 * size + step * (lines.length - 1);
      const from = { center: -limit / 2, right: -limit }[item.align] ?? 0;
      const up = { top: 0.79 * size, "line-top": 0.79 * size, middle: 0.36 * size, bottom: -0.21 * size, "line-bottom": -0.21 * size }[item.baseline] ?? 0;
      const [dx, dy] = [item.dx ?? 0, item.dy ?? 0], base = up + dy;
      const radius = item.radius ?? 0, polar = (item.theta ?? 0) - Math.PI / 2;
      const at = [x + (item.x ?? 0) + radius * Math.cos(polar), y + (item.y ?? 0) + radius * Math.sin(polar)];
      const corner = ([u, v]) => [at[0] + u * Math.cos(turn) - v * Math.sin(turn), at[1] + u * Math.sin(turn) + v * Math.cos(turn)];
      const y1 = base - 0.72 * size, y2 = y1 + height;
      return { box: [[from + dx, y1], [from + dx + limit, y1], [from + dx + limit, y2], [from + dx, y2]].map(corner), cut: width - limit };
    };
    const drawnAt = [];
    const look = (group, x, y, clip) => group.items.forEach((mark) => mark.items.forEach((item) => {
      if (mark.marktype === "group") {
        const inner = [x + (item.x ?? 0), y + (item.y ?? 0)];
        return look(item, ...inner, item.clip ? [...inner, inner[0] + item.width, inner[1] + item.height] : clip);
      }
      if (["symbol", "line", "rule", "trail"].includes(mark.marktype) && mark.role === "mark" && (item.opacity ?? 1) > 0.15) {
        const beyond = clip && (x + item.x < clip[0] - 1 || x + item.x > clip[2] + 1);
        if (!beyond) drawnAt.push({ kind: mark.marktype, x: x + (item.x ?? 0), y: y + (item.y ?? 0), line: mark.marktype === "line" ? mark : null, seen: item.defined !== false });
      }
      const words = [item.text].flat().filter((line) => line !== undefined && line !== null).join("\n");
      if (mark.marktype !== "text" || !words.trim() || item.opacity === 0 || item.fillOpacity === 0 || item.fill === "transparent") return;
      const lines = (Array.isArray(item.text) ? item.text.map(String) : item.lineBreak ? words.split(item.lineBreak) : [words]);
      const { box, cut } = boxOf(item, x, y, lines);
      texts.push({ words: lines.join(" / "), box, cut, size: item.fontSize ?? 11, role: mark.role, fill: item.fill, item });
    }));
    view.scenegraph().root.items.forEach((item) => look(item, left + (item.x ?? 0), top + (item.y ?? 0)));
    return [texts, drawnAt];
  };
  for (const [figure, { view }] of window.eyechart?.views ?? []) {
    const canvas = figure.querySelector("canvas");
    if (!view || !canvas || !canvas.clientWidth) continue;
    const where = figure.dataset.chart, [texts, drawnAt] = chartTexts(view), ratio = canvas.clientWidth / (parseFloat(canvas.style.width) || canvas.clientWidth);
    overlapping(texts, where, "chart: words on words", 1);
    // Words in a panel on what is drawn there; a rule is what many of them name.
    texts.filter(({ role }) => role === "mark").forEach(({ words, box }) => {
      const [left, right] = reach(box, [1, 0]), [top, bottom] = reach(box, [0, 1]);
      const inside = ({ x, y }) => x > left + 1 && x < right - 1 && y > top + 1 && y < bottom - 1;
      const points = drawnAt.filter(({ kind }) => kind === "symbol").filter(inside).length;
      const curves = drawnAt.filter(({ kind, line }, at) => kind === "line" && line === drawnAt[at + 1]?.line && [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9].some((part) => {
        const to = drawnAt[at + 1];
        return inside({ x: drawnAt[at].x + part * (to.x - drawnAt[at].x), y: drawnAt[at].y + part * (to.y - drawnAt[at].y) });
      })).length;
      if (points || curves) say("chart: words on what is drawn", where, `${words} (${points} points, ${curves} pieces of curves)`);
    });
    texts.forEach(({ words, box, cut, size }) => {
      const xs = box.map(([x]) => x), ys = box.map(([, y]) => y), [width, height] = [canvas.clientWidth / ratio, canvas.clientHeight / ratio];
      if (Math.min(...xs) < -1.5 || Math.min(...ys) < -1.5 || Math.max(...xs) > width + 1.5 || Math.max(...ys) > height + 1.5) say("chart: words beyond the edge", where, words);
      if (cut > 1) say("chart: words cut with …", where, words);
      if (size * ratio < SMALLEST) say("chart: words too small", where, `${words} (${(size * ratio).toFixed(1)} px)`);
    });
    if (canvas.getBoundingClientRect().right > figure.getBoundingClientRect().right + 2) say("chart: wider than its room", where, `${canvas.clientWidth} > ${figure.clientWidth}`);
  }

  // Text of the page itself.
  const onlySaid = (element) => { // for screen readers: there, but clipped to nothing or parked left of the page
    for (let each = element; each && each !== document.body; each = each.parentElement) {
      const { clipPath, position } = getComputedStyle(each);
      if (position === "absolute" && (clipPath !== "none" || each.getBoundingClientRect().right < 0)) return true;
    }
    return false;
  };
  const seen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true }) && !onlySaid(element);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), texts = [], range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !seen(parent) || parent.closest("script, style, option, .side, svg title")) continue;
    const style = getComputedStyle(parent);
    range.selectNodeContents(node);
    const size = parseFloat(style.fontSize);
    if (size < SMALLEST && !parent.closest("svg, sub, sup")) say("words too small", nameOf(parent), `${node.data.trim().slice(0, 60)} (${size} px)`);
    for (const { left, right, top, bottom, width, height } of range.getClientRects()) {
      if (width < 1 || height < 1) continue;
      const middle = (top + bottom) / 2, half = Math.min(height, 0.8 * size) / 2;
      texts.push({ words: node.data.trim().slice(0, 60), owner: node, where: nameOf(parent), left, right, top: middle - half, bottom: middle + half });
      const fixed = parent.closest(".wide, .scrolls, pre, [style*=overflow]");
      if (right > page.clientWidth + 1 && !fixed) say("words beyond the page", nameOf(parent), node.data.trim().slice(0, 60));
    }
  }
  texts.sort((one, two) => one.top - two.top);
  texts.forEach((one, at) => {
    for (let next = at + 1; next < texts.length && texts[next].top < one.bottom - 1.5; next += 1) {
      const two = texts[next];
      if (one.owner !== two.owner && Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1.5) say("words on words", one.where, `"${one.words}" × "${two.words}"`);
    }
  });
  document.querySelectorAll("body *").forEach((element) => {
    if (!element.clientWidth || !seen(element)) return;
    const { overflowX, overflowY, textOverflow, display } = getComputedStyle(element);
    if (display === "inline") return;
    const more = element.scrollWidth - element.clientWidth, below = element.scrollHeight - element.clientHeight;
    if (more > 2 && ["hidden", "clip"].includes(overflowX)) say(textOverflow === "ellipsis" ? "cut with …" : "cut at the side", nameOf(element), element.textContent.trim().slice(0, 80));
    if (more > 2 && ["auto", "scroll"].includes(overflowX) && !element.matches("pre")) say("must be scrolled sideways", nameOf(element), `${element.className || element.tagName}: ${more} px of ${element.clientWidth}`);
    if (below > 3 && ["hidden", "clip"].includes(overflowY) && element.textContent.trim()) say("cut below", nameOf(element), element.textContent.trim().slice(0, 80));
  });
  if (page.scrollWidth > page.clientWidth + 1) say("the page is wider than the window", "page", `${page.scrollWidth} > ${page.clientWidth}`);

  // Pictures that stand where charts do not live: print, no JavaScript.
  document.querySelectorAll("img.still, .still img").forEach((image) => { if (image.complete && !image.naturalWidth) say("a picture is broken", nameOf(image), image.alt); });
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const live = figure.querySelector(".live");
    if (live && live.hidden && seen(figure) && !document.body.matches(".printing")) say("not alive", figure.dataset.chart, "the chart stays a picture");
  });

  // Sentences that end in nonsense.
  const spoken = texts.map(({ words, where }) => [words, where]);
  spoken.forEach(([words, where]) => { if (/\bNaN\b|\bnan\b|undefined|\[object|\bnull\b(?! (model|case))/.test(words)) say("nonsense", where, words); });
  return faults;
}
