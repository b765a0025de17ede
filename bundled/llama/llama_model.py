"""Defines the bundled Llama: its shape, its first weights and its prompts."""

import random

import torch
import transformers

from bundled.llama import vocabulary
from bundled.summaries import batches
from saxml_ext.evaluation import dataset

# The share of training stories in the form of a chat.
_CHAT_SHARE = 0.2


def bundled_config() -> transformers.LlamaConfig:
  """Returns the shape of the bundled model: 5 million parameters."""
  first = vocabulary.SIZE - len(vocabulary.SPECIAL)
  ids = {name: first + i for i, name in enumerate(vocabulary.SPECIAL)}
  return transformers.LlamaConfig(
    vocab_size=vocabulary.SIZE,
    max_position_embeddings=vocabulary.MAX_LENGTH,
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-5,
    # As in Llama 3.1.
    rope_parameters={
      'rope_type': 'llama3',
      'rope_theta': 500_000.0,
      'factor': 8.0,
      'low_freq_factor': 1.0,
      'high_freq_factor': 4.0,
      'original_max_position_embeddings': 8192,
    },
    bos_token_id=ids[vocabulary.BEGIN],
    eos_token_id=[ids[vocabulary.END], ids[vocabulary.END_OF_TURN]],
    tie_word_embeddings=False,
    attn_implementation='sdpa',
  )


def create(
  config: transformers.LlamaConfig, seed: int
) -> transformers.LlamaForCausalLM:
  """Returns a model with random weights to train."""
  torch.manual_seed(seed)
  model = transformers.LlamaForCausalLM(config)
  # Residual branches start small, so that depth does not add variance.
  depth = (2 * config.num_hidden_layers) ** -0.5
  with torch.no_grad():
    for block in model.model.layers:
      block.self_attn.o_proj.weight.mul_(depth)
      block.mlp.down_proj.weight.mul_(depth)
    # Both begin with equal values and are trained separately. At the start,
    # the head can thus already map a word that is copied from the article to
    # itself.
    model.lm_head.weight.copy_(model.model.embed_tokens.weight)
  return model


def hidden(
  model: transformers.LlamaForCausalLM, ids: torch.Tensor
) -> torch.Tensor:
  """Returns the final hidden states [B, T, D] of ids [B, T]."""
  return model.model(input_ids=ids, use_cache=False).last_hidden_state


class RowMaker:
  """Makes rows of two kinds: completions, and answers in a chat."""

  def __init__(self, tokenizer: transformers.PreTrainedTokenizerFast):
    self._tokenizer = tokenizer

  def __call__(self, story: dataset.Article, rng: random.Random) -> batches.Row:
    """Returns the prompt of a story, its highlights and an end id."""
    prompt = story.filled(dataset.LLAMA_TEMPLATE)
    if rng.random() >= _CHAT_SHARE:
      return self._row(
        self._tokenizer.bos_token + prompt, ' ' + story.output + vocabulary.END
      )
    chat = self._tokenizer.apply_chat_template(
      [{'role': 'user', 'content': prompt}],
      tokenize=False,
      add_generation_prompt=True,
    )
    return self._row(chat, story.output + vocabulary.END_OF_TURN)

  def _row(self, prompt: str, answer: str) -> batches.Row:
    ids, answer_ids = (
      self._tokenizer.encode(text, add_special_tokens=False)
      for text in (prompt, answer)
    )
    return batches.Row([*ids, *answer_ids], len(ids))
