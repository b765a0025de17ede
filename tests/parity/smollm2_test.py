"""Compares SmolLM2-135M-Instruct with transformers on the same weights.

    ./bazelw run //bundled/smollm2:proof

Both dequantize the GGUF file. In float32, the engine must find the tokens of
transformers, greedily and with beams. In int8 and in int4, as `serve
--quantize=int8` and `--quantize=int4` run the model, it must keep the likeliest
token at 95 % of the positions, and the mean negative log-likelihood within 1 %.
"""

import functools
import json
import tempfile

from absl.testing import absltest
import numpy as np
import torch
import transformers

from bundled.smollm2 import chats
from bundled.smollm2 import reference_model
from converters.convert import conversion
from converters.convert import model_source
from converters.convert import sources
from converters.hf import smollm2
from converters.quantize import model_input
from converters.quantize import models
from converters.quantize import provenance
from converters.quantize import quantization
from converters.quantize import sample_texts
from converters.quantize.report import logit_errors
from harness.benchmarks import gptj
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import serving

_NEW_TOKENS = 32
_BEAMS = 4
_LONGEST_PROMPT = 128
_POSITIONS = 2000
_ARTICLE_TOKENS = 256
_LEAST_AGREEMENT = 0.95
_MOST_LOSS = 0.01


@functools.cache
def _reference() -> transformers.LlamaForCausalLM:
  return reference_model.load(smollm2.path())


def _expected(prompt: list[int], ends: list[int], beams: int = 1) -> list[int]:
  """Returns the tokens with which transformers answers a prompt."""
  with torch.inference_mode():
    output = _reference().generate(
      torch.tensor([prompt]),
      attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
      max_new_tokens=_NEW_TOKENS,
      do_sample=False,
      num_beams=beams,
      early_stopping=beams > 1,
      eos_token_id=ends,
      pad_token_id=ends[0],
    )
  return output[0, len(prompt) :].tolist()


