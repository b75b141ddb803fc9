// Shows the page of a `touchable`, and tells the kernel which part a reader uses.
function render({ model, el }) {
  const part = (event, kind) => event.target.closest?.(`[data-${kind}]`);
  const tell = (act) => model.send({ act });
  let dragged = null;

  const draw = () => {
    const used = el.contains(document.activeElement) ? document.activeElement : null;
    const at = used && (used.dataset.act ?? used.dataset.drag);
    el.innerHTML = model.get("page");
    if (at !== null) {
      // the same part keeps the focus: the next key goes to it
      const same = [...el.querySelectorAll("[data-act],[data-drag]")].find(
        (found) => (found.dataset.act ?? found.dataset.drag) === at,
      );
      same?.focus();
    }
  };

  el.addEventListener("click", (event) => {
    const found = part(event, "act");
    if (found) tell(found.dataset.act);
  });
  el.addEventListener("keydown", (event) => {
    const acted = part(event, "act"), moved = part(event, "drag");
    const way = { ArrowLeft: "left", ArrowRight: "right" }[event.key];
    if (acted && (event.key === "Enter" || event.key === " ")) tell(acted.dataset.act);
    else if (moved && way) tell(`${moved.dataset.drag} ${way}`);
    else return;
    event.preventDefault();
    event.stopPropagation(); // JupyterLab has its own use for these keys
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
  draw();
}
export default { render };
