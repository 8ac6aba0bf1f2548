/* Quantized pages: codes, scales and the exact tail in bytes, and whether bytes or instructions bound the kernel that reads them. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, good, binary, count, plural } = kvfig;
  const HALF = 2; // bytes of a number in 16 bits

  /* Tokens that are codes: not the last `residual`, and only whole units. */
  const codedTokens = (tokens, residual, unit) => Math.floor(Math.max(0, tokens - residual) / unit) * unit;
  /* Bytes of codes, and of scales and zero points, of tokens × vectors × length numbers (whole groups). */
  const sideBytes = ({ bits, group, along, extra }, tokens, vectors, length) => {
    const [runs, size] = along === "head" ? [tokens * vectors, length] : [vectors * length, tokens];
    return [runs * Math.ceil((size * bits) / 8), runs * Math.ceil(size / group) * extra];
  };
  /* Seconds at least: [by bytes, by instructions]. */
  const atLeast = (bytes, instructions, bandwidth, issue) => [bytes / bandwidth, instructions / issue];

  function found(state, data) {
    const chip = data.chips.find(({ name }) => name === state.chip), format = data.formats.find(({ name }) => name === state.format);
    const { L, K, D } = data, unit = format.sides ? Math.max(...format.sides.map(({ step }) => step)) : 1;
    const tokens = state.context, coded = format.sides ? codedTokens(tokens, state.residual, unit) : 0, exact = tokens - coded;
    const sums = (n, vectors) => (format.sides || []).map((side) => sideBytes(side, n, vectors, D)).reduce((a, b) => [a[0] + b[0], a[1] + b[1]], [0, 0]);
    const [codes, extra] = sums(coded, K).map((x) => x * L), tail = 2 * exact * K * D * HALF * L, plain = 2 * tokens * K * D * HALF * L;
    const one = format.sides ? sums(unit, 1).map((x) => x / unit) : [2 * D * HALF, 0];
    const own = chip.per_element[state.format], base = chip.per_element["16 bits"], known = own !== undefined;
    const elements = (n) => 2 * n * K * D * L * state.batch;
    const times = atLeast((codes + extra + tail) * state.batch, known ? elements(coded) * own + elements(exact) * base : 0, chip.bandwidth, chip.issue);
    const before = atLeast(plain * state.batch, known ? elements(tokens) * base : 0, chip.bandwidth, chip.issue);
    const weights = data.weights / chip.bandwidth, step = weights + Math.max(...times), stepBefore = weights + Math.max(...before);
    return {
      chip, format, unit, coded, exact, codes, extra, tail, plain, one, known, times, before, weights, step, stepBefore,
      fits: state.page % unit === 0, page: sums(state.page, K), pagePlain: 2 * state.page * K * D * HALF,
      byBytes: before[0] / times[0], gain: Math.max(...before) / Math.max(...times), whole: stepBefore / step, arithmetic: times[1] > times[0],
    };
  }

  /* A bar of named parts, and what stands behind it. */
  function bar(x, y, scale, parts, text, more) {
    const tree = [];
    let at = x;
    for (const [size, fill] of parts) {
      tree.push(rect(at, y, Math.max(size > 0 ? 1 : 0, scale(size)), 14, fill));
      at += scale(size);
    }
    tree.push(label(x, y + 28, text, more));
    return tree;
  }
  const ms = (seconds) => (seconds < 1e-3 ? `${(1e6 * seconds).toPrecision(3)} µs` : `${(1e3 * seconds).toPrecision(3)} ms`);

  kvfig.define("coded", {
    pure: { codedTokens, sideBytes, atLeast },
    controls: (data) => [
      { name: "format", label: "Cache", options: data.formats.map(({ name }) => [name, name]), value: data.formats[1].name },
      { name: "chip", label: "Chip", options: data.chips.map(({ name }) => [name, name]), value: data.chips[data.chips.length - 1].name },
      { name: "context", label: "Context", values: d3.range(6, 18).map((i) => 2 ** i), value: 32768, say: count },
      { name: "batch", label: "Sequences", values: d3.range(0, 8).map((i) => 2 ** i), value: 8 },
      { name: "residual", label: "Exact tail", values: [0, 16, 32, 128, 1024], value: 0, say: (v) => `${v} tokens` },
      { name: "page", label: "Tokens per page C", values: [1, 8, 16, 32, 64], value: 16 },
    ],
    draw(state, data, { width, narrow }) {
      const f = found(state, data), tree = [], wide = width - 20;
      const called = narrow && f.format.sides ? "coded" : state.format;
      const per = d3.scaleLinear([0, 2 * data.D * HALF], [0, wide]);
      tree.push(label(10, 14, "one token, one KV head: key and value"));
      tree.push(...bar(10, 22, per, [[2 * data.D * HALF, faint]], `16 bits: ${2 * data.D * HALF} bytes`));
      tree.push(...bar(10, 60, per, [[f.one[0], color(0)], [f.one[1], color(1)]], `${called}: ${+f.one[0].toFixed(1)} of codes${f.one[1] ? ` + ${+f.one[1].toFixed(1)} of scales${narrow ? "" : " and zero points"}` : ""}`, { fill: color(0), weight: 600 }));
      const all = d3.scaleLinear([0, f.plain], [0, wide]);
      tree.push(label(10, 114, `one sequence, all layers${narrow ? "" : ` (Llama-3-8B's ${data.L})`}`));
      tree.push(...bar(10, 122, all, [[f.codes, color(0)], [f.extra, color(1)], [f.tail, color(2)]], `${binary(f.codes + f.extra + f.tail)} of ${binary(f.plain)}`));
      tree.push(rect(10, 122, wide, 14, "none", { style: `fill:none;stroke:${ink}`, "stroke-dasharray": "3 3" }));
      const key = [["codes", 0], ["scales", 1], ["exact", 2]];
      key.forEach(([name, i], n) => tree.push(rect(10 + 76 * n, 160, 10, 10, color(i)), label(24 + 76 * n, 169, name)));
      const longest = Math.max(...f.before, ...f.times, 1e-12), time = d3.scaleLinear([0, longest], [0, wide]);
      tree.push(label(10, 200, narrow ? "reading the cache, at least" : `reading the cache in a step of ${plural(state.batch, "sequence")}, at least`));
      let y = 208;
      for (const [name, [bytes, instructions], fill] of [["16 bits", f.before, ink], [called, f.times, color(0)]]) {
        tree.push(rect(10, y, time(bytes), 9, fill, { opacity: bytes >= instructions ? 1 : 0.45 }));
        if (f.known) tree.push(rect(10, y + 11, time(instructions), 9, fill === ink ? faint : bad, { opacity: instructions > bytes ? 1 : 0.6, style: `fill:${fill === ink ? faint : bad};stroke:${fill === ink ? ink : bad}` }));
        tree.push(label(10, y + 34, narrow ? `${name}: ${ms(bytes)} bytes${f.known ? `, ${ms(instructions)} instr.` : ""}` : `${name}: ${ms(bytes)} by bytes${f.known ? `, ${ms(instructions)} by instructions` : ""}`, { fill: fill === ink ? ink : f.arithmetic ? bad : color(0), weight: fill === ink ? 400 : 600 }));
        y += 46;
      }
      const step = d3.scaleLinear([0, Math.max(f.step, f.stepBefore)], [0, wide]);
      tree.push(label(10, y + 12, "the whole step, weights first"));
      tree.push(...bar(10, y + 20, step, [[f.weights, faint], [f.stepBefore - f.weights, ink]], `16 bits: ${ms(f.stepBefore)}`));
      tree.push(...bar(10, y + 58, step, [[f.weights, faint], [f.step - f.weights, color(0)]], `${called}: ${ms(f.step)}`, { fill: color(0), weight: 600 }));
      return [y + 96, ...tree];
    },
    say(state, data) {
      const f = found(state, data);
      if (!f.format.sides) return `In 16 bits a sequence of ${count(state.context)} tokens takes ${binary(f.plain)}; ${f.known && f.arithmetic ? "instructions bound" : "bytes bound"} its reading.`;
      if (!f.fits) return `A page of ${state.page} tokens holds no whole group of ${f.unit}: the library refuses this. Pages must be a multiple of what shares a scale.`;
      if (!f.coded) return `Nothing is coded yet: all ${count(f.exact)} tokens are in the exact tail, in 16 bits.`;
      const size = `${state.format}: ${(f.plain / (f.codes + f.extra + f.tail)).toPrecision(3)} times smaller, scales and tail counted.`;
      const why = !f.known ? "" : f.arithmetic
        ? ` Unpacking takes more instructions than this chip issues while it reads: instructions decide, and the cache is read ${f.gain < 1 ? `${(1 / f.gain).toPrecision(3)} times slower than in 16 bits, at best` : `at most ${f.gain.toPrecision(3)} times faster, where bytes alone promise ${f.byBytes.toPrecision(3)}`}.`
        : ` Bytes decide: the cache is read at most ${f.gain.toPrecision(3)} times faster.`;
      return `${size}${why} The whole step, with its weights: at most ${f.whole.toPrecision(3)} times.`;
    },
    readout(state, data) {
      const f = found(state, data);
      const rows = [["tokens as codes", `${count(f.coded)} of ${count(state.context)}`]];
      if (f.format.sides) rows.push(["a page of one layer", f.fits ? `${count(f.page[0] + f.page[1])} of ${count(f.pagePlain)} B` : "refused", f.fits ? "" : "bad"]);
      if (f.known) rows.push(["instructions an element", f.chip.per_element[state.format].toFixed(1)], ["the chip issues per byte read", (f.chip.issue / f.chip.bandwidth).toFixed(1)]);
      rows.push(["cache read, at most", `${f.gain.toPrecision(3)}×`, f.gain < 1 ? "bad" : ""], ["whole step, at most", `${f.whole.toPrecision(3)}×`, f.whole > 1.5 ? "good" : ""]);
      return rows;
    },
  });
})();
