"""Defines a training run of the bundled BERT.

The model learns the first and the last token of the answer. Two more tasks use
layers that the finished model does not have. From each token of the passage,
the model predicts the token's tag; from [CLS], the topic of the question. The
generator knows both, and they give more information per row than the place of
the answer. In the first layers, the initial heads attend to neighboring tokens.
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

# The maximum number of tokens of a feature of the evaluation.
MAX_TOKENS = 384
# The relative positions that the heads of the first layers attend to at the
# start.
_OFFSETS = (-1, 1, -2, 2)
# The initial sharpness of that attention. Of 384 tokens, the right one gets
# about half of a head's attention in the first layer. With fewer tokens, it
# gets more.
_SHARP = 1.5
# The number of steps in which the learning rates rise.
_WARM_UP = 60
# The root mean square of the initial embeddings of words and positions.
_EMBEDDING_SCALE = 0.05


@dataclasses.dataclass(frozen=True)
class Recipe(training.Recipe):
  """The settings of the training.

  Attributes:
    short_share: The share of the steps with only short rows, at the start.
    short: The maximum number of tokens of a short row.
    tag_weight: The weight of the loss of the tokens' tags.
    topic_weight: The weight of the loss of the question's topic.
    taught_layer: The layer whose output predicts the tags and the topic.
  """

  muon_rate: float = 0.01
  short_share: float = 0.4
  short: int = 112
  tag_weight: float = 1.0
  topic_weight: float = 0.2
  taught_layer: int = 2

  def rate(self, step: int) -> float:
    """Returns the share of the peak rates: warm-up, then linear fall to 0."""
    return min((step + 1) / _WARM_UP, (self.steps - step) / self.steps)

  def is_short(self, step: int) -> bool:
    """Returns True if the step uses only short rows."""
    return step < self.short_share * self.steps


def bundled_config(vocabulary_size: int) -> transformers.BertConfig:
  """Returns the shape of the bundled model, without dropout.

  No text is seen twice, so dropout is not needed.
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
    # On a CPU in bfloat16 with a mask, plain matrix products are faster than
    # PyTorch's fused attention: 12,600 tokens per second instead of 8,600.
    attn_implementation='eager',
  )


class Run(training.Run):
  """The model, the optimizers and the data of a run.

  The figures are: the loss of the answers' first and last tokens, the loss
  of the tags, the loss of the topics, and the share of rows whose answer the
  model found exactly.

  Attributes:
    model: The model being trained.
  """

  _recipe: Recipe

  def __init__(
    self, recipe: Recipe, config: transformers.BertConfig, vocabulary: str
  ):
    """Starts a run.

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
      tagged = batch.tags >= 0
      middle = layers[self._recipe.taught_layer]
      tags = self._tagger(middle[tagged]).float()
      topics = self._asker(middle[:, 0]).float()
    spans = spans.masked_fill(batch.mask[..., None] == 0, -1e4)
    start, end = spans.unbind(-1)
    span_loss = (
      F.cross_entropy(start, batch.start) + F.cross_entropy(end, batch.end)
    ) / 2
    tag_loss = F.cross_entropy(tags, batch.tags[tagged])
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
  """Initializes heads that attend to neighboring tokens.

  The neighbors of a number or a name show its meaning. With BERT's usual
  initial values, heads need a long time to find them. The first dimensions, as
  many as a head has, encode positions as sines of random frequencies. The
  product p(i) . p(j) is large only for i = j, and a matrix turns p(i) into p(i
  + 1). In the first two layers, such matrices are the initial values of the
  queries. All of these values are trained like the others.
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
  """Returns the matrix from (sin x, cos x) to (sin(x + a), cos(x + a))."""
  sin, cos = angle.sin(), angle.cos()
  return torch.stack([torch.stack([cos, sin]), torch.stack([-sin, cos])])
