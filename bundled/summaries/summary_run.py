"""Defines a training run of a model that writes highlights of stories.

With Muon, the model needs fewer steps than with AdamW to learn to find names in
the article. The loss covers the whole text, with a lower weight for the
article.
"""

from collections.abc import Callable
import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

from bundled import training
from bundled.summaries import batches as batches_lib

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
    model: nn.Module,
    blocks: nn.Module,
    hidden: Callable[[torch.Tensor], torch.Tensor],
    stream: batches_lib.Batches,
  ):
    """Starts a run.

    Args:
      recipe: The settings of the training.
      model: The model, whose `lm_head` makes logits of final hidden states.
      blocks: The part of the model whose matrices are trained with Muon.
      hidden: The function that maps ids [B, T] to the model's final hidden
        states [B, T, D].
      stream: The stories to train on.
    """
    self.model = model
    self._hidden = hidden
    super().__init__(recipe, [model], blocks, [stream])

  def _loss(self, batch):
    loss, answer = _loss(self._hidden, self.model.lm_head, *batch)
    latest = answer.item()
    before = self.progress.get('answer_loss', latest)
    return loss, {
      'loss': loss.item(),
      'answer_loss': 0.95 * before + 0.05 * latest,
    }


def _loss(hidden, head, ids, weights):
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
    logits = head(hidden(ids[:, :-1])[keep])
  losses = F.cross_entropy(logits.float(), ids[:, 1:][keep], reduction='none')
  answer = (scale == 1.0).float()
  return (
    (losses * scale).sum() / scale.sum(),
    (losses * answer).sum().detach() / answer.sum(),
  )
