"""Lists the names and numbers of a protocol, one fact a line.

The lines do not depend on the files that define the messages, so two versions
of a protocol can be compared as sets of lines.
"""

from collections.abc import Iterable, Iterator
import pathlib

from google.protobuf import descriptor_pb2

# `record.py` writes these files.
RECORDS = pathlib.Path(__file__).with_name('records')
_Field = descriptor_pb2.FieldDescriptorProto


def recorded(release: str) -> list[str]:
  """Returns the facts of upstream's public protocol in a release."""
  path = RECORDS / f'{release}.protocol'
  return path.read_text(encoding='utf-8').splitlines()


def lines(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> list[str]:
  """Returns the facts of files, sorted.

  There is a line for each message, field, enum, value, service and method, such
  as `field sax.Model.model_id = 1 optional string`.
  """
  facts: set[str] = set()
  for file in files:
    for message in file.message_type:
      facts.update(_message(file.package, message))
    for enum in file.enum_type:
      facts.update(_enum(file.package, enum))
    for service in file.service:
      name = f'{file.package}.{service.name}'
      facts.add(f'service {name}')
      for method in service.method:
        request = 'stream ' * method.client_streaming + method.input_type
        response = 'stream ' * method.server_streaming + method.output_type
        facts.add(f'method {name}.{method.name} ({request}) ({response})')
  return sorted(facts)


def _message(
  scope: str, message: descriptor_pb2.DescriptorProto
) -> Iterator[str]:
  name = f'{scope}.{message.name}'
  yield f'message {name}' + ' map' * message.options.map_entry
  for field in message.field:
    label = _Field.Label.Name(field.label).removeprefix('LABEL_').lower()
    kind = _Field.Type.Name(field.type).removeprefix('TYPE_').lower()
    fact = f'field {name}.{field.name} = {field.number} {label} {kind}'
    fact += f' {field.type_name}' * bool(field.type_name)
    # Repeated numbers are packed by default in proto3.
    if field.options.HasField('packed') and not field.options.packed:
      fact += ' unpacked'
    if field.proto3_optional:
      fact += ' presence'
    elif field.HasField('oneof_index'):
      fact += f' in {message.oneof_decl[field.oneof_index].name}'
    yield fact
  for nested in message.nested_type:
    yield from _message(name, nested)
  for enum in message.enum_type:
    yield from _enum(name, enum)


def _enum(
  scope: str, enum: descriptor_pb2.EnumDescriptorProto
) -> Iterator[str]:
  name = f'{scope}.{enum.name}'
  yield f'enum {name}'
  for value in enum.value:
    yield f'value {name}.{value.name} = {value.number}'
