/* Twin of kvedu.analysis.flops and roofline: work and bytes of a step, and what a machine makes of them.
   A config is what kvedu.viz.configs.sizes writes: {name, H, K, D, M, L, matrices, groups: [{layers, window}]}. */
(function () {
  "use strict";
  const kvfig = globalThis.kvfig;

  function causalPairs(tokens, cached, window) {
    if (window === null || window >= cached + tokens) return tokens * cached + (tokens * (tokens + 1)) / 2;
    const growing = Math.max(0, Math.min(tokens, window - cached));
    return growing * cached + (growing * (growing + 1)) / 2 + (tokens - growing) * window;
  }

  /* One step of `tokens` new tokens per sequence after `cached` ones, by part: {flops, bytes}. */
  kvfig.prefillCost = function (config, tokens, cached, batch, size, kvSize) {
    const { H, K, D, M, L, matrices } = config;
    const N = batch * tokens, kvToken = 2 * K * D * (kvSize === undefined || kvSize === null ? size : kvSize);
    let pairs = 0, keys = 0;
    for (const { layers, window } of config.groups) {
      pairs += layers * causalPairs(tokens, cached, window);
      keys += layers * (window === null ? cached + tokens : Math.min(cached + tokens, tokens + window - 1));
    }
    return {
      projections: { flops: 2 * N * matrices.projections, bytes: size * matrices.projections },
      attention: { flops: 4 * batch * H * D * pairs, bytes: batch * keys * kvToken + N * L * kvToken },
      mlp: { flops: 2 * N * matrices.mlp, bytes: size * matrices.mlp },
      head: { flops: 2 * batch * matrices.head, bytes: size * (matrices.head + N * M) },
    };
  };
  kvfig.decodeCost = (config, context, batch, size, kvSize) => kvfig.prefillCost(config, 1, context, batch, size, kvSize);
  /* A step without a cache: all tokens run again, and none of their keys and values is kept. */
  kvfig.uncachedCost = function (config, length, batch, size) {
    const parts = kvfig.prefillCost(config, length, 0, batch, size);
    return { ...parts, attention: { flops: parts.attention.flops, bytes: 0 } };
  };
  kvfig.sumCost = (parts) =>
    Object.values(parts).reduce((a, b) => ({ flops: a.flops + b.flops, bytes: a.bytes + b.bytes }), { flops: 0, bytes: 0 });
  kvfig.timeBound = (cost, peak, bandwidth) => Math.max(cost.flops / peak, cost.bytes / bandwidth);
  /* Seconds of a step at least: its parts run one after another, so their bounds add (kvedu.analysis.cost.step_time). */
  kvfig.stepTime = (parts, peak, bandwidth) => Object.values(parts).reduce((sum, part) => sum + kvfig.timeBound(part, peak, bandwidth), 0);
  kvfig.attainable = (intensity, peak, bandwidth) => Math.min(peak, intensity * bandwidth);
  kvfig.cacheBytes = (config, tokens, batch, size) =>
    batch * config.groups.reduce((n, { layers, window }) => n + layers * 2 * config.K * config.D * size * (window === null ? tokens : Math.min(tokens, window)), 0);
})();
