/* Which smaller cache: every strategy against a machine's memory and a limit on the step. Twin of kvedu.analysis.strategies. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, good, binary, count, plural } = kvfig;

  /* Bytes of one side's coded vectors: Quantized.bytes_of. A group of null spans the vector. */
  function coded(side, tokens, vectors, length) {
    const group = side.group === null ? length : side.group;
    const [runs, size] = side.along === "head" ? [tokens * vectors, length] : [vectors * length, tokens];
    return runs * (Math.ceil((size * side.bits) / 8) + Math.ceil(size / group) * (side.scale_bytes + side.zero_bytes));
  }
  /* Tokens that are coded: all but the last `residual` ones, in whole groups where groups lie along the tokens. */
  function codedTokens(side, tokens, residual) {
    const step = side.along === "tokens" ? side.group : 1;
    return Math.floor(Math.max(0, tokens - residual) / step) * step;
  }
  function vectorsOf(strategy, model) {
    if (strategy.latent) return [[1, strategy.latent[0] + strategy.latent[1]]];
    return strategy.kv_heads === null ? model.vectors : model.vectors.map(([, length]) => [strategy.kv_heads, length]);
  }
  function tokensHeld(strategy, context) {
    return strategy.window === null ? Math.ceil(context * strategy.keeps) : Math.min(context, strategy.window);
  }
  /* Bytes of one sequence's cache, wherever it lies. */
  function held(strategy, model, context) {
    const tokens = tokensHeld(strategy, context), sides = [strategy.keys, strategy.values];
    let total = strategy.keeps < 1 ? 8 * tokens * model.layers * model.heads : 0;
    for (const { layers, window } of model.groups) {
      const here = window === null ? tokens : Math.min(tokens, window);
      vectorsOf(strategy, model).forEach(([vectors, length], at) => {
        const side = sides[at], part = side ? codedTokens(side, here, strategy.residual) : 0;
        total += layers * ((here - part) * vectors * length * 2 + (side ? coded(side, part, vectors, length) : 0));
      });
    }
    return total;
  }
  /* One strategy on one machine: Option of the library. */
  function option(strategy, model, machine, context, batch, reserve, host) {
    const one = held(strategy, model, context);
    const here = strategy.host ? Math.ceil((2 * one) / model.layers) : one;
    const room = Math.floor((1 - reserve) * machine.memory);
    const moved = strategy.host ? (batch * one) / host : 0;
    return {
      cache: batch * here, room, weights: model.weights, step: Math.max((model.weights + batch * one) / machine.bandwidth, moved),
      most: Math.floor(Math.max(0, room - model.weights) / here), fits: model.weights + batch * here <= room,
    };
  }

  const retrains = (strategy) => strategy.kv_heads !== null || strategy.latent !== null;
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
  const named = (list, name) => list.find((item) => item.name === name);

  function found(state, data) {
    const model = named(data.models, state.model), machine = named(data.machines, state.machine);
    return data.strategies.map((strategy) => ({
      strategy, ...option(strategy, model, machine, state.context, state.batch, data.reserve, data.host),
      loss: strategy.name in data.losses ? data.losses[strategy.name] : null,
    }));
  }
  const inTime = (one, state) => !state.limit || one.step <= state.limit / 1000;
  /* Place of the chosen strategy, or -1: least loss among those that fit, are in time, need no new model, and were measured. */
  function chosen(all, state) {
    let best = -1;
    all.forEach((one, at) => {
      if (!one.fits || !inTime(one, state) || retrains(one.strategy) || one.loss === null) return;
      if (best < 0 || one.loss < all[best].loss) best = at;
    });
    return best;
  }
  const why = (one, state) =>
    retrains(one.strategy) ? (one.fits ? "would fit, if trained so" : "too large even so") : !one.fits ? "does not fit" : !inTime(one, state) ? "too slow" : one.loss === null ? "loss not measured" : "fits";

  kvfig.define("strategy", {
    pure: { held, option },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "machine", label: "Machine", options: data.machines.map(({ name }) => [name, name]), value: data.machines[0].name },
      { name: "context", label: "Tokens each", values: powers(9, 17), value: 8192 },
      { name: "batch", label: "Sequences", values: [1, 2, 4, 8, 12, 16, 24, 32, 64, 128], value: 12 },
      { name: "limit", label: "Limit per token", values: [0, 20, 50, 80, 100, 150, 200], value: 0, say: (v) => (v ? `${v} ms` : "none") },
    ],
    draw(state, data, { width, narrow }) {
      const all = found(state, data), pick = chosen(all, state), { room, weights } = all[0];
      const row = narrow ? 44 : 30, left = narrow ? 6 : 150, right = width - (narrow ? 8 : 170), top = 26;
      const most = Math.max(room, ...all.map((one) => one.weights + one.cache));
      const x = d3.scaleLinear([0, (Math.min(most, 3 * room) * 1.02) / 2 ** 30], [left, right]).nice(4);
      const bottom = top + row * all.length, gib = (bytes) => Math.min(x(bytes / 2 ** 30), right);
      const bars = all.map((one, at) => {
        const y = top + row * at, high = narrow ? 14 : 18, y0 = narrow ? y + 17 : y + 4;
        const fill = at === pick ? good : color(0), idle = !one.fits || retrains(one.strategy) || !inTime(one, state);
        const end = gib(one.weights + one.cache), over = one.weights + one.cache > room;
        const words = `${why(one, state)}${at === pick ? ": chosen" : ""}`;
        return [
          label(narrow ? left : left - 8, narrow ? y + 11 : y0 + 13, one.strategy.name, { "text-anchor": narrow ? "start" : "end", "font-weight": at === pick ? 700 : 400 }),
          rect(gib(0), y0, Math.max(0, gib(weights) - gib(0)), high, faint),
          rect(gib(weights), y0, Math.max(1, end - gib(weights)), high, fill, over ? { "fill-opacity": 0.25, stroke: bad, "stroke-dasharray": "5 3" } : idle ? { "fill-opacity": 0.4 } : {}),
          narrow ? line(gib(room), y0 - 2, gib(room), y0 + high + 2, ink, { "stroke-width": 2 }) : null,
          label(narrow ? right : right + 8, narrow ? y + 11 : y0 + 13, words, { "text-anchor": narrow ? "end" : "start", fill: at === pick ? good : one.fits ? ink : bad }),
        ];
      });
      return [
        bottom + 44, bars,
        narrow ? null : line(gib(room), top - 8, gib(room), bottom, ink, { "stroke-width": 2 }),
        label(gib(room), 12, `room: ${binary(room, 1)}`, { "text-anchor": gib(room) > width / 2 ? "end" : "start" }),
        kvfig.axisX(x, bottom + 2, "weights (gray) and caches in GiB", { ticks: Math.max(3, width / 140), format: (v) => count(v) }),
      ];
    },
    say(state, data) {
      const all = found(state, data), pick = chosen(all, state), plain = all[0];
      const asked = `${plural(state.batch, "sequence")} of ${count(state.context)} tokens`;
      if (plain.weights > plain.room) return `Out of memory: the weights of ${state.model} alone exceed what ${state.machine} has to give.`;
      if (pick < 0) return `Nothing that keeps this model serves ${asked}${state.limit ? ` within ${state.limit} ms a token` : ""}: take a larger machine, or fewer or shorter sequences.`;
      const one = all[pick], first = pick === 0 ? "nothing needs to change" : `as trained it ${plain.fits ? "is too slow" : "does not fit"}; choose ${one.strategy.name}`;
      return `${asked}: ${first}. ${plural(one.most, "sequence")} would fit, a step takes at least ${(1e3 * one.step).toFixed(0)} ms, and ${(100 * one.loss).toFixed(0)} % of the recall questions are lost.`;
    },
    readout(state, data) {
      const all = found(state, data), pick = chosen(all, state), one = all[Math.max(pick, 0)];
      return [
        ["cache as trained", binary(all[0].cache), all[0].fits ? "" : "bad"],
        ["chosen", pick < 0 ? "nothing" : one.strategy.name, pick < 0 ? "bad" : "good"],
        ["its cache", pick < 0 ? "–" : binary(one.cache)],
        ["step at least", pick < 0 ? "–" : `${(1e3 * one.step).toFixed(1)} ms`],
        ["recall lost", pick < 0 ? "–" : `${(100 * one.loss).toFixed(0)} %`],
      ];
    },
  });
})();
