"""The next character or token of a text, told by a small GPT-2 that begins with random weights."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import io, optim
from tinyadept.text import generate
from tinyadept.text.characters import Characters, byte_pairs

from . import curves
from .task import Task, TrainingError, checked, groups, progress, rising_and_falling

WEIGHTS = "weights.safetensors"
UNSEEN = 0.1  # the part of a text, its end, that is not learned
WARMUP, END = 100, 0.1  # steps until the learning rate is whole, and the part of it that is left at the end
DECAY, BETAS, LARGEST = (
    0.1,
    (0.9, 0.99),
    1.0,
)  # of weights; of moments; the norm to which gradients are clipped
MEASURED = 50  # batches of unseen text at most


class Language(Task):
    """Windows of a text at random places; an epoch is a number of steps."""

    name, metric = "gpt2", "val loss"
    defaults: ClassVar = {
        "batch": 16,
        "lr": 0.002,
        "seed": 0,
        "epochs": 10,
        "text": "",
        "vocabulary": 0,
        "layers": 4,
        "heads": 4,
        "embedding": 128,
        "context": 64,
        "dropout": 0.0,
        "accumulate": 1,
        "steps": 100,
    }
    free: ClassVar = {"sample": 100}

    def __init__(self, settings: dict[str, Any], options: dict[str, Any]):
        super().__init__(settings, options)
        from tinyadept.models.gpt2 import GPT2, Config

        text, context = text_of(settings["text"]), settings["context"]
        cut = len(text) - int(len(text) * UNSEEN)
        size = settings["vocabulary"]
        self.tokenizer = byte_pairs(text[:cut], size) if size else Characters.of(text)
        self.seen, self.unseen = (
            np.array(self.tokenizer.encode(part), np.int32) for part in (text[:cut], text[cut:])
        )
        print(f"text: {len(self.seen)} tokens to learn and {len(self.unseen)} unseen, "
              f"{len(self.tokenizer)} different", flush=True)  # fmt: skip
        if min(len(self.seen), len(self.unseen)) <= context:
            raise TrainingError(f"a text of {len(text)} characters is too short for a --context of {context}")
        if settings["embedding"] % settings["heads"]:
            raise TrainingError(
                f"--embedding {settings['embedding']} does not divide into --heads {settings['heads']}"
            )
        self.model = GPT2(
            Config(
                settings["layers"],
                settings["heads"],
                settings["embedding"],
                len(self.tokenizer),
                context,
                dropout=settings["dropout"],
            )
        )
        self.steps = settings["epochs"] * settings["steps"]
        self.optimizer = optim.AdamW(groups(self.model, DECAY), lr=settings["lr"], betas=BETAS)
        self.schedule = optim.LambdaLR(self.optimizer, rising_and_falling(self.steps, WARMUP, END))
        self.step, self.look = ta.capture(self.follow), ta.capture(self.loss_of)

    def windows(self, ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(…) places give (…, context + 1) tokens."""
        return ids[starts[..., None] + np.arange(self.settings["context"] + 1)]

    # --- learning and measuring ---

    def loss_of(self, windows: ta.Tensor) -> ta.Tensor:
        """The mean loss of windows (B, context + 1)."""
        logits = self.model(windows[:, :-1])
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), windows[:, 1:].reshape(-1))

    def follow(self, windows: ta.Tensor) -> ta.Tensor:
        """One step down the gradient of windows (A, B, context + 1), A parts one after another; the loss."""
        self.optimizer.zero_grad()
        losses = []
        for part in windows:
            loss = self.loss_of(part) / len(windows)
            loss.backward()
            losses.append(loss.detach())
        optim.clip_grad_norm_(self.model.parameters(), LARGEST)
        self.optimizer.step()
        return F.stack(losses).sum()

    def learn(self, epoch: int) -> dict[str, float]:
        own, total = self.settings, 0.0
        self.model.train()
        with progress(own["steps"], epoch) as bar:
            for number in range(1, own["steps"] + 1):
                places = ta.randint(
                    0, len(self.seen) - own["context"], (own["accumulate"], own["batch"]), device="numpy"
                )
                total += self.step(self.windows(self.seen, places.numpy())).item()
                self.schedule.step()
                bar.update()
                bar.set_postfix({"loss": f"{total / number:.3f}"}, refresh=False)
        return checked({"loss": total / own["steps"]}, epoch)

    @ta.no_grad()
    def measure(self, epoch: int) -> dict[str, float]:
        size, context = self.settings["batch"], self.settings["context"]
        self.model.eval()
        count = min(MEASURED * size, (len(self.unseen) - 1) // context) // size * size or size
        places = np.linspace(0, len(self.unseen) - context - 1, count).astype(int)
        losses = [
            self.look(part).item() for part in np.split(self.windows(self.unseen, places), count // size)
        ]
        self.tell()
        return {self.metric: float(np.mean(losses))}

    def tell(self) -> None:
        """Print some text of the model's own."""
        count = min(self.options["sample"], self.settings["context"] - 1)
        if count:
            random = ta.random.Generator(self.settings["seed"], device=next(self.model.parameters()).backend)
            ids = list(generate(self.model, self.unseen[:1].tolist(), count, generator=random))
            print(repr(self.tokenizer.decode(ids)), flush=True)

    def scheduled(self, epochs: int) -> int:
        return epochs * self.settings["steps"]

    def finish(self, out: Path, history: list[dict[str, float]]) -> None:
        about = {key: self.settings[key] for key in ("layers", "heads", "embedding", "context")}
        io.save(out / WEIGHTS, self.model.state_dict(), {"gpt2": json.dumps(about)})
        curves.draw(history, [["loss", self.metric]], out / "learning-curve.png")
        print(f"{self.metric}: {history[-1][self.metric]:.3f}")


def text_of(path: str) -> str:
    """What stands in a file; without one, Python's own help on its language.

    Raises
    ------
    TrainingError
        If there is no such file, or it is no text.
    """
    if not path:
        return "\n".join(import_module("pydoc_data.topics").topics.values())
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"--text {path}: {error}") from None
