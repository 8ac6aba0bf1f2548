/* A stored run read back from its events: steps, who ran in them and where, and what is true after each.
   The events are those of kvedu.engine.trace, as kvedu.viz.trace stores them. */
(function () {
  "use strict";
  const key = (event) => `${event.request}.${event.copy}`;

  /* Steps with their spans, and per sequence its cells (one per step in which it runs) and what befell it. */
  function layout(run) {
    if (run.laid) return run.laid;
    const sequences = new Map(), steps = [], prompts = new Map();
    const get = (event) => {
      if (!sequences.has(key(event)))
        sequences.set(key(event), { id: key(event), request: event.request, cells: [], slot: [], marks: [], prompt: prompts.get(event.request) });
      return sequences.get(key(event));
    };
    for (const event of run.events) {
      if (event.kind === "Arrived") {
        prompts.set(event.request, event.prompt_tokens);
        Object.assign(get({ request: event.request, copy: 0 }), { arrived: event.time, before: steps.length });
      } else if (event.kind === "Stepped") {
        steps.push({ ...event, rounds: [] });
        for (const share of event.shares)
          get(share).cells.push({ step: steps.length - 1, share, prefill: !decodes(share, prompts.get(share.request)) });
      } else if (event.kind === "Verified") {
        steps.at(-1).rounds.push(event);
        get(event).cells.at(-1).round = event;
      } else if (event.kind === "Ended") Object.assign(get(event), { ended: event.time, last: steps.length - 1, reason: event.reason });
      else if (event.request !== undefined) get(event).marks.push({ kind: event.kind, step: steps.length, event });
    }
    const laid = { steps, sequences: [...sequences.values()] };
    seat(laid, run.slots);
    return Object.defineProperty(run, "laid", { value: laid }).laid;
  }
  /* Decoding: one token, after the prompt. What is computed again after preemption is prefill. */
  const decodes = (share, prompt) => share.sampled && share.tokens === 1 && share.context >= prompt;

  /* Every sequence keeps the lowest slot that was free when it came in, until it ends or is sent back. */
  function seat({ steps, sequences }, slots) {
    const taken = new Array(slots).fill(null);
    const byId = new Map(sequences.map((s) => [s.id, s]));
    steps.forEach((step, at) => {
      taken.forEach((id, slot) => {
        if (id === null) return;
        const s = byId.get(id);
        const gone = s.last !== undefined && s.last < at;
        const sentBack = s.marks.some(({ kind, step }) => kind === "Preempted" && step === at);
        if (gone || sentBack) taken[slot] = null;
      });
      for (const share of step.shares) {
        let slot = taken.indexOf(key(share));
        if (slot < 0) { slot = taken.indexOf(null); taken[slot] = key(share); }
        byId.get(key(share)).slot[at] = slot;
      }
    });
  }

  /* What is true after step `at`: counts for the sentence and the numbers. */
  function stateAt(run, at) {
    const { steps } = layout(run);
    const step = steps[at];
    const shares = steps.slice(0, at + 1).map((s) => s.shares);
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    const started = new Set(), copies = new Map(run.events.filter((e) => e.kind === "Arrived").map((e) => [e.request, e.copies]));
    const born = (share) => {  // the end of a prompt gives every copy its first token
      if (!share.sampled) return 0;
      if (started.has(share.request)) return 1;
      started.add(share.request);
      return copies.get(share.request);
    };
    const seconds = steps.slice(0, at + 1).map((s) => s.time - s.start);
    const rounds = steps.slice(0, at + 1).flatMap((s) => s.rounds), emitted = sum(rounds.map((r) => r.emitted));
    return {
      tokens: sum(step.shares.map((s) => s.tokens)),
      running: step.shares.length, waiting: step.waiting,
      computed: sum(shares.map((s) => sum(s.map((share) => share.tokens)))),
      sampled: sum(shares.map((s) => sum(s.map(born)))) + emitted - rounds.length,  // one of a round's tokens is its share's
      rounds: rounds.length, emitted,
      guessed: sum(rounds.map((r) => r.guessed)), accepted: sum(rounds.map((r) => r.accepted)),
      busy: sum(shares.map((s) => s.length)) / ((at + 1) * run.slots),
      busyTime: sum(shares.map((s, i) => (s.length / run.slots) * seconds[i])) / (sum(seconds) || 1),
      inUse: step.blocks_in_use, evictable: step.blocks_evictable, free: step.blocks_free,
      time: step.time,
    };
  }
  /* Slots of memory reserved and not filled: whole blocks less the tokens in them, a shared block counted once. */
  function unfilled(table, blockSize) {
    const fill = new Map();
    for (const [, , tokens, blocks] of table.held)
      blocks.forEach((block, i) => fill.set(block, Math.max(fill.get(block) || 0, Math.min(blockSize, tokens - i * blockSize))));
    return [...fill.values()].reduce((empty, tokens) => empty + blockSize - tokens, 0);
  }

  globalThis.kvfig.replay = { layout, stateAt, unfilled };
})();
