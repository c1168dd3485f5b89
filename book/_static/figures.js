// Every vector figure can be saved under its own name, whether it is part of the page or a file.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("figure")) {
    const image = figure.querySelector('img[src$=".svg"]');
    const drawn = figure.querySelector(".figure-svg > svg");
    const caption = figure.querySelector("figcaption");
    if (!(image || drawn) || !caption) continue;
    const link = document.createElement("a");
    link.href = image ? image.src : "#";
    link.download = `${figure.id || "figure"}.svg`;
    link.textContent = "⤓ SVG";
    link.title = "Download this figure as SVG";
    link.className = "figure-download";
    link.addEventListener("click", () => {
      if (!drawn || link.href.startsWith("blob:")) return;
      const text = new XMLSerializer().serializeToString(drawn).replace(/var\(--[\w-]+, ([^)]*)\)/g, "$1");
      link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    });
    caption.append(link);
  }
});
