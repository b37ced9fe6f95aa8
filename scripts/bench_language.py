"""How fast language models are beside PyTorch, in the same run: attention, GPT-2 small, and SmolLM2-135M.

    python scripts/bench_language.py [--device vulkan] [--only WORD]

Each library runs in a process of its own, one after the other. PyTorch runs eagerly what is written here. On
a Vulkan device attention is timed forward and both ways, kernels alone. On NumPy plain NumPy code is a peer
too, and Hugging Face's `generate`, where transformers is installed (``pip install transformers``). Weights
are random.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from bench_vision import timed, waited
from benchmarks.row import drawn
from benchmarks.vulkan import Place

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50257, 1024
PROMPT, TOKENS = 64, 128
Arrays = dict[str, np.ndarray]


class Row(NamedTuple):
    """A benchmark: what each library calls, by `make(place)`, and how it is timed."""

    name: str
    make: Callable[[Place], Callable[[], Any]]
    time: Callable[[Place, Callable[[], Any]], float]
    tokens: int = 0  # where a rate is told


def shapes() -> dict[str, tuple[int, ...]]:
    """Of all weights, by their names in Hugging Face's files."""
    c, four = WIDTH, 4 * WIDTH
    found: dict[str, tuple[int, ...]] = {"wte.weight": (VOCABULARY, c), "wpe.weight": (CONTEXT, c)}
    sizes = {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, four), "mlp.c_proj": (four, c)}
    for layer in range(LAYERS):
        for name, shape in sizes.items():
            found[f"h.{layer}.{name}.weight"], found[f"h.{layer}.{name}.bias"] = shape, shape[1:]
        for name in ("ln_1", "ln_2"):
            found[f"h.{layer}.{name}.weight"] = found[f"h.{layer}.{name}.bias"] = (c,)
    return {**found, "ln_f.weight": (c,), "ln_f.bias": (c,)}


def weights() -> Arrays:
    numbers = drawn(1 << 22) * np.float32(0.02)
    named = enumerate(shapes().items())
    return {name: np.resize(np.roll(numbers, 997 * at), shape) for at, (name, shape) in named}


def prompt(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, length).astype(np.int32)


# --- GPT-2 in plain PyTorch, and in plain NumPy ---


