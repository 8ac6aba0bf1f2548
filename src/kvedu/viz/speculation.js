/* A round of speculative decoding, stage by stage: guesses, the target's verdict on each, the token it adds, and the rollback. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, good, plural } = kvfig;
  const STAGES = ["propose", "verify", "decide", "roll back"];

  /* Depth of each node; children of the text have depth 1. */
  function depths(parents) {
    const found = [];
    for (const parent of parents) found.push(parent < 0 ? 1 : found[parent] + 1);
    return found;
  }
  /* Who sees whom among the text's last token (0) and the nodes (1, 2, …): a node its ancestors and itself. */
  function mask(parents) {
    const rows = [[true, ...parents.map(() => false)]];
    parents.forEach((parent, i) => rows.push(rows[parent + 1].map((seen, j) => seen || j === i + 1)));
    return rows;
  }
  /* A column for each depth, a row for each leaf; a first child stands in its parent's row. */
  function places(parents) {
    const children = new Map();
    parents.forEach((parent, i) => children.set(parent, [...(children.get(parent) || []), i]));
    const depth = depths(parents), row = [];
    let used = 0;
    (function walk(node) {
      (children.get(node) || []).forEach((child, i) => { row[child] = i || node < 0 ? used : row[node]; if (!children.has(child)) used += 1; walk(child); });
    })(-1);
    return parents.map((_, i) => ({ column: depth[i], row: row[i] }));
  }
  /* With what chance a first guess, drawn with probability q, is kept. */
  const keep = (p, q) => Math.min(1, p / q);
  /* Tokens that rounds 0 … at have added; plain decoding needs a pass for each. */
  const added = (rounds, at) => rounds.slice(0, at + 1).reduce((n, round) => n + round.kept.length + 1, 0);

  const runOf = (state, data) => data.runs.find(({ name }) => name === state.run) || data.runs[0];
  function now(state, data) {
    const run = runOf(state, data), step = Math.min(state.step, 4 * run.rounds.length - 1);
    return { run, at: Math.floor(step / 4), stage: step % 4, round: run.rounds[Math.floor(step / 4)] };
  }
  const shown = (text) => text.replace(/\n/g, "↵").replace(/ /g, "·") || "(nothing)";
  const cut = (text, room) => { const s = shown(text); return s.length <= room ? s : `${s.slice(0, Math.max(1, room - 1))}…`; };
  /* The end of a text, in one line. */
  const tail = (text, room) => { const s = text.replace(/\s*\n\s*/g, "↵"); return s.length <= room ? s : `…${s.slice(1 - room)}`; };
  const number = (x) => (x >= 0.995 ? "1.0" : x >= 0.005 ? x.toFixed(2).slice(1) : x > 0 ? "≈0" : "0");

  function tokenBox(x, y, w, text, fill, strong, more) {
    return [rect(x, y, w, 18, fill, { opacity: 0.22, rx: 3 }), rect(x + 0.5, y + 0.5, w - 1, 17, "none", { rx: 3, style: `fill:none;stroke:${strong ? fill : ink};stroke-width:${strong ? 2 : 1}` }),
      label(x + w / 2, y + 13, cut(text, Math.floor((w - 4) / 6.4)), { "text-anchor": "middle", "font-size": 11, ...more })];
  }

  kvfig.define("speculation", {
    pure: { depths, mask, places, keep, added },
    controls: (data) => [
      ...(data.runs.length > 1 ? [{ name: "run", label: "Run", options: data.runs.map(({ name }) => [name, name]), value: data.runs[0].name }] : []),
      { name: "step", label: "Step", min: 0, max: 4 * Math.max(...data.runs.map(({ rounds }) => rounds.length)) - 1, value: 0, play: true, every: 1300,
        say: (v) => `round ${Math.floor(v / 4) + 1}, ${STAGES[v % 4]}` },
    ],
    settle: (state, data) => Object.assign({}, state, { step: Math.min(state.step, 4 * runOf(state, data).rounds.length - 1) }),
    draw(state, data, { width, narrow }) {
      const { run, round, stage } = now(state, data);
      const all = run.rounds, tallest = Math.max(...all.map((r) => Math.max(0, ...places(r.parents).map(({ row }) => row + 1))));
      const columns = 2 + Math.max(1, ...all.map((r) => Math.max(0, ...depths(r.parents))));
      const step = Math.min(120, (width - 12) / columns), w = step - (narrow ? 4 : 14), top = 46, high = 50;
      const at = places(round.parents), x = (column) => 6 + column * step, y = (row) => top + row * high;
      const kept = new Set(round.kept), looked = new Set(round.judged), drawn = [];
      drawn.push(label(6, 14, tail(round.before, Math.floor((width - 12) / 6.4)), { "font-size": 11, fill: ink }));
      drawn.push(label(6, 30, narrow ? "the text; its last token, and the guesses" : "the text so far; below, its last token and what hangs from it", { "font-size": 10 }));
      drawn.push(tokenBox(x(0), y(0), w, round.last, color(4), false));
      round.tokens.forEach((token, i) => {
        const { column, row } = at[i], parent = round.parents[i], from = parent < 0 ? { column: 0, row: 0 } : at[parent];
        const known = stage >= 2, yes = known && kept.has(i), no = known && looked.has(i) && !kept.has(i);
        const fill = yes ? good : no ? bad : color(0), bend = x(column) - (step - w) / 2;
        drawn.push(line(x(from.column) + w, y(from.row) + 9, bend, y(row) + 9, faint), line(bend, y(row) + 9, x(column), y(row) + 9, faint));
        drawn.push(["g", { opacity: known && !looked.has(i) ? 0.45 : 1 }, ...tokenBox(x(column), y(row), w, token, fill, yes || no)]);
        const p = stage >= 1 ? `p ${number(round.p[i])}` : "", q = round.q[i] === null ? "" : `q ${number(round.q[i])}`;
        drawn.push(label(x(column) + w / 2, y(row) + 29, narrow ? p || q : [q, p].filter(Boolean).join("  "), { "text-anchor": "middle", "font-size": 9.5 }));
        if (known) {
          const word = yes ? "✓ kept" : no ? "✕ rejected" : "not looked at";
          drawn.push(label(x(column) + w / 2, y(row) + 40, narrow ? word.split(" ")[0] : word, { "text-anchor": "middle", "font-size": 9.5, fill: yes ? good : no ? bad : ink }));
        }
      });
      const end = round.kept.length ? at[round.kept[round.kept.length - 1]] : { column: 0, row: 0 };
      const under = y(tallest);
      if (stage >= 2) {
        const bonus = !round.tokens.some((_, i) => looked.has(i) && !kept.has(i));
        drawn.push(["path", { d: `M${x(end.column) + w - 6},${y(end.row) + 18}V${under + 9}H${x(end.column + 1)}`, style: `fill:none;stroke:${color(1)};stroke-dasharray:3 2` }]);
        drawn.push(tokenBox(x(end.column + 1), under, w, round.token, color(1), true));
        drawn.push(label(x(end.column + 1) + w / 2, under + 29, bonus ? "bonus" : narrow ? "correct." : "correction", { "text-anchor": "middle", "font-size": 9.5, fill: color(1) }));
      }
      const strip = under + 46, T = round.tokens.length, most = Math.max(...all.map((r) => r.tokens.length)), cell = Math.min(16, (width - 100) / (most + 2));
      const held = stage === 0 ? 0 : T + 1, x0 = 92;
      drawn.push(label(6, strip + 12, "target's cache", { "font-size": 11 }));
      drawn.push(rect(x0 - 4, strip - 2, cell * (most + 1) + 8, 20, "none", { style: `fill:none;stroke:${faint}` }));
      for (let i = 0; i < held; i += 1) {
        const stays = i === 0 || kept.has(i - 1), gone = stage === 3 && !stays;
        drawn.push(rect(x0 + i * cell, strip, cell - 2, 16, gone ? "none" : i === 0 ? color(4) : stage >= 2 ? (stays ? good : bad) : color(0), { opacity: 0.6, style: gone ? `fill:none;stroke:${bad};stroke-dasharray:2 2` : `fill:${i === 0 ? color(4) : stage >= 2 ? (stays ? good : bad) : color(0)}` }));
      }
      const lengths = stage === 0 ? `${round.cache[0]} tokens` : stage < 3 ? `${round.cache[0]} + ${T + 1} in this pass` : `${round.cache[0]} + ${round.cache[1] - round.cache[0]} kept, ${round.cache[0] + T + 1 - round.cache[1]} forgotten`;
      drawn.push(label(x0 - 4, strip + 32, lengths, { "font-size": 10.5 }));
      const seen = mask(round.parents), small = Math.min(11, (width - 12) / (most + 2)), y0 = strip + 58;
      drawn.push(label(6, y0 - 8, narrow ? "who sees whom: a row's token sees the colored ones" : "who sees whom in the pass: a row's token sees the colored columns, and all of the text before", { "font-size": 10 }));
      seen.forEach((row, i) => row.forEach((yes, j) => drawn.push(rect(6 + j * small, y0 + i * small, small - 1, small - 1, yes ? (i === 0 || j === 0 ? color(4) : color(0)) : faint, { opacity: yes ? 0.8 : 0.6 }))));
      return [y0 + small * (most + 1) + 6, ...drawn];
    },
    say(state, data) {
      const { run, at, stage, round } = now(state, data), T = round.tokens.length, missed = round.tokens.some((_, i) => round.judged.includes(i) && !round.kept.includes(i));
      const head = `Round ${at + 1} of ${run.rounds.length}: `;
      if (!T) return `${head}no guess; the pass yields one token, as in plain decoding.`;
      const chances = round.kept.length || missed ? round.judged.map((i) => `“${shown(round.tokens[i])}” ${round.chance[i] >= 0.995 ? "surely" : `with chance ${round.chance[i].toFixed(2)}`}: ${round.kept.includes(i) ? "kept" : "rejected"}`) : [];
      return head + [
        `${run.draft} proposes ${plural(T, "token")}.`,
        `the target runs ${T + 1} tokens in one pass and has a probability for each guess.`,
        run.greedy ? `${plural(round.kept.length, "guess").replace("guesss", "guesses")} kept, those that are the target's own choice; it adds “${shown(round.token)}”${missed ? " where a guess was wrong" : " for free"}.`
          : `kept is ${chances.join("; ")}. The target adds “${shown(round.token)}”.`,
        `${plural(round.cache[0] + T + 1 - round.cache[1], "token")} of the pass ${round.cache[0] + T + 1 - round.cache[1] === 1 ? "is" : "are"} forgotten; ${plural(round.kept.length + 1, "token")} came out of one pass.`,
      ][stage];
    },
    readout(state, data) {
      const { run, at, stage, round } = now(state, data), done = stage === 3 ? at : at - 1, tokens = done < 0 ? 0 : added(run.rounds, done);
      return [
        ["guesses kept in this round", stage < 2 ? "…" : `${round.kept.length} of ${round.tokens.length}`, stage < 2 ? "" : round.kept.length ? "good" : "bad"],
        ["passes of the target so far", done + 1],
        ["tokens so far (plain decoding: as many passes)", tokens],
        ["tokens a pass", done < 0 ? "…" : (tokens / (done + 1)).toFixed(2)],
      ];
    },
  });
})();
