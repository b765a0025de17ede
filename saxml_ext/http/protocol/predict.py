"""Vertex AI's form of requests: instances that share parameters."""

from collections.abc import Sequence
import dataclasses

from saxml_ext.http.protocol import chat
from saxml_ext.http.protocol import completions
from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.http.protocol import model_profiles

_MOST_INSTANCES = 256

Form = completions.Completions | chat.Chat


@dataclasses.dataclass(frozen=True)
class Predict:
  """A request: its instances, each a completion or a chat completion."""

  forms: Sequence[Form]


def parse(
  body: fields_lib.Body, profile_of: model_profiles.ProfileOf
) -> Predict:
  """Reads {"instances": [{"prompt": ...}, ...], "parameters": {...}}.

  An instance has the parameters of /v1/completions, or with "messages" those
  of /v1/chat/completions; "parameters" holds for all that do not say
  otherwise.

  Raises:
    problems.BadRequest: a parameter does not fit, or cannot be honoured.
  """
  fields = fields_lib.of(body)
  instances = fields.raw('instances')
  if not isinstance(instances, list) or not instances:
    fields.fail('instances', 'send an array of at least one instance')
  if len(instances) > _MOST_INSTANCES:
    fields.fail(
      'instances',
      f'{len(instances)} were sent; the limit is {_MOST_INSTANCES}',
    )
  parameters = fields.raw('parameters')
  if parameters is not None and not isinstance(parameters, dict):
    fields.fail('parameters', 'send an object')
  fields.finish()
  forms: list[Form] = []
  for i, instance in enumerate(instances):
    if not isinstance(instance, dict):
      fields.fail(f'instances[{i}]', 'send an object')
    whole = {**(parameters or {}), **instance}
    if whole.get('stream'):
      fields.fail('stream', 'predictions come whole; leave it out')
    if 'messages' in instance:
      forms.append(chat.parse(whole, profile_of))
    else:
      form = completions.parse(whole, profile_of)
      if len(form.prompts) > 1:
        fields.fail(f'instances[{i}].prompt', 'send one prompt an instance')
      forms.append(form)
  return Predict(forms)