class Torch:
    """GPT-2, written out, with keys and values in memory of fixed size."""

    def __init__(self, place: Place):
        self.torch, self.F, self.device = place.lib.root, place.lib.F, place.device
        self.w = {name: place.put(x).requires_grad_() for name, x in weights().items()}

    def empty(self, length: int) -> list[Any]:
        shape = (2, 1, HEADS, length, WIDTH // HEADS)
        return [self.torch.zeros(shape, device=self.device) for _ in range(LAYERS)]

    def __call__(self, ids: Any, cache: list[Any] | None = None, start: int = 0, last: bool = False) -> Any:
        F, w, (b, t) = self.F, self.w, ids.shape
        x = w["wte.weight"][ids] + w["wpe.weight"][start : start + t]
        for layer in range(LAYERS):
            name = f"h.{layer}"
            y = self.norm(x, f"{name}.ln_1")
            qkv = self.linear(y, f"{name}.attn.c_attn").view(b, t, 3, HEADS, WIDTH // HEADS)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            if cache is not None:
                cache[layer][0][:, :, start : start + t], cache[layer][1][:, :, start : start + t] = k, v
                k, v = cache[layer][:, :, :, : start + t]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
            x = x + self.linear(y.transpose(1, 2).reshape(b, t, WIDTH), f"{name}.attn.c_proj")
            y = F.gelu(self.linear(self.norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc"), approximate="tanh")
            x = x + self.linear(y, f"{name}.mlp.c_proj")
        return self.norm(x[:, -1:] if last else x, "ln_f") @ w["wte.weight"].T

    def linear(self, x: Any, name: str) -> Any:
        flat = self.torch.addmm(self.w[f"{name}.bias"], x.reshape(-1, x.shape[-1]), self.w[f"{name}.weight"])
        return flat.view(*x.shape[:-1], -1)

    def norm(self, x: Any, name: str) -> Any:
        return self.F.layer_norm(x, (WIDTH,), self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def ids(self, *shape: int) -> Any:
        return self.torch.from_numpy(prompt(int(np.prod(shape))).reshape(shape)).long().to(self.device)

    def decode(self) -> None:
        cache, ids = self.empty(PROMPT + TOKENS), self.ids(1, PROMPT)
        with self.torch.no_grad():
            token = self(ids, cache, last=True)[:, -1].argmax(-1)
            for at in range(PROMPT, PROMPT + TOKENS - 1):
                int(token)
                token = self(token[:, None], cache, at, True)[:, -1].argmax(-1)
        int(token)


class Plain:
    """GPT-2 in NumPy alone, a token at a time."""

    def __init__(self) -> None:
        self.w = weights()
        self.head = np.ascontiguousarray(self.w["wte.weight"].T)

    def __call__(self, ids: np.ndarray, cache: np.ndarray, start: int) -> np.ndarray:
        w, t, stop = self.w, len(ids), start + len(ids)
        x = w["wte.weight"][ids] + w["wpe.weight"][start:stop]
        hidden = np.arange(stop) > np.arange(start, stop)[:, None]
        for layer in range(LAYERS):
            name = f"h.{layer}"
            qkv = self.linear(self.norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn")
            q, k, v = qkv.reshape(t, 3, HEADS, -1).transpose(1, 2, 0, 3)  # (H, T, D)
            cache[layer, :, :, start:stop] = k, v
            k, v = cache[layer, :, :, :stop]
            scores = q @ k.swapaxes(1, 2) * np.float32(1 / sqrt(WIDTH // HEADS))
            scores[:, hidden] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            y = (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(t, WIDTH)
            x = x + self.linear(y, f"{name}.attn.c_proj")
            y = self.linear(self.norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc")
            y = 0.5 * y * (1 + np.tanh(np.float32(sqrt(2 / pi)) * (y + np.float32(0.044715) * y * y * y)))
            x = x + self.linear(y, f"{name}.mlp.c_proj")
        return self.norm(x[-1:], "ln_f") @ self.head

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x *= 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def decode(self) -> None:
        cache = np.zeros((LAYERS, 2, HEADS, PROMPT + TOKENS, WIDTH // HEADS), np.float32)
        token = int(self(prompt(PROMPT), cache, 0).argmax())
        for at in range(PROMPT, PROMPT + TOKENS - 1):
            token = int(self(np.array([token]), cache, at).argmax())


def huggingface(model: str) -> Callable[[], Any]:
    """Hugging Face's models and its generate, on PyTorch."""
    import torch
    import transformers  # pyright: ignore[reportMissingImports]

    if model == "gpt2":
        config, made = transformers.GPT2Config(), transformers.GPT2LMHeadModel
    else:
        own = llama_config()
        config, made = transformers.LlamaConfig(**vars(own)), transformers.LlamaForCausalLM
    net = made(config).eval()
    ids = torch.from_numpy(prompt(PROMPT)[None] % config.vocab_size).long()
    how = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
    return torch.no_grad()(lambda: net.generate(ids, attention_mask=torch.ones_like(ids), **how))


# --- ours, and the rows ---


def llama_config() -> Any:
    from tinyadept.models.llama import Config  # pyright: ignore[reportMissingImports]

    return Config()


def ours(place: Place) -> Any:
    import tinyadept as ta
    from tinyadept.models.gpt2 import GPT2  # pyright: ignore[reportMissingImports]

    with ta.nn.init.skipped():
        model = GPT2("small")
    made = {f"transformer.{name}": ta.tensor(x) for name, x in weights().items()}
    model.load_state_dict(made)
    return model.to(place.device)


def is_ours(place: Place) -> bool:
    return place.lib.root.__name__ == "tinyadept"


def attention(both: bool) -> Callable[[Place], Callable[[], Any]]:
    def make(place: Place) -> Callable[[], Any]:
        operands = [place.drawn(8, 12, 1024, 64).requires_grad_() for _ in range(3)]
        call = lambda: place.lib.F.scaled_dot_product_attention(*operands, is_causal=True)  # noqa: E731
        g = call().detach() * 0.01

        def ways() -> None:
            call().backward(g)
            for x in operands:
                x.grad = None

        return ways if both else place.lib.no_grad()(call)

    return make


def decoding(place: Place) -> Callable[[], Any]:
    if not is_ours(place):
        return Torch(place).decode
    return generating(ours(place), 8 if place.on_gpu else 1)


def generating(model: Any, ahead: int) -> Callable[[], Any]:
    from tinyadept.text import generate

    ids = (prompt(PROMPT) % model.config.vocab_size).tolist()
    return lambda: list(generate(model, ids, TOKENS, temperature=0, ahead=ahead))


def llama(place: Place) -> Callable[[], Any]:
    from tinyadept.models.llama import Llama  # pyright: ignore[reportMissingImports]

    return generating(Llama().to(place.device), 8 if place.on_gpu else 1)


def prefill(place: Place) -> Callable[[], Any]:
    lib = place.lib
    if is_ours(place):
        model, ids = ours(place), place.put(prompt(CONTEXT)[None])
        step = lib.root.capture(lib.no_grad()(lambda: model(ids, last=True)), place.device)
    else:
        torch_model = Torch(place)
        ids = torch_model.ids(1, CONTEXT)
        step = lib.no_grad()(lambda: torch_model(ids, last=True))
    return finished(place, step)


def training(place: Place) -> Callable[[], Any]:
    lib, shape = place.lib, (8, 512)
    if is_ours(place):
        model = ours(place)
        parameters, ids = list(model.parameters()), place.put(prompt(8 * 512).reshape(shape))
    else:
        model = Torch(place)
        parameters, ids = list(model.w.values()), model.ids(*shape)
    optimizer = lib.optim.AdamW(parameters, lr=1e-4)

    def step() -> Any:
        optimizer.zero_grad()
        logits = model(ids)[:, :-1].reshape(-1, VOCABULARY)
        loss = lib.F.cross_entropy(logits, ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return finished(place, lib.root.capture(step, place.device) if place.noted else step)


def finished(place: Place, step: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> None:
        step()
        place.wait()

    return call


def shortest(place: Place, call: Callable[[], Any]) -> float:
    return once(call)


def once(call: Callable[[], Any]) -> float:
    """The shortest of three calls, after one."""
    call()
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


DECODING = Row(f"GPT-2, {TOKENS} tokens after {PROMPT}", decoding, shortest, TOKENS)
LLAMA = Row(f"SmolLM2, {TOKENS} tokens after {PROMPT}", llama, shortest, TOKENS)
PEERS = {DECODING.name: {"torch", "numpy", "transformers"}, LLAMA.name: {"transformers"}}  # others: torch
ROWS = {
    "numpy": (DECODING, LLAMA),
    "vulkan": (
        Row("attention 8×12×1024×64, causal, forward", attention(False), timed),
        Row("attention 8×12×1024×64, causal, both ways", attention(True), timed),
        DECODING,
        Row("GPT-2, 1024 tokens at once", prefill, waited),
        Row("GPT-2, training step 8×512, AdamW", training, waited),
    ),
}


def serve(library: str, options: argparse.Namespace) -> None:
    """Time all rows in this process, a line of JSON each."""
    for row in rows(options):
        if library not in ("tinyadept", *PEERS.get(row.name, {"torch"})):
            seconds = None
        elif library == "numpy":
            seconds = once(Plain().decode)
        elif library == "transformers":
            seconds = once(huggingface("gpt2" if row is DECODING else "llama"))
        else:
            place = Place(library, options.device)
            seconds = row.time(place, row.make(place))
        print(json.dumps(seconds), flush=True)


def rows(options: argparse.Namespace) -> list[Row]:
    return [row for row in ROWS[options.device.partition(":")[0]] if options.only in row.name]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this in it")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker, options)
        return
    libraries = ["tinyadept", "torch"]
    if options.device == "numpy":
        libraries += ["numpy", *(["transformers"] if find_spec("transformers") else [])]
    told: dict[str, list[float | None]] = {}
    for library in libraries:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", library]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        told[library] = [json.loads(line) for line in lines]
    for at, row in enumerate(rows(options)):
        own = told["tinyadept"][at]
        print(f"{row.name:<44}", end="")
        for library in libraries:
            seconds = told[library][at]
            if seconds is None or own is None:
                continue
            value = f"{row.tokens / seconds:8.1f} tokens/s" if row.tokens else f"{1e3 * seconds:8.3f} ms"
            ratio = "" if library == "tinyadept" else f" (ours is {seconds / own:.2f} times as fast)"
            print(f"  {library} {value}{ratio}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
