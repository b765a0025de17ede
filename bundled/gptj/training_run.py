"""A training run of the bundled model that can be stopped and resumed.

Matrices inside the blocks are trained with Muon, the rest with AdamW: on this
task Muon needs fewer steps to learn to look names up in the article. The loss
covers the whole text, the article's part with a lower weight.
"""

import dataclasses
import math
import os

import tokenizers
import torch
from torch.nn import functional as F
import transformers

from bundled.gptj import batches as batches_lib
from bundled.gptj import gptj_torch

# One in so many of the article's positions goes through the LM head.
_ARTICLE_STRIDE = 2


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How the model is trained.

  Attributes:
    steps: optimizer steps of the whole run; the learning rates follow it.
    tokens: most tokens of a step, padding included.
    article_weight: loss weight of a prompt's tokens; an answer's have 1.
    muon_rate: peak learning rate of Muon.
    adam_rate: peak learning rate of AdamW.
    seed: of the first weights and of the article's positions that count.
  """

  steps: int
  tokens: int
  article_weight: float = 0.3
  muon_rate: float = 0.02
  adam_rate: float = 2e-3
  seed: int = 0

  def rate(self, step: int) -> float:
    """Share of the peak rates: warm-up, flat, and the last 40 % down to 0."""
    return min(1.0, (step + 1) / 100, (self.steps - step) / (0.4 * self.steps))


class Run:
  """Model, optimizers and data of a run.

  Attributes:
    model: being trained.
    step: steps done.
    tokens: tokens seen, padding included.
    answer_loss: of the answers' tokens, a running mean of about 20 steps; not
      a number before the first step.
  """

  def __init__(
    self,
    recipe: Recipe,
    config: transformers.GPTJConfig,
    bpe: tokenizers.Tokenizer,
  ):
    torch.manual_seed(recipe.seed)
    self._recipe = recipe
    self.model = gptj_torch.GPTJ(config)
    self._optimizers = _optimizers(self.model, recipe)
    self._peaks = [o.param_groups[0]['lr'] for o in self._optimizers]
    self._batches = batches_lib.Batches(
      bpe,
      config.eos_token_id,
      tokens=recipe.tokens,
      longest=config.n_positions,
      article_weight=recipe.article_weight,
    )
    self.step = 0
    self.tokens = 0
    self.answer_loss = math.nan

  def advance(self) -> float:
    """Does one step and returns its loss.

    Raises:
      FloatingPointError: the loss is no longer a number.
    """
    factor = self._recipe.rate(self.step)
    for optimizer, peak in zip(self._optimizers, self._peaks):
      optimizer.param_groups[0]['lr'] = peak * factor
    ids, weights = self._batches.draw()
    loss, answer = _loss(self.model, ids, weights)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    for optimizer in self._optimizers:
      optimizer.step()
      optimizer.zero_grad(set_to_none=True)
    self.step += 1
    self.tokens += ids.numel()
    found = answer.item()
    if not math.isfinite(found):
      raise FloatingPointError(f'the loss is {found} at step {self.step}')
    before = found if math.isnan(self.answer_loss) else self.answer_loss
    self.answer_loss = 0.95 * before + 0.05 * found
    return loss.item()

  def save(self, path: str) -> None:
    """Writes all that `restore` needs, or leaves what was there before."""
    state = {
      'model': self.model.state_dict(),
      'optimizers': [o.state_dict() for o in self._optimizers],
      'position': tuple(self._batches.position),
      'random': torch.get_rng_state(),
      'step': self.step,
      'tokens': self.tokens,
      'answer_loss': self.answer_loss,
    }
    torch.save(state, path + '.tmp')
    os.replace(path + '.tmp', path)

  def restore(self, path: str) -> None:
    """Goes on where the run that wrote the file was, to the same weights."""
    state = torch.load(path, weights_only=True)
    self.model.load_state_dict(state['model'])
    for optimizer, saved in zip(self._optimizers, state['optimizers']):
      # Betas come from this run's recipe, moments from the file.
      saved['param_groups'] = optimizer.state_dict()['param_groups']
      optimizer.load_state_dict(saved)
    self._batches.seek(batches_lib.Position(*state['position']))
    torch.set_rng_state(state['random'])
    self.step = state['step']
    self.tokens = state['tokens']
    self.answer_loss = state['answer_loss']


def _optimizers(model: gptj_torch.GPTJ, recipe: Recipe):
  blocks = [p for p in model.transformer['h'].parameters() if p.dim() == 2]
  inside = {id(p) for p in blocks}
  others = [p for p in model.parameters() if id(p) not in inside]
  return [
    torch.optim.Muon(
      blocks, lr=recipe.muon_rate, weight_decay=0.01, momentum=0.95
    ),
    torch.optim.AdamW(
      # A rare token comes up in few batches: with a short memory of squared
      # gradients each visit would throw its embedding about.
      others,
      lr=recipe.adam_rate,
      betas=(0.9, 0.999),
      weight_decay=0.0,
    ),
  ]


def _loss(model, ids, weights):
  """Mean weighted loss, and the mean over the highlights alone.

  Only positions that count go through the LM head, the most expensive layer:
  all of the highlights and one in _ARTICLE_STRIDE of the article, at random.
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
