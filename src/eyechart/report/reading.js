// How the page of an exam is read: what is searched, filtered and sorted; folds.js folds it.
(() => {
  "use strict";
  const { state, set, hear, sentence, folds, reveal } = window.eyechart;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);

  const menu = one(".menu"), narrow = window.matchMedia("(max-width: 1100px)");
  const fitMenu = () => { menu.open = !narrow.matches; };
  fitMenu();
  narrow.addEventListener("change", fitMenu);
  all(".side ol a").forEach((link) => link.addEventListener("click", fitMenu));

  // --- search and filters -------------------------------------------------------------------------------------------------

  const form = one(".finder"), words = one("#find-words"), kind = one("#find-kind"), paper = one("#find-paper");
  const subject = one("#find-subject"), other = one("#find-other"), beside = one("#beside");
  const things = all(".found").map((element) => ({
    element,
    text: element.textContent.toLowerCase().replace(/\s+/g, " "),
    kinds: element.dataset.kinds.split(" "),
    papers: JSON.parse(element.dataset.papers || "[]"),
    subjects: JSON.parse(element.dataset.subjects || "[]"),
  }));
  const glances = all(".glance li").map((element) => ({ element, rows: all(".stamp[href]", element).map(({ hash }) => document.getElementById(hash.slice(1))) }));
  const stamps = all(".stamp[href]").map((element) => ({ element, subjects: all("[data-subject]", element).map((each) => each.dataset.subject) }));
  const numbers = all("tbody tr[data-subjects]:not(.found), .anatomy").map((element) => ({ element, subjects: JSON.parse(element.dataset.subjects) }));

  // With one subject alone, all that names it; with two, what is about these two.
  const isShown = (subjects) => {
    const { only } = state;
    if (!only.length || !subjects.length) return true;
    return only.length === 1 ? subjects.includes(only[0]) : subjects.every((name) => only.includes(name));
  };
  const sought = () => words.value.toLowerCase().split(/\s+/).filter(Boolean);

  // A quantity is named once, beside the rows of its subjects that are left; beside each of them where they are sorted.
  const nameRows = (table) => {
    let first = null;
    all("tbody tr", table).filter((row) => !row.hidden).forEach((row) => {
      const head = row.cells[0], again = !table.classList.contains("sorted") && first?.textContent === head.textContent;
      row.classList.toggle("again", again);
      row.classList.toggle("first", !again);
      head.rowSpan = 1;
      if (again) first.rowSpan += 1;
      else first = head;
    });
  };

  const filter = () => {
    const asked = sought();
    stamps.forEach(({ element, subjects }) => { element.hidden = !isShown(subjects); });
    numbers.forEach(({ element, subjects }) => { element.hidden = !isShown(subjects); });
    things.forEach((thing) => {
      const { element } = thing, measure = element.classList.contains("measure");
      const mine = measure ? !state.only.length || state.only.some((name) => thing.subjects.includes(name)) : isShown(thing.subjects);
      element.hidden = !(mine && asked.every((word) => thing.text.includes(word)) &&
        (!kind.value || thing.kinds.includes(kind.value)) && (!paper?.value || thing.papers.includes(paper.value)));
    });
    // At a glance stand the claims of which the table shows a verdict: it has words that a glance has no room for.
    glances.forEach(({ element, rows }) => { element.hidden = rows.every((row) => row.hidden); });
    // A claim is told by the first of its rows that is left, at a glance as well.
    let told = null;
    all(".glance li").filter((line) => !line.hidden).forEach((line) => {
      const claim = line.querySelector(".id").textContent;
      line.classList.toggle("again", claim === told);
      told = claim;
    });
    all("table.quantities").forEach(nameRows);
    all("table.verdicts").forEach((table) => {
      let last = null;
      all("tbody tr", table).filter((row) => !row.hidden).forEach((row) => {
        const claim = row.querySelector(".claim").textContent;
        row.classList.toggle("again", claim === last);
        last = claim;
      });
    });
    all(".chapter").forEach((chapter) => { chapter.hidden = !all(".measure", chapter).some((section) => !section.hidden); });
    all("details.fold:has(> table.verdicts)").forEach((fold) => { fold.hidden = !all("tbody tr", fold).some((row) => !row.hidden); });
    all(".side ol a").forEach((link) => { link.parentElement.hidden = Boolean(document.getElementById(link.hash.slice(1))?.closest("[hidden]")); });
    const active = asked.length || kind.value || paper?.value || state.only.length;
    const count = (selector, what) => { // a claim may have several lines, one for each way to read it
      const found = all(selector), left = found.filter((each) => !each.closest("[hidden]"));
      return [left, found].map((each) => new Set(each.map(what)).size);
    };
    const [claims, allClaims] = count(".glance li", (line) => line.querySelector(".id").textContent), [figures, allFigures] = count("section.measure", (section) => section);
    one("#find-said").textContent = active ? sentence("{claims} of {allClaims} tested claims, {figures} of {allFigures} figures", { claims, allClaims, figures, allFigures }) : "";
    one("#find-reset").hidden = !active;
  };

  // Words that stand in a fold are shown there.
  const unfold = () => {
    const asked = sought();
    folds.forEach((fold) => {
      const text = asked.length && !fold.closest("[hidden]") ? fold.textContent.toLowerCase() : "";
      fold.open = asked.length > 0 && asked.every((word) => text.includes(word));
    });
  };
  let typing;
  words.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { filter(); unfold(); }, 120);
  });
  [kind, paper].forEach((select) => select?.addEventListener("change", filter));
  const reset = () => {
    [words, kind, paper].forEach((field) => { if (field) field.value = ""; });
    set("only", []);
    filter();
    unfold();
  };
  one("#find-reset").addEventListener("click", reset);
  hear("hidden", reset);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;

  // --- subjects by themselves: by the list, by a click on their name, by a legend ---------------------------------------

  const choose = () => set("only", [subject.value, subject.value && other?.value].filter((name, at, names) => name && names.indexOf(name) === at));
  subject?.addEventListener("change", choose);
  other?.addEventListener("change", choose);
  const toggle = (name) => set("only", state.only.length === 1 && state.only[0] === name ? [] : [name]);

  // A legend becomes shorter where a subject is shown by itself: the second click may be where its entry was.
  let clicked = null;
  const isThere = ({ clientX, clientY }) => clicked && Math.hypot(clientX - clicked.x, clientY - clicked.y) < 6;
  // And so does its figure: below the reader's eye, where the legend is, nothing of it would be left to see.
  let held = null; // the figure, and where its lower edge was
  hear("legend", ({ name, x, y, figure }) => {
    const { top, bottom } = figure.getBoundingClientRect();
    held = top < 0 ? { figure, bottom } : null; // else it is its upper edge that stays
    toggle(name);
    clicked = state.only.length ? { x, y } : null;
  });
  hear("drawn", (figure) => {
    if (held?.figure !== figure) return;
    window.scrollBy({ top: figure.getBoundingClientRect().bottom - held.bottom, behavior: "instant" });
    held = null;
  });
  document.addEventListener("click", (event) => {
    if (!isThere(event)) return;
    event.stopPropagation();
    event.preventDefault();
    set("only", []);
  }, { capture: true });
  document.addEventListener("pointermove", (event) => { if (!isThere(event)) clicked = null; });
  ["wheel", "keydown"].forEach((kind) => document.addEventListener(kind, () => { clicked = null; }, { passive: true }));

  const back = document.createElement("button");
  back.type = "button";
  back.className = "alone";
  back.hidden = true;
  back.addEventListener("click", () => set("only", []));
  document.querySelector(".afloat").append(back);
  const names = subject ? all("p.key .subject") : [];
  names.forEach((each) => {
    each.tabIndex = 0;
    each.setAttribute("role", "button");
    each.setAttribute("aria-pressed", "false");
    each.title = sentence("Show this subject by itself");
    each.addEventListener("keydown", (event) => { if (["Enter", " "].includes(event.key)) { event.preventDefault(); toggle(each.dataset.subject); } });
  });
  if (subject) {
    [...names, ...all("h1 .subject, #subjects .subject")].forEach((each) => {
      each.classList.add("pick");
      each.addEventListener("click", () => toggle(each.dataset.subject));
    });
  }
  const nameBack = (only) => {
    back.textContent = only.length > 1 ? sentence("Only {one} and {two}. Show all subjects", { one: only[0], two: only[1] }) : sentence("Only {one}. Show all subjects", { one: only[0] ?? "" });
  };
  hear("only", (only) => {
    document.documentElement.dataset.alone = only.join(" ");
    clicked = null;
    back.hidden = !only.length;
    nameBack(only);
    names.forEach((each) => each.setAttribute("aria-pressed", String(only.includes(each.dataset.subject))));
    if (subject) subject.value = only[0] || "";
    if (other) other.value = only[1] || "";
    if (beside) beside.hidden = !only.length;
    filter();
  });

  hear("language", () => {
    names.forEach((each) => { each.title = sentence("Show this subject by itself"); });
    nameBack(state.only);
    filter();
  });

  // --- tables that can be sorted ------------------------------------------------------------------------------------------

  const valueOf = (row, column) => {
    const cell = row.cells[column], text = cell.dataset.sort ?? cell.textContent.trim();
    const number = parseFloat(text.replace(/,(?=\d{3})/g, "").replace("−", "-"));
    return { text, number };
  };
  all("table.sortable").forEach((table) => {
    const body = table.tBodies[0], rows = [...body.rows];
    if (rows.length < 2) return;
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const turns = { ascending: "descending", descending: "none" }, turn = turns[head.getAttribute("aria-sort")] || "ascending";
        all("thead th", table).forEach((each) => each.removeAttribute("aria-sort"));
        if (turn !== "none") head.setAttribute("aria-sort", turn);
        table.classList.toggle("sorted", turn !== "none");
        const sign = turn === "descending" ? -1 : 1;
        const byValue = (one, two) => {
          const [a, b] = [valueOf(one, column), valueOf(two, column)];
          if (Number.isNaN(a.number) !== Number.isNaN(b.number)) return Number.isNaN(a.number) ? 1 : -1; // no number: last
          return sign * (Number.isNaN(a.number) ? a.text.localeCompare(b.text, undefined, { numeric: true }) : a.number - b.number);
        };
        body.append(...(turn === "none" ? rows : rows.toSorted(byValue)));
        if (table.matches(".quantities")) nameRows(table);
      });
    });
  });

  // --- which section is being read ----------------------------------------------------------------------------------------

  const links = new Map(all(".side ol a").map((link) => [link.hash.slice(1), link]));
  const sections = all("#top, main section").filter(({ id }) => links.has(id)), near = new Set();
  const reading = new IntersectionObserver((entries) => {
    entries.forEach(({ target, isIntersecting }) => near[isIntersecting ? "add" : "delete"](target));
    const current = links.get(sections.findLast((section) => near.has(section))?.id);
    if (!current || current.hasAttribute("aria-current")) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    current.setAttribute("aria-current", "true");
    const list = one(".side"), place = current.getBoundingClientRect(), seen = list.getBoundingClientRect();
    if (!narrow.matches && (place.top < seen.top + 40 || place.bottom > seen.bottom - 20)) list.scrollTop += place.top - seen.top - seen.height / 3;
  }, { rootMargin: "-15% 0px -75% 0px" });
  sections.forEach((section) => reading.observe(section));

  reveal();
})();