class SmolLM2Test(absltest.TestCase):
  root: str
  prompts: list[list[int]]

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    directory = tempfile.TemporaryDirectory()
    cls.addClassCleanup(directory.cleanup)
    cls.root = directory.name
    conversion.convert(
      sources.open_checkpoint(smollm2.path()), f'{cls.root}/float', 'float32'
    )
    cls.model = models.open_model(f'{cls.root}/float')
    tokenizer = transformers.AutoTokenizer.from_pretrained(f'{cls.root}/float')
    texts = [
      tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=False
      )
      for chat in chats.CHATS
    ]
    cls.prompts = [
      tokenizer.encode(text, add_special_tokens=False) for text in texts
    ]
    # The gateway encodes chats with this library.
    cls.tokenizer = sample_texts.load_tokenizer(f'{cls.root}/float')
    for text, prompt in zip(texts, cls.prompts):
      ids = cls.tokenizer.encode(text, add_special_tokens=False).ids
      assert ids == prompt, text

  @classmethod
  @functools.cache
  def greedy(cls) -> list[list[int]]:
    """Returns transformers' greedy answers to all chats."""
    return [_expected(p, list(cls.model.end_ids)) for p in cls.prompts]

  def answers(self, prompts: list[list[int]], **settings) -> list[list[int]]:
    """Returns the engine's answers in float32."""
    reader, config = self.model.reader, self.model.config
    weights = weights_lib.from_pax(
      {name: reader.read(name) for name in reader.specs}, config, 'float32'
    )
    ends = self.model.end_ids
    engine = config_lib.EngineConfig(
      eos_id=ends[0],
      num_slots=4,
      decode_widths=(4,),
      max_prompt=_LONGEST_PROMPT,
      prompt_buckets=(_LONGEST_PROMPT,),
      min_new_tokens=0,
      max_new_tokens=_NEW_TOKENS,
      max_stop_ids=len(ends),
      **settings,
    )
    requests = [
      request_lib.Request(np.asarray(prompt, np.int32), stop_ids=ends)
      for prompt in prompts
    ]
    runner = runner_lib.Runner(weights, config, engine)
    return [
      best for best, *_ in serving.tokens(serving.serve(runner, requests))
    ]

  def compare(
    self, answers: list[list[int]], expected: list[list[int]]
  ) -> None:
    for ours, theirs in zip(answers, expected, strict=True):
      print(json.dumps(self.tokenizer.decode(ours), ensure_ascii=False))
      # transformers pads answers of beams to the longest one.
      self.assertEqual(ours, theirs[: len(ours)])
      self.assertTrue(
        len(ours) == len(theirs) or ours[-1] in self.model.end_ids
      )

  def test_greedy_answers_match_transformers(self):
    answers = self.answers(
      self.prompts, search='sample', num_beams=1, temperature=0.0
    )
    self.compare(answers, self.greedy())
    print(
      f'greedy: {len(answers)} answers with {sum(map(len, answers))} tokens are'
      ' identical to those of transformers'
    )

  def test_beams_match_transformers(self):
    prompts = [self.prompts[chats.CHATS.index(c)] for c in chats.BEAM_CHATS]
    ends = list(self.model.end_ids)
    expected = [_expected(prompt, ends, _BEAMS) for prompt in prompts]
    answers = self.answers(prompts, search='beam', num_beams=_BEAMS)
    self.compare(answers, expected)
    print(
      f'{_BEAMS} beams: {len(answers)} answers with'
      f' {sum(map(len, answers))} tokens are identical to those of transformers'
    )

  @classmethod
  @functools.cache
  def texts(cls) -> sample_texts.Texts:
    """Returns the greedy chats, and as many articles as are needed."""
    sequences = [
      (np.asarray(prompt + answer, np.int32), len(prompt))
      for prompt, answer in zip(cls.prompts, cls.greedy())
    ]
    missing = _POSITIONS - sum(map(len, cls.greedy()))
    for article in sample_texts.load_articles(gptj.BUNDLE.dataset):
      ids = cls.tokenizer.encode(article.input).ids
      ids = ids[: min(_ARTICLE_TOKENS, missing + 1)]
      missing -= len(ids) - 1
      sequences.append((np.asarray(ids, np.int32), 1))
      if missing <= 0:
        break
    return sample_texts.from_sequences(sequences)

  def test_int8_is_near_transformers(self):
    quantization.quantize(
      model_input.ModelInput(
        model_source.ModelSource(sources.open_checkpoint(smollm2.path()))
      ),
      f'{self.root}/int8',
      provenance.Record(provenance.Options()),
      measure=False,
    )
    self._check_figures(models.open_model(f'{self.root}/int8'), 'int8_fine')

  def test_int4_is_near_transformers(self):
    self._check_figures(self.model, 'int4')

  def _check_figures(self, model: models.Model, kind: str) -> None:
    """Compares the likeliest tokens and losses with those of transformers.

    Args:
      model: The checkpoint.
      kind: The quantization, beside an embedding in bfloat16.
    """
    next_ids, exact = self._exact()
    logits = logit_errors.answer_logits(
      model.run_as(kind, 'bfloat16'), self.texts()
    )
    agreement = (exact.argmax(-1) == logits.argmax(-1)).mean()
    losses = [_loss(logits, next_ids) for logits in (exact, logits)]
    change = losses[1] / losses[0] - 1
    print(
      f'{kind}: the likeliest token is that of transformers in float32 at'
      f' {agreement:.2%} of {len(next_ids)} positions. The mean negative'
      f' log-likelihood is {losses[1]:.4f} instead of {losses[0]:.4f}'
      f' ({change:+.2%}).'
    )
    self.assertGreaterEqual(agreement, _LEAST_AGREEMENT)
    self.assertLessEqual(abs(change), _MOST_LOSS)

  @classmethod
  @functools.cache
  def _exact(cls) -> tuple[np.ndarray, np.ndarray]:
    """Returns the next tokens of the texts, and the logits of transformers."""
    texts = cls.texts()
    next_ids = np.concatenate(
      [b.tokens[:, 1:][b.answers[:, :-1]] for b in texts.batches]
    )
    assert len(next_ids) == _POSITIONS
    expected = []
    with torch.inference_mode():
      for batch in texts.batches:
        # Padding is on the right, so it does not affect real tokens.
        logits = _reference()(torch.from_numpy(batch.tokens).long()).logits
        expected.append(logits[torch.from_numpy(batch.answers)].numpy())
    return next_ids, np.concatenate(expected)


def _loss(logits: np.ndarray, ids: np.ndarray) -> float:
  """Returns the mean negative log-likelihood of ids [P] by logits [P, V]."""
  scores = torch.from_numpy(logits).double()
  return float(
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(ids).long())
  )


if __name__ == '__main__':
  absltest.main()
