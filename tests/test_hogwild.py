"""Parallel generation over a shared cache."""

import numpy as np
import pytest
from conftest import DEVICES
from test_language import small_llama

import tinyadept as ta
from tinyadept.functional import rotary_embedding, rotary_table
from tinyadept.text import generate, hogwild
from tinyadept.text.hogwild import Hogwild


def ready(device="numpy", workers=1, capacity=8, prompt=(1, 5, 3), **changes):
    ta.manual_seed(0)
    model = small_llama(max_position_embeddings=64, **changes).to(device)
    return model, Hogwild(model, prompt, workers, capacity)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("published", [None, 1, 3])
def test_one_worker_writes_what_generate_writes(device, published):
    """Also when what it wrote moves into the history in the middle: positions are what they were."""
    model, shared = ready(device, capacity=16)
    expected = list(generate(model, [1, 5, 3, 7], 8, temperature=0))
    token, found = 7, []
    for step in range(8):
        if step == published:
            shared.publish(0)
        (token,) = shared.step([token])
        found.append(token)
    assert found == expected
    assert sum(shared.lengths) == 11


@pytest.mark.parametrize("device", DEVICES)
def test_each_worker_attends_as_if_all_were_encoded_in_its_order(device):
    """Queries rotated block by block, against keys rotated for their positions in each order."""
    _, shared = ready(device, workers=3)
    rng, lengths, width = np.random.default_rng(0), [5, 2, 3, 1], 4
    plain = rng.normal(size=(4, 2, 8, width)).astype(np.float32)  # keys that nothing has rotated
    values = rng.normal(size=(4, 2, 8, width)).astype(np.float32)
    q = rng.normal(size=(3, 4, 1, width)).astype(np.float32)
    table = rotary_table(64, width, 100000.0)

    def rotated(x, positions):
        at = ta.tensor(np.broadcast_to(np.asarray(positions, np.int32), (x.shape[0], x.shape[2])).copy())
        return rotary_embedding(ta.tensor(x), table, at).numpy()

    shared.lengths = list(lengths)
    distances = shared.distances()
    hidden = (np.arange(8) >= np.array(lengths)[:, None]).reshape(4, 1, 1, 8)
    found = shared.shared(
        *(ta.tensor(x, device=device) for x in (rotated(plain, np.arange(8)), values, q, distances, hidden))
    ).numpy()
    for worker in range(3):
        order = [0, *(1 + other for other in range(3) if other != worker), 1 + worker]
        keys = np.concatenate([plain[block, :, : lengths[block]] for block in order], 1)[None]
        seen = np.concatenate([values[block, :, : lengths[block]] for block in order], 1)
        total = sum(lengths)
        turned, query = rotated(keys, np.arange(total))[0], rotated(q[worker : worker + 1], [total])[0]
        for head in range(4):
            scores = turned[head // 2] @ query[head, 0] / 2
            weights = np.exp(scores - scores.max())
            expected = weights / weights.sum() @ seen[head // 2]
            np.testing.assert_allclose(found[worker, head, 0], expected, atol=1e-5)


def test_workers_see_each_other(monkeypatch):
    """What follows a worker's token depends on what another one is given in the same step."""
    monkeypatch.setattr(hogwild, "sample", lambda logits, *how: logits[:, 0])
    found = [ready(workers=2)[1].step([7, other])[0] for other in range(11)]
    assert len(set(found)) == 11


def test_bounds():
    _, shared = ready(capacity=4)
    with pytest.raises(IndexError, match="a history of 3 tokens has no room for 2 more"):
        shared.step([1]), shared.step([2]), shared.publish(0)
    with pytest.raises(IndexError, match="a block of 4 tokens is full"):
        for _ in range(5):
            shared.step([1])
    with pytest.raises(ValueError, match="all blocks within 64 tokens"):
        ready(workers=8)
    with pytest.raises(ValueError, match="a prompt of 0 tokens"):
        ready(prompt=())
