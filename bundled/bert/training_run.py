"""A training run of the bundled BERT.

The model learns the answer's first and last token, and two things beside,
through layers that the finished model does not have: from each token of the
passage what it says, and from [CLS] what the question asks for. The generator
knows both, and they tell more of each row than the answer's place alone. Heads
of the first layers begin as ones that look at the tokens beside their own.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F
import transformers

from bundled import streams
from bundled import training
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
class Recipe(training.Recipe):
  """The settings of the training.

  Attributes:
    short_share: The share of the steps, from the first on, with short rows
      only.
    short: The limit of the tokens of a short row.
    tag_weight: The weight of the loss of the tags of tokens.
    topic_weight: The weight of the loss of the topic of the question.
    taught_layer: The layer after which the model should know the tags of tokens
      and the topic of the question.
  """

  muon_rate: float = 0.01
  short_share: float = 0.4
  short: int = 112
  tag_weight: float = 1.0
  topic_weight: float = 0.2
  taught_layer: int = 2

  def rate(self, step: int) -> float:
    """Returns the share of the peak rates: warm-up, then a straight line to 0."""
    return min((step + 1) / _WARM_UP, (self.steps - step) / self.steps)

  def is_short(self, step: int) -> bool:
    """Returns True if the step has short rows only."""
    return step < self.short_share * self.steps


def bundled_config(vocabulary_size: int) -> transformers.BertConfig:
  """Returns the shape of the bundled model, without dropout.

  No text is seen twice, so that dropout has no use.
  """
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


class Run(training.Run):
  """Model, optimizers and data of a run.

  The figures are the losses of the answers' first and last tokens, of what the
  passage's tokens say and of what the question asks for, and the share of the
  rows whose answer the model found exactly.

  Attributes:
    model: The model being trained.
  """

  _recipe: Recipe

  def __init__(
    self, recipe: Recipe, config: transformers.BertConfig, vocabulary: str
  ):
    """Begins a run.

    Args:
      recipe: The settings of the training.
      config: The shape of the model.
      vocabulary: The path of vocab.txt.
    """
    torch.manual_seed(recipe.seed)
    self.model = transformers.BertForQuestionAnswering(config)
    _initialize(self.model)
    self._tagger = nn.Linear(config.hidden_size, rows.TAGS)
    self._asker = nn.Linear(config.hidden_size, len(questions.topics()))
    reader = rows.Reader(vocabulary, MAX_TOKENS)
    super().__init__(
      recipe,
      [self.model, self._tagger, self._asker],
      self.model.bert.encoder,
      [
        batches_lib.Batches(
          reader,
          recipe.tokens,
          longest,
          MAX_TOKENS,
          config.vocab_size,
          reader.hidden,
        )
        for longest in (MAX_TOKENS, recipe.short)
      ],
    )

  def _stream(self) -> streams.Stream:
    return self._streams[self._recipe.is_short(self.step)]

  def _loss(
    self, batch: batches_lib.Batch
  ) -> tuple[torch.Tensor, dict[str, float]]:
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
    return loss, {
      'loss': span_loss.item(),
      'tag_loss': tag_loss.item(),
      'topic_loss': topic_loss.item(),
      'found': exact.float().mean().item(),
    }


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
