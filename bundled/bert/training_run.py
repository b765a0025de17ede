"""A training run of the bundled BERT that can be stopped and resumed.

The model learns the answer's first and last token, and two things beside,
through layers that the finished model does not have: from each token of the
passage what it says, and from [CLS] what the question asks for. The generator
knows both, and they tell more of each row than the answer's place alone. Heads
of the first layers begin as ones that look at the tokens beside their own.
Matrices inside the encoder are trained with Muon, the rest with AdamW.
"""

import dataclasses
import math
import os
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
import transformers

from bundled.bert import batches as batches_lib
from bundled.bert import questions
from bundled.bert import rows

# Most tokens of a feature of the evaluation.
MAX_TOKENS = 384
# Where the heads of the first layers look at first, in tokens.
_OFFSETS = (-1, 1, -2, 2)
# How sharply they do: of 384 tokens the right one gets about half of a
# head's attention in the first layer, more where there are fewer.
_SHARP = 1.5
# Steps in which the rates rise.
_WARM_UP = 60
# Root mean square of the first values of words and positions.
_EMBEDDING_SCALE = 0.05


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How the model is trained.

  Attributes:
    steps: optimizer steps of the whole run; the learning rates follow it.
    tokens: most tokens of a step, padding included.
    short_share: this share of the steps, the first ones, has short rows only.
    short: most tokens of a short row.
    muon_rate: peak learning rate of Muon.
    adam_rate: peak learning rate of AdamW.
    tag_weight: weight of the loss of what tokens say.
    topic_weight: weight of the loss of what the question asks for.
    taught_layer: after so many layers the model should know what tokens say
      and what the question asks for.
    seed: of the first weights, hidden tokens and offsets.
  """

  steps: int
  tokens: int
  short_share: float = 0.4
  short: int = 112
  muon_rate: float = 0.01
  adam_rate: float = 2e-3
  tag_weight: float = 1.0
  topic_weight: float = 0.2
  taught_layer: int = 2
  seed: int = 0

  def rate(self, step: int) -> float:
    """Share of the peak rates: warm-up, then down to 0 in a straight line."""
    return min((step + 1) / _WARM_UP, (self.steps - step) / self.steps)

  def is_short(self, step: int) -> bool:
    """Whether the step has short rows only."""
    return step < self.short_share * self.steps


def bundled_config(vocabulary_size: int) -> transformers.BertConfig:
  """The bundled model's shape; no dropout, as no text is met twice."""
  return transformers.BertConfig(
    vocab_size=vocabulary_size,
    hidden_size=192,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=512,
    initializer_range=0.05,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    # On a CPU in bfloat16 plain matrix products are faster, with a mask, than
    # PyTorch's fused attention: 12,600 tokens a second and not 8,600.
    attn_implementation='eager',
  )


class Progress(NamedTuple):
  """What a step saw, before it changed the weights.

  Attributes:
    loss: of the answers' first and last tokens.
    tag_loss: of what the passage's tokens say.
    topic_loss: of what the question asks for.
    found: share of the rows whose answer the model found exactly.
  """

  loss: float
  tag_loss: float
  topic_loss: float
  found: float


