/* FlashAttention tile by tile: which keys each block of queries loads, what a row's running softmax holds, and the bytes. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, decimal, plural, count } = kvfig;
  const LONG = 4096; // tokens for which the bytes are said too

  /* The loop bounds of the kernel, as kvedu.kernels.walk has them: causal, unsplit, no window. */
  function walk(fresh, old, group, blockM, blockS) {
    const tokens = Math.floor(blockM / group), edges = blockM > 32, blocks = [];
    for (let first = 0; first < fresh; first += tokens) {
      const last = Math.min(first + tokens, fresh), end = old + last, tiles = [];
      const take = (lo, hi, masked) => { for (let s = lo; s < hi; s += blockS) tiles.push({ first: s, end: Math.min(s + blockS, hi), masked }); };
      const whole = edges ? Math.floor(Math.min(end, old + first + 1) / blockS) * blockS : 0;
      take(0, whole, false);
      take(whole, end, true);
      blocks.push({ first, end: last, tiles });
    }
    return blocks;
  }
  function tiledBytes(fresh, old, heads, kvHeads, D, blockM, size) {
    const tokens = Math.floor(blockM / (heads / kvHeads));
    let keys = 0;
    for (let first = 0; first < fresh; first += tokens) keys += old + Math.min(first + tokens, fresh);
    return (2 * keys * kvHeads * D + 2 * fresh * heads * D) * size;
  }
  const naiveBytes = (fresh, old, heads, kvHeads, D, size) => (4 * heads * fresh * (old + fresh) + 2 * fresh * heads * D + 2 * kvHeads * (old + fresh) * D) * size;
  const onChip = (blockM, blockS, D, size) => size * D * (blockM + 2 * blockS) + 4 * blockM * (D + 2);
  /* A row's running maximum and sum (base 2) after each tile; keys after the row's own are hidden. */
  function running(scores, tiles) {
    let m = -Infinity, l = 0;
    return tiles.map(({ first, end }) => {
      const seen = scores.slice(first, Math.min(end, scores.length));
      const top = Math.max(m, ...seen), shrink = top === -Infinity ? 1 : 2 ** (m - top);
      l = l * shrink + d3.sum(seen, (s) => 2 ** (s - top));
      m = top;
      return { m, l, shrink };
    });
  }

  const steps = (state, data) => walk(data.tokens.length, 0, data.group, state.rows, state.keys).flatMap((block, b) => block.tiles.map((tile, i) => ({ block, b, tile, i })));
  function at(state, data) {
    const all = steps(state, data), now = state.step ? all[state.step - 1] : null;
    const block = (now || all[0]).block, head = data.heads.find(({ name }) => name === state.head);
    const row = block.end - 1, runs = running(head.scores[row], block.tiles.slice(0, now ? now.i + 1 : 0));
    const done = all.slice(0, state.step), D = data.head_dim, T = data.tokens.length;
    const read = 2 * done.reduce((n, { block: b, tile, i }) => n + D * (2 * (tile.end - tile.first) + (i ? 0 : data.group * (b.end - b.first))), 0);
    const grid = Math.ceil(T / state.keys) * new Set(all.map(({ b }) => b)).size;
    return { all, now, block, row, runs, done, read, skipped: grid - all.length, grid };
  }
  const number = (x) => x.toFixed(2);

  function chip(state, data, found, x, y, width) {
    const { block, runs, now } = found, D = data.head_dim;
    const rows = data.group * (block.end - block.first);
    const parts = [["queries", state.rows * D * 2, 0], ["tile of keys", state.keys * D * 2, 1], ["tile of values", state.keys * D * 2, 1], ["results, fp32", state.rows * (D + 2) * 4, 2]];
    const wide = d3.scaleLinear([0, 64 * (D + 2) * 4], [0, width - 8]);
    const tree = [label(x, y, `On chip: ${decimal(onChip(state.rows, state.keys, D, 2), 1)}`, { weight: 600 })];
    parts.forEach(([name, bytes, shade], i) => {
      const top = y + 12 + 32 * i, shown = now || shade !== 1;
      tree.push(label(x, top + 10, `${name}: ${decimal(bytes, 1)}`, { "font-size": 11 }));
      tree.push(rect(x, top + 14, wide(bytes), 8, color(shade), { opacity: shown ? 0.9 : 0.25 }));
    });
    const base = y + 12 + 32 * parts.length + 14, last = runs[runs.length - 1];
    tree.push(label(x, base, `Token ${found.row}, one row of ${rows}:`, { weight: 600 }));
    const say = last ? [`maximum ${number(last.m)}`, `sum ${number(last.l)}`, runs.length > 1 ? `old sum and results × ${last.shrink.toFixed(3)}` : "nothing older to shrink"] : ["maximum −∞", "sum 0", "no tile yet"];
    say.forEach((text, i) => tree.push(label(x, base + 17 * (i + 1), text, { "font-size": 11 })));
    return { tree, bottom: base + 17 * 3 + 8 };
  }

  kvfig.define("tiles", {
    pure: { walk, tiledBytes, naiveBytes, onChip, running },
    controls: (data) => [
      { name: "head", label: "Scores of", options: data.heads.map(({ name }) => [name, name]), value: data.heads[0].name },
      { name: "rows", label: "Query rows in a block", options: [16, 32, 64].map((n) => [n, String(n)]), value: 16 },
      { name: "keys", label: "Keys in a tile", options: [8, 16, 32].map((n) => [n, String(n)]), value: 16 },
      { name: "step", label: "Tiles loaded", values: (state, data) => d3.range(0, steps({ rows: 16, keys: 16, ...state }, data).length + 1), value: 0, play: true, every: 700, say: (v) => String(v) },
    ],
    settle: (state, data) => ({ ...state, step: Math.min(state.step, steps(state, data).length) }),
    draw(state, data, { width, narrow }) {
      const found = at(state, data), T = data.tokens.length, { now, block } = found;
      const left = 14, top = 34, panel = narrow ? 0 : Math.min(230, width * 0.34), size = Math.min(width - left - 8 - panel - (narrow ? 0 : 24), narrow ? 400 : 430);
      const s = d3.scaleLinear([0, T], [0, size]);
      const box = (b, tile, fill, more) => rect(left + s(tile.first), top + s(b.first), s(tile.end - tile.first) - 0.5, s(b.end - b.first) - 0.5, fill, more);
      const tree = [label(left, 14, "query tokens ↓   keys and values →"), label(left, 28, found.skipped ? `outlined: ${found.skipped} of ${found.grid} never loaded` : "", { "font-size": 11 })];
      for (const { block: b } of found.all.filter(({ i }) => i === 0))
        for (let first = Math.ceil(b.end / state.keys) * state.keys; first < T; first += state.keys)
          tree.push(rect(left + s(first) + 0.5, top + s(b.first) + 0.5, s(Math.min(state.keys, T - first)) - 2, s(b.end - b.first) - 2, "none", { style: `fill:none;stroke:${faint}`, "stroke-dasharray": "2 3" }));
      for (const step of found.all) {
        const done = found.done.includes(step);
        tree.push(box(step.block, step.tile, step === now ? color(1) : done ? color(0) : faint, { opacity: step === now ? 0.95 : done ? 0.55 : 0.6 }));
      }
      for (let t = 1; t <= T; t++) tree.push(line(left + s(t), top + s(t - 1), left + s(t), top + s(t), ink), line(left + s(t - 1), top + s(t - 1), left + s(t), top + s(t - 1), ink));
      tree.push(rect(left - 6, top + s(block.first), 4, s(block.end - block.first) - 0.5, color(0)));
      tree.push(line(left, top + s(found.row + 0.5), left + s(found.row + 1), top + s(found.row + 0.5), color(2), { "stroke-width": 1.5 }));
      const beside = chip(state, data, found, narrow ? left : left + size + 22, narrow ? top + size + 26 : top + 4, narrow ? width - left - 8 : panel);
      return [Math.max(top + size + 10, beside.bottom), ...tree, ...beside.tree];
    },
    say(state, data) {
      const { now, block, all, runs, skipped, grid, read } = at(state, data), last = runs[runs.length - 1];
      if (!now) return `${plural(all.length, "tile")} of ${grid} will be loaded; ${skipped} lie above the diagonal, where nothing may be seen, and never are.`;
      const what = `Tile ${now.i + 1} of ${block.tiles.length} for the queries of tokens ${block.first} to ${block.end - 1}: keys ${now.tile.first} to ${now.tile.end - 1}`;
      const kept = runs.length < 2 ? "." : last.shrink === 1 ? `; the maximum stays, so what was summed stays.` : `; the maximum grew, so what was summed shrinks by ${last.shrink.toFixed(3)}.`;
      return `${what}${now.tile.masked ? ", masked" : ", no mask needed"}. Last token of the block: sum ${number(last.l)} at maximum ${number(last.m)}${kept} Read so far: ${decimal(read, 1)}.`;
    },
    readout(state, data) {
      const { all, skipped, grid, read } = at(state, data), T = data.tokens.length, G = data.group, D = data.head_dim;
      const both = (n) => [tiledBytes(n, 0, G, 1, D, state.rows, 2), naiveBytes(n, 0, G, 1, D, 2)];
      const [here, naive] = both(T), [far, naiveFar] = both(LONG);
      return [
        ["read so far", decimal(read, 1)],
        ["tiles to load, in all", `${all.length} of ${grid}`, skipped ? "good" : ""],
        [`memory traffic, ${T} tokens`, `${decimal(here, 1)} (untiled ${decimal(naive, 1)})`, here < naive ? "good" : "bad"],
        [`memory traffic, ${count(LONG)} tokens`, `${decimal(far, 1)} (untiled ${decimal(naiveFar, 1)})`, far < naiveFar ? "good" : "bad"],
        ["on chip, whatever the length", decimal(onChip(state.rows, state.keys, D, 2), 1)],
      ];
    },
  });
})();
