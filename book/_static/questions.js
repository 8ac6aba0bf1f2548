/* Check-yourself questions: answered in the page, kept in this browser, sent nowhere. */
(function () {
  "use strict";
  const KEY = "kvedu.answers";
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) if (value !== null) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const html = (tag, text, attributes) => {
    const element = make(tag, attributes);
    element.innerHTML = text;
    return element;
  };

  /* A browser may refuse to keep anything; then answers last as long as the page. */
  let memory = {};
  function read() {
    try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return memory; }
  }
  function keep(id, entry) {
    const all = { ...read() };
    if (entry) all[id] = entry; else delete all[id];
    memory = all;
    try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* kept in memory */ }
  }

  /* "1,234.5", "1 234.5", "1.5e3" as a number; NaN for anything else. */
  const parse = (text) => (/^[-+]?[\d,\s]*\.?\d*(e[-+]?\d+)?$/i.test(text.trim()) && /\d/.test(text) ? Number(text.replace(/[,\s]/g, "")) : NaN);
  const near = (given, value, tolerance) => Math.abs(given - value) <= tolerance * Math.abs(value) + 1e-9 * Math.abs(value);

  function judgeNumber(question, text) {
    const given = parse(text);
    if (Number.isNaN(given)) return { right: null, words: "Write a number, with a point for decimals." };
    if (near(given, question.answer, question.tolerance)) return { right: true, words: question.why };
    const slip = question.slips.find(({ value }) => near(given, value, Math.max(question.tolerance, 0.005)));
    if (slip) return { right: false, words: slip.why };
    const factor = given / question.answer;
    return { right: false, words: factor > 0 && (factor > 100 || factor < 0.01) ? `It is off by a factor of more than a hundred. The answer is wanted in ${question.unit}.` : factor > 1 ? "Too much. Try again, or have it shown." : "Too little. Try again, or have it shown." };
  }

  /* The steps in an order that is not the right one, always the same for a question. */
  function shuffled(steps, id) {
    let seed = [...id].reduce((n, c) => (n * 31 + c.charCodeAt(0)) % 2147483647, 7);
    const order = steps.map((_, i) => i);
    do {
      for (let i = order.length - 1; i > 0; i--) {
        seed = (seed * 16807) % 2147483647;
        const j = seed % (i + 1);
        [order[i], order[j]] = [order[j], order[i]];
      }
    } while (order.every((step, i) => step === i));
    return order;
  }

  function build(question, changed) {
    const verdict = make("p", { class: "kvq-verdict", role: "status" });
    const form = make("fieldset", { class: "kvq-question", id: question.id });
    form.append(html("legend", `${question.chapter ? `<em>From chapter ${question.chapter}.</em> ` : ""}${question.ask}`));
    const check = make("button", { type: "button", class: "kvq-check" }, "Check");
    const show = make("button", { type: "button", class: "kvq-show" }, "Show the answer");
    let given = () => null, fill = () => {}, judge, right;

    if (question.kind === "choice") {
      const radios = question.options.map((option, i) => {
        const radio = make("input", { type: "radio", name: question.id, id: `${question.id}-${i}` });
        form.append(make("div", {}, html("label", "", { for: `${question.id}-${i}` })));
        form.lastChild.lastChild.append(radio, html("span", option.text));
        return radio;
      });
      given = () => { const at = radios.findIndex((radio) => radio.checked); return at < 0 ? null : at; };
      fill = (at) => { if (radios[at]) radios[at].checked = true; };
      judge = (at) => ({ right: question.options[at].right, words: question.options[at].why });
      right = question.options.findIndex((option) => option.right);
    } else if (question.kind === "number") {
      const input = make("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: 12, "aria-label": `Your answer in ${question.unit}` });
      form.append(make("div", {}, input, ` ${question.unit}`));
      input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); check.click(); } });
      given = () => input.value.trim() || null;
      fill = (text) => { input.value = text; };
      judge = (text) => judgeNumber(question, text);
      right = question.answer.toLocaleString("en-US", { maximumFractionDigits: 3 });
    } else {
      let order = shuffled(question.steps, question.id);
      const list = make("ol", { class: "kvq-order" });
      const draw = (focus) => {
        list.replaceChildren(...order.map((step, at) => {
          const text = question.steps[step].replace(/<[^>]*>/g, "");
          const up = make("button", { type: "button", "aria-label": `Move up: ${text}` }, "↑");
          const down = make("button", { type: "button", "aria-label": `Move down: ${text}` }, "↓");
          up.disabled = at === 0;
          down.disabled = at === order.length - 1;
          up.addEventListener("click", () => move(at, -1));
          down.addEventListener("click", () => move(at, 1));
          return make("li", {}, up, down, html("span", question.steps[step]));
        }));
        if (focus) {
          const buttons = list.children[focus.at].querySelectorAll("button");
          const wanted = buttons[focus.by < 0 ? 0 : 1];
          (wanted.disabled ? buttons[focus.by < 0 ? 1 : 0] : wanted).focus();
        }
      };
      const move = (at, by) => {
        [order[at], order[at + by]] = [order[at + by], order[at]];
        draw({ at: at + by, by });
      };
      draw();
      form.append(list);
      given = () => [...order];
      fill = (kept) => { if (Array.isArray(kept) && kept.length === order.length) { order = [...kept]; draw(); } };
      judge = (kept) => {
        const first = kept.findIndex((step, at) => step !== at);
        return first < 0 ? { right: true, words: question.why } : { right: false, words: `${first === 0 ? "" : first === 1 ? "Step 1 is in place. " : `Steps 1 to ${first} are in place. `}Look at step ${first + 1} again.` };
      };
      right = question.steps.map((_, i) => i);
    }

    const tell = ({ right: isRight, words }) => {
      verdict.className = `kvq-verdict ${isRight === null ? "" : isRight ? "kvq-right" : "kvq-wrong"}`;
      verdict.innerHTML = `${isRight === null ? "" : isRight ? "<strong>Right.</strong> " : "<strong>Not yet.</strong> "}${words}`;
    };
    check.addEventListener("click", () => {
      const answer = given();
      if (answer === null) return tell({ right: null, words: "Answer first." });
      const found = judge(answer);
      tell(found);
      if (found.right !== null) keep(question.id, { given: answer, right: found.right, when: new Date().toISOString() });
      changed();
    });
    show.addEventListener("click", () => {
      fill(right);
      const found = judge(right);
      verdict.className = "kvq-verdict";
      verdict.innerHTML = found.words;
      changed();
    });
    form.append(make("div", { class: "kvq-buttons" }, check, show), verdict);
    const kept = read()[question.id];
    if (kept) { fill(kept.given); tell(judge(kept.given)); }
    return { form, forget: () => keep(question.id, null) };
  }

  function start(place) {
    const questions = JSON.parse(place.querySelector(".kvq-data").textContent);
    const progress = make("p", { class: "kvq-progress", role: "status" });
    const count = () => {
      const all = read(), right = questions.filter(({ id }) => all[id] && all[id].right).length;
      const others = Object.keys(all).filter((id) => all[id].right).length;
      progress.textContent = `${right} of ${questions.length} answered here` + (others > right ? `, ${others} in the whole book.` : ".");
    };
    const built = questions.map((question) => build(question, count));
    const save = make("button", { type: "button" }, "Save my answers as a file");
    save.addEventListener("click", () => {
      const link = make("a", { download: "kvedu-answers.json", href: URL.createObjectURL(new Blob([JSON.stringify(read(), null, 1)], { type: "application/json" })) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    const clear = make("button", { type: "button" }, "Start over");
    clear.addEventListener("click", () => { built.forEach(({ forget }) => forget()); place.replaceChildren(place.querySelector(".kvq-data")); start(place); });
    place.querySelector(".kvq-plain")?.remove();
    place.append(...built.map(({ form }) => form), progress, make("div", { class: "kvq-buttons" }, save, clear));
    count();
  }

  const questions = { parse, judgeNumber, shuffled };
  if (typeof document === "undefined") globalThis.kvquestions = questions;
  else document.querySelectorAll("[data-kvquestions]").forEach(start);
})();
