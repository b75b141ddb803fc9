// Buttons that work while a cell runs: the click goes to the server, as that of the notebook's own
// stop button does, and after that to the kernel.
function render({ model, el }) {
  const config = JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
  const interrupt = async () => {
    const headers = { "X-XSRFToken": /_xsrf=([^;]+)/.exec(document.cookie)?.[1] ?? "" };
    if (config.token) headers.Authorization = `token ${config.token}`;
    const path = `${config.baseUrl}api/kernels/${model.get("kernel")}/interrupt`;
    return (await fetch(path, { method: "POST", headers })).ok;
  };
  for (const [act, label] of Object.entries(model.get("labels"))) {
    const button = document.createElement("button");
    button.className = "jupyter-widgets jupyter-button widget-button";
    button.style.width = "max-content";
    button.textContent = label;
    button.addEventListener("click", async () => {
      button.disabled = true;
      const reached = config.baseUrl !== undefined && (await interrupt().catch(() => false));
      if (!reached) note.textContent = "Use the notebook's stop button: this page has no other way.";
      model.send({ act });
      button.disabled = model.get("once");
    });
    el.append(button);
  }
  const note = document.createElement("span");
  note.setAttribute("role", "status");
  note.style.marginLeft = "8px";
  el.append(note);
  const show = () => (note.textContent = model.get("message"));
  model.on("change:message", show);
  show();
}
export default { render };
