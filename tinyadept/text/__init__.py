"""Language: tokenizers, caches of keys and values, sampling, and reading GGUF files."""

from .cache import KeyValueCache
from .generation import generate, sample
from .gguf import GGUF
from .tokenizer import Tokenizer

__all__ = ["GGUF", "KeyValueCache", "Tokenizer", "generate", "sample"]
