/* What is still found: a grid over length of text and depth of a needle, by cache and budget. */
(function () {
  "use strict";
  const { rect, label, color, ink, count, plural } = kvfig;

  /* Share found over all cells of a grid. */
  function mean(rows) {
    const cells = rows.flat();
    return cells.reduce((sum, cell) => sum + cell, 0) / cells.length;
  }
  /* The grid of a method at a budget: the full cache has one for every budget. */
  function gridOf(method, budget, aware) {
    const kinds = method.grids[String(budget)] || method.grids["100"];
    return aware && kinds.aware ? kinds.aware : kinds.blind;
  }
  const named = (state, data) => data.methods.find(({ name }) => name === state.method);
  const percent = (share) => `${Math.round(100 * share)} %`;

  kvfig.define("needles", {
    pure: { mean, gridOf },
    controls: (data) => [
      { name: "method", label: "Cache", options: data.methods.map(({ name }) => [name, name]), value: data.methods[0].name },
      { name: "budget", label: "Tokens kept", values: [...data.budgets].reverse(), value: data.budgets[data.budgets.length - 1], say: (v) => `${v} %` },
      { name: "aware", label: "the question is known when tokens are let go", value: false },
    ],
    draw(state, data, { width, narrow }) {
      const rows = gridOf(named(state, data), state.budget, state.aware);
      const left = narrow ? 62 : 110, top = 34, right = width - 8, high = 46;
      const x = d3.scaleBand(data.depths.map(String), [left, right]).padding(0.06);
      const cells = rows.map((row, i) => row.map((share, j) => {
        const at = x(String(data.depths[j])), y = top + i * (high + 6);
        return [
          rect(at, y, x.bandwidth(), high, color(0), { "fill-opacity": 0.06 + 0.6 * share, stroke: color(0), "stroke-opacity": 0.5 }),
          label(at + x.bandwidth() / 2, y + high / 2 + 4, percent(share), { "text-anchor": "middle", fill: ink, "font-weight": 600 }),
        ];
      }));
      const bottom = top + rows.length * (high + 6);
      return [
        bottom + 40, cells,
        data.lengths.map((length, i) => label(left - 8, top + i * (high + 6) + high / 2 + 4, narrow ? count(length) : `${count(length)} tokens`, { "text-anchor": "end" })),
        data.depths.map((depth) => label(x(String(depth)) + x.bandwidth() / 2, top - 10, percent(depth), { "text-anchor": "middle" })),
        label(left, bottom + 16, narrow ? "depth; 0 % is the beginning" : "depth of the needle: 0 % is the beginning of the text", {}),
      ];
    },
    say(state, data) {
      const method = named(state, data), rows = gridOf(method, state.budget, state.aware);
      const whole = method.grids["100"] !== undefined;
      const kept = whole ? "every token" : `${state.budget} % of the tokens`;
      const last = rows.map((row) => [row[row.length - 1]]);
      return `${method.name}, ${kept}${whole ? "" : state.aware ? ", the question known" : ", the question not known"}: ${percent(mean(rows))} of the needles are found, ${percent(mean(last))} of those at the end of the text.`;
    },
    readout(state, data) {
      const rows = gridOf(named(state, data), state.budget, state.aware), full = gridOf(data.methods[0], 100, false);
      return [
        ["found", percent(mean(rows)), mean(rows) < mean(full) / 2 ? "bad" : ""],
        ["by the full cache", percent(mean(full))],
        ["asked in each cell", plural(data.n, "needle")],
      ];
    },
  });
})();
