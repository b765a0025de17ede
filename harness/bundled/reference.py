"""Runs the reference implementation on the bundled set and records it.

The reference is transformers' GPTJForCausalLM on PyTorch in float32, one
article at a time, with the generation settings of the MLPerf GPT-J benchmark.
Others compare against the file that this writes, without PyTorch:

    bazel run //harness/bundled:reference -- \
        --output=harness/bundled/reference.json

It also prints two figures that tell how sharp the comparison is: the ROUGE of
the articles' first three sentences, which a model that understood nothing would
reach, and the ROUGE of the same model with its weights rounded to 4 bits,
which has to fail the 99 % line.
"""

import json
import os
import re
import time
from typing import Any, Sequence

from absl import app
from absl import flags
from rich import console
from rich import progress
import torch
import transformers

from saxml_ext.common import dataset
from saxml_ext.common import rouge
from saxml_ext.common import user_path

_HERE = os.path.dirname(__file__)
_MODEL = flags.DEFINE_string(
    'model', os.path.join(_HERE, 'model'), 'HF directory of the model.'
)
_DATASET = flags.DEFINE_string(
    'dataset', os.path.join(_HERE, 'eval.json'), 'Evaluation file.'
)
_OUTPUT = flags.DEFINE_string(
    'output', None, 'JSON file to write; none: print only.'
)
_COUNT = flags.DEFINE_integer(
    'count', 0, 'Articles from the front of the set; 0: all.'
)
_ROUNDED = flags.DEFINE_bool(
    'rounded', True, 'Also score the model rounded to 4 bits.'
)

# https://github.com/mlcommons/inference, language/gpt-j, gen_kwargs.
GENERATION = {
    'num_beams': 4,
    'early_stopping': True,
    'max_new_tokens': 128,
    'min_new_tokens': 30,
}

_SENTENCE_END = re.compile(r'(?<=[.!?])"?\s+(?=[A-Z0-9"])')


def load(path: str) -> transformers.GPTJForCausalLM:
  """The model in float32, ready to generate."""
  return transformers.GPTJForCausalLM.from_pretrained(
      path, dtype=torch.float32
  ).eval()


@torch.inference_mode()
def generate(
    model: transformers.GPTJForCausalLM,
    prompts: Sequence[Sequence[int]],
    label: str,
) -> list[list[int]]:
  """Returns the generated ids of each prompt, end of sequence left out."""
  end = model.config.eos_token_id
  answers = []
  for prompt in progress.track(
      prompts, label, console=console.Console(stderr=True)
  ):
    ids = torch.tensor([list(prompt)])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), pad_token_id=end, **GENERATION
    )
    answer = output[0, ids.shape[1] :].tolist()
    answers.append(answer[: answer.index(end)] if end in answer else answer)
  return answers


def round_weights(model: torch.nn.Module, bits: int) -> None:
  """Rounds every matrix to `bits`, symmetric with a scale per output row."""
  top = 2 ** (bits - 1) - 1
  with torch.no_grad():
    for weight in model.parameters():
      if weight.dim() == 2:
        scale = weight.abs().amax(dim=1, keepdim=True) / top
        weight.copy_((weight / scale).round() * scale)


def _lead(article: str, sentences: int = 3) -> str:
  return ' '.join(_SENTENCE_END.split(article)[:sentences])


def _show(name: str, scores: rouge.Scores, seconds: float = 0.0) -> None:
  took = f'  ({seconds:.0f} s)' if seconds else ''
  print(
      f'{name:<28}{scores.rouge1:9.4f}{scores.rouge2:9.4f}'
      f'{scores.rougeL:9.4f}{scores.gen_len:9d}{took}',
      flush=True,
  )


def main(argv: list[str]) -> None:
  del argv
  model_dir = user_path.resolve(_MODEL.value)
  articles = dataset.load_articles(
      user_path.resolve(_DATASET.value), _COUNT.value
  )
  highlights = [article.output for article in articles]
  bpe = dataset.load_tokenizer(os.path.join(model_dir, 'tokenizer.json'))
  model = load(model_dir)
  prompts = dataset.encode_prompts(
      articles, bpe, model.config.n_positions - GENERATION['max_new_tokens']
  )
  print(f'{"":<28}{"ROUGE-1":>9}{"ROUGE-2":>9}{"ROUGE-L":>9}{"gen_len":>9}')
  _show(
      'first three sentences',
      rouge.score_texts(
          [_lead(article.input) for article in articles], highlights
      ),
  )

  def run(label: str) -> tuple[list[list[int]], rouge.Scores]:
    began = time.monotonic()
    tokens = generate(model, prompts, label)
    scores = rouge.score_tokens(dict(enumerate(tokens)), highlights, bpe)
    _show(label, scores, time.monotonic() - began)
    return tokens, scores

  tokens, scores = run('reference, float32')
  if _OUTPUT.value:
    _write(user_path.resolve(_OUTPUT.value), tokens, scores)
  if _ROUNDED.value:
    round_weights(model, 4)
    _, rounded = run('weights rounded to 4 bits')
    share = 100 * rounded.rouge1 / scores.rouge1
    print(f'4 bits keep {share:.2f} % of ROUGE-1; the line is 99 %')


def _write(
    path: str, tokens: Sequence[Sequence[int]], scores: rouge.Scores
) -> None:
  record: dict[str, Any] = {
      'implementation': f'transformers {transformers.__version__}, torch'
      f' {torch.__version__}, float32, batch 1',
      'generation': GENERATION,
      'rouge1': scores.rouge1,
      'rouge2': scores.rouge2,
      'rougeL': scores.rougeL,
      'gen_len': scores.gen_len,
      'gen_num': scores.gen_num,
      'tokens': tokens,
  }
  with open(path, 'w', encoding='utf-8') as file:
    # One answer a line keeps differences readable.
    head = json.dumps(
        {k: v for k, v in record.items() if k != 'tokens'}, indent=1
    )
    rows = ',\n  '.join(json.dumps(row) for row in tokens)
    file.write(f'{head[:-2]},\n "tokens": [\n  {rows}\n ]\n}}\n')


if __name__ == '__main__':
  app.run(main)
