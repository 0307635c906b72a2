// The name of a level dashed line that hides a mark, where a panel became narrow or words long: it stands at the other end of
// the line, or on its other side, or is left out where all four places hide one. So does charts/clear_names.py for pictures.
(() => {
  "use strict";
  const AWAY = 4, BESIDE = 2; // pixels from its line, and from the end of the panel: charts/theme.py
  const partOf = (spec, path) => path.reduce((part, [, kind, at]) => part?.[kind]?.[at], spec);
  const isName = ({ mark, encoding }) => /^reference-/.test(mark?.style) && /^(top|bottom)$/.test(mark.baseline) && [0, "width"].includes(encoding.x?.value);
  const share = (one, two) => { // of the second that lies under the first
    const [wide, high] = [Math.min(one.x2, two.x2) - Math.max(one.x1, two.x1), Math.min(one.y2, two.y2) - Math.max(one.y1, two.y1)];
    return wide > 0 && high > 0 ? (wide * high) / ((two.x2 - two.x1) * (two.y2 - two.y1)) : 0;
  };

  // True where a name of the chart has moved in its specification.
  window.eyechart.clearNames = (view, spec) => {
    const names = [], marks = new Map(); // by panel
    window.eyechart.visit(view, (item, { marktype, role, name, group }) => {
      if (role !== "mark" || !item.bounds || item.opacity === 0) return;
      if (marktype === "symbol") marks.set(group, [...(marks.get(group) ?? []), item.bounds]);
      const path = marktype === "text" ? [...(name ?? "").matchAll(/(concat|layer)_(\d+)/g)] : [];
      if (path.length && item.text && isName(partOf(spec, path) ?? {}) && !item.stroke) names.push({ item, group, path });
    });
    const moves = names.map(({ item: { bounds, y }, group, path }) => {
      const { mark, encoding, data } = partOf(spec, path), wide = bounds.x2 - bounds.x1, high = bounds.y2 - bounds.y1;
      const hidden = ([atEnd, under]) => {
        const x1 = atEnd ? group.width - BESIDE - wide : BESIDE, y1 = under ? y + AWAY : y - AWAY - high;
        if (y1 < 0 || y1 + high > group.height) return Infinity;
        return (marks.get(group) ?? []).reduce((sum, each) => sum + share({ x1, y1, x2: x1 + wide, y2: y1 + high }, each), 0);
      };
      const own = [encoding.x.value === "width", mark.baseline === "top"], [atEnd, under] = own, LITTLE = 0.1;
      if (hidden(own) <= LITTLE) return false;
      const free = [[atEnd, !under], [!atEnd, under], [!atEnd, !under]].find((place) => hidden(place) <= LITTLE);
      const rims = (partOf(spec, path.slice(0, -1)).layer ?? []).filter((each) => isName(each) && each.data?.name === data?.name); // the name and the paper around it
      rims.forEach((each) => {
        if (!free) each.encoding.text = { value: "" };
        else {
          Object.assign(each.mark, free[0] ? { align: "right", dx: -BESIDE } : { align: "left", dx: BESIDE }, free[1] ? { baseline: "top", dy: AWAY } : { baseline: "bottom", dy: -AWAY });
          each.encoding.x = { value: free[0] ? "width" : 0 };
        }
      });
      return rims.length > 0;
    });
    return moves.some(Boolean);
  };
})();
