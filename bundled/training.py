"""A training run that can be stopped and resumed.

Matrices inside the blocks are trained with Muon, the rest with AdamW.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import torch
from torch import nn

from bundled import streams
from saxml_ext.common import files


@dataclasses.dataclass(frozen=True)
class Recipe(abc.ABC):
  """The settings of a training run.

  Attributes:
    steps: The optimizer steps of the whole run; the learning rates follow it.
    tokens: The most tokens of a step, padding included.
    muon_rate: The peak learning rate of Muon.
    adam_rate: The peak learning rate of AdamW.
    seed: The seed of the first weights and of all that is drawn.
  """

  steps: int
  tokens: int
  muon_rate: float = 0.02
  adam_rate: float = 2e-3
  seed: int = 0

  @abc.abstractmethod
  def rate(self, step: int) -> float:
    """Returns the share of the peak rates that a step has."""


class Run(abc.ABC):
  """Modules, optimizers and data of a run.

  Attributes:
    step: The steps done.
    tokens: The tokens seen, padding included.
    progress: Figures of the last step by name; empty before the first.
  """

  def __init__(
    self,
    recipe: Recipe,
    modules: Sequence[nn.Module],
    blocks: nn.Module,
    data: Sequence[streams.Stream],
  ):
    """Begins a run.

    Args:
      recipe: How to train.
      modules: The modules to train.
      blocks: The part of the modules whose matrices are trained with Muon.
      data: The streams to draw batches from.
    """
    self._recipe = recipe
    self._modules = modules
    self._streams = data
    self._parameters = [p for each in modules for p in each.parameters()]
    matrices = [p for p in blocks.parameters() if p.dim() == 2]
    inside = {id(p) for p in matrices}
    self._optimizers = [
      torch.optim.Muon(
        matrices, lr=recipe.muon_rate, weight_decay=0.01, momentum=0.95
      ),
      torch.optim.AdamW(
        # A rare token comes up in few batches: with a short memory of squared
        # gradients each visit would throw its embedding about.
        [p for p in self._parameters if id(p) not in inside],
        lr=recipe.adam_rate,
        betas=(0.9, 0.999),
        weight_decay=0.0,
      ),
    ]
    self._peaks = [recipe.muon_rate, recipe.adam_rate]
    self.step = 0
    self.tokens = 0
    self.progress: Mapping[str, float] = {}

  def advance(self) -> Mapping[str, float]:
    """Does one step and returns its figures, from before the weights changed.

    Raises:
      FloatingPointError: A loss is no longer a number.
    """
    factor = self._recipe.rate(self.step)
    for optimizer, peak in zip(self._optimizers, self._peaks):
      optimizer.param_groups[0]['lr'] = peak * factor
    batch = self._stream().draw()
    loss, self.progress = self._loss(batch)
    loss.backward()
    nn.utils.clip_grad_norm_(self._parameters, 1.0)
    for optimizer in self._optimizers:
      optimizer.step()
      optimizer.zero_grad(set_to_none=True)
    self.step += 1
    self.tokens += batch.ids.numel()
    if not all(map(math.isfinite, self.progress.values())):
      raise FloatingPointError(
        f'the losses are {self.progress} at step {self.step}'
      )
    return self.progress

  def save(self, path: str) -> None:
    """Writes all that `restore` needs, or leaves what was there before."""
    state = {
      'modules': [m.state_dict() for m in self._modules],
      'optimizers': [o.state_dict() for o in self._optimizers],
      'positions': [tuple(s.position) for s in self._streams],
      'random': torch.get_rng_state(),
      'step': self.step,
      'tokens': self.tokens,
      'progress': self.progress,
    }
    with files.replacing(path, 'wb', sole_writer=True) as file:
      torch.save(state, file)

  def restore(self, path: str) -> None:
    """Goes on where the run that wrote the file was, to the same weights."""
    state = torch.load(path, weights_only=True)
    for module, saved in zip(self._modules, state['modules']):
      module.load_state_dict(saved)
    for optimizer, saved in zip(self._optimizers, state['optimizers']):
      # Betas come from this run, moments from the file.
      saved['param_groups'] = optimizer.state_dict()['param_groups']
      optimizer.load_state_dict(saved)
    for stream, position in zip(self._streams, state['positions']):
      stream.seek(streams.Position(*position))
    torch.set_rng_state(state['random'])
    self.step = state['step']
    self.tokens = state['tokens']
    self.progress = state['progress']

  def _stream(self) -> streams.Stream:
    """Returns the stream that the next step draws from."""
    return self._streams[0]

  @abc.abstractmethod
  def _loss(self, batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns the loss of a batch and the figures to report."""
