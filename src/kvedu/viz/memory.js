/* The memory calculator: weights and KV cache against a machine's memory. Twin of kvedu.analysis.memory. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, bad, binary, decimal, count, plural } = kvfig;

  /* Bytes of the cache: `groups` of layers that behave alike, each {layers, window, elements}. */
  function cacheBytes(groups, tokens, batch, size) {
    let one = 0;
    for (const { layers, window, elements } of groups)
      one += layers * elements * size * (window === null ? tokens : Math.min(tokens, window));
    return batch * one;
  }
  /* Most sequences of `tokens` tokens whose caches fit a budget; 0 if there is none left. */
  function mostSequences(groups, budget, tokens, size) {
    return budget <= 0 ? 0 : Math.floor(budget / cacheBytes(groups, tokens, 1, size));
  }

  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
  const model = (state, data) => data.models.find(({ name }) => name === state.model);
  const machine = (state, data) => data.machines.find(({ name }) => name === state.machine);

  function sizes(state, data) {
    const { groups, weights: table } = model(state, data);
    const weights = table[state.weight];
    const cache = cacheBytes(groups, state.context, state.batch, state.element);
    const room = machine(state, data).memory;
    return { weights, cache, room, total: weights + cache, fits: mostSequences(groups, room - weights, state.context, state.element) };
  }

  kvfig.define("memory", {
    pure: { cacheBytes, mostSequences },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "machine", label: "Memory of", options: data.machines.map(({ name }) => [name, name]), value: data.machines[0].name },
      { name: "context", label: "Tokens each", values: powers(7, 17), value: 4096 },
      { name: "batch", label: "Sequences", values: powers(0, 10), value: 16 },
      { name: "element", label: "Cache", options: [[4, "fp32"], [2, "bf16"], [1, "fp8"]], value: 2 },
      { name: "weight", label: "Weights", options: [[4, "fp32"], [2, "bf16"], [1, "int8"]], value: 2 },
    ],
    draw(state, data, { width }) {
      const { weights, cache, room, total } = sizes(state, data);
      const gib = d3.scaleLinear([0, (Math.max(room, total) * 1.04) / 2 ** 30], [10, width - 14]).nice(4);
      const x = (bytes) => gib(bytes / 2 ** 30);
      const part = (from, bytes, fill, name) => {
        const left = x(from), right = x(from + bytes), needed = 8 * name.length;
        const inside = right - left > needed, before = left - x(0) > 2 * needed; // a narrow part: its name ends or begins at its edge
        return [
          rect(left, 34, right - left, 40, fill),
          inside ? label(left + 8, 26, name, { fill }) : bytes > 0 && from > 0 ? label(before ? right : left, 26, name, { fill, "text-anchor": before ? "end" : "start" }) : null,
        ];
      };
      const over = total > room;
      const limit = `${state.machine}: ${decimal(room, 0)} = ${binary(room, 1)}`;
      return [
        130,
        part(0, weights, color(0), "weights"),
        part(weights, Math.min(cache, Math.max(0, room - weights)), color(1), "KV cache"),
        over ? [
          rect(Math.max(x(room), x(weights)), 34, x(total) - Math.max(x(room), x(weights)), 40, "none", { style: `fill:${bad};fill-opacity:.25;stroke:${bad};stroke-dasharray:5 3` }),
        ] : null,
        line(x(room), 12, x(room), 88, over ? bad : ink, { "stroke-width": 2 }),
        label(Math.max(x(room) - 6, 6.4 * limit.length), 12, limit, { "text-anchor": "end", fill: over ? bad : ink }),
        kvfig.axisX(gib, 88, "memory in GiB", { ticks: Math.max(3, width / 120), format: (v) => count(v) }),
      ];
    },
    say(state, data) {
      const { weights, cache, room, total, fits } = sizes(state, data);
      const held = `${plural(state.batch, "sequence")} of ${count(state.context)} tokens ${state.batch === 1 ? "needs" : "need"} ${binary(cache)} of cache beside ${binary(weights)} of weights.`;
      if (weights > room) return `Out of memory: the weights of ${state.model} alone exceed ${state.machine}. ${held}`;
      if (total > room) return `Out of memory by ${binary(total - room)}: ${held} ${plural(fits, "sequence")} would fit.`;
      return `It fits: ${held} Up to ${plural(fits, "sequence")} of this length would fit.`;
    },
    readout(state, data) {
      const { groups, positions } = model(state, data);
      const { cache, total, room, fits } = sizes(state, data);
      return [
        ["per token", binary(cacheBytes(groups, 1, 1, state.element))],
        ["KV cache", binary(cache)],
        ["with weights", binary(total), total > room ? "bad" : "good"],
        ["fit in memory", plural(fits, "sequence"), fits < state.batch ? "bad" : "good"],
        ["longest context of the model", count(positions), state.context > positions ? "bad" : ""],
      ];
    },
  });
})();