class Run:
  """Model, optimizers and data of a run.

  Attributes:
    model: being trained.
    step: steps done.
    tokens: tokens seen, padding included.
  """

  def __init__(
    self, recipe: Recipe, config: transformers.BertConfig, vocabulary: str
  ):
    """Begins a run.

    Args:
      recipe: how to train.
      config: the model's shape.
      vocabulary: path of vocab.txt.
    """
    torch.manual_seed(recipe.seed)
    self._recipe = recipe
    self.model = transformers.BertForQuestionAnswering(config)
    _initialize(self.model)
    self._tagger = nn.Linear(config.hidden_size, rows.TAGS)
    self._asker = nn.Linear(config.hidden_size, len(questions.topics()))
    self._optimizers = self._make_optimizers()
    self._peaks = [o.param_groups[0]['lr'] for o in self._optimizers]
    reader = rows.Reader(vocabulary, MAX_TOKENS)
    self._streams = [
      batches_lib.Batches(
        reader,
        recipe.tokens,
        longest,
        MAX_TOKENS,
        config.vocab_size,
        reader.hidden,
      )
      for longest in (MAX_TOKENS, recipe.short)
    ]
    self.step = 0
    self.tokens = 0

  def advance(self) -> Progress:
    """Does one step.

    Raises:
      FloatingPointError: the loss is no longer a number.
    """
    factor = self._recipe.rate(self.step)
    for optimizer, peak in zip(self._optimizers, self._peaks):
      optimizer.param_groups[0]['lr'] = peak * factor
    batch = self._streams[self._recipe.is_short(self.step)].draw()
    loss, progress = self._loss(batch)
    loss.backward()
    nn.utils.clip_grad_norm_(self._parameters(), 1.0)
    for optimizer in self._optimizers:
      optimizer.step()
      optimizer.zero_grad(set_to_none=True)
    self.step += 1
    self.tokens += batch.ids.numel()
    if not math.isfinite(progress.loss):
      raise FloatingPointError(
        f'the loss is {progress.loss} at step {self.step}'
      )
    return progress

  def save(self, path: str) -> None:
    """Writes all that `restore` needs, or leaves what was there before."""
    state = {
      'modules': [m.state_dict() for m in self._modules()],
      'optimizers': [o.state_dict() for o in self._optimizers],
      'positions': [tuple(s.position) for s in self._streams],
      'random': torch.get_rng_state(),
      'step': self.step,
      'tokens': self.tokens,
    }
    torch.save(state, path + '.tmp')
    os.replace(path + '.tmp', path)

  def restore(self, path: str) -> None:
    """Goes on where the run that wrote the file was, to the same weights."""
    state = torch.load(path, weights_only=True)
    for module, saved in zip(self._modules(), state['modules']):
      module.load_state_dict(saved)
    for optimizer, saved in zip(self._optimizers, state['optimizers']):
      optimizer.load_state_dict(saved)
    for stream, position in zip(self._streams, state['positions']):
      stream.seek(batches_lib.Position(*position))
    torch.set_rng_state(state['random'])
    self.step = state['step']
    self.tokens = state['tokens']

  def _modules(self) -> list[nn.Module]:
    return [self.model, self._tagger, self._asker]

  def _parameters(self) -> list[nn.Parameter]:
    return [p for module in self._modules() for p in module.parameters()]

  def _make_optimizers(self) -> list[torch.optim.Optimizer]:
    encoder = self.model.bert.encoder.parameters()
    blocks = [p for p in encoder if p.dim() == 2]
    inside = {id(p) for p in blocks}
    others = [p for p in self._parameters() if id(p) not in inside]
    return [
      torch.optim.Muon(
        blocks, lr=self._recipe.muon_rate, weight_decay=0.01, momentum=0.95
      ),
      torch.optim.AdamW(
        others, lr=self._recipe.adam_rate, betas=(0.9, 0.999), weight_decay=0.0
      ),
    ]

  def _loss(self, batch: batches_lib.Batch) -> tuple[torch.Tensor, Progress]:
    """The weighted loss, and its parts."""
    with torch.autocast('cpu', dtype=torch.bfloat16):
      layers = self.model.bert(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        position_ids=batch.positions,
        output_hidden_states=True,
      ).hidden_states
      spans = self.model.qa_outputs(layers[-1]).float()
      said = batch.tags >= 0
      middle = layers[self._recipe.taught_layer]
      tags = self._tagger(middle[said]).float()
      topics = self._asker(middle[:, 0]).float()
    spans = spans.masked_fill(batch.mask[..., None] == 0, -1e4)
    start, end = spans.unbind(-1)
    span_loss = (
      F.cross_entropy(start, batch.start) + F.cross_entropy(end, batch.end)
    ) / 2
    tag_loss = F.cross_entropy(tags, batch.tags[said])
    topic_loss = F.cross_entropy(topics, batch.topic)
    exact = (start.argmax(-1) == batch.start) & (end.argmax(-1) == batch.end)
    loss = (
      span_loss
      + self._recipe.tag_weight * tag_loss
      + self._recipe.topic_weight * topic_loss
    )
    return loss, Progress(
      span_loss.item(),
      tag_loss.item(),
      topic_loss.item(),
      exact.float().mean().item(),
    )


@torch.no_grad()
def _initialize(model: transformers.BertForQuestionAnswering) -> None:
  """Begins with heads that look at the tokens beside their own.

  Which word stands next to which says what a number or a name is; from BERT's
  own first values it takes long until any head has found the way there. The
  first dimensions, as many as a head has, are given to positions, as sines
  of frequencies drawn by chance: p(i) . p(j) is large for i = j alone, and
  p(i + 1) is p(i) turned, a matrix. In the first two layers such matrices are
  the first values of the queries. All of it is trained like the rest.
  """
  config = model.config
  width = config.hidden_size // config.num_attention_heads
  embeddings = model.bert.embeddings
  positions = embeddings.position_embeddings.weight
  frequencies = torch.rand(width // 2) * math.pi
  angles = torch.arange(len(positions))[:, None] * frequencies
  sines = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
  positions.zero_()
  positions[:, :width] = sines * (2**0.5 * _EMBEDDING_SCALE)
  words = embeddings.word_embeddings.weight
  words.normal_(0.0, _EMBEDDING_SCALE)
  words[:, :width] = 0.0
  for layer in model.bert.encoder.layer[:2]:
    attention = layer.attention.self
    for head, offset in zip(range(config.num_attention_heads), _OFFSETS):
      rows_of_head = slice(head * width, (head + 1) * width)
      turn = torch.block_diag(*map(_rotation, offset * frequencies))
      attention.key.weight[rows_of_head, :width] += torch.eye(width) * _SHARP
      attention.query.weight[rows_of_head, :width] += turn * _SHARP


def _rotation(angle: torch.Tensor) -> torch.Tensor:
  """Turns (sin x, cos x) into (sin(x + angle), cos(x + angle))."""
  sin, cos = angle.sin(), angle.cos()
  return torch.stack([torch.stack([cos, sin]), torch.stack([-sin, cos])])
