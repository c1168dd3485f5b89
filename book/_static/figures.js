// Every vector figure can be saved under its own name, whether it is part of the page or a file.
// book/_ext/data_links.py writes the line below each figure; the link to the SVG comes first in it.
document.addEventListener("DOMContentLoaded", () => {
  const isFigure = 'img[src$=".svg"], .figure-svg > svg';
  for (const line of document.querySelectorAll(".data-links.of-figure")) {
    const inside = line.closest("figure") ?? line.previousElementSibling;
    const picture = inside?.matches(isFigure) ? inside : inside?.querySelector(isFigure);
    if (!picture) continue;
    const isFile = picture.tagName === "IMG";
    const link = document.createElement("a");
    link.href = isFile ? picture.src : "#";
    link.download = line.dataset.name + ".svg";
    link.textContent = "↓ SVG";
    link.title = "Download this figure as SVG";
    link.addEventListener("click", () => {
      if (isFile || link.href.startsWith("blob:")) return;
      const text = new XMLSerializer().serializeToString(picture).replace(/var\(--[\w-]+, ([^)]*)\)/g, "$1");
      link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    });
    line.prepend(link, " · ");
  }
});
