"""Trains the bundled GPT-J on generated news and writes an HF directory.

    bazel run //harness/bundled:train -- --output_dir=/tmp/model

Matrices inside the blocks are trained with Muon, the rest with AdamW: on this
task Muon needs fewer steps to learn to look names up in the article. The loss
covers the whole text, the article's part with a lower weight. The run may be
stopped and resumed: a checkpoint is written beside the output every few
minutes.
"""

import json
import math
import os
import random
import time

from absl import app
from absl import flags
from absl import logging
import tokenizers
import torch
from torch.nn import functional as F
import transformers

from harness.bundled import corpus
from harness.bundled import gptj_torch
from harness.bundled import spread
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
    'output_dir',
    None,
    'Directory that holds tokenizer.json and receives the' ' model.',
    required=True,
)
_STEPS = flags.DEFINE_integer('steps', 1800, 'Optimizer steps.')
_TOKENS = flags.DEFINE_integer('tokens', 6144, 'Padded tokens per step.')
_LOG = flags.DEFINE_string('log', None, 'Where to append the training log.')
_ARTICLE_WEIGHT = flags.DEFINE_float(
    'article_weight', 0.3, 'Weight of the loss on the prompt.'
)
_MUON_RATE = flags.DEFINE_float('muon_rate', 0.02, 'Peak rate of Muon.')
_ADAM_RATE = flags.DEFINE_float('adam_rate', 2e-3, 'Peak rate of AdamW.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of weights and batch order.')

_POOL = 512  # Stories sorted by length before they are cut into batches.
_SAVE_EVERY = 250
_ARTICLE_STRIDE = 2


def model_config() -> transformers.GPTJConfig:
  """The bundled model's shape: 5.3 million parameters."""
  end = 4095  # tokenizer.END_OF_TEXT.
  return transformers.GPTJConfig(
      vocab_size=4096,
      n_positions=1024,
      n_embd=256,
      n_layer=4,
      n_head=4,
      rotary_dim=32,
      bos_token_id=end,
      eos_token_id=end,
      pad_token_id=end,
      resid_pdrop=0.0,
      embd_pdrop=0.0,
      attn_pdrop=0.0,
      tie_word_embeddings=False,
  )


class Batches:
  """An endless, resumable stream of (ids [B, T], loss weights [B, T])."""

  def __init__(self, bpe: tokenizers.Tokenizer, end: int, start: int = 0):
    self.next_story = start
    self._bpe = bpe
    self._end = end
    self._ready = []

  def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
    if not self._ready:
      self._fill()
    rows = self._ready.pop()
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), self._end)
    weights = torch.zeros((len(rows), width))
    for i, (row, prompt) in enumerate(rows):
      ids[i, : len(row)] = torch.tensor(row)
      weights[i, :prompt] = _ARTICLE_WEIGHT.value
      weights[i, prompt : len(row)] = 1.0
    return ids, weights

  def _fill(self) -> None:
    pool = list(corpus.stories('train', _POOL, self.next_story))
    self.next_story += _POOL
    rows = []
    for story in pool:
      prompt = self._bpe.encode(story.prompt).ids
      answer = self._bpe.encode(' ' + story.output).ids
      rows.append((prompt + answer + [self._end], len(prompt)))
    rows.sort(key=lambda row: len(row[0]))
    batch = []
    for row in rows:
      if (len(batch) + 1) * len(row[0]) > _TOKENS.value:
        self._ready.append(batch)
        batch = []
      batch.append(row)
    self._ready.append(batch)
    random.Random(self.next_story).shuffle(self._ready)


def _optimizers(model: gptj_torch.GPTJ):
  blocks = [p for p in model.transformer['h'].parameters() if p.dim() == 2]
  inside = {id(p) for p in blocks}
  others = [p for p in model.parameters() if id(p) not in inside]
  return [
      torch.optim.Muon(
          blocks, lr=_MUON_RATE.value, weight_decay=0.01, momentum=0.95
      ),
      torch.optim.AdamW(
          # A name comes up in few batches: with a short memory of squared
          # gradients each visit would throw its embedding about.
          others,
          lr=_ADAM_RATE.value,
          betas=(0.9, 0.999),
          weight_decay=0.0,
      ),
  ]


