/* Split-KV: which program of a decode launch runs on which multiprocessor, who is idle, and what the merge costs. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, good, binary, count, plural } = kvfig;
  const MOST = 128; // splits, as the kernel's rule has it

  /* The kernel's rule: as near to four programs a multiprocessor as can be, none with less than four tiles of keys, none without a key. */
  const splitsFor = (processors, programs, keys, tile) => {
    const wanted = Math.floor((8 * processors + programs) / (2 * Math.max(programs, 1))), tiles = Math.max(1, Math.ceil(keys / tile));
    return Math.ceil(tiles / Math.ceil(tiles / Math.max(1, Math.min(wanted, Math.floor(keys / (4 * tile)), MOST))));
  };
  /* Keys of each split: whole tiles, equal shares rounded up. */
  const keysOfSplits = (keys, splits, tile) => {
    const share = Math.ceil(Math.ceil(keys / splits) / tile) * tile;
    return d3.range(splits).map((i) => Math.max(0, Math.min(share, keys - i * share)));
  };
  const programBytes = (keys, G, D, size, split) => 2 * keys * D * size + G * D * size + (split ? 4 * G * (D + 1) : G * D * size);
  const mergeBytes = (used, splits, D, size) => 4 * used * D + 4 * splits + D * size;
  /* Table entries that a program reads: its first page, then one a tile where a tile lies within a page, else one a key; for K and for V. */
  const entries = (keys, page, tile) => 1 + 2 * (page % tile ? keys : Math.ceil(keys / tile));

  /* Every program in the grid's order, each on the multiprocessor with the fewest bytes so far (the lowest number of those). */
  function schedule(lengths, kvHeads, splits, tile, processors, G, D, size) {
    const keys = lengths.map((length) => keysOfSplits(length, splits, tile)), placed = [];
    const heap = d3.range(processors).map((p) => [0, p, 0]);
    const less = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
    const sink = () => {
      for (let i = 0; ; ) {
        let least = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (child < heap.length && less(heap[child], heap[least])) least = child;
        if (least === i) return;
        [heap[i], heap[least]] = [heap[least], heap[i]];
        i = least;
      }
    };
    for (let split = 0; split < splits; split++)
      for (let b = lengths.length - 1; b >= 0; b--)
        for (let head = 0; head < kvHeads; head++) {
          const [busy, processor, place] = heap[0], bytes = programBytes(keys[b][split], G, D, size, splits > 1);
          placed.push({ head, sequence: b, split, keys: keys[b][split], processor, place, bytes });
          heap[0] = [busy + bytes, processor, place + 1];
          sink();
        }
    return placed;
  }

  const lengthsOf = ({ batch, context, lengths }) => d3.range(batch).map((b) => (lengths === "alike" || b === 0 ? context : Math.max(1, context / 8)));

  function laid(state, data) {
    const chip = data.chips.find(({ name }) => name === state.chip), K = state.kv, G = data.heads / K, D = data.head_dim, size = data.bytes_per_element;
    const tile = chip.tiles[K], held = chip.resident[K], n = chip.processors, lengths = lengthsOf(state);
    const room = Math.ceil(state.context / state.page) * state.page;
    const splits = state.splits || splitsFor(n, K * state.batch, room, tile);
    const busiest = (programs) => d3.max(d3.rollups(programs, (own) => d3.sum(own, (p) => p.bytes), (p) => p.processor), ([, bytes]) => bytes);
    const programs = schedule(lengths, K, splits, tile, n, G, D, size);
    const whole = splits === 1 ? programs : schedule(lengths, K, 1, tile, n, G, D, size);
    const merges = splits === 1 ? [] : lengths.map((length) => mergeBytes(keysOfSplits(length, splits, tile).filter((k) => k).length, splits, D, size));
    const rows = data.heads * lengths.length; // programs of the merge: one a query head and sequence
    const merge = splits === 1 ? 0 : Math.ceil(rows / n) * d3.max(merges);
    const waves = 1 + d3.max(programs, (p) => Math.floor(p.place / held));
    return {
      chip, K, G, D, size, tile, held, n, splits, lengths, programs, waves, merge,
      wave: Math.min(state.wave, waves) - 1, rows: merges.length ? rows : 0,
      used: new Set(programs.map((p) => p.processor)).size, empty: programs.filter((p) => !p.keys).length,
      unsplit: busiest(whole), longest: busiest(programs), even: d3.sum(programs, (p) => p.bytes) / n,
      entries: d3.sum(programs, (p) => entries(p.keys, state.page, tile)), keys: d3.sum(lengths) * K,
    };
  }

  /* A sequence's keys, cut where its splits end; tiles that are no split's are none. */
  function cuts(found, b, x, y, width, name) {
    const length = found.lengths[b], parts = keysOfSplits(length, found.splits, found.tile);
    const tree = [label(x, y - 5, name)];
    let from = 0;
    parts.filter((k) => k).forEach((k, i) => {
      tree.push(rect(x + (width * from) / length, y, Math.max(0.6, (width * k) / length - (found.splits > 1 && width / parts.length > 3 ? 1 : 0)), 14, color(b), { opacity: i % 2 ? 0.6 : 0.95 }));
      from += k;
    });
    return tree;
  }

  function grid(found, width, top) {
    const across = Math.max(8, Math.min(found.n, Math.floor((width - 16) / (width < 520 ? 20 : 30)))), cell = (width - 16) / across, high = Math.min(26, cell);
    const most = d3.max(found.programs, (p) => p.bytes), tree = [];
    const shown = d3.group(found.programs.filter((p) => Math.floor(p.place / found.held) === found.wave), (p) => p.processor);
    for (let p = 0; p < found.n; p++) {
      const x = 8 + (p % across) * cell, y = top + Math.floor(p / across) * (high + 5), own = shown.get(p) || [];
      tree.push(rect(x, y, cell - 3, high, "none", { style: `fill:none;stroke:${own.length ? ink : faint}`, "stroke-dasharray": own.length ? null : "2 2" }));
      own.forEach((program, i) => {
        const wide = (cell - 5) / found.held, at = x + 1 + i * wide;
        if (program.keys) {
          const tall = Math.max(2, ((high - 2) * program.bytes) / most);
          tree.push(rect(at, y + high - 1 - tall, Math.max(1, wide - 0.7), tall, color(program.sequence)));
        } else tree.push(line(at, y + 2, at + wide - 1, y + high - 2, bad), line(at, y + high - 2, at + wide - 1, y + 2, bad));
      });
    }
    return { tree, bottom: top + Math.ceil(found.n / across) * (high + 5) };
  }

  function bars(found, width, top) {
    const total = found.longest + found.merge, x = d3.scaleLinear([0, Math.max(found.unsplit, total)], [0, width - 20]), tree = [];
    tree.push(label(10, top, "bytes of the busiest multiprocessor"));
    tree.push(rect(10, top + 8, x(found.unsplit), 12, ink), label(10, top + 34, `not split: ${binary(found.unsplit, 1)}`));
    tree.push(rect(10, top + 44, x(found.longest), 12, color(0)), rect(10 + x(found.longest), top + 44, Math.max(found.merge ? 1.5 : 0, x(found.merge)), 12, bad));
    tree.push(label(10, top + 70, `${plural(found.splits, "split")}: ${binary(found.longest, 1)}${found.merge ? ` + merge ${binary(found.merge, 1)}` : ""}`, { fill: total > found.unsplit ? bad : color(0), weight: 600 }));
    const even = 10 + x(Math.min(found.even, Math.max(found.unsplit, total)));
    for (const y of [top + 4, top + 40]) tree.push(line(even, y, even, y + 20, good, { "stroke-dasharray": "4 3" }));
    tree.push(label(10, top + 86, `dashed: an even share, ${binary(found.even, 1)}`, { fill: good }));
    return { tree, bottom: top + 94 };
  }

  kvfig.define("splits", {
    pure: {
      splitsFor, keysOfSplits, programBytes, mergeBytes, entries,
      schedule: (...args) => schedule(...args).map((p) => [p.head, p.sequence, p.split, p.keys, p.processor, p.place]),
    },
    controls: (data) => [
      { name: "chip", label: "Chip", options: data.chips.map(({ name, processors }) => [name, `${name} (${processors})`]), value: data.chips[2].name },
      { name: "batch", label: "Sequences B", values: [1, 2, 4, 8, 16, 32, 64], value: 1 },
      { name: "kv", label: "KV heads K", values: data.kv_heads, value: 8 },
      { name: "context", label: "Context", values: d3.range(6, 18).map((i) => 2 ** i), value: 32768, say: count },
      { name: "lengths", label: "Lengths", options: [["alike", "all alike"], ["one long", "one long, others an eighth"]], value: "alike" },
      { name: "page", label: "Tokens per page C", values: [1, 16, 64, 256], value: 16 },
      { name: "splits", label: "Splits", values: [0, 1, 2, 3, 4, 8, 16, 32, 64, 128], value: 1, say: (v) => (v ? String(v) : "by the rule") },
      { name: "wave", label: "Wave", values: (state, data) => d3.range(1, laid(state, data).waves + 1), value: 1, say: (v, state, data) => `${Math.min(v, laid(state, data).waves)} of ${laid(state, data).waves}` },
    ],
    settle(state, data) {
      const { waves } = laid(state, data);
      return state.wave <= waves ? state : { ...state, wave: waves };
    },
    draw(state, data, { width }) {
      const found = laid(state, data), tree = [], gap = width < 520 ? 36 : 34;
      const first = cuts(found, 0, 10, 22, width - 20, `sequence 0: ${plural(found.lengths[0], "key")} in ${plural(keysOfSplits(found.lengths[0], found.splits, found.tile).filter((k) => k).length, "split")}`);
      tree.push(...first);
      let y = 22 + gap;
      if (state.lengths !== "alike" && state.batch > 1) {
        const parts = keysOfSplits(found.lengths[1], found.splits, found.tile).filter((k) => k).length;
        tree.push(...cuts(found, 1, 10, y, (width - 20) / 8, `the others: ${plural(found.lengths[1], "key")} in ${plural(parts, "split")}`));
        y += gap;
      }
      tree.push(label(10, y + 4, `${found.n} multiprocessors, wave ${found.wave + 1} of ${found.waves}${width < 420 ? "" : ": a bar is a program"}`));
      const cells = grid(found, width, y + 12);
      const below = bars(found, width, cells.bottom + 18);
      return [below.bottom, ...tree, ...cells.tree, ...below.tree];
    },
    say(state, data) {
      const found = laid(state, data), idle = found.n - found.used, total = found.longest + found.merge;
      const who = `${plural(found.programs.length, "program")} on ${found.n} multiprocessors${idle ? `: ${idle} never get one` : found.waves > 1 ? `, up to ${found.waves} waves of ${found.held}` : ""}.`;
      const empty = found.empty ? ` ${plural(found.empty, "program")} of an empty split: launched for nothing, and the merge must not count what ${found.empty === 1 ? "it leaves" : "they leave"}.` : "";
      if (found.splits === 1) return `${who} Not split, so nothing is merged; the busiest multiprocessor moves ${(found.longest / found.even).toPrecision(3)} times an even share.`;
      const ratio = found.unsplit / total;
      const gain = ratio > 1.02 ? `The busiest multiprocessor moves ${ratio.toPrecision(3)} times fewer bytes than without splits, the merge counted.`
        : ratio < 0.98 ? `Splitting costs more than it saves: the busiest multiprocessor moves ${(1 / ratio).toPrecision(3)} times the bytes that it would without splits.`
        : "Splitting gains nothing here.";
      return `${who}${empty} ${gain}`;
    },
    readout(state, data) {
      const found = laid(state, data), idle = found.n - found.used, total = found.longest + found.merge;
      return [
        ["programs", `${count(found.programs.length)} = ${found.K} × ${state.batch} × ${found.splits}`],
        ["idle multiprocessors", `${idle} of ${found.n}`, idle ? "bad" : "good"],
        ["tile", `${found.tile} keys`],
        ["programs of empty splits", count(found.empty), found.empty ? "bad" : ""],
        ["merge", found.rows ? `${count(found.rows)} programs` : "none"],
        ["busiest, merge counted", binary(total, 1), total > found.unsplit ? "bad" : ""],
        ["table entries per key", (found.entries / found.keys).toPrecision(2)],
      ];
    },
  });
})();
