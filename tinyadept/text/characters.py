"""Vocabularies that are made from a text: its characters, or pairs of bytes that are frequent in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .tokenizer import Tokenizer, package


@dataclass(frozen=True)
class Characters:
    """Each character that occurs in a text is a token.

    Parameters
    ----------
    known : str
        The characters, in the order of their ids.
    """

    known: str

    @classmethod
    def of(cls, text: str) -> Characters:
        """Of the characters of a text."""
        return cls("".join(sorted(set(text))))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text.

        Raises
        ------
        ValueError
            If a character is unknown.
        """
        ids = {character: at for at, character in enumerate(self.known)}
        try:
            return [ids[character] for character in text]
        except KeyError as error:
            raise ValueError(f"the vocabulary has no character {error}") from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return "".join(self.known[at] for at in ids)

    def __len__(self) -> int:
        return len(self.known)


def byte_pairs(text: str, size: int) -> Tokenizer:
    """Learn byte-pair encoding (Sennrich et al., 2016) from a text.

    Parameters
    ----------
    text : str
    size : int
        Tokens at most; 256 are single bytes.

    Raises
    ------
    ValueError
        If there are fewer than 256.
    """
    if size < 256:
        raise ValueError(f"a vocabulary of byte pairs has at least 256 tokens, got {size}")
    tokenizers = package()
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([text], trainer)
    return Tokenizer(inner)
