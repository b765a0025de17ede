"""Defines a training run that can be stopped and resumed.

Matrices inside the blocks are trained with Muon, and the other parameters with
AdamW.
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
    steps: The number of optimizer steps of the whole run; the learning rates
      depend on it.
    tokens: The maximum number of tokens of a step, including padding.
    muon_rate: The peak learning rate of Muon.
    adam_rate: The peak learning rate of AdamW.
    seed: The seed of the initial weights and of all random choices.
  """

  steps: int
  tokens: int
  muon_rate: float = 0.02
  adam_rate: float = 2e-3
  seed: int = 0

  @abc.abstractmethod
  def rate(self, step: int) -> float:
    """Returns the learning rate of a step, as a share of the peak rate."""


class Run(abc.ABC):
  """The modules, the optimizers and the data of a run.

  Attributes:
    step: The number of finished steps.
    tokens: The number of tokens so far, including padding.
    progress: The figures of the latest step by name; empty before the first.
  """

  def __init__(
    self,
    recipe: Recipe,
    modules: Sequence[nn.Module],
    blocks: nn.Module,
    data: Sequence[streams.Stream],
  ):
    """Starts a run.

    Args:
      recipe: The settings of the training.
      modules: The modules to train.
      blocks: The part of the modules whose matrices are trained with Muon.
      data: The streams to draw batches from.
    """
    self._recipe = recipe
    self._modules = modules
    self._streams = data
    self._parameters = [p for module in modules for p in module.parameters()]
    matrices = [p for p in blocks.parameters() if p.dim() == 2]
    inside = {id(p) for p in matrices}
    self._optimizers = [
      torch.optim.Muon(
        matrices, lr=recipe.muon_rate, weight_decay=0.01, momentum=0.95
      ),
      torch.optim.AdamW(
        # A rare token occurs in few batches. With a short memory of squared
        # gradients, each occurrence would change its embedding too much.
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
    """Runs one step and returns its figures, from before the update.

    Raises:
      FloatingPointError: A loss is not a finite number.
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
    """Writes the state that `restore` needs; keeps the old file on failure."""
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
    """Restores the state from a file; the run continues as if not stopped."""
    state = torch.load(path, weights_only=True)
    for module, saved in zip(self._modules, state['modules']):
      module.load_state_dict(saved)
    for optimizer, saved in zip(self._optimizers, state['optimizers']):
      # The betas are those of this run, and the moments those of the file.
      saved['param_groups'] = optimizer.state_dict()['param_groups']
      optimizer.load_state_dict(saved)
    for stream, position in zip(self._streams, state['positions']):
      stream.seek(streams.Position(*position))
    torch.set_rng_state(state['random'])
    self.step = state['step']
    self.tokens = state['tokens']
    self.progress = state['progress']

  def _stream(self) -> streams.Stream:
    """Returns the stream of the next step's batch."""
    return self._streams[0]

  @abc.abstractmethod
  def _loss(self, batch: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns the loss of a batch and the figures to report."""
