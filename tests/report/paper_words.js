// Every word that a printed page shows, with its size in points: of the page, of drawings in it and of its pictures.
(() => {
  const PIXEL = 0.75; // points
  const said = [];
  const see = (words, pixels) => { if (words.trim()) said.push([Math.round(1000 * PIXEL * pixels) / 1000, words.trim()]); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const holder = node.parentElement, box = holder.getBoundingClientRect();
    if (!node.data.trim() || !holder.checkVisibility() || !box.width || !box.height) continue;
    const scale = holder.closest("svg") ? holder.getScreenCTM().d : 1;
    see(node.data, scale * parseFloat(getComputedStyle(holder).fontSize));
  }
  document.querySelectorAll("img").forEach((image) => {
    const { width } = image.getBoundingClientRect(), source = image.currentSrc || image.src;
    if (!width || !image.checkVisibility() || !source.startsWith("data:image/svg+xml")) return;
    const [, head, body] = /^data:image\/svg\+xml([^,]*),(.*)$/s.exec(source), own = Number(image.getAttribute("width"));
    const text = head.includes("base64") ? new TextDecoder().decode(Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0))) : decodeURIComponent(body);
    const drawing = new DOMParser().parseFromString(text, "image/svg+xml");
    drawing.querySelectorAll("text").forEach((words) => {
      const sized = words.closest("[font-size]");
      see(words.textContent, (width / own) * parseFloat(sized.getAttribute("font-size")));
    });
  });
  return said;
})()
