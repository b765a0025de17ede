"""Checks that all processes of a group have prepared the same model."""

from collections.abc import Mapping
from typing import TypeAlias

from absl import logging
import grpc

from saxml_ext.common import errors
from saxml_ext.groups import group_engine
from saxml_ext.protobuf import group_pb2

# The identity of the prepared model, or the error if it cannot be prepared.
Outcome: TypeAlias = Mapping[str, str] | errors.SaxError

_ABSENT = 'nothing'
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def outcome_of(answer: group_pb2.Answer) -> Outcome:
  """Returns the outcome in a follower's answer to a `load` entry."""
  if answer.HasField('failure'):
    failure = answer.failure
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    return errors.from_code(code, failure.text)
  return dict(answer.identity.parts)


def log(model_path: str, error: errors.SaxError, cause: Exception) -> None:
  """Logs the reason why this process could not prepare a model."""
  logging.error(
    'group: preparing %s failed: %s',
    model_path,
    error.message,
    # The message alone explains an invalid request, without a traceback.
    exc_info=None if error is cause else cause,
  )


def failure_of(load: int, error: errors.SaxError) -> group_pb2.Answer:
  """Returns the answer of a follower that could not prepare a model."""
  return group_pb2.Answer(
    failure=group_pb2.Failure(
      load=load, code=error.code.value[0], text=error.message
    )
  )


def problem(
  outcomes: Mapping[group_engine.Host, Outcome],
) -> errors.SaxError | None:
  """Returns the error that keeps a model from starting, or None.

  Args:
    outcomes: The outcome of every process.
  """
  failed = {
    host: outcome
    for host, outcome in outcomes.items()
    if isinstance(outcome, errors.SaxError)
  }
  if failed:
    first = next(iter(failed.values()))
    if len({error.message for error in failed.values()}) == 1:
      if len(failed) == len(outcomes):
        return first  # The same error as on a single host.
    text = '; '.join(f'{host}: {e.message}' for host, e in failed.items())
    return errors.from_code(first.code, text)
  identities = {
    host: outcome
    for host, outcome in outcomes.items()
    if not isinstance(outcome, errors.SaxError)
  }
  names = dict.fromkeys(name for parts in identities.values() for name in parts)
  differences = [_difference(name, identities) for name in names]
  texts = [text for text in differences if text]
  if texts:
    return errors.FailedPrecondition(
      f'{"; ".join(texts)}. All hosts of a group must have the same values.'
    )
  return None


def _difference(
  name: str, identities: Mapping[group_engine.Host, Mapping[str, str]]
) -> str:
  """Describes which hosts have which value of a part; empty if all agree."""
  holders: dict[str, list[group_engine.Host]] = {}
  for host, parts in identities.items():
    holders.setdefault(parts.get(name, _ABSENT), []).append(host)
  if len(holders) == 1:
    return ''
  return f'{name} differs: ' + ', '.join(
    f'{_names(hosts)} {value}' for value, hosts in holders.items()
  )


def _names(hosts: list[group_engine.Host]) -> str:
  if len(hosts) == 1:
    return f'{hosts[0]} has'
  # Two names are enough to find the cause, and keep the message short.
  shown = ', '.join(map(str, hosts[:2]))
  more = f' and {len(hosts) - 2} more' if len(hosts) > 2 else ''
  return f'{shown}{more} have'
