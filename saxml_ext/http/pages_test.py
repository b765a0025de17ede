"""Tests the gateway's pages and the OpenAPI document behind one of them."""

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

from absl.testing import absltest

from saxml_ext.http.testing import gateway_case

_STATIC = sorted(pathlib.Path('saxml_ext/http/web/static').iterdir())
# These run on the scripts of the playground.
_CHECKS = 'playground_checks.mjs'
_MESSAGES = [{'role': 'user', 'content': 'x'}]
_SAMPLES = {
  '/v1/completions': {'prompt': 'x'},
  '/v1/chat/completions': {'messages': _MESSAGES},
  '/v1/embeddings': {'input': 'x'},
  '/tokenize': {'prompt': 'x'},
  '/detokenize': {'tokens': [1]},
  '/predict': {'instances': [{'prompt': 'x'}]},
}
# Maps a field to the other fields that it requires.
_TOGETHER = {
  'best_of': {'n': 1},
  'stream_options': {'stream': True},
  'top_logprobs': {'logprobs': True},
}
_WITHOUT_EFFECT = 'Accepted without effect'
_OBJECTS = ('instances', 'messages')
# These fields accept only certain texts.
_CHOSEN = {
  'chat_template': 'plain',
  'encoding_format': 'float',
  'model': 'm',
  'tools': [],
}


def _example(name, schema):
  """Returns an example value for a schema."""
  if name in _CHOSEN:
    return _CHOSEN[name]
  if 'oneOf' in schema:
    return _example('', schema['oneOf'][0])
  if 'enum' in schema:
    return schema['enum'][0]
  kind = schema.get('type')
  if kind == 'array':
    return [_example('', schema['items'])]
  if kind == 'object':
    return {k: _example(k, v) for k, v in schema.get('properties', {}).items()}
  if kind == 'boolean':
    return True
  if kind == 'integer':
    return max(1, schema['minimum']) if 'maximum' in schema else 1
  if kind == 'number':
    return schema['maximum']
  return 'x'


def _members(value: Any, path: str = '') -> set[str]:
  """Returns the paths of all members of a JSON value."""
  if isinstance(value, dict):
    inner = [_members(v, f'{path}.{k}') for k, v in value.items()]
    return set().union({path}, *inner)
  if isinstance(value, list):
    return set().union({path}, *(_members(item, f'{path}[]') for item in value))
  return {path}


class OpenApiTest(gateway_case.GatewayCase):
  def setUp(self):
    super().setUp()
    status, self.api, _ = self.fetch('/openapi.json')
    self.assertEqual(status, 200)

  def schemas(self):
    for path, methods in self.api['paths'].items():
      if 'post' in methods:
        body = methods['post']['requestBody']
        yield path, body['content']['application/json']['schema']

  def test_structure(self):
    self.assertEqual(self.api['openapi'], '3.1.0')
    self.assertLen(list(self.schemas()), len(_SAMPLES))
    for path, methods in self.api['paths'].items():
      [(method, operation)] = methods.items()
      self.assertIn('200', operation['responses'])
      self.assertGreater(len(operation['summary']), 5)
      names = [p['name'] for p in operation.get('parameters', ())]
      self.assertEqual(re.findall(r'\{(\w+)\}', path), names)
      if method == 'get' and not names:
        self.assertEqual(self.fetch(path)[0], 200, path)

  def test_routes_with_a_key_are_marked(self):
    gateway = self.start_gateway(name_of={}.get)
    for path, methods in self.api['paths'].items():
      [(method, operation)] = methods.items()
      body = {} if method == 'post' else None
      status, _, _ = self.fetch(path.replace('{name}', 'm'), body, gateway)
      self.assertEqual(status == 401, 'security' in operation, path)

  def test_every_documented_field_is_accepted(self):
    for path, schema in self.schemas():
      for name, field in schema['properties'].items():
        sample = _SAMPLES[path]
        if path == '/tokenize' and name != 'prompt':
          sample = {'messages': _MESSAGES}
        together = _TOGETHER.get(name, {})
        if field['x-group'] == _WITHOUT_EFFECT:
          together = {}
        body = {name: _example(name, field), **together}
        # The samples contain objects with valid members.
        body = {**sample, **body} if name not in _OBJECTS else sample
        status, got, _ = self.fetch(path, body)
        self.assertEqual(status, 200, (path, body, got))

  def test_strict_gateways_accept_no_other_field(self):
    gateway = self.start_gateway(strict_requests=True)
    everything = {
      name for _, schema in self.schemas() for name in schema['properties']
    }
    self.assertGreater(len(everything), 60)
    for path, schema in self.schemas():
      for name in sorted(everything - schema['properties'].keys()):
        body = {**_SAMPLES[path], name: 1}
        status, got, _ = self.fetch(path, body, gateway)
        self.assertEqual((status, got['error']['param']), (400, name), path)

  def test_every_field_has_a_group_and_a_description(self):
    for path, schema in self.schemas():
      for name, field in schema['properties'].items():
        self.assertIn(
          'x-group', field, f'{path}: describe {name} in reference.json'
        )
        for inner in (field, *field.get('properties', {}).values()):
          self.assertTrue(
            inner.get('description') or inner['x-group'] == _WITHOUT_EFFECT,
            (path, name),
          )

  def test_fields_without_effect_are_one_group(self):
    for path, schema in self.schemas():
      for name, field in schema['properties'].items():
        if field.get('enum') == [None]:
          self.assertEqual(field['x-group'], _WITHOUT_EFFECT, (path, name))

  def test_answers_have_the_form_of_the_examples(self):
    for path, methods in self.api['paths'].items():
      [(method, operation)] = methods.items()
      answers = operation['responses']['200'].get('content')
      examples = answers['application/json']['examples'] if answers else {}
      if method == 'post':
        content = operation['requestBody']['content']['application/json']
        self.assertEqual(content['examples'].keys(), examples.keys(), path)
      for name, example in examples.items():
        body = None
        if method == 'post':
          text = json.dumps(content['examples'][name]['value'])
          body = text.replace('MODEL', 'm').encode()
        status, answer, _ = self.fetch(path, body)
        self.assertEqual(status, 200, (path, name, answer))
        if isinstance(answer, str):
          *events, last, end = answer.split('\n\n')
          self.assertEqual((last, end), ('data: [DONE]', ''))
          answer = [json.loads(e.removeprefix('data: ')) for e in events]
        self.assertEqual(_members(example['value']), _members(answer), path)

  def test_example_of_an_error_is_an_error(self):
    operation = self.api['paths']['/v1/completions']['post']
    content = operation['responses']['default']['content']
    example = content['application/json']['example']
    status, error, _ = self.fetch('/v1/completions', {'prompt': 1.5})
    self.assertEqual(status, 400)
    self.assertEqual(_members(error), _members(example))

  def test_ranges_are_those_of_the_parser(self):
    for path, schema in self.schemas():
      for name, field in schema['properties'].items():
        if 'minimum' not in field or 'maximum' not in field:
          continue
        for wrong in (field['minimum'] - 1, field['maximum'] + 1):
          extra = _TOGETHER.get(name, {})
          status, got, _ = self.fetch(
            path, {**_SAMPLES[path], **extra, name: wrong}
          )
          self.assertEqual((status, got['error']['param']), (400, name), wrong)


