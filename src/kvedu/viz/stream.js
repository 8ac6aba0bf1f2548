/* A stream through a cache of a fixed size: what is held step by step, what a head would look at, and what it costs. */
(function () {
  "use strict";
  const { rect, line, path, label, axisX, axisY, color, ink, faint, bad, plural } = kvfig;
  const RECENT = 32; // tokens over which a perplexity is taken

  /* Ranges [from, to) of the positions that sinks and a window hold after n tokens. */
  function windowHolds(n, sinks, window) {
    const first = Math.max(0, n - window);
    if (first <= sinks) return n ? [[0, n]] : [];
    return sinks ? [[0, sinks], [first, n]] : [[first, n]];
  }
  const count = (ranges) => ranges.reduce((n, [from, to]) => n + to - from, 0);
  /* Share of a query's attention, [[position, weight], ...], that falls on positions outside of the ranges. */
  function lost(attention, ranges) {
    const sum = (pairs) => pairs.reduce((s, [, weight]) => s + weight, 0);
    const gone = attention.filter(([p]) => !ranges.some(([from, to]) => from <= p && p < to));
    return sum(gone) / sum(attention);
  }
  /* Perplexity of the last `recent` tokens among the first n; loss[i] is that of token i + 1. */
  function perplexity(loss, n, recent) {
    const some = loss.slice(Math.max(0, n - 1 - recent), n - 1);
    return Math.exp(some.reduce((s, x) => s + x, 0) / some.length);
  }

  const held = (data, policy, head, at) =>
    policy.held ? policy.held[head][at] : windowHolds((at + 1) * data.chunk, policy.sinks, policy.budget - policy.sinks);
  const name = (position, data) => `token ${position} “${data.tokens[position].replace(/\n/g, "⏎").trim() || "space"}”`;
  const said = (ranges) => {
    const some = ranges.slice(0, 4).map(([from, to]) => (to - from === 1 ? `${from}` : `${from} to ${to - 1}`));
    return ranges.length > 4 ? `${plural(count(ranges), "token")} in ${ranges.length} pieces` : `tokens ${some.join(" and ")}`;
  };

  function now(state, data) {
    const policy = data.policies[state.policy], head = state.head, at = state.step, n = (at + 1) * data.chunk;
    const ranges = held(data, policy, head, at), attention = data.heads[head].attention[at];
    return { policy, head, at, n, ranges, attention, gone: lost(attention, ranges), ppl: perplexity(policy.loss, n, RECENT), full: perplexity(data.full, n, RECENT) };
  }

  kvfig.define("stream", {
    pure: { windowHolds, lost, perplexity },
    controls: (data) => [
      { name: "policy", label: "What is kept", options: data.policies.map((p, i) => [i, p.name]), value: 0 },
      { name: "head", label: "Head", options: data.heads.map((h, i) => [i, h.name]), value: 0 },
      { name: "step", label: "Tokens read", min: 0, max: data.heads[0].attention.length - 1, value: 0, play: true, every: 350, say: (v) => `${(v + 1) * data.chunk}` },
    ],
    draw(state, data, { width }) {
      const { policy, head, at, n, ranges, attention, gone } = now(state, data);
      const steps = data.heads[0].attention.length, T = steps * data.chunk, left = 46, right = width - 12;
      const x = d3.scaleLinear([0, T], [left, right]), thin = Math.max(1, x(1) - x(0));
      const inside = (p) => ranges.some(([from, to]) => from <= p && p < to);
      const tree = [];

      // 1. What the newest token's query looks at where nothing is dropped.
      const top = 34, high = 84, y = d3.scaleLinear([0, 1], [top + high, top]);
      tree.push(label(8, 14, "where the newest token would look", { "font-size": 11, weight: 600 }));
      tree.push(label(8, 27, "blue: still held", { "font-size": 11, fill: color(0) }), label(104, 27, `red, dotted: gone, ${Math.round(100 * gone)} %`, { "font-size": 11, fill: bad }));
      for (const tick of [0, 0.5, 1]) tree.push(line(left, y(tick), right, y(tick), faint), label(left - 6, y(tick) + 4, `${100 * tick} %`, { "text-anchor": "end", "font-size": 10 }));
      for (const [p, weight] of attention) {
        const ok = inside(p), wide = Math.max(2.5, thin);
        tree.push(rect(x(p), y(weight), wide, top + high - y(weight), ok ? color(0) : bad));
        if (!ok && weight > 0.02) tree.push(["circle", { cx: x(p) + wide / 2, cy: y(weight) - 4, r: 2, style: `fill:${bad}` }]);
      }
      tree.push(line(x(n), top, x(n), top + high, ink, { "stroke-dasharray": "2 3" }));

      // 2. What is held, a row for each step.
      const band = top + high + 30, row = 3;
      tree.push(label(8, band - 8, "what is held: a row for each step, downwards", { "font-size": 11, weight: 600 }));
      tree.push(rect(left, band, right - left, steps * row, "none", { style: `fill:none;stroke:${faint}` }));
      for (let i = 0; i <= at; i++)
        for (const [from, to] of held(data, policy, head, i))
          tree.push(rect(x(from), band + i * row, Math.max(1.5, x(to) - x(from)), row, color(0), { opacity: i === at ? 1 : 0.45 }));
      tree.push(line(left, band + at * row + row, right, band + at * row + row, ink));
      const under = band + steps * row;
      tree.push(axisX(x, under, "token of the text", { ticks: width < 420 ? 4 : 7, format: (v) => `${v}` }));

      // 3. What it costs.
      const cost = under + 86, tall = 92, span = d3.range(2 * data.chunk, T + 1, data.chunk);
      const curve = (loss) => span.map((m) => [m, perplexity(loss, m, RECENT)]);
      const all = data.policies.flatMap((p) => curve(p.loss)).map(([, v]) => v).concat(curve(data.full).map(([, v]) => v));
      const v = d3.scaleLog([Math.min(...all), Math.max(...all)], [cost + tall, cost]);
      const draw = (points, stroke, dash) => path(points.map(([m, p], i) => `${i ? "L" : "M"}${x(m).toFixed(1)} ${v(p).toFixed(1)}`).join(""), stroke, { "stroke-dasharray": dash });
      tree.push(label(8, cost - 36, `perplexity of the last ${RECENT} tokens`, { "font-size": 11, weight: 600 }));
      tree.push(label(8, cost - 22, "dashed: full cache", { "font-size": 11 }), label(8, cost - 8, `solid: ${policy.name}`, { "font-size": 11, fill: color(1) }));
      for (const tick of [3, 10, 30, 100, 300, 1000].filter((t) => t > v.domain()[0] && t < v.domain()[1]))
        tree.push(line(left, v(tick), right, v(tick), faint), label(left - 6, v(tick) + 4, String(tick), { "text-anchor": "end", "font-size": 10 }));
      tree.push(draw(curve(data.full), ink, "4 3"), draw(curve(policy.loss), color(1)));
      tree.push(line(x(n), cost, x(n), cost + tall, ink, { "stroke-dasharray": "2 3" }));
      const fills = data.policies[0].budget;
      tree.push(line(x(fills), cost, x(fills), cost + tall, faint), label(x(fills) + 4, cost + tall - 4, `${fills} tokens: full`, { "font-size": 10 }));
      return [cost + tall + 10, ...tree];
    },
    say(state, data) {
      const { policy, n, ranges, gone, ppl, full } = now(state, data);
      const dropped = n - count(ranges);
      const first = dropped ? `${plural(dropped, "token")} dropped; held are ${said(ranges)}.` : `nothing is dropped yet.`;
      const looks = `In ${data.heads[state.head].name}, the newest token, ${name(n - 1, data)}, would pay ${Math.round(100 * gone)} % of its attention to tokens that are gone.`;
      return `${policy.name[0].toUpperCase()}${policy.name.slice(1)}, after ${n} tokens: ${first} ${looks} Perplexity of the last ${RECENT} tokens ${ppl.toPrecision(3)}, with a full cache ${full.toPrecision(3)}.`;
    },
    readout(state, data) {
      const { policy, n, ranges, gone, ppl, full } = now(state, data);
      return [
        ["tokens held", `${count(ranges)} of ${n}`],
        ["attention to what is gone", `${Math.round(100 * gone)} %`, gone > 0.1 ? "bad" : "good"],
        [`perplexity, last ${RECENT}`, ppl.toPrecision(3), ppl > 1.5 * full ? "bad" : ""],
        ["with a full cache", full.toPrecision(3)],
        ["whole text", perplexity(policy.loss, data.tokens.length, data.tokens.length).toPrecision(3)],
        ["whole text, full cache", perplexity(data.full, data.tokens.length, data.tokens.length).toPrecision(3)],
      ];
    },
  });
})();
