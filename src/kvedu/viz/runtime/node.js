/* In node: answers one request, which stands before the scripts. Tests and still pictures use it. */
(function () {
  const { kvfig, kvfigRequest: request } = globalThis;
  let answer;
  if (request.calls) {
    const pure = request.name ? kvfig.figures[request.name].pure : kvfig;
    answer = request.calls.map(([name, args]) => {
      if (typeof pure[name] !== "function") throw new Error(`${request.name || "kvfig"} has no pure function ${name}`);
      return pure[name](...args);
    });
  } else {
    const figure = kvfig.figures[request.name];
    answer = request.states.map((given) => {
      const state = kvfig.start(request.name, request.data, given);
      return {
        state, svg: kvfig.svg(request.name, state, request.data, request.width), say: figure.say(state, request.data),
        readout: figure.readout ? figure.readout(state, request.data) : [],
        controls: figure.controls(request.data).map((control) => ({
          ...control, values: typeof control.values === "function" ? control.values(state, request.data) : control.values, say: undefined,
        })),
      };
    });
  }
  process.stdout.write(JSON.stringify(answer));
})();
