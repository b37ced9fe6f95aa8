"""Several workers of one language model write on one task, reading each other as they write.

    python scripts/hogwild.py --workers 2 4

Prints what they wrote, steps and tokens per second, and the same for one worker. How it works stands in
tinyadept/text/hogwild.py.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from generate import model_and_tokenizer

import tinyadept as ta
from tinyadept.text.hogwild import Hogwild

TASK = (
    "Write three short facts about each of these: the Sun, the Moon, Mars, and Jupiter. Several assistants "
    "answer together; each writes paragraphs of its own and must not repeat what another has written."
)
QUESTION = "\n\nAm I repeating what another assistant wrote? (yes or no):"


class Worker:
    """What one worker is to be given next, and whether it has finished."""

    def __init__(self, number: int, tokenizer: Any):
        self.header = tokenizer.encode(f"\n\nAssistant {number + 1}: ")
        self.waiting, self.done, self.asked = list(self.header), False, False

    def next(self, drawn: int) -> int:
        return self.waiting.pop(0) if self.waiting else drawn


def together(model: Any, tokenizer: Any, count: int, options: argparse.Namespace) -> float:
    """Let so many workers write; returns their tokens per second."""
    prompt = tokenizer.encode(f"<|im_start|>user\n{options.task}<|im_end|>\n<|im_start|>assistant\n")
    how = options.temperature, None, None, ta.random.Generator(options.seed, device=model.table.backend)
    shared = Hogwild(model, prompt, count, options.capacity, how)
    workers = [Worker(number, tokenizer) for number in range(count)]
    drawn, question, answers, written = [0] * count, tokenizer.encode(QUESTION), [], 0
    start, step = time.perf_counter(), 0
    for step in range(1, options.steps + 1):
        if step % options.ask == 0:  # one of them, in turn
            asked = workers[step // options.ask % count]
            asked.waiting, asked.asked = list(question), True
        given = [worker.next(token) for worker, token in zip(workers, drawn, strict=True)]
        drawn = shared.step(given)
        written += count
        for number, worker in enumerate(workers):
            if worker.asked and not worker.waiting:
                answers.append(
                    f"assistant {number + 1} at step {step}: {tokenizer.decode([drawn[number]])!r}"
                )
                worker.asked = False
            ended = given[number] == tokenizer.end or tokenizer.decode(given[number : number + 1]).endswith(
                "\n\n"
            )
            room = shared.lengths[0] + shared.lengths[1 + number] <= shared.capacity
            if ended and not worker.waiting and room and shared.lengths[1 + number] > len(worker.header) + 8:
                shared.publish(number)
                worker.waiting = list(worker.header)
        if max(shared.lengths[1:]) >= shared.capacity:
            break
    seconds = time.perf_counter() - start
    print(f"\n=== {count} worker{'s' * (count > 1)} ===")
    print("history:", tokenizer.decode(shared.texts[0][len(prompt) :]).strip() or "(nothing yet)")
    for number in range(count):
        print(f"assistant {number + 1} is writing:", tokenizer.decode(shared.texts[1 + number]).strip())
    print("asked whether they repeat work:", "; ".join(answers) or "nobody yet")
    print(f"{step} steps, {step / seconds:.2f} steps/s, {written / seconds:.2f} tokens/s")
    return written / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="smollm2, or a Llama: .gguf or folder")
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=100, help="tokens of each worker (100)")
    parser.add_argument(
        "--ask", type=int, default=40, help="steps between questions about repeated work (40)"
    )
    parser.add_argument("--capacity", type=int, default=512, help="tokens of a block (512)")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="numpy, vulkan, vulkan:1; by default what TINYADEPT_DEVICE says")
    options = parser.parse_args()
    model, tokenizer = model_and_tokenizer(options.model, options.device)
    alone = together(model, tokenizer, 1, options)
    for count in options.workers:
        speed = together(model, tokenizer, count, options)
        print(f"{speed / alone:.2f} times the tokens of one worker in the same time")


if __name__ == "__main__":
    main()
