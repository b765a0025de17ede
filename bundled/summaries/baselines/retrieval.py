"""Answers an article with the highlights of the most similar story.

The similarity of two articles is the cosine of their words and pairs of
neighboring words, weighted by rarity (tf-idf).
"""

import collections
from collections.abc import Sequence
import re

import numpy as np

_WORD = re.compile(r'[a-z]+|\d+')


def nearest(queries: Sequence[str], texts: Sequence[str]) -> list[int]:
  """Returns the index of the most similar text (the first) for each query."""
  counts = [_counts(text) for text in texts]
  totals = collections.Counter(term for count in counts for term in count)
  # A term that occurs in only one text has no effect on similarities.
  terms = {
    term: i for i, term in enumerate(t for t, n in totals.items() if n > 1)
  }
  rarity = np.log(len(texts) / np.array([totals[term] for term in terms]))
  ours = _vectors([_counts(query) for query in queries], terms, rarity)
  theirs = _vectors(counts, terms, rarity)
  return (ours @ theirs.T).argmax(axis=1).tolist()


def _counts(text: str) -> collections.Counter[str]:
  words = _WORD.findall(text.lower())
  return collections.Counter(words) + collections.Counter(
    map(' '.join, zip(words, words[1:]))
  )


def _vectors(counts, terms, rarity) -> np.ndarray:
  """Returns rows of length 1, float32 [texts, terms]."""
  rows = np.zeros((len(counts), len(terms)), np.float32)
  for row, count in zip(rows, counts):
    for term, times in count.items():
      if term in terms:
        row[terms[term]] = np.log1p(times) * rarity[terms[term]]
  return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
