/* What figures are made of: pure functions, no DOM, so the same code draws in a page, in Jupyter and in node.
   A drawing is a tree of arrays, ["rect", {x: 1}, child, ...]; kvfig.text turns it into SVG. */
(function () {
  "use strict";
  const figures = {};
  const kvfig = (globalThis.kvfig = { figures });

  /* A figure: {controls(data), draw(state, data, box), say(state, data), readout?(state, data), pure?: {...}}. */
  kvfig.define = function (name, figure) {
    for (const part of ["controls", "draw", "say"])
      if (typeof figure[part] !== "function") throw new Error(`figure ${name} has no ${part}(…)`);
    figures[name] = Object.assign({ pure: {} }, figure);
  };

  /* The state that a figure starts with: each control's value, or what data.start says. */
  kvfig.start = function (name, data, given) {
    const state = {};
    for (const control of figures[name].controls(data)) state[control.name] = control.value;
    return kvfig.settle(name, Object.assign(state, data.start, given), data);
  };
  /* A figure may mend a state in which one control does not fit another: settle(state, data). */
  kvfig.settle = (name, state, data) => (figures[name].settle ? figures[name].settle(state, data) : state);

  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  kvfig.escape = escape;

  /* A tree as SVG text. Attributes that are null, undefined or false are left out. */
  kvfig.text = function text(tree) {
    if (tree === null || tree === undefined || tree === false) return "";
    if (!Array.isArray(tree)) return escape(tree);
    if (typeof tree[0] !== "string") return tree.map(text).join("");
    const [tag, attributes, ...children] = tree;
    const written = Object.entries(attributes || {})
      .filter(([, value]) => value !== null && value !== undefined && value !== false)
      .map(([key, value]) => ` ${key}="${escape(typeof value === "number" ? +value.toFixed(2) : value)}"`);
    return `<${tag}${written.join("")}>${children.map(text).join("")}</${tag}>`;
  };

  /* One whole picture of a state, as SVG text. */
  kvfig.svg = function (name, state, data, width) {
    const box = { width, narrow: width < 520 };
    const [height, ...children] = figures[name].draw(state, data, box);
    const label = `${data.title ? data.title + ". " : ""}${figures[name].say(state, data)}`;
    return kvfig.text([
      "svg",
      {
        xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${Math.ceil(height)}`, width, height: Math.ceil(height),
        role: "img", "aria-label": label, style: "font: 12px system-ui, sans-serif; max-width: 100%; height: auto",
      },
      ...children,
    ]);
  };

  /* Colors follow the page; the fallbacks read on white and on dark, for a picture that stands alone. */
  const fallback = ["#7a8290", "#2f80d0", "#d9731a", "#2e9c6a", "#c4504f", "#8f6fd0", "#a07d2c"];
  kvfig.ink = "var(--kv-0, #7a8290)";
  kvfig.faint = "var(--kv-faint, #7a829040)";
  kvfig.paper = "var(--kv-paper, transparent)";
  kvfig.bad = "var(--kv-4, #c4504f)";
  kvfig.good = "var(--kv-3, #2e9c6a)";
  kvfig.color = (i) => `var(--kv-${1 + (i % 6)}, ${fallback[1 + (i % 6)]})`;

  /* Short ways to say things. `style` beats attributes where a color is a variable. */
  kvfig.rect = (x, y, width, height, fill, more) =>
    ["rect", Object.assign({ x, y, width: Math.max(0, width), height: Math.max(0, height), style: `fill:${fill}` }, more)];
  kvfig.line = (x1, y1, x2, y2, stroke, more) =>
    ["line", Object.assign({ x1, y1, x2, y2, style: `stroke:${stroke || kvfig.ink}` }, more)];
  kvfig.path = (d, stroke, more) =>
    ["path", Object.assign({ d, style: `fill:none;stroke:${stroke};stroke-width:2` }, more)];
  kvfig.label = (x, y, text, more) => {
    const { fill, weight, ...rest } = more || {};
    return ["text", Object.assign({ x, y, style: `fill:${fill || kvfig.ink}${weight ? ";font-weight:" + weight : ""}` }, rest), text];
  };

  /* Axes of a D3 scale: ticks, their labels, a name with a unit. */
  kvfig.axisX = function (scale, y, name, options) {
    const { ticks = 5, format, grid = 0 } = options || {};
    const say = format || scale.tickFormat(ticks);
    const [from, to] = scale.range();
    return [
      "g", {}, kvfig.line(from, y, to, y),
      ...scale.ticks(ticks).map((t) => [
        "g", {}, grid ? kvfig.line(scale(t), y, scale(t), y - grid, kvfig.faint) : null,
        kvfig.line(scale(t), y, scale(t), y + 5), kvfig.label(scale(t), y + 18, say(t), { "text-anchor": "middle" }),
      ]),
      kvfig.label((from + to) / 2, y + 36, name, { "text-anchor": "middle" }),
    ];
  };
  kvfig.axisY = function (scale, x, name, options) {
    const { ticks = 5, format, grid = 0 } = options || {};
    const say = format || scale.tickFormat(ticks);
    const [low, high] = scale.range();
    return [
      "g", {}, kvfig.line(x, low, x, high),
      ...scale.ticks(ticks).map((t) => [
        "g", {}, grid ? kvfig.line(x, scale(t), x + grid, scale(t), kvfig.faint) : null,
        kvfig.line(x - 5, scale(t), x, scale(t)), kvfig.label(x - 8, scale(t) + 4, say(t), { "text-anchor": "end" }),
      ]),
      kvfig.label(x - 34, Math.min(low, high) - 10, name),
    ];
  };

  /* Numbers as kvedu.units and Python's format write them. */
  const inUnits = (bytes, units, digits) => {
    for (const [name, size] of units) if (Math.abs(bytes) >= size) return `${(bytes / size).toFixed(digits)} ${name}`;
    return `${bytes.toFixed(0)} B`;
  };
  kvfig.binary = (bytes, digits = 2) =>
    inUnits(bytes, [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]], digits);
  kvfig.decimal = (bytes, digits = 2) =>
    inUnits(bytes, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]], digits);
  kvfig.count = (n) => Math.round(n).toLocaleString("en-US");
  kvfig.plural = (n, thing) => `${kvfig.count(n)} ${thing}${n === 1 ? "" : "s"}`;
})();
