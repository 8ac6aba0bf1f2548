/* Heads to KV heads: who shares whom, what a token takes in the cache, and the attention that was measured. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, binary, plural } = kvfig;

  const divisors = (H) => d3.range(1, H + 1).filter((k) => H % k === 0).reverse();
  const headOf = (query, H, K) => Math.floor(query / (H / K));
  /* Bytes of one token in the cache, 2 bytes an element. */
  const tokenBytes = ({ L, D }, K) => 2 * L * K * D * 2;
  const kind = (H, K) => (K === H ? "MHA" : K === 1 ? "MQA" : "GQA");

  const model = (state, data) => data.models.find(({ name }) => name === state.model);
  const measuredOf = (state, data) => (data.measured.length && state.model === data.models[0].name ? data.measured.find((m) => m.kv_heads === state.kv) : undefined);
  const number = (value) => (value < 1000 ? value.toPrecision(3) : Math.round(value).toLocaleString("en-US"));

  function sharing(H, K, width, top) {
    const x = (i, n) => 12 + ((i + 0.5) * (width - 24)) / n;
    const r = Math.max(1.5, Math.min(9, (width - 24) / H / 2 - 1)), wide = Math.min(46, (width - 24) / K - 2);
    const tree = [label(8, top, `${H} query heads`), label(8, top + 84, `${plural(K, "KV head")}`)];
    for (let q = 0; q < H; q++) {
      const k = headOf(q, H, K);
      tree.push(line(x(q, H), top + 18 + r, x(k, K), top + 50, color(k), { opacity: 0.7 }));
      tree.push(["circle", { cx: x(q, H), cy: top + 18, r, style: `fill:${color(k)}` }]);
    }
    for (let k = 0; k < K; k++) {
      tree.push(rect(x(k, K) - wide / 2, top + 50, wide, 18, color(k)));
      if (wide > 22) tree.push(label(x(k, K), top + 63, wide > 34 ? `K V ${k}` : String(k), { "text-anchor": "middle", "font-size": 11, fill: "var(--kv-paper, #fff)" }));
    }
    return tree;
  }

  function maps(found, data, H, K, width, top) {
    const T = data.tokens.length, across = width < 420 ? 3 : width < 900 ? 5 : 9;
    const gap = 10, size = (width - 16 - gap * (across - 1)) / across, cell = size / T;
    const tree = [label(8, top, `attention in layer ${data.layer}, by query head${width > 520 ? " (row: a token, column: what it looks at)" : ""}`, { "font-size": 11 })];
    for (let q = 0; q < H; q++) {
      const x = 8 + (q % across) * (size + gap), y = top + 22 + Math.floor(q / across) * (size + 22);
      const shade = color(headOf(q, H, K));
      tree.push(label(x, y - 3, `q${q} → kv${headOf(q, H, K)}`, { "font-size": 10, fill: shade }));
      tree.push(rect(x, y, size, size, "none", { style: `fill:none;stroke:${shade}` }));
      for (let t = 0; t < T; t++) for (let s = 0; s <= t; s++) {
        const weight = found.attention[q][t][s];
        if (weight > 0.03) tree.push(rect(x + s * cell, y + t * cell, cell, cell, shade, { opacity: Math.min(1, 0.12 + weight) }));
      }
    }
    return { tree, bottom: top + 22 + Math.ceil(H / across) * (size + 22) };
  }

  kvfig.define("heads", {
    pure: { divisors, headOf, tokenBytes, kind },
    controls: (data) => [
      { name: "model", label: "Model", options: data.models.map(({ name }) => [name, name]), value: data.models[0].name },
      { name: "kv", label: "KV heads K", values: (state, data) => divisors(model(state, data).H), value: data.own[0], say: (v, state, data) => `${v}, ${kind(model(state, data).H, v)}` },
    ],
    settle(state, data) {
      const fits = divisors(model(state, data).H);
      return fits.includes(state.kv) ? state : { ...state, kv: data.own[data.models.findIndex(({ name }) => name === state.model)] };
    },
    draw(state, data, { width }) {
      const config = model(state, data), { H } = config, K = state.kv;
      const tree = sharing(H, K, width, 14);
      const x = d3.scaleLinear([0, tokenBytes(config, H)], [10, width - 10]), y = 122;
      tree.push(rect(10, y, x(tokenBytes(config, K)) - 10, 16, color(0)), rect(10, y, width - 20, 16, "none", { style: `fill:none;stroke:${ink}` }));
      tree.push(label(10, y + 32, `cache: ${binary(tokenBytes(config, K))} a token, ${((100 * K) / H).toPrecision(3)}% of MHA`));
      const found = measuredOf(state, data);
      if (!found || !found.attention) return [y + 44, ...tree];
      const laid = maps(found, data, H, K, width, y + 58);
      return [laid.bottom, ...tree, ...laid.tree];
    },
    say(state, data) {
      const config = model(state, data), { H } = config, K = state.kv, own = data.own[data.models.indexOf(config)];
      const share = `${plural(K, "KV head")} for ${H} query heads (${kind(H, K)}): ${binary(tokenBytes(config, K))} a token in 2 bytes an element${K === H ? ", the most there can be" : `; ${H / K} query heads read each KV head`}.`;
      const found = measuredOf(state, data);
      if (!found) return `${share}${K === own ? " So the model was published." : " No model was trained this way here, so this says nothing about quality."}`;
      const trained = found.trained ? ` After a short training: ${number(found.trained)}.` : "";
      return `${share} Measured perplexity ${number(found.perplexity)}${K === own ? ", the model as it is" : K > own ? ", the same: heads are only copied" : ", its heads merged"}.${trained}`;
    },
    readout(state, data) {
      const config = model(state, data), K = state.kv, found = measuredOf(state, data);
      const best = data.measured.length ? Math.min(...data.measured.map((m) => m.perplexity)) : 1;
      return [
        ["cache per token", binary(tokenBytes(config, K))],
        ["8,192 tokens", binary(8192 * tokenBytes(config, K))],
        ["queries per KV head G", config.H / K],
        ...(found ? [["perplexity, measured", number(found.perplexity), found.perplexity > 1.01 * best ? "bad" : "good"]] : []),
        ...(found && found.trained ? [["after a short training", number(found.trained), found.trained > 1.01 * best ? "bad" : "good"]] : []),
      ];
    },
  });
})();
