// What htmx is told beside the markup. Without this file, and without scripts at all, every page
// works: filters are a form, ranges are links, and a page that refreshes itself is loaded anew.
"use strict";

(() => {
  const live = (event) => event.detail.elt.id === "live";
  const stale = (words) => {
    document.getElementById("stale").textContent = words;
  };

  // What the reader has opened stays open, and what he is typing stays typed.
  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.tagName === "DETAILS");
  // A drawing is kept while what it shows is the same.
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (from, to) =>
    !(from.dataset?.chart && from.dataset.chart === to.dataset?.chart);

  document.addEventListener("htmx:configRequest", (event) => {
    const asked = event.detail.parameters;
    for (const name of Object.keys(asked)) {
      if (asked[name] === "") delete asked[name]; // what isn't filtered by is not in the address
    }
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (live(event) && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    const page = (xhr.getResponseHeader("content-type") ?? "").startsWith("text/html");
    if (page && !(live(event) && xhr.status >= 400)) return;
    event.detail.shouldSwap = false; // what was seen last is better than an error, if it says so
    stale(`Not refreshed: the gateway answered ${xhr.status}. What is shown is older.`);
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, () => {
      stale("Not refreshed: the gateway does not answer. What is shown is older.");
    });
  }
})();
