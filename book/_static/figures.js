// Every vector figure can be saved under its own name.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("figure")) {
    const image = figure.querySelector('img[src$=".svg"]');
    const caption = figure.querySelector("figcaption");
    if (!image || !caption) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.download = `${figure.id || "figure"}.svg`;
    link.textContent = "Download as SVG";
    link.className = "figure-download";
    caption.append(link);
  }
});