class PagesTest(gateway_case.GatewayCase):
  def scripts(self, page: str) -> str:
    """Returns the text of a page's scripts, with all that they import."""
    pending = re.findall(r'<script [^>]*src="/static/([^"]+)"', page)
    self.assertNotEmpty(pending)
    texts: dict[str, str] = {}
    while pending:
      name = pending.pop()
      if name not in texts:
        status, texts[name], _ = self.fetch(f'/static/{name}')
        self.assertEqual(status, 200, name)
        pending += re.findall(r"from '\./([^']+)'", texts[name])
    return '\n'.join(texts.values())

  def test_pages_load_nothing_from_elsewhere(self):
    kinds = {'css': 'text/css', 'html': 'text/html', 'js': 'text/javascript'}
    for path in ('/', '/docs', *(f'/static/{f.name}' for f in _STATIC)):
      status, text, headers = self.fetch(path)
      self.assertEqual(status, 200)
      kind = kinds.get(path.rpartition('.')[2], 'text/html')
      self.assertStartsWith(headers['content-type'], kind)
      policy = headers['content-security-policy']
      self.assertStartsWith(policy, "default-src 'none'; ")
      self.assertNotIn('unsafe', policy)
      # The namespace of SVG is a name, not an address.
      text = text.replace('http://www.w3.org/2000/svg', '')
      self.assertNotRegex(text, r'(?<!\{location.origin)//\w+\.')
      for used in re.findall(r'(?:src|href)="([^"]*)"', text):
        self.assertEqual(self.fetch(used)[0], 200, used)
      # The content security policy forbids these.
      self.assertNotRegex(text, r'<style|style="|\son\w+="|<script>')
    for wrong in ('/static/pages.py', '/static/..%2fpages.py', '/static/'):
      self.assertEqual(self.fetch(wrong)[0], 404)

  def test_scripts_use_only_elements_of_their_page(self):
    for path in ('/', '/docs'):
      _, page, _ = self.fetch(path)
      script = self.scripts(page)
      used = set(re.findall(r"(?:\$|getElementById)\('([\w-]+)'\)", script))
      self.assertContainsSubset(used, re.findall(r'id="([^"]+)"', page))

  def test_scripts_never_read_text_as_markup(self):
    for path in ('/', '/docs'):
      script = self.scripts(self.fetch(path)[1])
      self.assertNotRegex(
        script,
        r'(?:inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser'
        r'|createContextualFragment|\beval\(|new Function|srcdoc',
      )

  def test_playground_shows_how_to_send(self):
    _, page, _ = self.fetch('/')
    self.assertIn('Enter sends, Shift+Enter makes a line', self.scripts(page))
    # Every field and every button without a text has a name.
    for field in re.findall(r'<(?:input|select|textarea) id="(\w+)"', page):
      self.assertRegex(
        page, rf'(?s)<label[^>]*>(?:(?!</label>).)*id="{field}"|for="{field}"'
      )
    for attributes in re.findall(r'<button([^>]*)></button>', page):
      self.assertRegex(attributes, r'aria-label|id="notice-action"')

  def test_modules_of_the_playground(self):
    node = shutil.which('node')
    if node is None:
      self.skipTest('this machine has no node to run the scripts')
    directory = self.create_tempdir()
    directory.create_file('package.json', content='{"type": "module"}')
    for file in (*_STATIC, pathlib.Path('saxml_ext/http', _CHECKS)):
      directory.create_file(file.name, content=file.read_text('utf-8'))
    done = subprocess.run(
      [node, '--test', _CHECKS],
      cwd=directory.full_path,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=120,
    )
    self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == '__main__':
  absltest.main()
