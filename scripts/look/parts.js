// The parts of the page, from top to bottom: name, top and height of each.
() => [...document.querySelectorAll("header#top, main section[id], main > details[id], main > article[id], footer")]
  .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height > 30 && (each.matches("header") || !each.querySelector("section[id]")))
  .map((each) => {
    const { top, height } = each.getBoundingClientRect();
    return [each.id || each.tagName.toLowerCase(), top + window.scrollY, height];
  })
