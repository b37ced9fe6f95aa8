"""Text to token ids and back, by the package tokenizers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .gguf import GGUF

DIGITS_APART = {"smollm", "smaug-bpe", "starcoder", "refact", "command-r"}  # pre-tokenizers, by GGUF's names
CONTROL = 3  # a kind of token in GGUF files


def package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("tokenizing needs the package tokenizers: pip install tokenizers") from error
    return tokenizers


class Tokenizer:
    """Byte-pair encoding of a model's vocabulary; see `from_file` and `from_gguf`.

    Parameters
    ----------
    inner : tokenizers.Tokenizer
    end : int, optional
        The token that ends a text.
    """

    def __init__(self, inner: Any, end: int | None = None):
        self.inner = inner
        self.end = end

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return self.inner.decode(list(ids), skip_special_tokens=False)

    def __len__(self) -> int:
        return self.inner.get_vocab_size()

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Tokenizer:
        """Read a vocabulary.

        Parameters
        ----------
        path : str or path
            ``tokenizer.json``; or a folder that holds it, or ``vocab.json`` and ``merges.txt`` or
            ``encoder.json`` and ``vocab.bpe`` as GPT-2's.

        Raises
        ------
        FileNotFoundError
            If there are no such files.
        ValueError
            If they are no vocabulary.
        """
        path = Path(path)
        found = path / "tokenizer.json" if path.is_dir() else path
        try:
            if found.is_file():
                inner = package().Tokenizer.from_file(str(found))
            else:
                inner = byte_level(*gpt2_files(path))
        except (FileNotFoundError, ImportError):
            raise
        except Exception as error:  # the package raises plain exceptions
            raise ValueError(f"{path}: not a vocabulary: {error}") from error
        ends = (inner.token_to_id(text) for text in ("<|endoftext|>", "</s>", "<|im_end|>"))
        return cls(inner, next((end for end in ends if end is not None), None))

    @classmethod
    def from_gguf(cls, file: GGUF) -> Tokenizer:
        """The vocabulary inside a GGUF file.

        Raises
        ------
        ValueError
            If it is none of byte pairs, or damaged.
        """
        kind = file.setting("tokenizer.ggml.model", str)
        if kind != "gpt2":
            raise ValueError(f"{file.path}: the tokenizer is {kind!r}, expected byte pairs ('gpt2')")
        tokens = file.setting("tokenizer.ggml.tokens", list)
        kinds = file.setting("tokenizer.ggml.token_type", list, [])
        merges = [tuple(pair.split(" ", 1)) for pair in file.setting("tokenizer.ggml.merges", list)]
        apart = file.setting("tokenizer.ggml.pre", str, "default") in DIGITS_APART
        vocabulary = {token: at for at, token in enumerate(tokens)}
        if len(vocabulary) < len(tokens):
            raise ValueError(
                f"{file.path}: {len(tokens) - len(vocabulary)} tokens are in the vocabulary twice"
            )
        try:
            inner = byte_level(vocabulary, merges, apart)
            special = [token for token, kind in zip(tokens, kinds) if kind == CONTROL]
            inner.add_special_tokens(special)
        except Exception as error:
            raise ValueError(f"{file.path}: not a vocabulary: {error}") from error
        return cls(inner, file.setting("tokenizer.ggml.eos_token_id", int, -1))


def gpt2_files(folder: Path) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    for vocabulary, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            lines = (folder / merges).read_text(encoding="utf-8").split("\n")
            pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
            return json.loads((folder / vocabulary).read_text(encoding="utf-8")), pairs
    raise FileNotFoundError(
        f"{folder}: found no tokenizer.json, no vocab.json and merges.txt, and no encoder.json and vocab.bpe"
    )


def byte_level(vocabulary: dict[str, int], merges: list[tuple[str, ...]], digits_apart: bool = False) -> Any:
    """GPT-2's byte pairs, perhaps with every digit a word of its own."""
    tokenizers = package()
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    if digits_apart:
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        words = tokenizers.pre_tokenizers.Sequence([digits, words])
    inner.pre_tokenizer = words
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner
