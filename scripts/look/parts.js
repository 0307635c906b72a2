// The parts of the page, from top to bottom: name, top and height of each. The opening is one part with its sections, and
// the first section of a chapter has the chapter's heading.
() => [...document.querySelectorAll("header#top, main section[id], main > details[id], main > article[id], footer")]
  .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height > 30 && (each.id === "top" || !each.querySelector("section[id]")))
  .map((each) => {
    const heading = each.previousElementSibling?.matches(".chapter > h2") ? each.previousElementSibling : each;
    const { top } = heading.getBoundingClientRect(), { bottom } = each.getBoundingClientRect();
    return [each.id || each.tagName.toLowerCase(), top + window.scrollY, bottom - top];
  })
