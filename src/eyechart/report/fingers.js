// A tap on a chart tells and picks what a pointer over it and a click do. Vega knows a mark only once a pointer moved over
// it, and a finger comes down without having moved: so before its click reaches Vega, a pointer is moved to what it meant.
(() => {
  "use strict";
  const { views, others, visit } = window.eyechart;
  const REACH = 14; // pixels: half of what a fingertip covers
  const EDGE = 8; // pixels between what is told and the sides of the window
  const SMALL = /^(symbol|text)$/; // what is larger is met without help
  let isFinger = false, told = null; // the canvas whose tooltip stands

  const move = (canvas, kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, pointerType: "mouse" }));

  // The mark that was meant: the nearest one that answers, or what lies under the finger.
  const meant = (canvas, x, y) => {
    const cell = canvas.closest(".cell"), view = cell ? others.get(cell) : views.get(canvas.closest("figure"))?.view;
    const edge = canvas.getBoundingClientRect(), flat = cell ? 0.1 : 1; // under a cell, layers stand 6 pixels apart: a tap means the one above or below it
    let least = REACH, place = [x, y];
    if (view) visit(view, ({ bounds, tooltip, datum, opacity }, { marktype, role }, left, top) => {
      const answers = tooltip || typeof datum?.name === "string" || /^legend-(symbol|label)$/.test(role);
      if (!answers || !bounds || opacity === 0 || !SMALL.test(marktype)) return;
      const [x1, x2] = [bounds.x1, bounds.x2].map((each) => edge.x + left + each), [y1, y2] = [bounds.y1, bounds.y2].map((each) => edge.y + top + each);
      const away = Math.hypot(Math.max(x1 - x, 0, x - x2), flat * Math.max(y1 - y, 0, y - y2));
      const near = away + 0.01 * Math.hypot((x1 + x2) / 2 - x, (y1 + y2) / 2 - y); // of two that are touched, the one in its middle
      if (near < least) [least, place] = [near, [(x1 + x2) / 2, (y1 + y2) / 2]];
    });
    return place;
  };

  document.addEventListener("pointerdown", ({ pointerType }) => {
    isFinger = pointerType === "touch";
    if (told) move(told, "pointerout", 0, 0); // no pointer leaves it
    told = null;
  }, true);

  // After a tap, and not after a finger that scrolled, the browser sends what a mouse would have sent.
  document.addEventListener("mousedown", ({ target, clientX, clientY }) => {
    if (!isFinger || !target.closest?.(".live, .cell") || target.tagName !== "CANVAS") return;
    move(target, "pointermove", ...meant(target, clientX, clientY));
    told = target;
    const box = document.getElementById("vg-tooltip-element"), { left, width } = box?.getBoundingClientRect() ?? {};
    const most = document.documentElement.clientWidth - width - EDGE; // beside a finger there is no room for all of it
    if (box) box.style.left = `${Math.max(EDGE, Math.min(left, most))}px`;
  }, true);
})();
