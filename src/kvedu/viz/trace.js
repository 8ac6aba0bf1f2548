/* The trace player: who runs in which step, which blocks they hold, and how full the pool is. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, count, plural } = kvfig;
  const { layout, stateAt, unfilled } = kvfig.replay;

  /* A round in its cell: the share of its guesses that was rejected pale from above, and how many tokens it gave. */
  function blockOf(round, left, right, y, high, ahead) {
    const pale = ((high - 2) * (round.guessed - round.accepted)) / round.guessed;
    const shade = rect(left, y + 1, Math.max(0.8, right - left - (right - left > 3 ? 0.7 : 0)), pale, "var(--kv-paper, #fff)", { opacity: ahead ? 0.2 : 0.55 });
    return right - left < 9 || high < 11 ? [shade] : [shade, label((left + right) / 2, y + high - 4, String(round.emitted), { "text-anchor": "middle", "font-size": Math.min(11, high - 2), weight: 600 })];
  }

  const runOf = (state, data) => data.runs.find(({ name }) => name === state.run);
  const clamp = (state, run) => Math.min(state.step, layout(run).steps.length - 1);
  const named = (data, s) => (data.labels[s.request] || `request ${s.request}`) + (String(s.id).endsWith(".0") ? "" : ` #${1 + Number(s.id.split(".")[1])}`);

  const short = (text, length) => (text.length <= length ? text : `${text.slice(0, Math.max(1, length - 1))}…`);

  function gantt(state, data, run, width, top) {
    const { steps, sequences } = layout(run);
    const slots = state.rows === "slots", seconds = state.by === "seconds";
    const rows = slots ? run.slots : sequences.length;
    const left = 14 + Math.min(width * 0.3, 6.6 * Math.max("blocks".length, ...(slots ? [] : sequences.map((s) => named(data, s).length))));
    const high = Math.max(9, Math.min(20, 300 / rows));
    const longest = Math.max(...data.runs.map((r) => (seconds ? layout(r).steps.at(-1).time : layout(r).steps.length)));
    const x = d3.scaleLinear([0, longest], [left, width - 8]);
    const from = (at) => x(seconds ? steps[at].start : at), to = (at) => x(seconds ? steps[at].time : at + 1);
    const at = clamp(state, run);
    const row = (s, i, step) => top + high * (slots ? s.slot[step] : i);
    const tree = [];
    for (let r = 0; r < rows; r++) {
      tree.push(label(left - 6, top + high * r + high / 2 + 4, slots ? `slot ${r}` : short(named(data, sequences[r]), (left - 14) / 6.4), { "text-anchor": "end", "font-size": Math.min(12, high) }));
      tree.push(line(left, top + high * (r + 1), x(longest), top + high * (r + 1), faint));
    }
    sequences.forEach((s, i) => {
      if (!slots && s.cells.length) {
        const begin = s.arrived === undefined ? from(s.cells[0].step) : x(seconds ? s.arrived : s.before);
        tree.push(line(begin, top + high * (i + 0.5), from(s.cells[0].step), top + high * (i + 0.5), ink, { "stroke-dasharray": "1 3" }));
      }
      for (const { step, prefill, round } of s.cells) {
        const y = row(s, i, step);
        const fill = slots ? color(s.request) : color(prefill ? 1 : 0);
        tree.push(rect(from(step), y + 1, Math.max(0.8, to(step) - from(step) - (to(step) - from(step) > 3 ? 0.7 : 0)), high - 2, fill, { opacity: step > at ? 0.22 : slots && prefill ? 0.6 : 1 }));
        if (round && round.guessed) tree.push(...blockOf(round, from(step), to(step), y, high, step > at));
      }
      if (slots && s.cells.length && high >= 12) {
        const cell = s.cells[0];
        const room = to(s.cells.at(-1).step) - from(cell.step) - 4;
        if (room > 12) tree.push(label(from(cell.step) + 3, row(s, i, cell.step) + high - 5, short(named(data, s).split(" ")[0], Math.floor(room / 7)), { "font-size": 11 }));
      }
      for (const { kind, step } of s.marks)
        if (kind === "Preempted" && !slots) tree.push(label(from(Math.min(step, steps.length - 1)), top + high * i + high - 3, "✕", { fill: bad, weight: 700, "text-anchor": "middle" }));
    });
    const bottom = top + high * rows;
    tree.push(rect(from(at), top - 4, Math.max(1.5, to(at) - from(at)), bottom - top + 8, "none", { style: `fill:none;stroke:${ink};stroke-width:1.5` }));
    tree.push(kvfig.axisX(x, bottom + 6, seconds ? "seconds" : "step", { ticks: Math.max(3, width / 110) }));
    return { tree, bottom: bottom + 52, from, to, left };
  }

  function poolStrip(run, data, at, { from, to, left }, width, top) {
    const { steps } = layout(run);
    const total = steps[0].blocks_in_use + steps[0].blocks_evictable + steps[0].blocks_free;
    if (!total) return { tree: [], bottom: top };
    const y = d3.scaleLinear([0, total], [top + 48, top]);
    const tree = [label(left - 6, top + 12, "blocks", { "text-anchor": "end" }), line(left, y(total), to(steps.length - 1), y(total), faint)];
    steps.forEach((step, i) => {
      const wide = Math.max(0.8, to(i) - from(i));
      const both = step.blocks_in_use + step.blocks_evictable;
      tree.push(rect(from(i), y(both), wide, y(0) - y(both), color(4), { opacity: i > at ? 0.12 : 0.4 }));
      tree.push(rect(from(i), y(step.blocks_in_use), wide, y(0) - y(step.blocks_in_use), full(step) ? bad : color(2), { opacity: i > at ? 0.25 : 1 }));
    });
    let at0 = left;
    for (const [name, fill, opacity] of [["in use", color(2), 1], ["kept for reuse", color(4), 0.4]]) {
      if (opacity < 1 && !steps.some((step) => step.blocks_evictable)) continue;
      tree.push(rect(at0, top + 56, 10, 10, fill, { opacity }), label(at0 + 14, top + 65, name, { "font-size": 11 }));
      at0 += 26 + 6.2 * name.length;
    }
    return { tree, bottom: top + 76 };
  }
  const full = (step) => step.blocks_free + step.blocks_evictable === 0;

  function pool(data, run, at, width, top) {
    if (!run.tables) return { tree: [], bottom: top };
    const table = run.tables[at];
    const { sequences } = layout(run);
    const size = Math.max(18, Math.min(30, (width - 16) / Math.ceil(data.n_blocks / Math.ceil(data.n_blocks / 24)) - 2));
    const across = Math.max(1, Math.floor((width - 16) / (size + 2)));
    const owners = new Map();
    for (const [request, , tokens, blocks] of table.held)
      blocks.forEach((block, i) => {
        const old = owners.get(block) || { requests: [], tokens: 0 };
        owners.set(block, { requests: [...old.requests, request], tokens: Math.max(old.tokens, Math.min(data.block_size, tokens - i * data.block_size)) });
      });
    const tree = [label(8, top + 10, `pool: ${data.n_blocks} blocks of ${data.block_size} tokens`, { weight: 600 })];
    const y0 = top + 18;
    for (let block = 0; block < data.n_blocks; block++) {
      const x = 8 + (block % across) * (size + 2), y = y0 + Math.floor(block / across) * (size + 2);
      const owner = owners.get(block), remembered = table.evictable.includes(block);
      if (owner) tree.push(rect(x, y + size * (1 - owner.tokens / data.block_size), size, (size * owner.tokens) / data.block_size, color(owner.requests[0]), { opacity: 0.75 }));
      if (remembered) tree.push(rect(x, y, size, size, color(4), { opacity: 0.25 }));
      const shared = owner && owner.requests.length > 1;
      tree.push(rect(x + 0.5, y + 0.5, size - 1, size - 1, "none", { style: `fill:none;stroke:${owner ? color(owner.requests[0]) : faint};stroke-width:${shared ? 3 : 1}`, "stroke-dasharray": remembered ? "3 2" : null }));
      const mark = shared ? `×${owner.requests.length}` : "", beside = shared && size > 26;
      tree.push(label(x + size / 2, y + size / 2 + (shared && !beside ? 0 : 4), beside ? `${block}${mark}` : String(block), { "text-anchor": "middle", "font-size": size < 22 || shared ? 9 : 11, weight: owner ? 600 : 400 }));
      if (shared && !beside) tree.push(label(x + size / 2, y + size - 2, mark, { "text-anchor": "middle", "font-size": 8, weight: 600 }));
    }
    let y = y0 + Math.ceil(data.n_blocks / across) * (size + 2) + 16;
    tree.push(label(8, y, "block tables", { weight: 600 }));
    const begin = tablesLeft(data, run);
    for (const held of table.held) {
      const [request, , , blocks] = held;
      y += 20;
      tree.push(label(8, y, owned(data, held), { fill: color(request) }));
      let x = begin;
      blocks.forEach((block) => {
        if (x + 26 > width) { x = 20; y += 20; }
        tree.push(rect(x, y - 13, 26, 17, "none", { style: `fill:none;stroke:${color(request)}` }), label(x + 13, y, String(block), { "text-anchor": "middle", "font-size": 11 }));
        x += 28;
      });
    }
    return { tree, bottom: y0 + tablesHigh(data, run, across, size, width) };
  }
  const owned = (data, [request, copy, tokens]) => `${named(data, { request, id: `${request}.${copy}` })}, ${tokens} tokens:`;
  /* All tables of a run begin at one place, behind the longest name. */
  const tablesLeft = (data, run) => 20 + 6.6 * Math.max(0, ...run.tables.flatMap(({ held }) => held.map((one) => owned(data, one).length)));
  /* The picture keeps its height while it plays: room for the most rows that any step needs. */
  function tablesHigh(data, run, across, size, width) {
    const within = (left) => Math.max(1, Math.floor((width - 26 - left) / 28) + 1), first = within(tablesLeft(data, run));
    const rows = Math.max(...run.tables.map(({ held }) => held.reduce((n, [, , , blocks]) => n + 1 + Math.ceil(Math.max(0, blocks.length - first) / within(20)), 0)));
    return Math.ceil(data.n_blocks / across) * (size + 2) + 30 + rows * 20;
  }

  kvfig.define("trace", {
    pure: { stateAt: (run, at) => stateAt(run, at), unfilled, slots: (run) => layout(run).sequences.map((s) => [s.id, s.slot.map((v) => v ?? null)]) },
    controls: (data) => [
      ...(data.runs.length > 1 ? [{ name: "run", label: "Run", options: data.runs.map(({ name }) => [name, name]), value: data.runs[0].name }] : []),
      { name: "step", label: "Step", min: 0, max: Math.max(...data.runs.map((run) => layout(run).steps.length)) - 1, value: 0, play: true, every: 450, say: (v) => String(v) },
      { name: "rows", label: "Rows", options: [["sequences", "sequences"], ["slots", "slots"]], value: "sequences" },
      { name: "by", label: "Width", options: [["steps", "steps"], ["seconds", "seconds"]], value: "steps" },
    ],
    draw(state, data, { width }) {
      const run = runOf({ run: data.runs[0].name, ...state }, data), at = clamp(state, run);
      const key = state.rows === "slots"
        ? [["one color a request; pale: prefill", ink]]
        : [["prefill", color(1)], ["decode", color(0)], ["waits", ink], ...(layout(run).steps.some((s) => s.rounds.some((r) => r.guessed)) ? [["2 tokens a round, pale: rejected", ink]] : []), ...(layout(run).sequences.some((s) => s.marks.some((m) => m.kind === "Preempted")) ? [["✕ preempted", bad]] : [])];
      let x = 8, y = 0;
      const legend = key.map(([text, fill]) => {
        const plain = text[0] === "✕" || text[0] === "2" || key.length === 1, wide = (plain ? 0 : 17) + 7 * text.length;
        if (x > 8 && x + wide > width) { x = 8; y += 17; }
        const at = x;
        x += wide + 17;
        return [plain ? null : text === "waits" ? line(at, y + 8, at + 12, y + 8, ink, { "stroke-dasharray": "1 3" }) : rect(at, y + 3, 12, 11, fill), label(at + (plain ? 0 : 17), y + 13, text, { fill: text[0] === "✕" ? bad : ink })];
      });
      const chart = gantt(state, data, run, width, y + 28);
      const strip = poolStrip(run, data, at, chart, width, chart.bottom);
      const blocks = pool(data, run, at, width, strip.bottom + 6);
      return [blocks.bottom + 6, legend, chart.tree, strip.tree, blocks.tree];
    },
    say(state, data) {
      const run = runOf({ run: data.runs[0].name, ...state }, data), at = clamp(state, run);
      const { steps, sequences } = layout(run);
      const doing = (prefill) => sequences.filter((s) => s.cells.some((c) => c.step === at && c.prefill === prefill)).map((s) => named(data, s));
      const list = (names, verb) => (names.length === 0 ? [] : [names.length > 4 ? `${names.length} sequences ${verb}` : `${names.join(", ")} ${names.length > 1 ? verb : verb + "s"}`]);
      const now = stateAt(run, at);
      const back = sequences.filter((s) => s.marks.some((m) => m.kind === "Preempted" && m.step === at)).map((s) => named(data, s));
      const rounds = steps[at].rounds.filter((r) => r.guessed), total = (name) => rounds.reduce((n, r) => n + r[name], 0);
      const guesses = rounds.length ? `; ${total("accepted")} of ${count(total("guessed"))} guesses kept` : "";
      const held = now.inUse + now.evictable + now.free ? `; ${now.inUse} of ${plural(now.inUse + now.evictable + now.free, "block")} in use` : "";
      return `Step ${at} of ${steps.length - 1}: ${[...list(doing(true), "prefill"), ...list(doing(false), "decode")].join("; ") || "nobody runs"}${guesses}${now.waiting ? `; ${now.waiting} waiting` : ""}${held}${back.length ? `; sent back to make room: ${back.join(", ")}` : ""}.`;
    },
    readout(state, data) {
      const run = runOf({ run: data.runs[0].name, ...state }, data), at = clamp(state, run), now = stateAt(run, at);
      return [
        ["tokens computed in this step", count(now.tokens)],
        ["tokens sampled so far", count(now.sampled)],
        ["slots busy so far", `${(100 * (state.by === "seconds" ? now.busyTime : now.busy)).toFixed(0)}%`],
        ["clock", `${now.time.toFixed(2)} s`],
        ...(now.guessed ? [["guesses kept so far", `${count(now.accepted)} of ${count(now.guessed)}`], ["tokens a round so far", (now.emitted / now.rounds).toFixed(2)]] : []),
        ...(run.tables ? [["places held but empty", count(unfilled(run.tables[at], data.block_size))]] : []),
        ...(now.inUse + now.evictable + now.free ? [["blocks left", count(now.evictable + now.free), now.evictable + now.free === 0 ? "bad" : ""]] : []),
      ];
    },
  });
})();
