"""Starts the training of the bundled Llama."""

import transformers

from bundled.llama import llama_model
from bundled.summaries import batches
from bundled.summaries import summary_run


def start(
  recipe: summary_run.Recipe,
  config: transformers.LlamaConfig,
  tokenizer: transformers.PreTrainedTokenizerFast,
) -> summary_run.Run:
  """Returns the run of a model with random weights."""
  model = llama_model.create(config, recipe.seed)
  stream = batches.Batches(
    llama_model.RowMaker(tokenizer),
    config.eos_token_id[0],
    tokens=recipe.tokens,
    longest=config.max_position_embeddings,
    article_weight=recipe.article_weight,
  )
  return summary_run.Run(
    recipe,
    model,
    model.model.layers,
    lambda ids: llama_model.hidden(model, ids),
    stream,
  )
