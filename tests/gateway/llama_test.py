"""Tests the bundled Llama in a cell with all that a user asks it with.

The answers are those of transformers on PyTorch.
"""

import contextlib
import io
import tempfile
import urllib.request

from absl.testing import absltest
import openai
import torch
import transformers

from harness.benchmarks import gptj
from harness.benchmarks import llama
from saxml_ext.client import sax
from saxml_ext.client import saxutil
from saxml_ext.evaluation import dataset
from saxml_ext.http.testing import gateway_fixture
from tests.gateway import real_cell

_HF = llama.BUNDLE.model
_LENGTHS = {
  'INPUT_SEQ_LEN': '384',
  'BUCKET_KEYS': '[384]',
  'MAX_DECODE_STEPS': '128',
  'BATCH_SIZE': '2',
}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LlamaTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    torch.set_num_threads(1)  # More threads only wait for each other.
    directory = tempfile.mkdtemp(dir=absltest.get_default_test_tmpdir())
    model = real_cell.Model(
      'saxml_ext.params.llama.AnyLlama',
      llama.BUNDLE.pax + '/checkpoint_00000000',
      _LENGTHS,
    )
    cls.cell = real_cell.RealCell(directory, model)
    cls.addClassCleanup(cls.cell.stop)
    gateway = gateway_fixture.GatewayFixture(real_cell.CELL, template=_HF)
    cls.addClassCleanup(gateway.stop)
    cls.client = openai.OpenAI(
      base_url=gateway.address + '/v1', api_key='none', max_retries=0
    )
    cls.addClassCleanup(cls.client.close)
    cls.tokenizer = transformers.AutoTokenizer.from_pretrained(_HF)
    cls.reference = transformers.AutoModelForCausalLM.from_pretrained(
      _HF, dtype=torch.float32
    )
    articles = dataset.load_articles(gptj.BUNDLE.dataset, 40)
    # A short article is quick to read.
    cls.prompt = min(
      (article.filled(dataset.LLAMA_TEMPLATE) for article in articles), key=len
    )

  def greedy(self, ids: list[int], most: int) -> list[int]:
    """Returns transformers' new ids, with the id that ends them."""
    output = self.reference.generate(
      torch.tensor([ids]),
      attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
      max_new_tokens=most,
      do_sample=False,
      pad_token_id=0,
    )
    return output[0, len(ids) :].tolist()

  def complete(self, most=8, **fields):
    return self.client.completions.create(
      model='m', prompt=self.prompt, max_tokens=most, temperature=0, **fields
    )

  def read(self, port: int, path: str) -> str:
    url = f'http://127.0.0.1:{port}{path}'
    with _OPENER.open(url, timeout=60) as response:
      return response.read().decode()

  def test_completions_begin_with_the_tokenizers_start(self):
    ids = self.tokenizer(self.prompt)['input_ids']
    self.assertEqual(ids[0], self.tokenizer.bos_token_id)
    got = self.complete()
    expected = self.tokenizer.decode(self.greedy(ids, 8))
    self.assertEqual(got.choices[0].text, expected)
    self.assertEqual(got.usage.prompt_tokens, len(ids))
    streamed = ''.join(c.choices[0].text for c in self.complete(stream=True))
    self.assertEqual(streamed, expected)

  def test_both_end_ids_stop_answers(self):
    # One id ends a completion, and the other ends an answer in a chat.
    ends = self.reference.config.eos_token_id
    messages = [{'role': 'user', 'content': self.prompt}]
    chat = self.tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, return_dict=False
    )
    last_ids = []
    for ids, got in (
      (self.tokenizer(self.prompt)['input_ids'], self.complete(128)),
      (
        chat,
        self.client.chat.completions.create(
          model='m', messages=messages, max_tokens=128, temperature=0
        ),
      ),
    ):
      expected = self.greedy(ids, 128)
      last_ids.append(expected[-1])
      [choice] = got.choices
      text = getattr(choice, 'text', None) or choice.message.content
      self.assertEqual(text, self.tokenizer.decode(expected[:-1]))
      self.assertEqual(choice.finish_reason, 'stop')
      self.assertEqual(got.usage.prompt_tokens, len(ids))
    self.assertEqual(last_ids, ends)

  def test_messages_in_parts_are_rendered_as_text(self):
    texts = [self.prompt, 'More & ü']
    parts = [{'type': 'text', 'text': text} for text in texts]
    messages = [{'role': 'user', 'content': '\n'.join(texts)}]
    ids = self.tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, return_dict=False
    )
    got = self.client.chat.completions.create(
      model='m',
      messages=[{'role': 'user', 'content': parts, 'id': 'm1'}],
      max_tokens=8,
      temperature=0,
      extra_body={'chat_id': 'x', 'length_penalty': 1.0, 'stop': ''},
    )
    self.assertEqual(got.usage.prompt_tokens, len(ids))
    self.assertEqual(
      got.choices[0].message.content,
      self.tokenizer.decode(self.greedy(ids, 8)),
    )

  def test_detokenize_keeps_special_tokens(self):
    messages = [{'role': 'user', 'content': 'x'}]
    text = self.tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, tokenize=False
    )
    ids = self.post('/tokenize', {'messages': messages})['tokens']
    self.assertEqual(self.post('/detokenize', {'tokens': ids})['prompt'], text)
    self.assertIn(self.tokenizer.bos_token, text)

  def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
    """Returns the answer of a route that is not OpenAI's."""
    url = str(self.client.base_url).removesuffix('/v1/') + path
    return self.client.post(url, body=body, cast_to=dict[str, object])

  def test_client_and_saxutil(self):
    expected = self.complete(128).choices[0].text
    options = sax.ModelOptions()
    options.SetExtraInput('temperature', 0.0)
    [(text, _), *_] = (
      sax.Model(real_cell.MODEL).LM().Generate(self.prompt, options)
    )
    self.assertEqual(text, expected)
    out = io.StringIO()
    words = ['-terse', '-n=1', '-extra=temperature:0']
    with contextlib.redirect_stdout(out):
      code = saxutil.run(
        [
          *(f'--sax_root={self.cell.root}', 'lm.generate', *words),
          *(real_cell.MODEL, self.prompt),
        ]
      )
    self.assertEqual(code, 0)
    self.assertIn(expected.strip(), out.getvalue())

  def test_pages_and_metrics(self):
    self.complete()
    page = self.read(self.cell.admin_port, f'/model{real_cell.MODEL}')
    self.assertIn('AnyLlama', page)
    self.assertIn(
      'sax_admin_published_models 1.0',
      self.read(self.cell.admin_port, '/metrics'),
    )
    metrics = self.read(self.cell.server_port, '/metrics')
    self.assertRegex(
      metrics,
      r'sax_requests_total\{code="OK",.*model="/sax/test/m"\} [1-9]',
    )
    self.assertRegex(
      metrics, r'sax_output_tokens_total\{.*"/sax/test/m"\} [1-9]'
    )


if __name__ == '__main__':
  absltest.main()
