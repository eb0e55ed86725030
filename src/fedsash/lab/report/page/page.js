// Begins everything: unpacks Plotly, draws the pictures, and changes between light and dark.
"use strict";

(async () => {
  const places = [...document.querySelectorAll(".picture")];
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const DEEP = 8; // browsers keep few scenes in three dimensions; further ones are drawn when they come near

  for (const scroll of document.querySelectorAll(".scroll")) {
    const hint = scroll.parentElement.querySelector(".hint");
    new ResizeObserver(() => { hint.hidden = scroll.scrollWidth <= scroll.clientWidth; }).observe(scroll);
  }

  // A document that is open within the page delays its load event: whoever photographs or prints the page then waits
  // until all pictures are drawn.
  const unfinished = make("iframe", { hidden: true });
  document.body.append(unfinished);
  unfinished.contentDocument.open();
  const finish = () => { unfinished.contentDocument.close(); unfinished.remove(); };

  async function unpack(element) {
    const bytes = Uint8Array.from(atob(element.textContent), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    element.remove();
  }

  const pictures = new Map(places.map((place) => [place, new Picture(place)]));
  const redraw = () => pictures.forEach((picture) => { if (picture.drawn) picture.draw(); });

  // The switch offers the other of light and dark. Until it is used, the page follows the system.
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = make("button", { type: "button", className: "theme" });
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  const wear = (chosen) => {
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    name();
  };
  button.addEventListener("click", () => { wear(isDark() ? "light" : "dark"); redraw(); });
  dark.addEventListener("change", () => { name(); redraw(); });
  name();
  document.querySelector("header").append(button);

  try {
    await unpack(document.getElementById("plotly"));
  } catch (error) {
    for (const place of places) place.querySelector(".plot").textContent = `This browser cannot draw the picture: ${error}`;
    finish();
    return;
  }
  for (const place of document.querySelectorAll(".explorer")) {
    new Explorer(place, [...place.querySelectorAll(".picture")].map((of) => pictures.get(of)));
  }

  // Paper is light, and every picture is on it.
  let worn;
  const print = (onPaper) => pictures.forEach((picture) => { picture.onPaper = onPaper; picture.draw(); });
  addEventListener("beforeprint", () => { worn = root.dataset.theme; wear("light"); print(true); });
  addEventListener("afterprint", () => { wear(worn); print(false); });

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      pictures.get(target).draw();
    }
  }, { rootMargin: "800px" });
  let deep = 0;
  for (const [place, picture] of pictures) {
    if (picture.deep && ++deep > DEEP) near.observe(place);
    else picture.draw();
    await new Promise((resolve) => setTimeout(resolve)); // the page answers between two pictures
  }
  finish();
})();
