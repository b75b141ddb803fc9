"""Text from a model: the cache changes nothing, nor does the mesh, nor who else is in the batch."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from train.runs import Form, opened, refused
from train.tiny import MODEL, trainer

from ttkit.train import Sampler, generate, no_grad
from ttkit.train.config.settings import RopeScaling
from ttkit.train.model.models import create_model
from ttkit.train.run.generation import choose

VOCABULARY = 70  # which does not fill its last tile
KINDS = {
    "gpt2": {},
    "llama": {
        "model_type": "llama",
        "num_groups": 2,
        "rope_scaling": RopeScaling(8.0, 4.0, 1.0, 8),
    },
    "experts": {"num_experts": 4, "capacity_factor": 8.0},
}
FORMS = [Form((1, 1)), Form((4, 1), 0), Form((4, 2), 0, 1), Form((2, 2), 1, 0)]


def model_on(mesh, form=FORMS[0], kind="gpt2"):
    """A model with weights that do not depend on the mesh, drawn wide enough that its tokens
    differ.
    """
    model = create_model(replace(MODEL, vocab_size=VOCABULARY, **KINDS[kind]), form.layout(mesh))
    for index, parameter in enumerate(model.parameters().values()):
        noise = np.random.default_rng(index).normal(0, 0.3, parameter.global_shape)
        parameter.place((parameter.draw(1) + noise).astype(np.float32))
    model.eval()
    return model


def recomputed(model, text):
    """The logits [length, vocabulary] of a text, all at once and without a cache."""
    with no_grad():
        ids = np.array(text, np.uint32).reshape(1, 1, 1, -1)
        whole = model.whole(model(model.layout.tokens(ids))).to_numpy()
    return whole[0, 0, :, :VOCABULARY]


PROMPTS = [[5, 60, 2], [9], [69, 0, 1, 33, 7], [11, 12]]


@functools.cache
def greedy(kind):
    """What one device says after each prompt, by recomputing everything for each token."""
    with opened(FORMS[0]) as mesh:
        model, texts = model_on(mesh, kind=kind), []
        for prompt in PROMPTS:
            text = list(prompt)
            for _ in range(6):
                text.append(int(recomputed(model, text)[-1].argmax()))
            texts.append(text)
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_gives_the_logits_of_recomputing(kind):
    with opened(FORMS[0]) as mesh:
        model = model_on(mesh, kind=kind)
        text = np.random.default_rng(0).integers(0, VOCABULARY, 16).tolist()
        sampler, found = Sampler(model), []
        for position, token in enumerate(text):
            sampler.feed(position, [token])
            found.append(sampler.logits()[0])
        np.testing.assert_allclose(found, recomputed(model, text), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_mesh_says_the_same(kind, form):
    """Four prompts of different lengths, side by side."""
    wanted = greedy(kind)
    with opened(form) as mesh:
        sampler = Sampler(model_on(mesh, form, kind), len(PROMPTS))
        texts = generate(sampler, PROMPTS, 6, temperature=0)
        assert texts == wanted
        # nothing is left in the cache that would be seen
        assert generate(sampler, PROMPTS, 6, temperature=0) == wanted


def test_choose():
    logits, generator = np.array([1.0, 3.0, 2.0, -1.0], np.float32), np.random.default_rng(0)
    assert {choose(logits, 0, None, generator) for _ in range(20)} == {1}
    assert {choose(logits, 5.0, 1, generator) for _ in range(20)} == {1}
    assert {choose(logits, 5.0, 2, generator) for _ in range(99)} == {1, 2}
    assert {choose(logits, 5.0, 9, generator) for _ in range(199)} == {0, 1, 2, 3}
    counts = (
        np.bincount([choose(logits, 1.0, None, generator) for _ in range(4000)], minlength=4) / 4000
    )
    probs = np.exp(logits) / np.exp(logits).sum()
    # the seed is fixed: the same each time
    np.testing.assert_allclose(counts, probs, atol=5 * np.sqrt(0.25 / 4000))


def test_the_seed_decides():
    with opened(FORMS[0]) as mesh:
        sampler = Sampler(model_on(mesh), 2)
        texts = [generate(sampler, [[1], [1]], 8, temperature=3.0, seed=seed) for seed in (0, 0, 1)]
        assert texts[0] == texts[1] != texts[2] and texts[0][0] != texts[0][1]
        # whoever is beside
        assert texts[0][0] == generate(Sampler(sampler.model), [[1]], 8, temperature=3.0, seed=0)[0]


def test_errors():
    with opened(FORMS[0]) as mesh:
        sampler = Sampler(model_on(mesh), 2)
        refused(
            lambda: generate(sampler, [[1, 2, 3], [1]], 15),
            "3 tokens and 15 new ones, less the last, need 17 positions of 16",
            "try: a shorter prompt or fewer new tokens",
        )
        assert [len(text) for text in generate(sampler, [[1, 2, 3], [1]], 14)] == [17, 15]


@pytest.mark.parametrize("more", [{}, {"model_type": "llama", "num_experts": 4}])
def test_one_token_with_sequence_parallelism(more):
    """The positions of GPT, and experts, are those of one chip."""
    model, said = {"max_sequence_length": 128, **more}, set()
    for form, sp in (("one", False), ("TP4", True)):
        with trainer(form, model=model, sp=sp) as run:
            said.add(run.sample("The", 8, temperature=0))
    assert len(said) == 1
