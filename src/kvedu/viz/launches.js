/* Launches: the host asks for kernels, the device runs them; one by one, or as a recording. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, count, plural } = kvfig;

  const sized = ([, whole, each, token], batch, context) => whole + batch * (each + context * token);
  const unrolled = (made, batch, context) => {
    const bytes = (one) => sized(one, batch, context), layer = made.layer.map(bytes);
    return [...made.before.map(bytes), ...d3.range(made.alike).flatMap(() => layer), ...made.behind.map(bytes)];
  };
  const names = (made) => [...made.before, ...d3.range(made.alike).flatMap(() => made.layer), ...made.behind].map(([name]) => name);
  /* [start, end] of every kernel on the device, in microseconds from the step's start. */
  const runs = (times, launch, gap, recorded) => {
    let now = 0;
    return times.map((took, i) => {
      const free = i ? now + gap : 0, start = Math.max(free, recorded ? launch : (i + 1) * launch);
      now = start + took;
      return [start, now];
    });
  };
  const stepUs = (times, launch, gap, recorded) => {
    const all = runs(times, launch, gap, recorded);
    return [all.length ? all[all.length - 1][1] : 0, d3.sum(times)];
  };

  const time = (us) => (us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : us >= 10 ? `${us.toFixed(0)} µs` : `${us.toFixed(us >= 0.1 || us === 0 ? 1 : 2)} µs`);

  function found(state, data) {
    const model = data.models.find(({ name }) => name === state.model), machine = data.machines.find(({ name }) => name === state.machine);
    const timed = (made) => unrolled(made, state.batch, state.context).map((bytes) => (1e6 * bytes) / machine.bandwidth);
    const chosen = state.fused ? model.fused : model.apart, times = timed(chosen);
    const ways = [[model.apart, false], [model.fused, false], [model.apart, true], [model.fused, true]].map(([made, recorded]) => {
      const [took] = stepUs(timed(made), state.launch, state.gap, recorded);
      return { took, fused: made === model.fused, recorded, n: times === made ? times.length : names(made).length };
    });
    const [took, busy] = stepUs(times, state.launch, state.gap, state.recorded);
    return { chosen, times, ways, took, busy, n: times.length, runs: runs(times, state.launch, state.gap, state.recorded) };
  }

  function lanes(state, one, width, top) {
    const from = 90, first = Math.min(one.n, one.chosen.before.length + 2 * one.chosen.layer.length);
    const shown = one.runs.slice(0, first), end = Math.max(shown[first - 1][1], state.recorded ? state.launch : first * state.launch);
    const x = d3.scaleLinear([0, end], [from, width - 14]), tree = [];
    tree.push(label(8, top + 14, "host", { weight: 600 }), label(8, top + 46, "device", { weight: 600 }));
    tree.push(line(from, top + 27, width - 14, top + 27, faint));
    const asked = state.recorded ? [[0, state.launch]] : shown.map((_, i) => [i * state.launch, (i + 1) * state.launch]);
    asked.forEach(([a, b], i) => tree.push(rect(x(a), top, Math.max(0.7, x(b) - x(a) - (state.recorded ? 0 : 0.8)), 20, color(1), { opacity: i % 2 ? 0.65 : 1 })));
    shown.forEach(([a, b], i) => tree.push(rect(x(a), top + 34, Math.max(0.7, x(b) - x(a)), 20, color(0), { opacity: i % 2 ? 0.65 : 1 })));
    const axis = kvfig.axisX(x, top + 60, `µs; the first ${first} of ${one.n} launches`, { ticks: Math.max(3, width / 130) });
    return { tree: [tree, axis], bottom: top + 100 };
  }

  function bars(state, one, width, top) {
    const narrow = width < 520, from = narrow ? 12 : 150, most = d3.max(one.ways, (way) => way.took), x = d3.scaleLinear([0, most], [from, width - (narrow ? 90 : 100)]);
    const high = narrow ? 36 : 24, tree = [label(8, top, "the whole step", { weight: 600 })];
    one.ways.forEach((way, i) => {
      const y = top + 10 + i * high, at = narrow ? y + 15 : y, mine = way.fused === state.fused && way.recorded === state.recorded;
      const name = `${way.recorded ? "recorded" : "one by one"}${way.fused ? ", fused" : ""}`;
      tree.push(label(8, y + 12, name, { weight: mine ? 700 : 400 }));
      tree.push(mine ? rect(from, at, Math.max(1, x(way.took) - from), 14, color(1)) : rect(from, at, Math.max(1, x(way.took) - from), 14, "none", { style: `fill:none;stroke:${ink}` }));
      tree.push(label(x(way.took) + 6, at + 12, time(way.took), { weight: mine ? 700 : 400 }));
    });
    const y = top + 10 + 4 * high, floor = one.busy;
    tree.push(rect(from, y + (narrow ? 15 : 0), Math.max(1, x(floor) - from), 14, color(0)), label(8, y + 12, "its bytes alone"), label(x(floor) + 6, y + (narrow ? 27 : 12), time(floor)));
    return { tree, bottom: y + high + (narrow ? 8 : 4) };
  }

  kvfig.define("launches", {
    pure: { unrolled, stepUs },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "machine", label: "Machine", options: data.machines.map(({ name }) => [name, name]), value: data.machines[data.machines.length - 1].name },
      { name: "batch", label: "Sequences B", values: [1, 2, 4, 8, 16, 32, 64, 128, 256], value: 1 },
      { name: "context", label: "Context", values: [0, 512, 2048, 8192, 32768], value: 512, say: count },
      { name: "launch", label: "A launch", values: [1, 2, 5, 10, 20], value: 5, say: (v) => `${v} µs` },
      { name: "gap", label: "Kernel gap", values: [0, 0.5, 1, 2], value: 1, say: (v) => `${v} µs` },
      { name: "fused", label: "fused kernels", value: false },
      { name: "recorded", label: "recorded as a graph", value: false },
    ],
    draw(state, data, { width }) {
      const one = found(state, data), upper = lanes(state, one, width, 12), lower = bars(state, one, width, upper.bottom + 16);
      return [lower.bottom, upper.tree, lower.tree];
    },
    say(state, data) {
      const one = found(state, data), share = one.busy / one.took;
      const how = state.recorded ? `one launch of a recording of ${count(one.n)} kernels` : `${count(one.n)} launches of ${state.launch} µs`;
      const waits = share < 0.5 ? "The device waits for its host most of the time." : share < 0.9 ? "The device still waits now and then." : "The device is kept busy.";
      return `${plural(state.batch, "sequence")}, ${how}: ${time(one.took)} a step, of which the device moves bytes for ${time(one.busy)}, ${d3.format(share < 0.1 ? ".1%" : ".0%")(share)}. ${waits}`;
    },
    readout(state, data) {
      const one = found(state, data), share = one.busy / one.took;
      return [
        ["launches", count(state.recorded ? 1 : one.n)],
        ["kernels", count(one.n)],
        ["a step", time(one.took)],
        ["device busy", d3.format(share < 0.1 ? ".1%" : ".0%")(share), share < 0.5 ? "bad" : "good"],
        ["tokens a second, at most", count(Math.round((1e6 * state.batch) / one.took))],
      ];
    },
  });
})();
