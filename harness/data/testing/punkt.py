"""Trains a Punkt model on the bundled articles, in the layout of nltk's data.

The real punkt_tab was trained on other texts. This one lets tests run without
a download.
"""

import os

import nltk.data
from nltk.tokenize import punkt

from harness.benchmarks import gptj
from saxml_ext.evaluation import dataset


def train(directory: str, count: int = 0) -> str:
  """Trains on articles and their highlights.

  Args:
    directory: The directory for nltk's data.
    count: The number of articles to take from the front; 0: all.

  Returns:
    The directory.
  """
  trainer = punkt.PunktTrainer()
  trainer.train(
    '\n\n'.join(
      f'{article.input}\n\n{article.output}'
      for article in dataset.load_articles(gptj.BUNDLE.dataset, count)
    )
  )
  folder = os.path.join(directory, 'tokenizers', 'punkt_tab', 'english')
  os.makedirs(folder)
  before = list(nltk.data.path)
  nltk.data.path.insert(0, os.path.abspath(directory))
  try:
    punkt.save_punkt_params(trainer.get_params(), folder)
  finally:
    nltk.data.path[:] = before
  return directory
