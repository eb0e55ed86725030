// Two sliders over all windows of a run; a click on their map moves them, too. The map's mark and the curve follow
// them, and a sentence says what they come to.
"use strict";

class Explorer {
  constructor(place, [overview, curve]) {
    const [field, mark] = overview.view.data;
    const [line, model] = curve.view.data;
    Object.assign(this, { overview, curve, mark, line, model: model.y, sizes: field.y, ends: field.x, values: field.z });
    this.metric = place.dataset.metric;
    this.share = "share" in place.dataset;
    this.size = place.querySelector("[name=size]");
    this.end = place.querySelector("[name=end]");
    this.found = place.querySelector(".found");
    for (const slider of [this.size, this.end]) slider.addEventListener("input", () => this.follow());
    overview.clicked = ({ x, y }) => {
      this.end.value = this.ends.indexOf(x);
      this.size.value = this.sizes.indexOf(y);
      this.follow();
    };
    this.follow();
  }

  follow() {
    const [row, column] = [+this.size.value, +this.end.value];
    const [size, end, value] = [this.sizes[row], this.ends[column], this.values[row][column]];
    this.label(this.size, size);
    this.label(this.end, end);
    this.found.textContent = this.told(size, end, value, this.model[column]);
    Object.assign(this.mark, { x: [end], y: [value === null ? null : size] });
    this.line.y = this.values[row];
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
    if (value === null) return `There is no value for a window of ${models} that ends after round ${end}.`;
    const own = model === null ? "the model itself was not evaluated there" : `the model itself ${this.number(model)}`;
    return `The mean of the last ${models} after round ${end}: ${this.metric} ${this.number(value)}; ${own}.`;
  }

  number(value) { return this.share ? `${value.toFixed(2)} %` : `${+value.toPrecision(4)}`; }
}
