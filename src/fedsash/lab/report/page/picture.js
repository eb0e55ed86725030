// One picture: its controls, its plot, its legend. The page's figures are in `specs`, as pictures/page.py wrote them.
"use strict";

const specs = JSON.parse(document.getElementById("figures").textContent);
const touch = matchMedia("(pointer: coarse)").matches;

function make(name, settings = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(settings)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...inside);
  return element;
}

// A sample of a line: its dash and its marker, for those who do not see its colour; of bars their height.
const STROKES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4" };
const MARKS = {
  circle: "M13 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0", square: "M13.5 2.5h7v7h-7z", diamond: "M17 1l5 5-5 5-5-5z",
  "triangle-up": "M17 1.5l4.5 8h-9z", "triangle-down": "M17 10.5l4.5-8h-9z",
  cross: "M15.5 2h3v2.5H21v3h-2.5V10h-3V7.5H13v-3h2.5z", x: "M14 1.5l3 3 3-3 1.5 1.5-3 3 3 3-1.5 1.5-3-3-3 3-1.5-1.5 3-3-3-3z",
};
function swatch(trace) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const attributes = { width: 34, height: 12, "aria-hidden": "true" };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const draw = (settings) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    for (const [key, value] of Object.entries(settings)) path.setAttribute(key, value);
    svg.append(path);
  };
  if (trace.type === "bar") {
    draw({ d: "M0 6H34", stroke: trace.marker.color, "stroke-width": 12 * (trace.width ?? 0.8) });
    return svg;
  }
  const { color, dash, width } = trace.line;
  draw({ d: "M0 6H34", stroke: visible(color), "stroke-width": width, "stroke-dasharray": STROKES[dash] });
  draw({ d: MARKS[trace.marker.symbol], fill: visible(color) });
  return svg;
}

// Text as Plotly takes it, which reads some elements of HTML.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// The colours of the page as it is now, light or dark; style.css has them.
function theme() {
  const style = getComputedStyle(document.documentElement);
  const [ink, quiet, rule, paper] = ["--ink", "--quiet", "--rule", "--paper"].map((name) => style.getPropertyValue(name));
  return { ink, quiet, rule, paper };
}
const INK = "#333333"; // a line in pictures/styles.py's INK is drawn in the page's own
const visible = (colour) => (colour === INK ? theme().ink : colour);

class Picture {
  constructor(place) {
    this.place = place;
    this.spec = specs[place.dataset.figure];
    this.plot = place.querySelector(".plot");
    this.current = 0;
    this.title = place.querySelector("h3").textContent;
    this.smoothable = Object.keys(this.spec.series).length > 0;
    this.smoothed = false;
    this.shown = make("span", { className: "shown" });
    place.querySelector("figcaption").prepend(this.shown);
    this.untick();
    this.legend = make("div", { className: "legend", role: "group", "aria-label": "Lines" });
    this.place.querySelector("figure").before(this.controls());
    this.place.querySelector("figcaption").before(this.legend);
    this.name();
  }

  get view() { return this.spec.views[this.current]; }
  // The lines that the view hides at first.
  untick() {
    this.hidden = new Set();
    this.view.data.forEach((trace, i) => { if (trace.unticked) this.hidden.add(i); });
  }
  get deep() { return this.view.data.some((trace) => trace.type === "surface"); }

  controls() {
    const row = make("div", { className: "controls" });
    if (this.spec.views.length > 1) {
      const options = this.spec.views.map((view, i) => make("option", { value: i }, view.label));
      const choice = make("select", {}, ...options);
      choice.addEventListener("change", () => { this.current = +choice.value; this.untick(); this.name(); this.draw(); });
      row.append(make("label", {}, "Show ", choice));
    }
    if (this.smoothable) {
      const box = make("input", { type: "checkbox" });
      box.addEventListener("change", () => { this.smoothed = box.checked; this.name(); this.draw(); });
      row.append(make("label", {}, box, "smoothed"));
    }
    const button = (text, label, action) => {
      const made = make("button", { type: "button", title: label, "aria-label": label }, text);
      made.addEventListener("click", action);
      return made;
    };
    row.append(make("span", { className: "push" },
      button("−", "zoom out", () => this.zoom(1.4)), button("+", "zoom in", () => this.zoom(1 / 1.4)),
      button("Reset", "reset the view", () => this.draw()), button("Save", "save as SVG", () => this.save())));
    return row;
  }

