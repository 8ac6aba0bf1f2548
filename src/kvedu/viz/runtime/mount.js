/* Puts a figure into a page: prediction, controls, picture, numbers, one sentence that is also announced. */
(function () {
  "use strict";
  const kvfig = globalThis.kvfig;
  let count = 0;

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {}))
      if (value === true) element.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const still = () => globalThis.matchMedia && matchMedia("(prefers-reduced-motion: reduce)").matches;

  /* Mount figure `name` in `place`, which holds its still picture until then.
     `options`: state (values that differ from the start), changed(state), title. Returns {get, set, stop}. */
  kvfig.mount = function (place, name, data, options) {
    const { state: given, changed, title } = options || {};
    const figure = kvfig.figures[name];
    const id = `kvfig-${++count}`;
    const first = kvfig.start(name, data, given);
    let state = { ...first };
    let timer = null, announcer = null;

    const picture = make("div", { class: "kvfig-picture" });
    const sentence = make("p", { class: "kvfig-say" });
    const announced = make("p", { class: "kvfig-announce", "aria-live": "polite" });
    const numbers = make("dl", { class: "kvfig-numbers" });
    const form = make("form", { class: "kvfig-controls", "aria-label": `Controls: ${title || name}` });
    form.addEventListener("submit", (event) => event.preventDefault());
    const body = make("div", { class: "kvfig-body" }, form, picture, sentence, numbers, announced);

    function draw() {
      const width = Math.max(260, Math.floor(picture.clientWidth || place.clientWidth || 640));
      picture.innerHTML = kvfig.svg(name, state, data, width);
      const words = figure.say(state, data);
      sentence.textContent = words;
      numbers.replaceChildren(
        ...(figure.readout ? figure.readout(state, data) : []).map(([term, value, mark]) =>
          make("div", { class: mark || null }, make("dt", {}, term), make("dd", {}, String(value)))),
      );
      clearTimeout(announcer);
      announcer = setTimeout(() => { if (announced.textContent !== words) announced.textContent = words; }, 300);
    }
    function set(change) {
      state = kvfig.settle(name, { ...state, ...change }, data);
      for (const refresh of refreshers) refresh();
      draw();
      if (changed) changed({ ...state });
    }
    const refreshers = figure.controls(data).map((control) => {
      const [element, refresh] = controlOf(control, `${id}-${control.name}`);
      form.append(element);
      return refresh;
    });
    form.append(make("button", { type: "button", class: "kvfig-reset" }, "Reset"));
    form.lastChild.addEventListener("click", () => { stop(); set({ ...first }); });

    function stop() {
      clearInterval(timer);
      timer = null;
      form.querySelectorAll(".kvfig-play").forEach((button) => (button.textContent = "Play"));
    }

    function controlOf(control, key) {
      if (control.options) return choice(control, key);
      if (typeof control.value === "boolean") return box(control, key);
      return slider(control, key);
    }
    function slider(control, key) {
      const list = () => (typeof control.values === "function" ? control.values(state, data) : control.values);
      const values = control.values || null;
      const at = () => (values ? list().indexOf(state[control.name]) : state[control.name]);
      const say = control.say || ((value) => kvfig.count(value));
      const [low, high] = values ? [0, list().length - 1] : [control.min, control.max];
      const input = make("input", { type: "range", id: key, min: low, max: high, step: values ? 1 : control.step || 1 });
      const output = make("output", { for: key });
      const go = (index) => set({ [control.name]: values ? list()[index] : index });
      input.addEventListener("input", () => { stop(); go(Number(input.value)); });
      const parts = [make("label", { for: key }, control.label), input, output];
      if (control.play) parts.push(...player(control, low, high, at, go));
      const whole = make("div", { class: "kvfig-control" }, ...parts);
      return [whole, () => {
        if (values) input.max = list().length - 1;
        whole.hidden = values !== null && list().length < 2;  // there is nothing to choose
        input.value = at();
        output.textContent = say(state[control.name], state, data);
        input.setAttribute("aria-valuetext", output.textContent);
      }];
    }
    function player(control, low, high, at, go) {
      const button = (text, label, act) => {
        const element = make("button", { type: "button", "aria-label": label }, text);
        element.addEventListener("click", act);
        return element;
      };
      const move = (by) => { stop(); go(Math.min(high, Math.max(low, at() + by))); };
      const buttons = [
        button("◀", `${control.label}: one back`, () => move(-1)),
        button("▶", `${control.label}: one forward`, () => move(1)),
      ];
      if (still()) return [make("span", { class: "kvfig-buttons" }, ...buttons)];
      const play = button("Play", `${control.label}: play or pause`, () => {
        if (timer) return stop();
        if (at() >= high) go(low);
        play.textContent = "Pause";
        timer = setInterval(() => (at() >= high ? stop() : go(at() + 1)), control.every || 600);
      });
      play.className = "kvfig-play";
      return [make("span", { class: "kvfig-buttons" }, ...buttons, play)];
    }
    function choice(control, key) {
      if (control.options.length > 4) {
        const select = make("select", { id: key }, ...control.options.map(([value, text], i) => make("option", { value: i }, text)));
        select.addEventListener("change", () => { stop(); set({ [control.name]: control.options[select.value][0] }); });
        return [make("div", { class: "kvfig-control" }, make("label", { for: key }, control.label), select),
          () => (select.value = control.options.findIndex(([value]) => value === state[control.name]))];
      }
      const radios = control.options.map(([value, text], i) => {
        const radio = make("input", { type: "radio", name: key, id: `${key}-${i}` });
        radio.addEventListener("change", () => { stop(); set({ [control.name]: value }); });
        return [radio, make("label", { for: `${key}-${i}` }, radio, text), value];
      });
      const set_ = make("fieldset", { class: "kvfig-control" }, make("legend", {}, control.label), ...radios.map(([, label]) => label));
      return [set_, () => radios.forEach(([radio, , value]) => (radio.checked = value === state[control.name]))];
    }
    function box(control, key) {
      const input = make("input", { type: "checkbox", id: key });
      input.addEventListener("change", () => { stop(); set({ [control.name]: input.checked }); });
      return [make("div", { class: "kvfig-control" }, make("label", { for: key }, input, control.label)),
        () => (input.checked = state[control.name])];
    }

    place.replaceChildren();
    if (data.predict) place.append(prediction(data.predict, id, body, () => draw()));
    place.append(body);
    place.classList.add("kvfig-live");
    for (const refresh of refreshers) refresh();
    draw();
    let width = picture.clientWidth;
    const watch = globalThis.ResizeObserver && new ResizeObserver(() => {
      if (Math.abs(picture.clientWidth - width) > 1) { width = picture.clientWidth; draw(); }
    });
    if (watch) watch.observe(picture);
    return { get: () => ({ ...state }), set, stop: () => { stop(); if (watch) watch.disconnect(); } };
  };

  /* Asks before it shows. The rest stays hidden until the reader has chosen, or does not want to. */
  function prediction(predict, id, body, shown) {
    const verdict = make("p", { class: "kvfig-verdict", role: "status" });
    const asked = make("fieldset", { class: "kvfig-predict" }, make("legend", {}, predict.question));
    const buttons = predict.choices.map((text, i) => choose(text, i));
    const skip = choose("Just show me", -1);
    skip.classList.add("kvfig-skip");
    function choose(text, i) {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => {
        body.hidden = false;
        skip.hidden = true;
        buttons.forEach((other, at) => {
          other.setAttribute("aria-pressed", String(at === i));
          other.classList.toggle("kvfig-right", at === predict.answer);
        });
        const right = predict.choices[predict.answer];
        verdict.textContent = `${i < 0 ? "Answer" : i === predict.answer ? "Right" : "Not so"}: ${right}. ${predict.because || ""}`;
        shown();
      });
      return button;
    }
    body.hidden = true;
    asked.append(...buttons, skip, verdict);
    return asked;
  }

  /* Every figure of the page: <div data-kvfig="name"> with its data in a script of type application/json. */
  kvfig.mountAll = function () {
    for (const place of document.querySelectorAll("[data-kvfig]:not(.kvfig-live)")) {
      const data = JSON.parse(place.querySelector("script.kvfig-data").textContent);
      place.kvfig = kvfig.mount(place, place.dataset.kvfig, data, { title: data.title });
    }
  };
})();
