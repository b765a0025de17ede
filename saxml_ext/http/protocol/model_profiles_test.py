"""Tests of how requests to a model are read."""

import json
import pathlib

from absl.testing import absltest

from saxml_ext.common import errors
from saxml_ext.http.protocol import model_profiles


class GenerationConfigTest(absltest.TestCase):
  def write(self, text):
    directory = pathlib.Path(self.create_tempdir().full_path)
    (directory / 'generation_config.json').write_text(text)
    return directory

  def test_defaults(self):
    config = {
      'temperature': 0.6,
      'top_p': 0.9,
      'top_k': 20,
      'max_new_tokens': 64,
      'eos_token_id': [1, 2],
      'do_sample': True,
      'repetition_penalty': 1.05,
      'min_p': 0.0,
    }
    directory = self.write(json.dumps(config))
    for path in (directory, directory / 'generation_config.json'):
      defaults, ignored = model_profiles.generation_config(str(path))
      self.assertEqual(
        defaults,
        {'temperature': 0.6, 'top_p': 0.9, 'top_k': 20, 'max_tokens': 64},
      )
      self.assertEqual(ignored, ['repetition_penalty=1.05'])

  def test_what_is_not_there_has_no_default(self):
    directory = self.write('{"temperature": null, "bos_token_id": 1}')
    self.assertEqual(model_profiles.generation_config(str(directory)), ({}, []))

  def test_malformed(self):
    for text, expected in (
      ('{', 'cannot be read'),
      ('[]', 'not a JSON object'),
      ('{"temperature": "hot"}', 'json: temperature: "hot" is no number'),
      ('{"temperature": 3}', 'temperature: 3 is not from 0 to 2'),
      ('{"max_new_tokens": 0}', 'max_tokens: 0'),
    ):
      directory = self.write(text)
      with self.assertRaisesRegex(errors.InvalidArgument, expected):
        model_profiles.generation_config(str(directory))
    with self.assertRaisesRegex(errors.InvalidArgument, 'nowhere'):
      model_profiles.generation_config('/nowhere')


class TemplateTest(absltest.TestCase):
  def test_neither_a_name_nor_a_file(self):
    with self.assertRaisesRegex(errors.InvalidArgument, "'jinja' .* alpaca"):
      model_profiles.template('jinja')

  def test_a_name_or_a_file(self):
    self.assertEqual(model_profiles.template('alpaca').reserved[0][0], '#')
    path = self.create_tempfile('t.jinja', '{{ messages | length }}').full_path
    self.assertEqual(model_profiles.template(path).render([{}, {}]), '2')


if __name__ == '__main__':
  absltest.main()
