"""Starts the training of the bundled GPT-J."""

import random

import tokenizers
import torch
import transformers

from bundled.gptj import gptj_torch
from bundled.summaries import batches
from bundled.summaries import summary_run
from saxml_ext.evaluation import dataset


def start(
  recipe: summary_run.Recipe,
  config: transformers.GPTJConfig,
  bpe: tokenizers.Tokenizer,
) -> summary_run.Run:
  """Returns the run of a model with random weights."""
  torch.manual_seed(recipe.seed)
  model = gptj_torch.GPTJ(config)
  stream = batches.Batches(
    RowMaker(bpe, config.eos_token_id),
    config.eos_token_id,
    tokens=recipe.tokens,
    longest=config.n_positions,
    article_weight=recipe.article_weight,
  )
  blocks = model.transformer['h']
  return summary_run.Run(recipe, model, blocks, model.hidden, stream)


class RowMaker:
  """Makes rows in the form of the benchmark's prompts."""

  def __init__(self, bpe: tokenizers.Tokenizer, end: int):
    self._bpe = bpe
    self._end = end

  def __call__(self, story: dataset.Article, rng: random.Random) -> batches.Row:
    """Returns the prompt of a story, its highlights and the end of text."""
    del rng
    prompt = self._bpe.encode(story.prompt).ids
    answer = self._bpe.encode(' ' + story.output).ids
    return batches.Row([*prompt, *answer, self._end], len(prompt))
