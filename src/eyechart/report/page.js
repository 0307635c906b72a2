// Turns each chart's picture into a live chart when it comes near the window. Without this script the page still reads:
// pictures, tables and sentences are in the HTML.
(() => {
  "use strict";
  const { charts, config, vega: packedVega } = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const arrays = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  const { state, hear, tell, sentence, few, inflated, views: drawn } = window.eyechart; // drawn: figure -> { view, room }
  const subjects = new Set([...document.querySelectorAll("#subjects [data-subject]")].map((each) => each.dataset.subject));

  // A chart travels as base64 of a zlib stream: EmbeddedChart.deflated. `opened`: those that were looked at.
  const opened = new Map();
  const open = async (name) => {
    if (!opened.has(name)) opened.set(name, withPictures(name, JSON.parse(new TextDecoder().decode(await inflated(charts[name])))));
    return opened.get(name);
  };
  // Its pictures are those of the still one, by their number there: embed.share_pictures.
  const withPictures = (name, chart) => {
    const still = decodeURIComponent(stillOf(name).getAttribute("src")).match(/data:image\/(?!svg)[^"']+/g) ?? [];
    const pictures = [...new Set(still)];
    Object.values(chart.tables).map(({ columns }) => columns.url ?? {}).forEach((column) => ["words", "values"].filter((kind) => column[kind]).forEach((kind) => {
      column[kind] = column[kind].map((url) => (/^picture:/.test(url) ? pictures[url.slice(8)] : url));
    }));
    return chart;
  };

  // So does the library that draws them. The page's policy knows it by its hash.
  let library;
  const vega = () => (library ??= inflated(packedVega).then((bytes) => {
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(bytes);
    document.head.append(script);
    return window.eyechartVega;
  }));

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

  // Ways to draw a chart, each narrower than the one before: as it is, legends below, fewer panels a row, as tight as they
  // go (`again`: by what was still too much, where that is no more than this share of the room: it may be a legend), names of
  // legends piled up, and at last plots narrower: those that are too wide (`capped`), and all by what was still too much.
  const columnsOf = (part) => {
    const own = part.concat ? Math.min(part.columns || part.concat.length, part.concat.length) : 1;
    return Math.max(own, ...(part.concat || []).map(columnsOf));
  };

  const isSmall = ({ concat, width }) => !concat && width === 190; // a panel of one subject of many
  // Small maps stand two a row even where all else stands alone.
  const isSmallMap = (part) => isMap(part) && part.width <= 200 && !namesBeside(part);
  const atMost = (part, columns, room) => {
    const most = part.concat?.every(isSmallMap) ? Math.max(columns, Math.floor(room / 170)) : columns;
    if (part.concat) {
      const own = part.columns || part.concat.length;
      part.columns = Math.min(own, most);
      const even = Array.from({ length: Math.max(0, part.columns - 1) }, (_, less) => part.columns - less).find((many) => own % many === 0);
      if (part.concat.length > own && even) part.columns = even; // four above four: two a row, not three; five have no such half
      if (part.columns < Math.min(own, most)) fill(part, room);
      if (part.concat.length === 4 && part.columns === 3 && part.concat.every(isSmall)) part.columns = 2;
    }
    (part.concat || []).forEach((one) => atMost(one, columns, room));
  };

  // Of four subjects, three small panels in a row and one alone below: four in a row, or two above two. So of seven, eight.
  const oneMore = (whole, room) => {
    const wide = (many) => Math.min(many > 2 ? 190 : 300, Math.floor(room / many) - 48); // without their axes
    const parts = panelsOf(whole).filter(({ concat = [], columns }) => columns === 3 && concat.every(isSmall) && Math.ceil(concat.length / 4) < Math.ceil(concat.length / 3));
    const many = [4, 2].find((each) => wide(each) >= 150 && (each > 2 || parts.every(({ concat }) => concat.length === 4)));
    if (!many || !parts.length) return false;
    parts.forEach((part) => {
      part.columns = many;
      part.concat.forEach((one) => Object.assign(one, { width: wide(many), title: { ...one.title, limit: wide(many) + 40 } }));
    });
    return true;
  };

  const ways = (spec, some) => {
    const columns = columnsOf(spec), abreast = [{ abreast: true }, { abreast: true, below: true }];
    const beside = some ? abreast : [{ oneMore: true }, { oneMore: true, below: true }];
    const fewer = Array.from({ length: columns - 1 }, (_, taken) => columns - taken).flatMap((many) => [
      ...(many < columns ? [{ below: true, columns: many }] : []),
      ...[{}, { again: 0.12 }, { piled: true }, { piled: true, again: 0.25 }, ...Array(3).fill({ piled: true, again: 0.05 })].map((way) => ({ below: true, columns: many, tight: true, ...way })),
    ]);
    const alone = { below: true, columns: 1 }, piled = { ...alone, piled: true }, capped = { ...piled, capped: true };
    const last = [alone, { ...alone, tight: true }, ...Array(3).fill({ ...alone, tight: true, again: 0.25 }), piled, capped, ...Array(5).fill({ ...capped, narrow: true })]; // a side that became shorter may need a second line beside it
    return [...beside, {}, { below: true }, ...fewer, ...last];
  };

  // How wide the names along the left side of a map are.
  const namesBeside = (part) => Math.max(0, ...unitsOf(part).map(({ encoding }) => {
    const { labels, labelExpr } = encoding?.y?.axis ?? {}, [list] = labels === false ? [] : namesIn(labelExpr ?? "");
    return list ? Math.max(...list.flat().map((name) => widthIn(name, LABEL))) : 0;
  }));

  // How wide a row of pictures must be, so that the names above them can be read.
  const namesAbove = (part) => Math.max(0, ...unitsOf(part).map(({ encoding }) => {
    const { orient, labelExpr } = encoding?.x?.axis ?? {}, [list] = orient === "top" ? namesIn(labelExpr ?? "") : [];
    return 40 * (list?.length ?? 0);
  }));

  // The same for pictures with words below each, a line a word: 58 pixels hold "brightness".
  const wordsUnder = (part) => {
    const marks = unitsOf(part).map(({ mark }) => mark), picture = marks.find((mark) => mark?.type === "image");
    return picture?.width && marks.some((mark) => mark?.lineBreak === " ") ? (58 * part.width) / picture.width : 0;
  };

  const axesOf = (part) => (isMap(part) ? 24 + namesBeside(part) : 66);

  // Panels below one another, whose plots begin at one line: none wider than the widest less what was too much.
  const cap = (part, excess) => {
    const each = panelsOf(part).filter(({ concat, width }) => !concat && typeof width === "number");
    const most = Math.max(...each.map(({ width }) => width)) - excess;
    each.forEach((one) => { if (one.width > most) narrow(one, one.width - most); });
  };

  // How wide each column of panels would like to be, their axes included.
  const wishes = (part) => {
    if (!part.concat) return [part.width + axesOf(part)];
    const many = Math.min(part.columns || part.concat.length, part.concat.length), columns = Array(many).fill(0);
    part.concat.forEach((one, at) => { columns[at % many] = Math.max(columns[at % many], sum(wishes(one))); });
    return columns;
  };
  // Rows that leave room where another is too wide: they need not give what that one has too much.
  const shortRows = (part, room) => {
    const columns = part.concat ? wishes(part) : [];
    return columns.length === 1 ? part.concat.filter((row) => row.concat && sum(wishes(row)) < 0.85 * Math.min(columns[0], room)) : [];
  };
  const sum = (numbers) => numbers.reduce((one, two) => one + two, 0);

  // The least width at which a panel can be read: beside others, five numbers must fit under a curve, and under a map the
  // names of its layers; one without names is a picture. Narrower ones stand below one another.
  const leastOf = (part) => Math.max(namesAbove(part), wordsUnder(part), Math.min(0.85 * part.width, isMap(part) && !namesBeside(part) ? 96 : Math.max(130, 0.35 * part.width)));

  // Panels that stand beside one another, each no wider than its share of the room; false where that would be too small.
  // `excess`: what was too much before, which all panels of a row give together.
  const tighten = (part, room, excess = 0) => {
    if (!part.concat) return true;
    const columns = wishes(part), many = columns.length, whole = sum(columns), short = shortRows(part, room);
    const fits = part.concat.every((one, at) => {
      const ratio = columns[at % many] / whole, share = room * ratio, less = excess && excess * ratio + 1;
      if (one.concat) return tighten(one, share, short.includes(one) ? 0 : less);
      const least = leastOf(one), most = Math.min(one.width, share - axesOf(one));
      const width = Math.max(least, many > 1 ? most - less : Math.min(most, share - axesOf(one) - less)); // alone it gives what it must
      if (most < least && many > 1) return false;
      if (one.width > width) narrow(one, one.width - width, least);
      if (many > 1) wrapTitles(one, share - less - 8); // a title wider than its panel would push the next one away
      return true;
    });
    const curves = part.concat.filter((one) => !one.concat && !isMap(one)), widest = Math.max(...curves.map(({ width }) => width));
    const towers = curves.filter(({ height }) => many > 1 && typeof height === "number"); // rows of names are as high as these
    towers.forEach((one) => { one.height = Math.min(one.height, Math.max(130, 1.5 * widest)); });
    return fits;
  };

  // Small curves, more of which stand in a row on a wider page, fill the row where they are few or stand alone.
  const fill = (part, room) => {
    const many = Math.min(part.columns || part.concat?.length, part.concat?.length);
    if (many === 1) part.concat.forEach((one) => fill(one, room));
    if (!part.concat?.every((one) => one.width <= 240 && !isMap(one))) return;
    const wider = Math.min(300, room / many - 80) / Math.max(...part.concat.map(({ width }) => width));
    if (wider > 1.15) part.concat.forEach((one) => { one.width *= wider; });
  };

  // Words that are wider than their room get a second line, long names too. They are measured in the reader's font: what
  // fits in Arial is a fifth too wide in others.
  const TITLE = "600 13px", SMALL = "11px", AXIS = "12px", LABEL = "11px";
  const pen = document.createElement("canvas").getContext("2d");
  const widthIn = (words, font) => {
    pen.font = `${font} ${config.light.font}`;
    return pen.measureText(words).width;
  };
  const wrapped = (words, font, room) => {
    if (Array.isArray(words)) return words.flatMap((line) => wrapped(line, font, room));
    if (typeof words !== "string" || widthIn(words, font) <= room) return words;
    const least = Math.min(room, Math.max(0.5 * room, ...words.split(" ").map((word) => widthIn(word, font))));
    let lines = broken(words, font, room);
    for (let less = room - 6; less > least; less -= 6) { // evenly: the last word would stand alone
      const even = broken(words, font, less);
      if (even.length > lines.length) break;
      lines = even;
    }
    return lines;
  };
  const broken = (words, font, room) => {
    const atSigns = (word) => (widthIn(word, font) > room ? word.split(/(?<=[-_/:.])|(?=@)/).flatMap((piece) => (piece.length > 20 && widthIn(piece, font) > room ? [...piece] : [piece])) : [word]);
    const pieces = words.split(/ (?!%)/).flatMap((word) => atSigns(word).map((piece, at) => [at ? "" : " ", piece]));
    return pieces.reduce((lines, [glue, piece]) => {
      const longer = `${lines.at(-1)}${glue}${piece}`;
      if (lines.length && widthIn(longer, font) < room) lines[lines.length - 1] = longer;
      else lines.push(piece);
      return lines;
    }, []);
  };
  const wrapTitles = (part, room) => {
    if (typeof part.title === "string" || Array.isArray(part.title)) part.title = wrapped(part.title, TITLE, room);
    else if (part.title?.text) {
      const own = Math.min(room, part.title.limit ?? room);
      part.title.text = wrapped(part.title.text, TITLE, own);
      if (part.title.subtitle) part.title.subtitle = [part.title.subtitle].flat().flatMap((line) => wrapped(line, SMALL, own));
    }
    (part.concat || []).forEach((one) => wrapTitles(one, room));
  };
  const wrapAxis = (part, room) => unitsOf(part).forEach(({ encoding }) => [encoding?.x, encoding?.x?.axis].forEach((named) => {
    if (!named?.title) return;
    named.title = wrapped(named.title, AXIS, room);
    delete named.titleLimit;
  }));

  // So do words along a side that has become shorter than they are: they would reach into what is above it.
  const wrapUpright = (part) => unitsOf(part).forEach(({ encoding }) => [encoding?.y, encoding?.y?.axis].forEach((named) => {
    if (named?.title && typeof part.height === "number") named.title = wrapped(named.title, AXIS, part.height);
  }));

  // Titles of panels in a row stand at one height: a mark, or a number of the axis, that reaches over the frame lifted some
  // of them. So all have something there, which is not seen.
  const HEADROOM = { data: { values: [{}] }, mark: { type: "point", size: 1, opacity: 0, tooltip: null, aria: false }, encoding: { x: { value: 0 }, y: { value: -8 } } };
  const levelTitles = (whole) => panelsOf(whole).filter((part) => !part.concat && part.title && (!isMap(part) || part.layer?.some(({ mark }) => mark?.style === "frame"))).forEach((part) => {
    const { mark, encoding, transform = [], ...rest } = part;
    if (mark) {
      Object.keys(part).forEach((key) => delete part[key]);
      Object.assign(part, rest, { layer: [{ mark, encoding, transform }] });
    }
    part.layer.push(HEADROOM);
  });

  // Pictures and maps keep their shape: their height and all that is placed on them in pixels shrink with the width.
  // A shaded ground behind curves makes no map of them.
  const isMap = (part) => (part.layer || [part]).some(({ mark, encoding }) => mark && ["rect", "image"].includes(mark.type || mark) && !(mark.style === "frame" && encoding?.x?.field));

  const shrink = (part, ratio) => {
    if (part.mark?.type === "image") ["width", "height"].forEach((side) => { if (part.mark[side]) part.mark[side] *= ratio; });
    if (part.mark?.type === "text" && part.mark.dy > 12) part.mark.dy *= ratio; // a name under its picture
    ["x", "y", "x2", "y2"].forEach((channel) => {
      const place = part.encoding?.[channel];
      if (typeof place?.value === "number" && place.value > 0) place.value *= ratio;
      if (place?.axis && !place.axis.labelAngle) place.axis.labelOverlap = "greedy"; // slanted ones seem to overlap always
      if (channel === "x" && place?.axis?.labelLimit) place.axis.labelLimit *= ratio;
      if (place?.axis?.orient === "top") rewrapNames(place.axis);
      if (place?.axis?.labelAngle && place.axis.values) place.axis.values = place.axis.values.filter((_, at) => at % Math.ceil(0.9 / ratio) === 0);
    });
    (part.layer || []).forEach((one) => shrink(one, ratio));
  };

  // Names above pictures that have become smaller take more lines.
  const rewrapNames = (axis) => {
    const [list, place] = namesIn(axis.labelExpr ?? "");
    if (!list || !axis.labelLimit) return;
    const lines = (names) => Math.max(...names.map((name) => [name].flat().length));
    const more = list.map((name) => [name].flat().flatMap((line) => wrapped(line, LABEL, axis.labelLimit)));
    axis.labelPadding = (axis.labelPadding ?? 4) + 13 * Math.max(0, lines(more) - lines(list)); // they hang from their first line
    axis.labelExpr = JSON.stringify(more) + place;
  };

  // The name of a dashed line is left out where it would hide a curve or lie over the axis: how to read it says it, too.
  const fitReferences = (part, datasets, room, table) => {
    const { mark, encoding, width = room, data: { name = table } = {} } = part;
    if (/^reference-/.test(mark?.style) && mark.baseline !== "middle") {
      const longest = Math.max(0, ...(datasets[name] ?? []).map(({ text = "" }) => widthIn(text, `italic ${LABEL}`)));
      if (longest > (encoding.x.field ? 0.55 : 0.75) * width) encoding.text = { value: "" };
    }
    [...(part.concat ?? []), ...(part.layer ?? [])].forEach((one) => fitReferences(one, datasets, width, name));
  };

  // Names of rows beside a plot that would become narrow stand in it, above their rows and all marks; so would the lines
  // of a grid, across the points.
  const NAME = 14; // pixels that the line of a name takes
  const namesInside = (part, room) => {
    const rows = unitsOf(part).map(({ encoding }) => encoding?.y).filter((y) => y?.type === "nominal" && y.axis && typeof part.width === "number" && !isMap(part));
    if (rows.length) part.width = Math.min(part.width, room - 24);
    const beside = unitsOf(part).map(({ encoding }) => encoding?.yOffset?.sort?.length ?? 1), step = part.height?.step ?? 0;
    const more = step && rows.some(({ field }) => isOfSubjects(field)) ? Math.max(...[...subjects].map((name) => [wrapped(name, AXIS, part.width)].flat().length)) - 1 : 0;
    if (more > 0) part.height = { step: step + 13 * more }; // a long name takes more lines
    const above = 12 + 13 * more + (step * (Math.max(1, ...beside) - 1)) / 2; // of several marks in a row the first is the highest
    // An upright dashed line is interrupted where a name stands: it lay over them.
    const upright = unitsOf(part).filter(({ mark, encoding }) => mark?.type === "rule" && encoding?.x && !encoding.y && (mark.strokeDash || mark.style === "reference"));
    const each = part.height?.step || (rows.length && part.height / new Set(rows[0].sort ?? []).size), dashes = [each - NAME, NAME];
    if (Number.isFinite(each) && each > NAME) upright.forEach(({ mark }) => Object.assign(mark, { strokeDash: dashes, strokeDashOffset: 2 * each - ((0.5 * each - above + NAME / 2) % each) }));
    rows.forEach(({ axis }) => Object.assign(axis, { labelAlign: "left", labelPadding: 0, labelOffset: -above, labelLimit: part.width, ticks: false, grid: false, zindex: 1 }));
  };

  // Names of categories below a plot have as many lines as their share of it asks for; slanted ones are level where they fit.
  const wordsBelow = (part, only) => unitsOf(part).map(({ encoding }) => encoding?.x).filter((x) => x?.type === "nominal" && typeof x.axis?.labelAngle === "number" && Array.isArray(x.sort)).forEach(({ axis, sort }) => {
    const { labelExpr = "datum.label" } = axis, names = sort.filter((name) => !only.length || isOf(only, name));
    if (!/datum\.label\W*$|^split\(/.test(labelExpr)) return; // it names them otherwise
    const room = part.width / names.length - 12, fits = names.every((name) => widthIn(sentence(name), LABEL) <= room);
    if (axis.labelAngle && !fits) return;
    const lines = names.map((name) => [name, [wrapped(sentence(name), LABEL, room)].flat()]);
    Object.assign(axis, { labelAngle: 0, labelExpr: `${JSON.stringify(Object.fromEntries(lines))}[datum.label] || datum.label` });
  });

  // A bar of colours that lies is as long as five numbers under it need, if its maps are.
  const lengthenBars = (part) => {
    if (part.concat && part.resolve?.scale?.color !== "shared") return part.concat.forEach(lengthenBars);
    const panels = panelsOf(part), length = Math.floor(Math.min(220, ...panels.map(({ width }) => width ?? 220)));
    panels.flatMap(unitsOf).forEach(({ encoding }) => {
      const { legend: bar, scale } = encoding?.color ?? {};
      if (!bar?.gradientLength) return;
      bar.gradientLength = Math.max(bar.gradientLength, length);
      if (bar.values && Array.isArray(scale?.domain)) bar.values = evenly(bar, scale.domain);
    });
  };

  // Vega pushes the number of an end of a lying bar inwards: even marks seemed uneven, and two of them nearly touched. There
  // are fewer then, so that between any two there is about the same room.
  const evenly = ({ values, format = "", labelExpr = "", gradientLength }, domain) => {
    const [, digits, kind] = /\.(\d)([f%])/.exec(format) ?? [], [, names, of] = /^(\[.*?\])\[indexof\((\[.*?\])/.exec(labelExpr) ?? [];
    const words = (value) => (names ? JSON.parse(names)[JSON.parse(of).indexOf(value)] ?? "" : digits ? `${(kind === "%" ? 100 * value : value).toFixed(digits)}${kind === "%" ? " %" : ""}` : `${value}`);
    const low = domain[0], high = domain.at(-1), isEnd = (value) => Math.min(value - low, high - value) < 1e-9 * (high - low);
    for (let left = values; ; left = left.length % 2 || !isEnd(left.at(-1)) ? left.filter((_, at) => at % 2 === 0) : [left[0], left.at(-1)]) {
      const spans = left.map((value) => {
        const wide = widthIn(words(value), LABEL), middle = (gradientLength * (value - low)) / (high - low);
        const from = !isEnd(value) ? middle - wide / 2 : middle < wide ? 0 : gradientLength - wide;
        return [from, from + wide];
      });
      const gaps = spans.slice(1).map(([from], at) => from - spans[at][1]);
      if (left.length <= 2 || Math.min(...gaps) >= Math.max(8, 0.6 * Math.max(...gaps))) return left;
    }
  };

  const oneColumn = (part) => panelsOf(part).flatMap(unitsOf).forEach(({ encoding }) => {
    Object.values(encoding || {}).forEach(({ legend }) => { if (legend?.columns) legend.columns = 1; });
  });

  // Names that a legend or an axis would cut with "…" take more lines; in legends too where nothing else makes a chart narrow
  // enough (`most`): plots cannot push them in. So does charts/whole_names.py for the pictures.
  const wholeNames = (part, most = Infinity) => panelsOf(part).map(unitsOf).forEach((units) => units.forEach(({ encoding }) => Object.entries(encoding ?? {}).forEach(([channel, place]) => {
    const isAxis = /^[xy]$/.test(channel), guide = isAxis ? "axis" : "legend", own = place?.[guide];
    if (isAxis && own?.titleLimit && own.title) own.title = wrapped(own.title, AXIS, own.titleLimit);
    if (units.some((unit) => unit.encoding?.[channel]?.[guide] === null) || (isAxis && place.type !== "nominal")) return; // nor may another layer ask for one
    const names = isAxis ? [...subjects] : Array.isArray(place?.scale?.domain) ? place.scale.domain.filter((name) => typeof name === "string") : [];
    const room = Math.min(most, own?.labelLimit ?? config.light[guide].labelLimit), font = `${own?.labelFontSize ?? 11}px`;
    const long = names.map((name) => [name, wrapped(sentence(name), font, room)]).filter(([, lines]) => Array.isArray(lines));
    if (long.length) place[guide] = { ...own, labelExpr: `${JSON.stringify(Object.fromEntries(long))}[datum.label] || (${own?.labelExpr ?? "datum.label"})` };
  })));

  // Cells of a map that are no longer whole pixels reach into the next ones, or pale seams would show: charts/heatmap.py.
  const overlap = (part) => unitsOf(part).filter(({ mark, encoding }) => mark?.type === "rect" && encoding?.color?.field && encoding.x2).forEach(({ mark }) => {
    Object.assign(mark, { x2Offset: 0.7, y2Offset: -0.7 });
  });

  const narrow = (part, excess, least = 120) => {
    if (typeof part.width === "number") {
      const width = Math.max(least, part.width - excess);
      if (isMap(part) && typeof part.height === "number") {
        shrink(part, width / part.width);
        part.height *= width / part.width;
        overlap(part);
      }
      part.width = width;
      wrapAxis(part, width + 24);
    }
    const inner = [...(part.concat || []), ...(part.vconcat || []), ...(part.layer || []), ...(part.spec ? [part.spec] : [])];
    inner.forEach((one) => narrow(one, excess, least));
  };

  // Subjects by themselves: rows of the others are left out of tables that hold several, and so are their panels.
  const isOfSubjects = (column) => column === "who" || /(^|_)subject$/.test(column);
  const isOf = (only, name) => !subjects.has(name) || only.includes(name);
  const onlyRows = (rows, only) => {
    const columns = Object.keys(rows[0] ?? {}).filter(isOfSubjects);
    const mine = rows.filter((row) => columns.every((name) => isOf(only, row[name])));
    return columns.length ? mine : rows;
  };
  const unitsOf = (part) => [part, ...(part.layer || []).flatMap(unitsOf)];
  const panelsOf = (part) => [part, ...(part.concat || []).flatMap(panelsOf)];
  const isMarked = ({ description }) => subjects.has(description); // by theme.of_subject
  const tablesIn = (part) => panelsOf(part).flatMap(unitsOf).map(({ data }) => data?.name);
  // Tables of marked panels; one that all panels share stands above them.
  const ownTables = (part, above) => {
    const name = part.data?.name ?? above;
    return isMarked(part) ? [name, ...tablesIn(part)] : (part.concat || []).flatMap((one) => ownTables(one, name));
  };
  const isOfAnother = (part, emptied, only) => isMarked(part) ? !only.includes(part.description) : unitsOf(part).some(({ transform = [], data }) => emptied.has(data?.name) ||
    transform.some(({ filter }) => isOfSubjects(filter?.field ?? "") && !isOf(only, filter.equal)));
  const onlyPanels = (part, emptied, only) => {
    if (!part.concat) return;
    part.concat.filter((one) => !isMarked(one)).forEach((one) => onlyPanels(one, emptied, only));
    const mine = part.concat.filter((one) => (one.concat && !isMarked(one) ? one.concat.length : !isOfAnother(one, emptied, only)));
    const maps = mine.length < part.concat.length && mine.length <= 3 ? mine.filter(isMap) : [];
    const ratio = Math.min(...maps.map((one) => 250 / Math.max(one.width, one.height))); // one for all: they are compared
    maps.forEach((one) => enlarge(one, ratio));
    part.concat = mine;
  };
  // A figure of which nothing would be left is about another, who is compared with this one: it stays whole, not blank.
  const isLeft = (spec, only) => {
    const copy = JSON.parse(JSON.stringify(spec));
    onlyPanels(copy, new Set(), only);
    return !copy.concat || copy.concat.length > 0;
  };
  // Legends name those who are shown.
  const onlyInLegends = (part, only) => {
    panelsOf(part).flatMap(unitsOf).forEach(({ encoding }) => {
      const scale = encoding?.color?.scale;
      if (!scale?.domain?.length || !scale.domain.every((name) => subjects.has(name))) return;
      const left = scale.domain.map((name, at) => [name, scale.range[at]]).filter(([name]) => only.includes(name));
      encoding.color.scale = { ...scale, domain: left.map(([name]) => name), range: left.map(([, colour]) => colour) };
    });
  };
  // Small multiples that have become few stand beside one another: as wide as four small panels a row, or less.
  const widthOf = (part) => (part.concat ? part.concat.reduce((sum, one) => sum + widthOf(one), 0) : part.width <= 240 ? 1 : part.width <= 420 ? 2 : 4);
  const abreast = (part) => {
    (part.concat || []).forEach(abreast);
    if (part.columns !== 1 || square(part)) return;
    const rows = [];
    part.concat.forEach((one) => {
      const row = rows.at(-1), wide = widthOf(one);
      if (row && row.wide + wide <= 4) {
        row.concat.push(one);
        row.wide += wide;
      } else rows.push({ concat: [one], wide });
    });
    const narrower = rows.some(({ concat, wide }) => concat.length > 1 && wide === 4); // four axes take their room, too
    rows.filter(() => narrower).flatMap(({ concat }) => concat.flatMap(panelsOf)).forEach((one) => { // in all rows: they are compared
      if (one.width <= 240 && !isMap(one)) one.width *= 0.85;
    });
    part.concat = rows.map(({ concat }) => (concat.length > 1 ? { concat, columns: concat.length, resolve: part.resolve } : concat[0]));
    part.concat.filter((row) => row.concat?.every((one) => one.width <= 240 && !isMap(one))).forEach((row) => { // columns below columns
      const like = part.concat.filter(({ concat = [] }) => concat.length === row.concat.length && concat.every((one) => one.width <= 300 && !isMap(one)));
      const widest = Math.max(...like.flatMap(({ concat }) => concat.map(({ width }) => width)));
      row.concat.forEach((one) => { one.width = widest; });
    });
  };
  // One below three would stand alone: two above two. It has no colours that the three's legend would have to name.
  const square = (part) => {
    const [three, last, ...more] = part.concat, one = last?.concat?.length === 1 ? last.concat[0] : last;
    const alike = three?.concat?.length === 3 && one && !more.length && ![...three.concat, one].some(({ concat, width }) => concat || !(width <= 300));
    if (!alike || three.title || last.title || unitsOf(one).some(({ encoding }) => encoding?.color?.field)) return false;
    const withData = (group) => (group.concat ?? [group]).map((each) => (group.data ? { data: group.data, ...each } : each)); // which all panels of a group share
    Object.assign(part, { concat: [three, last].flatMap(withData), columns: 2, resolve: three.resolve });
    return true;
  };
  const enlargeCurves = (whole) => { // and so have few panels of curves, where small ones are all there is
    const curves = panelsOf(whole).filter((part) => !part.concat && typeof part.width === "number" && !isMap(part));
    if (curves.length > 3) return;
    curves.filter(({ width }) => width <= 240).forEach((part) => {
      part.width = 300;
      if (typeof part.height === "number") part.height = Math.max(part.height, 210);
    });
  };
  const enlarge = (part, ratio) => { // few maps of many have room to be large
    if (!(ratio > 1)) return;
    part.width *= ratio;
    part.height *= ratio;
    overlap(part);
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

  // Titles of axes, panels and tooltips, words in a chart and what its legends name, in the language of the page; names of
  // layers and subjects stay. As words.retitled does it to the pictures.
  const speaking = ["title", "subtitle", "text"];
  const inWords = (part) => {
    Object.entries(part).forEach(([key, value]) => {
      if (speaking.includes(key) && typeof value === "string") part[key] = sentence(value);
      else if (speaking.includes(key) && Array.isArray(value)) part[key] = value.map((line) => (typeof line === "string" ? sentence(line) : line));
      else if (value && typeof value === "object") inWords(value);
    });
    if (part.labelExpr) part.labelExpr = namesInWords(part.labelExpr);
    relabel(part, part.scale?.domain, "legend");
    [part.encoding?.x, part.encoding?.y].forEach((place) => { if (place) relabel(place, place.sort, "axis"); });
  };
  // Names that a list in an expression gives to places, "["stem","block 1"][floor(datum.value)]".
  const namesIn = (expression) => {
    const [, list, place] = /^(\[.*\])(\[\w+\(datum\.value\)\])$/s.exec(expression) ?? [];
    return list ? [JSON.parse(list), place] : [];
  };
  const namesInWords = (expression) => {
    const [list, place] = namesIn(expression), said = (name) => (Array.isArray(name) ? name.map(said) : sentence(name));
    return list ? JSON.stringify(list.map(said)) + place : expression;
  };
  const relabel = (place, labels, guide) => {
    const said = Array.isArray(labels) && place[guide] !== null ? labels.filter((label) => typeof label === "string" && sentence(label) !== label) : [];
    if (!said.length) return;
    const spelled = JSON.stringify(Object.fromEntries(said.map((label) => [label, sentence(label)]))), own = place[guide]?.labelExpr ?? "datum.label";
    const [, aLineEach] = /^split\(datum\.label, (.*)\)$/.exec(own) ?? []; // theme.A_LINE_A_WORD
    const labelExpr = aLineEach ? `split(${spelled}[datum.label] || datum.label, ${aLineEach})` : `${spelled}[datum.label] || (${own})`;
    place[guide] = { ...place[guide], labelExpr };
  };
  const rowsInWords = (rows) => (rows.length && "text" in rows[0] ? rows.map((each) => ({ ...each, text: sentence(each.text) })) : rows);

  const put = async (figure, spec) => {
    // `ast`: expressions are interpreted, so the page needs no permission to make code from text.
    const { view } = await (await vega()).embed(figure.querySelector(".live"), spec, {
      mode: "vega-lite", actions: false, ast: true, renderer: "canvas", tooltip: window.eyechart.tooltip, patch: hearing,
    });
    view.addEventListener("click", ({ clientX: x, clientY: y }, item) => {
      const named = item && /^legend-(label|symbol)$/.test(item.mark.role) && item.datum?.value;
      if (subjects.has(named)) setTimeout(() => tell("legend", { name: named, x, y, figure })); // this view ends with it, and still hears the click
    });
    return view;
  };

  const draw = async (figure) => {
    const { spec, tables } = await open(figure.dataset.chart);
    const room = figure.clientWidth;
    const live = figure.querySelector(".live");
    const look = config[dark.matches ? "dark" : "light"];
    const datasets = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, rowsInWords(unpack(table))]));
    const emptied = new Set(), asked = state.only.length ? state.only : few.get(figure) ?? [];
    const only = isLeft(spec, asked) ? asked : [];
    if (only.length) {
      const own = new Set(ownTables(spec));
      for (const [name, rows] of Object.entries(datasets)) {
        datasets[name] = own.has(name) ? rows : onlyRows(rows, only);
        if (rows.length && !datasets[name].length) emptied.add(name);
      }
    }
    const whole = JSON.parse(JSON.stringify(spec));
    inWords(whole);
    if (only.length) {
      onlyPanels(whole, emptied, only);
      onlyInLegends(whole, only);
      enlargeCurves(whole);
    }
    let excess = 0, above = 0, less = 0, more = 0;
    for (const way of ways(whole, only.length > 0)) {
      const copy = JSON.parse(JSON.stringify(whole));
      if (way.abreast) abreast(copy);
      if (way.oneMore && !oneMore(copy, room)) continue;
      if (way.columns) atMost(copy, way.columns, room);
      if (way.again && excess > way.again * room) continue;
      more = way.again ? more + excess : 0;
      if (way.tight && !tighten(copy, room, more)) continue;
      if (way.columns === 1 || (only.length && !way.abreast)) fill(copy, room);
      else if (way.tight) shortRows(copy, room).forEach((row) => fill(row, room - more));
      if (way.narrow) less += excess;
      wrapTitles(copy, way.below ? room - 60 - less : Infinity); // they begin where the plot does
      if (way.columns === 1) panelsOf(copy).forEach((one) => namesInside(one, room));
      if (way.capped && !way.narrow) above = excess;
      if (way.capped) cap(copy, above);
      if (way.narrow) {
        narrow(copy, less);
      }
      wholeNames(copy, way.narrow ? 0.4 * room : Infinity);
      panelsOf(copy).filter(({ concat }) => !concat).forEach((one) => {
        wrapUpright(one);
        if (!isMap(one) && typeof one.width === "number") wrapAxis(one, one.width + 40); // a longer title pushes the next panel away
        wordsBelow(one, only);
      });
      levelTitles(copy);
      fitReferences(copy, datasets);
      if (way.piled) oneColumn(copy);
      const below = { orient: "bottom", direction: "horizontal", columns: way.piled ? 1 : 2 };
      if (way.below) lengthenBars(copy);
      const under = way.piled ? { layout: { bottom: { direction: "vertical", anchor: "start" } } } : { layout: { bottom: { margin: 24 } } }; // or two legends read as one
      const legend = way.below ? { ...look.legend, ...below, ...under } : look.legend;
      copy.datasets = datasets;
      copy.config = { ...look, background: "transparent", legend };
      drawn.get(figure)?.view?.finalize();
      drawn.set(figure, { room });
      let view = await put(figure, copy);
      if (window.eyechart.clearNames(view, copy)) {
        view.finalize();
        view = await put(figure, copy);
      }
      drawn.set(figure, { room, view });
      const canvas = live.querySelector("canvas"); // without a style its pixels are the screen's
      excess = (parseFloat(canvas.style.width) || canvas.width) - room;
      if (excess <= 0) break;
    }
    live.hidden = false;
    figure.querySelector(".still").style.display = "none";
    figure.classList.remove("waiting");
    tell("drawn", figure);
  };

  // For other scripts: the rows behind a chart, and a chart of their own in the page's looks.
  window.eyechart.rowsOf = (name) => Object.values(opened.get(name).tables).flatMap(unpack); // of a chart that was drawn
  window.eyechart.show = async (place, spec) => {
    const { view } = await (await vega()).embed(place, { ...spec, config: { ...config[dark.matches ? "dark" : "light"], background: "transparent" } }, {
      mode: "vega-lite", actions: false, ast: true, renderer: "canvas", tooltip: window.eyechart.tooltip,
    });
    window.eyechart.others.set(place, view);
  };

  const attempt = (figure) => draw(figure).catch((error) => {
    figure.querySelector(".live").hidden = true;
    figure.querySelector(".still").style.display = "";
    figure.classList.remove("waiting");
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

  // What is far from the window is drawn again when somebody comes near: all at once, a phone did not answer for many seconds.
  const again = () => drawn.forEach((_, figure) => near.observe(figure));
  hear("only", again);
  hear("language", again);
  hear("few", (figure) => { if (drawn.has(figure)) attempt(figure); });

  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn.forEach(({ room }, figure) => {
      if (Math.abs(figure.clientWidth - room) > 16) attempt(figure);
    }), 250);
  });
  dark.addEventListener("change", again);

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
})();
