"""Tests of reading config.json."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized

from converters.hf import checkpoint
from converters.testing import small_models
from saxml_ext.families import hf_config
from saxml_ext.pax import errors


class HFConfigTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path

  def read(self, text: str) -> hf_config.HFConfig:
    with open(os.path.join(self.directory, 'config.json'), 'w') as f:
      f.write(text)
    _, config = checkpoint.read_config(self.directory)
    return config

  def test_reads_the_fields_and_their_defaults(self):
    self.assertEqual(
      self.read(json.dumps(small_models.config())),
      hf_config.HFConfig(
        num_layers=2,
        model_dim=16,
        num_heads=2,
        hidden_dim=64,
        vocab_size=11,
        rotary_dim=4,
        max_positions=128,
        ln_epsilon=1e-5,
        tied_embeddings=False,
        bos_id=3,
        eos_id=4,
        pad_id=None,
        stop_ids=(4,),
      ),
    )

  def test_an_answer_may_end_in_one_of_several_tokens(self):
    config = self.read(json.dumps(small_models.config(eos_token_id=[4, 7])))
    self.assertEqual((config.eos_id, config.stop_ids), (4, (4, 7)))
    with self.assertRaisesRegex(errors.CheckpointError, 'eos_token_id.*-1'):
      self.read(json.dumps(small_models.config(eos_token_id=[4, -1])))

  def test_end_ids_of_both_kinds_of_checkpoints(self):
    self.assertEqual(checkpoint.end_ids(self.directory), ())
    self.read(json.dumps(small_models.config(eos_token_id=[4, 7])))
    self.assertEqual(checkpoint.end_ids(self.directory), (4, 7))
    path = os.path.join(self.directory, 'gptj_config.json')
    for text, expected in (
      ('{"eos_token_id": 0}', (0,)),
      ('{"eos_token_id": 3, "stop_token_ids": [3, 5]}', (3, 5)),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      self.assertEqual(checkpoint.end_ids(self.directory), expected)

  def test_end_ids_of_generation_config_come_first(self):
    config = json.dumps(small_models.config())
    path = os.path.join(self.directory, 'generation_config.json')
    for text, expected in (
      ('{}', (4,)),
      ('{"eos_token_id": null}', (4,)),
      ('{"eos_token_id": 7}', (7,)),
      ('{"eos_token_id": [8, 4]}', (8, 4)),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      found = self.read(config)
      self.assertEqual((found.eos_id, found.stop_ids), (expected[0], expected))
    for text, message in (
      ('{"eos_token_id": "</s>"}', 'eos_token_id is "</s>"'),
      ('{', 'is not JSON'),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      with self.assertRaisesRegex(
        errors.CheckpointError, f'generation_config.json.*{message}'
      ):
        self.read(config)

  @parameterized.parameters(
    (dict(auto_map={'AutoConfig': 'evil.Config'}), 'auto_map.*was not run'),
    (
      dict(model_type='mistral'),
      "model_type 'mistral' is not supported. Available: gpt_neox, gptj, llama",
    ),
    (dict(activation_function='relu'), 'activation_function is "relu"'),
    (dict(n_layer=None), 'n_layer is null. Expected an integer between 1 and 2147483647'),
    (dict(n_embd='16'), 'n_embd is "16"'),
    (dict(n_head=3), 'model_dim 16 is not a multiple of num_heads 3'),
    (dict(n_layer=10**30), 'n_layer is'),
    (dict(vocab_size=True), 'vocab_size is true'),
    (dict(rotary_dim=10), 'rotary_dim is 10. .* even number of at most 8'),
    (dict(rotary_dim=3), 'rotary_dim is 3'),
    (dict(layer_norm_epsilon=-1), 'layer_norm_epsilon'),
    (dict(eos_token_id='</s>'), 'eos_token_id is "</s>"'),
  )
  def test_refuses(self, changes, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      self.read(json.dumps(small_models.config(**changes)))

  def test_refuses_what_is_no_object(self):
    for text, message in (('', 'is not JSON'), ('[]', 'contains a list')):
      with self.assertRaisesRegex(errors.CheckpointError, message):
        self.read(text)

  def test_missing(self):
    with self.assertRaisesRegex(
      errors.CheckpointError, 'config.json cannot be read: No such file'
    ):
      checkpoint.read_config(self.directory)


if __name__ == '__main__':
  absltest.main()
