// What the theme leaves out for screen readers and keyboards.
addEventListener("load", () => {
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    region.tabIndex = 0;
  }
  const count = {};
  for (const landmark of document.querySelectorAll("nav")) {
    const label = document.getElementById(landmark.getAttribute("aria-labelledby"));
    const name = (landmark.ariaLabel || label?.textContent || landmark.className).trim();
    count[name] = (count[name] || 0) + 1;
    landmark.removeAttribute("aria-labelledby");
    landmark.ariaLabel = count[name] > 1 ? `${name} (${count[name]})` : name;
  }
});
