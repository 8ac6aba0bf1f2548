/* In a notebook: what anywidget asks for. */
export default {
  render({ model, el }) {
    const data = model.get("data");
    const place = document.createElement("div");
    place.className = "kvfig";
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", data.title || model.get("name"));
    // The keys that move a slider are shortcuts of the notebook too; here they belong to the figure.
    place.setAttribute("data-lm-suppress-shortcuts", "true");
    place.addEventListener("keydown", (event) => event.stopPropagation());
    el.append(place);
    const live = globalThis.kvfig.mount(place, model.get("name"), data, {
      title: data.title,
      state: model.get("state"),
      changed: (state) => { model.set("state", state); model.save_changes(); },
    });
    model.set("state", live.get());
    model.save_changes();
    const follow = () => {
      const wanted = model.get("state");
      if (JSON.stringify(wanted) !== JSON.stringify(live.get())) live.set(wanted);
    };
    model.on("change:state", follow);
    return () => { model.off("change:state", follow); live.stop(); };
  },
};
