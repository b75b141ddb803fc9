// Shows the page of a `touchable`, and tells the kernel which part a reader uses. Without a page it
// only frees the keys.

// JupyterLab has uses of its own for Enter, arrows and letters. Those that go to a control of this
// output are the control's.
function freeKeys(el, triesLeft = 600) {
  const output = el.closest(".jp-OutputArea-output");
  if (!output) {
    // it is not in the page yet
    if (triesLeft) requestAnimationFrame(() => freeKeys(el, triesLeft - 1));
    return;
  }
  const controls = "select, button, input, .noUi-handle, [tabindex]";
  const free = () =>
    output.querySelectorAll(controls).forEach((found) => {
      found.setAttribute("data-lm-suppress-shortcuts", "true");
    });
  new MutationObserver(free).observe(output, { childList: true, subtree: true });
  free();
}

function render({ model, el }) {
  const part = (event, kind) => event.target.closest?.(`[data-${kind}]`);
  const tell = (act) => model.send({ act });
  const nameOf = (found) => found.dataset.act ?? found.dataset.drag;
  let dragged = null;

  // A page for which room is kept lies unseen below the one that is shown. A taller one scrolls, so
  // that what follows stays in place. The style of `el` itself is ipywidgets' to set, at any time.
  const layers = el.appendChild(document.createElement("div"));
  layers.style.display = "grid";
  const [space, box] = [0, 1].map(() => {
    const layer = document.createElement("div");
    layer.style.cssText = "grid-area: 1 / 1; min-width: 0; overflow-x: auto";
    if (model.get("tallest")) layer.style.cssText += "; overflow-y: auto; scrollbar-gutter: stable";
    return layers.appendChild(layer);
  });
  space.style.visibility = "hidden";
  space.inert = true;
  if (model.get("tallest")) box.style.cssText += "; height: 0; min-height: 100%";
  space.innerHTML = model.get("tallest").replaceAll(/ (id|data-\w+)="[^"]*"/g, "");

  let picture = ""; // the last page that was no bare refusal; it stays, pale, below one
  const draw = () => {
    const used = el.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const page = model.get("page");
    const refused = !/<(svg|img|table|pre)/.test(page);
    box.innerHTML = refused ? `${page}<div inert style="opacity: 0.3">${picture}</div>` : page;
    if (!refused) picture = page;
    if (model.get("tallest")) box.style.overflowY = refused ? "hidden" : "auto";
    // the same part keeps the focus: the next key goes to it
    const parts = [...box.querySelectorAll("[data-act],[data-drag]")];
    if (used !== null) parts.find((found) => nameOf(found) === used)?.focus();
  };

  el.addEventListener("click", (event) => {
    const found = part(event, "act");
    if (found) tell(found.dataset.act);
  });
  el.addEventListener("keydown", (event) => {
    const acted = part(event, "act");
    const moved = part(event, "drag");
    const way = { ArrowLeft: "left", ArrowRight: "right" }[event.key];
    if (acted && (event.key === "Enter" || event.key === " ")) tell(acted.dataset.act);
    else if (moved && way) tell(`${moved.dataset.drag} ${way}`);
    else return;
    event.preventDefault();
  });
  el.addEventListener("pointerdown", (event) => {
    dragged = part(event, "drag");
    if (dragged) event.preventDefault();
    dragged?.focus();
  });
  el.addEventListener("pointerup", (event) => {
    const target = part(event, "drop");
    if (dragged && target && target !== dragged) {
      tell(`${dragged.dataset.drag}>${target.dataset.drop}`);
    }
    dragged = null;
  });
  model.on("change:page", draw);
  model.on("change:busy", () => box.setAttribute("aria-busy", model.get("busy")));
  draw();
  freeKeys(el);
}
export default { render };
