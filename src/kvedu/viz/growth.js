/* A cache that grows: which K and V rows a step computes, which it reads, and what it costs, with and without a cache. */
(function () {
  "use strict";
  const { rect, label, color, ink, faint, binary, count, plural, sumCost } = kvfig;

  /* Rows of K (and of V), per layer and head: computed in step i, held before it, seen by its queries. */
  const computed = (prompt, i, cached) => (cached && i > 0 ? 1 : prompt + i);
  const held = (prompt, i, cached) => (cached && i > 0 ? prompt + i - 1 : 0);
  /* FLOPs and bytes of step i. */
  function stepCost(config, prompt, i, cached, size) {
    if (!cached) return sumCost(kvfig.uncachedCost(config, prompt + i, 1, size));
    return sumCost(i === 0 ? kvfig.prefillCost(config, prompt, 0, 1, size) : kvfig.decodeCost(config, prompt + i - 1, 1, size));
  }
  function soFar(config, prompt, i, cached, size) {
    let flops = 0, bytes = 0, rows = 0;
    for (let step = 0; step <= i; step++) {
      const cost = stepCost(config, prompt, step, cached, size);
      flops += cost.flops;
      bytes += cost.bytes;
      rows += computed(prompt, step, cached);
    }
    return { flops, bytes, rows };
  }
  const giga = (flops) => (flops / 1e9 < 100 ? (flops / 1e9).toPrecision(3) : count(flops / 1e9));
  const seen = (text) => text.replace(/\n/g, "⏎").replace(/ /g, "·") || "∅";

  kvfig.define("growth", {
    pure: { computed, held, stepCost, soFar },
    controls: (data) => [
      { name: "step", label: "Step", min: 0, max: data.new.length - 1, value: 3, play: true, every: 700, say: (v) => `${v}` },
      { name: "cached", label: "Cache", options: [[true, "with"], [false, "without"]], value: true },
    ],
    draw(state, data, { width, narrow }) {
      const P = data.prompt.length, i = state.step, run = P + i;
      const tokens = [...data.prompt, ...data.new];
      const font = narrow ? 10 : 12, letter = font * 0.61, high = narrow ? 40 : 46;
      const tree = [];
      const key = [["computed now", color(1)], ["read from the cache", color(0)], ["gone", "none"]].filter(([text]) => (state.cached ? text !== "gone" : text === "computed now"));
      key.forEach(([text, fill], at) => tree.push(rect(8 + at * 118, 4, 12, 11, fill), label(25 + at * 118, 14, text)));
      let x = 8, y = 32;
      tokens.slice(0, run + 1).forEach((token, t) => {
        const text = seen(token), wide = Math.max(22, text.length * letter + 8);
        if (x + wide > width - 4) { x = 8; y += high; }
        const isNew = t === run, fresh = t >= held(P, i, state.cached) && !isNew;
        tree.push(label(x + wide / 2, y + font - 2, text, { "text-anchor": "middle", "font-size": font, "font-family": "ui-monospace, monospace", weight: t >= P ? 700 : 400 }));
        if (isNew) tree.push(rect(x + 0.5, y - 3, wide - 1, font + 6, "none", { style: `fill:none;stroke:${ink}` }), label(x + wide / 2, y + font + 16, "new", { "text-anchor": "middle", "font-size": 10 }));
        else for (const row of [0, 1]) {
          tree.push(rect(x + 1, y + font + 4 + row * 11, wide - 3, 9, fresh ? color(1) : color(0), { opacity: fresh ? 1 : 0.75 }));
          if (wide > 14) tree.push(label(x + wide / 2 - 1, y + font + 12 + row * 11, row ? "V" : "K", { "text-anchor": "middle", "font-size": 9, fill: "var(--kv-paper, #fff)" }));
        }
        x += wide + 2;
      });
      // Room for the whole text, so that nothing below moves while it plays.
      let lines = 1, end = 8;
      for (const token of tokens.slice(0, P + data.new.length)) {
        const wide = Math.max(22, seen(token).length * letter + 8);
        if (end + wide > width - 4) { end = 8; lines += 1; }
        end += wide + 2;
      }
      const top = 32 + lines * high + 14;
      const most = soFar(data.model, P, data.new.length - 1, false, data.bytes).flops;
      const scale = d3.scaleLinear([0, most], [0, width - 20]);
      tree.push(label(8, top, "arithmetic so far", { weight: 600 }));
      [[true, "with a cache"], [false, "without"]].forEach(([cached, name], row) => {
        const { flops } = soFar(data.model, P, i, cached, data.bytes), at = top + 10 + row * 32;
        tree.push(rect(8, at + 14, scale(flops), 12, color(cached ? 0 : 1), { opacity: cached === state.cached ? 1 : 0.5 }));
        tree.push(rect(8, at + 14, width - 20, 12, "none", { style: `fill:none;stroke:${faint}` }));
        tree.push(label(8, at + 10, `${name}: ${giga(flops)} GFLOP`, { weight: cached === state.cached ? 600 : 400, "font-size": 11 }));
      });
      return [top + 82, ...tree];
    },
    say(state, data) {
      const P = data.prompt.length, i = state.step, rows = computed(P, i, state.cached), old = held(P, i, state.cached);
      const does = i === 0 ? `Prefill of ${plural(P, "token")}` : `Step ${i}`;
      const reads = old ? ` and reads ${count(old)} from the cache` : state.cached ? ", and stores them" : ", and keeps none of them";
      return `${does}, ${state.cached ? "with" : "without"} a cache: it computes ${plural(rows, "row")} of K and of V in each layer${reads}. The new token is “${seen(data.new[i])}”.`;
    },
    readout(state, data) {
      const P = data.prompt.length, i = state.step;
      const mine = soFar(data.model, P, i, state.cached, data.bytes), other = soFar(data.model, P, i, !state.cached, data.bytes);
      const now = stepCost(data.model, P, i, state.cached, data.bytes);
      return [
        ["rows computed so far", count(mine.rows)],
        [`the loop ${state.cached ? "without" : "with"} a cache`, count(other.rows)],
        ["this step", `${giga(now.flops)} GFLOP, ${binary(now.bytes, 0)} moved`],
        ["cache held", binary(state.cached ? kvfig.cacheBytes(data.model, P + i, 1, data.bytes) : 0)],
      ];
    },
  });
})();