  // What a screen reader says of the picture, and the keys that move it.
  name() {
    const id = this.place.dataset.figure;
    const settings = {
      tabindex: 0, role: "img", "aria-roledescription": "interactive picture", "aria-describedby": `${id}-caption`,
      "aria-label": `${this.title}: ${this.view.label}. Arrow keys move, plus and minus zoom, 0 resets.`,
    };
    for (const [key, value] of Object.entries(settings)) this.plot.setAttribute(key, value);
    const told = [this.view.label, ...(this.smoothed ? ["smoothed"] : [])].join(", ");
    this.shown.textContent = this.spec.views.length > 1 || this.smoothable ? `Shown: ${told}. ` : "";
    this.plot.onkeydown = (event) => this.key(event);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "+": () => this.zoom(1 / 1.4), "-": () => this.zoom(1.4), 0: () => this.draw(),
      ArrowLeft: () => this.move(-1, 0), ArrowRight: () => this.move(1, 0),
      ArrowUp: () => this.move(0, 1), ArrowDown: () => this.move(0, -1),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  zoom(factor) {
    if (this.deep) {
      const { x, y, z } = this.eye();
      return this.turn({ x: x * factor, y: y * factor, z: z * factor });
    }
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      const [low, high] = this.plot._fullLayout[axis].range;
      // Rounds are looked at more closely from the end: that is where runs differ.
      const fixed = axis === "xaxis" && this.smoothable ? high : (low + high) / 2;
      change[`${axis}.range`] = [fixed + (low - fixed) * factor, fixed + (high - fixed) * factor];
    }
    Plotly.relayout(this.plot, change);
  }

  move(right, up) {
    if (this.deep) {
      const { x, y, z } = this.eye(), angle = (right * Math.PI) / 18;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      return this.turn({ x: c * x - s * y, y: s * x + c * y, z: z + up / 5 });
    }
    const change = {};
    for (const [axis, by] of [["xaxis", right], ["yaxis", up]]) {
      const [low, high] = this.plot._fullLayout[axis].range, step = (by * (high - low)) / 10;
      change[`${axis}.range`] = [low + step, high + step];
    }
    Plotly.relayout(this.plot, change);
  }

  eye() { return this.plot._fullLayout.scene.camera.eye; }
  turn(eye) { Plotly.relayout(this.plot, { "scene.camera.eye": eye }); }

  data() {
    return this.view.data.map((trace, i) => {
      const shown = { ...trace, visible: !this.hidden.has(i) };
      delete shown.label;
      delete shown.unticked;
      if (trace.line?.color === INK) {
        shown.line = { ...trace.line, color: visible(INK) };
        shown.marker = { ...trace.marker, color: visible(INK) };
      }
      if (!("series" in trace)) return shown;
      const { x, y, smooth } = this.spec.series[trace.series];
      return { ...shown, x, y: this.smoothed ? smooth : y };
    });
  }

  layout() {
    const { xaxis, yaxis, scene, annotations, ...rest } = this.view.layout;
    const lines = this.view.data.filter((trace) => "label" in trace).length;
    const square = this.place.classList.contains("half");
    const most = this.onPaper ? 300 : square ? this.plot.clientWidth + 40 : Infinity;
    const height = Math.min(this.spec.height, most);
    this.plot.style.height = `${height}px`;
    const { ink, quiet, rule, paper } = theme();
    const layout = {
      autosize: true, showlegend: false, paper_bgcolor: paper, plot_bgcolor: paper,
      margin: { l: 8, r: 8, t: 12, b: 8 }, font: { family: "system-ui, sans-serif", size: 13, color: ink },
      hoverlabel: { bgcolor: paper, bordercolor: quiet, font: { color: ink }, namelength: 40 }, ...rest, height,
      annotations: annotations.map((note) => ({ bgcolor: paper, ...note, text: this.fitted(note.text) })),
    };
    if (this.onPaper) Object.assign(layout, { width: 660, autosize: false });
    layout.hovermode ??= lines > 0 && lines <= 8 ? "x unified" : "closest";
    if (scene) {
      const far = this.plot.clientWidth < 420 ? 1.75 : 1.25;
      const depth = (axis) => ({ gridcolor: rule, zeroline: false, backgroundcolor: paper, ...axis });
      layout.scene = {
        xaxis: depth(scene.xaxis), yaxis: depth(scene.yaxis), zaxis: depth(scene.zaxis),
        camera: { eye: { x: 1.15 * far, y: -1.35 * far, z: 0.75 * far }, center: { x: 0, y: 0, z: -0.12 } },
        aspectmode: "manual", aspectratio: { x: 1, y: 1, z: 0.7 },
      };
    } else {
      const axis = { automargin: true, gridcolor: rule, zeroline: false, linecolor: quiet, ticks: "" };
      layout.dragmode = touch ? false : "zoom";
      layout.xaxis = { ...axis, ...xaxis };
      layout.yaxis = { ...axis, ...yaxis };
    }
    return layout;
  }

