"""What one family of models computes otherwise than another.

The engine has one model, whose code asks these choices; sizes stand in
`config.py`. The variables of a checkpoint follow from the choices too, see
`variables.py`. A family that normalizes by root mean square, gates its
feed-forward layer or shares keys among heads would add its choices here.
"""

import dataclasses

ROTARY, SINUSOIDAL = 'rotary', 'sinusoidal'
_POSITIONS = (ROTARY, SINUSOIDAL)


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Choices, all of them static; the defaults are GPT-J's.

  Attributes:
    parallel: True if attention and feed-forward read the same layer norm and
      are added to the residual together; False if the feed-forward has a norm
      of its own and comes after attention.
    positions: "rotary" turns queries and keys; "sinusoidal" adds sines and
      cosines of the position to the embedding.
    scaled_embedding: True if embeddings are multiplied by sqrt(width).
    tied_head: True if the head is the embedding.
    query_scale: True if queries have a learned scale for each dim of a head:
      praxis' `per_dim_scale`.
    attention_cap: scores of attention are c * tanh(score / c); None: they are
      not capped.
    logit_cap: the same, of logits.
  """

  parallel: bool = True
  positions: str = ROTARY
  scaled_embedding: bool = False
  tied_head: bool = False
  query_scale: bool = False
  attention_cap: float | None = None
  logit_cap: float | None = None

  def __post_init__(self) -> None:
    if self.positions not in _POSITIONS:
      raise ValueError(
        f'positions is {self.positions!r}; use one of {_POSITIONS}.'
      )
    for name in ('attention_cap', 'logit_cap'):
      cap = getattr(self, name)
      if cap is not None and not cap > 0:
        raise ValueError(f'{name} is {cap}; above 0, or None for no cap.')


GPTJ = Architecture()

# Of paxml's experiments LmCloudSpmd (paxml/tasks/lm/params/lm_cloud.py): what
# these leave at the defaults of TransformerLmSpmdAdafactor and of praxis.
LM_CLOUD = Architecture(
  parallel=False,
  positions=SINUSOIDAL,
  scaled_embedding=True,
  tied_head=True,
  query_scale=True,
  attention_cap=50.0,
  logit_cap=30.0,
)
