// A page that is opened from a folder may not start workers, and the search runs in one. Here a
// hidden frame stands in for the worker: it runs the same script and passes on the messages.
window.IFrameWorker = window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.waiting = [];
    const tell = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const load = (src) =>
      new Promise((done, failed) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src, onload: done, onerror: failed });
        frame.contentDocument.body.append(script);
      });
    this.inside.postMessage = tell;
    this.inside.importScripts = (...urls) => Promise.all(urls.map(load));
    load(new URL(url, location.href).href).then(() => {
      this.ready = true;
      this.waiting.splice(0).forEach((data) => this.postMessage(data));
    });
  }
  postMessage(data) {
    if (this.ready) this.inside.dispatchEvent(new MessageEvent("message", { data }));
    else this.waiting.push(data);
  }
};