  // A note in lines that fit into a narrow picture.
  fitted(text) {
    const narrow = !this.onPaper && this.plot.clientWidth < 480;
    return narrow && text.length > 30 ? text.replace(/([,:;]) /g, "$1<br>") : text;
  }

  draw() {
    this.drawn = true;
    this.plot.replaceChildren();
    Plotly.purge(this.plot);
    Plotly.newPlot(this.plot, this.data(), this.layout(), { responsive: true, displayModeBar: false, scrollZoom: false });
    this.plot.on("plotly_click", ({ points }) => this.clicked?.(points[0]));
    this.entries();
  }

  // Draw what has changed in the spec.
  follow() {
    if (this.drawn) Plotly.react(this.plot, this.data(), this.layout());
  }

  // The legend: a box to tick for each line.
  entries() {
    const lines = this.view.data.map((trace, i) => [trace, i]).filter(([trace]) => "label" in trace);
    this.legend.hidden = lines.length < 2;
    const entry = ([trace, i]) => {
      const box = make("input", { type: "checkbox", checked: !this.hidden.has(i) });
      box.addEventListener("change", () => this.show([i], box.checked));
      const label = make("label", {}, box, swatch(trace), make("span", {}, trace.label));
      for (const event of ["mouseenter", "focusin"]) label.addEventListener(event, () => this.stress(i));
      for (const event of ["mouseleave", "focusout"]) label.addEventListener(event, () => this.stress(null));
      return label;
    };
    const boxes = lines.map(entry);
    const all = make("label", { className: "all" }, make("input", { type: "checkbox", checked: this.hidden.size === 0 }), `all ${lines.length} lines`);
    all.firstChild.addEventListener("change", (event) => {
      this.show(lines.map(([, i]) => i), event.target.checked);
      for (const label of boxes) label.firstChild.checked = event.target.checked;
    });
    this.legend.replaceChildren(...(lines.length > 8 ? [all] : []), ...boxes);
  }

  show(lines, visible) {
    for (const i of lines) this.hidden[visible ? "delete" : "add"](i);
    Plotly.restyle(this.plot, { visible }, lines);
  }

  // One line before the others, while the pointer or the focus is on its name.
  stress(line) {
    const opacity = this.view.data.map((_, i) => (line === null || i === line ? 1 : 0.15));
    Plotly.restyle(this.plot, { opacity });
  }

  // A picture for somebody who does not have the page: with its title and its legend.
  save() {
    const shown = this.spec.views.length > 1 ? `${this.title} (${this.view.label})` : this.title;
    const lines = this.view.data.filter((trace, i) => "label" in trace && !this.hidden.has(i));
    const data = this.data().map((trace, i) => ({ ...trace, showlegend: "label" in this.view.data[i] && !this.hidden.has(i) }));
    const layout = this.layout();
    const range = (axis) => (this.deep ? undefined : [...this.plot._fullLayout[axis].range]);
    const rows = Math.ceil(lines.length / 4);
    const title = { text: plain(shown), font: { size: 16 }, x: 0, xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 14 } };
    Object.assign(layout, {
      width: 900, height: this.spec.height + 40 + 22 * rows, autosize: false, title, showlegend: lines.length > 1,
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 12 } },
      margin: { ...layout.margin, l: 16, r: 16, t: 48, b: 16 + 24 * rows },
    });
    for (const axis of ["xaxis", "yaxis"]) if (layout[axis] && range(axis)) layout[axis] = { ...layout[axis], range: range(axis) };
    if (this.deep) layout.scene.camera = this.plot._fullLayout.scene.camera;
    const filename = shown.replace(/[^\w.-]+/g, "-");
    return Plotly.downloadImage({ data, layout }, { format: "svg", filename, width: layout.width, height: layout.height });
  }
}
