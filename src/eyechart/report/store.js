// What all parts of the page agree on, and how they hear of a change:
//   only    subjects shown by themselves (none: all)
//   layers  the places everybody marks: { subject, name }
// `views` are the live charts by figure, `others` those in other places; "drawn" is told with a figure each time one was drawn.
(() => {
  "use strict";
  const ears = new Map(); // what -> functions
  const state = { only: [], layers: [] };
  window.eyechart = {
    state,
    views: new Map(),
    others: new WeakMap(),
    hear: (what, ear) => ears.set(what, [...(ears.get(what) || []), ear]),
    tell: (what, news) => (ears.get(what) || []).forEach((ear) => ear(news)),
    // The bytes behind base64 of a zlib stream.
    inflated: (text) => {
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
    },
    set: (what, value) => {
      if (JSON.stringify(state[what]) === JSON.stringify(value)) return;
      state[what] = value;
      window.eyechart.tell(what, value);
    },
  };
})();