def _rate(step: int, steps: int) -> float:
  """Linear warm-up, then flat, then linearly to zero over the last 40 %."""
  return min(1.0, (step + 1) / 100, (steps - step) / (0.4 * steps))


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


def main(argv: list[str]) -> None:
  del argv
  torch.manual_seed(_SEED.value)
  out = user_path.resolve(_OUTPUT_DIR.value)
  log_path = user_path.resolve(_LOG.value)
  bpe = tokenizers.Tokenizer.from_file(os.path.join(out, 'tokenizer.json'))
  config = model_config()
  model = gptj_torch.GPTJ(config)
  optimizers = _optimizers(model)
  peaks = [o.param_groups[0]['lr'] for o in optimizers]
  state_path = os.path.join(out, 'training_state.pt')
  batches, first, seen = Batches(bpe, config.eos_token_id), 0, 0
  if os.path.exists(state_path):
    state = torch.load(state_path, weights_only=True)
    model.load_state_dict(state['model'])
    for optimizer, saved in zip(optimizers, state['optimizers']):
      # Rates and betas come from this run's flags, moments from the state.
      saved['param_groups'] = optimizer.state_dict()['param_groups']
      optimizer.load_state_dict(saved)
    first, seen = state['step'], state['seen']
    batches = Batches(bpe, config.eos_token_id, state['next_story'])
    logging.info('resumed at step %d', first)
  began, mean = time.monotonic(), None
  began_seen = seen
  for step in range(first, _STEPS.value):
    factor = _rate(step, _STEPS.value)
    for optimizer, peak in zip(optimizers, peaks):
      optimizer.param_groups[0]['lr'] = peak * factor
    ids, weights = batches.draw()
    loss, answer = _loss(model, ids, weights)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
      optimizer.step()
      optimizer.zero_grad(set_to_none=True)
    seen += ids.numel()
    mean = answer.item() if mean is None else 0.95 * mean + 0.05 * answer.item()
    if not math.isfinite(mean):
      raise FloatingPointError(f'the loss is {mean} at step {step}')
    if step % 25 == 24:
      seconds = time.monotonic() - began
      line = json.dumps(
          {
              'step': step + 1,
              'tokens': seen,
              'loss': round(loss.item(), 4),
              'answer_loss': round(mean, 4),
              'seconds': round(seconds, 1),
              'tokens_per_second': round((seen - began_seen) / seconds),
          }
      )
      logging.info('%s', line)
      if log_path:
        with open(log_path, 'a', encoding='utf-8') as log:
          log.write(line + '\n')
    if step % _SAVE_EVERY == _SAVE_EVERY - 1:
      torch.save(
          {
              'model': model.state_dict(),
              'step': step + 1,
              'seen': seen,
              'optimizers': [o.state_dict() for o in optimizers],
              'next_story': batches.next_story,
          },
          state_path + '.tmp',
      )
      os.replace(state_path + '.tmp', state_path)
  save(model, out)


def save(model: gptj_torch.GPTJ, output_dir: str) -> None:
  """Writes config.json, generation_config.json and model.safetensors."""
  hf = transformers.GPTJForCausalLM(model.config)
  state = {name: w.clone() for name, w in model.state_dict().items()}
  spread.spread(state)
  missing, unexpected = hf.load_state_dict(state, strict=False)
  if unexpected or any('bias' not in name for name in missing):
    raise ValueError(f'names differ: {missing} {unexpected}')
  # Half the bytes; the model is bfloat16 exactly, so float32 copies agree.
  hf.to(torch.bfloat16).save_pretrained(output_dir)


if __name__ == '__main__':
  app.run(main)
