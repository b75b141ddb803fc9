"""Buttons that interrupt a cell: what the page gets, and what a click asks."""

from types import SimpleNamespace

from ttkit.visualize import widgets as live


def made(monkeypatch, act, **how):
    import ipykernel.connect

    monkeypatch.setattr(ipykernel.connect, "get_connection_file", lambda: "/run/kernel-ab-12.json")
    return live.buttons({"stop": "Stop"}, act, **how)


def test_the_page_knows_the_kernel_and_the_labels(monkeypatch):
    widget = made(monkeypatch, str, once=True)
    assert (widget.kernel, widget.labels, widget.once) == ("ab-12", {"stop": "Stop"}, True)
    script = widget._esm
    assert 'api/kernels/${model.get("kernel")}/interrupt' in str(script)


def test_a_click_acts_and_shows_the_answer(monkeypatch):
    asked = []
    widget = made(monkeypatch, lambda name: asked.append(name) or "done")
    (receive,) = widget._msg_callbacks.callbacks
    receive(widget, {"act": "stop"}, SimpleNamespace())
    assert asked == ["stop"] and widget.message == "done"
