/* The roofline of one step: FLOPs per byte against FLOP/s. The whole step, its matrices and its attention as points. */
(function () {
  "use strict";
  const { label, line, path, color, ink, bad, count, decimal, plural, sumCost, attainable, timeBound } = kvfig;
  const SIZE = 2; // bf16
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
  const find = (list, name) => list.find((one) => one.name === name);
  const rate = (value) => `${d3.format(".3~s")(value).replace("G", " G").replace("T", " T").replace("M", " M").replace("P", " P")}FLOP/s`;

  function step(state, data) {
    const config = find(data.models, state.model), machine = find(data.machines, state.machine);
    const peak = machine.flops.bf16;
    const parts = kvfig.prefillCost(config, state.tokens, state.context, state.batch, SIZE);
    const whole = sumCost(parts);
    const matrices = sumCost({ a: parts.projections, b: parts.mlp, c: parts.head });
    const need = SIZE * config.parameters + kvfig.cacheBytes(config, state.context + state.tokens, state.batch, SIZE);
    const seconds = kvfig.stepTime(parts, peak, machine.bandwidth);
    return { config, machine, peak, whole, matrices, attention: parts.attention, need, seconds, ridge: peak / machine.bandwidth };
  }
  const intensity = (cost) => cost.flops / cost.bytes;

  kvfig.define("roofline", {
    pure: {
      prefillCost: kvfig.prefillCost, decodeCost: kvfig.decodeCost, uncachedCost: kvfig.uncachedCost, sumCost,
      timeBound, attainable, stepTime: kvfig.stepTime, cacheBytes: kvfig.cacheBytes,
    },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "machine", label: "Machine", options: data.machines.map(({ name }) => [name, name]), value: data.machines[0].name },
      { name: "batch", label: "Sequences", values: powers(0, 10), value: 1 },
      { name: "context", label: "Context", values: [0, ...powers(7, 17)], value: 4096 },
      { name: "tokens", label: "New tokens each", values: powers(0, 12), value: 1 },
    ],
    draw(state, data, { width, narrow }) {
      const { machine, peak, whole, matrices, attention, ridge } = step(state, data);
      const high = narrow ? 250 : 300, left = 62, bottom = high - 46;
      const x = d3.scaleLog([0.1, 10000], [left, width - 24]);
      const top = 10 ** Math.ceil(Math.log10(peak * 1.5));
      const y = d3.scaleLog([top / 1e5, top], [bottom, 26]).clamp(true);
      const roof = d3.line()([[x(0.1), y(0.1 * machine.bandwidth)], [x(ridge), y(peak)], [x(10000), y(peak)]]);
      const ticks = (n) => (v) => (Math.abs(Math.log10(v) % 1) < 1e-9 ? n(v) : "");
      const tree = [
        kvfig.axisX(x, bottom, "FLOPs per byte", { ticks: 5, format: ticks((v) => d3.format("~")(v)) }),
        kvfig.axisY(y, left, "FLOP/s at most (bf16)", { ticks: 5, format: ticks((v) => d3.format("~s")(v)) }),
        path(roof, ink),
        line(x(ridge), y(peak), x(ridge), bottom, ink, { "stroke-dasharray": "3 4" }),
        label(x(ridge) + 5, bottom - 8, `ridge: ${ridge.toFixed(0)}`),
      ];
      let after = 8; // on a narrow page the key stands in one line below the picture: beside the axis it would lie on the roof
      [["whole step", whole, 0, "o"], ["matrices", matrices, 1, "s"], ["attention", attention, 2, "d"]].forEach(([name, cost, i, shape]) => {
        const at = x(Math.max(0.1, Math.min(10000, intensity(cost)))), up = y(attainable(intensity(cost), peak, machine.bandwidth));
        const symbol = { s: d3.symbolSquare, d: d3.symbolDiamond, o: d3.symbolCircle }[shape];
        tree.push(["path", { d: d3.symbol(symbol, shape === "o" ? 130 : 80)(), transform: `translate(${at.toFixed(1)},${up.toFixed(1)})`, style: `fill:${color(i)};stroke:var(--kv-paper, #fff)` }]);
        const text = `${{ s: "■", d: "◆", o: "●" }[shape]} ${name}`;
        tree.push(narrow ? label(after, high + 10, text, { fill: color(i), weight: 600, "font-size": 11 }) : label(left + 16, 42 + 16 * i, text, { fill: color(i), weight: 600 }));
        after += 6.9 * text.length + 8;
      });
      const measured = data.points.filter((p) => p.machine === state.machine);
      const onPaper = `fill:${color(4)};paint-order:stroke;stroke:var(--kv-paper, #fff);stroke-width:5px`; // the ridge's line ends where their words begin
      measured.forEach((point, i) => {
        const at = x(point.intensity), up = y(point.flops);
        tree.push(["path", { d: d3.symbol(d3.symbolCross, 60)(), transform: `translate(${at.toFixed(1)},${up.toFixed(1)})`, style: `fill:${color(4)}` }]);
        tree.push(label(at - 3, up + 18, String(i + 1), { fill: color(4), weight: 600 }));
        tree.push(label(width - 26, bottom - 26 - 15 * (measured.length - 1 - i), `${i + 1}: ${point.name}`, { style: onPaper, "text-anchor": "end", "font-size": 11 }));
      });
      if (measured.length) tree.push(label(width - 26, bottom - 26 - 15 * measured.length, "✚ measured", { fill: color(4), weight: 600, "text-anchor": "end" }));
      return [high + (narrow ? 18 : 0), ...tree];
    },
    say(state, data) {
      const { whole, machine, peak, ridge, need, seconds } = step(state, data);
      const what = state.tokens === 1 ? `Decode of ${plural(state.batch, "sequence")}` : `Prefill of ${count(state.tokens)} tokens for ${plural(state.batch, "sequence")}`;
      const bound = intensity(whole) < ridge ? "memory bounds it" : "compute bounds it";
      const share = attainable(intensity(whole), peak, machine.bandwidth) / peak;
      const room = need > machine.memory ? ` It would not fit: ${decimal(need, 0)} of weights and cache in ${decimal(machine.memory, 0)}.` : "";
      return `${what} at ${count(state.context)} cached tokens: ${intensity(whole).toPrecision(3)} FLOPs per byte, so ${bound}; at most ${(100 * share).toPrecision(2)} % of the peak, at least ${(1e3 * seconds).toPrecision(3)} ms.${room}`;
    },
    readout(state, data) {
      const { whole, matrices, attention, machine, peak, seconds, need } = step(state, data);
      return [
        ["whole step", `${intensity(whole).toPrecision(3)} FLOPs/byte`],
        ["matrices", `${intensity(matrices).toPrecision(3)} FLOPs/byte`],
        ["attention", `${intensity(attention).toPrecision(3)} FLOPs/byte`],
        ["attainable", rate(attainable(intensity(whole), peak, machine.bandwidth))],
        ["tokens per second, at most", count((state.batch * state.tokens) / seconds)],
        ["weights and cache", `${decimal(need, 1)} of ${decimal(machine.memory, 0)}`, need > machine.memory ? "bad" : ""],
      ];
    },
  });
})();
