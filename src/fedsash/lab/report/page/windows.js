// Two sliders over all windows of a run. The map's mark and the curve follow them, and a sentence says what they come to.
"use strict";

class Explorer {
  constructor(place, [overview, curve]) {
    this.map = JSON.parse(document.getElementById(place.dataset.map).textContent);
    this.overview = overview;
    this.curve = curve;
    this.size = place.querySelector("[name=size]");
    this.end = place.querySelector("[name=end]");
    this.found = place.querySelector(".found");
    for (const slider of [this.size, this.end]) slider.addEventListener("input", () => this.follow());
    this.follow();
  }

  follow() {
    const { sizes, ends, values, model } = this.map;
    const [row, column] = [+this.size.value, +this.end.value];
    const [size, end] = [sizes[row], ends[column]];
    this.label(this.size, size);
    this.label(this.end, end);
    this.found.textContent = this.told(size, end, values[row][column], model[column]);

    const mark = this.overview.view.data.find((trace) => trace.type === "scatter");
    Object.assign(mark, { x: [end], y: [values[row][column] === null ? null : size] });
    this.curve.view.data[0].y = values[row];
    Object.assign(this.curve.view.layout.shapes[0], { x0: end, x1: end });
    this.overview.follow();
    this.curve.follow();
  }

  label(slider, value) {
    slider.parentElement.querySelector("output").textContent = value;
    slider.setAttribute("aria-valuetext", value);
  }

  told(size, end, value, model) {
    const models = size === 1 ? "1 model" : `${size} models`;
    if (value === null) return `No window of ${models} ends after round ${end}.`;
    const own = model === null ? "the model itself was not evaluated there" : `the model itself ${this.number(model)}`;
    return `The mean of the last ${models} after round ${end}: ${this.map.name} ${this.number(value)}; ${own}.`;
  }

  number(value) { return this.map.share ? `${value.toFixed(2)} %` : `${+value.toPrecision(4)}`; }
}
