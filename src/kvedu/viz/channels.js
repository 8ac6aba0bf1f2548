/* Real keys or values as a heat map, tokens down and channels across: as they are, as they come back from codes, and the error. */
(function () {
  "use strict";
  const { rect, line, label, path, color, ink, bad } = kvfig;

  /* Numbers of one group to codes and back: the lowest number and the range over 2^bits - 1 steps are kept. */
  function comesBack(numbers, bits) {
    const low = Math.min(...numbers), scale = (Math.max(...numbers) - low) / (2 ** bits - 1);
    return numbers.map((x) => (scale === 0 ? low : low + Math.round((x - low) / scale) * scale));
  }

  /* A table [T][D] coded in groups along the head ("head": a token's neighbors share a scale) or along the tokens. */
  function coded(table, bits, along, group) {
    if (bits > 8) return table.map((row) => row.slice());
    const out = table.map((row) => row.slice());
    for (let t = 0; t < table.length; t += along === "head" ? 1 : group) {
      for (let d = 0; d < table[0].length; d += along === "head" ? group : 1) {
        const places = d3.range(group).map((i) => (along === "head" ? [t, d + i] : [t + i, d]));
        comesBack(places.map(([a, b]) => table[a][b]), bits).forEach((x, i) => { out[places[i][0]][places[i][1]] = x; });
      }
    }
    return out;
  }

  const difference = (a, b) => a.map((row, t) => row.map((x, d) => x - b[t][d]));
  const squares = (table) => d3.sum(table, (row) => d3.sum(row, (x) => x * x));
  /* Length of the error over the length of what was coded. */
  const relativeError = (table, back) => Math.sqrt(squares(difference(table, back)) / squares(table));

  const SIDES = { keys: "keys", values: "values" };
  const ALONG = { head: "per token", tokens: "per channel" };
  const LEVELS = [0.03, 0.08, 0.16, 0.28, 0.42, 0.58, 0.76, 1.01];

  function seen(state, data) {
    const head = data.heads.find(({ name }) => name === state.head) || data.heads[0];
    const table = head[state.side], back = coded(table, state.bits, state.along, data.group);
    const shown = state.show === "numbers" ? table : state.show === "back" ? back : difference(table, back);
    const columns = d3.range(table[0].length).map((d) => d3.mean(table, (row) => Math.abs(row[d])));
    const error = relativeError(table, back);
    return { head, table, back, shown, columns, error };
  }

  const perplexity = (state, data) => (state.bits > 8 ? data.full : (data.measured.find((m) => m.side === state.side && m.along === state.along && m.bits === state.bits) || {}).perplexity);
  const percent = (x) => `${(100 * x).toPrecision(x < 0.0995 ? 2 : 3)} %`;
  const storedBits = (state, data) => (state.bits > 8 ? 16 : data.stored_bits[state.bits]);

  kvfig.define("channels", {
    pure: { comesBack, coded, relativeError },
    controls: (data) => [
      { name: "head", label: "Head", options: data.heads.map(({ name }) => [name, name]), value: data.heads[0].name },
      { name: "side", label: "What", options: Object.entries(SIDES), value: "keys" },
      { name: "along", label: "Scales", options: Object.entries(ALONG), value: "head" },
      { name: "bits", label: "Bits", values: [16, 8, 4, 2], value: 16, say: (v) => (v > 8 ? "not coded" : `${v}`) },
      { name: "show", label: "Show", options: [["numbers", "numbers"], ["back", "what comes back"], ["error", "error"]], value: "numbers" },
    ],
    draw(state, data, { width }) {
      const { table, shown, columns } = seen(state, data), T = table.length, D = table[0].length;
      const left = 30, cell = Math.min(10, (width - left - 8) / D), bars = 56, top = 20, y0 = top + bars + 6;
      const most = d3.max(table, (row) => d3.max(row, Math.abs)), tree = [];
      const height = d3.scaleLinear([0, d3.max(columns)], [0, bars - 4]);
      tree.push(label(left, 12, `mean size of each channel, at most ${d3.max(columns).toPrecision(2)}`, { "font-size": 11 }));
      columns.forEach((x, d) => tree.push(rect(left + d * cell, top + bars - height(x), Math.max(0.5, cell - 0.5), height(x), color(0))));
      const shade = state.show === "error" ? bad : color(0);
      for (let i = 0; i < LEVELS.length - 1; i++) {
        let d = "";
        for (let t = 0; t < T; t++) for (let c = 0; c < D; c++) {
          const size = Math.abs(shown[t][c]) / most;
          if (size >= LEVELS[i] && size < LEVELS[i + 1]) d += `M${(left + c * cell).toFixed(1)} ${(y0 + t * cell).toFixed(1)}h${cell.toFixed(1)}v${cell.toFixed(1)}h${(-cell).toFixed(1)}z`;
        }
        if (d) tree.push(["path", { d, style: `fill:${shade}`, opacity: 0.14 + 0.86 * (i / (LEVELS.length - 2)) }]);
      }
      tree.push(rect(left, y0, D * cell, T * cell, "none", { style: `fill:none;stroke:${ink}` }));
      if (state.bits <= 8) {
        const across = state.along === "head";
        for (let g = data.group; g < (across ? D : T); g += data.group) tree.push(across
          ? line(left + g * cell, y0, left + g * cell, y0 + T * cell, ink, { "stroke-dasharray": "4 3" })
          : line(left, y0 + g * cell, left + D * cell, y0 + g * cell, ink, { "stroke-dasharray": "4 3" }));
      }
      const bottom = y0 + T * cell;
      tree.push(label(left, bottom + 14, `channel 0 … ${D - 1}`, { "font-size": 11 }));
      tree.push(label(left - 6, y0 + 10, "0", { "font-size": 11, "text-anchor": "end" }), label(left - 6, bottom, String(T - 1), { "font-size": 11, "text-anchor": "end" }));
      tree.push(label(10, y0 + (T * cell) / 2, "token", { "font-size": 11, "text-anchor": "middle", transform: `rotate(-90 10 ${y0 + (T * cell) / 2})` }));
      return [bottom + 22, ...tree];
    },
    say(state, data) {
      const { head, table, columns, error } = seen(state, data), largest = columns.indexOf(d3.max(columns));
      const typical = d3.median(columns);
      const what = `${SIDES[state.side][0].toUpperCase()}${SIDES[state.side].slice(1)} of ${head.name}, ${table.length} tokens: channel ${largest} is the largest, ${(columns[largest] / typical).toPrecision(2)} times the median channel.`;
      if (state.bits > 8) return `${what} Not coded.`;
      const measured = perplexity(state, data);
      const cost = measured ? ` With the ${SIDES[state.side]} of every head coded like this, the model's perplexity goes from ${data.full.toPrecision(4)} to ${measured.toPrecision(4)}.` : "";
      return `${what} In ${state.bits} bits with scales ${ALONG[state.along]}, what comes back is ${percent(error)} off.${cost}`;
    },
    readout(state, data) {
      const { error } = seen(state, data), measured = perplexity(state, data);
      return [
        ["bits per number, scales included", storedBits(state, data)],
        ["error of this head", state.bits > 8 ? "0" : percent(error), error > 0.15 ? "bad" : "good"],
        ...(measured ? [[`perplexity, ${SIDES[state.side]} coded`, measured.toPrecision(4), measured > 1.03 * data.full ? "bad" : "good"]] : []),
      ];
    },
  });
})();
