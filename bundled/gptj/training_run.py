"""Defines a training run of the bundled model.

With Muon, the model needs fewer steps than with AdamW to learn to find names in
the article. The loss covers the whole text, with a lower weight for the
article.
"""

import dataclasses

import tokenizers
import torch
from torch.nn import functional as F
import transformers

from bundled import training
from bundled.gptj import batches as batches_lib
from bundled.gptj import gptj_torch

# One of this many positions of the article goes through the LM head.
_ARTICLE_STRIDE = 2


@dataclasses.dataclass(frozen=True)
class Recipe(training.Recipe):
  """The settings of the training.

  Attributes:
    article_weight: The loss weight of a prompt's tokens; the weight of an
      answer's tokens is 1.
  """

  article_weight: float = 0.3

  def rate(self, step: int) -> float:
    """Returns the share of the peak rates: warm-up, constant, fall to 0."""
    return min(1.0, (step + 1) / 100, (self.steps - step) / (0.4 * self.steps))


class Run(training.Run):
  """The model, the optimizers and the data of a run.

  The figures are the loss, and the running mean of the loss of the answers'
  tokens over about 20 steps.

  Attributes:
    model: The model being trained.
  """

  def __init__(
    self,
    recipe: Recipe,
    config: transformers.GPTJConfig,
    bpe: tokenizers.Tokenizer,
  ):
    torch.manual_seed(recipe.seed)
    self.model = gptj_torch.GPTJ(config)
    stream = batches_lib.Batches(
      bpe,
      config.eos_token_id,
      tokens=recipe.tokens,
      longest=config.n_positions,
      article_weight=recipe.article_weight,
    )
    super().__init__(
      recipe, [self.model], self.model.transformer['h'], [stream]
    )

  def _loss(self, batch):
    loss, answer = _loss(self.model, *batch)
    found = answer.item()
    before = self.progress.get('answer_loss', found)
    return loss, {
      'loss': loss.item(),
      'answer_loss': 0.95 * before + 0.05 * found,
    }


def _loss(model, ids, weights):
  """Returns the mean weighted loss, and the mean over only the highlights.

  Only positions with a weight go through the LM head, the most expensive layer.
  These are all positions of the highlights, and a random one of every
  _ARTICLE_STRIDE positions of the article.
  """
  keep = weights[:, 1:] == 1.0
  article = (weights[:, 1:] > 0) & ~keep
  keep = keep | (article & (torch.rand(keep.shape) < 1 / _ARTICLE_STRIDE))
  scale = weights[:, 1:][keep]
  with torch.autocast('cpu', dtype=torch.bfloat16):
    logits = model.lm_head(model.hidden(ids[:, :-1])[keep])
  each = F.cross_entropy(logits.float(), ids[:, 1:][keep], reduction='none')
  answer = (scale == 1.0).float()
  return (
    (each * scale).sum() / scale.sum(),
    (each * answer).sum().detach() / answer.sum(),
  )
