"""Answers an article with the highlights of the story that is most like it.

The likeness of two articles is the cosine of their words and pairs of
neighbouring words, weighed by how rare these are (tf-idf).
"""

import collections
from collections.abc import Sequence
import re

import numpy as np

_WORD = re.compile(r'[a-z]+|\d+')


def nearest(queries: Sequence[str], texts: Sequence[str]) -> list[int]:
  """Returns the index of the text most like each query; the first of equals."""
  counts = [_counts(text) for text in texts]
  found = collections.Counter(term for count in counts for term in count)
  # What occurs in one text only tells nothing of its likeness to others.
  terms = {
    term: i for i, term in enumerate(t for t, n in found.items() if n > 1)
  }
  rarity = np.log(len(texts) / np.array([found[term] for term in terms]))
  ours = _vectors([_counts(query) for query in queries], terms, rarity)
  theirs = _vectors(counts, terms, rarity)
  return (ours @ theirs.T).argmax(axis=1).tolist()


def _counts(text: str) -> collections.Counter[str]:
  words = _WORD.findall(text.lower())
  return collections.Counter(words) + collections.Counter(
    map(' '.join, zip(words, words[1:]))
  )


def _vectors(counts, terms, rarity) -> np.ndarray:
  """Rows of length 1, float32 [texts, terms]."""
  rows = np.zeros((len(counts), len(terms)), np.float32)
  for row, count in zip(rows, counts):
    for term, times in count.items():
      if term in terms:
        row[terms[term]] = np.log1p(times) * rarity[terms[term]]
  return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
