// Draws the chart of the page of groups: a Vega-Lite specification in data-chart, made by the server
// (dashboard/chart_spec.py). What it draws has no meaning of its own: the table below says the same.
"use strict";

(() => {
  const PALETTE = ["c-fresh", "c-ttft", "c-ok", "c-failed", "c-e2e", "c-out", "c-cached"];
  const drawn = new Map();

  const colours = (at) => {
    const probe = document.createElement("span");
    at.append(probe);
    const of = (name) => {
      probe.className = name;
      return getComputedStyle(probe).color;
    };
    const found = {
      palette: PALETTE.map(of), ink: of(""), soft: of("legend"), grid: of("c-grid"),
      heat: [of("c-grid"), of("c-heat")],
    };
    probe.remove();
    return found;
  };

  const config = ({ palette, ink, soft, grid, heat }) => ({
    aria: false, // the box around it has a name, and the table its contents
    background: null,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      labelColor: ink, titleColor: soft, gridColor: grid, domainColor: soft, tickColor: grid,
      labelFontSize: 12, labelLimit: 190, titleFontSize: 12, titleFontWeight: "normal",
    },
    legend: { labelColor: ink, titleColor: soft, labelLimit: 190, titleFontWeight: "normal" },
    bar: { color: palette[0] },
    text: { color: ink, fontSize: 12 },
    range: { category: palette, heatmap: heat, ramp: heat },
  });

  const OPTIONS = {
    ast: true, // expressions are interpreted: the policy allows no code made of text
    renderer: "svg",
    actions: false,
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
    logLevel: vega.Error,
  };

  const draw = async (at, anew) => {
    const old = drawn.get(at);
    if (!anew && old && old.spec === at.dataset.chart && at.childElementCount) return;
    old?.result?.finalize();
    const entry = { spec: at.dataset.chart };
    drawn.set(at, entry);
    at.replaceChildren();
    at.hidden = false; // it has a width from now on
    try {
      const options = { ...OPTIONS, config: config(colours(at)) };
      entry.result = await vegaEmbed(at, JSON.parse(entry.spec), options);
      const svg = at.querySelector("svg");
      svg.removeAttribute("role"); // the box has role and name
      svg.setAttribute("aria-hidden", "true");
    } catch (error) {
      at.replaceChildren();
      at.hidden = true; // the drawing that the server made is shown then
      console.error(error);
    }
  };

  const all = (anew) => {
    for (const at of drawn.keys()) {
      if (at.isConnected) continue;
      drawn.get(at).result?.finalize();
      drawn.delete(at);
    }
    for (const at of document.querySelectorAll("[data-chart]")) draw(at, anew);
  };

  document.addEventListener("htmx:afterSettle", () => all(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(true));
  all(false);
})();
