"""Tokenize text on workers and pack it into sequences of one length for a language model.

Shows: a Hugging Face dataset as source, a tokenizer in each worker process, packed sequences.
One machine: python examples/tokens_hugging_face.py
Several: `stoker dispatcher` and `stoker worker` (docs/deployment.md), with `tokenizers` there, then
python examples/tokens_hugging_face.py --service grpc://HOST:5050 --tokenizer tokenizer.json
"""

import argparse
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import tokenizers

import stoker
from stoker.hugging_face import from_hugging_face

LENGTH = 128
SENTENCE = "the cat sat on a mat and saw how every river runs slowly to one quiet sea at night"


def make_texts(count: int) -> datasets.Dataset:
    """Return random sentences; replace this by `datasets.load_dataset(...)`."""
    random = np.random.default_rng(0)
    sentences = [
        " ".join(random.choice(SENTENCE.split(), random.integers(5, 60))) for _ in range(count)
    ]
    return datasets.Dataset.from_dict({"text": sentences})


def train_tokenizer(texts: datasets.Dataset, path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>", "<end>"], show_progress=False
    )
    tokenizer.train_from_iterator(texts["text"], trainer)
    tokenizer.save(str(path))


def tokenize_with(path: str) -> Callable[[dict[str, str]], np.ndarray]:
    """Return a function from a row to its tokens; called once in each worker process.

    A tokenizer cannot be pickled, and to load one takes seconds: so it is built where it is used.
    """
    tokenizer = tokenizers.Tokenizer.from_file(path)
    end = tokenizer.token_to_id("<end>")

    def tokenize(row: dict[str, str]) -> np.ndarray:
        return np.array([*tokenizer.encode(row["text"]).ids, end], np.int32)

    return tokenize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", help="address of a dispatcher; default: a LocalCluster")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, on every machine")
    arguments = parser.parse_args()

    texts = make_texts(4000)
    with contextlib.ExitStack() as stack:
        path = arguments.tokenizer
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tokenizer.json"
            train_tokenizer(texts, path)
        service = arguments.service or stack.enter_context(stoker.LocalCluster(num_workers=2))
        tokens = from_hugging_face(texts).map(stoker.per_worker(lambda: tokenize_with(str(path))))
        # Documents follow each other without padding: all positions of a sequence are trained.
        sequences = tokens.unbatch().batch(LENGTH + 1, drop_remainder=True).shuffle(100, seed=0)
        count = 0
        for batch in sequences.batch(16, drop_remainder=True).distribute(service):
            inputs, targets = batch[:, :-1], batch[:, 1:]
            assert inputs.shape == targets.shape == (16, LENGTH)  # the training step
            count += inputs.size
        print(f"trained on {count:,} tokens in sequences of {LENGTH}")
    assert count > 100_000


if __name__ == "__main__":
    main()
