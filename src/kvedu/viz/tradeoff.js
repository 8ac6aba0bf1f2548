/* Latency against throughput: twin of kvedu.analysis.serving. A curve over how many sequences run at once. */
(function () {
  "use strict";
  const { label, line, path, rect, color, ink, faint, bad, good, count, decimal, plural, sumCost, timeBound } = kvfig;
  const SIZE = 2; // bf16
  const find = (list, name) => list.find((one) => one.name === name);
  const RUNNING = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];

  /* Seconds: reading the weights once a step; per running sequence its products, and its cache. */
  function server(config, peak, bandwidth, prompt, output) {
    const one = kvfig.decodeCost(config, prompt + Math.floor(output / 2), 1, SIZE);
    const whole = kvfig.prefillCost(config, prompt, 0, 1, SIZE);
    const products = ["projections", "mlp", "head"];
    const sum = (of) => products.reduce((n, part) => n + of(part), 0);
    return {
      weights: sum((part) => one[part].bytes) / bandwidth,
      compute: sum((part) => one[part].flops + whole[part].flops / output) / peak,
      cache: timeBound(one.attention, peak, bandwidth) + timeBound(whole.attention, peak, bandwidth) / output,
      steps: output,
    };
  }
  const stepTime = (s, running) => Math.max(s.weights, running * s.compute) + running * s.cache;
  const throughput = (s, running) => running / (s.steps * stepTime(s, running));
  const saturation = (s) => 1 / (s.steps * (s.compute + s.cache));
  const knee = (s) => saturation(s) / throughput(s, 1);

  /* Most sequences whose full contexts fit beside the weights. */
  function fit(config, memory, prompt, output) {
    const room = memory - SIZE * config.parameters;
    return room <= 0 ? 0 : Math.floor(room / kvfig.cacheBytes(config, prompt + output, 1, SIZE));
  }
  /* Most sequences whose step keeps within `limit` seconds; 0 if even one alone misses it. */
  function within(s, limit) {
    if (stepTime(s, 1) > limit) return 0;
    const asWeights = (limit - s.weights) / s.cache, asCompute = limit / (s.compute + s.cache);
    return Math.floor(Math.min(s.cache > 0 ? asWeights : Infinity, asCompute) + 1e-9);
  }

  function now(state, data) {
    const config = find(data.models, state.model), machine = find(data.machines, state.machine);
    const s = server(config, machine.flops.bf16, machine.bandwidth, state.prompt, state.output);
    return { config, machine, s, most: fit(config, machine.memory, state.prompt, state.output), tpot: stepTime(s, state.running), limit: state.slo / 1e3 };
  }
  const ms = (seconds) => `${(1e3 * seconds).toPrecision(3)} ms`;

  kvfig.define("tradeoff", {
    pure: { server, stepTime, throughput, saturation, knee, fit, within },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "machine", label: "Machine", options: data.machines.map(({ name }) => [name, name]), value: data.machines[0].name },
      { name: "prompt", label: "Prompt", values: [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], value: 512 },
      { name: "output", label: "Output", values: [16, 32, 64, 128, 256, 512, 1024], value: 256 },
      { name: "running", label: "Running at once", values: RUNNING, value: 8 },
      { name: "slo", label: "Limit per token", values: [5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200], value: 30, say: (v) => `${v} ms` },
    ],
    draw(state, data, { width, narrow }) {
      const { s, most, tpot, limit } = now(state, data);
      const high = narrow ? 260 : 310, left = 56, bottom = high - 46;
      const shown = RUNNING.filter((r) => r <= Math.max(state.running, 2 * knee(s), 16) * 2);
      const tokens = (r) => state.output * throughput(s, r);
      const x = d3.scaleLinear([0, state.output * saturation(s) * 1.04], [left, width - 24]);
      const y = d3.scaleLinear([0, 1e3 * Math.max(limit * 1.25, tpot * 1.15, stepTime(s, 1) * 3)], [bottom, 24]);
      const at = (r) => [x(tokens(r)), y(1e3 * stepTime(s, r))];
      const inside = (r) => at(r)[1] > 20;
      const fine = d3.range(0, 121).map((i) => shown.at(-1) ** (i / 120)).filter(inside);
      const ok = fine.filter((r) => r <= most && stepTime(s, r) <= limit);
      const [px, py] = at(state.running);
      const failed = tpot > limit || state.running > most;
      return [
        high,
        rect(left, 24, width - 24 - left, Math.max(0, y(state.slo) - 24), bad, { opacity: 0.09 }),
        line(left, y(state.slo), width - 24, y(state.slo), bad, { "stroke-dasharray": "6 3" }),
        label(left + 6, y(state.slo) - 5, `limit: ${state.slo} ms per token`, { fill: bad }),
        line(x(state.output * saturation(s)), 24, x(state.output * saturation(s)), bottom, ink, { "stroke-dasharray": "2 4" }),
        label(x(state.output * saturation(s)) - 5, bottom - 6, "no batch exceeds this", { "text-anchor": "end" }),
        kvfig.axisX(x, bottom, "output tokens per second, all sequences", { ticks: Math.max(3, width / 130) }),
        kvfig.axisY(y, left, "time per output token (ms)", { ticks: 5 }),
        path(d3.line()(fine.map(at)), faint, { "stroke-dasharray": "5 3" }),
        ok.length > 1 ? path(d3.line()(ok.map(at)), color(0), { style: `fill:none;stroke:${color(0)};stroke-width:3.5` }) : null,
        ...shown.filter((r) => inside(r) && [1, 8, 64, 512].includes(r)).map((r) => [["circle", { cx: at(r)[0], cy: at(r)[1], r: 2.5, style: `fill:${ink}` }], label(Math.max(at(r)[0] - 5, left + 12), at(r)[1] + 13, String(r), { "text-anchor": "end", "font-size": 10 })]),
        ...data.points.filter((p) => p.machine === state.machine && p.model === state.model && y(1e3 * p.tpot_s) > 20 && x(p.tokens_per_s) < width - 20).map((p) => {
          const cx = x(p.tokens_per_s), cy = y(1e3 * p.tpot_s), name = narrow ? p.name.replace(/^(\d+) .*/, "$1") : p.name, room = cx - 8 - 5.6 * name.length > left + 4;
          return [
            ["path", { d: d3.symbol(d3.symbolCross, 50)(), transform: `translate(${cx.toFixed(1)},${cy.toFixed(1)})`, style: `fill:${color(4)}` }],
            label(room ? cx - 8 : left + 6, cy - (room ? 6 : 12), name, { fill: color(4), "text-anchor": room ? "end" : null, "font-size": 11 }),
          ];
        }),
        ["circle", { cx: px, cy: py, r: 7, style: `fill:${failed ? bad : good};stroke:var(--kv-paper, #fff);stroke-width:2` }],
      ];
    },
    say(state, data) {
      const { s, most, tpot, limit, config, machine } = now(state, data);
      if (most === 0) return `Out of memory: ${state.model} with one sequence does not fit into ${decimal(machine.memory, 0)}.`;
      const gives = `${plural(state.running, "sequence")} at once: a token every ${ms(tpot)} for each, ${count(state.output * throughput(s, state.running))} tokens per second in all.`;
      const best = Math.min(most, within(s, limit));
      const held = decimal(kvfig.cacheBytes(config, state.prompt + state.output, state.running, SIZE), 0);
      if (state.running > most) return `Out of memory: ${gives} Their caches take ${held}; ${plural(most, "sequence")} would fit.`;
      if (tpot > limit) return `The limit is missed: ${gives} ${best ? `At most ${plural(best, "sequence")} keep within ${state.slo} ms.` : "Even one alone misses it."}`;
      return `Within the limit: ${gives} Up to ${plural(best, "sequence")} would keep within it and fit.`;
    },
    readout(state, data) {
      const { s, most, tpot, limit } = now(state, data);
      return [
        ["time per token", ms(tpot), tpot > limit ? "bad" : "good"],
        ["tokens per second", count(state.output * throughput(s, state.running))],
        ["requests per second", throughput(s, state.running).toPrecision(3)],
        ["of what is possible at all", `${((100 * throughput(s, state.running)) / saturation(s)).toFixed(0)}%`],
        ["knee", plural(Math.round(knee(s)), "sequence")],
        ["fit in memory", plural(most, "sequence"), state.running > most ? "bad" : ""],
      ];
    },
  });
})();
