/* The radix tree of a run: common beginnings are common branches. Each row is a node: its blocks, its text, who uses it. */
(function () {
  "use strict";
  const { rect, line, label, color, ink, faint, bad, plural } = kvfig;

  /* Rows of an indented tree, parents first: {node, depth, row}. */
  function rows(nodes) {
    const depth = new Map();
    return nodes.map((node, row) => {
      depth.set(node.id, node.parent === null ? 0 : depth.get(node.parent) + 1);
      return { node, depth: depth.get(node.id), row };
    });
  }
  /* Leaves that nobody uses, the one that goes first in front. */
  function evictionOrder(nodes) {
    const parents = new Set(nodes.map(({ parent }) => parent));
    return nodes.filter(({ id, users }) => !parents.has(id) && !users).sort((a, b) => a.used - b.used).map(({ id }) => id);
  }
  const blocksOf = (nodes) => nodes.reduce((n, { blocks }) => n + blocks.length, 0);

  const before = (data, at) => new Set(at > 0 ? data.states[at - 1].nodes.flatMap(({ blocks }) => blocks) : []);
  const cut = (text, room) => (text.length <= room ? text : `${text.slice(0, Math.max(1, room - 1))}…`);

  kvfig.define("radix", {
    pure: { rows, evictionOrder, blocksOf },
    controls: (data) => [
      { name: "at", label: "Change", min: 0, max: data.states.length - 1, value: 0, play: true, every: 1400, say: (v) => `${v + 1} of ${data.states.length}` },
    ],
    draw(state, data, { width, narrow }) {
      const now = data.states[state.at], old = before(data, state.at);
      const most = Math.max(...data.states.map(({ nodes }) => nodes.length));
      const high = 38, indent = narrow ? 12 : 22, cell = narrow ? 15 : 18, top = 46;
      const first = evictionOrder(now.nodes)[0];
      const tree = [];
      const laid = rows(now.nodes), at = new Map(laid.map((one) => [one.node.id, one]));
      const across = Math.max(3, Math.floor((width - 150) / cell));
      for (const { node, depth, row } of laid) {
        const x = 10 + depth * indent, y = top + row * high;
        if (node.parent !== null) {
          const up = at.get(node.parent);
          const px = 10 + up.depth * indent + 5;
          tree.push(line(px, top + up.row * high + cell, px, y + cell / 2, ink), line(px, y + cell / 2, x, y + cell / 2, ink));
        }
        const shown = node.blocks.slice(0, across);
        shown.forEach((block, i) => {
          const matched = now.matched.includes(block), fresh = !old.has(block);
          const fill = node.users ? color(2) : color(4);
          tree.push(rect(x + i * cell, y, cell - 2, cell - 2, fill, { opacity: node.users ? 0.55 : 0.25 }));
          tree.push(rect(x + i * cell + 0.5, y + 0.5, cell - 3, cell - 3, "none", { style: `fill:none;stroke:${matched ? color(0) : fresh ? color(1) : faint};stroke-width:${matched || fresh ? 2.5 : 1}` }));
          tree.push(label(x + i * cell + (cell - 2) / 2, y + cell / 2 + 2.5, String(block), { "text-anchor": "middle", "font-size": 9 }));
        });
        const end = x + shown.length * cell + 4;
        const rest = node.blocks.length > shown.length ? `+${node.blocks.length - shown.length} ` : "";
        const who = node.users ? plural(node.users, "user") : node.id === first ? "kept, goes first" : "kept";
        tree.push(label(end, y + cell / 2 + 3, rest + who, { "font-size": 11, fill: node.id === first ? bad : ink }));
        tree.push(label(x + 12, y + cell + 12, cut(node.text, Math.floor((width - x - 20) / 5.4)), { "font-size": 10.5 }));
      }
      if (!now.nodes.length) tree.push(label(10, top + 14, "the tree is empty"));
      const y = top + most * high + 8, total = now.in_use + now.evictable + now.free;
      const scale = d3.scaleLinear([0, total], [10, width - 10]);
      const bar = [[now.in_use, color(2), 0.8], [now.evictable, color(4), 0.35], [now.free, "none", 1]];
      let from = 0;
      for (const [n, fill, opacity] of bar) { tree.push(rect(scale(from), y, scale(from + n) - scale(from), 14, fill, { opacity })); from += n; }
      tree.push(rect(10, y, width - 20, 14, "none", { style: `fill:none;stroke:${ink}` }));
      tree.push(label(10, y + 29, `${now.in_use} blocks in use, ${now.evictable} kept, ${now.free} free`));
      const legend = [["matched now", color(0)], ["new", color(1)]].map(([text, stroke], i) => [rect(11 + i * 105, 5, 11, 11, "none", { style: `fill:none;stroke:${stroke};stroke-width:2.5` }), label(28 + i * 105, 14, text)]);
      const filled = [["in use", color(2), 0.55], ["kept", color(4), 0.25]].map(([text, fill, opacity], i) => [rect(11 + i * 105, 23, 12, 12, fill, { opacity }), label(28 + i * 105, 33, text)]);
      return [y + 36, legend, filled, ...tree];
    },
    say(state, data) {
      const now = data.states[state.at];
      const gone = now.evicted.length ? ` ${plural(now.evicted.length, "block")} evicted: ${now.evicted.join(", ")}.` : "";
      return `Step ${now.step}: ${now.label}. The tree holds ${plural(blocksOf(now.nodes), "block")} in ${plural(now.nodes.length, "node")}.${gone}`;
    },
    readout(state, data) {
      const now = data.states[state.at], sum = (key) => data.states.slice(0, state.at + 1).reduce((n, s) => n + (key === "evicted" ? s.evicted.length : s[key]), 0);
      return [
        ["tokens reused now", now.reused, now.reused ? "good" : ""],
        ["tokens reused so far", sum("reused")],
        ["blocks evicted so far", sum("evicted"), sum("evicted") ? "bad" : ""],
        ["blocks in the tree", blocksOf(now.nodes)],
      ];
    },
  });
})();
